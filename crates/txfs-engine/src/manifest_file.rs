//! Reads and replaces the manifest file. A replacement is atomic: a crash leaves the old one or the new one.

use txfs_disk::Disk;

use crate::error::{EngineError, Result};
use crate::format::manifest::MANIFEST_BYTES;
use crate::format::{FormatError, Manifest};
use crate::recovery::INDEX_NAME;

/// The file's name.
pub(crate) const NAME: &str = "MANIFEST";
const TEMPORARY_NAME: &str = "MANIFEST.new";

/// Reads the manifest; says clearly when there is no volume.
pub(crate) fn read(disk: &dyn Disk) -> Result<Manifest> {
    let file = match disk.open(NAME) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Err(missing(disk)?),
        Err(error) => return Err(EngineError::io(format!("opening {NAME}"), error)),
    };
    let failed = |error| EngineError::io(format!("reading {NAME}"), error);
    let len = file.len().map_err(failed)?.min(MANIFEST_BYTES as u64) as usize;
    let mut bytes = vec![0; len];
    file.read_at(0, &mut bytes).map_err(failed)?;
    Manifest::decode(&bytes).map_err(|error| match error {
        FormatError::Magic { .. } => {
            EngineError::NotAVolume { detail: format!("its {NAME} is not one that TxFS wrote") }
        }
        other => EngineError::corrupt(NAME, &other),
    })
}

fn missing(disk: &dyn Disk) -> Result<EngineError> {
    let names = disk.list().map_err(|error| EngineError::io("listing the volume", error))?;
    if names.iter().any(|name| name == INDEX_NAME) {
        return Ok(EngineError::MissingManifest);
    }
    Ok(EngineError::NotAVolume { detail: format!("there is no {NAME} in it") })
}

/// Puts `manifest` in the place of the present one, durably.
pub(crate) fn replace(disk: &dyn Disk, manifest: &Manifest) -> Result<()> {
    let names = disk.list().map_err(|error| EngineError::io("listing the volume", error))?;
    let attempt = || {
        if names.iter().any(|name| name == TEMPORARY_NAME) {
            disk.remove(TEMPORARY_NAME)?;
        }
        let file = disk.create(TEMPORARY_NAME)?;
        file.write_at(0, &manifest.encode())?;
        file.sync()?;
        disk.rename(TEMPORARY_NAME, NAME)?;
        disk.sync_directory()
    };
    attempt().map_err(|error| EngineError::io(format!("replacing {NAME}"), error))
}
