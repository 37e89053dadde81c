//! Images of devices without holes: mkfs punches some, and a block that was never written makes a small durable write two
//! or three times as dear.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

use crate::Result;

const PIECE_BYTES: u64 = 1 << 20;

/// Writes zeros where the file has holes; what it reads does not change. Blocks that are reserved but not written are
/// holes too.
pub fn fill(path: &Path) -> Result<()> {
    let at = |error: std::io::Error| format!("{}: {error}", path.display());
    let file = File::options().read(true).write(true).open(path).map_err(at)?;
    let bytes = file.metadata().map_err(at)?.len();
    let zeros = vec![0; PIECE_BYTES as usize];
    let (mut position, mut filled) = (0, 0);
    while position < bytes {
        let hole = seek(&file, SeekFrom::Hole(position)).map_err(|error| at(error.into()))?;
        let end = match seek(&file, SeekFrom::Data(hole)) {
            Ok(data) => data,
            Err(Errno::NXIO) => bytes,
            Err(error) => return Err(at(error.into()).into()),
        };
        let mut from = hole;
        while from < end {
            let len = PIECE_BYTES.min(end - from);
            file.write_all_at(&zeros[..len as usize], from).map_err(at)?;
            from += len;
        }
        filled += end - hole;
        position = end;
    }
    file.sync_all().map_err(at)?;
    // cached pages would be in the way of a loop device's direct I/O
    let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed);
    println!("{}: {filled} bytes of holes filled", path.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_are_filled_and_data_stays() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("image");
        let file = File::create(&path).unwrap();
        file.write_all_at(&[7; 4096], 8 << 20).unwrap();
        file.set_len(20 << 20).unwrap();
        fill(&path).unwrap();
        let content = std::fs::read(&path).unwrap();
        assert_eq!(content.len(), 20 << 20);
        assert_eq!(content.iter().map(|&byte| u64::from(byte)).sum::<u64>(), 7 * 4096);
        let file = File::open(&path).unwrap();
        assert_eq!(seek(&file, SeekFrom::Hole(0)).unwrap(), 20 << 20);
    }
}
