//! `txfs diff`.

use std::io::{self, Write};
use std::path::Path;

use txfs_protocol::Change;

use super::printed;
use super::tx::current_mount;
use crate::cli::Diff;
use crate::error::Error;
use crate::output::{self, colour};
use crate::place;
use crate::run::review;

/// Lists what recorded commits have changed, from the volume's owner or from opening it.
pub fn run(arguments: Diff) -> Result<(), Error> {
    let target = match arguments.target {
        Some(target) => target,
        None => current_mount()?,
    };
    let (after, up_to) = arguments.commits;
    let changes = match place::connect(&target)? {
        Some((mut client, _)) => client.diff(after, up_to)?,
        None => {
            let failed = |source| Error::volume(&target, source);
            let volume = place::open_unmounted(&target)?;
            let changes = volume.diff(after, up_to).map_err(failed)?;
            volume.close().map_err(failed)?;
            changes.into_iter().map(txfs_fuse::change).collect()
        }
    };
    printed(match arguments.json {
        true => output::print_json(&changes),
        false => list(&mut io::stdout().lock(), &changes),
    })
}

/// One line for each path, and how many there are of each kind.
pub(super) fn list(out: &mut dyn Write, changes: &[Change]) -> io::Result<()> {
    // The states before and after are nowhere to be looked at.
    let nowhere = Path::new("/dev/null");
    let sides = review::Sides { base: nowhere, view: nowhere };
    review::list(&review::merge(changes.to_vec()), sides, out, colour::stdout())
}
