//! A client's part in shared transactions and file groups.

use crate::{
    Begun, Client, FileGroup, GroupMember, GroupStarted, Isolation, PathText, ProtocolError, Request,
    Response,
};

impl Client {
    /// Takes part in the transaction whose view is this directory (`Begun::view`, or the last part of it).
    pub fn join(&mut self, view: PathText) -> Result<Begun, ProtocolError> {
        self.begin_as(Request::Join { view })
    }

    /// Takes part no longer; the last one to leave aborts the transaction.
    pub fn leave(&mut self) -> Result<(), ProtocolError> {
        self.expect_done(&Request::Leave)
    }

    /// Makes a file group and returns its key.
    pub fn create_group(&mut self) -> Result<u32, ProtocolError> {
        match self.call(&Request::GroupCreate)? {
            Response::Group { key } => Ok(key),
            _ => Err(ProtocolError::Unexpected { request: "group_create" }),
        }
    }

    /// Deletes a file group; its transaction is aborted.
    pub fn delete_group(&mut self, key: u32) -> Result<(), ProtocolError> {
        self.expect_done(&Request::GroupDelete { key })
    }

    /// The file groups that this user may use.
    pub fn groups(&mut self) -> Result<Vec<FileGroup>, ProtocolError> {
        match self.call(&Request::GroupList)? {
            Response::Groups { groups } => Ok(groups),
            _ => Err(ProtocolError::Unexpected { request: "group_list" }),
        }
    }

    /// Starts the transaction of a file group, or joins it; the answer holds all members.
    pub fn start_group(
        &mut self,
        key: u32,
        isolation: Isolation,
        label: &str,
    ) -> Result<GroupStarted, ProtocolError> {
        let request = Request::GroupStart { key, isolation, label: label.to_owned(), policy: None };
        match self.call(&request)? {
            Response::GroupStarted(mut started) => {
                self.all_members(key, &mut started.members, started.total)?;
                Ok(started)
            }
            _ => Err(ProtocolError::Unexpected { request: "group_start" }),
        }
    }

    /// The members of a file group.
    pub fn group_members(&mut self, key: u32) -> Result<Vec<GroupMember>, ProtocolError> {
        let mut members = Vec::new();
        self.all_members(key, &mut members, u64::MAX)?;
        Ok(members)
    }

    /// Asks for members until there are `total`, or no more.
    fn all_members(
        &mut self,
        key: u32,
        members: &mut Vec<GroupMember>,
        mut total: u64,
    ) -> Result<(), ProtocolError> {
        while (members.len() as u64) < total {
            match self.call(&Request::GroupMembers { key, start: members.len() as u64 })? {
                Response::GroupMembers { members: more, total: now } => {
                    if more.is_empty() {
                        return Ok(());
                    }
                    members.extend(more);
                    total = now;
                }
                _ => return Err(ProtocolError::Unexpected { request: "group_members" }),
            }
        }
        Ok(())
    }
}
