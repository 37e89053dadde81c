//! Why a transaction cannot commit, as text or as JSON.

use super::arguments::{Handle, Output};
use super::failure::{Failure, answer};
use super::view::ViewHandle;

/// `TXFS_REPORT_TEXT`, `TXFS_REPORT_JSON`
const TEXT: i32 = 0;
const JSON: i32 = 1;

#[unsafe(no_mangle)]
pub extern "C" fn txfs_conflict(
    view: Handle<ViewHandle>,
    form: i32,
    mut buffer: Output,
    size: usize,
) -> isize {
    answer(|| {
        let buffer = buffer.slice(size)?;
        let report = view.get()?.transaction()?.report();
        let report =
            report.ok_or_else(|| Failure::new(libc::ENODATA, "the transaction has met no conflict"))?;
        let mut text = match form {
            TEXT => {
                let lines: Vec<String> = report.conflicts.iter().map(ToString::to_string).collect();
                let more =
                    if report.more > 0 { format!("\nand {} more", report.more) } else { String::new() };
                lines.join("\n") + &more
            }
            JSON => serde_json::to_string(&txfs_protocol::ConflictReport::from(&report))
                .map_err(|error| Failure::new(libc::EIO, error.to_string()))?,
            _ => return Err(Failure::invalid("the form is neither TXFS_REPORT_TEXT nor TXFS_REPORT_JSON")),
        };
        text.retain(|letter| letter != '\0');
        if let Some(room) = size.checked_sub(1) {
            let length =
                (0..=room.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
            buffer[..length].copy_from_slice(&text.as_bytes()[..length]);
            buffer[length] = 0;
        }
        Ok(text.len() as isize)
    })
}
