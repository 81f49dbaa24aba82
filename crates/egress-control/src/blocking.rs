//! The owner as a blocking call, for a process with one sandbox and no event loop.

use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::owner::Owner;

impl<T> Owner<T> {
    /// Sends what waits, and blocks until every request has its outcome or the process has ended. Its
    /// socket has to be blocking, as it is at first.
    pub fn wait(&mut self) {
        while let Some(deadline) = self.answer_deadline() {
            // A blocking socket is never unwritable, and a process that has ended is reported.
            let _ = self.flush();
            let Some(socket) = self.socket() else { return };
            let left = deadline.saturating_duration_since(Instant::now());
            let timeout = Timespec::try_from(left).ok();
            match poll(&mut [PollFd::new(&**socket, PollFlags::IN)], timeout.as_ref()) {
                Ok(0) => self.expire(Instant::now()),
                Ok(_) => {
                    let _ = self.receive();
                }
                Err(Errno::INTR) => {}
                Err(errno) => self.end(&errno.to_string()),
            }
        }
    }
}
