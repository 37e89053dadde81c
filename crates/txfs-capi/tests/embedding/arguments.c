/* What is wrong is said, and nothing else happens. arguments VOLUME */
#define _GNU_SOURCE
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdint.h>

#include "check.h"

static void *no_message(void *unused)
{
    /* another thread's failures are not told here */
    CHECK(txfs_error_message()[0] == 0);
    return unused;
}

int main(int count, char **arguments)
{
    txfs_open_options options = {.size = sizeof options, .flags = TXFS_OPEN_CREATE};
    txfs_begin_options begin = {.size = sizeof begin};
    struct { txfs_begin_options known; uint64_t beyond; } larger = {{.size = sizeof larger}, 0};
    txfs_volume *volume = NULL;
    txfs_view *base, *tx = NULL, *other = NULL;
    txfs_file *file = NULL;
    txfs_dir *dir = NULL;
    const txfs_dirent *entry;
    struct stat stat;
    char buffer[8], name[400], path[400];
    struct iovec pieces[2] = {{buffer, SIZE_MAX / 2}, {buffer, SIZE_MAX / 2}};
    struct timespec times[2] = {{0, 2000000000}, {0, 0}};
    pthread_t thread;
    uint64_t number;

    CHECK(count == 2);
    snprintf(path, sizeof path, "%s/nothing/here", arguments[1]);
    FAILS(txfs_volume_open(path, NULL, &volume), ENOENT);
    CHECK(strstr(txfs_error_message(), path) != NULL);
    FAILS(txfs_volume_open("/usr", NULL, &volume), EINVAL);
    FAILS(txfs_volume_open(NULL, NULL, &volume), EINVAL);
    FAILS(txfs_volume_open("", NULL, &volume), ENOENT);
    FAILS(txfs_volume_open(arguments[1], &options, NULL), EINVAL);
    FAILS(txfs_volume_create(NULL, NULL), EINVAL);
    options.flags = 0x100;
    FAILS(txfs_volume_open(arguments[1], &options, &volume), EINVAL);
    options.flags = TXFS_OPEN_CREATE;
    options.policy = 9;
    FAILS(txfs_volume_open(arguments[1], &options, &volume), EINVAL);
    options.policy = TXFS_POLICY_EAGER;
    options.size = 3;
    FAILS(txfs_volume_open(arguments[1], &options, &volume), EINVAL);
    options.size = 1 << 20;
    FAILS(txfs_volume_open(arguments[1], &options, &volume), EINVAL);
    /* an older program knows less of the structure */
    options.size = offsetof(txfs_open_options, policy);
    CHECK(txfs_volume_open(arguments[1], &options, &volume) == 0);
    base = txfs_volume_base(volume);
    CHECK(base != NULL && txfs_volume_base(NULL) == NULL);

    /* a newer one more, which must be zero */
    CHECK(txfs_begin(volume, &larger.known, &tx) == 0 && txfs_view_close(tx) == 0);
    larger.beyond = 1;
    FAILS(txfs_begin(volume, &larger.known, &tx), E2BIG);
    begin.isolation = 5;
    FAILS(txfs_begin(volume, &begin, &tx), EINVAL);
    begin.isolation = TXFS_ISOLATION_SNAPSHOT;
    begin.flags = 1u << 31;
    FAILS(txfs_begin(volume, &begin, &tx), EINVAL);
    begin.flags = 0;
    begin.policy = TXFS_POLICY_EAGER;
    CHECK(txfs_begin(volume, &begin, &tx) == 0);
    FAILS(txfs_begin(volume, NULL, NULL), EINVAL);
    FAILS(txfs_begin(NULL, NULL, &other), EINVAL);
    FAILS(txfs_volume_close(volume), EBUSY);
    CHECK(txfs_view_close(tx) == 0);

    FAILS(txfs_commit(base, TXFS_DURABLE, NULL), EINVAL);
    FAILS(txfs_abort(base), EINVAL);
    FAILS(txfs_savepoint(base, &number), EINVAL);
    FAILS(txfs_conflict(base, TXFS_REPORT_TEXT, NULL, 0), EINVAL);
    FAILS(txfs_view_close(base), EINVAL);
    FAILS(txfs_commit(NULL, TXFS_DURABLE, NULL), EINVAL);
    FAILS(txfs_volume_sync(NULL), EINVAL);
    FAILS(txfs_view_at(base, "missing", &other), ENOENT);

    FAILS(txfs_open(base, NULL, O_RDONLY, 0, &file), EINVAL);
    FAILS(txfs_open(base, "", O_RDONLY, 0, &file), ENOENT);
    FAILS(txfs_open(NULL, "f", O_RDONLY, 0, &file), EINVAL);
    FAILS(txfs_open(base, "f", O_RDWR | O_CREAT, 0644, NULL), EINVAL);
    FAILS(txfs_stat(base, "f", &stat, 0), ENOENT);
    FAILS(txfs_open(base, "f", O_ACCMODE, 0, &file), EINVAL);
    FAILS(txfs_open(base, "f", O_PATH, 0, &file), EINVAL);
    FAILS(txfs_open(base, ".", O_TMPFILE | O_RDWR, 0600, &file), EINVAL);
    memset(name, 'n', sizeof name);
    name[300] = 0;
    FAILS(txfs_open(base, name, O_RDWR | O_CREAT, 0644, &file), ENAMETOOLONG);
    CHECK(txfs_open(base, "f", O_RDWR | O_CREAT, 0644, &file) == 0);
    FAILS(txfs_view_at(base, "f", &other), ENOTDIR);
    FAILS(txfs_stat(base, "f/g", &stat, 0), ENOTDIR);
    FAILS(txfs_pread(file, NULL, 1, 0), EINVAL);
    FAILS(txfs_pread(file, buffer, SIZE_MAX, 0), EINVAL);
    FAILS(txfs_pread(file, buffer, 1, -1), EINVAL);
    CHECK(txfs_pread(file, NULL, 0, 0) == 0);
    CHECK(txfs_pread(file, buffer, 1, INT64_MAX) == 0);
    FAILS(txfs_pwrite(file, NULL, 1, 0), EINVAL);
    FAILS(txfs_pwrite(file, buffer, 1, -5), EINVAL);
    FAILS(txfs_pwrite(file, buffer, 1, INT64_MAX), EFBIG);
    CHECK(txfs_pwrite(file, NULL, 0, 0) == 0 && txfs_size(file) == 0);
    FAILS(txfs_preadv(file, pieces, -1, 0), EINVAL);
    FAILS(txfs_preadv(file, pieces, 1025, 0), EINVAL);
    FAILS(txfs_preadv(file, pieces, 2, 0), EINVAL);
    FAILS(txfs_pwritev(file, NULL, 1, 0), EINVAL);
    CHECK(txfs_pwritev(file, NULL, 0, 0) == 0);
    FAILS(txfs_pread(NULL, buffer, 1, 0), EINVAL);
    FAILS(txfs_ftruncate(file, -1), EINVAL);
    FAILS(txfs_fallocate(file, 0, 0, 0), EINVAL);
    FAILS(txfs_fallocate(file, 0, 0, -1), EINVAL);
    FAILS(txfs_fallocate(file, 0x40, 0, 1), EOPNOTSUPP);
    FAILS(txfs_seek(file, 0, SEEK_SET), EINVAL);
    FAILS(txfs_fstat(file, NULL), EINVAL);
    FAILS(txfs_futimens(file, times), EINVAL);
    FAILS(txfs_size(NULL), EINVAL);
    FAILS(txfs_fsync(NULL), EINVAL);
    FAILS(txfs_stat(base, "f", &stat, 0x7000), EINVAL);
    FAILS(txfs_stat(base, "f", NULL, 0), EINVAL);
    FAILS(txfs_rename(base, "f", "g", 0x80), EINVAL);
    FAILS(txfs_rename(base, "f", NULL, 0), EINVAL);
    FAILS(txfs_rename(base, "/", "g", 0), EINVAL);
    FAILS(txfs_symlink(base, NULL, "s"), EINVAL);
    FAILS(txfs_readlink(base, "f", buffer, 0), EINVAL);
    FAILS(txfs_opendir(base, "f", &dir), ENOTDIR);
    FAILS(txfs_opendir(base, "/", NULL), EINVAL);
    FAILS(txfs_readdir(NULL, &entry), EINVAL);
    FAILS(txfs_setxattr(base, "f", "user.a", NULL, 4, 0), EINVAL);
    FAILS(txfs_setxattr(base, "f", "user.a", "v", 1, 0x40), EINVAL);
    FAILS(txfs_setxattr(base, "f", "system.a", "v", 1, 0), ENOTSUP);
    FAILS(txfs_snapshot_create(volume, "a/b", TXFS_DURABLE), EINVAL);
    FAILS(txfs_snapshot_create(volume, "\xff", TXFS_DURABLE), EINVAL);
    FAILS(txfs_snapshot_open(volume, "none", &other), ENOENT);
    FAILS(txfs_snapshot_list(volume, NULL, NULL), EINVAL);
    CHECK(pthread_create(&thread, NULL, no_message, NULL) == 0 && pthread_join(thread, NULL) == 0);
    CHECK(txfs_error_message()[0] != 0);

    FAILS(txfs_volume_close(volume), EBUSY);
    CHECK(txfs_close(file) == 0 && txfs_volume_close(volume) == 0);
    CHECK(txfs_close(NULL) == 0 && txfs_closedir(NULL) == 0 && txfs_view_close(NULL) == 0 && txfs_volume_close(NULL) == 0);
    puts("arguments: all well");
    return 0;
}
