/*
 * txfs_volume.h - a TxFS volume inside your own process: no mount, no daemon, no root.
 *
 * A volume is a directory of the host's file system that holds a whole tree of files. It belongs to one process at a
 * time. (For programs on a mounted volume see txfs.h.) An example:
 *
 *     txfs_volume *volume;
 *     txfs_view *tx;
 *     txfs_file *file;
 *
 *     txfs_open_options options = { .size = sizeof options, .flags = TXFS_OPEN_CREATE };
 *     if (txfs_volume_open("/var/lib/mail.txfs", &options, &volume) != 0)
 *         errx(1, "%s", txfs_error_message());
 *     txfs_begin(volume, NULL, &tx);
 *     txfs_mkdir(tx, "new", 0755);
 *     txfs_open(tx, "new/7.eml", O_WRONLY | O_CREAT, 0644, &file);
 *     txfs_pwrite(file, "Subject: hello\n", 15, 0);
 *     txfs_close(file);
 *     if (txfs_commit(tx, TXFS_DURABLE, NULL) != 0)      // all of it, or nothing
 *         warnx("%s", txfs_error_message());             // ECANCELED: conflict, try again
 *     txfs_view_close(tx);
 *     txfs_volume_close(volume);
 *
 * Link with `pkg-config --cflags --libs txfs`.
 *
 * ERRORS. Unless it says otherwise, a function returns 0, or -1 and sets errno; txfs_error_message() then has a sentence that
 * names path and reason. No function ends the process. These can come from every function, and are not repeated below:
 *   EINVAL     a null handle, path, or place for the result; unknown flags; negative offsets; a transaction that has ended
 *   EIO        stored bytes do not match their checksum, the host failed to read or write, a flush failed (from then on
 *              nothing more is committed until the volume is opened again), or a bug of the library
 *   ENOMEM     no memory for a buffer
 * and these from every function that takes a path: ENOENT (also for an empty one), ENOTDIR, ELOOP, ENAMETOOLONG (255 bytes a
 * name). From every function that changes something:
 *   EROFS      the view is a snapshot, or the volume was opened with TXFS_OPEN_READ_ONLY
 *   ENOSPC     the file system of the host, or the volume's size limit, is full. Nothing was changed.
 *   EBUSY      it would change what a prepared transaction (`txfs run --prepare`) has read or written
 * and from every function on a transaction's view or on a file opened in it:
 *   ECANCELED  it conflicts with another transaction. It fails with that from then on, changes nothing, and can only be
 *              ended; txfs_conflict() says why, txfs_begin_again() is the next attempt.
 *
 * THREADS. All functions may be called from any thread, on the same handles at the same time, except that a handle must not be
 * used while or after it is closed, and that the entry from txfs_readdir() is valid until the next call on the same txfs_dir.
 * Operations on the base view and on snapshots run side by side; those on one transaction take turns. After a fork() the child
 * must not use any handle; fork and then exec is fine.
 *
 * PATHS. They are bytes without NUL, relative to the volume's root (or to that of txfs_view_at()), with or without a leading
 * slash; symbolic links on the way are followed, inside the volume only. Permissions are stored but not checked, and there is no
 * umask. What is created belongs to the effective user and group that the process had when it opened the volume.
 *
 * VERSIONS. Structures of options begin with their size: set it to sizeof, the rest to zero, and then what you want. A program
 * that was built with an older header goes on working; a newer one gets E2BIG from an older library if it asks for something
 * that that one does not know.
 */
#ifndef TXFS_VOLUME_H
#define TXFS_VOLUME_H

#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>

