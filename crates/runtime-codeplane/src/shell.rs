//! One SSH connection to a workspace, and scripts that its shell runs: each has a channel of its own.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use russh::client::{Config, Handle, Msg, connect};
use russh::{ChannelMsg, ChannelStream, Disconnect};
use stockade_core::SandboxId;
use stockade_runtime::{Content, Error, Target};
use stockade_runtime_remote::Failure;
use tokio::io::AsyncWriteExt as _;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::api::{SERVICE, SshAccess};
use crate::host_key::{Expected, KeyCheck, Refusal};
use crate::script::quoted;

/// How many channels are open at once. A server of OpenSSH accepts ten (`MaxSessions`).
const CHANNELS: usize = 8;
/// How long the connection and the login may take.
const CONNECT: Duration = Duration::from_secs(20);
/// How long a short script may take.
pub(crate) const SHORT: Duration = Duration::from_secs(60);
/// How long a transfer may take. A connection that is dead is noticed much earlier.
pub(crate) const LONG: Duration = Duration::from_secs(3600);
/// After this time without a word from the server it is asked for one, and after so many questions
/// without an answer the connection is lost.
const KEEPALIVE: Duration = Duration::from_secs(10);
const KEEPALIVES: usize = 3;
/// The most bytes of errors that are kept, and of output.
const ERROR_BYTES: usize = 64 << 10;
const OUTPUT_BYTES: usize = 64 << 20;

/// Why a script has not run, or its result is not known.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ShellFailure {
    /// Codeplane did not say how the workspace is reached.
    #[error(transparent)]
    Api(#[from] Failure),
    /// There is no connection: nothing was run.
    #[error("cannot connect to {0}: {1}")]
    Connect(String, String),
    /// The host is not the right one: nothing was sent to it.
    #[error("the host of the workspace was refused: {}", .0.reason)]
    HostKey(Refusal),
    /// The token was refused.
    #[error("{0} refuses the login")]
    Login(String),
    /// The connection ended before the result: the script may have run.
    #[error("the connection to {0} ended")]
    Lost(String),
    /// No result came in time: the script may have run.
    #[error("{0} did not answer in time")]
    TimedOut(String),
    /// What should be sent could not be read.
    #[error("the content cannot be read: {0}")]
    Content(String),
    /// More was written than is accepted.
    #[error("{0} wrote too much")]
    TooMuch(String),
}

impl ShellFailure {
    /// Whether the script has certainly not run.
    pub(crate) fn is_unseen(&self) -> bool {
        matches!(self, Self::Connect(..))
    }

    /// Whether a script that may run twice can succeed later.
    pub(crate) fn is_transient(&self) -> bool {
        self.is_unseen() || matches!(self, Self::Lost(_))
    }

    /// The error of an operation on a sandbox. `operation` is what may have happened.
    pub(crate) fn of_sandbox(self, id: &SandboxId, operation: &str) -> Error {
        match self {
            Self::Api(failure) => failure.of_reading(SERVICE, id),
            Self::HostKey(Refusal { reason, remedy }) => {
                Error::Unavailable { what: format!("the host of {id}"), reason, remedy }
            }
            Self::Login(host) => Error::Unavailable {
                what: host,
                reason: "it refuses the access token of Codeplane".to_owned(),
                remedy: "try again, or create the workspace again".to_owned(),
            },
            Self::Connect(what, reason) => {
                Error::Unreachable { what, source: io::Error::other(reason) }
            }
            Self::Content(reason) => {
                Error::Invalid(format!("the content for {operation} cannot be read: {reason}"))
            }
            other => Error::OutcomeUnknown(format!("{operation} of {id} ({other})")),
        }
    }

    /// The error of an operation that changes nothing.
    pub(crate) fn of_reading(self, id: &SandboxId) -> Error {
        match self {
            Self::Lost(_) | Self::TimedOut(_) | Self::TooMuch(_) => Error::Unreachable {
                what: format!("the workspace of {id}"),
                source: io::Error::other(self.to_string()),
            },
            other => other.of_sandbox(id, "reading"),
        }
    }
}

/// How a script ended.
#[derive(Debug, Default)]
pub(crate) struct Ran {
    pub(crate) code: u32,
    pub(crate) output: Vec<u8>,
    pub(crate) errors: String,
}

/// Where the output of a script goes.
pub(crate) enum Sink<'a> {
    /// Into the result.
    Result,
    /// Into a file of the host.
    File(&'a mut tokio::fs::File),
}

/// A connection.
pub(crate) struct Shell {
    name: String,
    handle: Handle<KeyCheck>,
    channels: Semaphore,
}

impl std::fmt::Debug for Shell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name)
    }
}

