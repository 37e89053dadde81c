//! Messages about file groups.

use super::connection::{Connection, refuse, shortened};
use super::join::finish;
use crate::errno::Errno;
use crate::groups::{GroupError, Key};
use crate::sharing::Ending;
use crate::views::{Beginner, MountView};
use std::sync::Arc;
use txfs::TransactionOptions;
use txfs_protocol::{GroupMember, GroupStarted, Response};

/// How many members one response holds at most.
const MEMBERS_TOGETHER: usize = 10_000;

impl Connection {
    pub(super) fn create_group(&self) -> Response {
        if self.shared().options.read_only || self.shared().options.snapshot.is_some() {
            return refuse(rustix::io::Errno::ROFS, "the volume is mounted read-only");
        }
        match self.shared().filesystem.groups.create(self.peer.uid) {
            Ok(key) => Response::Group { key },
            Err(error) => refused(error),
        }
    }

    pub(super) fn list_groups(&self) -> Response {
        Response::Groups { groups: self.shared().filesystem.groups.list(self.peer.uid) }
    }

    pub(super) fn delete_group(&self, key: Key) -> Response {
        let filesystem = &self.shared().filesystem;
        let running = match filesystem.groups.delete(key, self.peer.uid) {
            Ok(running) => running,
            Err(error) => return refused(error),
        };
        if let Some(view) = running
            && let Some(open) = view.transaction()
        {
            let aborted = open.sharing.end(|| {
                open.transaction.abort();
                finish(filesystem, &view, false);
                ((), Some(Ending::DELETED))
            });
            // Somebody may have ended it a moment ago; then it is over, too.
            drop(aborted);
        }
        Response::Done
    }

    /// Starts a group's transaction, or joins the one that runs.
    pub(super) fn start_group(&mut self, key: Key, options: TransactionOptions) -> Response {
        if let Some(refusal) = self.has_transaction() {
            return refusal;
        }
        loop {
            let (uid, running) = match self.shared().filesystem.groups.look(key, self.peer.uid) {
                Ok(found) => found,
                Err(error) => return refused(error),
            };
            let (view, joined) = match running {
                // One that has just ended is not the group's any more.
                Some(view) => match view.transaction().map(|open| open.sharing.join()) {
                    Some(Ok(())) => (view, true),
                    Some(Err(_)) => continue,
                    None => return refused(GroupError::Unknown),
                },
                None => match self.begin_group(key, uid, options.clone()) {
                    Ok(Some(view)) => (view, false),
                    Ok(None) => continue,
                    Err(refusal) => return refusal,
                },
            };
            if joined {
                self.attempts = None;
            }
            if let Response::Begun(begun) = self.take_part(view) {
                self.look_for_members(key);
                let members = self.page_of_members(0);
                let total = self.members.len() as u64;
                return Response::GroupStarted(GroupStarted { begun, joined, members, total });
            }
        }
    }

    /// Begins a group's transaction; `None` when another one was faster.
    fn begin_group(
        &mut self,
        key: Key,
        uid: u32,
        options: TransactionOptions,
    ) -> Result<Option<Arc<MountView>>, Response> {
        let command = match options.label.is_empty() {
            true => options.command.clone().unwrap_or_default(),
            false => shortened(options.label.clone()),
        };
        // It is open to whom the group is open to.
        let beginner = Beginner { uid, command, ..self.peer.clone() };
        let filesystem = self.shared().filesystem.clone();
        self.attempts = None;
        let transaction = filesystem.views.volume().begin_with(options);
        let view = self.show_as(transaction, beginner, Some(key))?;
        if filesystem.groups.begin(key, &view) {
            return Ok(Some(view));
        }
        if let Some(open) = view.transaction() {
            open.transaction.abort();
        }
        finish(&filesystem, &view, false);
        Ok(None)
    }

    pub(super) fn group_members(&mut self, key: Key, start: u64) -> Response {
        if start == 0 {
            if let Err(error) = self.shared().filesystem.groups.look(key, self.peer.uid) {
                return refused(error);
            }
            self.look_for_members(key);
        }
        Response::GroupMembers {
            members: self.page_of_members(usize::try_from(start).unwrap_or(usize::MAX)),
            total: self.members.len() as u64,
        }
    }

    /// Lists the members that are still there.
    fn look_for_members(&mut self, key: Key) {
        let filesystem = self.shared().filesystem.clone();
        let members = filesystem.groups.members(key, self.peer.uid).unwrap_or_default();
        let (there, gone): (Vec<_>, Vec<_>) =
            members.into_iter().partition(|member| filesystem.has_name(member.inode));
        let gone: Vec<_> = gone.into_iter().map(|member| member.inode).collect();
        if !gone.is_empty() {
            filesystem.groups.drop_members(&gone);
        }
        self.members = there;
    }

    fn page_of_members(&self, start: usize) -> Vec<GroupMember> {
        self.members.iter().skip(start).take(MEMBERS_TOGETHER).copied().collect()
    }
}

fn refused(error: GroupError) -> Response {
    let message = match error {
        GroupError::Unknown => "there is no file group with this key",
        GroupError::NotAllowed => "only the user who made a file group and root may use it",
        GroupError::Running => "a transaction of this file group is running; end it first",
        GroupError::IsMember => "the file is a member of a file group already",
        GroupError::NoMember => "the file is no member of this file group",
        GroupError::TooMany => "this user has as many file groups as one may have; delete some",
    };
    Response::Error { errno: Errno::from(error).0, message: message.into() }
}
