//! Reads an archive, compares everything in it with its list and manifest, and extracts it.

use std::cell::Cell;
use std::io::{self, Read};
use std::rc::Rc;

use serde::de::DeserializeOwned;
use stockade_bundle::RelativePath;
use stockade_bundle::beneath::Dir;

use crate::RECORDS;
use crate::entry::{Entry, Kind};
use crate::error::Error;
use crate::extract::Target;
use crate::hashing::{Hashing, sha256};
use crate::manifest::{FORM, Header, Manifest};

/// The names in an archive.
pub(crate) const HEADER: &str = "stockade-backup.json";
pub(crate) const RECORDS_BELOW: &str = "records";
pub(crate) const DATA: &str = "data";
pub(crate) const LIST: &str = "entries.jsonl";
pub(crate) const MANIFEST: &str = "manifest.json";
pub(crate) const MANIFEST_HASH: &str = "manifest.json.sha256";

/// The largest header and manifest, and the largest list of entries, which are held in memory.
const DOCUMENT_BYTES: u64 = 16 << 20;
const LIST_BYTES: usize = 1 << 30;
/// The most between the contents of two entries: names, attributes, and what has no place in an archive.
const BETWEEN_BYTES: u64 = 16 << 20;

/// Reads an archive completely, and compares each entry with its hash.
///
/// # Errors
/// The archive is damaged, incomplete, or of a newer form.
pub fn read(archive: impl Read) -> Result<Manifest, Error> {
    Reader::default().run(archive)
}

/// The same, and extracts it to an empty directory: the files of the data directory, and the records
/// as a file [`RECORDS`]. After an error the directory has parts of it.
///
/// # Errors
/// As [`read`]; a file cannot be created.
pub fn extract(archive: impl Read, to: &Dir) -> Result<Manifest, Error> {
    Reader { target: Some(Target::new(to)), ..Reader::default() }.run(archive)
}

#[derive(Default)]
struct Reader<'d> {
    target: Option<Target<'d>>,
    header: Option<Header>,
    /// The list as it was read so far.
    list: Vec<u8>,
    has_list: bool,
    has_records: bool,
    /// The manifest, with its hash.
    manifest: Option<(Manifest, String)>,
    is_whole: bool,
    entries: u64,
    bytes: u64,
}

