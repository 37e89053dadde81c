/* Signals of the program inside of a transaction. */
#include "check.h"
#include <poll.h>
#include <sys/epoll.h>
#include <sys/select.h>

static volatile sig_atomic_t handled, handled_inner, handler_was_caught;
static int pipe_ends[2];
static sigjmp_buf jump;

static void install(int signal, void (*handler)(int), int flags, int full_mask)
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
    if (full_mask)
        sigfillset(&action.sa_mask);
    CHECK(sigaction(signal, &action, NULL) == 0);
}

static void note(int signal)
{
    (void)signal;
    handled++;
    handler_was_caught = caught();
}

static void note_and_write(int signal)
{
    note(signal);
    if (handled == 3)
        CHECK(write(pipe_ends[1], "x", 1) == 1);
}

static void every_10_ms(int on)
{
    struct itimerval timer = {{0, on ? 10000 : 0}, {0, on ? 10000 : 0}};
    CHECK(setitimer(ITIMER_REAL, &timer, NULL) == 0);
}

static void read_is_interrupted(void)
{
    char byte;
    CHECK(pipe(pipe_ends) == 0);
    install(SIGALRM, note, 0, 0);
    CHECK(fs_tx_begin() == 0);
    every_10_ms(1);
    CHECK(read(pipe_ends[0], &byte, 1) == -1 && errno == EINTR);
    every_10_ms(0);
    CHECK(handled >= 1 && handler_was_caught);
    CHECK(caught());
    CHECK(fs_tx_commit() == 0);
}

static void read_is_restarted(void)
{
    char byte = 0;
    CHECK(pipe(pipe_ends) == 0);
    install(SIGALRM, note_and_write, SA_RESTART, 0);
    CHECK(fs_tx_begin() == 0);
    every_10_ms(1);
    CHECK(read(pipe_ends[0], &byte, 1) == 1 && byte == 'x');
    every_10_ms(0);
    CHECK(handled >= 3 && handler_was_caught);
    CHECK(fs_tx_commit() == 0);
}

static void sleep_is_restarted_after_a_stop(void)
{
    /* nanosleep goes on by restart_syscall after SIGSTOP and SIGCONT */
    pid_t child = fork();
    if (child == 0) {
        struct timespec time = {0, 200000000};
        double start = now_ns();
        CHECK(fs_tx_begin() == 0);
        CHECK(nanosleep(&time, NULL) == 0);
        CHECK(now_ns() - start >= 2e8);
        CHECK(fs_tx_commit() == 0);
        _exit(0);
    }
    usleep(50000);
    CHECK(kill(child, SIGSTOP) == 0);
    usleep(20000);
    CHECK(kill(child, SIGCONT) == 0);
    expect_exit(child, 0);
}

static void inner(int signal)
{
    (void)signal;
    handled_inner++;
    CHECK(caught());
    char *text = NULL;
    CHECK(asprintf(&text, "%d", getpid()) > 0);
    free(text);
}

static void outer(int signal)
{
    (void)signal;
    handled++;
    CHECK(caught());
    CHECK(raise(SIGUSR2) == 0);
    CHECK(handled_inner == handled);
    CHECK(caught());
}

static void handlers_nest(void)
{
    install(SIGUSR1, outer, 0, 0);
    install(SIGUSR2, inner, 0, 0);
    CHECK(fs_tx_begin() == 0);
    for (int i = 0; i < 100; i++)
        CHECK(raise(SIGUSR1) == 0);
    CHECK(handled == 100 && handled_inner == 100);
    CHECK(fs_tx_commit() == 0);
}

static void handlers_with_full_masks(void)
{
    install(SIGUSR1, note, 0, 1);
    install(SIGRTMIN + 3, note, 0, 1);
    CHECK(fs_tx_begin() == 0);
    install(SIGUSR2, note, SA_RESTART, 1);
    CHECK(raise(SIGUSR1) == 0 && handled == 1 && handler_was_caught);
    CHECK(raise(SIGUSR2) == 0 && handled == 2 && handler_was_caught);
    CHECK(raise(SIGRTMIN + 3) == 0 && handled == 3 && handler_was_caught);
    CHECK(fs_tx_commit() == 0);
    /* outside, after the first transaction */
    install(SIGUSR1, note, 0, 1);
    CHECK(raise(SIGUSR1) == 0 && handled == 4 && !handler_was_caught);
    CHECK(fs_tx_begin() == 0);
    CHECK(raise(SIGUSR1) == 0 && handled == 5 && handler_was_caught);
    CHECK(fs_tx_commit() == 0);
}

