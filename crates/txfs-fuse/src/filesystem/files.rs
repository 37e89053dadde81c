//! What is done with open files: READ, WRITE, FSYNC, FALLOCATE, LSEEK, COPY_FILE_RANGE.

use super::attributes::{drop_capability, without_privileges};
use super::{FileSystem, Place};
use crate::errno::Errno;
use crate::wire::abi::{CopyRangeIn, FallocateIn, LseekIn, SizeOut, TransferIn, write};
use crate::wire::init::TRANSFER_BYTES_MAX;
use crate::wire::opcode::Opcode;
use crate::wire::reply::ReplyBuffer;
use crate::wire::request::Request;
use std::sync::atomic::Ordering;
use txfs::{AllocateMode, SetAttributes};

const OPEN_APPEND: u32 = 0o2000;
const SEEK_DATA: u32 = 3;
const SEEK_HOLE: u32 = 4;
const ALLOCATE_KEEP_SIZE: u32 = 0x01;
const ALLOCATE_PUNCH_HOLE: u32 = 0x02;
const ALLOCATE_ZERO_RANGE: u32 = 0x10;

/// What one COPY_FILE_RANGE copies at most: the caller comes again for the rest, and a signal can get through.
const COPY_BYTES_MAX: u64 = 64 << 20;

impl FileSystem {
    pub(super) fn read(&self, request: &Request<'_>, reply: &mut ReplyBuffer) -> Result<(), Errno> {
        let (view, ino) = self.node(&request.header)?;
        let wanted = request.body().take::<TransferIn>()?;
        let len = (wanted.size as usize).min(TRANSFER_BYTES_MAX);
        let operations = view.view()?;
        view.nodes.mark_pages(ino);
        if !view.is_base() {
            // Who reads on behind the last page is told by the kernel that there is no more. In a transaction asking for
            // the size like this is no read.
            let behind = wanted.offset.saturating_add(len as u64);
            if operations.opened(ino)?.size == behind {
                operations.read(ino, behind, 1)?;
            }
            operations.closed(ino);
        }
        reply.fill(len, |out| operations.read_into(ino, wanted.offset, out)).map_err(Errno::from)
    }

    pub(super) fn write(&self, request: &Request<'_>, reply: &mut ReplyBuffer) -> Result<(), Errno> {
        let (view, ino) = self.node(&request.header)?;
        let mut body = request.body();
        let wanted = body.take::<TransferIn>()?;
        let data = body.data(wanted.size as usize)?;
        let operations = view.view()?;
        view.nodes.mark_pages(ino);
        if wanted.transfer_flags & write::KILL_SUIDGID != 0 {
            let before = operations.attributes(ino)?;
            if let Some(mode) = without_privileges(before.mode) {
                operations.set_attributes(ino, &SetAttributes { mode: Some(mode), ..Default::default() })?;
            }
            drop_capability(operations, &before)?;
        }
        let appends = wanted.flags & OPEN_APPEND != 0 && wanted.transfer_flags & write::CACHE == 0;
        let written = if appends {
            let went_to = operations.append(ino, data)?;
            if went_to != wanted.offset {
                // The kernel took the file to end elsewhere (a commit changed its size a moment ago) and has put the
                // data into its cache there.
                self.invalidator.later(view.node(ino)?);
            }
            data.len()
        } else {
            operations.write(ino, wanted.offset, data)?
        };
        if let Some(transaction) = view.transaction() {
            transaction.written_bytes.fetch_add(written as u64, Ordering::Relaxed);
            view.nodes.mark_written(ino, wanted.offset, written as u64);
        }
        reply.push(&SizeOut { size: written as u32, padding: 0 });
        Ok(())
    }

    /// In the base view everything so far becomes durable; in a transaction there is nothing to do before its commit.
    pub(super) fn sync(&self, request: &Request<'_>) -> Result<(), Errno> {
        match self.place(request.header.node)? {
            Place::Node(view, ino) => Ok(view.view()?.sync(ino)?),
            Place::Mount(_) => Ok(()),
        }
    }

    pub(super) fn allocate(&self, request: &Request<'_>) -> Result<(), Errno> {
        let (view, ino) = self.node(&request.header)?;
        let wanted = request.body().take::<FallocateIn>()?;
        let keep_size = wanted.mode & ALLOCATE_KEEP_SIZE != 0;
        let mode = match wanted.mode & !ALLOCATE_KEEP_SIZE {
            0 => AllocateMode::Reserve { keep_size },
            ALLOCATE_PUNCH_HOLE => AllocateMode::PunchHole,
            ALLOCATE_ZERO_RANGE => AllocateMode::ZeroRange { keep_size },
            _ => return Err(Errno::OPNOTSUPP),
        };
        view.view()?.allocate(ino, mode, wanted.offset, wanted.len)?;
        if !view.is_base() && !matches!(mode, AllocateMode::Reserve { .. }) {
            view.nodes.mark_written(ino, wanted.offset, wanted.len);
        }
        Ok(())
    }

    pub(super) fn seek(&self, request: &Request<'_>, reply: &mut ReplyBuffer) -> Result<(), Errno> {
        let (view, ino) = self.node(&request.header)?;
        let wanted = request.body().take::<LseekIn>()?;
        let found = match wanted.whence {
            SEEK_DATA => view.view()?.seek_data(ino, wanted.offset)?,
            SEEK_HOLE => view.view()?.seek_hole(ino, wanted.offset)?,
            _ => return Err(Errno::INVAL),
        };
        reply.push(&found);
        Ok(())
    }

    pub(super) fn copy_range(
        &self,
        request: &Request<'_>,
        opcode: Opcode,
        reply: &mut ReplyBuffer,
    ) -> Result<(), Errno> {
        let (view, from) = self.node(&request.header)?;
        let wanted = request.body().take::<CopyRangeIn>()?;
        let Place::Node(to_view, to) = self.place(wanted.node_out)? else { return Err(Errno::PERM) };
        if to_view.index != view.index {
            // The kernel then copies through memory.
            return Err(Errno::XDEV);
        }
        let len = wanted.len.min(COPY_BYTES_MAX);
        let copied = view.view()?.copy_range(from, wanted.offset_in, to, wanted.offset_out, len)?;
        view.nodes.mark_pages(to);
        if !view.is_base() {
            view.nodes.mark_written(to, wanted.offset_out, copied);
        }
        match opcode {
            Opcode::CopyFileRange64 => reply.push(&copied),
            _ => reply.push(&SizeOut { size: copied as u32, padding: 0 }),
        }
        Ok(())
    }
}
