//! One client's random work, written down as it goes.

use super::access::{Access, Failure, Outcome};
use super::layout::{ATTRIBUTES, Layout, NAMES, OUTSIDE, PAGE_BYTES, PAGES, content, value_of};
use crate::history::{ABSENT, Item, Kind, Outcome as End, Record, Recorder, UNKNOWN, Value};

/// A client.
pub struct Worker<'a> {
    /// Its number, unique.
    pub process: u32,
    /// What it works on.
    pub layout: &'a Layout,
    /// Its choices.
    pub random: fastrand::Rng,
    /// The clock of all clients, in nanoseconds.
    pub now: &'a (dyn Fn() -> u64 + Sync),
    /// Numbers given away.
    pub values: u64,
    /// Owners may be changed.
    pub owners: bool,
}

/// Which operations a step may be.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Steps {
    Any,
    ReadsOnly,
}

impl Worker<'_> {
    /// A number that nobody else gives away, below 2^32.
    fn value(&mut self) -> Value {
        self.values += 1;
        u64::from(self.process + 1) << 24 | self.values
    }

    fn pick(&mut self, from: &[u64]) -> u64 {
        from[self.random.usize(0..from.len())]
    }

    fn file(&mut self) -> u64 {
        let layout = self.layout;
        self.pick(&layout.files)
    }

    fn page(&mut self) -> Item {
        let file = self.file();
        Item::new(Kind::Page, file, self.random.u64(0..PAGES))
    }

    fn name(&mut self) -> Item {
        let layout = self.layout;
        Item::new(Kind::Name, self.pick(&layout.directories), self.random.u64(0..NAMES))
    }

    fn attribute(&mut self) -> Item {
        Item::new(Kind::Xattr, self.file(), self.random.u64(0..ATTRIBUTES))
    }

    /// Lets others run in between: two processors would make transactions of microseconds follow each other.
    fn pause(&mut self) {
        match self.random.u8(0..40) {
            0 => std::thread::sleep(std::time::Duration::from_micros(50)),
            1..=14 => std::thread::yield_now(),
            _ => {}
        }
    }

    /// The inside of one transaction. `Conflict` when it cannot go on.
    pub fn transaction(&mut self, access: &dyn Access, recorder: &mut Recorder) -> Outcome<()> {
        match self.random.u8(0..10) {
            // What write skew is made of.
            0..=1 => {
                let (one, other) = (self.page(), self.page());
                self.read_page(access, recorder, one)?;
                self.read_page(access, recorder, other)?;
                self.pause();
                self.write_page(access, recorder, one)?;
                self.pause();
                Ok(())
            }
            // And updates that are easily lost.
            2 => {
                let page = self.page();
                self.read_page(access, recorder, page)?;
                self.pause();
                self.write_page(access, recorder, page)
            }
            kind => {
                let steps = if kind <= 4 { Steps::ReadsOnly } else { Steps::Any };
                for _ in 0..self.random.u8(1..7) {
                    match self.step(access, recorder, steps) {
                        Err(Failure::Refused) => {
                            return Err(Failure::Wrong("refused although it had looked before".into()));
                        }
                        result => result?,
                    }
                    self.pause();
                }
                Ok(())
            }
        }
    }

    fn step(&mut self, access: &dyn Access, recorder: &mut Recorder, steps: Steps) -> Outcome<()> {
        if steps == Steps::ReadsOnly || self.random.bool() {
            return self.read_something(access, recorder);
        }
        let layout = self.layout;
        match self.random.u8(0..17) {
            0..=4 => {
                let page = self.page();
                self.write_page(access, recorder, page)
            }
            5 if self.owners => {
                let (file, value) = (self.file(), self.value());
                access.set_owner(file, value)?;
                recorder.write(Item::new(Kind::Permissions, file, 0), value);
                Ok(())
            }
            6 => {
                let (file, size) = (self.pick(&layout.sized), self.value());
                access.set_size(file, size)?;
                recorder.write(Item::new(Kind::Size, file, 0), size);
                Ok(())
            }
            7 => {
                let file = self.pick(&layout.growing);
                let offset = self.behind(access.size(file)?);
                access.grow(file, offset)?;
                recorder.raise(Item::new(Kind::End, file, 0), offset + 8);
                Ok(())
            }
            8 => {
                let file = self.pick(&layout.growing);
                let item = Item::new(Kind::End, file, 0);
                let offset = access.append(file)?;
                // On a mount: inside of a transaction it went where the transaction sees the end.
                let offset = offset.map_or_else(|| Ok(access.size(file)? - 8), Ok)?;
                recorder.read(item, offset);
                recorder.write(item, offset + 8);
                Ok(())
            }
            9..=10 => self.write_attribute(access, recorder),
            11..=12 => self.put_name(access, recorder),
            13 => self.remove_name(access, recorder),
            14 => self.move_name(access, recorder),
            _ => self.write_through_name(access, recorder),
        }
    }

    fn read_something(&mut self, access: &dyn Access, recorder: &mut Recorder) -> Outcome<()> {
        let layout = self.layout;
        match self.random.u8(0..15) {
            0..=4 => {
                let page = self.page();
                self.read_page(access, recorder, page)
            }
            5 => {
                let file = self.file();
                recorder.read(Item::new(Kind::Permissions, file, 0), access.owner(file)?);
                Ok(())
            }
            6 => {
                let file = self.pick(&layout.sized);
                recorder.read(Item::new(Kind::Size, file, 0), access.size(file)?);
                Ok(())
            }
            7 => {
                let file = self.pick(&layout.growing);
                recorder.read(Item::new(Kind::End, file, 0), access.end(file)?);
                Ok(())
            }
            8..=9 => {
                let item = self.attribute();
                recorder.read(item, access.attribute(item.object, item.member)?.unwrap_or(ABSENT));
                Ok(())
            }
            10 => {
                let file = self.file();
                let found = access.attributes(file)?.into_iter().map(|name| (name, UNKNOWN)).collect();
                recorder.list(Kind::Xattr, file, found);
                Ok(())
            }
            11 => {
                let directory = self.pick(&layout.directories);
                recorder.list(Kind::Name, directory, access.list(directory)?);
                Ok(())
            }
            12 => {
                let item = self.name();
                recorder.read(item, access.find(item.object, item.member)?.unwrap_or(ABSENT));
                Ok(())
            }
            _ => {
                let item = self.name();
                let found = access.find(item.object, item.member)?;
                recorder.read(item, found.unwrap_or(ABSENT));
                if let Some(file) = found {
                    let bytes = access.read_named(item.object, item.member, file)?;
                    recorder.read(Item::new(Kind::Page, file, 0), value_of(&bytes));
                }
                Ok(())
            }
        }
    }

    /// Some place behind the end, seldom in the next page.
    fn behind(&mut self, end: u64) -> u64 {
        (end.div_ceil(PAGE_BYTES) + self.random.u64(0..4)) * PAGE_BYTES + self.random.u64(0..400) * 8
    }

    fn read_page(&mut self, access: &dyn Access, recorder: &mut Recorder, page: Item) -> Outcome<()> {
        let bytes = access.read(page.object, page.member)?;
        let value = value_of(&bytes);
        if page.member.is_multiple_of(2) && bytes != content(value) {
            return Err(Failure::Wrong(format!("{page} is a mixture of several writes")));
        }
        recorder.read(page, value);
        Ok(())
    }

    fn write_page(&mut self, access: &dyn Access, recorder: &mut Recorder, page: Item) -> Outcome<()> {
        let value = self.value();
        let bytes = content(value);
        let len = if page.member.is_multiple_of(2) { bytes.len() } else { 8 };
        access.write(page.object, page.member, &bytes[..len])?;
        recorder.write(page, value);
        Ok(())
    }

    fn write_attribute(&mut self, access: &dyn Access, recorder: &mut Recorder) -> Outcome<()> {
        let item = self.attribute();
        let value = if self.random.bool() { Some(self.value()) } else { None };
        match access.set_attribute(item.object, item.member, value) {
            // There was none to remove.
            Err(Failure::Refused) if value.is_none() => recorder.read(item, ABSENT),
            result => {
                result?;
                recorder.write(item, value.unwrap_or(ABSENT));
            }
        }
        Ok(())
    }

    fn put_name(&mut self, access: &dyn Access, recorder: &mut Recorder) -> Outcome<()> {
        let item = self.clear_name(access, recorder)?;
        let file = access.create(item.object, item.member)?;
        recorder.write(item, file);
        let value = self.value();
        access.write_named(item.object, item.member, file, &value.to_le_bytes())?;
        recorder.write(Item::new(Kind::Page, file, 0), value);
        Ok(())
    }

    fn remove_name(&mut self, access: &dyn Access, recorder: &mut Recorder) -> Outcome<()> {
        self.clear_name(access, recorder).map(drop)
    }

    /// Sees to it that a name is not there, and says which.
    fn clear_name(&mut self, access: &dyn Access, recorder: &mut Recorder) -> Outcome<Item> {
        let item = self.name();
        let found = access.find(item.object, item.member)?;
        recorder.read(item, found.unwrap_or(ABSENT));
        if found.is_some() {
            access.remove(item.object, item.member)?;
            recorder.write(item, ABSENT);
        }
        Ok(item)
    }

    /// Only ever from a name to a later one, so that a file comes to each name at most once, and says which version of
    /// the name it is.
    fn move_name(&mut self, access: &dyn Access, recorder: &mut Recorder) -> Outcome<()> {
        let (one, other) = (self.name(), self.name());
        let (from, to) = (one.min(other), one.max(other));
        let found = access.find(from.object, from.member)?;
        recorder.read(from, found.unwrap_or(ABSENT));
        let Some(file) = found.filter(|_| from != to) else { return Ok(()) };
        recorder.read(to, access.find(to.object, to.member)?.unwrap_or(ABSENT));
        access.rename((from.object, from.member), (to.object, to.member))?;
        recorder.write(from, ABSENT);
        recorder.write(to, file);
        Ok(())
    }

    fn write_through_name(&mut self, access: &dyn Access, recorder: &mut Recorder) -> Outcome<()> {
        let item = self.name();
        let found = access.find(item.object, item.member)?;
        recorder.read(item, found.unwrap_or(ABSENT));
        if let Some(file) = found {
            let value = self.value();
            access.write_named(item.object, item.member, file, &value.to_le_bytes())?;
            recorder.write(Item::new(Kind::Page, file, 0), value);
        }
        Ok(())
    }

    /// One call outside of transactions, which is a transaction of its own. `sequence` says, after the call, the number
    /// of its commit or snapshot, where that is known.
    pub fn call(
        &mut self,
        access: &dyn Access,
        sequence: &dyn Fn() -> Option<u64>,
    ) -> Outcome<Option<Record>> {
        let layout = self.layout;
        let mut recorder = Recorder::begin(self.process | OUTSIDE, (self.now)());
        match self.random.u8(0..12) {
            0..=2 => {
                let page = self.page();
                self.write_page(access, &mut recorder, page)?;
            }
            3..=4 => {
                let page = self.page();
                self.read_page(access, &mut recorder, page)?;
            }
            5 => {
                let file = self.pick(&layout.sized);
                if self.random.bool() {
                    let size = self.value();
                    access.set_size(file, size)?;
                    recorder.write(Item::new(Kind::Size, file, 0), size);
                } else {
                    recorder.read(Item::new(Kind::Size, file, 0), access.size(file)?);
                }
            }
            6 => {
                let file = self.file();
                let item = Item::new(Kind::Permissions, file, 0);
                if self.owners && self.random.bool() {
                    let value = self.value();
                    access.set_owner(file, value)?;
                    recorder.write(item, value);
                } else {
                    recorder.read(item, access.owner(file)?);
                }
            }
            7 => self.write_attribute(access, &mut recorder)?,
            8 => {
                let item = self.attribute();
                recorder.read(item, access.attribute(item.object, item.member)?.unwrap_or(ABSENT));
            }
            9 => {
                let item = self.name();
                match self.random.u8(0..3) {
                    0 => match access.create(item.object, item.member) {
                        Ok(file) => {
                            recorder.read(item, ABSENT);
                            recorder.write(item, file);
                        }
                        Err(Failure::Refused) => return Ok(None),
                        Err(wrong) => return Err(wrong),
                    },
                    1 => match access.remove(item.object, item.member) {
                        Ok(()) => recorder.write(item, ABSENT),
                        Err(Failure::Refused) => recorder.read(item, ABSENT),
                        Err(wrong) => return Err(wrong),
                    },
                    _ => {
                        let unique = self.value();
                        let file = access.replace(item.object, item.member, unique)?;
                        recorder.write(item, file);
                    }
                }
            }
            10 => {
                let item = self.name();
                recorder.read(item, access.find(item.object, item.member)?.unwrap_or(ABSENT));
            }
            _ => return self.call_on_end(access, sequence),
        }
        Ok(Some(self.end_call(recorder, sequence())))
    }

    /// Where a file ends only transactions can find out by two calls; here what the call itself says.
    fn call_on_end(
        &mut self,
        access: &dyn Access,
        sequence: &dyn Fn() -> Option<u64>,
    ) -> Outcome<Option<Record>> {
        // Without numbers it would not be known which of these changed anything.
        if sequence().is_none() {
            return Ok(None);
        }
        let layout = self.layout;
        let file = self.pick(&layout.growing);
        let item = Item::new(Kind::End, file, 0);
        let size = access.size(file)?;
        let mut recorder = Recorder::begin(self.process | OUTSIDE, (self.now)());
        if self.random.bool() {
            let offset = self.behind(size);
            access.grow(file, offset)?;
            recorder.raise(item, offset + 8);
        } else if let Some(offset) = access.append(file)? {
            recorder.read(item, offset);
            recorder.write(item, offset + 8);
        }
        Ok(Some(self.end_call(recorder, sequence())))
    }

    fn end_call(&self, recorder: Recorder, sequence: Option<u64>) -> Record {
        let record = recorder.end_call((self.now)(), sequence, End::Committed(sequence));
        match record.writes() {
            // Its snapshot is the commit before its own at most, which commit that is nobody says.
            true => Record { snapshot: None, ..record },
            false => record,
        }
    }

    /// Reads everything, for the end.
    pub fn read_all(&mut self, access: &dyn Access, recorder: &mut Recorder) -> Outcome<()> {
        let layout = self.layout;
        for &file in &layout.files {
            for page in 0..PAGES {
                self.read_page(access, recorder, Item::new(Kind::Page, file, page))?;
            }
            recorder.read(Item::new(Kind::Permissions, file, 0), access.owner(file)?);
            let mut found = Vec::new();
            for name in access.attributes(file)? {
                found.push((name, access.attribute(file, name)?.unwrap_or(UNKNOWN)));
            }
            recorder.list(Kind::Xattr, file, found);
        }
        for &file in &layout.sized {
            recorder.read(Item::new(Kind::Size, file, 0), access.size(file)?);
        }
        for &file in &layout.growing {
            recorder.read(Item::new(Kind::End, file, 0), access.end(file)?);
        }
        for &directory in &layout.directories {
            let found = access.list(directory)?;
            for &(name, file) in &found {
                let bytes = access.read_named(directory, name, file)?;
                recorder.read(Item::new(Kind::Page, file, 0), value_of(&bytes));
            }
            recorder.list(Kind::Name, directory, found);
        }
        Ok(())
    }
}
