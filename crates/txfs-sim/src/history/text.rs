//! Histories as text, one transaction a line: so processes write them down for somebody else to check.

use super::record::{Action, History, Item, Kind, Outcome, Record};

fn number_or_dash(number: Option<u64>) -> String {
    number.map_or_else(|| "-".to_owned(), |number| number.to_string())
}

/// One line, without its end.
pub fn encode(record: &Record) -> String {
    let outcome = match record.outcome {
        Outcome::Committed(sequence) => format!("committed {}", number_or_dash(sequence)),
        Outcome::Aborted => "aborted -".to_owned(),
    };
    let mut line = format!(
        "{} {} {} {} {} {} {outcome}",
        record.process,
        record.began,
        record.seen,
        record.committing,
        record.ended,
        number_or_dash(record.snapshot)
    );
    for action in &record.actions {
        match action {
            Action::Read(item, value) => {
                line += &format!(" r {} {} {} {value}", item.kind.name(), item.object, item.member);
            }
            Action::Write(item, value) => {
                line += &format!(" w {} {} {} {value}", item.kind.name(), item.object, item.member);
            }
            Action::Raise(item, value) => {
                line += &format!(" m {} {} {} {value}", item.kind.name(), item.object, item.member);
            }
            Action::List(kind, object, found) => {
                line += &format!(" l {} {object} {}", kind.name(), found.len());
                found.iter().for_each(|(member, value)| line += &format!(" {member} {value}"));
            }
        }
    }
    line
}

/// The transaction of a line; `None` when it is malformed, as the last line of a killed process may be.
pub fn decode(line: &str) -> Option<Record> {
    let mut words = line.split_ascii_whitespace();
    let mut number = || words.next()?.parse::<u64>().ok();
    let (process, began, seen, committing, ended) = (number()?, number()?, number()?, number()?, number()?);
    let optional = |word: &str| match word {
        "-" => Some(None),
        digits => digits.parse().ok().map(Some),
    };
    let snapshot = optional(words.next()?)?;
    let outcome = match (words.next()?, optional(words.next()?)?) {
        ("committed", sequence) => Outcome::Committed(sequence),
        ("aborted", None) => Outcome::Aborted,
        _ => return None,
    };
    let mut actions = Vec::new();
    while let Some(action) = words.next() {
        let kind = Kind::named(words.next()?)?;
        let mut number = || words.next()?.parse::<u64>().ok();
        let object = number()?;
        actions.push(match action {
            "r" => Action::Read(Item::new(kind, object, number()?), number()?),
            "w" => Action::Write(Item::new(kind, object, number()?), number()?),
            "m" => Action::Raise(Item::new(kind, object, number()?), number()?),
            "l" => {
                let count = number()?;
                let found: Option<Vec<_>> = (0..count).map(|_| Some((number()?, number()?))).collect();
                Action::List(kind, object, found?.into())
            }
            _ => return None,
        });
    }
    let process = u32::try_from(process).ok()?;
    Some(Record { process, began, seen, committing, ended, snapshot, outcome, actions })
}

/// The history of many lines.
pub fn decode_all(text: &str) -> Option<History> {
    let records: Option<Vec<Record>> = text.lines().map(decode).collect();
    Some(History { records: records? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_back_as_they_were() {
        let mut record = Record {
            process: 3,
            began: 1,
            seen: 2,
            committing: 3,
            ended: 4,
            snapshot: Some(9),
            outcome: Outcome::Committed(Some(12)),
            actions: vec![
                Action::Read(Item::new(Kind::Page, 5, 6), 7),
                Action::Write(Item::new(Kind::Name, 1, 2), u64::MAX),
                Action::List(Kind::Xattr, 4, [(1, 2), (3, 4)].into()),
                Action::List(Kind::Name, 4, [].into()),
                Action::Raise(Item::new(Kind::End, 1, 0), 4096),
            ],
        };
        assert_eq!(decode(&encode(&record)), Some(record.clone()));
        record.snapshot = None;
        record.outcome = Outcome::Aborted;
        record.actions.clear();
        assert_eq!(decode(&encode(&record)), Some(record));
        for line in ["", "1 2 3", "1 2 3 4 5 - committed x", "1 2 3 4 5 - aborted - r page 1"] {
            assert_eq!(decode(line), None, "{line}");
        }
    }
}
