//! Error numbers as the kernel gets them.

/// A Linux error number, positive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Errno(pub i32);

impl Errno {
    pub(crate) const PERM: Errno = Errno(1);
    pub(crate) const NOENT: Errno = Errno(2);
    pub(crate) const IO: Errno = Errno(5);
    pub(crate) const ACCES: Errno = Errno(13);
    pub(crate) const BUSY: Errno = Errno(16);
    pub(crate) const ISDIR: Errno = Errno(21);
    pub(crate) const NOTTY: Errno = Errno(25);
    pub(crate) const ROFS: Errno = Errno(30);
    pub(crate) const DQUOT: Errno = Errno(122);
    pub(crate) const NODATA: Errno = Errno(61);
    pub(crate) const EXIST: Errno = Errno(17);
    pub(crate) const NOSPC: Errno = Errno(28);
    pub(crate) const XDEV: Errno = Errno(18);
    pub(crate) const INVAL: Errno = Errno(22);
    pub(crate) const RANGE: Errno = Errno(34);
    pub(crate) const NOSYS: Errno = Errno(38);
    pub(crate) const OPNOTSUPP: Errno = Errno(95);
    pub(crate) const OVERFLOW: Errno = Errno(75);
    pub(crate) const STALE: Errno = Errno(116);
}

impl From<txfs::Error> for Errno {
    fn from(error: txfs::Error) -> Errno {
        let number = error.errno();
        if number == Errno::IO.0 {
            log::error!("{error}");
        }
        if let txfs::Error::Held { .. } = error {
            // The number alone does not say by whom.
            log::info!("{error}");
        }
        match error {
            // A view whose transaction is over: its files are gone.
            txfs::Error::TransactionEnded(_) => Errno::STALE,
            _ if number <= 0 => Errno::IO,
            _ => Errno(number),
        }
    }
}
