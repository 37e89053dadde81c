//! Several connections and processes in one transaction.

mod common;

use common::calls::{EBUSY, ECANCELED, EINVAL, EPERM, ESTALE, NOBODY, as_user};
use common::{Fixture, eventually, names, read, write};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use std::fs::{self, File};
use std::io::{IoSlice, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use txfs_protocol::{Client, CommitOutcome, Durability, ProtocolError, Request, Response, mounts};

const PARTICIPANT: &str = "TXFS_TEST_PARTICIPANT";

/// Another process, which gets a directory of the view as a descriptor on its standard input, joins by what that says, and
/// does as the variable tells. Without the variable it is an empty test.
#[test]
fn take_part_when_asked() {
    let Ok(task) = std::env::var(PARTICIPANT) else { return };
    let socket = UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned().unwrap());
    let directory = receive(&socket);
    let path = fs::read_link(format!("/proc/self/fd/{}", directory.as_raw_fd())).unwrap();
    let mount = mounts::txfs_holding(&path).unwrap().unwrap();
    let mut client = Client::connect(mount.volume().unwrap()).unwrap();
    let begun = client.join(path.file_name().unwrap().as_encoded_bytes().to_vec().into()).unwrap();
    assert_eq!(mount.mountpoint.join(begun.view.as_path()), path);
    write(&path.join("theirs"), &format!("written by {}", std::process::id()));
    match task.as_str() {
        "commit" => {
            let outcome = client.commit(Durability::Ordered).unwrap();
            assert!(matches!(outcome, CommitOutcome::Committed { .. }));
        }
        "leave" => client.leave().unwrap(),
        _ => {
            // Until it is killed.
            rustix::io::write(&socket, b".").unwrap();
            let _ = (&socket).read(&mut [0]);
        }
    }
}

fn receive(socket: &UnixStream) -> OwnedFd {
    use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    recvmsg(socket, &mut [std::io::IoSliceMut::new(&mut byte)], &mut ancillary, RecvFlags::empty()).unwrap();
    let passed = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    passed.unwrap()
}

/// Starts another process and passes it a directory.
fn participant(task: &str, directory: &File) -> (Child, UnixStream) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "take_part_when_asked", "--nocapture"])
        .env(PARTICIPANT, task)
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let descriptors = [directory.as_fd()];
    assert!(ancillary.push(SendAncillaryMessage::ScmRights(&descriptors)));
    sendmsg(&ours, &[IoSlice::new(b".")], &mut ancillary, SendFlags::empty()).unwrap();
    (child, ours)
}

fn ended_with<T: std::fmt::Debug>(result: Result<T, ProtocolError>) -> (i32, bool) {
    let error = result.unwrap_err();
    match &error {
        ProtocolError::EndedByOther { sequence, message } => {
            assert!(message.contains("participant") || message.contains("group"), "{message}");
            (error.errno(), sequence.is_some())
        }
        _ => panic!("{error}"),
    }
}

#[test]
fn another_process_joins_by_a_passed_descriptor_and_commits_for_all() {
    let Some(fixture) = Fixture::new() else { return };
    let mut open = fixture.begin();
    write(&open.path("ours"), "ours");
    let (mut child, _socket) = participant("commit", &File::open(&open.view).unwrap());
    assert!(child.wait().unwrap().success());
    assert_eq!(names(&fixture.root), ["ours", "theirs"]);
    assert_eq!(read(&fixture.path("theirs")), format!("written by {}", child.id()));
    assert_eq!(ended_with(open.client.status()), (ESTALE, true));
    assert_eq!(ended_with(open.client.changes()), (ESTALE, true));
    assert_eq!(ended_with(open.client.commit(Durability::Ordered)), (ESTALE, true));
    // Told once, the connection is free.
    open.client.begin(Default::default(), "").unwrap();
    open.client.abort().unwrap();
    drop(open);
    fixture.finish();
}

#[test]
fn a_transaction_outlives_a_participant_that_dies() {
    let Some(fixture) = Fixture::new() else { return };
    let open = fixture.begin();
    let directory = File::open(&open.view).unwrap();
    let (mut child, mut socket) = participant("wait", &directory);
    socket.read_exact(&mut [0]).unwrap();
    let participants = || fixture.client().list().unwrap().first().map(|open| open.participants);
    assert_eq!(participants(), Some(2));
    child.kill().unwrap();
    child.wait().unwrap();
    eventually("its connection ends", || participants() == Some(1));
    let (mut child, mut socket) = participant("wait", &directory);
    socket.read_exact(&mut [0]).unwrap();
    drop(directory);
    // And the other way round: it goes on without the one who began it, until the last one goes.
    let view = open.view.clone();
    drop(open);
    eventually("the beginner's connection ends", || participants() == Some(1));
    assert!(view.join("theirs").exists());
    child.kill().unwrap();
    child.wait().unwrap();
    eventually("it is aborted", || participants().is_none());
    assert!(!view.exists());
    assert_eq!(names(&fixture.root), [""; 0]);
    fixture.finish();
}

