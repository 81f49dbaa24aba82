//! The last record of the file, as a writer finds it.

use std::os::fd::OwnedFd;

use rustix::fs;
use rustix::io::Errno;

use crate::error::Error;
use crate::line::{Head, Line, MAX_LINE_BYTES};

/// The end of the file.
#[derive(Debug)]
pub(crate) enum Tail {
    /// There are no records.
    Empty,
    /// The newest record.
    Record(Head),
    /// The last line is no record.
    Damaged,
}

/// Reads the end of a file of that size. An incomplete last line, which a full disk or a crash leaves, is
/// removed. Returns the size, too.
pub(crate) fn read(file: &OwnedFd, size: u64) -> Result<(Tail, u64), Error> {
    let start = size.saturating_sub(2 * MAX_LINE_BYTES as u64);
    let mut bytes = vec![0; usize::try_from(size - start).unwrap_or_default()];
    let mut read = 0;
    while read < bytes.len() {
        match rustix::io::pread(file, &mut bytes[read..], start + read as u64) {
            Ok(0) => break,
            Ok(length) => read += length,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(Error::log("read", errno)),
        }
    }
    bytes.truncate(read);
    let complete = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    let mut size = start + read as u64;
    if complete < bytes.len() {
        size = start + complete as u64;
        fs::ftruncate(file, size).map_err(|errno| Error::log("written", errno))?;
        bytes.truncate(complete);
    }
    let Some((_, lines)) = bytes.split_last() else {
        return Ok((if size == 0 { Tail::Empty } else { Tail::Damaged }, size));
    };
    let last = lines.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    let head = Line::parse(&lines[last..]).and_then(|line| line.head());
    Ok((head.map_or(Tail::Damaged, Tail::Record), size))
}
