/* A program with seccomp filters: one that traps calls of its own, and one that makes the kernel look like an old one. */
#include "check.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <ucontext.h>

static volatile int trapped;

/* `action` for the call, if its first argument is this one or any will do. */
static void filter(int call, int first, uint32_t action)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, first, 0, first < 0 ? 0 : 1),
        BPF_STMT(BPF_RET | BPF_K, action),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof code / sizeof *code, code};
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

static void without_dispatch(void)
{
    filter(SYS_prctl, 59, SECCOMP_RET_ERRNO | EINVAL);
    CHECK(fs_tx_begin() == -1 && errno == ENOTSUP);
    CHECK(!caught());
    CHECK(fs_tx_commit() == -1);
    CHECK(fs_tx_begin() == -1 && errno == ENOTSUP);
    CHECK(fs_tx_intercepted() == 0);
}

static void on_trap(int signal, siginfo_t *info, void *context)
{
    (void)signal;
    CHECK(info->si_code == 1 && info->si_syscall == SYS_getpgid);
    ((ucontext_t *)context)->uc_mcontext.gregs[REG_RAX] = 4242;
    trapped++;
}

static void trapped_calls(void)
{
    struct sigaction action = {.sa_sigaction = on_trap, .sa_flags = SA_SIGINFO};
    CHECK(sigaction(SIGSYS, &action, NULL) == 0);
    filter(SYS_getpgid, -1, SECCOMP_RET_TRAP);
    CHECK(syscall(SYS_getpgid, 0) == 4242 && trapped == 1);
    CHECK(fs_tx_begin() == 0);
    for (int i = 0; i < 10; i++) {
        CHECK(syscall(SYS_getpgid, 0) == 4242);
        CHECK(caught());
    }
    CHECK(trapped == 11);
    CHECK(fs_tx_commit() == 0);
    CHECK(syscall(SYS_getpgid, 0) == 4242 && trapped == 12);
}

int main(int argc, char **argv)
{
    static const struct test tests[] = {
        {"without_dispatch", without_dispatch},
        {"trapped_calls", trapped_calls},
        {0},
    };
    return run_test(tests, argc, argv);
}
