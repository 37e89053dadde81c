/* What the test programs share: they are compiled against the installed header only. */
#ifndef CHECK_H
#define CHECK_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <txfs.h>
#include <unistd.h>

/* Says what does not hold and ends the process; what the condition left in errno is told. */
#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        errno = 0;                                                                                                     \
        if (!(condition)) {                                                                                            \
            int number = errno;                                                                                        \
            fs_tx_abort();                                                                                             \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #condition, strerror(number));                       \
            _exit(1);                                                                                                  \
        }                                                                                                              \
    } while (0)
#define FAILS(call, number) CHECK((call) == -1 && errno == (number))
#define BEGIN() CHECK(fs_tx_begin() == 0)
#define COMMIT() CHECK(fs_tx_commit() == 0)
#define ABORT() CHECK(fs_tx_abort() == 0)

/* The mount, and a directory outside of it. */
extern const char *mount_point, *outside_directory;

/* A path below the mount; the texts live for some calls. */
static inline char *in_mount(const char *name) {
    static __thread char texts[8][PATH_MAX];
    static __thread int next;
    char *text = texts[next++ % 8];
    snprintf(text, PATH_MAX, "%s/%s", mount_point, name);
    return text;
}

static inline char *out_of_mount(const char *name) {
    static __thread char texts[8][PATH_MAX];
    static __thread int next;
    char *text = texts[next++ % 8];
    snprintf(text, PATH_MAX, "%s/%s", outside_directory, name);
    return text;
}

static inline int put(const char *path, const char *content) {
    int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0644);
    if (fd < 0)
        return -1;
    ssize_t len = strlen(content);
    if (write(fd, content, len) != len)
        return -1;
    return close(fd);
}

/* Whether a file's content is this. */
static inline int holds(const char *path, const char *content) {
    char text[8192];
    int fd = open(path, O_RDONLY);
    if (fd < 0)
        return 0;
    ssize_t len = read(fd, text, sizeof text);
    close(fd);
    return len == (ssize_t)strlen(content) && memcmp(text, content, len) == 0;
}

static inline int exists(const char *path) {
    struct stat status;
    return lstat(path, &status) == 0;
}

/* The same in another process, which is in no transaction. */
static inline int holds_outside(const char *path, const char *content) {
    int status;
    pid_t child = fork();
    if (child == 0)
        _exit(holds(path, content) ? 0 : 1);
    return waitpid(child, &status, 0) == child && status == 0;
}

static inline int exists_outside(const char *path) {
    int status;
    pid_t child = fork();
    if (child == 0)
        _exit(exists(path) ? 0 : 1);
    return waitpid(child, &status, 0) == child && status == 0;
}

struct test {
    const char *name;
    void (*run)(void);
};

/* PROGRAM TEST MOUNT OUTSIDE */
static inline int run_one(const struct test *tests, int argc, char **argv) {
    if (argc != 4)
        return 2;
    mount_point = argv[2];
    outside_directory = argv[3];
    for (; tests->name; tests++)
        if (strcmp(tests->name, argv[1]) == 0) {
            tests->run();
            return 0;
        }
    fprintf(stderr, "no test %s\n", argv[1]);
    return 2;
}

#endif
