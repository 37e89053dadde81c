/* A caught call is the same call: registers, errno, arguments, memory, stdio. */
#include "check.h"

/* Fills registers, flags and the red zone, makes a call, and stores what is there afterwards. */
struct registers {
    uint64_t rbx, rbp, r12, r13, r14, r15, rdi, rsi, rdx, r10, r8, r9, rax, rcx, r11, flags;
    uint64_t return_address, rsp_before, rsp_after;
    uint64_t xmm[16][2];
    uint64_t red_zone[16];
    uint64_t red_zone_after[16];
};
void call_with_all_registers(struct registers *before, struct registers *after, uint64_t number);
__asm__(".text\n.globl call_with_all_registers\n.type call_with_all_registers,@function\n"
        "call_with_all_registers:\n"
        "push %rbx\npush %rbp\npush %r12\npush %r13\npush %r14\npush %r15\n"
        "mov %rdi, saved_before(%rip)\nmov %rsi, saved_after(%rip)\nmov %rdx, %rax\n"
        "mov %rdi, %r11\n"
        ".set place, 0\n.rept 16\n mov 408+place(%r11), %rcx\n mov %rcx, -128+place(%rsp)\n.set place, place+8\n.endr\n"
        "movups 152(%r11), %xmm0\nmovups 168(%r11), %xmm1\nmovups 184(%r11), %xmm2\nmovups 200(%r11), %xmm3\n"
        "movups 376(%r11), %xmm14\nmovups 392(%r11), %xmm15\n"
        "mov 0(%r11), %rbx\nmov 8(%r11), %rbp\nmov 16(%r11), %r12\nmov 24(%r11), %r13\nmov 32(%r11), %r14\n"
        "mov 40(%r11), %r15\nmov 48(%r11), %rdi\nmov 56(%r11), %rsi\nmov 64(%r11), %rdx\nmov 72(%r11), %r10\n"
        "mov 80(%r11), %r8\nmov 88(%r11), %r9\n"
        "mov %rsp, 136(%r11)\n"
        "cmp %rax, %rax\nstc\n" /* zero and carry are set */
        "syscall\n"
        "1:\n"
        "mov %r11, saved_r11(%rip)\nmov saved_after(%rip), %r11\n"
        "mov %rbx, 0(%r11)\nmov %rbp, 8(%r11)\nmov %r12, 16(%r11)\nmov %r13, 24(%r11)\nmov %r14, 32(%r11)\n"
        "mov %r15, 40(%r11)\nmov %rdi, 48(%r11)\nmov %rsi, 56(%r11)\nmov %rdx, 64(%r11)\nmov %r10, 72(%r11)\n"
        "mov %r8, 80(%r11)\nmov %r9, 88(%r11)\nmov %rax, 96(%r11)\nmov %rcx, 104(%r11)\n"
        "mov %rsp, 144(%r11)\n"
        ".set place, 0\n.rept 16\n mov -128+place(%rsp), %rcx\n mov %rcx, 536+place(%r11)\n.set place, place+8\n.endr\n"
        "pushfq\npop %rcx\nmov %rcx, 120(%r11)\n"
        "mov saved_r11(%rip), %rcx\nmov %rcx, 112(%r11)\n"
        "lea 1b(%rip), %rcx\nmov %rcx, 128(%r11)\n"
        "movups %xmm0, 152(%r11)\nmovups %xmm1, 168(%r11)\nmovups %xmm2, 184(%r11)\nmovups %xmm3, 200(%r11)\n"
        "movups %xmm14, 376(%r11)\nmovups %xmm15, 392(%r11)\n"
        "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbp\npop %rbx\nret\n"
        ".local saved_before,saved_after,saved_r11\n.comm saved_before,8\n.comm saved_after,8\n.comm saved_r11,8\n");

static void registers(void)
{
    struct registers before, after;
    uint64_t *words = (uint64_t *)&before;
    for (size_t i = 0; i < sizeof before / 8; i++)
        words[i] = 0x0101010101010101u * (i + 1);
    for (int inside = 0; inside < 2; inside++) {
        memset(&after, 0, sizeof after);
        if (inside)
            CHECK(fs_tx_begin() == 0);
        uint64_t caught_before = fs_tx_intercepted();
        call_with_all_registers(&before, &after, SYS_getppid);
        CHECK(fs_tx_intercepted() == caught_before + inside);
        if (inside)
            CHECK(fs_tx_commit() == 0);
        CHECK(after.rax == (uint64_t)getppid());
        CHECK(!memcmp(&before, &after, 12 * 8));
        CHECK(after.rcx == after.return_address);
        CHECK(after.rsp_after == before.rsp_before);
        CHECK((after.flags & 0x41) == 0x41);
        CHECK((after.r11 & 0x41) == 0x41);
        CHECK(!memcmp(before.xmm, after.xmm, 4 * 16) && !memcmp(before.xmm[14], after.xmm[14], 2 * 16));
        CHECK(!memcmp(before.red_zone, after.red_zone_after, sizeof before.red_zone));
    }
}

