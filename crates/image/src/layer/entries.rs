//! The entries of a TAR, one after the other. Names, sizes and attributes from extension headers
//! are bounded before they are held in memory: the `tar` crate's own iterator would hold a name of
//! any length. Its header types are used.

use std::io::{self, Read};

use tar::{EntryType, GnuExtSparseHeader, GnuSparseHeader, Header, PaxExtensions};

use super::Error;

/// The size of all units of the format.
const BLOCK: usize = 512;
/// The longest path of an entry or of a link's target, as `PATH_MAX`.
pub(crate) const MAX_NAME: usize = 4096;
/// The most bytes of the extension headers of one entry together.
const MAX_EXTENSION: u64 = 1 << 20;
/// The most parts with content of a sparse file.
const MAX_PARTS: usize = 1 << 16;

/// The metadata of an entry.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) kind: EntryType,
    pub(crate) path: Vec<u8>,
    pub(crate) link: Vec<u8>,
    pub(crate) mode: u32,
    pub(crate) user: u64,
    pub(crate) group: u64,
    /// Seconds and nanoseconds.
    pub(crate) modified: (i64, u32),
    /// Extended attributes.
    pub(crate) attributes: Vec<(Vec<u8>, Vec<u8>)>,
    /// How many bytes of content follow in the archive.
    pub(crate) stored: u64,
    /// For a sparse file: its size, and the parts that have content, in ascending order.
    pub(crate) sparse: Option<(u64, Vec<Part>)>,
}

/// A part of a sparse file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) offset: u64,
    pub(crate) length: u64,
}

/// Reads the entries of an archive.
#[derive(Debug)]
pub(crate) struct Entries<R> {
    archive: R,
    /// How many bytes of the present entry's content were not read, and of its padding.
    left: (u64, u64),
}

/// What extension headers say about the next entry.
#[derive(Debug, Default)]
struct Extensions {
    path: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    size: Option<u64>,
    user: Option<u64>,
    group: Option<u64>,
    modified: Option<(i64, u32)>,
    attributes: Vec<(Vec<u8>, Vec<u8>)>,
    sparse: PaxSparse,
}

/// The members of a sparse file in the PAX formats 0.0, 0.1 and 1.0.
#[derive(Debug, Default)]
struct PaxSparse {
    major: Option<u64>,
    name: Option<Vec<u8>>,
    size: Option<u64>,
    numbers: Vec<u64>,
}

impl<R: Read> Entries<R> {
    pub(crate) fn new(archive: R) -> Self {
        Self { archive, left: (0, 0) }
    }

    /// The next entry; `None` at the end of the archive.
    pub(crate) fn next(&mut self) -> Result<Option<Entry>, Error> {
        let mut extensions = Extensions::default();
        let mut left = MAX_EXTENSION;
        loop {
            self.skip_content()?;
            let Some(header) = self.header()? else { return Ok(None) };
            let size = header.entry_size().map_err(malformed)?;
            let kind = header.entry_type();
            if matches!(
                kind,
                EntryType::XHeader
                    | EntryType::XGlobalHeader
                    | EntryType::GNULongName
                    | EntryType::GNULongLink
            ) {
                // An entry may have any number of them: what they say is held in memory until it comes.
                let taken = size.saturating_add(BLOCK as u64);
                let too_large = || Error::Limit { limit: "names", value: MAX_EXTENSION };
                left = left.checked_sub(taken).ok_or_else(too_large)?;
            }
            match kind {
                EntryType::XHeader => {
                    let text = self.extension(size, MAX_EXTENSION)?;
                    extensions.read_pax(&text)?;
                }
                EntryType::GNULongName => extensions.path = Some(self.long_name(size)?),
                EntryType::GNULongLink => extensions.link = Some(self.long_name(size)?),
                // Applies to all that follows, and no tool that makes layers uses it.
                EntryType::XGlobalHeader => {
                    self.extension(size, MAX_EXTENSION)?;
                }
                _ => return self.entry(&header, size, extensions).map(Some),
            }
        }
    }

