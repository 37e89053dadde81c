/* Threads and processes: who sees what, who conflicts, and what ends of threads and processes do. */
#include "check.h"
#include <semaphore.h>
#include <signal.h>
#include <sys/mman.h>

const char *mount_point, *outside_directory;

static pthread_barrier_t barrier;
static int shared_fd;

#define THREADS 6

static void start(void *(*run)(void *), int count) {
    pthread_t threads[THREADS];
    CHECK(pthread_barrier_init(&barrier, NULL, count) == 0);
    for (long i = 0; i < count; i++)
        CHECK(pthread_create(&threads[i], NULL, run, (void *)i) == 0);
    for (int i = 0; i < count; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
}

/* Each thread writes its own page of a file that was opened before, and sees its own and nobody else's. */
static void *own_page(void *argument) {
    long me = (long)argument;
    char page[4096], found[4096];
    memset(page, 'A' + me, sizeof page);
    BEGIN();
    CHECK(pwrite(shared_fd, page, sizeof page, me * 4096) == 4096);
    pthread_barrier_wait(&barrier);
    CHECK(pread(shared_fd, found, 4096, me * 4096) == 4096 && memcmp(found, page, 4096) == 0);
    for (int i = 0; i < THREADS; i++)
        if (i != me) {
            CHECK(pread(shared_fd, found, 1, i * 4096 + 1) == 1 && found[0] == 0);
        }
    char name[16];
    snprintf(name, sizeof name, "made%ld", me);
    CHECK(put(in_mount(name), name) == 0);
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < THREADS; i++) {
        snprintf(name, sizeof name, "made%d", i);
        CHECK(exists(in_mount(name)) == (i == me));
    }
    pthread_barrier_wait(&barrier);
    /* They have read each other's pages: only with snapshot isolation may all of them commit. */
    COMMIT();
    return NULL;
}

static void *own_page_snapshot(void *argument) {
    long me = (long)argument;
    char page[4096], found[1];
    memset(page, 'A' + me, sizeof page);
    CHECK(fs_tx_begin_with(FS_TX_SNAPSHOT) == 0);
    CHECK(pwrite(shared_fd, page, sizeof page, me * 4096) == 4096);
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < THREADS; i++)
        CHECK(pread(shared_fd, found, 1, i * 4096) == 1 && found[0] == (i == me ? 'A' + me : 0));
    pthread_barrier_wait(&barrier);
    COMMIT();
    return NULL;
}

static void threads_with_a_descriptor_of_before(void) {
    shared_fd = open(in_mount("f"), O_CREAT | O_RDWR, 0644);
    CHECK(ftruncate(shared_fd, THREADS * 4096) == 0);
    start(own_page_snapshot, THREADS);
    char found[1];
    for (int i = 0; i < THREADS; i++)
        CHECK(pread(shared_fd, found, 1, i * 4096 + 7) == 1 && found[0] == 'A' + i);
}

/* As many threads append to files of their own through descriptors of before; offsets are each one's. */
static void *append(void *argument) {
    long me = (long)argument;
    char name[16];
    snprintf(name, sizeof name, "log%ld", me);
    int fd = open(in_mount(name), O_CREAT | O_RDWR | O_APPEND, 0644);
    for (int round = 0; round < 50; round++) {
        BEGIN();
        CHECK(write(fd, "0123456789", 10) == 10 && lseek(fd, 0, SEEK_CUR) == round / 2 * 10 + 10);
        if (round % 2)
            COMMIT();
        else
            ABORT();
        CHECK(lseek(fd, 0, SEEK_CUR) == (round + 1) / 2 * 10);
    }
    struct stat status;
    CHECK(fstat(fd, &status) == 0 && status.st_size == 250 && close(fd) == 0);
    return NULL;
}

static void threads_append(void) { start(append, THREADS); }

static void threads_see_their_own(void) {
    shared_fd = open(in_mount("f"), O_CREAT | O_RDWR, 0644);
    CHECK(ftruncate(shared_fd, THREADS * 4096) == 0);
    (void)own_page;
    pthread_barrier_init(&barrier, NULL, 1);
    start(own_page, 1);
}

