//! The output of a command to one stream, in a file that is as long as the stream: a byte has the
//! same offset in the file and in the stream.
//!
//! The last 16 MiB are kept; older output becomes a hole. The kernel moves bytes directly from the
//! pipe to the file, so a keeper that is killed between two system calls loses none. When the disk
//! is full, bytes are dropped and counted: a command never waits for the disk.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt as _;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{AtFlags, FallocateFlags, Mode, OFlags, SeekFrom};
use rustix::io::Errno;
use rustix::pipe::SpliceFlags;
use stockade_jail::interrupt;

use stockade_plan::wipe::wipe;

/// How many bytes of a stream are kept at least.
pub(super) const RETAINED_BYTES: u64 = 16 << 20;
/// Old output becomes a hole in steps of this size.
const STEP_BYTES: u64 = 1 << 20;
/// How much is read from a stream in one turn, so that others do not wait long.
const CHUNK_BYTES: usize = 256 << 10;
/// How long a read of a terminal may block. It blocks only if a jail's init has cleared
/// `O_NONBLOCK`.
const TERMINAL_READ_TIMEOUT: Duration = Duration::from_millis(100);
/// After a loss, bytes are kept again from a multiple of this on, which is a block boundary on
/// every file system: so the hole in the file ends where the loss does.
const ALIGNMENT: u64 = 64 << 10;

/// The stored bytes of one stream.
#[derive(Debug)]
pub(super) struct Spool {
    name: String,
    file: Option<File>,
    /// The offset of the first stored byte.
    start: u64,
    /// The length of the stream: the offset of the next byte.
    end: u64,
    /// Bytes are being dropped, because the last ones could not be stored.
    dropping: bool,
}

/// The shared state of all spools.
#[derive(Debug)]
pub(super) struct SpoolContext {
    /// A buffer for bytes that must pass through memory.
    scratch: Vec<u8>,
    /// How much of it was used.
    used_bytes: usize,
    /// Receives the bytes that are dropped.
    null: File,
}

impl SpoolContext {
    pub(super) fn new() -> io::Result<Self> {
        let nothing = File::options().write(true).open("/dev/null")?;
        Ok(Self { scratch: vec![0; CHUNK_BYTES], used_bytes: 0, null: nothing })
    }

    /// Wipes the used part of the buffer. The unused part is not touched, because each page that is
    /// written takes memory, here and in every jail that was forked before.
    pub(super) fn wipe(&mut self) {
        wipe(&mut self.scratch[..self.used_bytes]);
        self.used_bytes = 0;
    }
}

/// The result of reading bytes from a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TakeOutcome {
    /// Some were taken.
    Bytes,
    /// There are none at the moment.
    Nothing,
    /// There will never be any more.
    End,
    /// The read blocked: a process has made the descriptor blocking.
    Blocked,
}

/// The result of reading at an offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Read {
    /// This many bytes were read.
    Bytes(usize),
    /// This many bytes are no longer stored.
    Lost(u64),
    /// It has not been written yet.
    Nothing,
}

impl Spool {
    /// The spool of a stream of which nothing was read yet. No file is created before the first
    /// byte.
    pub(super) const fn new(name: String) -> Self {
        Self { name, file: None, start: 0, end: 0, dropping: false }
    }

    /// The spool that an earlier keeper has left in `directory`, or a new one.
    pub(super) fn adopted(directory: BorrowedFd<'_>, name: String) -> Self {
        let mut spool = Self::new(name);
        let Ok(file) = rustix::fs::openat(directory, &*spool.name, flags(), Mode::empty()) else {
            return spool;
        };
        spool.end = rustix::fs::fstat(&file).map_or(0, |stat| stat.st_size.cast_unsigned());
        spool.start = first_retained(spool.end);
        // Any other loss is a hole.
        spool.start = match rustix::fs::seek(&file, SeekFrom::Data(spool.start)) {
            Ok(data) => data.max(spool.start),
            Err(Errno::NXIO) => spool.end,
            Err(_) => spool.start,
        };
        spool.dropping = spool.start == spool.end && !spool.end.is_multiple_of(ALIGNMENT);
        spool
    }

    /// The length of the stream.
    pub(super) const fn end(&self) -> u64 {
        self.end
    }

