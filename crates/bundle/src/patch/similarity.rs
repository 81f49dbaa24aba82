//! How similar two texts are, as git measures it for renames: the share of the longer one that lies in
//! lines which both have.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hasher as _};

use super::source::Source;

/// From here on, a deleted and an added text are a rename.
pub(super) const MIN_PERCENT: u64 = 50;

/// A longer line counts in parts.
const PART_BYTES: usize = 64;

/// What is compared of a text.
#[derive(Debug)]
pub(crate) struct Fingerprint {
    size: u64,
    /// The bytes in each line.
    lines: HashMap<u64, u64>,
}

impl Fingerprint {
    pub(crate) fn of(text: &[u8]) -> Self {
        let mut lines = HashMap::new();
        let parts = text.split_inclusive(|byte| *byte == b'\n');
        for part in parts.flat_map(|line| line.chunks(PART_BYTES)) {
            let mut hasher = DefaultHasher::new();
            hasher.write(part);
            *lines.entry(hasher.finish()).or_insert(0) += part.len() as u64;
        }
        Self { size: text.len() as u64, lines }
    }

    /// The similarity in percent.
    pub(crate) fn percent(&self, other: &Self) -> u64 {
        let longer = self.size.max(other.size);
        if longer == 0 {
            return 100;
        }
        let common = |(line, bytes): (&u64, &u64)| {
            other.lines.get(line).map_or(0, |others| (*bytes).min(*others))
        };
        self.lines.iter().map(common).sum::<u64>() * 100 / longer
    }

    /// Whether the texts are a rename.
    pub(crate) fn is_rename(&self, other: &Self) -> bool {
        self.percent(other) >= MIN_PERCENT
    }
}

/// The similarity of two texts in percent.
pub(super) fn of(old: &Source, new: &Source) -> u64 {
    let [old, new] = [old, new].map(|source| {
        let mut bytes = Vec::new();
        // What cannot be read is not similar.
        if source.each(|part| bytes.extend_from_slice(part)).is_err() {
            bytes.clear();
        }
        Fingerprint::of(&bytes)
    });
    old.percent(&new).min(99)
}
