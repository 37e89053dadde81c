//! The file groups of exF2FS (FAST '22, table 1): transactions over some files and directories only.
//!
//! Groups live in the owner of the mount. Of several mounted volumes a program means the one of `TXFS_MOUNT`, else that of its
//! current directory.

use crate::bound;
use std::ffi::c_int;

use txfs_protocol::ioctl::{GroupKey, TXFS_IOC_GROUP_ADD, TXFS_IOC_GROUP_REMOVE};
use txfs_protocol::{Durability, Isolation, Request, Response};

use std::sync::Arc;

use crate::api::{answer, bind, end};
use crate::calls::mounts::{self, Table};
use crate::calls::scope::Scope;
use crate::calls::system::numbers;
use crate::connection::Connection;
use crate::kernel::Errno;
use crate::transaction::{Binding, End, Shared, known, shared};
use crate::trap;

/// Makes a file group.
#[unsafe(no_mangle)]
pub extern "C" fn create_tx_file_group() -> c_int {
    trap::notice_new_process();
    answer(trap::uninterrupted(|| match ask(&Request::GroupCreate)? {
        Response::Group { key } => c_int::try_from(key).map_err(|_| Errno(libc::EOVERFLOW)),
        _ => Err(Errno(libc::EPROTO)),
    }))
}

/// Deletes a file group; its transaction is aborted.
#[unsafe(no_mangle)]
pub extern "C" fn delete_tx_file_group(key: c_int) -> c_int {
    trap::notice_new_process();
    answer(trap::uninterrupted(|| ask(&Request::GroupDelete { key: number(key)? }).map(|_| 0)))
}

/// Makes an open file or directory a member.
#[unsafe(no_mangle)]
pub extern "C" fn add_tx_file_group(fd: c_int, key: c_int) -> c_int {
    change(fd, key, TXFS_IOC_GROUP_ADD)
}

/// Ends its membership.
#[unsafe(no_mangle)]
pub extern "C" fn remove_tx_file_group(fd: c_int, key: c_int) -> c_int {
    change(fd, key, TXFS_IOC_GROUP_REMOVE)
}

/// Binds the calling thread to the group's transaction, which begins here if it does not run.
#[unsafe(no_mangle)]
pub extern "C" fn start_tx_file_group(key: c_int) -> c_int {
    trap::notice_new_process();
    let binding = trap::uninterrupted(|| match bound::binding() {
        Some(_) => Err(Errno(libc::EBUSY)),
        None => {
            let table = mounts::current()?;
            let (shared, joined) = start(table.clone(), number(key)?)?;
            Ok(Box::new(Binding::to(shared, table, joined)))
        }
    });
    answer(binding.and_then(bind))
}

/// Commits the group's transaction, durably.
#[unsafe(no_mangle)]
pub extern "C" fn commit_tx_file_group(key: c_int) -> c_int {
    trap::notice_new_process();
    answer(bound_to(key).and_then(|()| end(End::Commit(Durability::Durable))))
}

/// Drops the group's transaction.
#[unsafe(no_mangle)]
pub extern "C" fn abort_tx_file_group(key: c_int) -> c_int {
    trap::notice_new_process();
    answer(bound_to(key).and_then(|()| end(End::Abort)))
}

fn number(key: c_int) -> Result<u32, Errno> {
    u32::try_from(key).map_err(|_| Errno(libc::EINVAL))
}

fn ask(request: &Request) -> Result<Response, Errno> {
    let (connection, _) = chosen_connection(&*mounts::current()?)?;
    let response = connection.call(request).map_err(|error| Errno::from(&error));
    connection.put_back();
    response
}

fn change(fd: c_int, key: c_int, request: u32) -> c_int {
    trap::notice_new_process();
    answer(trap::uninterrupted(|| {
        let key = GroupKey { key: number(key)?, reserved: 0 };
        let at = &raw const key as usize;
        numbers(libc::SYS_ioctl, [fd as usize, request as usize, at, 0, 0, 0]).map(|_| 0)
    }))
}

/// EINVAL unless the calling thread is in the transaction of this group.
fn bound_to(key: c_int) -> Result<(), Errno> {
    trap::uninterrupted(|| {
        let shared = bound::binding().and_then(|binding| binding.scope());
        let scope = shared.as_ref().and_then(|shared| shared.scope.as_ref());
        match scope {
            Some(scope) if c_int::try_from(scope.key()) == Ok(key) => Ok(()),
            _ => Err(Errno(libc::EINVAL)),
        }
    })
}

/// A connection to the owner of the volume that a program means when it names none, and the mount of its whole tree.
fn chosen_connection(table: &Table) -> Result<(Connection, usize), Errno> {
    let mount = table.whole(mounts::chosen(table)?).ok_or(Errno(libc::ENOTSUP))?;
    let volume = table.entry(mount).mount.volume().ok_or(Errno(libc::ENOTSUP))?;
    Ok((Connection::take(volume).map_err(|error| Errno::from(&error))?, mount))
}

/// Starts the transaction of a file group, or takes part in it; whether it ran already.
fn start(table: Arc<Table>, key: u32) -> Result<(Arc<Shared>, bool), Errno> {
    let (connection, mount) = chosen_connection(&table)?;
    let request =
        Request::GroupStart { key, isolation: Isolation::default(), label: String::new(), policy: None };
    let started = match connection.call(&request) {
        Ok(Response::GroupStarted(started)) => started,
        Ok(_) => return Err(Errno(libc::EPROTO)),
        Err(error) => {
            connection.put_back();
            return Err(Errno::from(&error));
        }
    };
    let joined = started.joined;
    let name = started.begun.view.0.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    if let Some(known) = known(name) {
        // Another thread of this process takes part already.
        if connection.call(&Request::Leave).is_ok() {
            connection.put_back();
        }
        return Ok((known, true));
    }
    let begun = started.begun.clone();
    let scope =
        Scope::new(key, started, |start| match connection.call(&Request::GroupMembers { key, start }) {
            Ok(Response::GroupMembers { members, .. }) => Ok(members),
            Ok(_) => Err(Errno(libc::EPROTO)),
            Err(error) => Err(Errno::from(&error)),
        })?;
    Ok((shared(table, mount, connection, &begun, Some(scope))?, joined))
}
