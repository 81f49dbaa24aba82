//! Git objects as bytes: their names, and strict parsers for commits and trees. What git would only
//! warn about is refused.

use std::collections::HashSet;
use std::fmt;

use sha1_checked::Sha1;
use sha2::Sha256;

/// The name of an object: the hash of its content.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId(Vec<u8>);

impl ObjectId {
    /// The name in hexadecimal digits, of either format.
    pub fn from_hex(hex: &[u8]) -> Option<Self> {
        let digit = |byte: u8| match byte {
            b'0'..=b'9' => Some(byte - b'0'),
            b'a'..=b'f' => Some(byte - b'a' + 10),
            _ => None,
        };
        let pairs = hex.chunks(2).map(|pair| match pair {
            [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
            _ => None,
        });
        matches!(hex.len(), 40 | 64).then(|| pairs.collect::<Option<_>>().map(Self)).flatten()
    }

    /// The format of the repository that has it.
    pub fn format(&self) -> Format {
        if self.0.len() == Format::Sha1.length() { Format::Sha1 } else { Format::Sha256 }
    }
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// The hash function of a repository (`extensions.objectFormat`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// SHA-1.
    Sha1,
    /// SHA-256.
    Sha256,
}

impl Format {
    /// The length of a name in bytes.
    pub const fn length(self) -> usize {
        match self {
            Self::Sha1 => 20,
            Self::Sha256 => 32,
        }
    }

    /// The name, as git writes it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Sha1 => "sha1",
            Self::Sha256 => "sha256",
        }
    }

    /// The name of an object; `None` for a content that was made to collide with another one.
    pub fn hash(self, kind: Kind, content: &[u8]) -> Option<ObjectId> {
        let header = kind.header(content.len());
        match self {
            Self::Sha1 => {
                use sha1_checked::Digest as _;
                let mut hasher = Sha1::new();
                hasher.update(&header);
                hasher.update(content);
                let result = hasher.try_finalize();
                (!result.has_collision()).then(|| ObjectId(result.hash().to_vec()))
            }
            Self::Sha256 => {
                use sha2::Digest as _;
                let mut hasher = Sha256::new();
                hasher.update(&header);
                hasher.update(content);
                Some(ObjectId(hasher.finalize().to_vec()))
            }
        }
    }
}

/// The kind of an object. Tags are never taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A commit.
    Commit,
    /// A directory.
    Tree,
    /// The content of a file or link.
    Blob,
}

impl Kind {
    /// The kind that git calls so.
    pub fn named(name: &[u8]) -> Option<Self> {
        Some(match name {
            b"commit" => Self::Commit,
            b"tree" => Self::Tree,
            b"blob" => Self::Blob,
            _ => return None,
        })
    }

    /// What precedes the content of an object.
    pub fn header(self, length: usize) -> Vec<u8> {
        let name = match self {
            Self::Commit => "commit",
            Self::Tree => "tree",
            Self::Blob => "blob",
        };
        format!("{name} {length}\0").into_bytes()
    }
}

/// A commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Commit {
    /// Its tree.
    pub tree: ObjectId,
    /// Its parents.
    pub parents: Vec<ObjectId>,
    /// Who claims to have written it, and when.
    pub author: Vec<u8>,
    /// Who claims to have committed it, and when.
    pub committer: Vec<u8>,
    /// Its message.
    pub message: Vec<u8>,
}

impl Commit {
    /// Parses a commit of a repository with this format.
    pub fn parse(content: &[u8], format: Format) -> Option<Self> {
        if content.contains(&0) {
            return None;
        }
        let mut rest = content;
        let tree = id(field(&mut rest, b"tree ")?, format)?;
        let mut parents = Vec::new();
        while rest.starts_with(b"parent ") {
            parents.push(id(field(&mut rest, b"parent ")?, format)?);
        }
        let author = person(field(&mut rest, b"author ")?)?;
        let committer = person(field(&mut rest, b"committer ")?)?;
        // Other headers, such as signatures, whose further lines start with a space.
        let message = loop {
            if let Some(message) = rest.strip_prefix(b"\n") {
                break message.to_vec();
            }
            let end = rest.iter().position(|byte| *byte == b'\n')?;
            // No header that git itself evaluates may follow.
            let is_again = [&b"tree "[..], b"parent ", b"author ", b"committer "];
            if is_again.iter().any(|name| rest.starts_with(name)) {
                return None;
            }
            rest = &rest[end + 1..];
        };
        Some(Self { tree, parents, author, committer, message })
    }
}