    /// Moves at most `room` bytes from a non-blocking pipe.
    pub(super) fn take_from_pipe(
        &mut self,
        directory: BorrowedFd<'_>,
        pipe: BorrowedFd<'_>,
        room: u64,
        spool_context: &mut SpoolContext,
    ) -> TakeOutcome {
        if self.file.is_none() {
            // A stream without a byte leaves no file.
            match rustix::io::ioctl_fionread(pipe) {
                Ok(0) if has_ended(pipe) => return TakeOutcome::End,
                Ok(0) => return TakeOutcome::Nothing,
                _ => self.open(directory),
            }
        }
        let room = usize::try_from(room).unwrap_or(usize::MAX);
        let Some(file) = self.file.as_ref().filter(|_| !self.dropping) else {
            return self.drop_from_pipe(pipe, room, spool_context);
        };
        let flags = SpliceFlags::NONBLOCK | SpliceFlags::MOVE;
        let mut at = self.end;
        match rustix::pipe::splice(pipe, None, file, Some(&mut at), CHUNK_BYTES.min(room), flags) {
            Ok(0) => TakeOutcome::End,
            Ok(moved) => {
                self.end += moved as u64;
                self.drop_oldest();
                TakeOutcome::Bytes
            }
            Err(Errno::AGAIN | Errno::INTR) => TakeOutcome::Nothing,
            Err(_) => {
                self.forget();
                self.drop_from_pipe(pipe, room, spool_context)
            }
        }
    }

    /// Moves at most `room` bytes from a non-blocking terminal.
    pub(super) fn take_from_terminal(
        &mut self,
        directory: BorrowedFd<'_>,
        terminal: BorrowedFd<'_>,
        room: u64,
        spool_context: &mut SpoolContext,
    ) -> TakeOutcome {
        let scratch = &mut spool_context.scratch;
        let room = usize::try_from(room).unwrap_or(usize::MAX);
        let most = if self.dropping { self.to_drop() } else { usize::MAX };
        let most = most.min(room).min(scratch.len());
        let read = || rustix::io::read(terminal, &mut scratch[..most]);
        let length = match interrupt::interrupt_after(TERMINAL_READ_TIMEOUT, read) {
            Ok(Ok(0) | Err(Errno::IO)) => return TakeOutcome::End,
            Ok(Ok(length)) => length,
            Ok(Err(Errno::INTR)) => return TakeOutcome::Blocked,
            Ok(Err(_)) | Err(_) => return TakeOutcome::Nothing,
        };
        spool_context.used_bytes = spool_context.used_bytes.max(length);
        if self.file.is_none() {
            self.open(directory);
        }
        let file = self.file.as_ref().filter(|_| !self.dropping);
        if file.is_some_and(|file| file.write_all_at(&scratch[..length], self.end).is_ok()) {
            self.end += length as u64;
            self.drop_oldest();
        } else {
            self.forget();
            self.dropped(length);
        }
        TakeOutcome::Bytes
    }

    /// Reads stored bytes from `offset` on, and before `until`.
    pub(super) fn read(
        &mut self,
        directory: BorrowedFd<'_>,
        offset: u64,
        until: u64,
        buffer: &mut [u8],
    ) -> Read {
        let until = until.min(self.end);
        if offset >= until {
            return Read::Nothing;
        }
        if offset < self.start {
            return Read::Lost(self.start.min(until) - offset);
        }
        if self.file.is_none() {
            let file = rustix::fs::openat(directory, &*self.name, flags(), Mode::empty());
            self.file = file.ok().map(File::from);
        }
        let most = usize::try_from(until - offset).unwrap_or(usize::MAX).min(buffer.len());
        match self.file.as_ref().map(|file| file.read_at(&mut buffer[..most], offset)) {
            Some(Ok(length)) if length > 0 => Read::Bytes(length),
            _ => Read::Lost(until - offset),
        }
    }

    /// Closes the file; it is opened again when it is needed.
    pub(super) fn close(&mut self) {
        self.file = None;
    }

    /// Removes the file.
    pub(super) fn remove(self, directory: BorrowedFd<'_>) {
        if self.end > 0 {
            // It may not exist. A remaining file is removed with the sandbox.
            let _ = rustix::fs::unlinkat(directory, &*self.name, AtFlags::empty());
        }
    }