static void errno_stays(void)
{
    long result;
    CHECK(fs_tx_begin() == 0);
    errno = 1234;
    __asm__ volatile("syscall" : "=a"(result) : "a"(SYS_close), "D"(-1) : "rcx", "r11", "memory");
    CHECK(result == -EBADF);
    CHECK(errno == 1234);
    CHECK(close(-1) == -1 && errno == EBADF);
    CHECK(syscall(100000) == -1 && errno == ENOSYS);
    CHECK(fs_tx_commit() == 0);
}

static void memory_and_stdio(void)
{
    char line[64], *blocks[200];
    FILE *before = tmpfile();
    CHECK(before && fprintf(before, "before\n") > 0);
    for (int round = 0; round < 50; round++) {
        CHECK(fs_tx_begin() == 0);
        for (int i = 0; i < 200; i++) {
            size_t len = (size_t)1 << (i % 20);
            CHECK((blocks[i] = malloc(len)));
            memset(blocks[i], i, len);
        }
        FILE *inside = tmpfile();
        CHECK(inside && fprintf(inside, "%d %s\n", round, "inside") > 0);
        rewind(inside);
        CHECK(fgets(line, sizeof line, inside) && atoi(line) == round);
        CHECK(fclose(inside) == 0);
        CHECK(fprintf(before, "round %d\n", round) > 0);
        for (int i = 0; i < 200; i++)
            free(blocks[i]);
        CHECK(fs_tx_commit() == 0);
    }
    rewind(before);
    int lines = 0;
    while (fgets(line, sizeof line, before))
        lines++;
    CHECK(lines == 51);
}

static void six_arguments(void)
{
    CHECK(fs_tx_begin() == 0);
    int file = memfd_create("six", MFD_CLOEXEC);
    CHECK(file >= 0 && ftruncate(file, 3 * 4096) == 0);
    CHECK(pwrite(file, "third page", 10, 2 * 4096) == 10);
    char *map = mmap(NULL, 4096, PROT_READ, MAP_SHARED, file, 2 * 4096);
    CHECK(map != MAP_FAILED && !memcmp(map, "third page", 10));
    CHECK(fs_tx_commit() == 0);
}

static void what_is_refused(void)
{
    struct sigaction action = {.sa_handler = SIG_DFL};
    CHECK(fs_tx_begin() == 0);
    CHECK(sigaction(SIGSYS, &action, NULL) == -1 && errno == EINVAL);
    CHECK(syscall(SYS_prctl, 59, 0, 0, 0, 0) == -1 && errno == EBUSY);
    CHECK(syscall(SYS_io_uring_setup, 8, NULL) == -1 && errno == ENOSYS);
    CHECK(caught());
    CHECK(fs_tx_commit() == 0);
    CHECK(!caught());
    CHECK(fs_tx_commit() == -1);
}

static void nothing_outside(void)
{
    CHECK(fs_tx_intercepted() == 0);
    for (int i = 0; i < 1000; i++)
        syscall(SYS_getppid);
    CHECK(fs_tx_intercepted() == 0);
    CHECK(fs_tx_begin() == 0);
    for (int i = 0; i < 10; i++)
        syscall(SYS_getppid);
    CHECK(fs_tx_commit() == 0);
    CHECK(fs_tx_intercepted() == 10);
    for (int i = 0; i < 1000; i++)
        syscall(SYS_getppid);
    CHECK(fs_tx_intercepted() == 10);
}

static void cost(void)
{
    const int rounds = 100000;
    double start = now_ns();
    for (int i = 0; i < rounds; i++)
        syscall(SYS_getppid);
    printf("call outside: %.0f ns\n", (now_ns() - start) / rounds);
    CHECK(fs_tx_begin() == 0);
    start = now_ns();
    for (int i = 0; i < rounds; i++)
        syscall(SYS_getppid);
    double inside = now_ns() - start;
    CHECK(fs_tx_commit() == 0);
    printf("call inside: %.0f ns\n", inside / rounds);
    start = now_ns();
    for (int i = 0; i < rounds; i++)
        CHECK(fs_tx_begin() == 0 && fs_tx_commit() == 0);
    printf("begin and commit: %.0f ns\n", (now_ns() - start) / rounds);
}

int main(int argc, char **argv)
{
    static const struct test tests[] = {
        {"registers", registers},
        {"errno_stays", errno_stays},
        {"memory_and_stdio", memory_and_stdio},
        {"six_arguments", six_arguments},
        {"what_is_refused", what_is_refused},
        {"nothing_outside", nothing_outside},
        {"cost", cost},
        {0},
    };
    return run_test(tests, argc, argv);
}
