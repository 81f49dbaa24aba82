//! Transfers bytes between the jail's streams and the caller's: bounded, counted, and never
//! blocking on one side while the other needs attention.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::buffer::spare_capacity;
use rustix::fs::FileType;
use rustix::io::Errno;

/// The maximal number of buffered bytes per direction.
const BUFFER_BYTES: usize = 64 * 1024;
/// How many bytes a pipe or terminal that polls writable accepts without blocking (`pipe(7)`,
/// `PIPE_BUF`).
const ATOMIC_BYTES: usize = 4096;

/// The destination of a stream of the command.
#[derive(Debug)]
pub enum Sink {
    /// This file descriptor, which is never made non-blocking, because others may share it.
    Descriptor(OwnedFd),
    /// Memory: the last bytes up to this number; earlier bytes are counted and dropped.
    Capture(usize),
}

/// The captured content of a stream.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Captured {
    /// The last bytes.
    pub bytes: Vec<u8>,
    /// Whether there were more.
    pub truncated: bool,
    /// The total number of bytes, also of a stream that was not captured.
    pub total_bytes: u64,
}

impl Captured {
    fn keep_last(&mut self, limit: usize) {
        let excess = self.bytes.len().saturating_sub(limit);
        self.truncated |= excess > 0;
        self.bytes.drain(..excess);
    }
}

/// One direction: a source and its sink.
#[derive(Debug)]
pub(crate) struct Pump {
    source: Option<OwnedFd>,
    sink: Option<OwnedFd>,
    capture: Option<(usize, Captured)>,
    buffer: Vec<u8>,
    written: usize,
    chunk: usize,
    /// Why the sink did not accept more, unless its reader had closed it.
    failure: Option<Errno>,
    /// How many bytes were read from the source.
    pub(crate) total_bytes: u64,
}

impl Pump {
    pub(crate) fn new(source: OwnedFd, sink: Sink) -> Self {
        let (sink, capture) = match sink {
            Sink::Descriptor(descriptor) => (Some(descriptor), None),
            Sink::Capture(limit) => (None, Some((limit, Captured::default()))),
        };
        let regular = sink.as_ref().is_some_and(|descriptor| {
            rustix::fs::fstat(descriptor)
                .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile)
        });
        let chunk = if regular { BUFFER_BYTES } else { ATOMIC_BYTES };
        Self {
            source: Some(source),
            sink,
            capture,
            buffer: Vec::new(),
            written: 0,
            chunk,
            failure: None,
            total_bytes: 0,
        }
    }

    /// The source, when it should be polled.
    pub(crate) fn wants_read(&self) -> Option<BorrowedFd<'_>> {
        self.source.as_ref().filter(|_| self.buffer.is_empty()).map(|source| source.as_fd())
    }

    /// The source, while it is not read because the sink accepts nothing.
    pub(crate) fn blocked_source(&self) -> Option<BorrowedFd<'_>> {
        self.source.as_ref().filter(|_| !self.buffer.is_empty()).map(|source| source.as_fd())
    }

    /// The sink, when it should be polled.
    pub(crate) fn wants_write(&self) -> Option<BorrowedFd<'_>> {
        self.sink.as_ref().filter(|_| !self.buffer.is_empty()).map(|sink| sink.as_fd())
    }

    /// Whether the source has ended and everything has been written.
    pub(crate) fn is_done(&self) -> bool {
        self.source.is_none() && self.buffer.is_empty()
    }

    /// Reads from the source, but forwards only up to `room_bytes`; bytes beyond that are only
    /// counted.
    pub(crate) fn read(&mut self, room_bytes: u64) {
        let Some(source) = &self.source else { return };
        let room = usize::try_from(room_bytes).unwrap_or(usize::MAX);
        // The memory is not zeroed, so that unused memory is never touched.
        self.buffer.reserve_exact(BUFFER_BYTES);
        match rustix::io::read(source, spare_capacity(&mut self.buffer)) {
            Ok(0) => self.end_source(),
            Ok(length) => {
                self.total_bytes += length as u64;
                let length = length.min(room);
                self.buffer.truncate(length);
                if let Some((limit, captured)) = &mut self.capture {
                    captured.bytes.extend_from_slice(&self.buffer);
                    // Moved rarely: only once as much again has been captured.
                    if captured.bytes.len() >= limit.saturating_mul(2) {
                        captured.keep_last(*limit);
                    }
                    self.buffer.clear();
                } else if self.sink.is_none() {
                    self.buffer.clear();
                }
            }
            Err(Errno::INTR | Errno::AGAIN) => {}
            // A terminal's master returns EIO when the other side has been closed.
            Err(_) => self.end_source(),
        }
    }

    /// Writes what the sink accepts. A closed sink ends the source too, so that the writer notices
    /// it.
    pub(crate) fn write(&mut self) {
        let Some(sink) = &self.sink else { return };
        let rest = &self.buffer[self.written..];
        match rustix::io::write(sink, &rest[..rest.len().min(self.chunk)]) {
            Ok(length) => {
                self.written += length;
                if self.written == self.buffer.len() {
                    self.buffer.clear();
                    self.written = 0;
                }
            }
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(errno) => {
                self.failure = (errno != Errno::PIPE).then_some(errno);
                self.end();
            }
        }
    }

    /// Adds bytes at the end.
    pub(crate) fn append(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Closes the sink once everything has been written: the reader sees the end.
    pub(crate) fn close_sink_when_done(&mut self) {
        if self.is_done() {
            self.sink = None;
        }
    }

    /// Reads nothing more; buffered bytes are still written.
    pub(crate) fn stop_reading(&mut self) {
        self.source = None;
    }

    /// Ends both sides; buffered bytes are dropped.
    pub(crate) fn end(&mut self) {
        self.source = None;
        self.sink = None;
        self.buffer.clear();
        self.written = 0;
    }

    /// The source has ended.
    pub(crate) fn end_source(&mut self) {
        self.source = None;
        self.buffer.clear();
    }

    /// Why not everything was written. A sink whose reader has closed it is no reason.
    pub(crate) fn failure(&self) -> Option<io::Error> {
        self.failure.map(io::Error::from)
    }

    /// The captured content.
    pub(crate) fn into_captured(self) -> Captured {
        let mut captured = match self.capture {
            Some((limit, mut captured)) => {
                captured.keep_last(limit);
                captured
            }
            None => Captured::default(),
        };
        captured.total_bytes = self.total_bytes;
        captured
    }
}

