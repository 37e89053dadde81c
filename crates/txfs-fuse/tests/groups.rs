//! File groups on a real mount, each rule by itself.

mod common;

use common::calls::{
    EACCES, EBUSY, ECANCELED, EEXIST, EINVAL, ENOENT, EPERM, ESTALE, NOBODY, add, add_path, as_user, ioctl,
    node_path, remove,
};
use common::{Fixture, read, write};
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use txfs_fuse::MountOptions;
use txfs_protocol::ioctl::{GroupKey, TXFS_IOC_GROUP_ADD};
use txfs_protocol::{Client, CommitOutcome, Durability, GroupMember, ProtocolError};

fn inode(path: &Path) -> u64 {
    fs::metadata(path).unwrap().ino()
}

fn members(client: &mut Client, key: u32) -> Vec<u64> {
    client.group_members(key).unwrap().iter().map(|member| member.inode).collect()
}

fn commit(client: &mut Client) {
    let outcome = client.commit(Durability::Ordered).unwrap();
    assert!(matches!(outcome, CommitOutcome::Committed { .. }), "{outcome:?}");
}

fn errno<T: std::fmt::Debug>(result: Result<T, ProtocolError>) -> i32 {
    result.unwrap_err().errno()
}

#[test]
fn a_groups_transaction_commits_its_members_together() {
    let Some(fixture) = Fixture::new() else { return };
    let databases: Vec<_> = (0..3).map(|i| fixture.path(&format!("db{i}"))).collect();
    databases.iter().for_each(|path| write(path, "before"));
    let mut client = fixture.client();
    let key = client.create_group().unwrap();
    databases.iter().for_each(|path| add_path(key, path).unwrap());
    let started = client.start_group(key, Default::default(), "three databases").unwrap();
    assert!(!started.joined);
    let all = databases.iter().map(|path| GroupMember { inode: inode(path), directory: false });
    assert_eq!(started.members, all.collect::<Vec<_>>());
    let held = File::open(&databases[0]).unwrap();
    let twin = node_path(&held, started.begun.transaction).unwrap();
    write(&fixture.root.join(twin), "inside");
    let view = fixture.root.join(started.begun.view.as_path());
    databases[1..].iter().for_each(|path| write(&view.join(path.file_name().unwrap()), "inside"));
    assert!(databases.iter().all(|path| read(path) == "before"));
    commit(&mut client);
    assert!(databases.iter().all(|path| read(path) == "inside"));
    let groups = client.groups().unwrap();
    assert_eq!((groups.len(), groups[0].key, groups[0].members, groups[0].transaction), (1, key, 3, None));
    drop(held);
    fixture.finish();
}

#[test]
fn a_file_belongs_to_one_group_at_a_time() {
    let Some(fixture) = Fixture::new() else { return };
    write(&fixture.path("file"), "");
    let file = File::open(fixture.path("file")).unwrap();
    let mut client = fixture.client();
    let (one, two) = (client.create_group().unwrap(), client.create_group().unwrap());
    assert_ne!(one, two);
    add(one, &file).unwrap();
    assert_eq!(add(one, &file), Err(EEXIST));
    assert_eq!(add(two, &file), Err(EEXIST));
    assert_eq!(remove(two, &file), Err(ENOENT));
    remove(one, &file).unwrap();
    add(two, &file).unwrap();
    client.delete_group(two).unwrap();
    add(one, &file).unwrap();
    assert_eq!(add(two, &file), Err(EINVAL), "no such group");
    assert_eq!(errno(client.start_group(two, Default::default(), "")), EINVAL);
    let mut wrong = GroupKey { key: one, reserved: 1 }.to_bytes();
    assert_eq!(ioctl(file.as_raw_fd(), TXFS_IOC_GROUP_ADD, &mut wrong), Err(EINVAL));
    drop(file);
    fixture.finish();
}

