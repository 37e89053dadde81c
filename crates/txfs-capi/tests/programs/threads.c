/* Threads: each has its own transaction, and ends with it. */
#include "check.h"
#include <dirent.h>
#include <malloc.h>

static long resident_kb(void)
{
    char line[256];
    long kb = 0;
    FILE *status = fopen("/proc/self/status", "r");
    CHECK(status);
    while (fgets(line, sizeof line, status))
        if (sscanf(line, "VmRSS: %ld", &kb) == 1)
            break;
    fclose(status);
    return kb;
}

static int descriptors(void)
{
    int count = 0;
    DIR *directory = opendir("/proc/self/fd");
    CHECK(directory);
    while (readdir(directory))
        count++;
    closedir(directory);
    return count;
}

static void *is_outside(void *argument)
{
    CHECK(!caught());
    CHECK(fs_tx_commit() == -1);
    CHECK(fs_tx_begin() == 0 && caught() && fs_tx_commit() == 0);
    return argument;
}

static void create_inside(void)
{
    CHECK(fs_tx_begin() == 0);
    for (int i = 0; i < 50; i++) {
        pthread_t thread;
        void *result;
        CHECK(pthread_create(&thread, NULL, is_outside, &result) == 0);
        CHECK(caught());
        CHECK(pthread_join(thread, &result) == 0 && result == &result);
    }
    CHECK(fs_tx_commit() == 0);
}

static void *ends_inside(void *how)
{
    CHECK(fs_tx_begin() == 0);
    free(malloc(100000));
    if (how)
        pthread_exit(NULL);
    return NULL;
}

static void *ends_raw(void *argument)
{
    CHECK(fs_tx_begin() == 0);
    syscall(SYS_exit, 0);
    return argument;
}

static void end_inside(void)
{
    size_t before = 0;
    CHECK(mallopt(M_ARENA_MAX, 1) == 1);
    for (long i = 0; i < 3000; i++) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, ends_inside, (void *)(i % 2)) == 0);
        CHECK(pthread_join(thread, NULL) == 0);
        if (i == 500)
            before = mallinfo2().uordblks;
    }
    CHECK(mallinfo2().uordblks < before + 10000);
}

static void end_inside_detached(void)
{
    pthread_attr_t detached;
    CHECK(pthread_attr_init(&detached) == 0);
    CHECK(pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED) == 0);
    for (long i = 0; i < 500; i++) {
        pthread_t thread;
        while (pthread_create(&thread, &detached, ends_inside, (void *)(i % 2)) != 0)
            usleep(1000);
    }
    usleep(200000);
}

static void end_by_a_raw_call(void)
{
    for (int i = 0; i < 50; i++) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, ends_raw, NULL) == 0);
        CHECK(pthread_join(thread, NULL) == 0);
    }
}

static int pipe_ends[2];
static volatile int cleaned;

static void clean(void *argument)
{
    (void)argument;
    CHECK(caught());
    cleaned++;
}

static void *reads_for_ever(void *argument)
{
    char byte;
    CHECK(fs_tx_begin() == 0);
    pthread_cleanup_push(clean, NULL);
    read(pipe_ends[0], &byte, 1);
    pthread_cleanup_pop(0);
    return argument;
}

static void *polls_for_cancellation(void *argument)
{
    CHECK(fs_tx_begin() == 0);
    pthread_cleanup_push(clean, NULL);
    for (;;) {
        pthread_testcancel();
        syscall(SYS_getppid);
    }
    pthread_cleanup_pop(0);
    return argument;
}

static void cancel_inside(void)
{
    CHECK(pipe(pipe_ends) == 0);
    for (int i = 0; i < 20; i++) {
        pthread_t thread;
        void *result = NULL;
        CHECK(pthread_create(&thread, NULL, i % 2 ? reads_for_ever : polls_for_cancellation, NULL) == 0);
        usleep(10000);
        CHECK(pthread_cancel(thread) == 0);
        CHECK(pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED);
        CHECK(cleaned == i + 1);
    }
}

static void *works(void *number)
{
    unsigned seed = (unsigned)(uintptr_t)number;
    for (int i = 0; i < 500; i++) {
        CHECK(fs_tx_begin() == 0);
        for (int j = rand_r(&seed) % 10; j > 0; j--) {
            free(malloc((size_t)1 << (rand_r(&seed) % 20)));
            CHECK(caught());
        }
        CHECK((rand_r(&seed) % 2 ? fs_tx_commit() : fs_tx_abort()) == 0);
        CHECK(fs_tx_commit() == -1);
    }
    return NULL;
}

static void many_at_once(void)
{
    pthread_t threads[16];
    for (uintptr_t i = 0; i < 16; i++)
        CHECK(pthread_create(&threads[i], NULL, works, (void *)(i + 1)) == 0);
    for (int i = 0; i < 16; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
}

static void a_million_pairs(void)
{
    for (int i = 0; i < 1000; i++)
        CHECK(fs_tx_begin() == 0 && fs_tx_commit() == 0);
    /* the first look takes memory itself */
    resident_kb();
    descriptors();
    long before_kb = resident_kb();
    int descriptors_before = descriptors();
    for (int i = 0; i < 1000000; i++)
        if (fs_tx_begin() || fs_tx_commit())
            CHECK(!"reached");
    dprintf(1, "resident: %ld kB before, %ld kB after\n", before_kb, resident_kb());
    CHECK(resident_kb() <= before_kb + 64);
    CHECK(descriptors() == descriptors_before);
}

static void *on_a_small_stack(void *argument)
{
    CHECK(fs_tx_begin() == 0);
    for (int i = 0; i < 100; i++)
        CHECK(caught());
    CHECK(fs_tx_commit() == 0);
    return argument;
}

static void a_small_stack(void)
{
    pthread_attr_t small;
    pthread_t thread;
    CHECK(pthread_attr_init(&small) == 0);
    CHECK(pthread_attr_setstacksize(&small, 32 * 1024) == 0);
    CHECK(pthread_create(&thread, &small, on_a_small_stack, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
}

int main(int argc, char **argv)
{
    static const struct test tests[] = {
        {"create_inside", create_inside},
        {"end_inside", end_inside},
        {"end_inside_detached", end_inside_detached},
        {"end_by_a_raw_call", end_by_a_raw_call},
        {"cancel_inside", cancel_inside},
        {"many_at_once", many_at_once},
        {"a_million_pairs", a_million_pairs},
        {"a_small_stack", a_small_stack},
        {0},
    };
    return run_test(tests, argc, argv);
}
