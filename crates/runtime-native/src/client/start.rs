//! Finding the keeper of a data directory, or starting one.
//!
//! The keeper's program gets two more arguments: the path of the data directory, and the number of
//! unused jails to keep ready. It must first take the lock of the directory, and exit with 0 when
//! another process has it; so of two keepers that are started at the same time one remains. It
//! creates its own session (`setsid(2)`), since this process may not do that for it.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags};
use tokio::io::Interest;
use tokio::sync::{Mutex, oneshot};
use tokio::time::{Instant, sleep, timeout};

use super::channel::is_exhausted;
use super::channel::{Channel, HandshakeResult};
use super::readiness::watched;
use crate::directory::Directory;
use crate::failure::RequestedName;
use crate::socket::Packet;
use crate::wire::{PROTOCOL, Request};
use stockade_runtime::{Error, Result};

/// How long a new keeper may take until it answers.
const START: Duration = Duration::from_secs(10);
/// How long a running keeper may take to answer the greeting.
const GREETING: Duration = Duration::from_secs(10);
/// The interval of attempts to reach a keeper that is being started: the first and the longest.
const PAUSES: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(50)];
/// The variables of its starter's environment that a keeper gets.
const ENVIRONMENT: [&str; 2] = ["PATH", "RUST_BACKTRACE"];
/// How much of the end of a keeper's log is reported, in bytes and in lines.
const LOG_TAIL_BYTES: u64 = 4096;
const LOG_TAIL_LINES: usize = 10;

/// Finds or starts the keeper.
#[derive(Debug)]
pub(super) struct Starter {
    data: PathBuf,
    program: Vec<OsString>,
    pool: usize,
    /// Whether the keepers of earlier versions were made to drain.
    is_drain_sent: AtomicBool,
    /// Serializes the starting of keepers.
    turn: Mutex<()>,
}

/// A keeper that this process started.
#[derive(Debug)]
struct StartedKeeper {
    /// Its exit status, once it has exited.
    end: oneshot::Receiver<io::Result<ExitStatus>>,
    /// The length of the log before it was started.
    log_length: u64,
}

impl Starter {
    /// A starter for the keeper of a data directory, whose path is absolute.
    pub(super) fn new(data: PathBuf, program: Vec<OsString>, pool: usize) -> Self {
        Self { data, program, pool, is_drain_sent: AtomicBool::new(false), turn: Mutex::new(()) }
    }

    /// The data directory.
    pub(super) fn data(&self) -> &Path {
        &self.data
    }

    /// The keeper's program.
    pub(super) fn program(&self) -> &OsStr {
        self.program.first().map_or_else(Default::default, OsString::as_os_str)
    }

    /// A new connection to the keeper, which is started if none is running.
    pub(super) async fn connect(&self, directory: &Directory) -> Result<Channel> {
        if !self.is_drain_sent.swap(true, Ordering::Relaxed) {
            drain_older(directory);
        }
        if let Some(channel) = self.find(directory).await? {
            return Ok(channel);
        }
        let _turn = self.turn.lock().await;
        let deadline = Instant::now() + START;
        let mut started: Option<StartedKeeper> = None;
        let [mut pause, longest] = PAUSES;
        loop {
            if let Some(channel) = self.find(directory).await? {
                return Ok(channel);
            }
            let end = started.as_mut().map(|started| (started.log_length, started.end.try_recv()));
            match end {
                None => started = Some(self.start(directory)?),
                Some((_, Err(oneshot::error::TryRecvError::Empty))) => {}
                // Another keeper has the lock. It may be starting or, when it does not answer for
                // long, exiting.
                Some((_, Ok(Ok(status)))) if status.success() => {
                    started = None;
                    pause = longest;
                }
                // A process kills keepers, or memory was exhausted for a moment.
                Some((_, Ok(Ok(status)))) if status.signal().is_some() => {
                    started = None;
                    pause = longest;
                }
                Some((log_length, end)) => {
                    let how = match end {
                        Ok(Ok(status)) => status.to_string(),
                        Ok(Err(error)) => error.to_string(),
                        Err(error) => error.to_string(),
                    };
                    return Err(self.failure(directory, log_length, &format!("it exited: {how}")));
                }
            }
            if Instant::now() >= deadline {
                let log_length = started.map_or(0, |started| started.log_length);
                let what = format!("it did not answer within {} seconds", START.as_secs());
                return Err(self.failure(directory, log_length, &what));
            }
            sleep(pause).await;
            pause = (pause * 2).min(longest);
        }
    }

