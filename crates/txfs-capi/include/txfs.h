/*
 * libtxfs: transactions around unmodified system calls on a mounted TxFS volume.
 *
 *     fs_tx_begin();
 *     fd = open("/data/mail/7.eml", O_CREAT | O_RDWR, 0644);
 *     write(fd, body, n);
 *     rename("/data/index.new", "/data/index");
 *     if (fs_tx_commit() != 0 && errno == ECONFLICT)
 *         ...another transaction was first: nothing of this one is left; try again...
 *
 * Between begin and end, the file system calls of the calling thread on a TxFS mount belong to its transaction,
 * whoever makes them: the program, stdio, a library, syscall(2). All others are as ever. See txfs(3).
 *
 * Each function returns 0 (or a descriptor), or -1 with errno. Link with -ltxfs.
 */
#ifndef TXFS_H
#define TXFS_H

#include <errno.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* errno of a call, or of the commit, when another transaction was first. Nothing of this one is left after it ends. */
#define ECONFLICT ECANCELED

/* Flags of fs_tx_begin_with. */
#define FS_TX_SNAPSHOT 1u        /* Reads are not validated, only writes are (snapshot isolation). */
#define FS_TX_EAGER 2u           /* The first to write wins; see txfs-run(1), --policy. */
#define FS_TX_FIRST_COMMITTER 4u /* The first to commit wins. Without either: as the volume was mounted. */
#define FS_TX_RECORDED 8u        /* The commit is in the volume's history, see txfs-log(1), and can be undone. */
#define FS_TX_EXPLICIT 16u       /* No call is intercepted: only what goes through fs_tx_dirfd belongs to it. */

/* When a commit counts as done, for fs_tx_commit_with. */
#define FS_TX_DURABLE 0u  /* When it is on the device. */
#define FS_TX_ORDERED 1u  /* At once; a crash keeps a prefix of the commits. */
#define FS_TX_DEFERRED 2u /* As ordered, and it may be held back for a bounded time. */

/*
 * Begins a transaction of the calling thread. Its snapshot is that of its first call that touches a volume, which is the
 * volume of the transaction: calls on another TxFS volume fail with EXDEV.
 *
 * In a transaction it only counts: nesting is flat, and the outermost end decides.
 *
 * ENOTSUP: the kernel cannot intercept calls (Linux 5.11 on x86-64 is needed). FS_TX_EXPLICIT works everywhere.
 */
int fs_tx_begin(void);
int fs_tx_begin_with(unsigned flags);

/*
 * Commits, durably. ECONFLICT: nothing of the transaction is left. With any error the transaction has ended all the same.
 * Descriptors that were opened inside go on on the committed files.
 */
int fs_tx_commit(void);
int fs_tx_commit_with(unsigned flags);

/*
 * Drops the transaction: nothing of it is left. An inner abort drops all of it at once; the calls on the volume that
 * follow, up to the outermost end, fail with ECANCELED, and so does that end if it is a commit.
 */
int fs_tx_abort(void);

/*
 * A new descriptor of the root of the volume as the transaction sees it, for openat(2) and the like; the caller closes it.
 * Where no call has touched a volume yet, the volume is that of $TXFS_MOUNT, that of the current directory, or the only
 * one that is mounted.
 */
int fs_tx_dirfd(void);

/*
 * Several threads or processes in one transaction: fs_tx_fd gives a new descriptor of the transaction, which others have
 * by fork or over a socket, and with which they join it. It lives while somebody takes part; the commit or abort by any
 * of them ends it for all. fs_tx_leave takes part no longer; the last one to leave aborts it. The caller closes the
 * descriptor. EBUSY: the thread is in a transaction. ESTALE: the transaction has ended.
 */
int fs_tx_fd(void);
int fs_tx_join(int fd);
int fs_tx_leave(void);

/*
 * What the thread's last transaction has met, as JSON, the same as of `txfs run --json`. The text lives until the thread
 * begins its next transaction. ENODATA: no conflict.
 */
int fs_tx_conflict(const char **report);

/*
 * File groups, as in exF2FS (FAST '22): a transaction over some files and directories only. All other calls pass, so that a
 * log file, for one, can stay out of it. A group lives in the mount, as long as that does; processes share it by its key.
 * Of several mounted volumes, the one of $TXFS_MOUNT is meant, else that of the current directory.
 *
 * create returns the key. A file is in one group at most (EEXIST). Members stay while a transaction of the group runs
 * (EBUSY); what is created in a member directory is a member as well. delete aborts a running transaction.
 *
 * start binds the calling thread, as fs_tx_begin does; if the group's transaction runs, it joins it. commit and abort are
 * those of fs_tx_commit and fs_tx_abort, by a thread that is in it (else EINVAL); they end it for all.
 */
int create_tx_file_group(void);
int delete_tx_file_group(int key);
int add_tx_file_group(int fd, int key);
int remove_tx_file_group(int fd, int key);
int start_tx_file_group(int key);
int commit_tx_file_group(int key);
int abort_tx_file_group(int key);

/* How many system calls of this process were intercepted so far: all of them inside transactions. */
uint64_t fs_tx_intercepted(void);

#ifdef __cplusplus
}
#endif

#endif
