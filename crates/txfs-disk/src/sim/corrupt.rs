//! Damage to what is stored: flipped bits, and sectors that a drive wrote wrongly or not at all.
//!
//! Damage is done to what is on stable storage and to what readers see, so that it shows at once and after a crash.

use std::io;
use std::sync::Arc;

use super::SimulatedDisk;
use super::disk::not_found;
use super::file::SimFile;
use super::image::Image;

/// What [`SimulatedDisk::corrupt`] did to a sector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// One bit changed.
    FlippedBit {
        /// Bit number, 0 to 7.
        bit: u8,
    },
    /// The sector reads as zeros.
    Zeroed,
    /// The sector holds random bytes.
    Garbage,
    /// The sector holds what belongs into another sector of the same file.
    Misdirected {
        /// Where the bytes belong.
        from: u64,
    },
}

/// A damaged place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Corruption {
    /// Name of the file.
    pub file: String,
    /// First damaged byte.
    pub offset: u64,
    /// What happened there.
    pub damage: Damage,
}

impl SimulatedDisk {
    /// Flips one bit of a file.
    pub fn flip_bit(&self, name: &str, offset: u64, bit: u8) -> io::Result<()> {
        self.damage(name, offset, |old| old.iter_mut().take(1).for_each(|byte| *byte ^= 1 << (bit % 8)), 1)
    }

    /// Puts `bytes` into a file, as damage does: not a step, at once on stable storage.
    pub fn overwrite(&self, name: &str, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.damage(name, offset, |old| old.copy_from_slice(bytes), bytes.len())
    }

    /// Damages a place drawn from the seed, among those that hold something other than a hole. `None` when there is
    /// no such place. The damage always changes bytes.
    pub fn corrupt(&self, seed: u64) -> Option<Corruption> {
        let mut random = fastrand::Rng::with_seed(seed);
        let (name, file, block) = {
            let state = self.shared.state.lock();
            let mut places: Vec<(&Arc<str>, &Arc<SimFile>, u64)> = Vec::new();
            for (name, id) in &state.names.cached {
                if let Some(file) = state.files.get(id) {
                    let contents = file.contents.lock();
                    let (offsets, len) = (contents.cached.block_offsets(), contents.cached.len());
                    let inside = offsets.into_iter().filter(|offset| *offset < len);
                    places.extend(inside.map(|offset| (name, file, offset)));
                }
            }
            let (name, file, block) = random.choice(places)?;
            (name.to_string(), file.clone(), block)
        };
        let image = file.contents.lock().cached.clone();
        let sector_bytes = self.shared.sector_bytes as u64;
        let sectors = (super::image::BLOCK_BYTES as u64 / sector_bytes)
            .min((image.len() - block).div_ceil(sector_bytes));
        let offset = block + random.u64(0..sectors) * sector_bytes;
        let mut old = vec![0; sector_bytes.min(image.len() - offset) as usize];
        image.read(offset, &mut old);
        let (offset, new, damage) = draw_damage(&mut random, &image, offset, &old);
        self.overwrite(&name, offset, &new).ok()?;
        Some(Corruption { file: name, offset, damage })
    }

    fn damage(&self, name: &str, offset: u64, change: impl Fn(&mut [u8]), len: usize) -> io::Result<()> {
        let state = self.shared.state.lock();
        let file = state.file_named(name).ok_or_else(|| not_found(name))?;
        let mut contents = file.contents.lock();
        if offset.checked_add(len as u64).is_none_or(|end| end > contents.cached.len()) {
            let message = format!("{name:?} has no {len} bytes at {offset} to damage");
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, message));
        }
        let mut bytes = vec![0; len];
        contents.cached.read(offset, &mut bytes);
        change(&mut bytes);
        contents.damage(offset, &bytes);
        Ok(())
    }
}

/// Chooses damage for a sector; falls back to a flipped bit where the other kinds would change nothing.
fn draw_damage(random: &mut fastrand::Rng, image: &Image, offset: u64, old: &[u8]) -> (u64, Vec<u8>, Damage) {
    let (new, damage) = match random.u8(0..8) {
        0 | 1 => (vec![0; old.len()], Damage::Zeroed),
        2 | 3 => (std::iter::repeat_with(|| random.u8(..)).take(old.len()).collect(), Damage::Garbage),
        4 => {
            let sector_bytes = old.len().next_power_of_two() as u64;
            let from = random.u64(0..image.len().div_ceil(sector_bytes)) * sector_bytes;
            let mut bytes = vec![0; old.len()];
            image.read(from, &mut bytes);
            (bytes, Damage::Misdirected { from })
        }
        _ => (old.to_vec(), Damage::Zeroed),
    };
    if new != old {
        return (offset, new, damage);
    }
    let at = random.usize(0..old.len());
    let bit = random.u8(0..8);
    (offset + at as u64, vec![old[at] ^ (1 << bit)], Damage::FlippedBit { bit })
}
