/* Every function once, on a volume that this program creates. tour VOLUME */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

static txfs_file *opened(txfs_view *view, const char *path, int flags)
{
    txfs_file *file = NULL;
    CHECK(txfs_open(view, path, flags, 0640, &file) == 0);
    return file;
}

static void expect(txfs_view *view, const char *path, const char *content)
{
    char buffer[100];
    txfs_file *file = opened(view, path, O_RDONLY);
    ssize_t count = txfs_pread(file, buffer, sizeof buffer, 0);
    CHECK(count == (ssize_t)strlen(content) && memcmp(buffer, content, count) == 0);
    CHECK(txfs_close(file) == 0);
}

static void put(txfs_view *view, const char *path, const char *content)
{
    txfs_file *file = opened(view, path, O_WRONLY | O_CREAT | O_TRUNC);
    CHECK(txfs_pwrite(file, content, strlen(content), 0) == (ssize_t)strlen(content));
    CHECK(txfs_close(file) == 0);
}

static void files(txfs_volume *volume)
{
    txfs_view *base = txfs_volume_base(volume);
    txfs_file *file = opened(base, "/file", O_RDWR | O_CREAT | O_EXCL);
    struct iovec out[3] = {{"one ", 4}, {NULL, 0}, {"two", 3}};
    char first[3], second[10];
    struct iovec in[2] = {{first, 3}, {second, 10}};
    char buffer[32];
    struct stat stat;
    struct timespec times[2] = {{12, 34}, {0, UTIME_OMIT}};
    off_t offset = 0;

    CHECK(txfs_pwritev(file, out, 3, 0) == 7);
    CHECK(txfs_preadv(file, in, 2, 1) == 6);
    CHECK(memcmp(first, "ne ", 3) == 0 && memcmp(second, "two", 3) == 0);
    CHECK(txfs_append(file, "!", 1, &offset) == 1 && offset == 7);
    CHECK(txfs_append(file, "?", 1, NULL) == 1);
    CHECK(txfs_size(file) == 9);
    CHECK(txfs_ftruncate(file, 8) == 0);
    CHECK(txfs_pread(file, buffer, sizeof buffer, 8) == 0);
    CHECK(txfs_fallocate(file, 0, 1 << 20, 4096) == 0);
    CHECK(txfs_size(file) == (1 << 20) + 4096);
    CHECK(txfs_pwrite(file, "far", 3, 1 << 20) == 3);
    CHECK(txfs_seek(file, 4096, SEEK_DATA) == 1 << 20);
    CHECK(txfs_seek(file, 0, SEEK_HOLE) == 4096);
    FAILS(txfs_seek(file, 1 << 30, SEEK_DATA), ENXIO);
    CHECK(txfs_fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 1 << 20, 4096) == 0);
    FAILS(txfs_seek(file, 4096, SEEK_DATA), ENXIO);
    CHECK(txfs_ftruncate(file, 8) == 0);
    CHECK(txfs_fchmod(file, 04755) == 0);
    CHECK(txfs_fchown(file, 7, (gid_t)-1) == 0);
    CHECK(txfs_futimens(file, times) == 0);
    CHECK(txfs_fstat(file, &stat) == 0);
    CHECK(stat.st_size == 8 && stat.st_mode == (S_IFREG | 04755) && stat.st_uid == 7 && stat.st_gid == getegid());
    CHECK(stat.st_atim.tv_sec == 12 && stat.st_atim.tv_nsec == 34 && stat.st_nlink == 1 && stat.st_dev != 0);
    CHECK(txfs_fsync(file) == 0);
    CHECK(txfs_close(file) == 0);
    expect(base, "file", "one two!");

    file = opened(base, "file", O_WRONLY | O_APPEND | O_DSYNC);
    CHECK(txfs_pwrite(file, "more", 4, 0) == 4);
    FAILS(txfs_pread(file, buffer, 1, 0), EBADF);
    txfs_file *copy = opened(base, "copy", O_RDWR | O_CREAT);
    FAILS(txfs_copy_range(file, 0, copy, 0, 100), EBADF);
    CHECK(txfs_close(file) == 0);
    file = opened(base, "file", O_RDONLY);
    FAILS(txfs_pwrite(file, "x", 1, 0), EBADF);
    CHECK(strstr(txfs_error_message(), "file") != NULL);
    CHECK(txfs_copy_range(file, 4, copy, 0, 100) == 8);
    CHECK(txfs_close(copy) == 0);
    expect(base, "copy", "two!more");
    /* an open file outlives its name */
    CHECK(txfs_unlink(base, "file") == 0);
    CHECK(txfs_pread(file, buffer, sizeof buffer, 0) == 12);
    CHECK(txfs_close(file) == 0);
    FAILS(txfs_stat(base, "file", &stat, 0), ENOENT);
    CHECK(txfs_unlink(base, "copy") == 0);
}