static void conflict_at_commit(void) {
    CHECK(put(in_mount("x"), "0") == 0);
    const char *report;
    BEGIN();
    CHECK(holds(in_mount("x"), "0") && put(in_mount("y"), "1") == 0);
    FAILS(fs_tx_conflict(&report), ENODATA);
    pid_t child = fork();
    if (child == 0) {
        BEGIN();
        CHECK(put(in_mount("x"), "2") == 0);
        COMMIT();
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    FAILS(fs_tx_commit(), ECONFLICT);
    CHECK(fs_tx_conflict(&report) == 0 && strstr(report, "\"path\":\"x\"") && strstr(report, "\"conflicts\""));
    CHECK(!exists(in_mount("y")) && holds(in_mount("x"), "2"));
    BEGIN();
    CHECK(holds(in_mount("x"), "2"));
    COMMIT();
    FAILS(fs_tx_conflict(&report), ENODATA);
    FAILS(fs_tx_commit(), EINVAL);
}

static void conflict_at_the_call(void) {
    CHECK(put(in_mount("x"), "0") == 0);
    const char *report;
    CHECK(fs_tx_begin_with(FS_TX_EAGER) == 0);
    CHECK(put(in_mount("mine"), "1") == 0 && holds(in_mount("x"), "0"));
    pid_t child = fork();
    if (child == 0)
        _exit(put(in_mount("x"), "2") == 0 ? 0 : 1);
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    int fd = open(in_mount("x"), O_WRONLY), failed = fd < 0 || write(fd, "3", 1) < 0 || fsync(fd) < 0;
    int number = errno;
    CHECK(failed && number == ECONFLICT);
    ABORT();
    CHECK(fs_tx_conflict(&report) == 0 && strstr(report, "\"path\":\"x\""));
    close(fd);
    CHECK(!exists(in_mount("mine")) && holds(in_mount("x"), "2"));
}

static void nesting_is_flat(void) {
    BEGIN();
    CHECK(put(in_mount("a"), "a") == 0);
    BEGIN();
    CHECK(put(in_mount("b"), "b") == 0);
    COMMIT();
    CHECK(!exists_outside(in_mount("a")) && !exists_outside(in_mount("b")));
    COMMIT();
    CHECK(exists(in_mount("a")) && exists(in_mount("b")));
    BEGIN();
    CHECK(unlink(in_mount("a")) == 0);
    BEGIN();
    ABORT();
    FAILS(open(in_mount("a"), O_RDONLY), ECANCELED);
    CHECK(put(out_of_mount("x"), "x") == 0);
    FAILS(fs_tx_commit(), ECANCELED);
    CHECK(exists(in_mount("a")));
    FAILS(fs_tx_commit(), EINVAL);
    FAILS(fs_tx_begin_with(1u << 31), EINVAL);
    FAILS(fs_tx_begin_with(FS_TX_EAGER | FS_TX_FIRST_COMMITTER), EINVAL);
    FAILS(fs_tx_commit_with(77), EINVAL);
}

static void *ends_inside(void *argument) {
    BEGIN();
    CHECK(put(in_mount("left"), "left") == 0);
    if (argument)
        pthread_exit(NULL);
    return NULL;
}

static void end_of_a_thread_aborts(void) {
    for (long how = 0; how < 2; how++) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, ends_inside, (void *)how) == 0 && pthread_join(thread, NULL) == 0);
        CHECK(!exists(in_mount("left")));
        BEGIN();
        CHECK(put(in_mount("left"), "right") == 0);
        ABORT();
    }
}

static void a_child_dies_inside(void) {
    CHECK(put(in_mount("x"), "0") == 0);
    for (int how = 0; how < 3; how++) {
        pid_t child = fork();
        if (child == 0) {
            BEGIN();
            if (put(in_mount("x"), "1") != 0 || put(in_mount("new"), "1") != 0)
                _exit(1);
            if (how == 0)
                _exit(0);
            if (how == 1)
                kill(getpid(), SIGKILL);
            execl("/bin/true", "true", NULL);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child && (how == 1) == WIFSIGNALED(status));
        CHECK(how == 1 || WEXITSTATUS(status) == 0);
        CHECK(holds(in_mount("x"), "0") && !exists(in_mount("new")));
        BEGIN();
        CHECK(put(in_mount("x"), "2") == 0 && put(in_mount("x"), "0") == 0);
        COMMIT();
    }
}