#[test]
fn members_do_not_change_while_the_transaction_runs() {
    let Some(fixture) = Fixture::new() else { return };
    write(&fixture.path("member"), "");
    write(&fixture.path("other"), "");
    let (member, other) =
        (File::open(fixture.path("member")).unwrap(), File::open(fixture.path("other")).unwrap());
    let mut client = fixture.client();
    let key = client.create_group().unwrap();
    add(key, &member).unwrap();
    for end in [Client::abort, |client: &mut Client| client.commit(Durability::Ordered).map(drop)] {
        client.start_group(key, Default::default(), "").unwrap();
        assert_eq!(add(key, &other), Err(EBUSY));
        assert_eq!(remove(key, &member), Err(EBUSY));
        end(&mut client).unwrap();
        add(key, &other).unwrap();
        remove(key, &other).unwrap();
    }
    // Nor when who began it is gone without a word.
    client.start_group(key, Default::default(), "").unwrap();
    drop(client);
    common::eventually("it is aborted", || add(key, &other).is_ok());
    drop((member, other));
    fixture.finish();
}

#[test]
fn what_is_created_in_a_member_directory_becomes_a_member() {
    let Some(fixture) = Fixture::new() else { return };
    let directory = fixture.path("d");
    fs::create_dir(&directory).unwrap();
    write(&directory.join("before"), "");
    let mut client = fixture.client();
    let key = client.create_group().unwrap();
    add_path(key, &directory).unwrap();
    let mut expected = vec![inode(&directory)];
    // Plainly, at once; also below a directory that has become one.
    write(&directory.join("plain"), "");
    fs::create_dir(directory.join("sub")).unwrap();
    write(&directory.join("sub/deep"), "");
    std::os::unix::fs::symlink("plain", directory.join("link")).unwrap();
    expected.extend(["plain", "sub", "sub/deep"].map(|name| inode(&directory.join(name))));
    assert_eq!(members(&mut client, key), expected);
    // In the group's transaction, when it commits.
    let started = client.start_group(key, Default::default(), "").unwrap();
    let view = fixture.root.join(started.begun.view.as_path()).join("d");
    fs::create_dir(view.join("new")).unwrap();
    write(&view.join("new/file"), "");
    assert_eq!(members(&mut fixture.client(), key), expected);
    commit(&mut client);
    expected.extend(["new", "new/file"].map(|name| inode(&directory.join(name))));
    assert_eq!(members(&mut client, key), expected);
    // Never, when it is aborted, or conflicts.
    let started = client.start_group(key, Default::default(), "").unwrap();
    let view = fixture.root.join(started.begun.view.as_path()).join("d");
    write(&view.join("never"), "");
    client.abort().unwrap();
    assert_eq!(members(&mut client, key), expected);
    // In another transaction, too.
    let open = fixture.begin();
    write(&open.path("d/other"), "");
    open.commit();
    expected.push(inode(&directory.join("other")));
    assert_eq!(members(&mut client, key), expected);
    // What is moved or linked there is not created there.
    write(&fixture.path("moved"), "");
    fs::rename(fixture.path("moved"), directory.join("moved")).unwrap();
    assert_eq!(members(&mut client, key), expected);
    // All that has inherited leaves with the directory.
    remove(key, &File::open(&directory).unwrap()).unwrap();
    assert_eq!(members(&mut client, key), [0; 0]);
    write(&directory.join("late"), "");
    assert_eq!(members(&mut client, key), [0; 0]);
    fixture.finish();
}

