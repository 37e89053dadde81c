//! The rules of file groups, by themselves.

use super::*;
use crate::views::{Beginner, Views};
use txfs::Volume;

const USER: u32 = 1000;

struct Fixture {
    _directory: tempfile::TempDir,
    views: Views,
    groups: Groups,
}

impl Fixture {
    fn new() -> Fixture {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("volume");
        Volume::create(&path).unwrap();
        let views = Views::new(Volume::open(&path).unwrap(), None);
        Fixture { _directory: directory, views, groups: Groups::default() }
    }

    fn begin(&self, group: Option<Key>) -> Arc<MountView> {
        let beginner = Beginner { pid: 1, uid: USER, command: String::new() };
        let view = self.views.open(self.views.volume().begin(), beginner, group).unwrap();
        assert!(group.is_none_or(|key| self.groups.begin(key, &view)));
        view
    }

    fn members(&self, key: Key) -> Vec<Ino> {
        self.groups.members(key, USER).unwrap().iter().map(|member| member.inode).collect()
    }
}

#[test]
fn a_group_is_its_users_and_roots() {
    let groups = Groups::default();
    let key = groups.create(USER).unwrap();
    assert_eq!(groups.add(key, USER + 1, 7, false), Err(GroupError::NotAllowed));
    assert_eq!(groups.delete(key, USER + 1).err(), Some(GroupError::NotAllowed));
    groups.add(key, 0, 7, false).unwrap();
    assert_eq!(groups.members(key, USER).unwrap(), [GroupMember { inode: 7, directory: false }]);
    assert_eq!((groups.list(USER).len(), groups.list(0).len(), groups.list(USER + 1).len()), (1, 1, 0));
    groups.delete(key, 0).unwrap();
    assert_eq!(groups.add(key, USER, 7, false), Err(GroupError::Unknown));
    assert_ne!(groups.create(USER).unwrap(), key, "a key is not used again soon");
}

#[test]
fn a_user_has_so_many_groups_at_most() {
    let groups = Groups::default();
    let keys: Vec<_> = (0..GROUPS_PER_USER_MAX).map(|_| groups.create(USER).unwrap()).collect();
    assert_eq!(groups.create(USER), Err(GroupError::TooMany));
    groups.create(USER + 1).unwrap();
    groups.delete(keys[5], USER).unwrap();
    groups.create(USER).unwrap();
}

#[test]
fn a_file_is_a_member_of_one_group() {
    let groups = Groups::default();
    let (one, two) = (groups.create(USER).unwrap(), groups.create(USER).unwrap());
    groups.add(one, USER, 7, false).unwrap();
    assert_eq!(groups.add(one, USER, 7, false), Err(GroupError::IsMember));
    assert_eq!(groups.add(two, USER, 7, false), Err(GroupError::IsMember));
    assert_eq!(groups.remove(two, USER, 7), Err(GroupError::NoMember));
    groups.remove(one, USER, 7).unwrap();
    groups.add(two, USER, 7, false).unwrap();
    groups.delete(two, USER).unwrap();
    groups.add(one, USER, 7, false).unwrap();
}

#[test]
fn what_inherited_leaves_with_its_directory() {
    let fixture = Fixture::new();
    let groups = &fixture.groups;
    let key = groups.create(USER).unwrap();
    groups.add(key, USER, 10, true).unwrap();
    groups.add(key, USER, 20, false).unwrap();
    let base = fixture.views.base();
    assert!(!groups.created(base, 10, 11, true) && !groups.created(base, 11, 12, false));
    assert!(!groups.created(base, 99, 13, false));
    assert_eq!(fixture.members(key), [10, 11, 12, 20]);
    groups.remove(key, USER, 10).unwrap();
    assert_eq!(fixture.members(key), [20]);
    assert!(!groups.created(base, 10, 14, false));
    assert_eq!((fixture.members(key), groups.directories.load(Ordering::Relaxed)), (vec![20], 0));
}

#[test]
fn what_a_transaction_creates_is_a_member_when_it_commits() {
    let fixture = Fixture::new();
    let groups = &fixture.groups;
    let key = groups.create(USER).unwrap();
    groups.add(key, USER, 10, true).unwrap();
    let view = fixture.begin(Some(key));
    assert!(!groups.created(&view, 10, 11, true) && !groups.created(&view, 11, 12, false));
    assert_eq!(fixture.members(key), [10]);
    groups.ended(&view, true);
    assert_eq!(fixture.members(key), [10, 11, 12]);
    let view = fixture.begin(Some(key));
    assert!(!groups.created(&view, 10, 13, true));
    groups.ended(&view, false);
    assert_eq!(fixture.members(key), [10, 11, 12], "aborted");
    assert_eq!(groups.directories.load(Ordering::Relaxed), 2);
    // Not the group's own transaction: the directory may leave meanwhile.
    let (other, third) = (fixture.begin(None), fixture.begin(None));
    assert!(!groups.created(&other, 10, 14, true) && !groups.created(&other, 14, 15, false));
    assert!(!groups.created(&third, 11, 16, false));
    groups.ended(&third, true);
    groups.remove(key, USER, 10).unwrap();
    groups.ended(&other, true);
    assert_eq!((fixture.members(key), groups.directories.load(Ordering::Relaxed)), (vec![], 0));
}

#[test]
fn a_running_group_keeps_its_members() {
    let fixture = Fixture::new();
    let groups = &fixture.groups;
    let key = groups.create(USER).unwrap();
    groups.add(key, USER, 10, true).unwrap();
    let view = fixture.begin(Some(key));
    assert_eq!(groups.add(key, USER, 11, false), Err(GroupError::Running));
    assert_eq!(groups.remove(key, USER, 10), Err(GroupError::Running));
    assert!(!groups.begin(key, &fixture.begin(None)), "one at a time");
    assert_eq!(groups.list(USER)[0].transaction, Some(view.transaction().unwrap().transaction.id()));
    groups.ended(&fixture.begin(None), true);
    assert_eq!(groups.remove(key, USER, 10), Err(GroupError::Running), "another one has ended");
    groups.ended(&view, true);
    groups.remove(key, USER, 10).unwrap();
    let view = fixture.begin(Some(key));
    assert_eq!(groups.delete(key, USER).unwrap().map(|running| running.index), Some(view.index));
    groups.ended(&view, false);
}

#[test]
fn members_that_are_gone_are_dropped_now_and_then() {
    let fixture = Fixture::new();
    let groups = &fixture.groups;
    let key = groups.create(USER).unwrap();
    groups.add(key, USER, 1, true).unwrap();
    let base = fixture.views.base();
    let mut sweeps = 0;
    for ino in 2..10_000 {
        if groups.created(base, 1, ino, false) {
            groups.sweep(|member| member == 1 || member > ino - 10);
            sweeps += 1;
        }
    }
    assert!((5..=10).contains(&sweeps), "{sweeps}");
    assert!(fixture.members(key).len() < 2 * UNSEEN_MEMBERS_MAX);
}
