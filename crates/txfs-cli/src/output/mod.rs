//! What `txfs` prints: results on standard output, everything else on standard error.

pub mod colour;
pub mod format;
pub mod progress;

use std::io::{self, Write};

use serde::Serialize;

/// One line of JSON on standard output.
pub fn print_json<T: Serialize>(value: &T) -> io::Result<()> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    io::stdout().lock().write_all(&line)
}

/// A remark on standard error: `txfs: ...`.
pub fn notice(message: &str) {
    let prefix = colour::stderr().dim("txfs:");
    // Nobody to tell when standard error is gone.
    let _ = writeln!(io::stderr(), "{prefix} {message}");
}

/// Something that did not work, but does not stop the command.
pub fn warning(message: &str) {
    let paint = colour::stderr();
    let _ = writeln!(io::stderr(), "{} {} {message}", paint.dim("txfs:"), paint.yellow("warning:"));
}

/// The error that ends the command, and what to do about it.
pub fn error(message: &str, hint: Option<&str>) {
    let paint = colour::stderr();
    let mut text = format!("{} {} {message}\n", paint.dim("txfs:"), paint.red("error:"));
    if let Some(hint) = hint {
        text.push_str(&format!("{}  {hint}\n", paint.dim("txfs:")));
    }
    let _ = io::stderr().write_all(text.as_bytes());
}
