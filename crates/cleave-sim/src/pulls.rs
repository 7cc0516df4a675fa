//! Iterators read from both ends, and the check of what they returned.

use std::collections::VecDeque;

use cleavedb::{Db, Error, Iter, Keys, Keyspace, Snapshot};

use crate::material::brief;
use crate::operation::{Scan, Span};

/// A key and its value.
pub type Pair = (Vec<u8>, Vec<u8>);

/// The result of one pull.
pub struct Pull {
    /// It was at the back end.
    back: bool,
    /// The pair, `None` at the end.
    pair: Option<Pair>,
}

/// Opens an iterator over the present.
pub fn open(db: &Db, slot: u8, keyspace: &Keyspace, span: Span) -> Result<Iter, Error> {
    match span {
        Span::All if slot == 0 => db.iter(),
        Span::All => keyspace.iter(),
        Span::Prefix(..) if slot == 0 => db.prefix(span.prefix().unwrap_or_default()),
        Span::Prefix(..) => keyspace.prefix(span.prefix().unwrap_or_default()),
        Span::Between(..) if slot == 0 => db.range(span.bounds()),
        Span::Between(..) => keyspace.range(span.bounds()),
    }
}

/// Opens an iterator over a snapshot.
pub fn open_at(snapshot: &Snapshot, keyspace: &Keyspace, span: Span) -> Result<Iter, Error> {
    match span {
        Span::All => snapshot.iter(keyspace),
        Span::Prefix(..) => snapshot.prefix(keyspace, span.prefix().unwrap_or_default()),
        Span::Between(..) => snapshot.range(keyspace, span.bounds()),
    }
}

/// Reads as the scan prescribes. When one end is exhausted the other is read once more, since both must have met.
pub fn pull(mut iter: Iter, scan: &Scan) -> Result<Vec<Pull>, Error> {
    let mut pulls = Vec::new();
    for turn in 0..u32::from(scan.limit) {
        let back = scan.ends >> (turn % 64) & 1 == 1;
        let pair = pull_one(&mut iter, back)?;
        let ended = pair.is_none();
        pulls.push(Pull { back, pair });
        if ended {
            pulls.push(Pull { back: !back, pair: pull_one(&mut iter, !back)? });
            break;
        }
    }
    Ok(pulls)
}

/// The same for keys without values; the values of the pairs are empty.
pub fn pull_keys(mut keys: Keys, scan: &Scan) -> Result<Vec<Pull>, Error> {
    let mut pulls = Vec::new();
    let mut pull = |back| {
        let key = if back { keys.next_back() } else { keys.next() };
        key.transpose().map(|key| key.map(|key| (Vec::from(key), Vec::new())))
    };
    for turn in 0..u32::from(scan.limit) {
        let back = scan.ends >> (turn % 64) & 1 == 1;
        let pair = pull(back)?;
        let ended = pair.is_none();
        pulls.push(Pull { back, pair });
        if ended {
            pulls.push(Pull { back: !back, pair: pull(!back)? });
            break;
        }
    }
    Ok(pulls)
}

fn pull_one(iter: &mut Iter, back: bool) -> Result<Option<Pair>, Error> {
    let item = if back { iter.next_back() } else { iter.next() };
    let pair = item.transpose()?;
    Ok(pair.map(|(key, value)| (key.into(), value.into())))
}

/// Compares the pulls with the expected pairs; the error describes the first difference.
pub fn check(pulls: &[Pull], expected: Vec<Pair>) -> Result<(), String> {
    let mut expected = VecDeque::from(expected);
    for (turn, pull) in pulls.iter().enumerate() {
        let next = if pull.back { expected.pop_back() } else { expected.pop_front() };
        if next != pull.pair {
            let show = |pair: &Option<Pair>| match pair {
                Some((key, value)) => format!("{} = {}", brief(key), brief(value)),
                None => "the end".to_owned(),
            };
            let end = if pull.back { "back" } else { "front" };
            return Err(format!("pull {turn} at the {end}: expected {}, found {}", show(&next), show(&pull.pair)));
        }
    }
    Ok(())
}
