/* Ends the program with what the library has to say when something does not hold. */
#ifndef CHECK_H
#define CHECK_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <txfs_volume.h>

#define CHECK(condition)                                                                                          \
    do {                                                                                                          \
        if (!(condition)) {                                                                                       \
            fprintf(stderr, "%s:%d: %s (errno %d, %s)\n", __FILE__, __LINE__, #condition, errno,                  \
                    txfs_error_message());                                                                        \
            exit(1);                                                                                              \
        }                                                                                                         \
    } while (0)

#define FAILS(call, number)                                                                                       \
    do {                                                                                                          \
        errno = 0;                                                                                                \
        CHECK((call) == -1);                                                                                      \
        CHECK(errno == (number));                                                                                 \
        CHECK(txfs_error_message()[0] != 0);                                                                      \
    } while (0)

#endif