    /// A new connection to the keeper; `None` when none is running.
    async fn find(&self, directory: &Directory) -> Result<Option<Channel>> {
        let found = timeout(GREETING, async {
            let channel = loop {
                match directory.connect() {
                    Ok(socket) => break Channel::new(socket)?,
                    Err(error) => match error.kind() {
                        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
                            return Ok(Ok(None));
                        }
                        // Too many connections wait to be accepted.
                        io::ErrorKind::WouldBlock => sleep(PAUSES[0]).await,
                        _ => return Err(error),
                    },
                }
            };
            match channel.handshake().await? {
                HandshakeResult::Gone => Ok(Ok(None)),
                HandshakeResult::Version(PROTOCOL) => Ok(Ok(Some(channel))),
                HandshakeResult::Version(other) => {
                    Err(io::Error::other(format!("it speaks version {other}")))
                }
                HandshakeResult::Refused(failure) => Ok(Err(failure)),
            }
        });
        let found = found.await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        let name = RequestedName { operation: "reach the keeper", sandbox: None, exec: None };
        found
            .map_err(|source| self.unreachable(source))?
            .map_err(|failure| failure.into_error(&name))
    }

    fn start(&self, directory: &Directory) -> Result<StartedKeeper> {
        let log = directory.log().map_err(|error| self.unreachable(io::Error::other(error)))?;
        let log_length = log.metadata().map_err(|error| self.unreachable(error))?.len();
        let (program, arguments) = self
            .program
            .split_first()
            .ok_or_else(|| Error::Invalid("no keeper program is configured".to_owned()))?;
        let environment = ENVIRONMENT.map(|name| (name, std::env::var_os(name)));
        let child = Command::new(program)
            .args(arguments)
            .arg(&self.data)
            .arg(self.pool.to_string())
            .env_clear()
            .envs(environment.into_iter().filter_map(|(name, value)| Some((name, value?))))
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .map_err(|source| match is_exhausted(&source) {
                true => Error::Exhausted(format!("cannot start the keeper: {source}")),
                false => {
                    let path = program.as_encoded_bytes().escape_ascii().to_string();
                    Error::Host { path, source }
                }
            })?;
        let (sender, end) = oneshot::channel();
        tokio::spawn(async move {
            // The caller may have stopped waiting; the child is reaped all the same.
            let _ = sender.send(reap(child).await);
        });
        Ok(StartedKeeper { end, log_length })
    }

    fn failure(&self, directory: &Directory, log_length: u64, what: &str) -> Error {
        let words = log_tail(directory, log_length).unwrap_or_default();
        let separator = if words.is_empty() { "" } else { "; its last output: " };
        self.unreachable(io::Error::other(format!("{what}{separator}{words}")))
    }

    fn unreachable(&self, source: io::Error) -> Error {
        if is_exhausted(&source) {
            return Error::Exhausted(source.to_string());
        }
        Error::Unreachable { what: format!("the keeper of {}", self.data.display()), source }
    }
}

/// Waits for a child without blocking a thread.
async fn reap(mut child: Child) -> io::Result<ExitStatus> {
    let pidfd = rustix::process::pidfd_open(Pid::from_child(&child), PidfdFlags::NONBLOCK)?;
    let pidfd = watched(pidfd, Interest::READABLE)?;
    pidfd.readable().await?.retain_ready();
    child.wait()
}

/// The last lines of the log after the given length.
fn log_tail(directory: &Directory, log_length: u64) -> io::Result<String> {
    let log = directory.read_log().map_err(io::Error::other)?;
    let end = log.metadata()?.len();
    let from = end.saturating_sub(LOG_TAIL_BYTES).max(log_length.min(end));
    let mut bytes = vec![0; usize::try_from(end - from).unwrap_or_default()];
    log.read_exact_at(&mut bytes, from)?;
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    Ok(lines[lines.len().saturating_sub(LOG_TAIL_LINES)..].join("; "))
}

/// Makes the keepers of earlier versions take no new sandboxes, and exit after their last one. A
/// newer keeper is left alone: this program may be the one that has to be replaced.
fn drain_older(directory: &Directory) {
    for socket in directory.connect_older().unwrap_or_default() {
        tokio::spawn(timeout(GREETING, async move {
            let channel = Channel::new(socket)?;
            if let HandshakeResult::Version(_) = channel.handshake().await? {
                channel.send(&Packet::new(&Request::Drain, &[])?, &[]).await?;
                channel.receive::<serde_json::Value>().await?;
            }
            io::Result::Ok(())
        }));
    }
}
