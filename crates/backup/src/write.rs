//! Writes an archive of a data directory.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;

use stockade_bundle::beneath::{Dir, FileKind, Stat};
use stockade_bundle::{RelativePath, attributes};

use crate::RECORDS;
use crate::entry::{Entry, Kind};
use crate::error::{Error, io_error};
use crate::hashing::{Hashing, sha256};
use crate::manifest::{Header, Manifest, TableRows};
use crate::parts::is_included;
use crate::read::{DATA, HEADER, LIST, MANIFEST, MANIFEST_HASH, RECORDS_BELOW};

/// The deepest directory, so that descriptors and the stack suffice.
const MAX_DEPTH: usize = 256;
/// The longest path that the kernel accepts in one call.
const PATH_BYTES: usize = 4000;

/// Writes an archive of a data directory, with these records: `records` is a complete SQLite file.
/// Of the files of sandboxes, it has those of `stopped`. Returns its last entry.
///
/// # Errors
/// A file cannot be read, or was changed meanwhile; the archive cannot be written.
pub fn write<W: Write>(
    to: W,
    header: Header,
    records: File,
    tables: Vec<TableRows>,
    data: &Dir,
    stopped: BTreeSet<String>,
) -> Result<(W, Manifest), Error> {
    let mut writer = Writer {
        archive: tar::Builder::new(to),
        list: Vec::new(),
        entries: 0,
        bytes: 0,
        left_out: 0,
        names: HashMap::new(),
        stopped,
    };
    writer.document(HEADER, &header)?;
    writer.records(records)?;
    writer.directory(data, None, 0)?;
    let list_sha256 = sha256(&writer.list);
    let list = std::mem::take(&mut writer.list);
    writer.text(LIST, &list)?;
    let manifest = Manifest {
        header,
        tables,
        entries: writer.entries,
        bytes: writer.bytes,
        left_out: writer.left_out,
        list_sha256,
    };
    let hash = writer.document(MANIFEST, &manifest)?;
    writer.text(MANIFEST_HASH, hash.as_bytes())?;
    let to = writer.archive.into_inner().map_err(Error::Write)?;
    Ok((to, manifest))
}

struct Writer<W: Write> {
    archive: tar::Builder<W>,
    list: Vec<u8>,
    entries: u64,
    bytes: u64,
    left_out: u64,
    /// The first names of files that have several, by device and inode.
    names: HashMap<(u64, u64), RelativePath>,
    /// The sandboxes whose files are in the archive.
    stopped: BTreeSet<String>,
}

impl<W: Write> Writer<W> {
    /// Adds a document, and returns its hash.
    fn document(&mut self, name: &str, document: &impl serde::Serialize) -> Result<String, Error> {
        let text = serde_json::to_vec_pretty(document);
        let text = text.map_err(|error| Error::Write(error.into()))?;
        self.text(name, &text)?;
        Ok(sha256(&text))
    }

    fn text(&mut self, name: &str, text: &[u8]) -> Result<(), Error> {
        let mut header = tar::Header::new_gnu();
        header.set_mode(0o600);
        header.set_size(text.len() as u64);
        self.archive.append_data(&mut header, name, text).map_err(Error::Write)
    }

    fn records(&mut self, mut file: File) -> Result<(), Error> {
        let path = RelativePath::literal(RECORDS);
        let stat = Stat::of(&file).map_err(|errno| Error::file(&path, errno))?;
        let mut entry = entry(path, Kind::File, &stat);
        entry.mode = 0o600;
        self.content(entry, &mut file, RECORDS_BELOW)
    }

    /// Adds all entries of a directory, sorted by their names. `path` is that of the directory.
    fn directory(
        &mut self,
        directory: &Dir,
        path: Option<&RelativePath>,
        depth: usize,
    ) -> Result<(), Error> {
        let mut names = directory.entries().map_err(Error::Directory)?;
        names.sort_by(|(one, _), (other, _)| one.cmp(other));
        for (name, _) in names {
            let here = RelativePath::new(name.clone());
            let here = here.map_err(|error| Error::invalid(error.to_string()))?;
            let whole = path.map_or_else(|| Ok(here.clone()), |path| path.join(&name));
            let whole = whole.map_err(|error| Error::invalid(error.to_string()))?;
            if is_included(&whole, &self.stopped) {
                self.entry(directory, &here, whole, depth)?;
            }
        }
        Ok(())
    }

