//! Takes a request apart: header, structures, names, data.

use super::abi::InHeader;
use crate::errno::Errno;
use bytemuck::Pod;

/// One request; borrows the buffer that it was read into.
#[derive(Debug)]
pub(crate) struct Request<'a> {
    pub header: InHeader,
    body: &'a [u8],
}

impl<'a> Request<'a> {
    /// `None` when the bytes are no request.
    pub(crate) fn parse(bytes: &'a [u8]) -> Option<Request<'a>> {
        let header: InHeader = bytemuck::try_pod_read_unaligned(bytes.get(..size_of::<InHeader>())?).ok()?;
        let extensions = usize::from(header.extension_words) * 8;
        if header.len as usize != bytes.len() {
            return None;
        }
        let body = bytes.get(size_of::<InHeader>()..bytes.len().checked_sub(extensions)?)?;
        Some(Request { header, body })
    }

    /// What follows the header, to be taken piece by piece.
    pub(crate) fn body(&self) -> Body<'a> {
        Body(self.body)
    }
}

/// The part of a request's body that has not been taken yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Body<'a>(&'a [u8]);

impl<'a> Body<'a> {
    /// The next structure.
    pub(crate) fn take<T: Pod>(&mut self) -> Result<T, Errno> {
        let (head, rest) = self.0.split_at_checked(size_of::<T>()).ok_or(Errno::INVAL)?;
        self.0 = rest;
        bytemuck::try_pod_read_unaligned(head).map_err(|_| Errno::INVAL)
    }

    /// The next name, without its closing zero.
    pub(crate) fn name(&mut self) -> Result<&'a [u8], Errno> {
        let end = self.0.iter().position(|byte| *byte == 0).ok_or(Errno::INVAL)?;
        let name = &self.0[..end];
        self.0 = &self.0[end + 1..];
        Ok(name)
    }

    /// The next `len` bytes.
    pub(crate) fn data(&mut self, len: usize) -> Result<&'a [u8], Errno> {
        let (head, rest) = self.0.split_at_checked(len).ok_or(Errno::INVAL)?;
        self.0 = rest;
        Ok(head)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::abi::{ForgetOne, MkdirIn};

    fn message(opcode: u32, body: &[u8]) -> Vec<u8> {
        let header =
            InHeader { len: (40 + body.len()) as u32, opcode, unique: 7, node: 1, ..Default::default() };
        [bytemuck::bytes_of(&header), body].concat()
    }

    #[test]
    fn a_request_is_taken_apart() {
        let mut body = bytemuck::bytes_of(&MkdirIn { mode: 0o755, umask: 0 }).to_vec();
        body.extend(b"name\0rest");
        let bytes = message(9, &body);
        let request = Request::parse(&bytes).unwrap();
        let mut body = request.body();
        assert_eq!(body.take::<MkdirIn>().unwrap().mode, 0o755);
        assert_eq!(body.name().unwrap(), b"name");
        assert_eq!(body.data(4).unwrap(), b"rest");
        assert!(body.data(1).is_err() && body.name().is_err() && body.take::<ForgetOne>().is_err());
    }

    #[test]
    fn short_and_wrong_messages_are_refused() {
        let good = message(1, b"x\0");
        for end in 0..good.len() {
            assert!(Request::parse(&good[..end]).is_none());
        }
        let mut extended = good.clone();
        extended[36] = 9;
        assert!(Request::parse(&extended).is_none());
    }
}