#[test]
fn a_removed_file_is_no_member() {
    let Some(fixture) = Fixture::new() else { return };
    for name in ["unlinked", "replaced", "kept", "other"] {
        write(&fixture.path(name), "");
    }
    fs::create_dir(fixture.path("directory")).unwrap();
    let mut client = fixture.client();
    let key = client.create_group().unwrap();
    for name in ["unlinked", "replaced", "kept", "directory"] {
        add_path(key, &fixture.path(name)).unwrap();
    }
    let held = File::open(fixture.path("unlinked")).unwrap();
    fs::remove_file(fixture.path("unlinked")).unwrap();
    fs::rename(fixture.path("other"), fixture.path("replaced")).unwrap();
    fs::remove_dir(fixture.path("directory")).unwrap();
    fs::rename(fixture.path("kept"), fixture.path("renamed")).unwrap();
    let kept = inode(&fixture.path("renamed"));
    let started = client.start_group(key, Default::default(), "").unwrap();
    assert_eq!(started.members, [GroupMember { inode: kept, directory: false }]);
    let view = fixture.root.join(started.begun.view.as_path());
    fs::remove_file(view.join("renamed")).unwrap();
    assert_eq!(members(&mut fixture.client(), key), [kept], "not before the commit");
    commit(&mut client);
    assert_eq!(members(&mut client, key), [0; 0]);
    assert_eq!(add(key, &held), Err(ENOENT), "a file without a name");
    assert_eq!(client.groups().unwrap()[0].members, 0);
    drop(held);
    fixture.finish();
}

#[test]
fn a_second_process_that_starts_a_running_group_joins_it() {
    let Some(fixture) = Fixture::new() else { return };
    write(&fixture.path("file"), "before");
    let (mut one, mut two) = (fixture.client(), fixture.client());
    let key = one.create_group().unwrap();
    add_path(key, &fixture.path("file")).unwrap();
    let first = one.start_group(key, Default::default(), "").unwrap();
    let second = two.start_group(key, Default::default(), "").unwrap();
    assert!(!first.joined && second.joined);
    assert_eq!((&first.begun, &first.members), (&second.begun, &second.members));
    let shown = fixture.client().list().unwrap();
    assert_eq!((shown.len(), shown[0].group, shown[0].participants), (1, Some(key), 2));
    let view = fixture.root.join(first.begun.view.as_path());
    write(&view.join("file"), "inside");
    drop(one);
    common::eventually("one has left", || fixture.client().list().unwrap()[0].participants == 1);
    commit(&mut two);
    assert_eq!(read(&fixture.path("file")), "inside");
    // The next one to start begins anew.
    let third = two.start_group(key, Default::default(), "").unwrap();
    assert!(!third.joined && third.begun != first.begun);
    drop(two);
    fixture.finish();
}

#[test]
fn many_start_one_group_at_once_and_take_part_in_the_same() {
    let Some(fixture) = Fixture::new() else { return };
    write(&fixture.path("file"), "");
    let key = fixture.client().create_group().unwrap();
    add_path(key, &fixture.path("file")).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..6 {
            let fixture = &fixture;
            scope.spawn(move || {
                let mut client = fixture.client();
                for round in 0..50 {
                    let started = client.start_group(key, Default::default(), "").unwrap();
                    assert_eq!(started.members.len(), 1);
                    let ended = match (round + thread) % 3 {
                        0 => client.abort(),
                        1 => client.leave(),
                        _ => client.commit(Durability::Ordered).map(drop),
                    };
                    match ended {
                        Ok(()) | Err(ProtocolError::EndedByOther { .. }) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
            });
        }
    });
    let mut client = fixture.client();
    assert_eq!((client.list().unwrap(), client.groups().unwrap()[0].transaction), (vec![], None));
    let stat = client.stat().unwrap();
    assert_eq!((&stat["mount"]["file_groups"], &stat["mount"]["file_group_members"]), (&1.into(), &1.into()));
    fixture.finish();
}

#[test]
fn deleting_a_running_group_aborts_it() {
    let Some(fixture) = Fixture::new() else { return };
    write(&fixture.path("file"), "before");
    let (mut one, mut two) = (fixture.client(), fixture.client());
    let key = one.create_group().unwrap();
    let file = File::open(fixture.path("file")).unwrap();
    add(key, &file).unwrap();
    let started = one.start_group(key, Default::default(), "").unwrap();
    let view = fixture.root.join(started.begun.view.as_path());
    write(&view.join("file"), "inside");
    two.delete_group(key).unwrap();
    assert!(!view.exists());
    let error = one.commit(Durability::Ordered).unwrap_err();
    assert_eq!(error.errno(), ECANCELED);
    assert!(error.to_string().contains("file group was deleted"), "{error}");
    assert_eq!(read(&fixture.path("file")), "before");
    assert_eq!(errno(two.delete_group(key)), EINVAL);
    assert_eq!(errno(two.group_members(key)), EINVAL);
    let key = two.create_group().unwrap();
    add(key, &file).unwrap();
    drop(file);
    fixture.finish();
}

