//! File groups: sets of files and directories whose changes belong to one transaction (exF2FS, FAST '22).
//!
//! A group has a key, a user, members by inode number, and at most one running transaction. A file belongs to one group
//! at most. What is created in a member directory becomes a member, in the base view at once and in a transaction when
//! that commits; it leaves together with the directory. While a transaction of the group runs, nobody adds or removes
//! members. Groups live in memory, for as long as the mount does.
//!
//! Inode numbers are never used twice, so a member that has been removed from the volume does no harm; it is dropped when
//! the members are listed, and when too many may have gathered.
//! Locks: `Groups::state` is a leaf.

use crate::nodes::ViewIndex;
use crate::views::MountView;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use txfs::Ino;
use txfs_protocol::{FileGroup, GroupMember};

/// A group's key.
pub(crate) type Key = u32;

/// Keys are positive as a C `int`.
const KEY_MAX: Key = i32::MAX as Key;

/// How many groups one user may have.
const GROUPS_PER_USER_MAX: usize = 1024;

/// How many members may have been added since the last look for those that are gone.
const UNSEEN_MEMBERS_MAX: usize = 1000;

/// Why something about a group is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GroupError {
    /// There is no such group.
    Unknown,
    /// It is another user's.
    NotAllowed,
    /// Its transaction is running.
    Running,
    /// The file is a member of a group already, of this one or another.
    IsMember,
    /// The file is no member of the group.
    NoMember,
    /// The user has as many groups as he may have.
    TooMany,
}

/// The file groups of one mount.
#[derive(Default)]
pub(crate) struct Groups {
    state: Mutex<State>,
    /// How many directories hand on their membership: with none, creating files asks no further.
    directories: AtomicUsize,
}

#[derive(Default)]
struct State {
    by_key: BTreeMap<Key, Group>,
    members: HashMap<Ino, Member>,
    created: HashMap<ViewIndex, Created>,
    /// Directories among the members, and among what transactions have created.
    directories: usize,
    last_key: Key,
    /// How many members there were when somebody looked for those that are gone.
    seen: usize,
}

/// What a transaction has created in member directories.
#[derive(Default)]
struct Created {
    /// In order.
    all: Vec<(Ino, Member)>,
    /// The directories among it.
    directories: HashMap<Ino, Key>,
}

struct Group {
    uid: u32,
    members: BTreeSet<Ino>,
    running: Option<Arc<MountView>>,
}

#[derive(Clone, Copy)]
struct Member {
    key: Key,
    directory: bool,
    /// The directory that it was created in, if that made it a member.
    heir_of: Option<Ino>,
}

impl State {
    fn group(&mut self, key: Key, uid: u32) -> Result<&mut Group, GroupError> {
        let group = self.by_key.get_mut(&key).ok_or(GroupError::Unknown)?;
        if uid == 0 || uid == group.uid { Ok(group) } else { Err(GroupError::NotAllowed) }
    }

    /// The group, if its members may change now.
    fn resting_group(&mut self, key: Key, uid: u32) -> Result<&mut Group, GroupError> {
        let group = self.group(key, uid)?;
        if group.running.is_some() { Err(GroupError::Running) } else { Ok(group) }
    }

    fn insert(&mut self, ino: Ino, member: Member) {
        if let Some(group) = self.by_key.get_mut(&member.key) {
            group.members.insert(ino);
            self.members.insert(ino, member);
            self.directories += usize::from(member.directory);
        }
    }

    fn remove(&mut self, ino: Ino) {
        if let Some(member) = self.members.remove(&ino) {
            self.directories -= usize::from(member.directory);
            if let Some(group) = self.by_key.get_mut(&member.key) {
                group.members.remove(&ino);
            }
        }
    }

    /// The group that what is created in a directory belongs to, as a view sees the directory.
    fn group_of(&self, view: Option<ViewIndex>, directory: Ino) -> Option<Key> {
        let created = view.and_then(|view| self.created.get(&view)?.directories.get(&directory).copied());
        created
            .or_else(|| self.members.get(&directory).filter(|member| member.directory).map(|known| known.key))
    }
}

impl Groups {
    /// Changes the groups, and notes what creating files has to know.
    fn change<T>(&self, work: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state.lock();
        let done = work(&mut state);
        self.directories.store(state.directories, Ordering::Release);
        done
    }

    /// Makes a group; returns its key.
    pub(crate) fn create(&self, uid: u32) -> Result<Key, GroupError> {
        let mut state = self.state.lock();
        if state.by_key.values().filter(|group| group.uid == uid).count() >= GROUPS_PER_USER_MAX {
            return Err(GroupError::TooMany);
        }
        let mut key = state.last_key;
        loop {
            key = if key >= KEY_MAX { 1 } else { key + 1 };
            if !state.by_key.contains_key(&key) {
                break;
            }
        }
        state.last_key = key;
        state.by_key.insert(key, Group { uid, members: BTreeSet::new(), running: None });
        Ok(key)
    }

    /// Deletes a group; returns the view of its transaction, which is to be aborted then.
    pub(crate) fn delete(&self, key: Key, uid: u32) -> Result<Option<Arc<MountView>>, GroupError> {
        self.change(|state| {
            state.group(key, uid)?;
            let group = state.by_key.remove(&key).ok_or(GroupError::Unknown)?;
            group.members.iter().for_each(|ino| state.remove(*ino));
            // What transactions have created in its directories finds no group when they end.
            Ok(group.running)
        })
    }