    /// Reads content of the present entry.
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> Result<usize, Error> {
        let most = usize::try_from(self.left.0).unwrap_or(usize::MAX).min(buffer.len());
        if most == 0 {
            return Ok(0);
        }
        let read = self.archive.read(&mut buffer[..most]).map_err(Error::Read)?;
        if read == 0 {
            return Err(Error::Read(io::ErrorKind::UnexpectedEof.into()));
        }
        self.left.0 -= read as u64;
        Ok(read)
    }

    /// Reads what follows the archive to its end, so that the whole content has a digest.
    pub(crate) fn drain(mut self) -> Result<(), Error> {
        io::copy(&mut self.archive, &mut io::sink()).map_err(Error::Read)?;
        Ok(())
    }

    fn skip_content(&mut self) -> Result<(), Error> {
        let (content, padding) = std::mem::take(&mut self.left);
        let length = content.checked_add(padding).ok_or_else(|| malformed("a size"))?;
        let skipped = io::copy(&mut (&mut self.archive).take(length), &mut io::sink())
            .map_err(Error::Read)?;
        if skipped < length {
            return Err(Error::Read(io::ErrorKind::UnexpectedEof.into()));
        }
        Ok(())
    }

    /// The next header. An archive ends with a block of zeros, or without one.
    fn header(&mut self) -> Result<Option<Header>, Error> {
        let mut block = [0; BLOCK];
        if !self.fill(&mut block)? || block.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        let header = Header::from_byte_slice(&block).clone();
        let sum = |sum: u32, byte: &u8| sum + u32::from(*byte);
        // The sum itself counts as eight spaces.
        let found = block[..148].iter().chain(&block[156..]).fold(8 * 32, sum);
        if header.cksum().map_err(malformed)? != found {
            return Err(malformed("a header whose checksum is wrong"));
        }
        Ok(Some(header))
    }

    /// Fills a block; `false` if the archive has ended before it.
    fn fill(&mut self, block: &mut [u8; BLOCK]) -> Result<bool, Error> {
        let mut length = 0;
        while length < BLOCK {
            match self.archive.read(&mut block[length..]).map_err(Error::Read)? {
                0 if length == 0 => return Ok(false),
                0 => return Err(Error::Read(io::ErrorKind::UnexpectedEof.into())),
                read => length += read,
            }
        }
        Ok(true)
    }

    /// The content of an extension header.
    fn extension(&mut self, size: u64, limit: u64) -> Result<Vec<u8>, Error> {
        if size > limit {
            return Err(Error::Limit { limit: "names", value: limit });
        }
        self.left = (size, padding(size));
        let mut text = Vec::new();
        let mut buffer = [0; 4096];
        loop {
            match self.read(&mut buffer)? {
                0 => return Ok(text),
                read => text.extend_from_slice(&buffer[..read]),
            }
        }
    }

    fn long_name(&mut self, size: u64) -> Result<Vec<u8>, Error> {
        let mut name = self.extension(size, MAX_NAME as u64 + 1)?;
        if let Some(end) = name.iter().position(|byte| *byte == 0) {
            name.truncate(end);
        }
        Ok(name)
    }

