//! The objects that git has written in a jail, as `git cat-file --batch` prints them. Every object is
//! checked against its name, so that nothing depends on the process that wrote them.

use std::collections::HashMap;
use std::io::{self, BufRead, Read as _};

use super::Error;
use super::object::{Format, Kind, ObjectId};

/// The longest line before an object.
const MAX_LINE_BYTES: u64 = 200;
/// The most bytes of all objects together, and of one.
pub const MAX_BYTES: u64 = 512 << 20;
const MAX_OBJECT_BYTES: u64 = 100 << 20;
/// The most objects.
const MAX_OBJECTS: usize = 1_000_000;

/// Objects by their names.
#[derive(Debug, Default)]
pub struct Objects {
    objects: HashMap<ObjectId, (Kind, Vec<u8>)>,
    /// The sizes of all objects together.
    bytes: u64,
}

impl Objects {
    /// Reads more objects.
    ///
    /// # Errors
    /// [`Error::Stream`] for an output that git does not write, an object with another name than its
    /// content has, or more than the limits allow.
    pub fn read(&mut self, mut stream: impl BufRead, format: Format) -> Result<(), Error> {
        let objects = &mut self.objects;
        let total = &mut self.bytes;
        loop {
            let mut line = Vec::new();
            let read = (&mut stream).take(MAX_LINE_BYTES).read_until(b'\n', &mut line);
            if read.map_err(Error::Read)? == 0 {
                return Ok(());
            }
            let (id, kind, size) = header(&line).ok_or(Error::Stream("an object has no header"))?;
            *total = total.saturating_add(size);
            if size > MAX_OBJECT_BYTES || *total > MAX_BYTES || objects.len() >= MAX_OBJECTS {
                return Err(Error::TooLarge);
            }
            let mut content = Vec::new();
            (&mut stream).take(size).read_to_end(&mut content).map_err(Error::Read)?;
            let mut end = [0];
            match stream.read_exact(&mut end) {
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    return Err(Error::Stream("an object is cut off"));
                }
                read => read.map_err(Error::Read)?,
            }
            if content.len() as u64 != size || end != *b"\n" {
                return Err(Error::Stream("an object has another length"));
            }
            // Tags and the like are of no commit.
            let Some(kind) = kind else { continue };
            if format.hash(kind, &content).as_ref() != Some(&id) {
                return Err(Error::Stream("an object has another name than its content"));
            }
            objects.insert(id, (kind, content));
        }
    }

    /// The content of an object of this kind.
    pub(crate) fn get(&self, id: &ObjectId, kind: Kind) -> Option<&[u8]> {
        self.objects
            .get(id)
            .filter(|(found, _)| *found == kind)
            .map(|(_, content)| content.as_slice())
    }
}

fn header(line: &[u8]) -> Option<(ObjectId, Option<Kind>, u64)> {
    let line = std::str::from_utf8(line.strip_suffix(b"\n")?).ok()?;
    let mut parts = line.split(' ');
    let (id, kind, size) = (parts.next()?, parts.next()?, parts.next()?);
    let id = ObjectId::from_hex(id.as_bytes())?;
    parts.next().is_none().then_some((id, Kind::named(kind.as_bytes()), size.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "5626abf0f72e58d7a153368ba57db4c673c0e171";

    fn read(text: &str) -> Result<Objects, Error> {
        let mut objects = Objects::default();
        objects.read(text.as_bytes(), Format::Sha1).map(|()| objects)
    }

    #[test]
    fn objects_are_read_by_their_names() {
        let objects = read(&format!("{ONE} blob 4\none\n\n")).unwrap();
        let id = ObjectId::from_hex(ONE.as_bytes()).unwrap();
        assert_eq!(objects.get(&id, Kind::Blob), Some(&b"one\n"[..]));
        assert_eq!(objects.get(&id, Kind::Tree), None);
        assert!(read("").is_ok());
    }

    #[test]
    fn other_output_is_refused() {
        for text in [
            format!("{ONE} blob 4\ntwo\n\n"),
            format!("{ONE} tree 4\none\n\n"),
            format!("{ONE} blob 5\none\n\n"),
            format!("{ONE} blob 3\none\n\n"),
            format!("{ONE} blob 99999999999\none\n\n"),
            format!("{ONE} blob -1\n"),
            format!("{ONE} missing\n"),
            "x".repeat(1000),
        ] {
            assert!(read(&text).is_err(), "{text}");
        }
    }
}
