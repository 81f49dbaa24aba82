//! A tree of files as a stream, in which it is copied into a sandbox or out of it.
//!
//! The stream walks the tree: a directory is entered, filled and left again. So a record contains
//! one name and never a path, and what a reader creates is always beneath the directory that it has
//! open. Both sides may be hostile: a reader checks every record.

use std::io::{self, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};
use stockade_bundle::RelativePath;
pub use stockade_bundle::sync::stays_inside;

use crate::files::Content;

/// The longest name in a directory.
const NAME_BYTES: usize = 255;
/// The longest target of a symbolic link, as in Linux.
const LINK_BYTES: usize = 4096;
/// The longest piece of a file's content.
const PIECE_BYTES: usize = 64 << 10;
/// In place of the length of a piece: the file could not be read to its end.
const BROKEN: u32 = u32::MAX;
/// How many directories may be within each other: each keeps descriptors open.
pub const TREE_DEPTH: usize = 128;

/// A record of a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record {
    /// Enters a directory.
    Enter {
        /// Its name.
        name: RelativePath,
        /// Its permission bits.
        mode: u32,
    },
    /// Leaves the current directory.
    Leave,
    /// A file. Its content follows.
    File {
        /// Its name.
        name: RelativePath,
        /// Its permission bits.
        mode: u32,
        /// When it was changed last, in seconds since 1970, and nanoseconds.
        modified: (i64, u32),
    },
    /// A symbolic link.
    Link {
        /// Its name.
        name: RelativePath,
        /// Its target.
        target: Vec<u8>,
    },
    /// An entry that is not copied.
    Skipped {
        /// Its name.
        name: RelativePath,
        /// Why.
        reason: SkipReason,
    },
}

/// Why an entry is not copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SkipReason {
    /// It may not be read.
    Unreadable,
    /// It is neither file, directory nor link, or it changed meanwhile.
    Special,
    /// It is the directory of files with secrets.
    SecretFile,
}

/// How much of a tree was copied.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TreeSize {
    /// Files.
    pub files: u64,
    /// Directories, without the top one.
    pub directories: u64,
    /// Symbolic links.
    pub links: u64,
    /// Bytes of the files.
    pub bytes: u64,
}

impl TreeSize {
    /// How many paths were copied.
    #[must_use]
    pub const fn paths(self) -> u64 {
        self.files.saturating_add(self.directories).saturating_add(self.links)
    }
}

/// How much of a tree has been written to a stream so far.
#[derive(Debug, Default)]
pub struct TreeProgress {
    paths: AtomicU64,
    bytes: AtomicU64,
}

impl TreeProgress {
    /// Adds what has been written.
    pub fn add(&self, paths: u64, bytes: u64) {
        self.paths.fetch_add(paths, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Paths, and bytes of their contents.
    pub fn read(&self) -> (u64, u64) {
        (self.paths.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed))
    }
}

/// A tree as a stream that is being written.
#[expect(missing_debug_implementations, reason = "a content has none")]
pub struct PackedTree {
    /// The stream.
    pub content: Content,
    /// How much has been written to it.
    pub progress: Arc<TreeProgress>,
}

/// Writes a tree.
#[derive(Debug)]
pub struct TreeWriter<W>(W);

impl<W: Write> TreeWriter<W> {
    /// Writes to this stream.
    pub const fn new(to: W) -> Self {
        Self(to)
    }

    /// Writes a record.
    ///
    /// # Errors
    /// Those of the stream.
    pub fn record(&mut self, record: &Record) -> io::Result<()> {
        let mut bytes = Vec::with_capacity(64);
        match record {
            Record::Enter { name, mode } => {
                put(&mut bytes, b'D', name.as_bytes())?;
                bytes.extend_from_slice(&mode.to_be_bytes());
            }
            Record::Leave => bytes.push(b'U'),
            Record::File { name, mode, modified } => {
                put(&mut bytes, b'F', name.as_bytes())?;
                bytes.extend_from_slice(&mode.to_be_bytes());
                bytes.extend_from_slice(&modified.0.to_be_bytes());
                bytes.extend_from_slice(&modified.1.to_be_bytes());
            }
            Record::Link { name, target } => {
                put(&mut bytes, b'L', name.as_bytes())?;
                put_text(&mut bytes, target)?;
            }
            Record::Skipped { name, reason } => {
                put(&mut bytes, b'S', name.as_bytes())?;
                bytes.push(match reason {
                    SkipReason::Unreadable => 0,
                    SkipReason::Special => 1,
                    SkipReason::SecretFile => 2,
                });
            }
        }
        self.0.write_all(&bytes)
    }

