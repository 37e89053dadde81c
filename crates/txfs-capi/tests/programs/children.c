/* What a thread in a transaction starts is outside of it, and the thread stays inside. */
#include "check.h"
#include <linux/sched.h>
#include <spawn.h>

extern char **environ;

static void is_outside(void)
{
    CHECK(!caught());
    CHECK(fs_tx_commit() == -1);
    CHECK(fs_tx_begin() == 0);
    CHECK(caught());
    CHECK(fs_tx_commit() == 0);
    CHECK(!caught());
}

static void fork_inside(void)
{
    for (int i = 0; i < 50; i++) {
        CHECK(fs_tx_begin() == 0);
        pid_t child = fork();
        if (child == 0) {
            is_outside();
            free(malloc(100000));
            pid_t grandchild = fork();
            if (grandchild == 0)
                _exit(5);
            expect_exit(grandchild, 5);
            _exit(7);
        }
        CHECK(caught());
        expect_exit(child, 7);
        CHECK(fs_tx_commit() == 0);
    }
}

static void raw_fork_inside(void)
{
    CHECK(fs_tx_begin() == 0);
    pid_t child = syscall(SYS_fork);
    if (child == 0) {
        is_outside();
        _exit(3);
    }
    CHECK(caught());
    expect_exit(child, 3);
    child = syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, 0);
    if (child == 0) {
        is_outside();
        _exit(4);
    }
    expect_exit(child, 4);
    CHECK(caught());
    CHECK(fs_tx_commit() == 0);
}

static void vfork_inside(void)
{
    CHECK(fs_tx_begin() == 0);
    for (int i = 0; i < 20; i++) {
        volatile int on_the_stack[64];
        for (int j = 0; j < 64; j++)
            on_the_stack[j] = j;
        pid_t child = vfork();
        if (child == 0) {
            execl("/bin/sh", "sh", "-c", "exit 9", NULL);
            _exit(127);
        }
        CHECK(caught());
        for (int j = 0; j < 64; j++)
            CHECK(on_the_stack[j] == j);
        expect_exit(child, 9);
    }
    /* the parent waits */
    int ends[2];
    char byte;
    CHECK(pipe2(ends, O_NONBLOCK) == 0);
    pid_t child = vfork();
    if (child == 0) {
        usleep(50000);
        write(ends[1], "x", 1);
        _exit(1);
    }
    CHECK(read(ends[0], &byte, 1) == 1);
    expect_exit(child, 1);
    CHECK(fs_tx_commit() == 0);
}

static void spawn_inside(void)
{
    char *arguments[] = {"sh", "-c", "exit 11", NULL};
    CHECK(fs_tx_begin() == 0);
    for (int i = 0; i < 20; i++) {
        pid_t child;
        CHECK(posix_spawn(&child, "/bin/sh", NULL, NULL, arguments, environ) == 0);
        CHECK(caught());
        expect_exit(child, 11);
    }
    pid_t child;
    CHECK(posix_spawn(&child, "/nonexistent", NULL, NULL, arguments, environ) == ENOENT);
    CHECK(caught());
    CHECK(fs_tx_commit() == 0);
}

static void system_and_popen_inside(void)
{
    char line[64];
    CHECK(fs_tx_begin() == 0);
    int status = system("exit 13");
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 13);
    FILE *command = popen("echo from the child; echo $((6 * 7))", "r");
    CHECK(command);
    CHECK(fgets(line, sizeof line, command) && !strcmp(line, "from the child\n"));
    CHECK(fgets(line, sizeof line, command) && !strcmp(line, "42\n"));
    CHECK(pclose(command) == 0);
    CHECK(caught());
    CHECK(fs_tx_commit() == 0);
}

