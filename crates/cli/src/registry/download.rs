//! The process that downloads: how it is started, and its events.

use std::io::{ErrorKind, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use stockade_core::{Code, Problem};
use stockade_image::Digest;
use stockade_registry_control::{Event, MAX_LINE_BYTES, Request};

use crate::problem::caused;
use crate::processes::DOWNLOAD;
use crate::programs::{self, build_argument, sibling_program};

/// How long the process may say nothing. Its own deadlines are shorter.
const SILENCE: Duration = Duration::from_secs(15 * 60);

/// What was downloaded, as the process says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Downloaded {
    /// The digest of what the reference names.
    pub(super) digest: Digest,
}

/// The process, which ends with this value.
struct Downloader(Child);

impl Drop for Downloader {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts the process with a request, and waits until it has ended.
///
/// # Errors
/// What the process reports; or that it cannot be started, or does not do what it should.
pub(super) fn download(
    request: &Request,
    on_event: &mut dyn FnMut(&Event),
) -> Result<Downloaded, Problem> {
    let failed = |error: std::io::Error| caused(Code::LaunchFailed, &error);
    let mut line = serde_json::to_vec(request).map_err(|error| failed(error.into()))?;
    line.push(b'\n');
    let mut command = Command::new(sibling_program(programs::SERVER)?);
    command.arg(DOWNLOAD).arg(build_argument()).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut process = Downloader(command.spawn().map_err(failed)?);
    // As long as it is open, the process continues.
    let mut input = process.0.stdin.take();
    if let Some(input) = &mut input {
        input.write_all(&line).map_err(failed)?;
    }
    let Some(output) = process.0.stdout.take() else {
        return Err(broken("it has no output"));
    };
    let mut lines = Lines { output, buffer: Vec::new() };
    while let Some(line) = lines.next()? {
        let event = serde_json::from_slice(&line)
            .map_err(|error| broken(&format!("an event is invalid: {error}")))?;
        on_event(&event);
        match event {
            Event::Done { digest, .. } => return Ok(Downloaded { digest }),
            Event::Failed { problem } => return Err(problem),
            _ => {}
        }
    }
    let status = process.0.wait().map_err(failed)?;
    Err(broken(&status.to_string()))
}

fn broken(why: &str) -> Problem {
    Problem::new(Code::LaunchFailed, "the process that downloads images failed").because(why)
}

/// The lines of an output, each of bounded length, for which is waited only so long.
struct Lines {
    output: ChildStdout,
    buffer: Vec<u8>,
}

impl Lines {
    fn next(&mut self) -> Result<Option<Vec<u8>>, Problem> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let rest = self.buffer.split_off(end + 1);
                return Ok(Some(std::mem::replace(&mut self.buffer, rest)));
            }
            if self.buffer.len() > MAX_LINE_BYTES {
                return Err(broken("an event is too long"));
            }
            let deadline = Timespec {
                tv_sec: i64::try_from(SILENCE.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: 0,
            };
            let mut readable = [PollFd::from_borrowed_fd(self.output.as_fd(), PollFlags::IN)];
            match poll(&mut readable, Some(&deadline)) {
                Ok(0) => return Err(broken("it says nothing any more")),
                Ok(_) => {}
                Err(rustix::io::Errno::INTR) => continue,
                Err(errno) => return Err(broken(&errno.to_string())),
            }
            let mut part = [0; 4096];
            match self.output.read(&mut part) {
                Ok(0) => return Ok(None),
                Ok(count) => self.buffer.extend_from_slice(&part[..count]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(broken(&error.to_string())),
            }
        }
    }
}
