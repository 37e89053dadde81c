/* crash write VOLUME: transactions over two files until it is killed, each acknowledged by a line.
 * crash verify VOLUME ACKNOWLEDGED: the files agree, and no acknowledged transaction is missing. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <unistd.h>

#include "check.h"

static long number_in(txfs_view *view, const char *path)
{
    char text[32] = "";
    txfs_file *file = NULL;
    if (txfs_open(view, path, O_RDONLY, 0, &file) != 0) {
        CHECK(errno == ENOENT);
        return 0;
    }
    CHECK(txfs_pread(file, text, 31, 0) >= 0 && txfs_close(file) == 0);
    return atol(text);
}

static void put(txfs_view *tx, const char *path, long number)
{
    char text[32];
    txfs_file *file = NULL;
    int length = snprintf(text, sizeof text, "%ld", number);
    CHECK(txfs_open(tx, path, O_WRONLY | O_CREAT | O_TRUNC, 0644, &file) == 0);
    CHECK(txfs_pwrite(file, text, length, 0) == length && txfs_close(file) == 0);
}

int main(int count, char **arguments)
{
    txfs_open_options options = {.size = sizeof options, .flags = TXFS_OPEN_CREATE};
    txfs_volume *volume = NULL;
    CHECK(count >= 3 && txfs_volume_open(arguments[2], &options, &volume) == 0);
    txfs_view *base = txfs_volume_base(volume);
    long number = number_in(base, "one");
    if (strcmp(arguments[1], "verify") == 0) {
        CHECK(number == number_in(base, "two"));
        CHECK(number >= atol(arguments[3]));
        /* the file of each transaction took the place of the one before */
        txfs_dir *dir = NULL;
        const txfs_dirent *entry;
        int names = 0;
        char name[32];
        snprintf(name, sizeof name, "%ld", number);
        if (number > 0) {
            CHECK(txfs_opendir(base, "moving", &dir) == 0);
            while (txfs_readdir(dir, &entry) == 1) {
                CHECK(strcmp(entry->name, name) == 0);
                names++;
            }
            CHECK(names == 1 && txfs_closedir(dir) == 0);
        }
        CHECK(txfs_volume_close(volume) == 0);
        printf("%ld\n", number);
        return 0;
    }
    for (;;) {
        char from[32], to[32];
        txfs_view *tx = NULL;
        CHECK(txfs_begin(volume, NULL, &tx) == 0);
        put(tx, "one", ++number);
        snprintf(from, sizeof from, "moving/%ld", number - 1);
        snprintf(to, sizeof to, "moving/%ld", number);
        if (number == 1) {
            CHECK(txfs_mkdir(tx, "moving", 0755) == 0);
            put(tx, from, 0);
        }
        CHECK(txfs_rename(tx, from, to, 0) == 0);
        put(tx, "two", number);
        CHECK(txfs_commit(tx, TXFS_DURABLE, NULL) == 0 && txfs_view_close(tx) == 0);
        printf("%ld\n", number);
        fflush(stdout);
    }
}