/// The rest of the next line, which must start with this name.
fn field<'c>(rest: &mut &'c [u8], name: &[u8]) -> Option<&'c [u8]> {
    let after = rest.strip_prefix(name)?;
    let end = after.iter().position(|byte| *byte == b'\n')?;
    *rest = &after[end + 1..];
    Some(&after[..end])
}

fn id(hex: &[u8], format: Format) -> Option<ObjectId> {
    ObjectId::from_hex(hex).filter(|id| id.format() == format)
}

/// `NAME <MAIL> SECONDS ZONE`.
fn person(line: &[u8]) -> Option<Vec<u8>> {
    let (open, close) =
        (line.iter().position(|b| *b == b'<')?, line.iter().position(|b| *b == b'>')?);
    let mut time = line.get(close + 1..)?.strip_prefix(b" ")?.split(|byte| *byte == b' ');
    let (seconds, zone) = (time.next()?, time.next()?);
    let is_time = !seconds.is_empty()
        && seconds.len() <= 12
        && seconds.iter().all(u8::is_ascii_digit)
        && zone.len() == 5
        && matches!(zone.first(), Some(b'+' | b'-'))
        && zone[1..].iter().all(u8::is_ascii_digit);
    (open < close && is_time && time.next().is_none()).then(|| line.to_vec())
}

/// What a name of a tree is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// A file.
    File,
    /// A file that may be executed.
    Executable,
    /// A symbolic link.
    Link,
    /// A directory.
    Tree,
    /// A commit of another repository: a submodule.
    Submodule,
}

/// One name of a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TreeEntry {
    /// What it is.
    pub(crate) mode: Mode,
    /// Its name.
    pub(crate) name: Vec<u8>,
    /// Its content.
    pub(crate) id: ObjectId,
}

/// Parses a tree: sorted as git sorts, without a name twice, and with none that leaves it.
pub(crate) fn tree(content: &[u8], format: Format) -> Option<Vec<TreeEntry>> {
    let mut entries: Vec<TreeEntry> = Vec::new();
    let mut names = HashSet::new();
    let mut rest = content;
    while !rest.is_empty() {
        let blank = rest.iter().position(|byte| *byte == b' ')?;
        let mode = match &rest[..blank] {
            // The second one is in the history of old projects; git lets none in that is new.
            b"100644" | b"100664" => Mode::File,
            b"100755" => Mode::Executable,
            b"120000" => Mode::Link,
            b"40000" => Mode::Tree,
            b"160000" => Mode::Submodule,
            _ => return None,
        };
        rest = &rest[blank + 1..];
        let end = rest.iter().position(|byte| *byte == 0)?;
        let name = &rest[..end];
        let raw = rest.get(end + 1..end + 1 + format.length())?;
        rest = &rest[end + 1 + format.length()..];
        let is_bad = name.is_empty()
            || name == b"."
            || name == b".."
            || name.contains(&b'/')
            || crate::policy::is_git_directory(name);
        if is_bad || !names.insert(name.to_vec()) {
            return None;
        }
        let entry = TreeEntry { mode, name: name.to_vec(), id: ObjectId(raw.to_vec()) };
        if entries.last().is_some_and(|before| sort_key(before) >= sort_key(&entry)) {
            return None;
        }
        entries.push(entry);
    }
    Some(entries)
}