#[test]
fn the_last_one_to_leave_aborts() {
    let Some(fixture) = Fixture::new() else { return };
    let mut open = fixture.begin();
    let (mut child, _socket) = participant("leave", &File::open(&open.view).unwrap());
    assert!(child.wait().unwrap().success());
    assert_eq!(names(&open.view), ["theirs"], "one is left");
    open.client.leave().unwrap();
    assert!(!open.view.exists());
    assert_eq!(open.client.leave().unwrap_err().errno(), EINVAL, "no transaction any more");
    assert_eq!(names(&fixture.root), [""; 0]);
    drop(open);
    fixture.finish();
}

#[test]
fn an_abort_ends_it_for_all() {
    let Some(fixture) = Fixture::new() else { return };
    let mut open = fixture.begin();
    let mut others: Vec<Client> = (0..4).map(|_| fixture.client()).collect();
    let begun: Vec<_> =
        others.iter_mut().map(|other| other.join(open.view.as_path().into()).unwrap()).collect();
    assert!(begun.iter().all(|begun| begun.transaction == open.number));
    assert_eq!(others[0].begin(Default::default(), "").unwrap_err().errno(), EBUSY);
    assert_eq!(others[0].join(open.view.as_path().into()).unwrap_err().errno(), EBUSY);
    write(&open.path("file"), "");
    others[0].abort().unwrap();
    assert_eq!(ended_with(open.client.commit(Durability::Ordered)), (ECANCELED, false));
    others[1].abort().unwrap();
    assert_eq!(ended_with(others[2].leave()), (ECANCELED, false));
    // Who begins another one need not have heard of it.
    others[3].begin(Default::default(), "").unwrap();
    assert_eq!(names(&fixture.root), [""; 0]);
    drop((open, others));
    fixture.finish();
}

#[test]
fn one_of_many_commits_and_the_others_hear_of_it() {
    let Some(fixture) = Fixture::new() else { return };
    for round in 0..20 {
        let open = fixture.begin();
        write(&open.path(&format!("file-{round}")), "");
        let mut clients: Vec<Client> = (0..5).map(|_| fixture.client()).collect();
        for client in &mut clients {
            client.join(open.view.as_path().into()).unwrap();
        }
        clients.push(open.client);
        let results: Vec<_> = std::thread::scope(|scope| {
            let commit = |client: &mut Client| client.commit(Durability::Ordered);
            let threads: Vec<_> =
                clients.iter_mut().map(|client| scope.spawn(move || commit(client))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let mut sequences = Vec::new();
        for result in results {
            match result {
                Ok(CommitOutcome::Committed { sequence }) => sequences.insert(0, sequence),
                Err(ProtocolError::EndedByOther { sequence: Some(sequence), .. }) => sequences.push(sequence),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(sequences, [sequences[0]; 6]);
    }
    assert_eq!(names(&fixture.root).len(), 20);
    fixture.finish();
}

#[test]
fn a_conflict_is_heard_by_all() {
    let Some(fixture) = Fixture::new() else { return };
    write(&fixture.path("file"), "before");
    let mut open = fixture.begin();
    let mut other = fixture.client();
    other.join(open.view.as_path().into()).unwrap();
    write(&open.path("file"), "inside");
    write(&fixture.path("file"), "outside");
    assert!(matches!(open.client.commit(Durability::Ordered), Ok(CommitOutcome::Conflicted(_))));
    assert_eq!(ended_with(other.commit(Durability::Ordered)), (ECANCELED, false));
    drop((open, other));
    fixture.finish();
}

#[test]
fn only_who_began_a_transaction_and_root_may_join_it() {
    let Some(fixture) = Fixture::for_all() else { return };
    let roots = fixture.begin();
    let theirs = as_user(NOBODY, NOBODY, &[], || {
        let mut client = fixture.client();
        assert_eq!(client.join(roots.view.as_path().into()).unwrap_err().errno(), EPERM);
        assert_eq!(client.join("12-0123456789abcdef".into()).unwrap_err().errno(), ESTALE);
        let theirs = fixture.begin();
        client.join(theirs.view.as_path().into()).unwrap();
        write(&theirs.path("file"), "nobody's");
        theirs
    });
    let mut root = fixture.client();
    root.join(theirs.view.as_path().into()).unwrap();
    root.commit(Durability::Ordered).unwrap();
    assert_eq!(read(&fixture.path("file")), "nobody's");
    assert_eq!(root.join(theirs.view.as_path().into()).unwrap_err().errno(), ESTALE);
    drop(theirs);
    roots.abort();
    fixture.finish();
}

#[test]
fn malformed_requests_to_join_are_refused() {
    let Some(fixture) = Fixture::new() else { return };
    let mut client = fixture.client();
    for view in ["", "/", ".txfs/tx", "..", "a/b/c"] {
        assert_eq!(client.join(view.into()).unwrap_err().errno(), ESTALE, "{view}");
    }
    assert!(matches!(client.call(&Request::Abort), Ok(Response::Aborted)));
    fixture.finish();
}
