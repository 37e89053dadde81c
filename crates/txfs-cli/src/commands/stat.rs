//! `txfs stat`.

use std::io::{self, Write};
use std::time::Duration;

use serde_json::{Map, Value};

use super::printed;
use crate::cli::Stat;
use crate::error::Error;
use crate::output::{self, colour, format};
use crate::place;

/// Shows a volume's state, from its owner or from opening it.
pub fn run(arguments: Stat) -> Result<(), Error> {
    let stat = match place::connect(&arguments.target)? {
        Some((mut client, _)) => client.stat()?,
        None => {
            let failed = |source| Error::volume(&arguments.target, source);
            let volume = place::open_unmounted(&arguments.target)?;
            let stat = volume.stat().map_err(failed)?;
            volume.close().map_err(failed)?;
            txfs_fuse::volume_stat(&stat)
        }
    };
    printed(if arguments.json { output::print_json(&stat) } else { print(&stat) })
}

/// `name: value` lines; objects become sections.
fn print(stat: &Value) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match stat {
        Value::Object(fields) => print_fields(&mut out, fields, 0),
        other => writeln!(out, "{other}"),
    }
}

fn print_fields(out: &mut impl Write, fields: &Map<String, Value>, depth: usize) -> io::Result<()> {
    let paint = colour::stdout();
    let indent = "  ".repeat(depth);
    for (name, value) in fields {
        match value {
            Value::Object(inner) => {
                writeln!(out, "{indent}{}", paint.bold(format_args!("{}:", words(name))))?;
                print_fields(out, inner, depth + 1)?;
            }
            value => {
                let width = 36 - indent.len();
                let label = format!("{}:", words(name));
                writeln!(out, "{indent}{label:<width$} {}", human(name, value))?;
            }
        }
    }
    Ok(())
}

/// `log_bytes` -> `log`: the unit is told with the value.
fn words(name: &str) -> String {
    let bare =
        ["_bytes", "_us", "_ms", "_ns"].iter().find_map(|unit| name.strip_suffix(unit)).unwrap_or(name);
    bare.replace('_', " ")
}

fn human(name: &str, value: &Value) -> String {
    match value {
        Value::Number(number) => match number.as_u64() {
            Some(count) if name.ends_with("_bytes") => format::bytes(count),
            Some(count) if name.ends_with("_us") => format::duration(Duration::from_micros(count)),
            Some(count) if name.ends_with("_ms") => format::duration(Duration::from_millis(count)),
            Some(count) if name.ends_with("_ns") => format::duration(Duration::from_nanos(count)),
            _ if name.ends_with("_us") => format::duration(Duration::from_secs_f64(
                (number.as_f64().unwrap_or(0.0) / 1e6).clamp(0.0, 1e9),
            )),
            _ => number.to_string(),
        },
        Value::String(text) => format::name(text.as_bytes()),
        Value::Bool(true) => "yes".into(),
        Value::Bool(false) => "no".into(),
        Value::Null => "-".into(),
        Value::Array(values) => values.iter().map(|value| human(name, value)).collect::<Vec<_>>().join(", "),
        Value::Object(_) => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_come_from_the_names() {
        assert_eq!(human("log_bytes", &Value::from(2048)), "2.0 KiB");
        assert_eq!(human("latency_us", &Value::from(17)), "17 µs");
        assert_eq!(human("direct", &Value::from(true)), "yes");
        assert_eq!(human("commits", &Value::from(3)), "3");
        assert_eq!(words("log_write_bytes"), "log write");
    }
}