/// Git sorts a directory as if its name ended with a slash.
fn sort_key(entry: &TreeEntry) -> Vec<u8> {
    let mut key = entry.name.clone();
    if entry.mode == Mode::Tree {
        key.push(b'/');
    }
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(mode: &str, name: &[u8]) -> Vec<u8> {
        [mode.as_bytes(), b" ", name, b"\0", &[7; 20]].concat()
    }

    fn parsed(entries: &[(&str, &[u8])]) -> Option<Vec<TreeEntry>> {
        let content: Vec<u8> = entries.iter().flat_map(|(mode, name)| entry(mode, name)).collect();
        tree(&content, Format::Sha1)
    }

    #[test]
    fn the_names_of_objects_are_those_of_git() {
        let blob = Format::Sha1.hash(Kind::Blob, b"one\n").unwrap();
        assert_eq!(blob.to_string(), "5626abf0f72e58d7a153368ba57db4c673c0e171");
        let empty = Format::Sha1.hash(Kind::Tree, b"").unwrap();
        assert_eq!(empty.to_string(), "4b825dc642cb6eb9a060e54bf8d69288fbee4904");
        let long = Format::Sha256.hash(Kind::Blob, b"").unwrap();
        assert_eq!(&long.to_string()[..16], "473a0f4c3be8a936");
    }

    #[test]
    fn a_plain_tree_is_taken() {
        let entries: [(&str, &[u8]); 4] =
            [("100644", b"a"), ("40000", b"b"), ("100755", b"b0"), ("120000", b"c")];
        assert_eq!(parsed(&entries).unwrap().len(), 4);
        assert!(parsed(&[]).unwrap().is_empty());
    }

    #[test]
    fn hostile_trees_are_refused() {
        for entries in [
            &[("40000", &b".git"[..])][..],
            &[("40000", b".GiT")],
            &[("40000", b"git~1")],
            &[("40000", b".git ")],
            &[("40000", b".gi\xe2\x80\x8ct")],
            &[("100644", b"..")],
            &[("100644", b".")],
            &[("100644", b"")],
            &[("100644", b"a/b")],
            &[("100644", b"a"), ("100644", b"a")],
            &[("100644", b"a"), ("40000", b"a")],
            &[("100644", b"b"), ("100644", b"a")],
            &[("040000", b"a")],
            &[("100666", b"a")],
            &[("20000", b"a")],
            &[("", b"a")],
        ] {
            assert_eq!(parsed(entries), None, "{entries:?}");
        }
        let whole = entry("100644", b"a");
        for end in 1..whole.len() {
            assert_eq!(tree(&whole[..end], Format::Sha1), None);
        }
    }

    #[test]
    fn hostile_commits_are_refused() {
        let hex = "5626abf0f72e58d7a153368ba57db4c673c0e171";
        let person = "A B <a@example.com> 1700000000 +0100";
        let good = format!(
            "tree {hex}\nparent {hex}\nauthor {person}\ncommitter {person}\ngpgsig x\n y\n\nmessage\n"
        );
        let commit = Commit::parse(good.as_bytes(), Format::Sha1).unwrap();
        assert_eq!((commit.parents.len(), commit.message.as_slice()), (1, &b"message\n"[..]));
        for (from, to) in [
            ("tree ", "Tree "),
            ("\ngpgsig", "\nparent 5626abf0f72e58d7a153368ba57db4c673c0e171\ngpgsig"),
            ("\ngpgsig", "\ntree x\ngpgsig"),
            ("1700000000", "-1"),
            ("1700000000", "99999999999999999999"),
            ("+0100", "0100"),
            ("<a@example.com>", "a@example.com"),
            ("message", "mess\0age"),
            ("e171\nparent", "e17\nparent"),
            ("\n\nmessage\n", "\n"),
        ] {
            let bad = good.replace(from, to);
            assert_ne!(bad, good);
            assert_eq!(Commit::parse(bad.as_bytes(), Format::Sha1), None, "{bad}");
        }
        assert_eq!(Commit::parse(good.as_bytes(), Format::Sha256), None);
    }
}