#[test]
fn a_group_is_its_users_and_a_member_is_a_file_that_he_may_write() {
    let Some(fixture) = Fixture::for_all() else { return };
    let file = |name: &str, mode: u32| {
        write(&fixture.path(name), "");
        fs::set_permissions(fixture.path(name), PermissionsExt::from_mode(mode)).unwrap();
        File::open(fixture.path(name)).unwrap()
    };
    let (readable, writable, of_group) = (file("r", 0o644), file("w", 0o666), file("g", 0o664));
    let groups_own = rustix::process::getegid().as_raw();
    std::os::unix::fs::chown(fixture.path("g"), None, Some(groups_own + 77)).unwrap();
    let roots = fixture.client().create_group().unwrap();
    let theirs = as_user(NOBODY, NOBODY, &[], || {
        let mut client = fixture.client();
        assert_eq!(add(roots, &writable), Err(EPERM));
        for refused in [client.delete_group(roots), client.group_members(roots).map(drop)] {
            assert_eq!(errno(refused), EPERM);
        }
        assert_eq!(errno(client.start_group(roots, Default::default(), "")), EPERM);
        let key = client.create_group().unwrap();
        assert_eq!(client.groups().unwrap().len(), 1);
        assert_eq!(add(key, &readable), Err(EACCES));
        assert_eq!(add(key, &of_group), Err(EACCES));
        add(key, &writable).unwrap();
        key
    });
    as_user(NOBODY, NOBODY, &[5, groups_own + 77], || add(theirs, &of_group).unwrap());
    assert_eq!(fixture.client().groups().unwrap().len(), 2);
    // Root begins the group's transaction, and its user may join it and have files of his opened in it.
    let mut root = fixture.client();
    let started = root.start_group(theirs, Default::default(), "").unwrap();
    as_user(NOBODY, NOBODY, &[], || {
        let mut client = fixture.client();
        assert!(client.start_group(theirs, Default::default(), "").unwrap().joined);
        assert!(node_path(&writable, started.begun.transaction).is_ok());
        client.delete_group(theirs).unwrap();
    });
    assert_eq!(errno(root.commit(Durability::Ordered)), ECANCELED);
    drop((readable, writable, of_group));
    fixture.finish();
}

#[test]
fn only_files_and_directories_that_everybody_sees_are_members() {
    let Some(fixture) = Fixture::new() else { return };
    let mut client = fixture.client();
    let key = client.create_group().unwrap();
    add_path(key, &fixture.root).unwrap();
    assert_eq!(add_path(key, &fixture.path(".txfs")), Err(EPERM));
    let open = fixture.begin();
    write(&open.path("new"), "");
    let new = File::open(open.path("new")).unwrap();
    assert_eq!(add(key, &new), Err(ESTALE), "not committed yet");
    open.commit();
    assert_eq!(add(key, &new), Err(EEXIST), "inherited from the root");
    drop(new);
    fixture.finish();
    let options = MountOptions { read_only: true, ..MountOptions::default() };
    let Some(fixture) = Fixture::with(&options) else { return };
    assert_eq!(errno(fixture.client().create_group()), 30, "EROFS");
    fixture.finish();
}

#[test]
fn many_members_come_in_pages() {
    let Some(fixture) = Fixture::new() else { return };
    let mut client = fixture.client();
    let key = client.create_group().unwrap();
    add_path(key, &fixture.root).unwrap();
    for i in 0..10_500 {
        File::create(fixture.path(&i.to_string())).unwrap();
    }
    let started = client.start_group(key, Default::default(), "").unwrap();
    assert_eq!((started.members.len(), started.total), (10_501, 10_501));
    assert_eq!(members(&mut client, key).len(), 10_501);
    client.abort().unwrap();
    fixture.finish();
}
