/* Descriptors of before, of inside, and what becomes of them at the end. */
#include "check.h"
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/syscall.h>
#include <sys/uio.h>

const char *mount_point, *outside_directory;

static int at(int fd, off_t expected) { return lseek(fd, 0, SEEK_CUR) == expected; }

static int reads(int fd, const char *text) {
    char found[256];
    ssize_t len = strlen(text);
    return read(fd, found, len) == len && memcmp(found, text, len) == 0;
}

/* The example of the manual. */
static void example(void) {
    CHECK(put(in_mount("index"), "old") == 0 && put(in_mount("index.new"), "new") == 0);
    BEGIN();
    int fd = open(in_mount("7.eml"), O_CREAT | O_RDWR, 0644);
    CHECK(fd >= 0 && write(fd, "body", 4) == 4);
    CHECK(rename(in_mount("index.new"), in_mount("index")) == 0);
    CHECK(!exists_outside(in_mount("7.eml")) && holds_outside(in_mount("index"), "old"));
    COMMIT();
    CHECK(holds(in_mount("7.eml"), "body") && holds(in_mount("index"), "new") && !exists(in_mount("index.new")));
}

static void offsets_of_before(void) {
    CHECK(put(in_mount("f"), "0123456789") == 0);
    int fd = open(in_mount("f"), O_RDWR);
    CHECK(reads(fd, "012"));
    BEGIN();
    CHECK(reads(fd, "345") && at(fd, 6) && write(fd, "ab", 2) == 2 && at(fd, 8));
    CHECK(holds_outside(in_mount("f"), "0123456789") && holds(in_mount("f"), "012345ab89"));
    COMMIT();
    CHECK(at(fd, 8) && reads(fd, "89") && holds(in_mount("f"), "012345ab89"));
    CHECK(lseek(fd, 1, SEEK_SET) == 1);
    BEGIN();
    CHECK(write(fd, "xyz", 3) == 3 && at(fd, 4) && ftruncate(fd, 5) == 0);
    ABORT();
    CHECK(at(fd, 1) && reads(fd, "12345ab89"));
}

static void appending(void) {
    CHECK(put(in_mount("log"), "a") == 0);
    int fd = open(in_mount("log"), O_WRONLY | O_APPEND);
    BEGIN();
    CHECK(write(fd, "b", 1) == 1 && lseek(fd, 0, SEEK_SET) == 0 && write(fd, "c", 1) == 1);
    CHECK((fcntl(fd, F_GETFL) & (O_APPEND | O_ACCMODE)) == (O_APPEND | O_WRONLY));
    int inner = open(in_mount("log"), O_WRONLY | O_APPEND);
    CHECK(write(inner, "d", 1) == 1);
    COMMIT();
    CHECK(write(inner, "e", 1) == 1 && write(fd, "f", 1) == 1 && holds(in_mount("log"), "abcdef"));
    CHECK(fcntl(inner, F_GETFL) & O_APPEND);
}

static void duplicates(void) {
    CHECK(put(in_mount("f"), "0123456789") == 0);
    int one = open(in_mount("f"), O_RDWR), two = dup(one);
    BEGIN();
    CHECK(reads(one, "01") && reads(two, "23"));
    int three = dup(two), four = fcntl(one, F_DUPFD_CLOEXEC, 100);
    CHECK(four >= 100 && reads(three, "45") && reads(four, "67") && at(one, 8));
    int inside = open(in_mount("f"), O_RDONLY), same = dup2(inside, 200);
    CHECK(same == 200 && reads(inside, "01") && reads(same, "23"));
    CHECK(close(two) == 0 && at(one, 8));
    COMMIT();
    CHECK(at(one, 8) && at(three, 8) && reads(four, "89") && at(one, 10));
    CHECK(at(inside, 4) && at(same, 4) && reads(same, "45") && at(inside, 6));
    CHECK(fcntl(four, F_GETFD) == FD_CLOEXEC && fcntl(three, F_GETFD) == 0);
}

static void going_on_after_commit(void) {
    CHECK(mkdir(in_mount("d"), 0755) == 0 && put(in_mount("d/old"), "old") == 0);
    BEGIN();
    int made = open(in_mount("d/new"), O_CREAT | O_RDWR | O_CLOEXEC, 0644);
    int changed = open(in_mount("d/old"), O_RDWR);
    int directory = open(in_mount("d"), O_RDONLY | O_DIRECTORY);
    CHECK(write(made, "new", 3) == 3 && reads(changed, "ol"));
    CHECK(rename(in_mount("d"), in_mount("e")) == 0);
    COMMIT();
    CHECK(fcntl(made, F_GETFD) == FD_CLOEXEC);
    CHECK(at(made, 3) && write(made, "er", 2) == 2 && holds(in_mount("e/new"), "newer"));
    CHECK(at(changed, 2) && write(changed, "x", 1) == 1 && holds(in_mount("e/old"), "olx"));
    CHECK(mkdirat(directory, "sub", 0755) == 0 && exists(in_mount("e/sub")));
    CHECK(close(made) == 0 && close(changed) == 0 && close(directory) == 0);
}

