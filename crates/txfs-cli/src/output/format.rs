//! Numbers, modes and times for people.

use std::time::Duration;

/// `1.5 MiB`, `12 B`.
pub fn bytes(count: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if count < 1024 {
        return format!("{count} B");
    }
    let mut value = count as f64;
    let mut unit = "";
    for name in UNITS {
        value /= 1024.0;
        unit = name;
        if value < 1023.95 {
            break;
        }
    }
    format!("{value:.1} {unit}")
}

/// `1 file`, `2 files`.
pub fn counted(count: u64, singular: &str, plural: &str) -> String {
    if count == 1 { format!("1 {singular}") } else { format!("{count} {plural}") }
}

/// `850 µs`, `12 ms`, `3.4 s`, `2 min 5 s`.
pub fn duration(duration: Duration) -> String {
    let micros = duration.as_micros();
    match micros {
        0..1_000 => format!("{micros} µs"),
        1_000..1_000_000 => format!("{} ms", duration.as_millis()),
        1_000_000..60_000_000 => format!("{:.1} s", duration.as_secs_f64()),
        60_000_000..3_600_000_000 => format!("{} min {} s", duration.as_secs() / 60, duration.as_secs() % 60),
        _ => format!("{} h {} min", duration.as_secs() / 3600, duration.as_secs() / 60 % 60),
    }
}

/// `drwxr-xr-x`, from st_mode.
pub fn mode(mode: u32) -> String {
    let kind = match mode & libc::S_IFMT {
        libc::S_IFDIR => 'd',
        libc::S_IFLNK => 'l',
        libc::S_IFIFO => 'p',
        libc::S_IFSOCK => 's',
        libc::S_IFCHR => 'c',
        libc::S_IFBLK => 'b',
        _ => '-',
    };
    let mut text = String::from(kind);
    for (shift, special, letter) in
        [(6, libc::S_ISUID, 's'), (3, libc::S_ISGID, 's'), (0, libc::S_ISVTX, 't')]
    {
        let bits = mode >> shift;
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        text.push(match (bits & 1 != 0, mode & special != 0) {
            (true, true) => letter,
            (false, true) => letter.to_ascii_uppercase(),
            (true, false) => 'x',
            (false, false) => '-',
        });
    }
    text
}

/// `2026-11-21 21:15:00Z` from seconds since 1970: UTC, because the time zone database is not ours to read.
pub fn time(seconds: i64) -> String {
    let days = seconds.div_euclid(86_400);
    let rest = seconds.rem_euclid(86_400);
    // Howard Hinnant's days-to-civil: the year begins in March, so that the leap day is its last.
    let shifted = days.saturating_add(719_468);
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02}Z", rest / 3600, rest / 60 % 60, rest % 60)
}

/// A line of text for a terminal, without its end: control characters other than tabs are escaped.
pub fn line(line: &str) -> String {
    let line = line.strip_suffix('\n').unwrap_or(line);
    let mut text = String::with_capacity(line.len());
    for character in line.chars() {
        if character.is_control() && character != '\t' {
            text.extend(character.escape_default());
        } else {
            text.push(character);
        }
    }
    text
}

/// A name for a terminal: control characters, which could do anything to it, and bytes that are no UTF-8 are escaped.
pub fn name(name: &[u8]) -> String {
    let mut text = String::with_capacity(name.len());
    for chunk in name.utf8_chunks() {
        for character in chunk.valid().chars() {
            if character.is_control() {
                text.extend(character.escape_default());
            } else {
                text.push(character);
            }
        }
        for byte in chunk.invalid() {
            text.push_str(&format!("\\x{byte:02x}"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_durations() {
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1024), "1.0 KiB");
        assert_eq!(bytes(1024 * 1024 - 1), "1.0 MiB");
        assert_eq!(bytes(u64::MAX), "16.0 EiB");
        assert_eq!(duration(Duration::from_micros(17)), "17 µs");
        assert_eq!(duration(Duration::from_secs(125)), "2 min 5 s");
        assert_eq!(counted(1, "file", "files"), "1 file");
    }

    #[test]
    fn modes() {
        assert_eq!(mode(0o040755), "drwxr-xr-x");
        assert_eq!(mode(0o100644), "-rw-r--r--");
        assert_eq!(mode(0o104755), "-rwsr-xr-x");
        assert_eq!(mode(0o041777), "drwxrwxrwt");
        assert_eq!(mode(0o102644), "-rw-r-Sr--");
    }

    #[test]
    fn times() {
        assert_eq!(time(0), "1970-01-01 00:00:00Z");
        assert_eq!(time(951_782_400), "2000-02-29 00:00:00Z");
        assert_eq!(time(1_795_295_700), "2026-11-21 21:15:00Z");
        assert_eq!(time(-1), "1969-12-31 23:59:59Z");
        // No panic whatever a disk says.
        time(i64::MAX);
        time(i64::MIN);
    }

    #[test]
    fn names_cannot_drive_the_terminal() {
        assert_eq!(name(b"a\x1b[31m\n\xff"), "a\\u{1b}[31m\\n\\xff");
        assert_eq!(name("grün".as_bytes()), "grün");
    }
}
