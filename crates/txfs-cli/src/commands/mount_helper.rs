//! `mount.txfs`: what mount(8) runs for the file system type `txfs`, so that a line in /etc/fstab is enough.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use super::mount;
use crate::cli::Mount;
use crate::output;

/// mount(8)'s exit codes: these two are all a helper needs.
const INCORRECT_INVOCATION: u8 = 1;
const MOUNT_FAILURE: u8 = 32;

const USAGE: &str = "usage: mount.txfs VOLUME DIR [-sfnv] [-o OPTIONS]";

/// Options that concern mount(8), systemd or nobody.
const IGNORED: [&str; 19] = [
    "defaults",
    "auto",
    "noauto",
    "user",
    "nouser",
    "users",
    "owner",
    "group",
    "_netdev",
    "nofail",
    "async",
    "iversion",
    "noiversion",
    "mand",
    "nomand",
    "silent",
    "loud",
    "lazytime",
    "nolazytime",
];

#[derive(Debug, Default, PartialEq, Eq)]
struct Invocation {
    places: Vec<PathBuf>,
    options: Vec<String>,
    /// -f: everything but the mount itself.
    fake: bool,
    /// -s: unknown options do no harm.
    sloppy: bool,
}

/// Parses what mount(8) passes, and mounts in the background.
pub fn main(arguments: Vec<OsString>) -> u8 {
    let invocation = match parse(arguments.into_iter().skip(1)) {
        Ok(invocation) => invocation,
        Err(message) => {
            output::error(&message, Some(USAGE));
            return INCORRECT_INVOCATION;
        }
    };
    if invocation.fake {
        return 0;
    }
    let mut places = invocation.places.into_iter();
    let (Some(volume), Some(mountpoint)) = (places.next(), places.next()) else {
        output::error("a volume and a directory are needed", Some(USAGE));
        return INCORRECT_INVOCATION;
    };
    let mut options = invocation.options;
    if invocation.sloppy {
        options.retain(|option| mount::is_known(option));
    }
    let mount = Mount { volume, mountpoint, foreground: false, options, allow_other: false, threads: None };
    match super::finish(mount::run(mount)) {
        0 => 0,
        _ => MOUNT_FAILURE,
    }
}

fn parse(arguments: impl Iterator<Item = OsString>) -> Result<Invocation, String> {
    let mut invocation = Invocation::default();
    let mut arguments = arguments;
    let mut only_places = false;
    while let Some(argument) = arguments.next() {
        let text = argument.to_string_lossy();
        let Some(letters) = text.strip_prefix('-').filter(|letters| !letters.is_empty() && !only_places)
        else {
            invocation.places.push(argument.into());
            continue;
        };
        if letters == "-" {
            only_places = true;
            continue;
        }
        let mut letters = letters.chars();
        while let Some(letter) = letters.next() {
            match letter {
                's' => invocation.sloppy = true,
                'f' => invocation.fake = true,
                // No mtab to write, nothing to be told twice.
                'n' | 'v' => {}
                // Each takes a value: the rest of the word, or the next one.
                'o' | 't' | 'N' => {
                    let rest = letters.as_str();
                    let value = if rest.is_empty() {
                        arguments.next().ok_or_else(|| format!("-{letter} needs a value"))?
                    } else {
                        OsString::from(rest)
                    };
                    if letter == 'o' {
                        add_options(&mut invocation.options, &value);
                    }
                    break;
                }
                other => return Err(format!("option -{other} is not known")),
            }
        }
    }
    if invocation.places.len() != 2 {
        return Err("a volume and a directory are needed".into());
    }
    Ok(invocation)
}

fn add_options(options: &mut Vec<String>, value: &OsStr) {
    for option in value.to_string_lossy().split(',') {
        let ignored = IGNORED.contains(&option)
            || option.is_empty()
            || ["x-", "X-", "comment=", "uhelper=", "helper="]
                .iter()
                .any(|prefix| option.starts_with(prefix));
        if !ignored {
            options.push(option.to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(words: &[&str]) -> Result<Invocation, String> {
        parse(words.iter().map(OsString::from))
    }

    #[test]
    fn as_mount_calls_it() {
        let invocation = parsed(&[
            "/srv/v",
            "/data",
            "-sn",
            "-o",
            "rw,noauto,x-systemd.automount,allow_other,nofail,_netdev,nosuid",
        ]);
        let invocation = invocation.unwrap();
        assert_eq!(invocation.places, [PathBuf::from("/srv/v"), PathBuf::from("/data")]);
        assert_eq!(invocation.options, ["rw", "allow_other", "nosuid"]);
        assert!(invocation.sloppy && !invocation.fake);
        assert!(parsed(&["v", "d", "-fv", "-oro"]).unwrap().fake);
        assert_eq!(parsed(&["-t", "txfs", "--", "-v", "d"]).unwrap().places[0], PathBuf::from("-v"));
    }

    #[test]
    fn wrong_invocations() {
        assert!(parsed(&["v"]).is_err());
        assert!(parsed(&["v", "d", "e"]).is_err());
        assert!(parsed(&["v", "d", "-z"]).is_err());
        assert!(parsed(&["v", "d", "-o"]).is_err());
    }
}