static void going_on_after_abort(void) {
    CHECK(put(in_mount("old"), "old") == 0);
    BEGIN();
    int made = open(in_mount("new"), O_CREAT | O_RDWR, 0644);
    int changed = open(in_mount("old"), O_RDWR);
    CHECK(write(made, "new", 3) == 3 && write(changed, "NEW", 3) == 3);
    ABORT();
    char byte;
    FAILS(pread(made, &byte, 1, 0), ESTALE);
    CHECK(!exists(in_mount("new")) && lseek(changed, 0, SEEK_SET) == 0 && reads(changed, "old"));
    CHECK(write(changed, "!", 1) == 1 && holds(in_mount("old"), "old!"));
    CHECK(close(made) == 0 && close(changed) == 0);
}

static void standard_io(void) {
    CHECK(put(in_mount("before"), "one\ntwo\nthree\n") == 0);
    char line[64];
    FILE *before = fopen(in_mount("before"), "r+");
    CHECK(before && fgets(line, sizeof line, before));
    BEGIN();
    FILE *made = fopen(in_mount("made"), "w");
    CHECK(made && fprintf(made, "%s %d\n", "line", 1) > 0 && fflush(made) == 0);
    CHECK(fgets(line, sizeof line, before) && strcmp(line, "two\n") == 0);
    CHECK(fseek(before, 0, SEEK_END) == 0 && fputs("four\n", before) >= 0 && fflush(before) == 0);
    CHECK(!exists_outside(in_mount("made")) && holds(in_mount("made"), "line 1\n"));
    DIR *list = opendir(mount_point);
    int names = 0;
    for (struct dirent *entry; (entry = readdir(list));)
        names += entry->d_name[0] != '.';
    CHECK(names == 2 && closedir(list) == 0);
    COMMIT();
    CHECK(fprintf(made, "more\n") > 0 && fclose(made) == 0 && holds(in_mount("made"), "line 1\nmore\n"));
    CHECK(fclose(before) == 0 && holds(in_mount("before"), "one\ntwo\nthree\nfour\n"));
}