    fn open(&mut self, directory: BorrowedFd<'_>) {
        let mode = Mode::RUSR | Mode::WUSR;
        let open = || rustix::fs::openat(directory, &*self.name, flags() | OFlags::CREATE, mode);
        let opened = open().or_else(|errno| match self.name.split_once('/') {
            // The first spool of a sandbox creates the directory of all.
            Some((place, _)) if errno == Errno::NOENT => {
                rustix::fs::mkdirat(directory, place, Mode::RWXU)?;
                open()
            }
            _ => Err(errno),
        });
        match opened {
            Ok(file) => {
                self.file = Some(file.into());
                self.extend_file();
            }
            Err(_) => self.dropping = true,
        }
    }

    /// Drops bytes up to the offset from which they can be stored again.
    fn drop_from_pipe(
        &mut self,
        pipe: BorrowedFd<'_>,
        room: usize,
        spool_context: &SpoolContext,
    ) -> TakeOutcome {
        let most = self.to_drop().min(room);
        let flags = SpliceFlags::NONBLOCK;
        match rustix::pipe::splice(pipe, None, &spool_context.null, None, most, flags) {
            Ok(0) => TakeOutcome::End,
            Ok(length) => {
                self.dropped(length);
                TakeOutcome::Bytes
            }
            Err(_) => TakeOutcome::Nothing,
        }
    }

    /// The number of bytes to the offset from which they can be stored again.
    fn to_drop(&self) -> usize {
        let aligned = self.end.next_multiple_of(ALIGNMENT) - self.end;
        usize::try_from(if aligned == 0 { ALIGNMENT } else { aligned }).unwrap_or(usize::MAX)
    }

    fn dropped(&mut self, length: usize) {
        self.end += length as u64;
        self.start = self.end;
        self.extend_file();
        self.dropping = !self.end.is_multiple_of(ALIGNMENT);
    }

    /// Drops all stored bytes, and frees their disk space.
    fn forget(&mut self) {
        self.dropping = true;
        self.start = self.end;
        if let Some(file) = &self.file {
            // To the end of the last block, which would stay otherwise.
            punch_hole(file, 0, self.end.next_multiple_of(ALIGNMENT));
        }
    }

    /// Extends the file to the length of the stream, with a hole.
    fn extend_file(&self) {
        if let Some(file) = self.file.as_ref().filter(|_| self.end > 0) {
            // Needs no space on any common file system. A wrong length affects only the next
            // keeper.
            let _ = rustix::fs::ftruncate(file, self.end);
        }
    }

    /// Turns output that is too old into a hole.
    fn drop_oldest(&mut self) {
        let first = first_retained(self.end);
        if first <= self.start {
            return;
        }
        let punched = self.file.as_ref().is_none_or(|file| punch_hole(file, self.start, first));
        // If the file system cannot punch holes, all stored output is lost.
        self.start = if punched { first } else { self.end };
    }
}

/// The first stored offset of a stream of this length without any other loss.
const fn first_retained(end: u64) -> u64 {
    end.saturating_sub(RETAINED_BYTES) / STEP_BYTES * STEP_BYTES
}

/// Turns a range of a file into a hole, and keeps its length. False if the whole file became a
/// hole, because this file system cannot punch a smaller one.
fn punch_hole(file: &File, from: u64, to: u64) -> bool {
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    let punched = rustix::fs::fallocate(file, flags, from, to - from);
    if !matches!(punched, Err(Errno::OPNOTSUPP | Errno::NOSYS)) {
        return true;
    }
    let length = rustix::fs::fstat(file).map_or(to, |stat| stat.st_size.cast_unsigned());
    for length in [0, length] {
        // Best effort: a failure makes nothing worse.
        let _ = rustix::fs::ftruncate(file, length);
    }
    false
}

const fn flags() -> OFlags {
    OFlags::RDWR.union(OFlags::CLOEXEC).union(OFlags::NOFOLLOW)
}

