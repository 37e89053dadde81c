/* Many threads on the same handles: reads, writes, appends, renames, deletions, listings, syncs. threads VOLUME */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>

#include "check.h"

enum { THREADS = 6, ROUNDS = 300, RECORD = 24 };

static txfs_volume *volume;
static txfs_file *shared_log, *pages;

static void *work(void *argument)
{
    txfs_view *base = txfs_volume_base(volume);
    int number = (int)(size_t)argument;
    char from[32], to[32], record[RECORD + 1], page[4096], back[4096];
    for (int round = 0; round < ROUNDS; round++) {
        txfs_file *file = NULL;
        txfs_dir *dir = NULL;
        const txfs_dirent *entry;
        off_t at = -1;
        snprintf(from, sizeof from, "dir/%d.tmp", number);
        snprintf(to, sizeof to, "dir/%d.%d", number, round % 10);
        snprintf(record, sizeof record, "%10d %12d\n", number, round);
        CHECK(txfs_append(shared_log, record, RECORD, &at) == RECORD && at % RECORD == 0);
        CHECK(txfs_pread(shared_log, back, RECORD, at) == RECORD && memcmp(record, back, RECORD) == 0);
        memset(page, number * 40 + round % 40, sizeof page);
        CHECK(txfs_pwrite(pages, page, sizeof page, number * 4096) == 4096);
        CHECK(txfs_pread(pages, back, sizeof back, number * 4096) == 4096 && memcmp(page, back, 4096) == 0);
        CHECK(txfs_open(base, from, O_WRONLY | O_CREAT | O_EXCL, 0644, &file) == 0);
        CHECK(txfs_pwrite(file, record, RECORD, 0) == RECORD && txfs_close(file) == 0);
        CHECK(txfs_rename(base, from, to, 0) == 0);
        if (round % 3 == 0)
            CHECK(txfs_unlink(base, to) == 0);
        if (round % 20 == 0) {
            CHECK(txfs_opendir(base, "dir", &dir) == 0);
            while (txfs_readdir(dir, &entry) == 1)
                CHECK(entry->name_length > 0);
            CHECK(txfs_closedir(dir) == 0 && txfs_fsync(shared_log) == 0);
        }
    }
    return NULL;
}

int main(int count, char **arguments)
{
    txfs_open_options options = {.size = sizeof options, .flags = TXFS_OPEN_CREATE};
    pthread_t threads[THREADS];
    int last[THREADS];
    char record[RECORD];
    CHECK(count == 2 && txfs_volume_open(arguments[1], &options, &volume) == 0);
    CHECK(txfs_mkdir(txfs_volume_base(volume), "dir", 0755) == 0);
    CHECK(txfs_open(txfs_volume_base(volume), "log", O_RDWR | O_CREAT, 0644, &shared_log) == 0);
    CHECK(txfs_open(txfs_volume_base(volume), "pages", O_RDWR | O_CREAT, 0644, &pages) == 0);
    for (size_t at = 0; at < THREADS; at++)
        CHECK(pthread_create(&threads[at], NULL, work, (void *)at) == 0);
    for (int at = 0; at < THREADS; at++) {
        pthread_join(threads[at], NULL);
        last[at] = -1;
    }
    /* no append was lost, and each thread's are in its order */
    CHECK(txfs_size(shared_log) == THREADS * ROUNDS * RECORD);
    for (int at = 0; at < THREADS * ROUNDS; at++) {
        CHECK(txfs_pread(shared_log, record, RECORD, (off_t)at * RECORD) == RECORD);
        int number = atoi(record), round = atoi(record + 10);
        CHECK(number >= 0 && number < THREADS && round == last[number] + 1);
        last[number] = round;
    }
    CHECK(txfs_close(pages) == 0 && txfs_close(shared_log) == 0 && txfs_volume_close(volume) == 0);
    puts("threads: all well");
    return 0;
}
