/* Where paths lead: links into the volume and out of it, `..`, mounts, directories, the current directory. */
#include "check.h"
#include <sys/mount.h>
#include <sys/mman.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <linux/openat2.h>
#include <sched.h>
#include <utime.h>

const char *mount_point, *outside_directory;

/* A name that only the transaction knows stands in each directory: whether it is seen tells where a path led. */
static void begin_with_marks(void) {
    BEGIN();
    CHECK(put(in_mount("mark"), "inside") == 0 && put(in_mount("d/mark"), "inside") == 0);
}

static void tree(void) {
    CHECK(mkdir(in_mount("d"), 0755) == 0 && mkdir(in_mount("d/e"), 0755) == 0);
    CHECK(put(in_mount("d/file"), "file") == 0 && put(out_of_mount("file"), "outside") == 0);
}

static void links(void) {
    tree();
    CHECK(symlink(mount_point, out_of_mount("into")) == 0);
    CHECK(symlink(in_mount("d/mark"), out_of_mount("to_mark")) == 0);
    CHECK(symlink(outside_directory, in_mount("out")) == 0);
    CHECK(symlink(out_of_mount("into/d"), in_mount("round")) == 0);
    CHECK(symlink("d", in_mount("relative")) == 0 && symlink("../../d/mark", in_mount("d/e/up")) == 0);
    CHECK(symlink("loop", in_mount("loop")) == 0 && symlink("../../../../../../../../etc/passwd", in_mount("etc")) == 0);
    begin_with_marks();
    CHECK(holds(out_of_mount("into/mark"), "inside") && holds(out_of_mount("into/d/mark"), "inside"));
    CHECK(holds(out_of_mount("to_mark"), "inside"));
    CHECK(holds(in_mount("out/file"), "outside") && holds(in_mount("out/into/d/mark"), "inside"));
    CHECK(holds(in_mount("round/mark"), "inside") && holds(in_mount("relative/mark"), "inside"));
    CHECK(holds(in_mount("d/e/up"), "inside") && holds(in_mount("relative/e/up"), "inside"));
    FAILS(open(in_mount("loop"), O_RDONLY), ELOOP);
    FAILS(open(in_mount("relative"), O_RDONLY | O_NOFOLLOW), ELOOP);
    int etc = open(in_mount("etc"), O_RDONLY);
    CHECK(etc >= 0 && close(etc) == 0);
    struct stat link, file;
    CHECK(lstat(in_mount("relative"), &link) == 0 && S_ISLNK(link.st_mode));
    CHECK(stat(in_mount("relative"), &file) == 0 && S_ISDIR(file.st_mode));
    CHECK(lstat(in_mount("relative/"), &file) == 0 && S_ISDIR(file.st_mode));
    char text[PATH_MAX] = "";
    CHECK(readlink(in_mount("relative"), text, sizeof text) == 1 && text[0] == 'd');
    /* Made through links: where they lead. */
    CHECK(put(out_of_mount("into/made"), "made") == 0 && put(in_mount("out/made"), "made") == 0);
    CHECK(put(in_mount("round/deep"), "deep") == 0);
    CHECK(unlink(out_of_mount("into/mark")) == 0 && !exists(in_mount("mark")));
    CHECK(symlink(in_mount("dangling"), out_of_mount("dangling")) == 0);
    CHECK(put(out_of_mount("dangling"), "made") == 0 && holds(in_mount("dangling"), "made"));
    ABORT();
    CHECK(!exists(in_mount("made")) && !exists(in_mount("d/deep")) && exists(out_of_mount("made")));
    CHECK(!exists(in_mount("dangling")) && !exists(in_mount("d/mark")));
}

