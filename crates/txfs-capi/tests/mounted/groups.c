/* File groups: what is a member belongs to the transaction, and everything else passes. */
#include "check.h"

const char *mount_point, *outside_directory;

static void add(const char *path, int key) {
    int fd = open(path, O_RDONLY);
    CHECK(fd >= 0);
    CHECK(add_tx_file_group(fd, key) == 0);
    CHECK(close(fd) == 0);
}

static int group_of(const char *one, const char *other) {
    int key = create_tx_file_group();
    CHECK(key >= 0);
    add(one, key);
    if (other)
        add(other, key);
    return key;
}

static void two_files(void) {
    CHECK(put(in_mount("a"), "old a") == 0 && put(in_mount("b"), "old b") == 0);
    CHECK(put(in_mount("log"), "") == 0);
}

/* Two members and a log that is none, by path and by descriptors of before. */
static void members_only(void) {
    two_files();
    int key = group_of(in_mount("a"), in_mount("b"));
    int b = open(in_mount("b"), O_RDWR), journal = open(in_mount("log"), O_WRONLY | O_APPEND);
    CHECK(b >= 0 && journal >= 0);
    CHECK(start_tx_file_group(key) == 0);
    CHECK(put(in_mount("a"), "new a") == 0);
    CHECK(pwrite(b, "new", 3, 0) == 3);
    CHECK(write(journal, "began\n", 6) == 6);
    CHECK(fsync(journal) == 0);
    CHECK(put(in_mount("other"), "passes") == 0);
    CHECK(holds(in_mount("a"), "new a") && holds(in_mount("b"), "new b"));
    CHECK(holds_outside(in_mount("a"), "old a") && holds_outside(in_mount("b"), "old b"));
    CHECK(holds_outside(in_mount("log"), "began\n") && holds_outside(in_mount("other"), "passes"));
    CHECK(commit_tx_file_group(key) == 0);
    CHECK(holds(in_mount("a"), "new a") && holds(in_mount("b"), "new b"));
    CHECK(holds(in_mount("log"), "began\n") && holds(in_mount("other"), "passes"));
    /* And once more with the same group. */
    CHECK(start_tx_file_group(key) == 0);
    CHECK(put(in_mount("a"), "newer") == 0);
    CHECK(commit_tx_file_group(key) == 0);
    CHECK(holds_outside(in_mount("a"), "newer"));
    CHECK(close(b) == 0 && close(journal) == 0);
    CHECK(delete_tx_file_group(key) == 0);
}

static void aborted(void) {
    two_files();
    int key = group_of(in_mount("a"), in_mount("b"));
    CHECK(start_tx_file_group(key) == 0);
    CHECK(put(in_mount("a"), "new a") == 0 && unlink(in_mount("b")) == 0);
    CHECK(put(in_mount("log"), "stays") == 0);
    CHECK(abort_tx_file_group(key) == 0);
    CHECK(holds(in_mount("a"), "old a") && holds(in_mount("b"), "old b") && holds(in_mount("log"), "stays"));
}

static void member_directory(void) {
    CHECK(mkdir(in_mount("box"), 0755) == 0 && put(in_mount("box/there"), "old") == 0);
    int key = group_of(in_mount("box"), NULL);
    CHECK(start_tx_file_group(key) == 0);
    CHECK(put(in_mount("box/made"), "made") == 0 && put(in_mount("box/there"), "new") == 0);
    CHECK(mkdir(in_mount("box/below"), 0755) == 0 && put(in_mount("box/below/deep"), "deep") == 0);
    CHECK(holds(in_mount("box/below/deep"), "deep"));
    CHECK(!exists_outside(in_mount("box/made")) && !exists_outside(in_mount("box/below")));
    CHECK(holds_outside(in_mount("box/there"), "old"));
    /* Relative to the directory, and in it. */
    int box = open(in_mount("box"), O_RDONLY | O_DIRECTORY);
    CHECK(box >= 0);
    int fd = openat(box, "relative", O_CREAT | O_WRONLY, 0644);
    CHECK(fd >= 0 && close(fd) == 0 && close(box) == 0);
    CHECK(!exists_outside(in_mount("box/relative")));
    CHECK(chdir(in_mount("box")) == 0);
    CHECK(put("here", "here") == 0);
    CHECK(!exists_outside(in_mount("box/here")));
    CHECK(commit_tx_file_group(key) == 0);
    CHECK(holds("here", "here") && holds_outside(in_mount("box/below/deep"), "deep"));
    CHECK(holds_outside(in_mount("box/made"), "made") && holds_outside(in_mount("box/there"), "new"));
    /* What was made inside is a member afterwards too. */
    CHECK(start_tx_file_group(key) == 0);
    CHECK(put(in_mount("box/below/deep"), "deeper") == 0);
    CHECK(holds_outside(in_mount("box/below/deep"), "deep"));
    CHECK(abort_tx_file_group(key) == 0);
    CHECK(holds_outside(in_mount("box/below/deep"), "deep"));
    CHECK(chdir("/") == 0);
}

