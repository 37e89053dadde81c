/* damaged write VOLUME: a file of a megabyte that a search finds again.
 * damaged read VOLUME: it has been damaged meanwhile; reading says so. damaged open VOLUME: even opening fails. */
#define _GNU_SOURCE
#include <fcntl.h>

#include "check.h"

enum { BYTES = 1 << 20 };

int main(int count, char **arguments)
{
    txfs_open_options options = {.size = sizeof options, .flags = TXFS_OPEN_CREATE};
    txfs_volume *volume = NULL;
    txfs_file *file = NULL;
    char *data = malloc(BYTES);
    int failures = 0;
    CHECK(count == 3 && data != NULL);
    if (strcmp(arguments[1], "open") == 0) {
        FAILS(txfs_volume_open(arguments[2], NULL, &volume), EIO);
        puts(txfs_error_message());
        return 0;
    }
    CHECK(txfs_volume_open(arguments[2], &options, &volume) == 0);
    CHECK(txfs_open(txfs_volume_base(volume), "precious", O_RDWR | O_CREAT, 0644, &file) == 0);
    if (strcmp(arguments[1], "write") == 0) {
        memset(data, 'P', BYTES);
        CHECK(txfs_pwrite(file, data, BYTES, 0) == BYTES);
    } else {
        for (int page = 0; page < BYTES / 4096; page++) {
            if (txfs_pread(file, data, 4096, page * 4096) == 4096) {
                for (int at = 0; at < 4096; at++)
                    CHECK(data[at] == 'P');
                continue;
            }
            CHECK(errno == EIO && strstr(txfs_error_message(), "damaged") != NULL);
            failures++;
        }
        CHECK(failures > 0);
        puts(txfs_error_message());
    }
    CHECK(txfs_close(file) == 0 && txfs_volume_close(volume) == 0);
    free(data);
    return 0;
}