#ifdef __cplusplus
extern "C" {
#endif

struct timespec;

/* An open volume. */
typedef struct txfs_volume txfs_volume;
/* A way of looking at it: what is there now (the base view), a transaction, or a snapshot. */
typedef struct txfs_view txfs_view;
/* An open file or directory. It has no position and is no descriptor of the kernel. */
typedef struct txfs_file txfs_file;
/* A listing of a directory. */
typedef struct txfs_dir txfs_dir;

/* ---- Messages --------------------------------------------------------------------------------------------------- */

/* What the last function that failed in this thread has to say; "" if none has. Valid until the next one fails in
 * this thread. Never null. */
const char *txfs_error_message(void);

/* The library's version, "0.1.0". */
const char *txfs_version(void);

/* ---- Volumes ---------------------------------------------------------------------------------------------------- */

/* For txfs_volume_create(). Zero stands for the default everywhere. */
typedef struct txfs_create_options {
    size_t size;                /* sizeof(txfs_create_options) */
    uint64_t size_bytes_max;    /* what file data may take on the host; default: what there is */
    uint64_t preallocate_bytes; /* written with zeros at once: commits that fit into it never pay for that */
    uint64_t segment_bytes;     /* size of the log's files; default: 32 MiB */
    uint32_t root_mode;         /* permission bits of the root directory; default: 0755 */
    uint32_t reserved;          /* 0 */
} txfs_create_options;

/* Create the volume where there is none. */
#define TXFS_OPEN_CREATE 1u
/* Nothing is changed through this volume (EROFS). It is still locked, and recovered if it was not closed well. */
#define TXFS_OPEN_READ_ONLY 2u

/* When a conflict is one. */
#define TXFS_POLICY_DEFAULT 0u         /* as the volume was opened; for a volume, the next one */
#define TXFS_POLICY_FIRST_COMMITTER 1u /* who commits first wins */
#define TXFS_POLICY_EAGER 2u           /* between two eager ones, who writes second fails when it does */

/* For txfs_volume_open(). Zero and null stand for the default everywhere. */
typedef struct txfs_open_options {
    size_t size;                        /* sizeof(txfs_open_options) */
    uint32_t flags;                     /* TXFS_OPEN_* */
    uint32_t policy;                    /* TXFS_POLICY_*, for transactions that do not say it themselves */
    uint64_t transaction_memory_bytes;  /* more unwritten data of a transaction goes to the disk early; 64 MiB */
    uint64_t volume_memory_bytes;       /* the same for all of them together; 256 MiB */
    uint64_t checkpoint_distance_bytes; /* bounds the time that recovery takes; 9 MiB */
    uint64_t reader_patience_ms;        /* a full volume waits so long for readers before it says so; 5000 */
    const txfs_create_options *create;  /* what TXFS_OPEN_CREATE creates it with */
} txfs_open_options;

/* Makes an empty volume in the directory `path` of the host. `options` may be null. A directory that is missing is made
 * under the name `path`.creating and renamed, so that a crash leaves a volume or none; one that exists gets it in its place.
 * EEXIST: there is one already. EINVAL: bad options. Otherwise what the host says. */
int txfs_volume_create(const char *path, const txfs_create_options *options);

/* Opens the volume in the directory `path` of the host, and recovers it where needed. `options` may be null.
 * ENOENT: nothing there. EINVAL: not a volume, one of a newer format, or bad options. EBUSY: another process, or this
 * one, has it open already; the message names its pid. EIO: it is damaged. */
int txfs_volume_open(const char *path, const txfs_open_options *options, txfs_volume **volume);

/* Makes everything durable, closes the volume and frees the handle and its base view; null does nothing.
 * EBUSY: views, files or listings of it are open; it stays open. Any other error (EIO, ENOSPC): the volume is closed and
 * the handle is gone nevertheless; the next opening recovers what was durable. */
int txfs_volume_close(txfs_volume *volume);

/* Makes everything committed so far durable, as one flush. */
int txfs_volume_sync(txfs_volume *volume);

/* The base view: what is there now. Each call on it is a small transaction of its own, which is repeated when it
 * conflicts (so there is no ECANCELED), is ordered, and becomes durable with the next txfs_fsync(), txfs_volume_sync() or
 * durable commit; after a crash the volume is as it was after some call, with all before it and none after it.
 * On a volume for reading only it is a snapshot. It belongs to the volume and is not closed. Null if `volume` is. */
txfs_view *txfs_volume_base(txfs_volume *volume);

/* ---- Views ------------------------------------------------------------------------------------------------------ */

/* A view of the same, whose relative paths start at the directory `path` (openat() for every function). Absolute paths
 * still start at the volume's root. It goes on if the directory is renamed. It does not keep a transaction open. */
int txfs_view_at(txfs_view *view, const char *path, txfs_view **result);

/* Frees the handle; null does nothing. The one that came from txfs_begin() or txfs_begin_again() aborts its transaction if
 * that has not ended. Files and listings of the view must still be closed. EINVAL: it is the base view. */
int txfs_view_close(txfs_view *view);

/* ---- Transactions ----------------------------------------------------------------------------------------------- */

#define TXFS_ISOLATION_SERIALIZABLE 0u /* what it has read is validated at the commit, too */
#define TXFS_ISOLATION_SNAPSHOT 1u     /* only what it has written is */

/* The commit leaves an entry in the volume's history (`txfs log`, `txfs undo`). */
#define TXFS_BEGIN_RECORDED 1u

/* For txfs_begin(). Zero and null stand for the default everywhere. */
typedef struct txfs_begin_options {
    size_t size;        /* sizeof(txfs_begin_options) */
    uint32_t flags;     /* TXFS_BEGIN_* */
    uint32_t isolation; /* TXFS_ISOLATION_* */
    uint32_t policy;    /* TXFS_POLICY_* */
    uint32_t reserved;  /* 0 */
    const char *label;  /* what it is for, in a few words for people: conflict reports and the history show it */
} txfs_begin_options;

/* When a commit returns, and what a crash may take. */
#define TXFS_DURABLE 0  /* when it is on the device */
#define TXFS_ORDERED 1  /* at once; after a crash there is a prefix of the order of commits */
#define TXFS_DEFERRED 2 /* as ordered, and what later commits overwrite may never be written at all */

/* Begins a transaction: a view of the volume as it is now, and of its own changes, which nobody else sees before the
 * commit. `options` may be null. There may be any number at once, also in one thread. EROFS: volume for reading only. */
int txfs_begin(txfs_volume *volume, const txfs_begin_options *options, txfs_view **tx);

/* Begins the next attempt at a transaction that has met a conflict (or that was aborted; an open one is aborted), after a
 * short pause. From the third attempt on younger transactions give way to it, so that it gets through in the end.
 * The handle `tx` is still to be closed, before or after. EINVAL: `tx` has committed. */
int txfs_begin_again(txfs_view *tx, txfs_view **next);

/* Commits: all of the changes, or, if it fails, none. The transaction has ended in either case, but for EINVAL, where it is as
 * before. `durability` is TXFS_DURABLE, _ORDERED or _DEFERRED; the commit's number goes to `sequence` unless that is null.
 * ECANCELED: conflict, see txfs_conflict(). ENOSPC, EBUSY: as above. EIO: the volume must be opened anew, which then
 * finds all of the transaction or none. */
int txfs_commit(txfs_view *tx, int durability, uint64_t *sequence);

/* Drops the changes and ends the transaction; nothing if it has ended. The handle is still to be closed. */
int txfs_abort(txfs_view *tx);

/* Marks the present moment of a transaction; its number goes to `savepoint`. */
int txfs_savepoint(txfs_view *tx, uint64_t *savepoint);

/* Undoes what the transaction has changed since. Later savepoints are gone, this one stays. What it has read is still
 * validated. EINVAL: it was released, or one before it was gone back to. */
int txfs_rollback_to(txfs_view *tx, uint64_t savepoint);

/* Gives up a savepoint and all later ones; the changes stay. EINVAL: as above. */
int txfs_release_savepoint(txfs_view *tx, uint64_t savepoint);

#define TXFS_REPORT_TEXT 0 /* a line for each conflict: path, what, and who else */
#define TXFS_REPORT_JSON 1 /* an object, as in `txfs run --json` */

/* Why the transaction cannot commit, as snprintf() does it: writes up to `size` bytes with a NUL into `buffer`, which may be
 * null if `size` is 0, and returns the length of the whole report without the NUL. ENODATA: it has met no conflict. */
ssize_t txfs_conflict(txfs_view *tx, int form, char *buffer, size_t size);

/* ---- Files ------------------------------------------------------------------------------------------------------ */

/* Opens a file, or a directory for reading (for txfs_fstat() and txfs_fsync()). `flags` as in open(2): O_RDONLY, O_WRONLY or
 * O_RDWR, with O_CREAT, O_EXCL, O_TRUNC, O_APPEND, O_NOFOLLOW, O_DIRECTORY, O_SYNC and O_DSYNC (each write is followed
 * by a flush; not in transactions); O_CLOEXEC, O_DIRECT, O_NOATIME, O_NOCTTY, O_NONBLOCK and O_LARGEFILE mean nothing
 * here. On the base view creating and truncating are two transactions. A file of the base view outlives its last name; one of a
 * transaction or snapshot works as long as that. EEXIST (O_EXCL), EISDIR, ENOTDIR (O_DIRECTORY), ELOOP (O_NOFOLLOW), ENOTSUP:
 * a pipe, socket or device. */
int txfs_open(txfs_view *view, const char *path, int flags, mode_t mode, txfs_file **file);

/* Frees the handle; null does nothing. Nothing is held back in it, so nothing is lost with it. */
int txfs_close(txfs_file *file);

/* Reads up to `size` bytes from `offset`; returns how many, fewer at the end of the file only, 0 from there on. All are of
 * one moment. EBADF: not open for reading. EISDIR. */
ssize_t txfs_pread(txfs_file *file, void *buffer, size_t size, off_t offset);

/* Writes at `offset`, or at the end if the file was opened with O_APPEND; returns `size`, never less: on the base view
 * it is one transaction. EBADF: not open for writing. EFBIG. */
ssize_t txfs_pwrite(txfs_file *file, const void *buffer, size_t size, off_t offset);

/* The same from and to `count` buffers, one behind the other, 1024 at most, as one operation. */
ssize_t txfs_preadv(txfs_file *file, const struct iovec *buffers, int count, off_t offset);
ssize_t txfs_pwritev(txfs_file *file, const struct iovec *buffers, int count, off_t offset);

/* Writes at the end of the file, wherever that is by then: two appends never overwrite each other. Where it went comes to
 * `offset` unless that is null. Returns `size`. Errors as txfs_pwrite(). */
ssize_t txfs_append(txfs_file *file, const void *buffer, size_t size, off_t *offset);

/* The first place from `offset` on with data (SEEK_DATA) or in a hole (SEEK_HOLE; the end of the file is one).
 * ENXIO: there is none before the end, or `offset` lies behind it. */
off_t txfs_seek(txfs_file *file, off_t offset, int whence);

/* Copies within a view, sharing the data where that is possible; returns how many bytes, fewer at the end of the file.
 * EXDEV: the files are not of one view. EBADF. EINVAL: the ranges overlap in one file. */
ssize_t txfs_copy_range(txfs_file *from, off_t from_offset, txfs_file *to, off_t to_offset, size_t size);

/* Cuts the file, or grows it with zeros. EBADF, EFBIG. */
int txfs_ftruncate(txfs_file *file, off_t size);

/* As fallocate(2): `mode` is 0 or FALLOC_FL_KEEP_SIZE (which reserve no space), FALLOC_FL_PUNCH_HOLE |
 * FALLOC_FL_KEEP_SIZE, or FALLOC_FL_ZERO_RANGE with or without FALLOC_FL_KEEP_SIZE. EOPNOTSUPP: another mode. EBADF, EFBIG. */
int txfs_fallocate(txfs_file *file, int mode, off_t offset, off_t length);

/* On the base view: makes everything committed so far durable, whatever the file. In a transaction and a snapshot it does
 * nothing: the commit decides. */
int txfs_fsync(txfs_file *file);

/* Attributes. st_dev stands for the volume. Times of access are as set explicitly: reading does not change them. */
int txfs_fstat(txfs_file *file, struct stat *result);

/* Size of the file, or -1. */
off_t txfs_size(txfs_file *file);

/* As txfs_chmod(), txfs_chown() and txfs_utimens(), on an open file. */
int txfs_fchmod(txfs_file *file, mode_t mode);
int txfs_fchown(txfs_file *file, uid_t uid, gid_t gid);
int txfs_futimens(txfs_file *file, const struct timespec *times);

/* ---- Names and attributes --------------------------------------------------------------------------------------- */

/* `flags` here and below: 0, or AT_SYMLINK_NOFOLLOW for a symbolic link at the path itself. */
int txfs_stat(txfs_view *view, const char *path, struct stat *result, int flags);

/* Space and limits of the volume. */
int txfs_statvfs(txfs_view *view, struct statvfs *result);

/* EEXIST. */
int txfs_mkdir(txfs_view *view, const char *path, mode_t mode);

/* Removes a name of anything but a directory. EISDIR: it is one. */
int txfs_unlink(txfs_view *view, const char *path);

/* Removes an empty directory. ENOTEMPTY. */
int txfs_rmdir(txfs_view *view, const char *path);

#define TXFS_RENAME_NOREPLACE 1u /* EEXIST if there is something at `to` */
#define TXFS_RENAME_EXCHANGE 2u  /* both must exist, and change places */

/* Renames and replaces what is at `to`, in one step. `flags` is 0 or one of the above. EISDIR, ENOTDIR, ENOTEMPTY: what is
 * there cannot be replaced by this. EINVAL: a directory into itself. */
int txfs_rename(txfs_view *view, const char *from, const char *to, unsigned int flags);

/* Gives what is at `from` (a symbolic link itself) the name `to`, too. EEXIST. EPERM: a directory. EMLINK. */
int txfs_link(txfs_view *view, const char *from, const char *to);

/* Makes a symbolic link at `path`. EEXIST. */
int txfs_symlink(txfs_view *view, const char *target, const char *path);

/* Writes the target of a symbolic link without NUL, cut to `size` bytes, as readlink(2); returns how many bytes. EINVAL:
 * it is none, or `size` is 0. */
ssize_t txfs_readlink(txfs_view *view, const char *path, char *buffer, size_t size);

/* Permission bits, set-uid, set-gid and sticky bit. */
int txfs_chmod(txfs_view *view, const char *path, mode_t mode);

/* (uid_t)-1 and (gid_t)-1 leave one as it is. */
int txfs_chown(txfs_view *view, const char *path, uid_t uid, gid_t gid, int flags);

/* Access and modification time, as utimensat(2): two of them, or null for now; tv_nsec UTIME_NOW and UTIME_OMIT. */
int txfs_utimens(txfs_view *view, const char *path, const struct timespec *times, int flags);

/* As txfs_ftruncate(). EISDIR. */
int txfs_truncate(txfs_view *view, const char *path, off_t size);

/* ---- Listings --------------------------------------------------------------------------------------------------- */

typedef struct txfs_dirent {
    uint64_t ino;
    uint64_t cookie; /* where the next entry is: for txfs_seekdir(). Stays valid whatever happens to the directory. */
    uint32_t type;   /* DT_REG, DT_DIR, DT_LNK ... of <dirent.h> */
    uint32_t name_length;
    const char *name;
} txfs_dirent;

/* Begins a listing. On the base view it is not of one moment: what is created or removed meanwhile may be in it or not,
 * everything else is in it once. EISDIR never; ENOTDIR. */
int txfs_opendir(txfs_view *view, const char *path, txfs_dir **dir);

/* The next entry; 1, or 0 at the end, or -1. Without `.` and `..`, in no order that means something. */
int txfs_readdir(txfs_dir *dir, const txfs_dirent **entry);

/* Goes on behind the entry with this cookie; 0 for the start. */
int txfs_seekdir(txfs_dir *dir, uint64_t cookie);

/* Frees the handle; null does nothing. */
int txfs_closedir(txfs_dir *dir);

/* ---- Extended attributes ---------------------------------------------------------------------------------------- */

/* As getxattr(2): returns the value's length; with `size` 0 only that. ENODATA, ERANGE: the buffer is too small, or the
 * name too long. ENOTSUP: not a name space that there is. */
ssize_t txfs_getxattr(txfs_view *view, const char *path, const char *name, void *buffer, size_t size, int flags);

/* As setxattr(2): `flags` may also have XATTR_CREATE (EEXIST) or XATTR_REPLACE (ENODATA). E2BIG. */
int txfs_setxattr(txfs_view *view, const char *path, const char *name, const void *value, size_t size, int flags);

/* As listxattr(2): names, each with its NUL, sorted. ERANGE. */
ssize_t txfs_listxattr(txfs_view *view, const char *path, char *buffer, size_t size, int flags);

/* ENODATA. */
int txfs_removexattr(txfs_view *view, const char *path, const char *name, int flags);

/* ---- Snapshots -------------------------------------------------------------------------------------------------- */

/* Keeps the state of the whole volume as of now under a name, until it is deleted; one small commit, however large the
 * volume is. EEXIST; EINVAL: the name is empty, begins with a dot, or has slashes or control characters; ENAMETOOLONG: over 200
 * bytes; ENOSPC: there are 256. */
int txfs_snapshot_create(txfs_volume *volume, const char *name, int durability);

/* Deletes it, durably. ENOENT; EBUSY: a view of it is open. */
int txfs_snapshot_delete(txfs_volume *volume, const char *name);

/* A view for reading of a named snapshot, or, if `name` is null, of this moment. ENOENT. */
int txfs_snapshot_open(txfs_volume *volume, const char *name, txfs_view **view);

typedef struct txfs_snapshot_info {
    size_t size; /* of this structure, as the library knows it */
    const char *name;
    int64_t seconds; /* when it was made, since 1970 */
    uint32_t nanoseconds;
    uint32_t reserved;
    uint64_t sequence;   /* number of the commit that made it */
    uint64_t data_bytes; /* file data that is kept for it */
    uint64_t metadata_bytes;
} txfs_snapshot_info;

/* Calls `visit` for each named snapshot, oldest first, until it returns something else than 0. What it gets is valid during
 * that call. It must not throw or jump. */
int txfs_snapshot_list(txfs_volume *volume, int (*visit)(void *context, const txfs_snapshot_info *snapshot),
                       void *context);

#ifdef __cplusplus
}
#endif

#endif
