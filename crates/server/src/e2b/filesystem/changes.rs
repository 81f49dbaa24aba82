//! What has happened to the files of a directory between two listings of it.

use std::collections::BTreeMap;

use stockade_api::{FileEntry, FileKind};

/// The entries of a directory, by their path below it.
pub(super) type Listing = BTreeMap<String, FileEntry>;

/// What happened to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Create,
    Write,
    Remove,
    Rename,
    Chmod,
}

impl Kind {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Create => "EVENT_TYPE_CREATE",
            Self::Write => "EVENT_TYPE_WRITE",
            Self::Remove => "EVENT_TYPE_REMOVE",
            Self::Rename => "EVENT_TYPE_RENAME",
            Self::Chmod => "EVENT_TYPE_CHMOD",
        }
    }
}

/// A file that disappeared and one with the same content that appeared are one that was renamed.
fn is_same(one: &FileEntry, other: &FileEntry) -> bool {
    let properties = |entry: &FileEntry| {
        (entry.kind, entry.size_bytes, entry.modified_at, entry.mode, entry.uid, entry.gid)
    };
    properties(one) == properties(other)
}

/// The events that lead from one listing to another. A new file was created, given to its owner and
/// written.
pub(super) fn between(before: &Listing, after: &Listing) -> Vec<(String, Kind)> {
    let mut events = Vec::new();
    let mut gone: Vec<_> = before.iter().filter(|(path, _)| !after.contains_key(*path)).collect();
    let mut appeared = Vec::new();
    for (path, entry) in after.iter().filter(|(path, _)| !before.contains_key(*path)) {
        match gone.iter().position(|(_, old)| is_same(old, entry)) {
            Some(at) => {
                let (old, _) = gone.remove(at);
                events.extend([(old.clone(), Kind::Rename), (path.clone(), Kind::Create)]);
            }
            None => appeared.push((path, entry)),
        }
    }
    events.extend(gone.into_iter().map(|(path, _)| (path.clone(), Kind::Remove)));
    for (path, entry) in appeared {
        events.push((path.clone(), Kind::Create));
        if entry.kind == FileKind::File {
            events.extend([(path.clone(), Kind::Chmod), (path.clone(), Kind::Write)]);
        }
    }
    for (path, old) in before {
        let Some(new) = after.get(path) else { continue };
        let (modes, is_written) = (
            (old.mode, old.uid, old.gid) != (new.mode, new.uid, new.gid),
            (old.size_bytes, old.modified_at) != (new.size_bytes, new.modified_at),
        );
        if modes {
            events.push((path.clone(), Kind::Chmod));
        }
        if is_written && new.kind != FileKind::Directory {
            events.push((path.clone(), Kind::Write));
        }
    }
    events
}

#[cfg(test)]
mod tests {
    use stockade_core::Time;

    use super::*;

    fn file(size: u64, mode: u32) -> FileEntry {
        FileEntry {
            path: "/d/x".into(),
            kind: FileKind::File,
            size_bytes: size,
            mode,
            uid: 1000,
            gid: 1000,
            modified_at: Time::from_ms(i64::try_from(size).unwrap()),
            link: None,
        }
    }

    fn listing(files: &[(&str, FileEntry)]) -> Listing {
        files.iter().map(|(name, file)| ((*name).to_owned(), file.clone())).collect()
    }

    #[test]
    fn each_change_is_reported() {
        let before = listing(&[
            ("old", file(1, 0o644)),
            ("written", file(2, 0o644)),
            ("chmod", file(3, 0o644)),
            ("gone", file(4, 0o644)),
            ("same", file(5, 0o644)),
        ]);
        let after = listing(&[
            ("new", file(1, 0o644)),
            ("written", file(7, 0o644)),
            ("chmod", file(3, 0o755)),
            ("made", file(6, 0o644)),
            ("same", file(5, 0o644)),
        ]);
        let events = between(&before, &after);
        let events: Vec<_> = events.iter().map(|(path, kind)| (path.as_str(), *kind)).collect();
        assert_eq!(
            events,
            [
                ("old", Kind::Rename),
                ("new", Kind::Create),
                ("gone", Kind::Remove),
                ("made", Kind::Create),
                ("made", Kind::Chmod),
                ("made", Kind::Write),
                ("chmod", Kind::Chmod),
                ("written", Kind::Write),
            ]
        );
        assert_eq!(between(&before, &before), []);
    }
}