static void parent_steps(void) {
    tree();
    char name[256];
    snprintf(name, sizeof name, "%s", strrchr(mount_point, '/') + 1);
    begin_with_marks();
    CHECK(holds(in_mount("d/../mark"), "inside") && holds(in_mount("d/e/../../d/mark"), "inside"));
    char text[PATH_MAX];
    snprintf(text, sizeof text, "%s/../%s/mark", mount_point, name);
    CHECK(holds(text, "inside"));
    snprintf(text, sizeof text, "/tmp/../%s/d/./mark", mount_point);
    CHECK(holds(text, "inside"));
    snprintf(text, sizeof text, "/%s//d///mark", mount_point);
    CHECK(holds(text, "inside"));
    struct stat above, again;
    snprintf(text, sizeof text, "%s/..", mount_point);
    CHECK(stat(text, &above) == 0);
    snprintf(text, sizeof text, "%s/d/../..", mount_point);
    CHECK(stat(text, &again) == 0 && above.st_ino == again.st_ino && above.st_dev == again.st_dev);
    FAILS(stat(in_mount("d/file/.."), &above), ENOTDIR);
    FAILS(stat(in_mount("none/.."), &above), ENOENT);
    ABORT();
}

static void directories(void) {
    tree();
    int before = open(in_mount("d"), O_RDONLY | O_DIRECTORY), base = open(mount_point, O_PATH);
    int outside = open(outside_directory, O_RDONLY | O_DIRECTORY), root = open("/", O_PATH);
    begin_with_marks();
    int inside = open(in_mount("d"), O_RDONLY | O_DIRECTORY);
    int fds[] = {before, inside};
    for (int i = 0; i < 2; i++) {
        int fd = openat(fds[i], "mark", O_RDONLY);
        struct stat status;
        CHECK(fd >= 0 && close(fd) == 0 && fstatat(fds[i], "../mark", &status, 0) == 0);
        CHECK(fstatat(fds[i], "", &status, AT_EMPTY_PATH) == 0 && S_ISDIR(status.st_mode));
        CHECK(faccessat(fds[i], "e/../mark", R_OK, 0) == 0);
    }
    struct stat status;
    CHECK(fstatat(base, "d/mark", &status, 0) == 0 && fstatat(root, in_mount("mark") + 1, &status, 0) == 0);
    CHECK(fstatat(outside, "file", &status, 0) == 0);
    FAILS(fstatat(outside, "mark", &status, 0), ENOENT);
    CHECK(mkdirat(before, "made", 0755) == 0 && renameat(inside, "made", base, "moved") == 0);
    CHECK(symlinkat("d", base, "link") == 0 && linkat(before, "file", inside, "hard", 0) == 0);
    CHECK(unlinkat(base, "link", 0) == 0 && unlinkat(base, "moved", AT_REMOVEDIR) == 0);
    FAILS(renameat(inside, "file", outside, "file"), EXDEV);
    FAILS(linkat(outside, "file", inside, "x", 0), EXDEV);
    FAILS(openat(9999, "x", O_RDONLY), EBADF);
    struct open_how how = {.flags = O_RDONLY, .resolve = RESOLVE_BENEATH};
    int beneath = syscall(SYS_openat2, before, "mark", &how, sizeof how);
    CHECK(beneath >= 0 && close(beneath) == 0);
    FAILS((int)syscall(SYS_openat2, before, "../mark", &how, sizeof how), EXDEV);
    DIR *list = fdopendir(dup(before));
    int seen = 0;
    for (struct dirent *entry; (entry = readdir(list));)
        seen += strcmp(entry->d_name, "mark") == 0 || strcmp(entry->d_name, "hard") == 0;
    CHECK(seen == 2 && closedir(list) == 0);
    COMMIT();
    CHECK(holds(in_mount("d/hard"), "file") && holds(in_mount("d/mark"), "inside"));
}