impl Reader<'_> {
    fn run(mut self, archive: impl Read) -> Result<Manifest, Error> {
        let left = Rc::new(Cell::new(BETWEEN_BYTES));
        let mut archive = tar::Archive::new(Limited { inner: archive, left: Rc::clone(&left) });
        for found in archive.entries().map_err(Error::Read)? {
            // A content is not held in memory.
            left.set(u64::MAX);
            self.next(found.map_err(Error::Read)?)?;
            left.set(BETWEEN_BYTES);
        }
        let manifest = self.manifest.take().filter(|_| self.is_whole && self.has_records);
        let (manifest, _) = manifest.ok_or_else(|| Error::invalid("its end is missing"))?;
        if (manifest.entries, manifest.bytes) != (self.entries, self.bytes) {
            return Err(Error::invalid("it has another number of entries than its manifest says"));
        }
        if let Some(target) = self.target {
            target.finish()?;
        }
        Ok(manifest)
    }

    fn next(&mut self, mut found: tar::Entry<'_, impl Read>) -> Result<(), Error> {
        let name = found.path_bytes().into_owned();
        let Some(header) = &self.header else {
            if name != HEADER.as_bytes() {
                return Err(Error::invalid("it is no backup of Stockade"));
            }
            self.header = Some(header(&mut found)?);
            return Ok(());
        };
        if let Some((_, hash)) = &self.manifest {
            if self.is_whole || name != MANIFEST_HASH.as_bytes() {
                return Err(Error::invalid("something follows its manifest"));
            }
            self.is_whole = text(&mut found)? == hash.as_bytes();
            return match self.is_whole {
                true => Ok(()),
                false => Err(Error::invalid("its manifest was changed")),
            };
        }
        if name == MANIFEST.as_bytes() {
            let text = text(&mut found)?;
            let manifest: Manifest = parse(&text)?;
            if !self.has_list || manifest.list_sha256 != sha256(&self.list) {
                return Err(Error::invalid("its list is not the one of its manifest"));
            }
            if manifest.header != *header {
                return Err(Error::invalid("its manifest belongs to another backup"));
            }
            self.manifest = Some((manifest, sha256(&text)));
            return Ok(());
        }
        if self.has_list {
            return Err(Error::invalid("something follows its list"));
        }
        if name == LIST.as_bytes() {
            self.has_list = true;
            return self.compare(&mut found);
        }
        let (below, path) = match name.iter().position(|byte| *byte == b'/') {
            Some(slash) => name.split_at(slash + 1),
            None => return Err(Error::invalid("an entry has an unknown name")),
        };
        let path = path.strip_suffix(b"/").unwrap_or(path);
        let path = RelativePath::new(path).map_err(|error| Error::invalid(error.to_string()))?;
        let is_records = below == format!("{RECORDS_BELOW}/").as_bytes();
        let is_new_records =
            is_records && !self.has_records && path.as_bytes() == RECORDS.as_bytes();
        if !is_new_records && below != format!("{DATA}/").as_bytes() {
            return Err(Error::invalid("an entry has an unknown name"));
        }
        let entry = Entry::read(&mut found, below, path)?;
        self.has_records |= is_new_records;
        self.content(entry, found)
    }

    /// Reads the content of an entry, and creates it.
    fn content(&mut self, mut entry: Entry, found: impl Read) -> Result<(), Error> {
        let mut content = Hashing::new(found);
        match (&mut self.target, &self.header) {
            (Some(target), Some(header)) => target.create(&entry, &mut content, header)?,
            _ => {
                io::copy(&mut content, &mut io::sink()).map_err(Error::Read)?;
            }
        }
        let (hash, bytes) = content.finish();
        if bytes != entry.bytes {
            return Err(Error::invalid(format!("{} is not complete", entry.path.quoted())));
        }
        if entry.kind == Kind::File {
            entry.sha256 = Some(hash);
        }
        self.entries += 1;
        self.bytes += bytes;
        self.list.extend(entry.line()?);
        match self.list.len() > LIST_BYTES {
            true => Err(Error::invalid("it has too many entries")),
            false => Ok(()),
        }
    }

    /// Compares the list in the archive with what was read.
    fn compare(&self, found: &mut impl Read) -> Result<(), Error> {
        let mut list = Vec::new();
        // One that is longer is another one.
        found.take(self.list.len() as u64 + 1).read_to_end(&mut list).map_err(Error::Read)?;
        if list == self.list {
            return Ok(());
        }
        let (recorded, read) = (list.split(|b| *b == b'\n'), self.list.split(|b| *b == b'\n'));
        let different = recorded.zip(read).find(|(recorded, read)| recorded != read);
        let (_, read) = different.unwrap_or_default();
        let entry: Option<Named> = serde_json::from_slice(read).ok();
        Err(Error::invalid(match entry {
            Some(Named { path }) => format!("{} is not what was stored", path.quoted()),
            None => "its entries are not those of its list".to_owned(),
        }))
    }
}

/// An archive of which a limited number of bytes is read at once: a header that claims to be large does not
/// fill the memory.
struct Limited<R> {
    inner: R,
    left: Rc<Cell<u64>>,
}

impl<R: Read> Read for Limited<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.left.get();
        if left == 0 && !buffer.is_empty() {
            return Err(io::Error::other("a header is too large"));
        }
        let most = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
        let length = self.inner.read(&mut buffer[..most])?;
        self.left.set(left - length as u64);
        Ok(length)
    }
}

/// The path in a line of the list.
#[derive(serde::Deserialize)]
struct Named {
    path: RelativePath,
}

fn text(found: &mut impl Read) -> Result<Vec<u8>, Error> {
    let mut text = Vec::new();
    found.take(DOCUMENT_BYTES).read_to_end(&mut text).map_err(Error::Read)?;
    Ok(text)
}

fn parse<T: DeserializeOwned>(text: &[u8]) -> Result<T, Error> {
    serde_json::from_slice(text).map_err(|error| Error::invalid(error.to_string()))
}

/// The header. A newer form is reported before it is understood.
fn header(found: &mut impl Read) -> Result<Header, Error> {
    let text: serde_json::Value = parse(&text(found)?)?;
    let form = text["form"].as_u64().and_then(|form| u32::try_from(form).ok());
    match form {
        Some(form) if form > FORM => Err(Error::NewerForm { found: form, known: FORM }),
        _ => serde_json::from_value(text).map_err(|error| Error::invalid(error.to_string())),
    }
}