/// Makes our own end of a pipe non-blocking.
pub(crate) fn set_nonblocking(descriptor: &OwnedFd) -> io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(descriptor)?;
    Ok(rustix::fs::fcntl_setfl(descriptor, flags | rustix::fs::OFlags::NONBLOCK)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pipe() -> (OwnedFd, OwnedFd) {
        rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap()
    }

    #[test]
    fn bytes_pass_and_the_end_is_passed_on() {
        let (source, writer) = pipe();
        let (reader, sink) = pipe();
        let mut pump = Pump::new(source, Sink::Descriptor(sink));
        rustix::io::write(&writer, b"hello").unwrap();
        drop(writer);
        pump.read(u64::MAX);
        assert!(pump.wants_read().is_none(), "a full buffer is not read into");
        pump.write();
        pump.read(u64::MAX);
        pump.close_sink_when_done();
        assert!(pump.is_done());
        let mut bytes = [0; 16];
        assert_eq!(rustix::io::read(&reader, &mut bytes).unwrap(), 5);
        assert_eq!(rustix::io::read(&reader, &mut bytes).unwrap(), 0);
    }

    #[test]
    fn a_capture_is_bounded_and_says_so() {
        let (source, writer) = pipe();
        let mut pump = Pump::new(source, Sink::Capture(3));
        for bytes in [&b"hello"[..], b"you"] {
            rustix::io::write(&writer, bytes).unwrap();
            pump.read(u64::MAX);
        }
        let captured = pump.into_captured();
        let expected = Captured { bytes: b"you".to_vec(), truncated: true, total_bytes: 8 };
        assert_eq!(captured, expected);
    }

    #[test]
    fn a_closed_sink_ends_the_source() {
        let (source, writer) = pipe();
        let (reader, sink) = pipe();
        drop(reader);
        let mut pump = Pump::new(source, Sink::Descriptor(sink));
        rustix::io::write(&writer, b"hello").unwrap();
        pump.read(u64::MAX);
        pump.write();
        assert!(pump.is_done());
        assert_eq!(rustix::io::write(&writer, b"x"), Err(Errno::PIPE));
        assert!(pump.failure().is_none(), "who has read enough is no failure");
    }

    #[test]
    fn a_full_sink_is_a_failure() {
        let (source, writer) = pipe();
        let sink = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let mut pump = Pump::new(source, Sink::Descriptor(sink.into()));
        rustix::io::write(&writer, b"hello").unwrap();
        pump.read(u64::MAX);
        pump.write();
        assert!(pump.is_done());
        assert_eq!(pump.failure().unwrap().kind(), io::ErrorKind::StorageFull);
    }
}
