//! The first exchange on a new mount: what the kernel offers and what we take.
//!
//! Taken: big requests, parallel directory operations, READDIRPLUS where the kernel finds it useful, cached symlink
//! targets, ioctls on directories. EXPLICIT_INVAL_DATA, since TxFS invalidates what commits change and a mere look at attributes must not
//! drop pages. HANDLE_KILLPRIV_V2, since otherwise the kernel asks for `security.capability` before every write; so
//! the file system itself takes set-user-id and set-group-id bits away (`filesystem::files`).
//!
//! Not taken: the write-back cache (a transaction that begins after a `write` returned must see it), remote locks
//! (advisory locks work inside the kernel), POSIX ACLs (not enforced yet, so refused), AUTO_INVAL_DATA.

use super::abi::{InHeader, InitIn, InitOut, MAJOR, MINOR, MINOR_MIN, init_flags};
use super::device::Device;
use super::opcode::Opcode;
use super::reply::ReplyBuffer;
use super::request::Request;
use rustix::io::Errno as SystemErrno;
use std::io;

/// The largest READ and WRITE.
pub(crate) const TRANSFER_BYTES_MAX: usize = 1 << 20;

/// The longest request: a WRITE with its header and structure, or a SETXATTR, or a batch of forgets.
pub(crate) const REQUEST_BYTES_MAX: usize = TRANSFER_BYTES_MAX + 4096;

const PAGE_BYTES: usize = 4096;

/// How many readahead and other background requests may be under way.
const BACKGROUND_MAX: u16 = 64;

const WANTED: u32 = init_flags::ASYNC_READ
    | init_flags::BIG_WRITES
    | init_flags::IOCTL_DIRECTORY
    | init_flags::DO_READDIRPLUS
    | init_flags::READDIRPLUS_AUTO
    | init_flags::ASYNC_DIO
    | init_flags::PARALLEL_DIROPS
    | init_flags::MAX_PAGES
    | init_flags::CACHE_SYMLINKS
    | init_flags::NO_OPENDIR_SUPPORT
    | init_flags::EXPLICIT_INVAL_DATA
    | init_flags::HANDLE_KILLPRIV_V2;

/// Answers the kernel's INIT; returns the flags agreed on.
pub(crate) fn handshake(device: &Device) -> io::Result<u32> {
    let mut buffer = vec![0; REQUEST_BYTES_MAX];
    loop {
        let len = device
            .receive(&mut buffer)?
            .ok_or_else(|| io::Error::other("unmounted before the first message"))?;
        let Some(request) = Request::parse(&buffer[..len]) else {
            return Err(io::Error::other("the kernel's first message is malformed"));
        };
        if request.header.opcode != Opcode::Init as u32 {
            refuse(device, &request.header)?;
            continue;
        }
        let Ok(offer) = request.body().take::<InitIn>() else {
            refuse(device, &request.header)?;
            return Err(io::Error::other("the kernel's INIT message is too short"));
        };
        if offer.major > MAJOR {
            // The kernel then starts again with our version.
            let answer = InitOut { major: MAJOR, minor: MINOR, ..Default::default() };
            send(device, request.header.unique, &answer)?;
            continue;
        }
        if offer.major < MAJOR || offer.minor < MINOR_MIN {
            refuse(device, &request.header)?;
            return Err(io::Error::other(format!(
                "the kernel speaks FUSE {}.{}, TxFS needs {MAJOR}.{MINOR_MIN} or newer",
                offer.major, offer.minor
            )));
        }
        let answer = answer_to(&offer);
        send(device, request.header.unique, &answer)?;
        return Ok(answer.flags);
    }
}

fn answer_to(offer: &InitIn) -> InitOut {
    InitOut {
        major: MAJOR,
        minor: MINOR.min(offer.minor),
        max_readahead: offer.max_readahead,
        flags: offer.flags & WANTED,
        max_background: BACKGROUND_MAX,
        congestion_threshold: BACKGROUND_MAX / 4 * 3,
        max_write: TRANSFER_BYTES_MAX as u32,
        time_granularity_ns: 1,
        max_pages: (TRANSFER_BYTES_MAX / PAGE_BYTES) as u16,
        ..Default::default()
    }
}

fn send(device: &Device, unique: u64, answer: &InitOut) -> io::Result<()> {
    let mut reply = ReplyBuffer::new();
    reply.push(answer);
    device.reply(reply.finish(unique, 0))
}

fn refuse(device: &Device, header: &InHeader) -> io::Result<()> {
    device.reply(ReplyBuffer::new().finish(header.unique, SystemErrno::PROTO.raw_os_error()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_offered_is_taken() {
        let offer = InitIn { major: 7, minor: 45, max_readahead: 131072, flags: u32::MAX };
        let answer = answer_to(&offer);
        assert_eq!((answer.flags, answer.minor, answer.max_pages), (WANTED, MINOR, 256));
        assert_eq!(answer_to(&InitIn { flags: 0, minor: 31, ..offer }).flags, 0);
        assert_eq!(answer_to(&InitIn { flags: 0, minor: 31, ..offer }).minor, 31);
    }
}