static void mapped(void) {
    static char page[8192];
    memset(page, 'a', sizeof page);
    int fd = open(in_mount("f"), O_CREAT | O_RDWR, 0644);
    CHECK(write(fd, page, sizeof page) == sizeof page);
    BEGIN();
    char *shared = mmap(NULL, sizeof page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    char *private = mmap(NULL, sizeof page, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    char *only_read = mmap(NULL, sizeof page, PROT_READ, MAP_PRIVATE, fd, 4096);
    CHECK(shared != MAP_FAILED && private != MAP_FAILED && only_read != MAP_FAILED);
    shared[5000] = 'b';
    private[100] = 'p';
    CHECK(pwrite(fd, "c", 1, 10) == 1 && shared[10] == 'c');
    CHECK(msync(shared, sizeof page, MS_SYNC) == 0);
    COMMIT();
    char found[2];
    CHECK(pread(fd, found, 1, 5000) == 1 && found[0] == 'b' && pread(fd, found, 1, 10) == 1 && found[0] == 'c');
    shared[6000] = 'd';
    CHECK(pread(fd, found, 1, 6000) == 1 && found[0] == 'd' && pwrite(fd, "e", 1, 6001) == 1 && shared[6001] == 'e');
    CHECK(private[100] == 'p' && private[200] == 'a' && private[8191] == 'a' && only_read[904] == 'b');
    BEGIN();
    char *again = mmap(NULL, sizeof page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    again[0] = 'z';
    ABORT();
    CHECK(again[0] == 'a' && again[5000] == 'b');
    again[1] = 'y';
    CHECK(pread(fd, found, 2, 0) == 2 && found[0] == 'a' && found[1] == 'y');
}

static void moving_data(void) {
    CHECK(put(in_mount("from"), "0123456789") == 0 && put(out_of_mount("from"), "abcdef") == 0);
    int from = open(in_mount("from"), O_RDONLY), other = open(out_of_mount("from"), O_RDONLY);
    int to = open(in_mount("to"), O_CREAT | O_RDWR, 0644);
    BEGIN();
    loff_t start = 2;
    CHECK(copy_file_range(from, &start, to, NULL, 4, 0) == 4 && start == 6);
    CHECK(sendfile(to, other, NULL, 3) == 3 && at(other, 3));
    struct iovec parts[2] = {{"x", 1}, {"yz", 2}};
    CHECK(pwritev(to, parts, 2, 7) == 3 && writev(to, parts, 1) == 1);
    CHECK(fallocate(to, 0, 0, 20) == 0 && ftruncate(to, 10) == 0 && truncate(in_mount("from"), 3) == 0);
    CHECK(fsync(to) == 0 && fdatasync(to) == 0 && syncfs(to) == 0);
    struct stat status;
    CHECK(fstat(to, &status) == 0 && status.st_size == 10);
    COMMIT();
    CHECK(holds(in_mount("to"), "2345abcxyz") && holds(in_mount("from"), "012"));
}

/* The library's descriptors are not there for the program. */
static void own_descriptors(void) {
    BEGIN();
    CHECK(put(in_mount("a"), "a") == 0);
    int fd = open(in_mount("b"), O_CREAT | O_RDWR, 0644);
    for (int number = 3; number < 70000; number++)
        if (number != fd)
            close(number);
    CHECK(pwrite(fd, "b", 1, 0) == 1 && syscall(SYS_close_range, 3, ~0u, 0) == 0);
    FAILS(write(fd, "b", 1), EBADF);
    CHECK(put(in_mount("c"), "c") == 0);
    COMMIT();
    CHECK(holds(in_mount("a"), "a") && holds(in_mount("c"), "c"));
    /* Outside nothing is watched: the next transaction has to get over it. */
    CHECK(syscall(SYS_close_range, 3, ~0u, 0) == 0);
    int taken = open("/dev/null", O_RDWR);
    BEGIN();
    CHECK(put(in_mount("d"), "d") == 0);
    COMMIT();
    CHECK(holds(in_mount("d"), "d") && fcntl(taken, F_GETFD) == 0);
}

/* A descriptor number that leads somewhere else than before. */
static void reused_numbers(void) {
    CHECK(put(in_mount("one"), "one") == 0 && put(in_mount("two"), "two") == 0 && put(out_of_mount("x"), "x") == 0);
    int fd = open(in_mount("one"), O_RDONLY);
    BEGIN();
    CHECK(reads(fd, "o") && close(fd) == 0);
    CHECK(open(in_mount("two"), O_RDONLY) == fd && reads(fd, "t"));
    int other = open(out_of_mount("x"), O_RDWR);
    CHECK(dup2(other, fd) == fd && reads(fd, "x") && write(fd, "y", 1) == 1 && close(fd) == 0);
    COMMIT();
    CHECK(holds(out_of_mount("x"), "xy"));
}

static void without_a_name(void) {
    CHECK(put(in_mount("f"), "0123456789") == 0);
    int fd = open(in_mount("f"), O_RDWR), gone = open(in_mount("gone"), O_CREAT | O_RDWR, 0600);
    CHECK(write(gone, "gone", 4) == 4 && unlink(in_mount("gone")) == 0);
    BEGIN();
    CHECK(rename(in_mount("f"), in_mount("g")) == 0 && reads(fd, "0123"));
    CHECK(lseek(gone, 0, SEEK_SET) == 0 && reads(gone, "gone") && write(gone, "!", 1) == 1);
    int temporary = open(mount_point, O_TMPFILE | O_RDWR, 0600);
    CHECK(temporary >= 0 && write(temporary, "temporary", 9) == 9);
    int deleted = open(in_mount("deleted"), O_CREAT | O_RDWR, 0600);
    CHECK(write(deleted, "deleted", 7) == 7 && unlink(in_mount("deleted")) == 0);
    COMMIT();
    CHECK(reads(fd, "456789") && at(gone, 5) && lseek(gone, 0, SEEK_SET) == 0 && reads(gone, "gone!"));
    /* What was made inside and has no name at the commit is not a part of it. */
    char byte;
    FAILS(pread(temporary, &byte, 1, 0), ESTALE);
    FAILS(pread(deleted, &byte, 1, 0), ESTALE);
}

static void temporary_file_gets_a_name(void) {
    BEGIN();
    int fd = open(mount_point, O_TMPFILE | O_RDWR, 0600);
    char link[64];
    CHECK(fd >= 0 && write(fd, "content", 7) == 7);
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    CHECK(linkat(AT_FDCWD, link, AT_FDCWD, in_mount("named"), AT_SYMLINK_FOLLOW) == 0);
    COMMIT();
    CHECK(holds(in_mount("named"), "content") && write(fd, "!", 1) == 1 && holds(in_mount("named"), "content!"));
}

static const struct test tests[] = {
    {"example", example},
    {"offsets_of_before", offsets_of_before},
    {"appending", appending},
    {"duplicates", duplicates},
    {"going_on_after_commit", going_on_after_commit},
    {"going_on_after_abort", going_on_after_abort},
    {"standard_io", standard_io},
    {"mapped", mapped},
    {"moving_data", moving_data},
    {"own_descriptors", own_descriptors},
    {"reused_numbers", reused_numbers},
    {"without_a_name", without_a_name},
    {"temporary_file_gets_a_name", temporary_file_gets_a_name},
    {NULL, NULL},
};

int main(int argc, char **argv) { return run_one(tests, argc, argv); }
