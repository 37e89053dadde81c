//! What `txfs run` and the supervisor that it starts (`txfs __exec`) say to each other over a socket pair.
//!
//! One JSON value per line. The end of the stream is a message too: the other side is dead. The supervisor then kills
//! the command and all its children.

use std::io::{self, BufRead, Write};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use txfs_protocol::PathText;

/// A part of the view, and where it must appear.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bind {
    /// In the view: `MOUNT/.txfs/tx/ID`, or a directory below it.
    pub source: PathText,
    /// An existing mount point of the base view.
    pub target: PathText,
}

/// To the supervisor.
#[derive(Debug, Serialize, Deserialize)]
pub enum ToSupervisor {
    /// First message: what to bind where, other file systems mounted below these places (to be kept), and the
    /// directory to start in (looked up again after the binds).
    Setup { binds: Vec<Bind>, submounts: Vec<PathText>, directory: Option<PathText> },
    /// Pass a signal on to the command.
    Signal(i32),
}

/// From the supervisor.
#[derive(Debug, Serialize, Deserialize)]
pub enum FromSupervisor {
    /// The view could not be entered.
    NamespaceFailed { message: String, hint: Option<String> },
    /// The command could not be executed.
    ExecuteFailed { errno: i32 },
    /// The command ended, and so did everything it had left behind.
    Ended { status: Status, leftovers: Vec<String>, survivors: Vec<String> },
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Status {
    /// By itself.
    Exited(i32),
    /// By a signal.
    Signalled(i32),
}

impl Status {
    /// As a shell has it: 128 + N for a signal.
    pub fn exit_code(self) -> u8 {
        match self {
            Status::Exited(code) => code as u8,
            Status::Signalled(signal) => 128u8.wrapping_add(signal as u8),
        }
    }
}

/// Sends one message.
pub fn send<M: Serialize>(stream: &mut impl Write, message: &M) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    stream.write_all(&line)
}

/// Receives one message; `None` when the other side is gone.
pub fn receive<M: DeserializeOwned>(stream: &mut impl BufRead) -> io::Result<Option<M>> {
    let mut line = Vec::new();
    match stream.read_until(b'\n', &mut line) {
        Ok(0) => Ok(None),
        Ok(_) if line.last() != Some(&b'\n') => Ok(None),
        Ok(_) => Ok(Some(serde_json::from_slice(&line)?)),
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_survive_the_wire() {
        let odd = PathText(vec![b'/', 0xff, b'\n']);
        let mut wire = Vec::new();
        send(
            &mut wire,
            &ToSupervisor::Setup { binds: vec![], submounts: vec![], directory: Some(odd.clone()) },
        )
        .unwrap();
        let mut reader = wire.as_slice();
        match receive::<ToSupervisor>(&mut reader).unwrap() {
            Some(ToSupervisor::Setup { directory: Some(path), .. }) => assert_eq!(path, odd),
            other => panic!("{other:?}"),
        }
        assert!(receive::<ToSupervisor>(&mut reader).unwrap().is_none());
    }

    #[test]
    fn statuses_as_in_a_shell() {
        assert_eq!(Status::Exited(3).exit_code(), 3);
        assert_eq!(Status::Signalled(9).exit_code(), 137);
    }
}