/* A child is outside, and what it has of the parent's does not keep the transaction open. */
static void a_child_is_outside(void) {
    BEGIN();
    CHECK(put(in_mount("x"), "1") == 0);
    int ready[2];
    CHECK(pipe(ready) == 0);
    pid_t child = fork();
    if (child == 0) {
        char byte;
        close(ready[1]);
        CHECK(!exists(in_mount("x")) && put(in_mount("y"), "outside") == 0);
        BEGIN();
        CHECK(put(in_mount("z"), "own") == 0);
        COMMIT();
        CHECK(read(ready[0], &byte, 1) == 0);
        _exit(0);
    }
    /* A new name in the root, which the parent has not listed. */
    for (int i = 0; i < 1000 && !exists_outside(in_mount("z")); i++)
        usleep(10000);
    COMMIT();
    CHECK(exists(in_mount("x")) && exists(in_mount("y")) && exists(in_mount("z")));
    close(ready[1]);
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

/* Threads over two files: each transaction changes both alike, so they always agree. */
#define ROUNDS 60
static int committed[THREADS];

static void *random_operations(void *argument) {
    long me = (long)argument;
    unsigned seed = 17 * me + 3;
    int fds[2] = {-1, -1};
    for (int round = 0; round < ROUNDS; round++) {
        char text[64];
        int length = snprintf(text, sizeof text, "%ld-%d", me, round), failed = 0;
        int how = rand_r(&seed) % 6, keep = rand_r(&seed) % 4;
        BEGIN();
        for (int i = 0; i < 2 && !failed; i++) {
            const char *path = in_mount(i ? "two" : "one"), *temporary = in_mount(i ? "two.new" : "one.new");
            int fd = -1;
            switch (how) {
            case 0:
                failed = put(path, text) != 0;
                break;
            case 1:
                failed = put(temporary, text) != 0 || rename(temporary, path) != 0;
                break;
            case 2:
                fd = open(path, O_RDWR);
                failed = fd < 0 || pwrite(fd, text, length, 0) != length || ftruncate(fd, length) != 0 || fsync(fd) != 0;
                break;
            case 3:
                failed = unlink(path) != 0 || put(path, text) != 0;
                break;
            case 4: {
                FILE *file = fopen(path, "w");
                failed = !file || fputs(text, file) < 0 || fflush(file) != 0;
                if (file)
                    fclose(file);
                break;
            }
            case 5:
                /* Through a descriptor of an earlier round. */
                fd = fds[i];
                fds[i] = -1;
                if (fd < 0)
                    fd = open(path, O_RDWR);
                struct stat mine, named;
                failed = fd < 0 || fstat(fd, &mine) != 0 || stat(path, &named) != 0;
                if (!failed && mine.st_ino != named.st_ino) {
                    close(fd);
                    failed = (fd = open(path, O_RDWR)) < 0;
                }
                failed = failed || ftruncate(fd, 0) != 0 || pwrite(fd, text, length, 0) != length;
                break;
            }
            int number = errno;
            if (failed)
                CHECK(number == ECONFLICT || number == ESTALE);
            if (fd >= 0 && fds[i] < 0 && how == 2)
                fds[i] = fd;
            else if (fd >= 0)
                close(fd);
        }
        if (keep == 0 || failed) {
            fs_tx_abort();
        } else {
            int result = fs_tx_commit();
            CHECK(result == 0 || (result == -1 && (fs_tx_conflict(NULL) == 0)));
            committed[me] += result == 0;
        }
    }
    for (int i = 0; i < 2; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    return NULL;
}

static void *reader(void *stop) {
    while (!__atomic_load_n((int *)stop, __ATOMIC_RELAXED)) {
        char one[64] = "", two[64] = "";
        BEGIN();
        int first = open(in_mount("one"), O_RDONLY), second = open(in_mount("two"), O_RDONLY);
        CHECK(first >= 0 && second >= 0 && read(first, one, 63) >= 0 && read(second, two, 63) >= 0);
        CHECK(strcmp(one, two) == 0);
        close(first);
        close(second);
        fs_tx_abort();
    }
    return NULL;
}

static void random_operations_on_two_files(void) {
    CHECK(put(in_mount("one"), "start") == 0 && put(in_mount("two"), "start") == 0);
    int stop = 0;
    pthread_t looking;
    CHECK(pthread_create(&looking, NULL, reader, &stop) == 0);
    start(random_operations, THREADS);
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    CHECK(pthread_join(looking, NULL) == 0);
    int all = 0;
    for (int i = 0; i < THREADS; i++)
        all += committed[i];
    char one[64] = "", two[64] = "";
    int first = open(in_mount("one"), O_RDONLY), second = open(in_mount("two"), O_RDONLY);
    CHECK(read(first, one, 63) > 0 && read(second, two, 63) > 0 && strcmp(one, two) == 0 && all > 0);
    CHECK(!exists(in_mount("one.new")) && !exists(in_mount("two.new")));
    printf("%d of %d committed\n", all, THREADS * ROUNDS);
}

static void explicit_transactions(void) {
    CHECK(fs_tx_begin_with(FS_TX_EXPLICIT) == 0);
    int root = fs_tx_dirfd();
    CHECK(root >= 0);
    int fd = openat(root, "made", O_CREAT | O_RDWR, 0644);
    CHECK(fd >= 0 && write(fd, "made", 4) == 4 && !exists(in_mount("made")));
    COMMIT();
    CHECK(holds(in_mount("made"), "made") && close(root) == 0 && fs_tx_intercepted() == 0);
    BEGIN();
    root = fs_tx_dirfd();
    CHECK(root >= 0 && (fd = openat(root, "more", O_CREAT | O_RDWR, 0644)) >= 0 && exists(in_mount("more")));
    COMMIT();
    CHECK(exists(in_mount("more")) && faccessat(root, "more", F_OK, 0) == 0);
    FAILS(fs_tx_dirfd(), EINVAL);
}

static sem_t step[2];

static void *joins(void *fd) {
    CHECK(fs_tx_join((int)(long)fd) == 0);
    FAILS(fs_tx_join((int)(long)fd), EBUSY);
    CHECK(holds(in_mount("first"), "first") && put(in_mount("second"), "second") == 0);
    CHECK(fs_tx_leave() == 0 && !exists(in_mount("second")));
    sem_post(&step[0]);
    return NULL;
}

static void threads_join(void) {
    pthread_t thread;
    sem_init(&step[0], 0, 0);
    BEGIN();
    CHECK(put(in_mount("first"), "first") == 0);
    int fd = fs_tx_fd();
    CHECK(fd >= 0 && pthread_create(&thread, NULL, joins, (void *)(long)fd) == 0);
    sem_wait(&step[0]);
    CHECK(pthread_join(thread, NULL) == 0 && holds(in_mount("second"), "second"));
    COMMIT();
    CHECK(holds(in_mount("first"), "first") && holds(in_mount("second"), "second"));
    CHECK(fs_tx_join(fd) == -1 && close(fd) == 0);
    FAILS(fs_tx_leave(), EINVAL);
    FAILS(fs_tx_fd(), EINVAL);
    FAILS(fs_tx_join(0), EINVAL);
    FAILS(fs_tx_join(9999), EBADF);
}

static void processes_join(void) {
    for (int child_commits = 0; child_commits < 2; child_commits++) {
        int ends[2];
        CHECK(pipe(ends) == 0);
        BEGIN();
        CHECK(put(in_mount("first"), "first") == 0);
        int fd = fs_tx_fd();
        pid_t child = fork();
        if (child == 0) {
            CHECK(!exists(in_mount("first")) && fs_tx_join(fd) == 0 && holds(in_mount("first"), "first"));
            CHECK(put(in_mount("second"), "second") == 0);
            if (child_commits)
                COMMIT();
            else
                CHECK(fs_tx_leave() == 0);
            _exit(0);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child && status == 0);
        if (child_commits) {
            CHECK(holds_outside(in_mount("second"), "second"));
            int result = fs_tx_commit();
            CHECK(result == -1);
        } else {
            CHECK(holds(in_mount("second"), "second"));
            COMMIT();
        }
        CHECK(close(fd) == 0 && holds(in_mount("first"), "first") && holds(in_mount("second"), "second"));
        CHECK(unlink(in_mount("first")) == 0 && unlink(in_mount("second")) == 0);
    }
}

static void other_places_are_left_alone(void) {
    int ends[2];
    CHECK(pipe(ends) == 0);
    BEGIN();
    CHECK(put(out_of_mount("x"), "x") == 0 && holds_outside(out_of_mount("x"), "x"));
    CHECK(write(ends[1], "p", 1) == 1);
    char byte;
    CHECK(read(ends[0], &byte, 1) == 1 && byte == 'p' && mkdir(out_of_mount("d"), 0755) == 0);
    FAILS(rename(out_of_mount("x"), in_mount("x")), EXDEV);
    ABORT();
    CHECK(holds(out_of_mount("x"), "x") && exists(out_of_mount("d")));
}

static void pairs(void) {
    for (int i = 0; i < 3000; i++) {
        BEGIN();
        if (i % 3 == 0) {
            CHECK(put(in_mount("x"), "x") == 0);
        }
        if (i % 2)
            COMMIT();
        else
            ABORT();
    }
    int open_now = 0;
    DIR *list = opendir("/proc/self/fd");
    while (readdir(list))
        open_now++;
    CHECK(open_now < 16 && closedir(list) == 0);
}

static const struct test tests[] = {
    {"threads_with_a_descriptor_of_before", threads_with_a_descriptor_of_before},
    {"threads_append", threads_append},
    {"threads_see_their_own", threads_see_their_own},
    {"conflict_at_commit", conflict_at_commit},
    {"conflict_at_the_call", conflict_at_the_call},
    {"nesting_is_flat", nesting_is_flat},
    {"end_of_a_thread_aborts", end_of_a_thread_aborts},
    {"a_child_dies_inside", a_child_dies_inside},
    {"a_child_is_outside", a_child_is_outside},
    {"random_operations_on_two_files", random_operations_on_two_files},
    {"explicit_transactions", explicit_transactions},
    {"threads_join", threads_join},
    {"processes_join", processes_join},
    {"other_places_are_left_alone", other_places_are_left_alone},
    {"pairs", pairs},
    {NULL, NULL},
};

int main(int argc, char **argv) { return run_one(tests, argc, argv); }