impl Shell {
    /// Connects to a workspace. The token is sent only to a host with the expected key.
    pub(crate) async fn connect(
        access: &SshAccess,
        known_hosts: Option<std::path::PathBuf>,
    ) -> Result<Self, ShellFailure> {
        let name = format!("{access:?}");
        let config = Config {
            keepalive_interval: Some(KEEPALIVE),
            keepalive_max: KEEPALIVES,
            nodelay: true,
            ..Config::default()
        };
        let expected = Expected {
            host: access.host.clone(),
            port: access.port,
            named: access.host_key.clone(),
            known_hosts,
        };
        let check = KeyCheck::new(expected);
        let work = async {
            let host = (access.host.as_str(), access.port);
            let connected = connect(Arc::new(config), host, check.clone()).await;
            let mut handle = connected.map_err(|error| match check.refusal() {
                Some(refusal) => ShellFailure::HostKey(refusal),
                None => ShellFailure::Connect(name.clone(), error.to_string()),
            })?;
            let answer = handle.authenticate_password(access.login(), &access.access_token).await;
            match answer {
                Ok(answer) if answer.success() => Ok(handle),
                Ok(_) => Err(ShellFailure::Login(name.clone())),
                Err(error) => Err(ShellFailure::Connect(name.clone(), error.to_string())),
            }
        };
        let late = |_| ShellFailure::Connect(name.clone(), "it took too long".to_owned());
        let handle = tokio::time::timeout(CONNECT, work).await.map_err(late)??;
        Ok(Self { name: name.clone(), handle, channels: Semaphore::new(CHANNELS) })
    }

    /// Whether the connection has ended.
    pub(crate) fn is_closed(&self) -> bool {
        self.handle.is_closed()
    }

    /// Ends the connection.
    pub(crate) async fn close(&self) {
        // What cannot be told to the server any more has ended all the same.
        let _ = self.handle.disconnect(Disconnect::ByApplication, "", "en").await;
    }

    /// A connection to a port or socket inside; `None` if nobody accepts it.
    pub(crate) async fn forward(&self, target: &Target) -> Option<ChannelStream<Msg>> {
        let opened = match target {
            Target::Tcp(port) => {
                let port = u32::from(*port);
                self.handle.channel_open_direct_tcpip("127.0.0.1", port, "127.0.0.1", 0).await
            }
            Target::Unix(path) => {
                let path = path.as_path().to_str()?;
                self.handle.channel_open_direct_streamlocal(path).await
            }
        };
        opened.ok().map(russh::Channel::into_stream)
    }

    /// Runs a script with an input, within a time.
    pub(crate) async fn run(
        &self,
        script: &[u8],
        input: Option<Content>,
        sink: Sink<'_>,
        time: Duration,
    ) -> Result<Ran, ShellFailure> {
        let work = self.run_script(script, input, sink);
        let late = |_| ShellFailure::TimedOut(self.name.clone());
        tokio::time::timeout(time, work).await.map_err(late)?
    }

    async fn permit(&self) -> Result<SemaphorePermit<'_>, ShellFailure> {
        let lost = |_| ShellFailure::Lost(self.name.clone());
        self.channels.acquire().await.map_err(lost)
    }

    async fn run_script(
        &self,
        script: &[u8],
        input: Option<Content>,
        mut sink: Sink<'_>,
    ) -> Result<Ran, ShellFailure> {
        let _permit = self.permit().await?;
        let unsent =
            |error: russh::Error| ShellFailure::Connect(self.name.clone(), error.to_string());
        let lost = || ShellFailure::Lost(self.name.clone());
        let channel = self.handle.channel_open_session().await.map_err(unsent)?;
        // Whatever the shell of the user is, the script is one of POSIX.
        let line = [b"exec sh -c ", &quoted(script)[..]].concat();
        let (mut reader, writer) = channel.split();
        writer.exec(false, line).await.map_err(unsent)?;
        let send = async {
            let Some(mut input) = input else {
                return writer.eof().await.map_err(|_| lost());
            };
            let mut stream = writer.make_writer();
            let mut buffer = vec![0; 32 << 10];
            loop {
                use tokio::io::AsyncReadExt as _;
                let read = input.read(&mut buffer).await;
                match read.map_err(|error| ShellFailure::Content(error.to_string()))? {
                    0 => break,
                    // A script that ends early needs no more of it.
                    length => {
                        if stream.write_all(&buffer[..length]).await.is_err() {
                            break;
                        }
                    }
                }
            }
            let flushed = stream.flush().await;
            drop(stream);
            // The same.
            let _ = (flushed, writer.eof().await);
            Ok(())
        };
        let receive = async {
            let mut ran = Ran::default();
            let (mut code, mut received) = (None, 0_usize);
            while let Some(message) = reader.wait().await {
                match message {
                    ChannelMsg::Data { data } => match &mut sink {
                        Sink::Result => {
                            received += data.len();
                            if received > OUTPUT_BYTES {
                                return Err(ShellFailure::TooMuch(self.name.clone()));
                            }
                            ran.output.extend_from_slice(&data);
                        }
                        Sink::File(file) => {
                            let written = file.write_all(&data).await;
                            written.map_err(|error| ShellFailure::Content(error.to_string()))?;
                        }
                    },
                    ChannelMsg::ExtendedData { data, .. } if ran.errors.len() < ERROR_BYTES => {
                        ran.errors.push_str(&String::from_utf8_lossy(&data));
                    }
                    ChannelMsg::ExitStatus { exit_status } => code = Some(exit_status),
                    ChannelMsg::ExitSignal { .. } => code = code.or(Some(255)),
                    ChannelMsg::OpenFailure(_) | ChannelMsg::Failure => return Err(lost()),
                    _ => {}
                }
            }
            if let Sink::File(file) = &mut sink {
                let flushed = file.flush().await;
                flushed.map_err(|error| ShellFailure::Content(error.to_string()))?;
            }
            ran.code = code.ok_or_else(lost)?;
            Ok(ran)
        };
        let ((), ran) = tokio::try_join!(send, receive)?;
        Ok(ran)
    }
}