    /// Writes the content of a file after its record. A file that cannot be read to its end is
    /// marked, and its error returned; the stream continues.
    ///
    /// # Errors
    /// Those of the stream.
    pub fn content(&mut self, from: &mut impl Read) -> io::Result<Result<u64, io::Error>> {
        let mut piece = vec![0; PIECE_BYTES];
        let mut total = 0;
        loop {
            match from.read(&mut piece) {
                Ok(0) => {
                    self.0.write_all(&0_u32.to_be_bytes())?;
                    return Ok(Ok(total));
                }
                Ok(length) => {
                    let head = u32::try_from(length).map_err(io::Error::other)?;
                    self.0.write_all(&head.to_be_bytes())?;
                    self.0.write_all(&piece[..length])?;
                    total += length as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.0.write_all(&BROKEN.to_be_bytes())?;
                    return Ok(Err(error));
                }
            }
        }
    }

    /// Writes the end of the tree.
    ///
    /// # Errors
    /// Those of the stream.
    pub fn finish(mut self) -> io::Result<()> {
        self.0.write_all(b"E")?;
        self.0.flush()
    }
}

fn put(bytes: &mut Vec<u8>, kind: u8, name: &[u8]) -> io::Result<()> {
    bytes.push(kind);
    put_text(bytes, name)
}

fn put_text(bytes: &mut Vec<u8>, text: &[u8]) -> io::Result<()> {
    let length = u16::try_from(text.len()).map_err(|_| invalid("a name that is too long"))?;
    bytes.extend_from_slice(&length.to_be_bytes());
    bytes.extend_from_slice(text);
    Ok(())
}

/// Reads a tree.
#[derive(Debug)]
pub struct TreeReader<R> {
    from: R,
    depth: usize,
}

impl<R: Read> TreeReader<R> {
    /// Reads from this stream.
    pub const fn new(from: R) -> Self {
        Self { from, depth: 0 }
    }

    /// The next record; `None` at the end of the tree. The content of a file must have been read.
    ///
    /// # Errors
    /// Those of the stream, and `InvalidData` for a stream that is no tree.
    pub fn record(&mut self) -> io::Result<Option<Record>> {
        let [kind] = self.bytes()?;
        Ok(Some(match kind {
            b'D' => {
                self.depth += 1;
                if self.depth > TREE_DEPTH {
                    return Err(invalid("a tree that is too deep"));
                }
                Record::Enter { name: self.name()?, mode: u32::from_be_bytes(self.bytes()?) }
            }
            b'U' => {
                self.depth =
                    self.depth.checked_sub(1).ok_or_else(|| invalid("no directory to leave"))?;
                Record::Leave
            }
            b'F' => Record::File {
                name: self.name()?,
                mode: u32::from_be_bytes(self.bytes()?),
                modified: (i64::from_be_bytes(self.bytes()?), u32::from_be_bytes(self.bytes()?)),
            },
            b'L' => Record::Link { name: self.name()?, target: self.link()? },
            b'S' => {
                let name = self.name()?;
                let reason = match self.bytes()? {
                    [0] => SkipReason::Unreadable,
                    [1] => SkipReason::Special,
                    [2] => SkipReason::SecretFile,
                    _ => return Err(invalid("an unknown reason")),
                };
                Record::Skipped { name, reason }
            }
            b'E' if self.depth == 0 => return Ok(None),
            _ => return Err(invalid("an unknown record")),
        }))
    }

    /// Copies the content of a file, and returns its length; `None` if the file could not be read to
    /// its end. After an error of `to` the rest of the content is read and dropped, and that error
    /// returned.
    ///
    /// # Errors
    /// Those of the stream.
    pub fn content(&mut self, to: &mut impl Write) -> io::Result<Result<Option<u64>, io::Error>> {
        let mut piece = vec![0; PIECE_BYTES];
        let (mut total, mut failure) = (0, None);
        loop {
            let length = u32::from_be_bytes(self.bytes()?);
            if length == BROKEN {
                return Ok(failure.map_or(Ok(None), Err));
            }
            if length == 0 {
                return Ok(failure.map_or(Ok(Some(total)), Err));
            }
            let piece = piece
                .get_mut(..length as usize)
                .ok_or_else(|| invalid("a piece that is too long"))?;
            self.from.read_exact(piece)?;
            total += u64::from(length);
            if failure.is_none() {
                failure = to.write_all(piece).err();
            }
        }
    }

    /// A name in a directory: one component, and never one that leads elsewhere.
    fn name(&mut self) -> io::Result<RelativePath> {
        let bytes = self.text(NAME_BYTES)?;
        let name = RelativePath::new(bytes)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        match name.parent() {
            None => Ok(name),
            Some(_) => Err(invalid("a path in place of a name")),
        }
    }

    fn link(&mut self) -> io::Result<Vec<u8>> {
        let target = self.text(LINK_BYTES - 1)?;
        if target.is_empty() || target.contains(&0) {
            return Err(invalid("a link without a target"));
        }
        Ok(target)
    }