    /// Adds the entry `name` of a directory, with everything below it.
    fn entry(
        &mut self,
        directory: &Dir,
        name: &RelativePath,
        path: RelativePath,
        depth: usize,
    ) -> Result<(), Error> {
        let failed = |error| Error::file(&path, io_error(error));
        let unsupported = |reason| Error::Unsupported { path: path.clone(), reason };
        if path.as_bytes().len() > PATH_BYTES {
            return Err(unsupported("its path is too long"));
        }
        let stat = directory.stat(name).map_err(failed)?;
        let Some(stat) = stat else { return Err(Error::Changed { path }) };
        if stat.mount_point {
            return Err(unsupported("something is mounted there"));
        }
        if stat.kind != FileKind::Directory && stat.links > 1 {
            if let Some(first) = self.names.get(&(stat.device, stat.inode)) {
                let target = Some(Entry::encoded(first.as_bytes()));
                return self.plain(Entry { target, ..entry(path, Kind::HardLink, &stat) });
            }
            self.names.insert((stat.device, stat.inode), path.clone());
        }
        match stat.kind {
            FileKind::Directory => {
                if depth == MAX_DEPTH {
                    return Err(unsupported("the directory is too deep"));
                }
                let below = directory.open_dir(name).map_err(failed)?;
                let attributes = attributes_of(&below, &path)?;
                self.plain(Entry { attributes, ..entry(path.clone(), Kind::Directory, &stat) })?;
                self.directory(&below, Some(&path), depth + 1)
            }
            FileKind::File => {
                let mut file = directory.open_file(name).map_err(failed)?;
                let now = Stat::of(&file).map_err(|errno| Error::file(&path, errno))?;
                if (now.device, now.inode) != (stat.device, stat.inode) {
                    return Err(Error::Changed { path });
                }
                let attributes = attributes_of(&file, &path)?;
                let entry = Entry { attributes, ..entry(path, Kind::File, &now) };
                self.content(entry, &mut file, DATA)
            }
            FileKind::Symlink => {
                let target = directory.read_link(name).map_err(failed)?;
                let target = Some(Entry::encoded(&target));
                self.plain(Entry { target, ..entry(path, Kind::Symlink, &stat) })
            }
            FileKind::CharacterDevice if stat.device_number == 0 => {
                self.plain(entry(path, Kind::Deletion, &stat))
            }
            FileKind::CharacterDevice | FileKind::Other => self.other(directory, name, path, &stat),
        }
    }

    /// Adds a pipe, and counts what cannot be stored: sockets, which belong to processes, and devices.
    fn other(
        &mut self,
        directory: &Dir,
        name: &RelativePath,
        path: RelativePath,
        stat: &Stat,
    ) -> Result<(), Error> {
        let flags = rustix::fs::AtFlags::SYMLINK_NOFOLLOW;
        let found = rustix::fs::statat(directory, name.as_os_str(), flags);
        let found = found.map_err(|errno| Error::file(&path, errno))?;
        if rustix::fs::FileType::from_raw_mode(found.st_mode) == rustix::fs::FileType::Fifo {
            return self.plain(entry(path, Kind::Pipe, stat));
        }
        self.left_out += 1;
        Ok(())
    }

    /// Adds an entry without content.
    fn plain(&mut self, entry: Entry) -> Result<(), Error> {
        entry.append(&mut self.archive, DATA, io::empty()).map_err(Error::Write)?;
        self.listed(&entry)
    }

    /// Adds a file, which must not change meanwhile.
    fn content(
        &mut self,
        mut entry: Entry,
        file: &mut impl Read,
        below: &str,
    ) -> Result<(), Error> {
        let mut content = Whole { inner: Hashing::new(file), left: entry.bytes, failed: None };
        let appended = entry.append(&mut self.archive, below, &mut content);
        if let Some(failed) = content.failed.take() {
            return Err(match failed {
                Some(source) => Error::file(&entry.path, source),
                None => Error::Changed { path: entry.path },
            });
        }
        appended.map_err(Error::Write)?;
        let (hash, _) = content.inner.finish();
        self.bytes += entry.bytes;
        entry.sha256 = Some(hash);
        self.listed(&entry)
    }

    fn listed(&mut self, entry: &Entry) -> Result<(), Error> {
        self.entries += 1;
        self.list.extend(entry.line()?);
        Ok(())
    }
}

/// An entry with this metadata.
fn entry(path: RelativePath, kind: Kind, stat: &Stat) -> Entry {
    Entry {
        path,
        kind,
        mode: stat.mode & 0o7777,
        uid: stat.uid,
        gid: stat.gid,
        modified: stat.modified,
        bytes: if kind == Kind::File { stat.size } else { 0 },
        sha256: None,
        target: None,
        attributes: BTreeMap::new(),
    }
}

/// The extended attributes that Stockade or a program has set; those of security modules belong to the
/// machine.
fn attributes_of(file: impl AsFd, path: &RelativePath) -> Result<BTreeMap<String, String>, Error> {
    let mut found = BTreeMap::new();
    for name in attributes::names(&file).map_err(|errno| Error::file(path, errno))? {
        let is_kept = [&b"user."[..], b"trusted.", b"system.posix_acl_"]
            .iter()
            .any(|prefix| name.starts_with(prefix))
            || name == b"security.capability";
        if !is_kept {
            continue;
        }
        let value = attributes::value(&file, &name).map_err(|errno| Error::file(path, errno))?;
        let name = String::from_utf8(name).map_err(|_| Error::Unsupported {
            path: path.clone(),
            reason: "the name of an extended attribute is not text",
        })?;
        found.insert(name, Entry::encoded(&value));
    }
    Ok(found)
}

/// A file that must have exactly its recorded length.
struct Whole<R> {
    inner: R,
    left: u64,
    /// Why reading failed; nothing inside means that the length is another one.
    failed: Option<Option<io::Error>>,
}

impl<R: Read> Read for Whole<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.left == 0 {
            return Ok(0);
        }
        let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
        match self.inner.read(&mut buffer[..most]) {
            Ok(0) => {
                self.failed = Some(None);
                Err(io::ErrorKind::UnexpectedEof.into())
            }
            Ok(length) => {
                self.left -= length as u64;
                Ok(length)
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Err(error),
            Err(error) => {
                self.failed = Some(Some(error));
                Err(io::ErrorKind::Other.into())
            }
        }
    }
}