static void masks_look_as_ever(void)
{
    sigset_t full, old, now;
    sigfillset(&full);
    install(SIGUSR1, note, 0, 0);
    CHECK(fs_tx_begin() == 0);
    CHECK(sigprocmask(SIG_SETMASK, &full, &old) == 0);
    CHECK(!sigismember(&old, SIGUSR1) && !sigismember(&old, SIGSYS));
    CHECK(raise(SIGUSR1) == 0);
    for (int i = 0; i < 100; i++)
        CHECK(caught());
    CHECK(handled == 0);
    CHECK(sigprocmask(SIG_BLOCK, NULL, &now) == 0);
    CHECK(sigismember(&now, SIGUSR1) && sigismember(&now, SIGSYS) && !sigismember(&now, SIGKILL));
    CHECK(sigpending(&now) == 0 && sigismember(&now, SIGUSR1));
    CHECK(sigprocmask(SIG_SETMASK, &old, NULL) == 0);
    CHECK(handled == 1);
    CHECK(sigprocmask(77, &old, NULL) == -1 && errno == EINVAL);
    CHECK(syscall(SYS_rt_sigprocmask, SIG_BLOCK, (void *)8, NULL, 8) == -1 && errno == EFAULT);
    CHECK(syscall(SYS_rt_sigprocmask, SIG_BLOCK, NULL, (void *)8, 8) == -1 && errno == EFAULT);
    CHECK(syscall(SYS_rt_sigprocmask, SIG_BLOCK, NULL, &now, 4) == -1 && errno == EINVAL);
    CHECK(syscall(SYS_rt_sigaction, SIGUSR1, (void *)8, NULL, 8) == -1 && errno == EFAULT);
    CHECK(sigprocmask(SIG_BLOCK, &full, NULL) == 0);
    CHECK(fs_tx_commit() == 0);
    CHECK(!caught());
    CHECK(sigprocmask(SIG_SETMASK, &old, &now) == 0);
    CHECK(sigismember(&now, SIGUSR1) && sigismember(&now, SIGSYS));
}

static void sigsys_blocked_before(void)
{
    sigset_t full, old, now;
    sigfillset(&full);
    CHECK(sigprocmask(SIG_SETMASK, &full, &old) == 0);
    CHECK(fs_tx_begin() == 0);
    CHECK(caught());
    CHECK(sigprocmask(SIG_BLOCK, NULL, &now) == 0 && sigismember(&now, SIGSYS));
    CHECK(fs_tx_commit() == 0);
    CHECK(sigprocmask(SIG_BLOCK, NULL, &now) == 0 && sigismember(&now, SIGSYS) && sigismember(&now, SIGUSR1));
    CHECK(fs_tx_begin() == 0);
    CHECK(sigprocmask(SIG_SETMASK, &old, NULL) == 0);
    CHECK(fs_tx_commit() == 0);
    CHECK(sigprocmask(SIG_BLOCK, NULL, &now) == 0 && !sigismember(&now, SIGSYS));
}

static void jump_out(int signal)
{
    (void)signal;
    handled++;
    siglongjmp(jump, 1);
}

static void jump_out_of_a_blocking_call(void)
{
    char byte;
    CHECK(pipe(pipe_ends) == 0);
    install(SIGALRM, jump_out, SA_RESTART, 1);
    CHECK(fs_tx_begin() == 0);
    for (volatile int i = 0; i < 20; i++) {
        if (sigsetjmp(jump, 1) == 0) {
            every_10_ms(1);
            read(pipe_ends[0], &byte, 1);
            CHECK(!"reached");
        }
        every_10_ms(0);
        CHECK(caught());
    }
    CHECK(handled >= 20);
    CHECK(fs_tx_commit() == 0);
}

