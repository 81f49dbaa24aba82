//! One entry of an archive, as the list at its end has it, and how a tar file carries it.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde::Serialize;
use stockade_bundle::RelativePath;
use stockade_bundle::beneath::Timestamp;

use crate::error::Error;

/// The prefix of extended attributes in pax headers. Name and value are in base64: the headers are
/// read as lines of text.
const ATTRIBUTE: &str = "STOCKADE.xattr.";
const MTIME: &str = "mtime";
/// The longest target of a link.
const TARGET_BYTES: usize = 4096;

/// What an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Kind {
    File,
    Directory,
    Symlink,
    /// Another name of an earlier file, which is its target.
    HardLink,
    Pipe,
    /// The character device 0:0, which is a deletion in the upper layer of an overlay.
    Deletion,
}

/// One entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Entry {
    pub(crate) path: RelativePath,
    pub(crate) kind: Kind,
    /// The permission bits.
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) modified: Timestamp,
    /// The length of a file.
    pub(crate) bytes: u64,
    /// The hash of a file's content.
    pub(crate) sha256: Option<String>,
    /// The target of a link, in base64.
    pub(crate) target: Option<String>,
    /// Extended attributes with their values in base64.
    pub(crate) attributes: BTreeMap<String, String>,
}

impl Entry {
    /// The target of a link as bytes.
    pub(crate) fn target(&self) -> Vec<u8> {
        self.target.as_ref().and_then(|text| STANDARD.decode(text).ok()).unwrap_or_default()
    }

    /// The extended attributes with their values.
    pub(crate) fn attributes(&self) -> impl Iterator<Item = (&str, Vec<u8>)> {
        let decode = |value: &String| STANDARD.decode(value).unwrap_or_default();
        self.attributes.iter().map(move |(name, value)| (name.as_str(), decode(value)))
    }

    /// The form of bytes in the list.
    pub(crate) fn encoded(bytes: &[u8]) -> String {
        STANDARD.encode(bytes)
    }

    /// Its line of the list.
    pub(crate) fn line(&self) -> Result<Vec<u8>, Error> {
        let line = serde_json::to_vec(self).map_err(|error| Error::invalid(error.to_string()));
        line.map(|mut line| {
            line.push(b'\n');
            line
        })
    }

    /// Writes it to a tar file, below a directory.
    pub(crate) fn append<W: Write>(
        &self,
        archive: &mut tar::Builder<W>,
        below: &str,
        content: impl Read,
    ) -> io::Result<()> {
        let time = format!("{}.{:09}", self.modified.seconds, self.modified.nanoseconds);
        let attributes: Vec<_> = self
            .attributes
            .iter()
            .map(|(name, value)| (format!("{ATTRIBUTE}{}", URL_SAFE_NO_PAD.encode(name)), value))
            .collect();
        let headers = attributes.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
        archive.append_pax_extensions(headers.chain([(MTIME, time.as_bytes())]))?;
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(match self.kind {
            Kind::File => tar::EntryType::Regular,
            Kind::Directory => tar::EntryType::Directory,
            Kind::Symlink => tar::EntryType::Symlink,
            Kind::HardLink => tar::EntryType::Link,
            Kind::Pipe => tar::EntryType::Fifo,
            Kind::Deletion => tar::EntryType::Char,
        });
        header.set_mode(self.mode);
        header.set_uid(self.uid.into());
        header.set_gid(self.gid.into());
        header.set_mtime(u64::try_from(self.modified.seconds).unwrap_or_default());
        header.set_size(self.bytes);
        if self.kind == Kind::Deletion {
            header.set_device_major(0)?;
            header.set_device_minor(0)?;
        }
        let path = Path::new(below).join(self.path.as_os_str());
        match self.kind {
            Kind::Symlink => {
                let target = self.target();
                archive.append_link(&mut header, path, Path::new(OsStr::from_bytes(&target)))
            }
            Kind::HardLink => {
                let target = Path::new(below).join(OsStr::from_bytes(&self.target()));
                archive.append_link(&mut header, path, target)
            }
            _ => archive.append_data(&mut header, path, content),
        }
    }

    /// Reads one from a tar file, without the hash of its content. `below` is the directory that it is
    /// in.
    pub(crate) fn read(
        found: &mut tar::Entry<'_, impl Read>,
        below: &[u8],
        path: RelativePath,
    ) -> Result<Self, Error> {
        let mut modified = None;
        let mut attributes = BTreeMap::new();
        for extension in found.pax_extensions().map_err(Error::Read)?.into_iter().flatten() {
            let extension = extension.map_err(Error::Read)?;
            let name = extension.key().map_err(|_| Error::invalid("a header is no text"))?;
            if name == MTIME {
                modified = extension.value().ok().and_then(time);
            } else if let Some(name) = name.strip_prefix(ATTRIBUTE) {
                let name = URL_SAFE_NO_PAD.decode(name).ok().map(String::from_utf8);
                let value = extension.value().ok().filter(|text| STANDARD.decode(text).is_ok());
                let (Some(Ok(name)), Some(value)) = (name, value) else {
                    return Err(Error::invalid("an extended attribute cannot be read"));
                };
                attributes.insert(name, value.to_owned());
            }
        }
        let header = found.header();
        let number = |number: io::Result<u64>| -> Result<u32, Error> {
            let number = number.map_err(Error::Read)?;
            u32::try_from(number).map_err(|_| Error::invalid("an owner or a mode is too large"))
        };
        let kind = match header.entry_type() {
            tar::EntryType::Regular => Kind::File,
            tar::EntryType::Directory => Kind::Directory,
            tar::EntryType::Symlink => Kind::Symlink,
            tar::EntryType::Link => Kind::HardLink,
            tar::EntryType::Fifo => Kind::Pipe,
            tar::EntryType::Char
                if matches!(
                    (header.device_major(), header.device_minor()),
                    (Ok(Some(0)), Ok(Some(0)))
                ) =>
            {
                Kind::Deletion
            }
            other => return Err(Error::invalid(format!("an entry is of the kind {other:?}"))),
        };
        let (mode, uid) = (header.mode().map_err(Error::Read)?, number(header.uid())?);
        let gid = number(header.gid())?;
        let target = match kind {
            Kind::Symlink | Kind::HardLink => {
                let target = found.link_name_bytes().unwrap_or_default().into_owned();
                let target = match kind {
                    Kind::HardLink => target.strip_prefix(below).map(<[u8]>::to_vec),
                    _ => Some(target),
                };
                let target = target.filter(|target| (1..TARGET_BYTES).contains(&target.len()));
                Some(target.ok_or_else(|| Error::invalid("a link has no valid target"))?)
            }
            _ => None,
        };
        let bytes = if kind == Kind::File { found.size() } else { 0 };
        let modified = modified.ok_or_else(|| Error::invalid("an entry has no valid time"))?;
        Ok(Self {
            path,
            kind,
            mode: mode & 0o7777,
            uid,
            gid,
            modified,
            bytes,
            sha256: None,
            target: target.map(|target| Self::encoded(&target)),
            attributes,
        })
    }
}

/// Reads a time of a pax header, as [`Entry::append`] writes it.
fn time(text: &str) -> Option<Timestamp> {
    let (seconds, nanoseconds) = text.split_once('.')?;
    let nanoseconds = (nanoseconds.len() == 9).then(|| nanoseconds.parse().ok()).flatten()?;
    Some(Timestamp { seconds: seconds.parse().ok()?, nanoseconds })
}
