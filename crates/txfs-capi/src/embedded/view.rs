//! A handle of something to look at a volume through: its present state, a transaction, or a snapshot; and of a directory
//! in it where relative paths start.

use std::ffi::c_int;
use std::sync::Arc;

use volume::{BaseView, Ino, Place, ROOT_INO, SnapshotView, View};

use super::arguments::{Handle, Out, Text};
use super::failure::{Failure, Result, done};
use super::transaction::Attempt;
use super::volumes::{Core, Use};

/// What is looked at.
pub enum Source {
    Base(BaseView),
    Transaction(Attempt),
    Snapshot(SnapshotView),
}

impl Source {
    pub fn view(&self) -> &dyn View {
        match self {
            Source::Base(view) => view,
            Source::Transaction(attempt) => &attempt.transaction,
            Source::Snapshot(view) => view,
        }
    }
}

/// `txfs_view`
pub struct ViewHandle {
    pub core: Arc<Core>,
    pub source: Arc<Source>,
    pub start: Ino,
    /// None for the one that belongs to the volume's handle.
    _use: Option<Use>,
    /// It began the transaction, and closing it ends that.
    is_owner: bool,
}

impl ViewHandle {
    /// The view that belongs to the volume's handle.
    pub fn of_volume(core: &Arc<Core>, source: Source) -> ViewHandle {
        let (core, source) = (core.clone(), Arc::new(source));
        ViewHandle { core, source, start: ROOT_INO, _use: None, is_owner: false }
    }

    /// A handle of its own.
    pub fn new(core: &Arc<Core>, source: Source) -> ViewHandle {
        let used = Some(Use::of(core));
        let (core, source) = (core.clone(), Arc::new(source));
        ViewHandle { core, source, start: ROOT_INO, _use: used, is_owner: true }
    }

    pub fn view(&self) -> &dyn View {
        self.source.view()
    }

    pub fn place(&self) -> Place<'_> {
        Place::new(self.view(), self.start)
    }

    pub fn transaction(&self) -> Result<&Attempt> {
        match &*self.source {
            Source::Transaction(attempt) => Ok(attempt),
            _ => Err(Failure::invalid("the view is not that of a transaction")),
        }
    }

    /// The node at a path.
    pub fn find(&self, doing: &'static str, path: &[u8], follow_last: bool) -> Result<Ino> {
        self.place().find(path, follow_last).map_err(|error| Failure::at(doing, path, error))
    }
}

impl Drop for ViewHandle {
    fn drop(&mut self) {
        if self.start != ROOT_INO {
            self.view().closed(self.start);
        }
        if let (true, Source::Transaction(attempt)) = (self.is_owner, &*self.source) {
            attempt.transaction.abort();
        }
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn txfs_view_at(view: Handle<ViewHandle>, path: Text, result: Out<*mut ViewHandle>) -> c_int {
    done(|| {
        result.check()?;
        let (view, path) = (view.get()?, path.path()?);
        let ino = view.find("look at", path, true)?;
        let failed = |error| Failure::at("look at", path, error);
        // From here on the handle gives it back.
        let opened = view.view().opened(ino).map_err(failed)?;
        let at = ViewHandle {
            core: view.core.clone(),
            source: view.source.clone(),
            start: ino,
            _use: Some(Use::of(&view.core)),
            is_owner: false,
        };
        if !opened.is_directory() {
            return Err(failed(volume::Error::NotDirectory));
        }
        result.give(at);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn txfs_view_close(view: Handle<ViewHandle>) -> c_int {
    done(|| {
        if let Ok(open) = view.get()
            && open._use.is_none()
        {
            return Err(Failure::invalid("the base view goes with its volume"));
        }
        drop(view.take());
        Ok(())
    })
}