    fn entry(
        &mut self,
        header: &Header,
        size: u64,
        extensions: Extensions,
    ) -> Result<Entry, Error> {
        let kind = header.entry_type();
        // Only files have content. Other entries may name a size, which means nothing.
        let has_content =
            matches!(kind, EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse)
                || !matches!(
                    kind,
                    EntryType::Directory
                        | EntryType::Symlink
                        | EntryType::Link
                        | EntryType::Char
                        | EntryType::Block
                        | EntryType::Fifo
                );
        let stored = if has_content { extensions.size.unwrap_or(size) } else { 0 };
        self.left = (stored, padding(stored));
        let number = |text: io::Result<u64>| text.map_err(malformed);
        let mut entry = Entry {
            kind,
            path: extensions.path.unwrap_or_else(|| header.path_bytes().into_owned()),
            link: extensions.link.unwrap_or_else(|| {
                header.link_name_bytes().map(std::borrow::Cow::into_owned).unwrap_or_default()
            }),
            mode: header.mode().map_err(malformed)?,
            user: extensions.user.map_or_else(|| number(header.uid()), Ok)?,
            group: extensions.group.map_or_else(|| number(header.gid()), Ok)?,
            modified: match extensions.modified {
                Some(modified) => modified,
                None => (i64::try_from(number(header.mtime())?).unwrap_or(0), 0),
            },
            attributes: extensions.attributes,
            stored,
            sparse: None,
        };
        if kind == EntryType::GNUSparse {
            entry.sparse = Some(self.gnu_sparse(header)?);
        } else if let Some(size) = extensions.sparse.size
            && matches!(kind, EntryType::Regular | EntryType::Continuous)
        {
            let mut numbers = extensions.sparse.numbers;
            if extensions.sparse.major == Some(1) {
                numbers = self.sparse_map()?;
                entry.stored = self.left.0;
            }
            let parts =
                numbers.chunks_exact(2).map(|pair| Part { offset: pair[0], length: pair[1] });
            entry.sparse = Some((size, parts.collect()));
            if let Some(name) = extensions.sparse.name {
                entry.path = name;
            }
        }
        if let Some((size, parts)) = &entry.sparse {
            check_parts(*size, parts, entry.stored)?;
        }
        if entry.path.len() > MAX_NAME || entry.link.len() > MAX_NAME {
            return Err(Error::Limit { limit: "names", value: MAX_NAME as u64 });
        }
        Ok(entry)
    }

    /// The parts of a sparse file in GNU's old format: in the header, and in blocks behind it.
    fn gnu_sparse(&mut self, header: &Header) -> Result<(u64, Vec<Part>), Error> {
        let gnu = header.as_gnu().ok_or_else(|| malformed("a sparse file without GNU's header"))?;
        let mut parts = Vec::new();
        push_parts(&mut parts, &gnu.sparse)?;
        let mut more = gnu.is_extended();
        while more {
            let mut block = GnuExtSparseHeader::new();
            if !self.fill(block.as_mut_bytes())? {
                return Err(Error::Read(io::ErrorKind::UnexpectedEof.into()));
            }
            push_parts(&mut parts, block.sparse())?;
            more = block.is_extended();
        }
        Ok((gnu.real_size().map_err(malformed)?, parts))
    }

    /// The map of a sparse file in the PAX format 1.0: decimal numbers in lines before the
    /// content, in whole blocks.
    fn sparse_map(&mut self) -> Result<Vec<u64>, Error> {
        let mut numbers = Vec::new();
        let mut expected = None;
        let mut digits = String::new();
        loop {
            let mut block = [0; BLOCK];
            let mut length = 0;
            while length < BLOCK {
                match self.read(&mut block[length..])? {
                    0 => return Err(malformed("the map of a sparse file")),
                    read => length += read,
                }
            }
            for byte in block {
                match byte {
                    b'\n' => {
                        let number: u64 =
                            digits.parse().map_err(|_| malformed("the map of a sparse file"))?;
                        digits.clear();
                        match expected {
                            None => {
                                let count = usize::try_from(number).unwrap_or(usize::MAX);
                                if count > MAX_PARTS {
                                    return Err(too_many_parts());
                                }
                                expected = Some(2 * count);
                            }
                            Some(_) => numbers.push(number),
                        }
                        if expected == Some(numbers.len()) {
                            return Ok(numbers);
                        }
                    }
                    digit if digit.is_ascii_digit() && digits.len() < 20 => {
                        digits.push(char::from(digit));
                    }
                    _ => return Err(malformed("the map of a sparse file")),
                }
            }
        }
    }
}

