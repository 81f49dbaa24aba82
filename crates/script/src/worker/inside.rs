//! The worker's end of its stream. The other end is trusted; when it is closed, the worker ends.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::wire::{FromWorker, Incoming, ToWorker, Word as _};
use super::{MAX_ASKED_BYTES, MAX_FETCHES};
use crate::outside::{Answer, Outside, Request};

/// How many bytes one read returns.
const PIECE_BYTES: usize = 64 << 10;

/// The stream to the caller, which is the outside of a realm in a worker.
#[derive(Debug)]
pub struct Wire {
    file: File,
    incoming: Incoming,
    fetches_left: usize,
    asked_bytes_left: usize,
    gone: bool,
}

impl Wire {
    /// Takes the file descriptor that a worker starts with.
    pub fn new(descriptor: OwnedFd) -> Self {
        Self {
            file: descriptor.into(),
            incoming: Incoming::default(),
            fetches_left: MAX_FETCHES,
            asked_bytes_left: MAX_ASKED_BYTES,
            gone: false,
        }
    }

    /// The request to this worker: the first message.
    ///
    /// # Errors
    /// If there is none, or another message.
    pub fn question(&mut self) -> io::Result<Vec<u8>> {
        loop {
            match self.incoming.take().map_err(io::Error::other)? {
                Some(ToWorker::Ask(question)) => return Ok(question),
                Some(ToWorker::Fetched(_)) => return Err(io::ErrorKind::InvalidData.into()),
                None => self.read()?,
            }
        }
    }

    /// Sends a message. If the other end is closed, the kernel kills the worker (SIGPIPE).
    pub fn say(&mut self, word: &FromWorker) {
        if self.file.write_all(&word.encode()).is_err() {
            self.gone = true;
        }
    }

    fn read(&mut self) -> io::Result<()> {
        let mut piece = vec![0; PIECE_BYTES];
        match self.file.read(&mut piece) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(length) => {
                self.incoming.push(&piece[..length]);
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Whether there is something to read before then.
    fn comes(&self, end: Instant) -> bool {
        let left = end.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).ok();
        matches!(poll(&mut [PollFd::new(&self.file, PollFlags::IN)], timeout.as_ref()), Ok(1..))
    }
}

impl Outside for Wire {
    fn write(&mut self, level: &str, text: &str) {
        self.say(&FromWorker::Line(format!("[{level}] {text}")));
    }

    fn fetch(&mut self, id: u32, request: Request) -> Result<(), String> {
        // The caller ends a call that exceeds these limits.
        let left = |left: usize, taken: usize, what: String| {
            left.checked_sub(taken).ok_or_else(|| format!("fetch failed: a program {what}"))
        };
        let times = format!("fetches at most {MAX_FETCHES} times");
        self.fetches_left = left(self.fetches_left, 1, times)?;
        let bytes = format!("sends at most {MAX_ASKED_BYTES} bytes in total");
        self.asked_bytes_left = left(self.asked_bytes_left, request.bytes(), bytes)?;
        self.say(&FromWorker::Fetch(id, request));
        Ok(())
    }

    fn abort(&mut self, id: u32) {
        self.say(&FromWorker::Abort(id));
    }

    fn wait(&mut self, timeout: Duration) -> Option<Answer> {
        // A year is long enough for no limit.
        let end = Instant::now() + timeout.min(Duration::from_secs(365 * 24 * 3_600));
        loop {
            match self.incoming.take() {
                Ok(Some(ToWorker::Fetched(answer))) => return Some(answer),
                Ok(None) => {}
                Ok(Some(ToWorker::Ask(_))) | Err(_) => self.gone = true,
            }
            if self.gone {
                std::thread::sleep(end.saturating_duration_since(Instant::now()));
                return None;
            }
            if !self.comes(end) {
                return None;
            }
            self.gone = self.read().is_err();
        }
    }
}