static void names(txfs_volume *volume)
{
    txfs_view *base = txfs_volume_base(volume), *sub = NULL;
    struct stat stat;
    struct statvfs space;
    char buffer[100];
    struct timespec now[2] = {{0, UTIME_NOW}, {99, 0}};
    txfs_file *file = NULL;

    CHECK(txfs_mkdir(base, "d", 0755) == 0);
    FAILS(txfs_mkdir(base, "d", 0755), EEXIST);
    CHECK(txfs_view_at(base, "d", &sub) == 0);
    put(sub, "a", "a");
    put(sub, "b", "bb");
    expect(base, "d/a", "a");
    CHECK(txfs_link(sub, "a", "a2") == 0);
    CHECK(txfs_symlink(sub, "a", "s") == 0);
    expect(base, "/d/s", "a");
    CHECK(txfs_readlink(base, "d/s", buffer, sizeof buffer) == 1 && buffer[0] == 'a');
    FAILS(txfs_readlink(base, "d/a", buffer, sizeof buffer), EINVAL);
    CHECK(txfs_stat(sub, "s", &stat, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(stat.st_mode));
    CHECK(txfs_stat(sub, "s", &stat, 0) == 0 && S_ISREG(stat.st_mode) && stat.st_nlink == 2);
    FAILS(txfs_open(sub, "s", O_RDONLY | O_NOFOLLOW, 0, &file), ELOOP);
    FAILS(txfs_open(sub, "a", O_RDONLY | O_DIRECTORY, 0, &file), ENOTDIR);
    FAILS(txfs_open(base, "d", O_RDWR, 0, &file), EISDIR);
    FAILS(txfs_open(sub, "a", O_RDWR | O_CREAT | O_EXCL, 0, &file), EEXIST);
    FAILS(txfs_rename(sub, "a", "b", TXFS_RENAME_NOREPLACE), EEXIST);
    CHECK(txfs_rename(sub, "a", "b", TXFS_RENAME_EXCHANGE) == 0);
    expect(sub, "a", "bb");
    CHECK(txfs_rename(sub, "a", "/c", 0) == 0);
    CHECK(txfs_truncate(base, "c", 1) == 0);
    expect(base, "c", "b");
    CHECK(txfs_chmod(base, "c", 0600) == 0 && txfs_chown(base, "c", 1, 2, 0) == 0);
    CHECK(txfs_utimens(base, "c", now, 0) == 0 && txfs_utimens(base, "d", NULL, 0) == 0);
    CHECK(txfs_stat(base, "c", &stat, 0) == 0 && stat.st_mtim.tv_sec == 99 && stat.st_atim.tv_sec > 1600000000);
    CHECK(stat.st_mode == (S_IFREG | 0600) && stat.st_uid == 1 && stat.st_gid == 2 && stat.st_size == 1);

    CHECK(txfs_setxattr(base, "c", "user.x", "value", 5, XATTR_CREATE) == 0);
    FAILS(txfs_setxattr(base, "c", "user.x", "value", 5, XATTR_CREATE), EEXIST);
    CHECK(txfs_getxattr(base, "c", "user.x", NULL, 0, 0) == 5);
    FAILS(txfs_getxattr(base, "c", "user.x", buffer, 3, 0), ERANGE);
    CHECK(txfs_getxattr(base, "c", "user.x", buffer, 100, 0) == 5 && memcmp(buffer, "value", 5) == 0);
    CHECK(txfs_listxattr(base, "c", buffer, 100, 0) == 7 && strcmp(buffer, "user.x") == 0);
    CHECK(txfs_removexattr(base, "c", "user.x", 0) == 0);
    FAILS(txfs_getxattr(base, "c", "user.x", buffer, 3, 0), ENODATA);

    CHECK(txfs_open(base, "d", O_RDONLY, 0, &file) == 0 && txfs_fsync(file) == 0);
    FAILS(txfs_pread(file, buffer, 1, 0), EISDIR);
    CHECK(txfs_close(file) == 0);
    FAILS(txfs_rmdir(base, "d"), ENOTEMPTY);
    FAILS(txfs_unlink(base, "d"), EISDIR);
    CHECK(txfs_unlink(sub, "a2") == 0 && txfs_unlink(sub, "b") == 0 && txfs_unlink(sub, "s") == 0);
    CHECK(txfs_view_close(sub) == 0);
    CHECK(txfs_rmdir(base, "d") == 0 && txfs_unlink(base, "c") == 0);
    CHECK(txfs_statvfs(base, &space) == 0 && space.f_bsize == 4096 && space.f_bavail > 0 && space.f_namemax == 255);
}

static void listings(txfs_volume *volume)
{
    enum { COUNT = 2000 };
    txfs_view *base = txfs_volume_base(volume), *tx = NULL;
    txfs_dir *dir = NULL;
    const txfs_dirent *entry;
    char name[32], *seen = calloc(COUNT, 1);
    uint64_t middle = 0;
    int result, count = 0, rest = 0;

    CHECK(txfs_begin(volume, NULL, &tx) == 0);
    CHECK(txfs_mkdir(tx, "many", 0755) == 0);
    for (int at = 0; at < COUNT; at++) {
        snprintf(name, sizeof name, "many/%d", at);
        put(tx, name, name);
    }
    CHECK(txfs_commit(tx, TXFS_ORDERED, NULL) == 0 && txfs_view_close(tx) == 0);
    FAILS(txfs_opendir(base, "many/1", &dir), ENOTDIR);
    CHECK(txfs_opendir(base, "many", &dir) == 0);
    while ((result = txfs_readdir(dir, &entry)) == 1) {
        int at = atoi(entry->name);
        CHECK(entry->type == DT_REG && entry->name_length == strlen(entry->name) && entry->ino > 1);
        CHECK(at >= 0 && at < COUNT && !seen[at]);
        seen[at] = 1;
        if (++count == COUNT / 2)
            middle = entry->cookie;
        /* what is removed does not disturb the rest */
        snprintf(name, sizeof name, "many/%d", at);
        CHECK(at % 2 == 0 || txfs_unlink(base, name) == 0);
    }
    CHECK(result == 0 && count == COUNT && entry == NULL);
    CHECK(txfs_seekdir(dir, 0) == 0);
    for (count = 0; txfs_readdir(dir, &entry) == 1; count++)
        rest += entry->cookie > middle;
    CHECK(count == COUNT / 2);
    CHECK(txfs_seekdir(dir, middle) == 0);
    for (count = 0; txfs_readdir(dir, &entry) == 1; count++)
        CHECK(entry->cookie > middle);
    CHECK(count == rest && txfs_closedir(dir) == 0);
    free(seen);
}

static int count_snapshot(void *context, const txfs_snapshot_info *snapshot)
{
    CHECK(strcmp(snapshot->name, "monday") == 0 && snapshot->seconds > 1600000000);
    ++*(int *)context;
    return 0;
}

static void transactions(txfs_volume *volume)
{
    txfs_view *base = txfs_volume_base(volume), *tx = NULL, *at = NULL, *moment = NULL, *monday = NULL;
    txfs_begin_options options = {.size = sizeof options, .label = "tour", .flags = TXFS_BEGIN_RECORDED};
    uint64_t sequence = 0, first = 0, second = 0;
    struct stat stat;
    int count = 0;
    txfs_file *file;

    put(base, "x", "old");
    CHECK(txfs_snapshot_create(volume, "monday", TXFS_DURABLE) == 0);
    CHECK(txfs_snapshot_open(volume, NULL, &moment) == 0);
    CHECK(txfs_begin(volume, &options, &tx) == 0);
    put(tx, "x", "new");
    CHECK(txfs_savepoint(tx, &first) == 0);
    put(tx, "y", "y");
    CHECK(txfs_savepoint(tx, &second) == 0);
    CHECK(txfs_mkdir(tx, "dir", 0700) == 0);
    CHECK(txfs_view_at(tx, "dir", &at) == 0);
    put(at, "in", "in");
    expect(base, "x", "old");
    FAILS(txfs_conflict(tx, TXFS_REPORT_TEXT, NULL, 0), ENODATA);
    CHECK(txfs_rollback_to(tx, first) == 0);
    FAILS(txfs_rollback_to(tx, second), EINVAL);
    FAILS(txfs_stat(tx, "dir", &stat, 0), ENOENT);
    put(tx, "z", "z");
    CHECK(txfs_release_savepoint(tx, first) == 0);
    FAILS(txfs_commit(tx, 77, NULL), EINVAL);
    CHECK(txfs_commit(tx, TXFS_DURABLE, &sequence) == 0 && sequence > 0);
    FAILS(txfs_commit(tx, TXFS_DURABLE, NULL), EINVAL);
    FAILS(txfs_begin_again(tx, &tx), EINVAL);
    FAILS(txfs_stat(tx, "x", &stat, 0), EINVAL);
    CHECK(txfs_view_close(at) == 0 && txfs_view_close(tx) == 0);
    expect(base, "x", "new");
    expect(base, "z", "z");
    FAILS(txfs_stat(base, "y", &stat, 0), ENOENT);
    expect(moment, "x", "old");

    CHECK(txfs_begin(volume, NULL, &tx) == 0);
    put(tx, "gone", "gone");
    CHECK(txfs_abort(tx) == 0 && txfs_abort(tx) == 0 && txfs_view_close(tx) == 0);
    CHECK(txfs_begin(volume, NULL, &tx) == 0);
    put(tx, "gone", "gone");
    CHECK(txfs_view_close(tx) == 0);
    FAILS(txfs_stat(base, "gone", &stat, 0), ENOENT);

    CHECK(txfs_snapshot_open(volume, "monday", &monday) == 0);
    expect(monday, "x", "old");
    FAILS(txfs_open(monday, "x", O_RDWR, 0, &file), EROFS);
    FAILS(txfs_mkdir(monday, "d", 0755), EROFS);
    FAILS(txfs_commit(monday, TXFS_DURABLE, NULL), EINVAL);
    FAILS(txfs_snapshot_delete(volume, "monday"), EBUSY);
    FAILS(txfs_volume_close(volume), EBUSY);
    CHECK(txfs_view_close(monday) == 0 && txfs_view_close(moment) == 0);
    CHECK(txfs_snapshot_list(volume, count_snapshot, &count) == 0 && count == 1);
    CHECK(txfs_snapshot_delete(volume, "monday") == 0);
    FAILS(txfs_snapshot_delete(volume, "monday"), ENOENT);
    CHECK(txfs_volume_sync(volume) == 0);
}

int main(int count, char **arguments)
{
    txfs_create_options create = {.size = sizeof create, .size_bytes_max = 1 << 30, .root_mode = 0700};
    txfs_open_options options = {.size = sizeof options, .flags = TXFS_OPEN_CREATE, .create = &create};
    txfs_volume *volume = NULL, *twice = NULL;
    txfs_view *tx = NULL;
    struct stat stat;

    CHECK(count == 2 && txfs_version()[0] != 0 && txfs_error_message()[0] == 0);
    CHECK(txfs_volume_open(arguments[1], &options, &volume) == 0);
    FAILS(txfs_volume_create(arguments[1], &create), EEXIST);
    FAILS(txfs_volume_open(arguments[1], NULL, &twice), EBUSY);
    CHECK(strstr(txfs_error_message(), "already open") != NULL);
    CHECK(txfs_stat(txfs_volume_base(volume), "/", &stat, 0) == 0 && stat.st_mode == (S_IFDIR | 0700));
    files(volume);
    names(volume);
    listings(volume);
    transactions(volume);
    CHECK(txfs_volume_close(volume) == 0);

    options.flags = TXFS_OPEN_READ_ONLY;
    CHECK(txfs_volume_open(arguments[1], &options, &volume) == 0);
    expect(txfs_volume_base(volume), "x", "new");
    FAILS(txfs_unlink(txfs_volume_base(volume), "x"), EROFS);
    FAILS(txfs_begin(volume, NULL, &tx), EROFS);
    FAILS(txfs_snapshot_create(volume, "tuesday", TXFS_DURABLE), EROFS);
    CHECK(txfs_volume_close(volume) == 0);
    puts("tour: all well");
    return 0;
}