static void current_directory(void) {
    tree();
    char text[PATH_MAX], expected[PATH_MAX];
    CHECK(chdir(in_mount("d")) == 0);
    BEGIN();
    CHECK(put("mark", "inside") == 0 && holds("mark", "inside") && holds(in_mount("d/mark"), "inside"));
    CHECK(mkdir("new", 0755) == 0 && chdir("new") == 0 && put("deep", "deep") == 0);
    snprintf(expected, sizeof expected, "%s/d/new", mount_point);
    CHECK(getcwd(text, sizeof text) && strcmp(text, expected) == 0);
    CHECK(readlink("/proc/self/cwd", text, sizeof text) == (ssize_t)strlen(expected) &&
          memcmp(text, expected, strlen(expected)) == 0);
    CHECK(getcwd(text, 3) == NULL && errno == ERANGE);
    CHECK(holds("../mark", "inside") && holds("/proc/self/cwd/deep", "deep"));
    CHECK(chdir("../..") == 0 && getcwd(text, sizeof text) && strcmp(text, mount_point) == 0);
    CHECK(chdir("..") == 0 && getcwd(text, sizeof text) && strncmp(text, mount_point, strlen(text)) == 0);
    CHECK(chdir(outside_directory) == 0 && holds("file", "outside"));
    CHECK(getcwd(text, sizeof text) && strcmp(text, outside_directory) == 0);
    int fd = open(in_mount("d/new"), O_RDONLY);
    CHECK(fchdir(fd) == 0 && holds("deep", "deep"));
    FAILS(chdir("deep"), ENOTDIR);
    FAILS(chdir("none"), ENOENT);
    COMMIT();
    CHECK(getcwd(text, sizeof text) && strcmp(text, expected) == 0 && holds("deep", "deep"));
    BEGIN();
    CHECK(mkdir("gone", 0755) == 0 && chdir("gone") == 0 && put("x", "x") == 0);
    ABORT();
    CHECK(getcwd(text, sizeof text) && strcmp(text, expected) == 0 && chdir("/") == 0);
}

static void *other_thread_looks(void *found) {
    *(int *)found = getcwd(found + sizeof(int), PATH_MAX) != NULL;
    return NULL;
}

static void current_directory_of_other_threads(void) {
    tree();
    CHECK(chdir(outside_directory) == 0);
    BEGIN();
    CHECK(chdir(in_mount("d")) == 0);
    struct {
        int there;
        char text[PATH_MAX];
    } found;
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, other_thread_looks, &found) == 0 && pthread_join(thread, NULL) == 0);
    CHECK(found.there && strcmp(found.text, outside_directory) == 0);
    ABORT();
    CHECK(chdir("/") == 0);
}