/// Whether no process can write to an empty pipe any more.
fn has_ended(pipe: BorrowedFd<'_>) -> bool {
    let mut waiting = [PollFd::from_borrowed_fd(pipe, PollFlags::IN)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    // Bytes that were written since the pipe was seen empty set `IN`.
    rustix::event::poll(&mut waiting, Some(&now)).is_ok()
        && waiting[0].revents().contains(PollFlags::HUP)
        && !waiting[0].revents().contains(PollFlags::IN)
}

/// How many bytes wait in a pipe.
pub(super) fn waiting(pipe: impl AsFd) -> io::Result<u64> {
    Ok(rustix::io::ioctl_fionread(pipe)?)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::fd::OwnedFd;
    use std::os::unix::fs::MetadataExt as _;

    use rustix::pipe::{PipeFlags, pipe_with};

    use super::*;

    const MIB: u64 = 1 << 20;

    struct Stream {
        dir: tempfile::TempDir,
        directory: File,
        spool: Spool,
        from: OwnedFd,
        to: Option<File>,
        context: SpoolContext,
    }

    impl Stream {
        fn new() -> Self {
            Self::at(tempfile::tempdir().unwrap())
        }

        fn at(dir: tempfile::TempDir) -> Self {
            let (from, to) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).unwrap();
            let directory = File::open(dir.path()).unwrap();
            let spool = Spool::adopted(directory.as_fd(), "s".to_owned());
            Self {
                dir,
                directory,
                spool,
                from,
                to: Some(to.into()),
                context: SpoolContext::new().unwrap(),
            }
        }

        fn write(&mut self, bytes: &[u8]) {
            self.to.as_ref().unwrap().write_all(bytes).unwrap();
        }

        fn take(&mut self, room: u64) -> TakeOutcome {
            let Self { directory, spool, from, context: bench, .. } = self;
            spool.take_from_pipe(directory.as_fd(), from.as_fd(), room, bench)
        }

        fn read(&mut self, offset: u64, until: u64) -> (Read, Vec<u8>) {
            let mut buffer = vec![0; 32 << 10];
            let read = self.spool.read(self.directory.as_fd(), offset, until, &mut buffer);
            buffer.truncate(if let Read::Bytes(length) = read { length } else { 0 });
            (read, buffer)
        }

        /// Writes this many bytes, each derived from its offset, and spools them.
        fn flood(&mut self, bytes: u64) {
            let mut left = bytes;
            while left > 0 {
                let length = left.min(65536);
                let block: Vec<u8> = (0..length).map(|i| at(self.spool.end() + i)).collect();
                self.write(&block);
                while waiting(&self.from).unwrap() > 0 {
                    assert_eq!(self.take(u64::MAX), TakeOutcome::Bytes);
                }
                left -= length;
            }
        }

        fn metadata(&self) -> Option<std::fs::Metadata> {
            self.dir.path().join("s").metadata().ok()
        }
    }

    /// The byte of a flood at an offset; changes with each page.
    fn at(offset: u64) -> u8 {
        u8::try_from((offset ^ (offset >> 12)) % 251).unwrap() + 1
    }

    #[test]
    fn a_stream_without_a_byte_makes_no_file() {
        let mut stream = Stream::new();
        assert_eq!(stream.take(u64::MAX), TakeOutcome::Nothing);
        stream.to = None;
        assert_eq!(stream.take(u64::MAX), TakeOutcome::End);
        assert!(stream.metadata().is_none());
        assert_eq!(stream.read(0, u64::MAX).0, Read::Nothing);
    }

    #[test]
    fn bytes_are_read_by_their_offsets_and_bounded_by_the_room() {
        let mut stream = Stream::new();
        stream.write(b"hello world");
        assert_eq!(stream.take(5), TakeOutcome::Bytes);
        assert_eq!((stream.spool.end(), waiting(&stream.from).unwrap()), (5, 6));
        assert_eq!(stream.take(u64::MAX), TakeOutcome::Bytes);
        assert_eq!(stream.take(u64::MAX), TakeOutcome::Nothing);
        assert_eq!(stream.read(4, u64::MAX).1, b"o world");
        assert_eq!(stream.read(4, 7).1, b"o w");
        assert_eq!(stream.read(11, u64::MAX).0, Read::Nothing);
        stream.spool.close();
        assert_eq!(stream.read(0, 5).1, b"hello");
        stream.to = None;
        assert_eq!(stream.take(u64::MAX), TakeOutcome::End);
        let Stream { directory, spool, dir: place, .. } = stream;
        spool.remove(directory.as_fd());
        assert_eq!(place.path().read_dir().unwrap().count(), 0);
    }

    #[test]
    fn a_flood_is_bounded_and_what_is_kept_is_its_end() {
        let mut stream = Stream::new();
        stream.flood(40 * MIB + 5);
        let metadata = stream.metadata().unwrap();
        assert_eq!(metadata.len(), 40 * MIB + 5);
        assert!(
            metadata.blocks() * 512 <= RETAINED_BYTES + 2 * STEP_BYTES,
            "{}",
            metadata.blocks()
        );
        assert_eq!(stream.read(0, u64::MAX).0, Read::Lost(24 * MIB));
        assert_eq!(stream.read(0, 7).0, Read::Lost(7));
        let (read, bytes) = stream.read(24 * MIB, u64::MAX);
        assert_eq!(read, Read::Bytes(32 << 10));
        assert!(bytes.iter().zip(24 * MIB..).all(|(byte, offset)| *byte == at(offset)));
        // The next keeper finds the same.
        let mut next = Stream::at(stream.dir);
        assert_eq!(next.spool.end(), 40 * MIB + 5);
        assert_eq!(next.read(0, u64::MAX).0, Read::Lost(24 * MIB));
        next.flood(MIB);
        assert_eq!(next.read(0, u64::MAX).0, Read::Lost(25 * MIB));
        assert_eq!(next.read(41 * MIB + 4, u64::MAX).1, [at(41 * MIB + 4)]);
    }

    #[test]
    fn what_cannot_be_kept_is_lost_and_counted() {
        let mut stream = Stream::new();
        stream.flood(100);
        // Simulates a full disk: the kernel cannot splice to a file that was opened with
        // `O_APPEND`.
        let path = stream.dir.path().join("s");
        let append = std::fs::OpenOptions::new().append(true).open(&path).unwrap();
        stream.spool.file = Some(append);
        stream.flood(1000);
        assert_eq!(stream.spool.end(), 1100);
        assert_eq!(stream.read(0, u64::MAX).0, Read::Lost(1100));
        assert_eq!(stream.read(1000, u64::MAX).0, Read::Lost(100));
        // Space is available again.
        stream.spool.close();
        stream.flood(ALIGNMENT);
        assert_eq!(stream.read(0, u64::MAX).0, Read::Lost(ALIGNMENT));
        let (_, bytes) = stream.read(ALIGNMENT, u64::MAX);
        assert_eq!(bytes, (ALIGNMENT..ALIGNMENT + 1100).map(at).collect::<Vec<_>>());
        // The next keeper finds the loss from the file alone.
        let mut next = Stream::at(stream.dir);
        assert_eq!(next.spool.end(), ALIGNMENT + 1100);
        assert_eq!(next.read(0, u64::MAX).0, Read::Lost(ALIGNMENT));
        assert_eq!(next.read(ALIGNMENT, u64::MAX).1, bytes);
    }

    #[test]
    fn without_a_place_to_keep_them_bytes_are_dropped_and_the_command_goes_on() {
        let mut stream = Stream::new();
        std::fs::remove_dir(stream.dir.path()).unwrap();
        stream.flood(3 * MIB);
        assert_eq!(stream.read(7, u64::MAX).0, Read::Lost(3 * MIB - 7));
        stream.to = None;
        assert_eq!(stream.take(u64::MAX), TakeOutcome::End);
    }

    #[test]
    fn a_terminal_is_spooled_until_it_is_closed() {
        use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        rustix::io::ioctl_fionbio(&master, true).unwrap();
        let path = ptsname(&master, Vec::new()).unwrap();
        let slave = rustix::fs::open(path, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap();
        let mut stream = Stream::new();
        let mut take = |spool: &mut Spool, room| {
            let directory = stream.directory.as_fd();
            spool.take_from_terminal(directory, master.as_fd(), room, &mut stream.context)
        };
        let spool = &mut stream.spool;
        assert_eq!(take(spool, u64::MAX), TakeOutcome::Nothing);
        rustix::io::write(&slave, b"one\ntwo").unwrap();
        while spool.end() < 8 {
            assert_ne!(take(spool, 3), TakeOutcome::End);
        }
        drop(slave);
        assert_eq!(take(spool, u64::MAX), TakeOutcome::End);
        assert_eq!(stream.read(0, u64::MAX).1, b"one\r\ntwo");
    }
}
