//! `txfs tx list`.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use txfs_protocol::mounts;

use super::printed;
use crate::cli::TxList;
use crate::error::Error;
use crate::output::{self, colour, format};
use crate::place;

/// Lists the open transactions, oldest first.
pub fn list(arguments: TxList) -> Result<(), Error> {
    let target = match arguments.target {
        Some(target) => target,
        None => current_mount()?,
    };
    let (mut client, _) =
        place::connect(&target)?.ok_or_else(|| Error::NotMounted { target: target.clone() })?;
    let transactions = client.list()?;
    if arguments.json {
        return printed(output::print_json(&transactions));
    }
    let mut out = io::stdout().lock();
    let paint = colour::stdout();
    if transactions.is_empty() {
        return printed(writeln!(out, "{}", paint.dim("no open transactions")));
    }
    let header =
        format!("{:>6}  {:>10}  {:>8}  {:>6}  {:>10}  COMMAND", "ID", "AGE", "PID", "USER", "CHANGED");
    printed(writeln!(out, "{}", paint.bold(header)))?;
    for transaction in transactions {
        printed(writeln!(
            out,
            "{:>6}  {:>10}  {:>8}  {:>6}  {:>10}  {}",
            transaction.transaction,
            format::duration(Duration::from_millis(transaction.age_ms)),
            transaction.pid,
            transaction.uid,
            format::bytes(transaction.dirty_bytes),
            format::name(transaction.command.as_bytes()),
        ))?;
    }
    Ok(())
}

/// The volume of the mount that holds the current directory.
pub(super) fn current_mount() -> Result<PathBuf, Error> {
    let here = std::env::current_dir()
        .map_err(|source| Error::io("find the current directory", Path::new("."), source))?;
    match mounts::txfs_holding(&here) {
        Ok(Some(mount)) => Ok(mount.source),
        Ok(None) => Err(Error::NotOnMount { path: here }),
        Err(source) => Err(Error::io("find the mount of", &here, source)),
    }
}