static void waits_with_full_masks(void)
{
    sigset_t full, but_alarm;
    struct timespec time = {0, 30000000};
    struct epoll_event event;
    sigfillset(&full);
    sigfillset(&but_alarm);
    sigdelset(&but_alarm, SIGALRM);
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    CHECK(epoll >= 0);
    install(SIGALRM, note, 0, 1);
    CHECK(fs_tx_begin() == 0);
    every_10_ms(1);
    CHECK(ppoll(NULL, 0, &time, &but_alarm) == -1 && errno == EINTR);
    CHECK(pselect(0, NULL, NULL, NULL, &time, &but_alarm) == -1 && errno == EINTR);
    CHECK(epoll_pwait(epoll, &event, 1, 3000, &but_alarm) == -1 && errno == EINTR);
    CHECK(sigsuspend(&but_alarm) == -1 && errno == EINTR);
    CHECK(handled >= 4 && handler_was_caught);
    int before = handled;
    CHECK(sigprocmask(SIG_SETMASK, &full, NULL) == 0);
    CHECK(ppoll(NULL, 0, &time, &full) == 0);
    CHECK(pselect(0, NULL, NULL, NULL, &time, &full) == 0);
    CHECK(epoll_pwait(epoll, &event, 1, 30, &full) == 0);
    CHECK(handled == before);
    CHECK(sigsuspend(&but_alarm) == -1 && errno == EINTR);
    CHECK(handled == before + 1);
    int signal = 0;
    CHECK(sigwait(&full, &signal) == 0 && signal == SIGALRM);
    every_10_ms(0);
    CHECK(fs_tx_commit() == 0);
}

static void alternative_stack(void)
{
    stack_t stack = {.ss_sp = malloc(64 * 1024), .ss_size = 64 * 1024};
    CHECK(fs_tx_begin() == 0);
    CHECK(sigaltstack(&stack, NULL) == 0);
    install(SIGUSR1, note, SA_ONSTACK, 1);
    for (int i = 0; i < 10; i++)
        CHECK(raise(SIGUSR1) == 0 && handler_was_caught);
    CHECK(fs_tx_commit() == 0);
    CHECK(raise(SIGUSR1) == 0 && handled == 11 && !handler_was_caught);
}

static void sigsys_of_others(void)
{
    install(SIGSYS, note, 0, 0);
    CHECK(fs_tx_begin() == 0);
    CHECK(raise(SIGSYS) == 0);
    CHECK(handled == 1 && handler_was_caught);
    CHECK(fs_tx_commit() == 0);
    CHECK(raise(SIGSYS) == 0 && handled == 2 && !handler_was_caught);
    install(SIGSYS, SIG_IGN, 0, 0);
    CHECK(raise(SIGSYS) == 0 && handled == 2);
    CHECK(fs_tx_begin() == 0);
    CHECK(raise(SIGSYS) == 0 && handled == 2);
    CHECK(caught());
    CHECK(fs_tx_commit() == 0);
    install(SIGSYS, SIG_DFL, 0, 0);
    for (int inside = 0; inside < 2; inside++) {
        pid_t child = fork();
        if (child == 0) {
            CHECK(fs_tx_begin() == 0);
            if (!inside)
                CHECK(fs_tx_commit() == 0);
            raise(SIGSYS);
            _exit(0);
        }
        int status = 0;
        CHECK(waitpid(child, &status, 0) == child);
        CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS);
    }
}

/* A signal at every instruction of the stubs, so to speak: very many at random moments. */
static void storm(void)
{
    install(SIGALRM, note, SA_RESTART, 1);
    struct itimerval timer = {{0, 50}, {0, 50}};
    for (int round = 0; round < 200; round++) {
        CHECK(fs_tx_begin() == 0);
        CHECK(setitimer(ITIMER_REAL, &timer, NULL) == 0);
        for (int i = 0; i < 100; i++) {
            CHECK(syscall(SYS_getpid) > 0);
            free(malloc(300000));
        }
        CHECK(fs_tx_commit() == 0);
    }
    every_10_ms(0);
    CHECK(handled > 100);
}

int main(int argc, char **argv)
{
    static const struct test tests[] = {
        {"read_is_interrupted", read_is_interrupted},
        {"read_is_restarted", read_is_restarted},
        {"sleep_is_restarted_after_a_stop", sleep_is_restarted_after_a_stop},
        {"handlers_nest", handlers_nest},
        {"handlers_with_full_masks", handlers_with_full_masks},
        {"masks_look_as_ever", masks_look_as_ever},
        {"sigsys_blocked_before", sigsys_blocked_before},
        {"jump_out_of_a_blocking_call", jump_out_of_a_blocking_call},
        {"waits_with_full_masks", waits_with_full_masks},
        {"alternative_stack", alternative_stack},
        {"sigsys_of_others", sigsys_of_others},
        {"storm", storm},
        {0},
    };
    return run_test(tests, argc, argv);
}
