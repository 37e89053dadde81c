//! All workloads, in the order of the page.

mod amplification;
mod background;
mod cleaning;
mod create_unlink;
mod day;
mod durable;
mod fullness;
mod huge;
mod libtxfs_protocols;
mod logging;
mod long_transaction;
mod many;
mod mount_calls;
mod opening;
mod ordering;
mod sequential;
mod threads;

use crate::Result;
use crate::bench::Bench;
use crate::result::Section;

/// A workload: a name to call it by, and what it does.
#[derive(Clone, Copy, Debug)]
pub struct Workload {
    /// On the command line.
    pub name: &'static str,
    /// One line for `txfs-bench list`.
    pub about: &'static str,
    /// Takes much time or disk: only run when asked for.
    pub huge: bool,
    /// Plain files on a mount of TxFS take part, among `places.plain`.
    pub on_mount: bool,
    /// Does it.
    pub run: fn(&Bench) -> Result<Section>,
}

impl Workload {
    /// One that is neither huge nor for mounts.
    pub const fn new(
        name: &'static str,
        about: &'static str,
        run: fn(&Bench) -> Result<Section>,
    ) -> Workload {
        Workload { name, about, huge: false, on_mount: false, run }
    }

    /// It takes much time or disk.
    pub const fn huge(self) -> Workload {
        Workload { huge: true, ..self }
    }

    /// Plain files on a mount take part.
    pub const fn on_mount(self) -> Workload {
        Workload { on_mount: true, ..self }
    }
}

/// In the order of the page.
pub const ALL: &[Workload] = &[
    durable::WORKLOAD,
    threads::WORKLOAD,
    amplification::WORKLOAD,
    fullness::WORKLOAD,
    cleaning::WORKLOAD,
    create_unlink::WORKLOAD,
    logging::WORKLOAD,
    libtxfs_protocols::WORKLOAD,
    ordering::WORKLOAD,
    background::WORKLOAD,
    opening::WORKLOAD,
    mount_calls::WORKLOAD,
    sequential::WORKLOAD,
    long_transaction::WORKLOAD,
    day::WORKLOAD,
    many::WORKLOAD,
    huge::WORKLOAD,
    many::HUGE,
];

/// The workload with this name.
pub fn find(name: &str) -> Option<&'static Workload> {
    ALL.iter().find(|workload| workload.name == name)
}
