/*
 * The update protocols of figure 1 of the TxFS paper, as programs make them: with all their syncs, unchanged, and
 * fs_tx_begin() and fs_tx_commit() around them. At one of its system calls the program is struck.
 *
 *     protocols PROTOCOL DIRECTORY VERSION HOW STEP [OWNER [DELAY]]
 *
 * PROTOCOL  rename: two files, each by a temporary one; logging: a file in place, through an undo log; mail: an
 *           attachment, and its message in a database with a journal.
 * HOW       through: not struck; self: the program is killed; owner: OWNER, the process of the mount, is;
 *           commit: OWNER is, DELAY microseconds after the commit began; bare: as self, but in no transaction.
 * STEP      before the system call of this number, counted from 1; the first number after the last call is between it
 *           and the commit, the second one after the commit has returned.
 *
 * Prints "committed", or which call failed; "steps N", how many system calls the protocol has; "outside N", how many
 * calls were intercepted before the begin and after the commit.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include <txfs.h>

#define PAGE 4096
#define BYTES (3 * PAGE)

static const char *how;
static int step, struck_step, version, directory;
static pid_t owner;

/* Returns when the process is dead, not when it is about to be. */
static void kill_owner(void)
{
    int process = syscall(SYS_pidfd_open, owner, 0);
    struct pollfd end = {process, POLLIN, 0};
    if (process < 0 || kill(owner, SIGKILL) != 0 || poll(&end, 1, 10000) != 1) {
        dprintf(2, "the owner cannot be killed: %s\n", strerror(errno));
        _exit(2);
    }
    close(process);
}

static void strike(void)
{
    if (++step != struck_step)
        return;
    if (!strcmp(how, "self") || !strcmp(how, "bare"))
        kill(getpid(), SIGKILL);
    if (!strcmp(how, "owner"))
        kill_owner();
}

static long done(long result, const char *call)
{
    if (result < 0) {
        int number = errno;
        fs_tx_abort();
        dprintf(1, "failed at %d: %s: %s\n", step, call, strerror(number));
        _exit(3);
    }
    return result;
}

/* One system call of a protocol. */
#define DO(call) (strike(), done((call), #call))

/* What a file holds at a version: each line says it. */
static const char *content(const char *name, int version)
{
    static char text[BYTES];
    char line[33];
    snprintf(line, sizeof line, "%-20.20s%11d\n", name, version);
    for (int at = 0; at < BYTES; at += 32)
        memcpy(text + at, line, 32);
    return text;
}

static void write_new(const char *path, const char *text)
{
    int file = DO(openat(directory, path, O_CREAT | O_EXCL | O_WRONLY, 0644));
    DO(write(file, text, BYTES));
    DO(fsync(file));
    DO(close(file));
    DO(fsync(directory));
}

/* Figure 1a, for two files. */
static void by_rename(void)
{
    write_new("first.tmp", content("first", version));
    DO(renameat(directory, "first.tmp", directory, "first"));
    DO(fsync(directory));
    write_new("second.tmp", content("second", version));
    DO(renameat(directory, "second.tmp", directory, "second"));
    DO(fsync(directory));
}

/* Figure 1b: the log has what was there, then the file is written page by page, the last one first. */
static void by_log(void)
{
    char before[BYTES];
    int original = DO(openat(directory, "original", O_RDWR));
    DO(read(original, before, BYTES));
    write_new("log", before);
    for (int at = BYTES - PAGE; at >= 0; at -= PAGE)
        DO(pwrite(original, content("original", version) + at, PAGE, at));
    DO(fsync(original));
    DO(close(original));
    DO(unlinkat(directory, "log", 0));
    DO(fsync(directory));
}

/* Figure 1c. The database: a page with the number of messages, then a page for each, with its attachment's name. */
static void by_mail(void)
{
    char attachment[32], before[PAGE], header[PAGE] = "", message[PAGE] = "";
    snprintf(attachment, sizeof attachment, "attachment-%d", version);
    write_new(attachment, content("attachment", version));

    int database = DO(openat(directory, "database", O_RDWR));
    DO(pread(database, before, PAGE, 0));
    int journal = DO(openat(directory, "database-journal", O_CREAT | O_EXCL | O_WRONLY, 0600));
    DO(write(journal, before, PAGE));
    DO(fsync(journal));
    DO(fsync(directory));
    snprintf(message, PAGE, "%s", attachment);
    snprintf(header, PAGE, "%d", version);
    DO(pwrite(database, message, PAGE, (off_t)version * PAGE));
    DO(pwrite(database, header, PAGE, 0));
    DO(fsync(database));
    DO(close(database));
    DO(close(journal));
    DO(unlinkat(directory, "database-journal", 0));
    DO(fsync(directory));
}

/* Kills the owner a while after the first byte came through the pipe. */
static void kill_later(int pipe, long delay_us)
{
    char byte;
    struct timespec begun, now;
    if (read(pipe, &byte, 1) != 1)
        _exit(1);
    clock_gettime(CLOCK_MONOTONIC, &begun);
    do
        clock_gettime(CLOCK_MONOTONIC, &now);
    while ((now.tv_sec - begun.tv_sec) * 1000000 + (now.tv_nsec - begun.tv_nsec) / 1000 < delay_us);
    kill_owner();
    _exit(0);
}

int main(int argc, char **argv)
{
    if (argc < 6)
        return 2;
    alarm(60);
    version = atoi(argv[3]);
    how = argv[4];
    struck_step = atoi(argv[5]);
    owner = argc > 6 ? atoi(argv[6]) : 0;
    int transaction = strcmp(how, "bare") != 0, at_commit = strcmp(how, "commit") == 0;
    int pipes[2];
    if (at_commit && pipe(pipes) == 0 && fork() == 0)
        kill_later(pipes[0], atol(argv[7]));

    /* before the begin, as a program has it that keeps its directory open */
    directory = open(argv[2], O_RDONLY | O_DIRECTORY);
    if (directory < 0) {
        perror(argv[2]);
        return 2;
    }
    uint64_t before = fs_tx_intercepted();
    if (transaction && fs_tx_begin() != 0) {
        perror("fs_tx_begin");
        return 2;
    }
    if (!strcmp(argv[1], "rename"))
        by_rename();
    else if (!strcmp(argv[1], "logging"))
        by_log();
    else
        by_mail();
    strike();
    uint64_t inside = fs_tx_intercepted() - before;
    if (at_commit && write(pipes[1], "", 1) != 1)
        return 2;
    if (transaction && fs_tx_commit() != 0) {
        dprintf(1, "failed at %d: fs_tx_commit: %s\n", step, strerror(errno));
        return 3;
    }
    uint64_t after = fs_tx_intercepted();
    dprintf(1, "committed\n");
    strike();
    close(directory);
    if (transaction && inside < (uint64_t)step - 2)
        return 2;
    dprintf(1, "steps %d\noutside %d\n", step - 2, (int)(before + (fs_tx_intercepted() - after)));
    return 0;
}