/* Needs mounts of its own. */
static void mounts(void) {
    tree();
    CHECK(unshare(CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0);
    CHECK(mkdir(in_mount("sub"), 0755) == 0 && mkdir(out_of_mount("bind"), 0755) == 0);
    CHECK(mkdir(in_mount("d/sub"), 0755) == 0);
    CHECK(mount("none", in_mount("sub"), "tmpfs", 0, NULL) == 0);
    CHECK(mount("none", in_mount("d/sub"), "tmpfs", 0, NULL) == 0);
    CHECK(put(in_mount("sub/file"), "below") == 0 && put(in_mount("d/sub/file"), "below") == 0);
    CHECK(mount(in_mount("d"), out_of_mount("bind"), NULL, MS_BIND, NULL) == 0);
    CHECK(symlink("sub/file", in_mount("to_sub")) == 0 && symlink("../mark", in_mount("d/up")) == 0);
    int directory = open(in_mount("d"), O_RDONLY | O_DIRECTORY);
    begin_with_marks();
    CHECK(holds(in_mount("sub/file"), "below") && holds(in_mount("to_sub"), "below"));
    CHECK(put(in_mount("sub/new"), "new") == 0 && holds(in_mount("sub/../mark"), "inside"));
    CHECK(holds(in_mount("d/sub/../mark"), "inside") && holds(in_mount("d/sub/../sub/file"), "below"));
    CHECK(holds(out_of_mount("bind/mark"), "inside") && holds(out_of_mount("bind/../file"), "outside"));
    CHECK(holds(in_mount("d/up"), "inside") && !holds(out_of_mount("bind/up"), "inside"));
    CHECK(put(out_of_mount("bind/by_bind"), "x") == 0 && holds(in_mount("d/by_bind"), "x"));
    int below = openat(directory, "sub/file", O_RDONLY);
    struct statfs status;
    CHECK(below >= 0 && fstatfs(below, &status) == 0 && status.f_type == 0x01021994 && close(below) == 0);
    CHECK(chdir(in_mount("d")) == 0 && holds("sub/file", "below") && chdir("sub") == 0 && holds("file", "below"));
    CHECK(holds("../mark", "inside"));
    CHECK(chdir("..") == 0 && holds("mark", "inside") && chdir("/") == 0);
    CHECK(chdir(out_of_mount("bind")) == 0 && holds("mark", "inside") && holds("../file", "outside"));
    char text[PATH_MAX];
    CHECK(chdir("e") == 0 && getcwd(text, sizeof text) && strcmp(text, out_of_mount("bind/e")) == 0);
    CHECK(chdir("/") == 0);
    int by_bind = open(out_of_mount("bind"), O_RDONLY | O_DIRECTORY);
    int mark = openat(by_bind, "mark", O_RDONLY);
    CHECK(mark >= 0 && close(mark) == 0);
    ABORT();
    CHECK(holds(in_mount("sub/new"), "new") && !exists(in_mount("d/by_bind")));
}

static void links_of_proc(void) {
    tree();
    int before = open(in_mount("d/file"), O_RDWR);
    char link[64], text[PATH_MAX];
    BEGIN();
    int made = open(in_mount("made"), O_CREAT | O_RDWR, 0644);
    CHECK(write(made, "made", 4) == 4 && pwrite(before, "FILE", 4, 0) == 4);
    snprintf(link, sizeof link, "/proc/self/fd/%d", made);
    CHECK(holds(link, "made"));
    ssize_t len = readlink(link, text, sizeof text);
    CHECK(len == (ssize_t)strlen(in_mount("made")) && memcmp(text, in_mount("made"), len) == 0);
    snprintf(link, sizeof link, "/dev/fd/%d", before);
    CHECK(holds(link, "FILE"));
    snprintf(link, sizeof link, "/proc/%d/fd/%d", getpid(), before);
    CHECK(holds(link, "FILE"));
    len = readlink(link, text, sizeof text);
    CHECK(len == (ssize_t)strlen(in_mount("d/file")) && memcmp(text, in_mount("d/file"), len) == 0);
    CHECK(realpath(in_mount("d/../made"), text) && strcmp(text, in_mount("made")) == 0);
    ABORT();
}

static void attributes(void) {
    tree();
    struct stat status;
    char value[16];
    BEGIN();
    const char *file = in_mount("d/file");
    struct statx more;
    CHECK(chmod(file, 0600) == 0 && stat(file, &status) == 0 && (status.st_mode & 0777) == 0600);
    CHECK(chown(file, 12, 34) == 0 && lchown(file, 56, -1) == 0 && stat(file, &status) == 0);
    CHECK(status.st_uid == 56 && status.st_gid == 34);
    struct timespec times[2] = {{1000, 0}, {2000, 5}};
    CHECK(utimensat(AT_FDCWD, file, times, 0) == 0 && stat(file, &status) == 0 && status.st_mtime == 2000);
    struct utimbuf old = {1, 2};
    CHECK(utime(file, &old) == 0 && statx(AT_FDCWD, file, 0, STATX_ALL, &more) == 0 && more.stx_mtime.tv_sec == 2);
    CHECK(setxattr(file, "user.a", "value", 5, 0) == 0 && getxattr(file, "user.a", value, 16) == 5);
    CHECK(lgetxattr(file, "user.a", value, 16) == 5 && listxattr(file, value, 16) > 0);
    CHECK(access(file, R_OK) == 0 && access(in_mount("none"), F_OK) == -1);
    int fd = open(file, O_RDWR);
    CHECK(fchmod(fd, 0640) == 0 && fchown(fd, 1, 2) == 0 && futimens(fd, times) == 0 && fstat(fd, &status) == 0);
    CHECK((status.st_mode & 0777) == 0640 && status.st_uid == 1 && status.st_mtime == 2000);
    CHECK(fgetxattr(fd, "user.a", value, 16) == 5 && fremovexattr(fd, "user.a") == 0);
    FAILS((int)getxattr(file, "user.a", value, 16), ENODATA);
    struct statfs space;
    CHECK(statfs(file, &space) == 0 && fstatfs(fd, &space) == 0 && space.f_bsize > 0);
    CHECK(mkfifo(in_mount("fifo"), 0600) == 0 && mknod(in_mount("plain"), S_IFREG | 0600, 0) == 0);
    ABORT();
    CHECK(stat(in_mount("d/file"), &status) == 0 && (status.st_mode & 0777) == 0644 && status.st_uid == getuid());
}

static void wrong_arguments(void) {
    tree();
    static char longest[PATH_MAX + 10], name[300];
    struct stat status;
    begin_with_marks();
    memset(longest, 'a', sizeof longest - 1);
    memcpy(longest, mount_point, strlen(mount_point));
    longest[strlen(mount_point)] = '/';
    FAILS(open(longest, O_RDONLY), ENAMETOOLONG);
    memset(name, 'n', sizeof name - 1);
    FAILS(open(in_mount(name), O_RDONLY), ENAMETOOLONG);
    FAILS(open("", O_RDONLY), ENOENT);
    FAILS(open((char *)8, O_RDONLY), EFAULT);
    FAILS((int)syscall(SYS_rename, in_mount("mark"), 16), EFAULT);
    FAILS((int)syscall(SYS_newfstatat, AT_FDCWD, in_mount("mark"), 8, 0), EFAULT);
    FAILS((int)syscall(SYS_getcwd, 8, 100), chdir(mount_point) == 0 ? EFAULT : 0);
    /* A path that ends with the last byte of mapped memory. */
    char *page = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(munmap(page + 4096, 4096) == 0);
    const char *mark = in_mount("mark");
    char *edge = page + 4096 - strlen(mark) - 1;
    strcpy(edge, mark);
    CHECK(stat(edge, &status) == 0);
    page[4095] = 'k';
    memmove(page + 4096 - strlen(mark), mark, strlen(mark));
    FAILS(stat(page + 4096 - strlen(mark), &status), EFAULT);
    FAILS(mkdir(mount_point, 0755), EEXIST);
    FAILS(rmdir(in_mount("d")), ENOTEMPTY);
    FAILS(open(in_mount("mark/x"), O_RDONLY), ENOTDIR);
    FAILS(open(in_mount("mark/"), O_RDONLY), ENOTDIR);
    FAILS(open(in_mount("new/"), O_CREAT | O_RDWR, 0600), EISDIR);
    FAILS(unlink(in_mount("d")), EISDIR);
    CHECK(mkdir(in_mount("slash/"), 0755) == 0 && rename(in_mount("slash/"), in_mount("slash2/")) == 0);
    CHECK(chdir("/") == 0);
    ABORT();
}

static void special_files(void) {
    CHECK(mkfifo(in_mount("fifo"), 0600) == 0);
    BEGIN();
    CHECK(put(in_mount("x"), "x") == 0);
    pid_t child = fork();
    if (child == 0) {
        /* Outside: another FIFO, as far as the kernel is concerned. */
        _exit(0);
    }
    CHECK(waitpid(child, NULL, 0) == child);
    int both = open(in_mount("fifo"), O_RDWR | O_NONBLOCK);
    int reader = open(in_mount("fifo"), O_RDONLY);
    char byte;
    CHECK(both >= 0 && reader >= 0 && write(both, "f", 1) == 1 && read(reader, &byte, 1) == 1 && byte == 'f');
    COMMIT();
}

static const struct test tests[] = {
    {"links", links},
    {"parent_steps", parent_steps},
    {"directories", directories},
    {"current_directory", current_directory},
    {"current_directory_of_other_threads", current_directory_of_other_threads},
    {"mounts", mounts},
    {"links_of_proc", links_of_proc},
    {"attributes", attributes},
    {"wrong_arguments", wrong_arguments},
    {"special_files", special_files},
    {NULL, NULL},
};

int main(int argc, char **argv) { return run_one(tests, argc, argv); }
