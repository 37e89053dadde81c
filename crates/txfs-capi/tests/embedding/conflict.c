/* Two threads, two transactions, one page. conflict VOLUME */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>

#include "check.h"

static txfs_volume *volume;
static pthread_barrier_t written;

static void write_file(txfs_view *tx)
{
    txfs_file *file = NULL;
    char text[20];
    CHECK(txfs_open(tx, "account", O_RDWR, 0, &file) == 0);
    ssize_t count = txfs_pread(file, text, sizeof text - 1, 0);
    CHECK(count > 0);
    text[count] = 0;
    count = snprintf(text, sizeof text, "%d", atoi(text) + 1);
    CHECK(txfs_pwrite(file, text, count, 0) == count);
    CHECK(txfs_close(file) == 0);
}

static void *transact(void *conflicts)
{
    txfs_begin_options options = {.size = sizeof options, .label = "deposit"};
    txfs_view *tx = NULL, *next = NULL;
    CHECK(txfs_begin(volume, &options, &tx) == 0);
    write_file(tx);
    pthread_barrier_wait(&written);
    while (txfs_commit(tx, TXFS_ORDERED, NULL) != 0) {
        char text[1000], json[4000], little[8];
        CHECK(errno == ECANCELED);
        CHECK(strstr(txfs_error_message(), "account") != NULL);
        ssize_t length = txfs_conflict(tx, TXFS_REPORT_TEXT, text, sizeof text);
        CHECK(length == (ssize_t)strlen(text));
        CHECK(strstr(text, "account") != NULL && strstr(text, "bytes 0 to 4095") != NULL && strstr(text, "deposit"));
        CHECK(txfs_conflict(tx, TXFS_REPORT_TEXT, NULL, 0) == length);
        CHECK(txfs_conflict(tx, TXFS_REPORT_TEXT, little, sizeof little) == length);
        CHECK(strlen(little) == sizeof little - 1 && strncmp(text, little, sizeof little - 1) == 0);
        CHECK(txfs_conflict(tx, TXFS_REPORT_JSON, json, sizeof json) > 0);
        CHECK(strstr(json, "\"kind\":\"pages\"") != NULL && strstr(json, "account") != NULL);
        FAILS(txfs_conflict(tx, 9, json, sizeof json), EINVAL);
        __atomic_fetch_add((int *)conflicts, 1, __ATOMIC_RELAXED);
        CHECK(txfs_begin_again(tx, &next) == 0);
        CHECK(txfs_view_close(tx) == 0);
        tx = next;
        write_file(tx);
    }
    CHECK(txfs_view_close(tx) == 0);
    return NULL;
}

int main(int count, char **arguments)
{
    txfs_open_options options = {.size = sizeof options, .flags = TXFS_OPEN_CREATE};
    pthread_t threads[2];
    txfs_file *file = NULL;
    char text[20] = "";
    int conflicts = 0;

    CHECK(count == 2 && txfs_volume_open(arguments[1], &options, &volume) == 0);
    CHECK(txfs_open(txfs_volume_base(volume), "account", O_RDWR | O_CREAT, 0644, &file) == 0);
    CHECK(txfs_pwrite(file, "1000", 4, 0) == 4);
    pthread_barrier_init(&written, NULL, 2);
    for (int at = 0; at < 2; at++)
        CHECK(pthread_create(&threads[at], NULL, transact, &conflicts) == 0);
    for (int at = 0; at < 2; at++)
        pthread_join(threads[at], NULL);
    CHECK(txfs_pread(file, text, 19, 0) == 4 && strcmp(text, "1002") == 0);
    CHECK(conflicts == 1);

    /* a transaction that meets a conflict fails from then on, at once */
    txfs_view *tx = NULL;
    struct stat stat;
    CHECK(txfs_begin(volume, NULL, &tx) == 0);
    write_file(tx);
    CHECK(txfs_pwrite(file, "5", 1, 0) == 1);
    FAILS(txfs_mkdir(tx, "other", 0755), ECANCELED);
    FAILS(txfs_stat(tx, "other", &stat, 0), ECANCELED);
    CHECK(txfs_conflict(tx, TXFS_REPORT_TEXT, NULL, 0) > 0);
    CHECK(txfs_abort(tx) == 0 && txfs_view_close(tx) == 0);
    CHECK(txfs_close(file) == 0 && txfs_volume_close(volume) == 0);
    puts("conflict: all well");
    return 0;
}