    /// Makes a file or directory a member.
    pub(crate) fn add(&self, key: Key, uid: u32, ino: Ino, directory: bool) -> Result<(), GroupError> {
        self.change(|state| {
            state.resting_group(key, uid)?;
            if state.members.contains_key(&ino) {
                return Err(GroupError::IsMember);
            }
            state.insert(ino, Member { key, directory, heir_of: None });
            Ok(())
        })
    }

    /// Ends a membership, and that of everything which has inherited it.
    pub(crate) fn remove(&self, key: Key, uid: u32, ino: Ino) -> Result<(), GroupError> {
        self.change(|state| {
            let members = state.resting_group(key, uid)?.members.clone();
            if !members.contains(&ino) {
                return Err(GroupError::NoMember);
            }
            let mut heirs: HashMap<Ino, Vec<Ino>> = HashMap::new();
            for member in members {
                if let Some(from) = state.members.get(&member).and_then(|known| known.heir_of) {
                    heirs.entry(from).or_default().push(member);
                }
            }
            let mut leaving = vec![ino];
            while let Some(ino) = leaving.pop() {
                state.remove(ino);
                leaving.extend(heirs.remove(&ino).into_iter().flatten());
            }
            Ok(())
        })
    }

    /// A user of a group begins its transaction: who may join it, and the view of the one that runs already.
    pub(crate) fn look(&self, key: Key, uid: u32) -> Result<(u32, Option<Arc<MountView>>), GroupError> {
        let mut state = self.state.lock();
        let group = state.group(key, uid)?;
        Ok((group.uid, group.running.clone()))
    }

    /// Notes the group's transaction; false when there is no such group any more, or another one runs.
    pub(crate) fn begin(&self, key: Key, view: &Arc<MountView>) -> bool {
        let mut state = self.state.lock();
        match state.by_key.get_mut(&key) {
            Some(group) if group.running.is_none() => {
                group.running = Some(view.clone());
                true
            }
            _ => false,
        }
    }

    /// A view's transaction has ended, of a group or not: what was created in it becomes a member now or never.
    pub(crate) fn ended(&self, view: &MountView, committed: bool) {
        let running = view.transaction().and_then(|transaction| transaction.group);
        if running.is_none() && self.directories.load(Ordering::Acquire) == 0 {
            return;
        }
        self.change(|state| {
            if let Some(group) = running.and_then(|key| state.by_key.get_mut(&key))
                && group.running.as_ref().is_some_and(|running| running.index == view.index)
            {
                group.running = None;
            }
            let created = state.created.remove(&view.index).unwrap_or_default();
            state.directories -= created.directories.len();
            for (ino, member) in created.all {
                // Meanwhile its directory may have left, and what was created in it with it.
                let parents = member.heir_of.and_then(|parent| state.members.get(&parent));
                if committed && parents.is_some_and(|parent| parent.key == member.key) {
                    state.insert(ino, member);
                }
            }
        });
    }

    /// A file or directory has been created. True when it is time to look for members that are gone.
    pub(crate) fn created(&self, view: &MountView, parent: Ino, ino: Ino, directory: bool) -> bool {
        if self.directories.load(Ordering::Acquire) == 0 {
            return false;
        }
        let transaction = view.transaction().map(|_| view.index);
        self.change(|state| {
            let Some(key) = state.group_of(transaction, parent) else { return false };
            let member = Member { key, directory, heir_of: Some(parent) };
            let Some(index) = transaction else {
                state.insert(ino, member);
                return state.members.len() > 2 * state.seen + UNSEEN_MEMBERS_MAX;
            };
            let created = state.created.entry(index).or_default();
            created.all.push((ino, member));
            if directory {
                created.directories.insert(ino, key);
                state.directories += 1;
            }
            false
        })
    }

    /// The members of a group, by inode number, those included that are gone.
    pub(crate) fn members(&self, key: Key, uid: u32) -> Result<Vec<GroupMember>, GroupError> {
        let mut state = self.state.lock();
        let inos: Vec<Ino> = state.group(key, uid)?.members.iter().copied().collect();
        let directory = |ino: &Ino| state.members.get(ino).is_some_and(|member| member.directory);
        Ok(inos.iter().map(|ino| GroupMember { inode: *ino, directory: directory(ino) }).collect())
    }

    /// Drops those members for which `exists` says that they are gone.
    pub(crate) fn sweep(&self, exists: impl Fn(Ino) -> bool) {
        let all: Vec<Ino> = self.state.lock().members.keys().copied().collect();
        let gone: Vec<Ino> = all.into_iter().filter(|ino| !exists(*ino)).collect();
        self.drop_members(&gone);
        let mut state = self.state.lock();
        state.seen = state.members.len();
    }

    /// Drops members that are gone.
    pub(crate) fn drop_members(&self, gone: &[Ino]) {
        self.change(|state| gone.iter().for_each(|ino| state.remove(*ino)));
    }

    /// The groups that a user may use.
    pub(crate) fn list(&self, uid: u32) -> Vec<FileGroup> {
        let state = self.state.lock();
        let own = state.by_key.iter().filter(|(_, group)| uid == 0 || uid == group.uid);
        let running = |group: &Group| {
            let view = group.running.as_ref()?;
            Some(view.transaction()?.transaction.id())
        };
        own.map(|(key, group)| FileGroup {
            key: *key,
            uid: group.uid,
            members: group.members.len() as u64,
            transaction: running(group),
        })
        .collect()
    }

    /// How many groups and members there are.
    pub(crate) fn count(&self) -> (usize, usize) {
        let state = self.state.lock();
        (state.by_key.len(), state.members.len())
    }
}

#[cfg(test)]
mod tests;