/* A replacement of a member by a file that was prepared outside of the group. */
static void renames(void) {
    two_files();
    int key = group_of(in_mount("a"), NULL);
    CHECK(put(in_mount("a.new"), "new a") == 0);
    CHECK(start_tx_file_group(key) == 0);
    CHECK(rename(in_mount("a.new"), in_mount("a")) == 0);
    CHECK(holds_outside(in_mount("a"), "old a") && exists_outside(in_mount("a.new")));
    /* Neither is a member. */
    CHECK(rename(in_mount("b"), in_mount("c")) == 0);
    CHECK(holds_outside(in_mount("c"), "old b"));
    CHECK(commit_tx_file_group(key) == 0);
    CHECK(holds(in_mount("a"), "new a") && !exists(in_mount("a.new")) && holds(in_mount("c"), "old b"));
}

static void one_group(void) {
    two_files();
    int key = group_of(in_mount("a"), NULL), other = create_tx_file_group();
    int fd = open(in_mount("a"), O_RDONLY);
    CHECK(fd >= 0 && other >= 0 && other != key);
    FAILS(add_tx_file_group(fd, other), EEXIST);
    FAILS(remove_tx_file_group(fd, other), ENOENT);
    CHECK(remove_tx_file_group(fd, key) == 0);
    CHECK(add_tx_file_group(fd, other) == 0);
    CHECK(close(fd) == 0);
}

static void members_stay(void) {
    two_files();
    int key = group_of(in_mount("a"), NULL);
    int a = open(in_mount("a"), O_RDONLY), b = open(in_mount("b"), O_RDONLY);
    CHECK(start_tx_file_group(key) == 0);
    FAILS(add_tx_file_group(b, key), EBUSY);
    FAILS(remove_tx_file_group(a, key), EBUSY);
    CHECK(commit_tx_file_group(key) == 0);
    CHECK(add_tx_file_group(b, key) == 0 && remove_tx_file_group(a, key) == 0);
    CHECK(close(a) == 0 && close(b) == 0);
}

/* A second process starts the running group, and commits for both. */
static void processes(void) {
    two_files();
    int status, key = group_of(in_mount("a"), in_mount("b"));
    CHECK(start_tx_file_group(key) == 0);
    CHECK(put(in_mount("a"), "mine") == 0);
    pid_t child = fork();
    if (child == 0) {
        CHECK(holds(in_mount("a"), "old a"));
        CHECK(start_tx_file_group(key) == 0);
        CHECK(holds(in_mount("a"), "mine") && put(in_mount("b"), "the child's") == 0);
        CHECK(commit_tx_file_group(key) == 0);
        _exit(0);
    }
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    CHECK(commit_tx_file_group(key) == -1);
    CHECK(holds(in_mount("a"), "mine") && holds(in_mount("b"), "the child's"));
}

static int shared_key;

static void *joins(void *unused) {
    (void)unused;
    CHECK(start_tx_file_group(shared_key) == 0);
    CHECK(holds(in_mount("a"), "mine") && put(in_mount("b"), "the thread's") == 0);
    CHECK(fs_tx_leave() == 0);
    CHECK(holds(in_mount("b"), "old b"));
    return NULL;
}

static void threads(void) {
    pthread_t thread;
    two_files();
    shared_key = group_of(in_mount("a"), in_mount("b"));
    CHECK(start_tx_file_group(shared_key) == 0);
    CHECK(put(in_mount("a"), "mine") == 0);
    CHECK(pthread_create(&thread, NULL, joins, NULL) == 0 && pthread_join(thread, NULL) == 0);
    CHECK(holds(in_mount("b"), "the thread's"));
    CHECK(commit_tx_file_group(shared_key) == 0);
    CHECK(holds(in_mount("a"), "mine") && holds(in_mount("b"), "the thread's"));
}

static void deletion(void) {
    two_files();
    int key = group_of(in_mount("a"), NULL);
    CHECK(start_tx_file_group(key) == 0);
    CHECK(put(in_mount("a"), "new a") == 0);
    CHECK(delete_tx_file_group(key) == 0);
    CHECK(commit_tx_file_group(key) == -1);
    CHECK(holds(in_mount("a"), "old a"));
    FAILS(start_tx_file_group(key), EINVAL);
}

static void wrong_use(void) {
    two_files();
    int key = group_of(in_mount("a"), NULL), fd = open(in_mount("b"), O_RDONLY);
    FAILS(start_tx_file_group(key + 1000), EINVAL);
    FAILS(start_tx_file_group(-1), EINVAL);
    FAILS(delete_tx_file_group(-5), EINVAL);
    FAILS(add_tx_file_group(fd, key + 1000), EINVAL);
    FAILS(add_tx_file_group(-1, key), EBADF);
    FAILS(commit_tx_file_group(key), EINVAL);
    FAILS(abort_tx_file_group(key), EINVAL);
    BEGIN();
    FAILS(start_tx_file_group(key), EBUSY);
    FAILS(commit_tx_file_group(key), EINVAL);
    ABORT();
    CHECK(start_tx_file_group(key) == 0);
    FAILS(commit_tx_file_group(key + 1), EINVAL);
    CHECK(fs_tx_commit() == 0);
    CHECK(close(fd) == 0);
}

static const struct test tests[] = {
    {"members_only", members_only},
    {"abort", aborted},
    {"member_directory", member_directory},
    {"renames", renames},
    {"one_group", one_group},
    {"members_stay", members_stay},
    {"processes", processes},
    {"threads", threads},
    {"deletion", deletion},
    {"wrong_use", wrong_use},
    {NULL, NULL},
};

int main(int argc, char **argv) {
    return run_one(tests, argc, argv);
}
