//! The worker's end of its stream. The other end is trusted; when it is closed, the worker ends.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::wire::{FromWorker, Incoming, Message as _, ToWorker};
use super::{MAX_FETCHES, MAX_REQUEST_BYTES};
use crate::realm_host::{FetchResult, RealmHost, Request};

/// How many bytes one read returns.
const CHUNK_BYTES: usize = 64 << 10;

/// The stream to the caller, which is the outside of a realm in a worker.
#[derive(Debug)]
pub struct Channel {
    file: File,
    incoming: Incoming,
    fetches_left: usize,
    request_bytes_left: usize,
    is_broken: bool,
}

impl Channel {
    /// Takes the file descriptor that a worker starts with.
    pub fn new(descriptor: OwnedFd) -> Self {
        Self {
            file: descriptor.into(),
            incoming: Incoming::default(),
            fetches_left: MAX_FETCHES,
            request_bytes_left: MAX_REQUEST_BYTES,
            is_broken: false,
        }
    }

    /// The request to this worker: the first message.
    ///
    /// # Errors
    /// If there is none, or another message.
    pub fn receive_request(&mut self) -> io::Result<Vec<u8>> {
        loop {
            match self.incoming.take().map_err(io::Error::other)? {
                Some(ToWorker::Request(request)) => return Ok(request),
                Some(ToWorker::FetchResult(_)) => return Err(io::ErrorKind::InvalidData.into()),
                None => self.read()?,
            }
        }
    }

    /// Sends a message. If the other end is closed, the kernel kills the worker (SIGPIPE).
    pub fn send(&mut self, message: &FromWorker) {
        if self.file.write_all(&message.encode()).is_err() {
            self.is_broken = true;
        }
    }

    fn read(&mut self) -> io::Result<()> {
        let mut chunk = vec![0; CHUNK_BYTES];
        match self.file.read(&mut chunk) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(length) => {
                self.incoming.push(&chunk[..length]);
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Whether there is something to read before then.
    fn is_readable_before(&self, end: Instant) -> bool {
        let left = end.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).ok();
        matches!(poll(&mut [PollFd::new(&self.file, PollFlags::IN)], timeout.as_ref()), Ok(1..))
    }
}

impl RealmHost for Channel {
    fn write(&mut self, level: &str, text: &str) {
        self.send(&FromWorker::Line(format!("[{level}] {text}")));
    }

    fn fetch(&mut self, id: u32, request: Request) -> Result<(), String> {
        // The caller ends a call that exceeds these limits.
        let left = |left: usize, used: usize, what: String| {
            left.checked_sub(used).ok_or_else(|| format!("fetch failed: a program {what}"))
        };
        let times = format!("fetches at most {MAX_FETCHES} times");
        self.fetches_left = left(self.fetches_left, 1, times)?;
        let bytes = format!("sends at most {MAX_REQUEST_BYTES} bytes in total");
        self.request_bytes_left = left(self.request_bytes_left, request.bytes(), bytes)?;
        self.send(&FromWorker::Fetch(id, request));
        Ok(())
    }

    fn abort(&mut self, id: u32) {
        self.send(&FromWorker::Abort(id));
    }

    fn wait(&mut self, timeout: Duration) -> Option<FetchResult> {
        // A year is long enough for no limit.
        let end = Instant::now() + timeout.min(Duration::from_secs(365 * 24 * 3_600));
        loop {
            match self.incoming.take() {
                Ok(Some(ToWorker::FetchResult(answer))) => return Some(answer),
                Ok(None) => {}
                Ok(Some(ToWorker::Request(_))) | Err(_) => self.is_broken = true,
            }
            if self.is_broken {
                std::thread::sleep(end.saturating_duration_since(Instant::now()));
                return None;
            }
            if !self.is_readable_before(end) {
                return None;
            }
            self.is_broken = self.read().is_err();
        }
    }
}