    fn text(&mut self, limit: usize) -> io::Result<Vec<u8>> {
        let length = usize::from(u16::from_be_bytes(self.bytes()?));
        if length > limit {
            return Err(invalid("a name that is too long"));
        }
        let mut bytes = vec![0; length];
        self.from.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    fn bytes<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.from.read_exact(&mut bytes)?;
        Ok(bytes)
    }
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the stream of files is invalid: {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> RelativePath {
        RelativePath::new(text).unwrap()
    }

    #[test]
    fn a_tree_survives_the_stream() {
        let records = [
            Record::Enter { name: name("d"), mode: 0o755 },
            Record::File { name: name("f"), mode: 0o644, modified: (-1, 5) },
            Record::Link { name: name("l"), target: b"../x".to_vec() },
            Record::Skipped { name: name("s"), reason: SkipReason::Special },
            Record::Leave,
        ];
        let content = vec![7; PIECE_BYTES + 1];
        let mut bytes = Vec::new();
        let mut writer = TreeWriter::new(&mut bytes);
        for record in &records {
            writer.record(record).unwrap();
            if matches!(record, Record::File { .. }) {
                let written = writer.content(&mut content.as_slice()).unwrap();
                assert_eq!(written.unwrap(), content.len() as u64);
            }
        }
        writer.finish().unwrap();
        let mut reader = TreeReader::new(bytes.as_slice());
        for record in &records {
            assert_eq!(reader.record().unwrap().as_ref(), Some(record));
            if matches!(record, Record::File { .. }) {
                let mut read = Vec::new();
                assert_eq!(reader.content(&mut read).unwrap().unwrap(), Some(content.len() as u64));
                assert_eq!(read, content);
            }
        }
        assert_eq!(reader.record().unwrap(), None);
        for end in 0..bytes.len() {
            let mut reader = TreeReader::new(&bytes[..end]);
            let ended = loop {
                match reader.record() {
                    Ok(Some(Record::File { .. })) => match reader.content(&mut io::sink()) {
                        Ok(read) => drop(read.unwrap()),
                        Err(error) => break error,
                    },
                    Ok(Some(_)) => {}
                    Ok(None) => panic!("a part of a tree is no tree"),
                    Err(error) => break error,
                }
            };
            assert_eq!(ended.kind(), io::ErrorKind::UnexpectedEof, "{end}");
        }
    }

    #[test]
    fn a_file_that_cannot_be_read_to_its_end_is_marked() {
        struct Fails(u32);
        impl Read for Fails {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                self.0 += 1;
                if self.0 > 1 { Err(io::Error::other("no")) } else { Ok(buffer.len().min(3)) }
            }
        }
        let mut bytes = Vec::new();
        let mut writer = TreeWriter::new(&mut bytes);
        writer.content(&mut Fails(0)).unwrap().unwrap_err();
        writer.record(&Record::Leave).unwrap();
        let mut reader = TreeReader { from: bytes.as_slice(), depth: 1 };
        assert_eq!(reader.content(&mut io::sink()).unwrap().unwrap(), None);
        assert_eq!(reader.record().unwrap(), Some(Record::Leave));
    }

    #[test]
    fn hostile_streams_are_refused() {
        for bytes in [
            &b"F\0\x02..\0\0\0\0"[..],
            b"F\0\x01.",
            b"F\0\x03a/b",
            b"F\0\x02/a",
            b"F\0\x02a/",
            b"F\0\x00",
            b"F\0\x01\0",
            b"D\x01\x00",
            b"L\0\x01a\0\x00",
            b"L\0\x01a\0\x02a\0",
            b"L\0\x01a\x10\x00",
            b"S\0\x01a\x03",
            b"U",
            b"x",
        ] {
            let error = TreeReader::new(bytes).record().unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{bytes:?}");
        }
        let long = [0, 1, 0, 1].as_slice();
        assert!(TreeReader::new(long).content(&mut io::sink()).is_err());
        let deep = b"D\0\x01a\0\0\x01\xed".repeat(TREE_DEPTH + 1);
        let mut reader = TreeReader::new(deep.as_slice());
        assert!((0..=TREE_DEPTH).any(|_| reader.record().is_err()));
        let mut open = TreeReader::new(&b"D\0\x01a\0\0\0\0E"[..]);
        open.record().unwrap();
        assert!(open.record().is_err(), "the end within a directory");
    }

    #[test]
    fn links_stay_inside_only_if_nothing_can_lead_them_out() {
        for (target, depth, inside) in [
            ("x", 0, true),
            ("./x/y", 0, true),
            ("..", 0, false),
            ("..", 1, true),
            ("../x", 1, true),
            ("../../x", 1, false),
            ("../../x", 2, true),
            ("/x", 9, false),
            ("a/../x", 9, false),
            (".", 0, true),
            ("a//b", 0, true),
            ("..x", 0, true),
        ] {
            assert_eq!(stays_inside(target.as_bytes(), depth), inside, "{target} at {depth}");
        }
    }
}
