/* A program that loads the library when it already has threads. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static int (*begin)(void), (*commit)(void);
static uint64_t (*intercepted)(void);
static volatile int loaded;

#define CHECK(holds)                                                                   \
    do {                                                                               \
        if (!(holds)) {                                                                \
            dprintf(2, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #holds);      \
            _exit(1);                                                                  \
        }                                                                              \
    } while (0)

static void *works(void *argument)
{
    while (!loaded)
        usleep(1000);
    for (int i = 0; i < 100; i++) {
        CHECK(begin() == 0);
        uint64_t before = intercepted();
        free(malloc(200000));
        syscall(SYS_getppid);
        CHECK(intercepted() > before);
        if (i < 99)
            CHECK(commit() == 0);
    }
    return argument;
}

int main(int argc, char **argv)
{
    pthread_t threads[4];
    CHECK(argc == 2);
    alarm(60);
    for (int i = 0; i < 4; i++)
        CHECK(pthread_create(&threads[i], NULL, works, NULL) == 0);
    void *library = dlopen(LIBRARY, RTLD_NOW);
    if (!library)
        fprintf(stderr, "%s\n", dlerror());
    CHECK(library);
    CHECK((begin = (int (*)(void))dlsym(library, "fs_tx_begin")));
    CHECK((commit = (int (*)(void))dlsym(library, "fs_tx_commit")));
    CHECK((intercepted = (uint64_t (*)(void))dlsym(library, "fs_tx_intercepted")));
    if (!strcmp(argv[1], "closed")) {
        CHECK(begin() == 0);
        CHECK(dlclose(library) == 0);
        syscall(SYS_getppid);
        CHECK(commit() == 0);
    }
    loaded = 1;
    works(NULL);
    for (int i = 0; i < 4; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    return 0;
}
