/* What the test programs share. A program has cases; its argument names the one to run. */
#ifndef CHECK_H
#define CHECK_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

int fs_tx_begin(void);
int fs_tx_commit(void);
int fs_tx_abort(void);
uint64_t fs_tx_intercepted(void);

#define CHECK(holds)                                                                                   \
    do {                                                                                               \
        if (!(holds)) {                                                                                \
            dprintf(2, "%s:%d: does not hold: %s (errno %d)\n", __FILE__, __LINE__, #holds, errno);    \
            _exit(1);                                                                                  \
        }                                                                                              \
    } while (0)

struct test {
    const char *name;
    void (*run)(void);
};

static inline int run_test(const struct test *tests, int argc, char **argv)
{
    alarm(300); /* a call that never returns is a failure too */
    for (; tests->name; tests++)
        if (argc > 1 && !strcmp(argv[1], tests->name)) {
            tests->run();
            return 0;
        }
    fprintf(stderr, "no such case\n");
    return 2;
}

/* Whether calls of this thread are caught now. */
static inline int caught(void)
{
    uint64_t before = fs_tx_intercepted();
    syscall(SYS_getppid);
    return fs_tx_intercepted() != before;
}

static inline void expect_exit(pid_t child, int code)
{
    int status = 0;
    CHECK(child > 0);
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == code);
}

static inline double now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e9 + time.tv_nsec;
}
#endif