impl Extensions {
    fn read_pax(&mut self, text: &[u8]) -> Result<(), Error> {
        for extension in PaxExtensions::new(text) {
            let extension = extension.map_err(malformed)?;
            let value = extension.value_bytes();
            match extension.key_bytes() {
                b"path" => self.path = Some(value.to_vec()),
                b"linkpath" => self.link = Some(value.to_vec()),
                b"size" => self.size = Some(decimal(value)?),
                b"uid" => self.user = Some(decimal(value)?),
                b"gid" => self.group = Some(decimal(value)?),
                b"mtime" => self.modified = Some(time(value)?),
                b"GNU.sparse.major" => self.sparse.major = Some(decimal(value)?),
                b"GNU.sparse.name" => self.sparse.name = Some(value.to_vec()),
                b"GNU.sparse.size" | b"GNU.sparse.realsize" => {
                    self.sparse.size = Some(decimal(value)?);
                }
                b"GNU.sparse.offset" | b"GNU.sparse.numbytes" => {
                    self.sparse.push(decimal(value)?)?;
                }
                b"GNU.sparse.map" => {
                    for number in value.split(|byte| *byte == b',') {
                        self.sparse.push(decimal(number)?)?;
                    }
                }
                key => {
                    if let Some(name) = key.strip_prefix(b"SCHILY.xattr.") {
                        self.attributes.push((name.to_vec(), value.to_vec()));
                    }
                }
            }
        }
        Ok(())
    }
}

impl PaxSparse {
    fn push(&mut self, number: u64) -> Result<(), Error> {
        if self.numbers.len() >= 2 * MAX_PARTS {
            return Err(too_many_parts());
        }
        self.numbers.push(number);
        Ok(())
    }
}

fn push_parts(parts: &mut Vec<Part>, headers: &[GnuSparseHeader]) -> Result<(), Error> {
    for header in headers.iter().filter(|header| !header.is_empty()) {
        if parts.len() >= MAX_PARTS {
            return Err(too_many_parts());
        }
        let offset = header.offset().map_err(malformed)?;
        parts.push(Part { offset, length: header.length().map_err(malformed)? });
    }
    Ok(())
}

/// The parts must be in order, lie in the file, and have the content that is stored.
fn check_parts(size: u64, parts: &[Part], stored: u64) -> Result<(), Error> {
    let wrong = || malformed("the map of a sparse file");
    let (mut end, mut total) = (0_u64, 0_u64);
    for part in parts {
        if part.offset < end {
            return Err(wrong());
        }
        end = part.offset.checked_add(part.length).ok_or_else(wrong)?;
        total += part.length;
    }
    if end > size || total != stored { Err(wrong()) } else { Ok(()) }
}

fn padding(size: u64) -> u64 {
    size.wrapping_neg() % BLOCK as u64
}

fn decimal(text: &[u8]) -> Result<u64, Error> {
    let number = std::str::from_utf8(text).ok().filter(|text| !text.starts_with('+'));
    number.and_then(|text| text.parse().ok()).ok_or_else(|| malformed("a number"))
}

/// A time in seconds with a fraction.
fn time(text: &[u8]) -> Result<(i64, u32), Error> {
    let wrong = || malformed("a time");
    let text = std::str::from_utf8(text).map_err(malformed)?;
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, ""));
    let seconds: i64 = seconds.parse().map_err(|_| wrong())?;
    if !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(wrong());
    }
    let digits: String = fraction.chars().chain("000000000".chars()).take(9).collect();
    let nanoseconds: u32 = digits.parse().map_err(|_| wrong())?;
    // Before 1970 the fraction counts backwards.
    Ok(match nanoseconds {
        0 => (seconds, 0),
        some if text.starts_with('-') => (seconds.saturating_sub(1), 1_000_000_000 - some),
        some => (seconds, some),
    })
}

fn too_many_parts() -> Error {
    Error::Limit { limit: "parts of a sparse file", value: MAX_PARTS as u64 }
}

fn malformed(what: impl std::fmt::Display) -> Error {
    Error::Malformed(what.to_string())
}
