/*
 * What `libtxfs-protocols` times: update protocols by ordinary system calls, bare or in transactions.
 *
 *     libtxfs-protocols WORK DIRECTORY [LIBRARY]
 *
 * WORK: rename (figure 1a of the TxFS paper, on two files), replace (with two syncs less), update (those two files written in place), logging (figure 1b),
 * write (one write), nothing. With LIBRARY, libtxfs.so, each is a transaction: durable, of `write` and `nothing` ordered.
 *
 * For each line "MICROSECONDS OPERATIONS SEED" on standard input it works as long, or until it has done so many, and
 * answers a line "COUNT OUTSIDE", OUTSIDE being the system calls that were intercepted between transactions, then COUNT
 * lines of nanoseconds.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096
#define SAMPLES_MAX 1000000

static int (*begin)(void), (*commit)(unsigned);
static uint64_t (*intercepted)(void);
static int directory, original;
static uint64_t pages, random_state;
static char content[PAGE];
static uint32_t samples[SAMPLES_MAX];

static long must(long result, const char *call)
{
    if (result < 0) {
        fprintf(stderr, "%s: %s\n", call, strerror(errno));
        exit(1);
    }
    return result;
}
#define MUST(call) must((call), #call)

static uint64_t now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000ull + time.tv_nsec;
}

static uint64_t draw(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    return random_state ^= random_state << 17;
}

static void write_synced(const char *name)
{
    int file = MUST(open(name, O_CREAT | O_TRUNC | O_WRONLY, 0644));
    MUST(write(file, content, PAGE));
    MUST(fsync(file));
    MUST(close(file));
}

/* The paper syncs the directory before the rename too, so that the temporary name is there before it is used. */
static void replace(const char *temporary, const char *name, int syncs_before)
{
    write_synced(temporary);
    if (syncs_before)
        MUST(fsync(directory));
    MUST(rename(temporary, name));
    MUST(fsync(directory));
}

static void work_rename(void)
{
    replace("first.tmp", "first", 1);
    replace("second.tmp", "second", 1);
}

static void work_replace(void)
{
    replace("first.tmp", "first", 0);
    replace("second.tmp", "second", 0);
}

static void update(const char *name)
{
    int file = MUST(open(name, O_WRONLY));
    MUST(write(file, content, PAGE));
    MUST(close(file));
}

static void work_update(void)
{
    update("first");
    update("second");
}

static void work_logging(void)
{
    write_synced("log");
    MUST(fsync(directory));
    MUST(pwrite(original, content, PAGE, draw() % pages * PAGE));
    MUST(fsync(original));
    MUST(unlink("log"));
    MUST(fsync(directory));
}

static void work_write(void)
{
    MUST(pwrite(original, content, PAGE, draw() % pages * PAGE));
}

static void work_nothing(void)
{
}

/* Names, and durabilities of txfs.h. */
static const struct {
    const char *name;
    void (*run)(void);
    unsigned durability;
} works[] = {{"rename", work_rename, 0},   {"replace", work_replace, 0}, {"update", work_update, 0},
             {"logging", work_logging, 0}, {"write", work_write, 1},     {"nothing", work_nothing, 1}};

int main(int argc, char **argv)
{
    void (*run)(void) = NULL;
    unsigned durability = 0;
    for (size_t i = 0; argc > 2 && i < sizeof works / sizeof *works; i++)
        if (!strcmp(argv[1], works[i].name))
            run = works[i].run, durability = works[i].durability;
    if (!run) {
        fprintf(stderr, "what is to be done?\n");
        return 2;
    }
    if (argc > 3) {
        void *library = dlopen(argv[3], RTLD_NOW);
        if (library) {
            begin = (int (*)(void))dlsym(library, "fs_tx_begin");
            commit = (int (*)(unsigned))dlsym(library, "fs_tx_commit_with");
            intercepted = (uint64_t(*)(void))dlsym(library, "fs_tx_intercepted");
        }
        if (!begin || !commit || !intercepted) {
            fprintf(stderr, "%s\n", dlerror());
            return 1;
        }
    }
    MUST(chdir(argv[2]));
    directory = MUST(open(".", O_RDONLY | O_DIRECTORY));
    original = MUST(open("original", O_RDWR));
    pages = MUST(lseek(original, 0, SEEK_END)) / PAGE;

    char line[128];
    while (fgets(line, sizeof line, stdin)) {
        unsigned long duration_us, operations_max, seed, count = 0;
        uint64_t outside = 0;
        if (sscanf(line, "%lu %lu %lu", &duration_us, &operations_max, &seed) != 3)
            return 2;
        random_state = seed * 0x9e3779b97f4a7c15ull + 1;
        uint64_t end = now_ns() + duration_us * 1000ull, last = intercepted ? intercepted() : 0;
        while (count == 0 || (count < operations_max && count < SAMPLES_MAX && now_ns() < end)) {
            /* other contents each time, made outside of the time, with system calls that nobody may intercept */
            for (size_t at = 0; at < PAGE; at += 8)
                memcpy(content + at, &(uint64_t){draw()}, 8);
            MUST(syscall(SYS_getppid));
            MUST(fcntl(original, F_GETFL));
            if (intercepted)
                outside += intercepted() - last;
            uint64_t begun = now_ns();
            if (begin)
                MUST(begin());
            run();
            if (commit)
                MUST(commit(durability));
            samples[count++] = now_ns() - begun;
            if (intercepted)
                last = intercepted();
        }
        printf("%lu %lu\n", count, (unsigned long)outside);
        for (unsigned long i = 0; i < count; i++)
            printf("%u\n", samples[i]);
        fflush(stdout);
    }
    return 0;
}