static void clone3_inside(void)
{
    CHECK(fs_tx_begin() == 0);
    struct clone_args arguments = {.exit_signal = SIGCHLD};
    pid_t child = syscall(SYS_clone3, &arguments, sizeof arguments);
    if (child == 0) {
        is_outside();
        _exit(15);
    }
    CHECK(caught());
    expect_exit(child, 15);
    arguments.flags = CLONE_VM | CLONE_VFORK;
    child = syscall(SYS_clone3, &arguments, sizeof arguments);
    if (child == 0)
        _exit(16);
    CHECK(caught());
    expect_exit(child, 16);
    CHECK(syscall(SYS_clone3, &arguments, 8) == -1 && errno == EINVAL);
    CHECK(syscall(SYS_clone3, (void *)8, sizeof arguments) == -1 && errno == EFAULT);
    CHECK(caught());
    CHECK(fs_tx_commit() == 0);
}

static int on_own_stack(void *argument)
{
    volatile char space[8192];
    memset((char *)space, 1, sizeof space);
    return *(int *)argument;
}

static void clone_with_a_stack(void)
{
    int code = 17;
    size_t len = 256 * 1024;
    char *stack = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(fs_tx_begin() == 0);
    expect_exit(clone(on_own_stack, stack + len, SIGCHLD, &code), 17);
    expect_exit(clone(on_own_stack, stack + len, SIGCHLD | CLONE_VM, &code), 17);
    expect_exit(clone(on_own_stack, stack + len, SIGCHLD | CLONE_VM | CLONE_VFORK, &code), 17);
    CHECK(caught());
    CHECK(syscall(SYS_clone, SIGCHLD | CLONE_VM, (void *)4096, NULL, NULL, 0) == -1 && errno == EFAULT);
    CHECK(fs_tx_commit() == 0);
}

static void exec_inside(void)
{
    pid_t child = fork();
    if (child == 0) {
        CHECK(fs_tx_begin() == 0);
        CHECK(execl("/nonexistent", "x", NULL) == -1 && errno == ENOENT);
        CHECK(caught());
        execl("/bin/sh", "sh", "-c", "exit 19", NULL);
        _exit(1);
    }
    expect_exit(child, 19);
}

static void death_inside(void)
{
    for (int how = 0; how < 4; how++) {
        pid_t child = fork();
        if (child == 0) {
            CHECK(fs_tx_begin() == 0);
            if (how == 0)
                _exit(20);
            if (how == 1)
                exit(20);
            if (how == 2)
                kill(getpid(), SIGKILL);
            abort();
        }
        int status = 0;
        CHECK(waitpid(child, &status, 0) == child);
        if (how < 2)
            CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 20);
        else
            CHECK(WIFSIGNALED(status) && WTERMSIG(status) == (how == 2 ? SIGKILL : SIGABRT));
    }
}

static void *begins_and_commits(void *stop)
{
    while (!*(volatile int *)stop) {
        CHECK(fs_tx_begin() == 0);
        free(malloc(1000));
        CHECK(fs_tx_commit() == 0);
    }
    return NULL;
}

/* A child of one thread finds the library usable whatever other threads were doing. */
static void fork_beside_other_threads(void)
{
    int stop = 0;
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        CHECK(pthread_create(&threads[i], NULL, begins_and_commits, &stop) == 0);
    for (int i = 0; i < 100; i++) {
        if (i % 2)
            CHECK(fs_tx_begin() == 0);
        pid_t child = fork();
        if (child == 0) {
            is_outside();
            _exit(21);
        }
        expect_exit(child, 21);
        if (i % 2)
            CHECK(fs_tx_commit() == 0);
    }
    stop = 1;
    for (int i = 0; i < 4; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
}

int main(int argc, char **argv)
{
    static const struct test tests[] = {
        {"fork_inside", fork_inside},
        {"raw_fork_inside", raw_fork_inside},
        {"vfork_inside", vfork_inside},
        {"spawn_inside", spawn_inside},
        {"system_and_popen_inside", system_and_popen_inside},
        {"clone3_inside", clone3_inside},
        {"clone_with_a_stack", clone_with_a_stack},
        {"exec_inside", exec_inside},
        {"death_inside", death_inside},
        {"fork_beside_other_threads", fork_beside_other_threads},
        {0},
    };
    return run_test(tests, argc, argv);
}
