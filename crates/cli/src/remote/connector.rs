//! Connections to a server at a URL. Those with TLS are made by a process of the other program, because
//! this one contains no TLS: it receives one end of a socket pair for each connection, and reports on
//! it whether the connection was made, before the first byte of the server.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use async_trait::async_trait;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use serde::{Deserialize, Serialize};
use stockade_api::wire::ErrorBody;
use stockade_api::{Duplex, Result};
use stockade_client::{Dial, ServerUrl};
use stockade_core::{Code, Problem};
use tokio::io::AsyncReadExt as _;
use tokio::net::{TcpStream, UnixStream};

use crate::problem::caused;
use crate::processes::CONNECTOR;
use crate::programs::{self, build_argument, sibling_program};

/// Asks for a connection. The message has one end of its socket pair.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Open {}

/// The first byte of a connection that was made.
pub const CONNECTED: u8 = 0;
/// The first byte of one that was not made; the failure follows, as JSON.
pub const REFUSED: u8 = 1;

/// How long a connection may take. The process itself has a shorter deadline.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The longest report of a failure.
const REPORT_BYTES: u64 = 64 << 10;
/// The variables of the environment that the process needs.
const ENVIRONMENT: [&str; 2] = ["SSL_CERT_FILE", "RUST_BACKTRACE"];

/// Makes connections without TLS.
#[derive(Debug)]
pub(super) struct Plain(pub(super) ServerUrl);

#[async_trait]
impl Dial for Plain {
    async fn dial(&self) -> Result<Box<dyn Duplex>> {
        let url = &self.0;
        let (host, port) = (url.host(), url.port());
        let connect = async {
            if host == "localhost" {
                // No name server is asked for this name: the key is sent to this machine only.
                let addresses: [SocketAddr; 2] =
                    [(Ipv4Addr::LOCALHOST, port).into(), (Ipv6Addr::LOCALHOST, port).into()];
                return TcpStream::connect(&addresses[..]).await;
            }
            TcpStream::connect((host, port)).await
        };
        let connected = tokio::time::timeout(TIMEOUT, connect).await;
        let stream = connected.map_err(|_| unreachable(url, "no connection in time"))?;
        let stream = stream.map_err(|error| unreachable(url, &error.to_string()))?;
        let _ = stream.set_nodelay(true);
        let _ = rustix::net::sockopt::set_socket_keepalive(&stream, true);
        Ok(Box::new(stream))
    }
}

/// The process that makes connections with TLS. It ends when this value is dropped.
#[derive(Debug)]
pub(super) struct Connector {
    url: ServerUrl,
    control: OwnedFd,
    process: Mutex<Child>,
}

impl Connector {
    /// Starts the process for a server.
    ///
    /// # Errors
    /// [`Code::Unsupported`] if the other program is missing.
    pub(super) fn start(url: &ServerUrl, authorities: Option<&Path>) -> Result<Self> {
        let failed = |error: std::io::Error| caused(Code::LaunchFailed, &error);
        let flags = SocketFlags::CLOEXEC;
        let (control, other) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
            .map_err(|errno| failed(errno.into()))?;
        let kept = ENVIRONMENT.into_iter().filter_map(|name| Some((name, std::env::var_os(name)?)));
        stockade_jail::inherit_nothing().map_err(failed)?;
        let mut command = Command::new(sibling_program(programs::SERVER)?);
        command.arg(CONNECTOR).arg(build_argument()).arg(url.to_string()).args(authorities);
        command.env_clear().envs(kept).stdin(Stdio::from(other)).stdout(Stdio::null());
        let process = command.spawn().map_err(failed)?;
        Ok(Self { url: url.clone(), control, process: Mutex::new(process) })
    }
}

impl Drop for Connector {
    fn drop(&mut self) {
        let process = match self.process.get_mut() {
            Ok(process) => process,
            Err(poisoned) => poisoned.into_inner(),
        };
        // It may have ended already.
        let _ = process.kill();
        let _ = process.wait();
    }
}

#[async_trait]
impl Dial for Connector {
    async fn dial(&self) -> Result<Box<dyn Duplex>> {
        let failed = |error: std::io::Error| unreachable(&self.url, &error.to_string());
        let (own, other) = StdUnixStream::pair().map_err(failed)?;
        own.set_nonblocking(true).map_err(failed)?;
        let mut own = UnixStream::from_std(own).map_err(failed)?;
        stockade_egress_control::send(&self.control, &Open {}, &[other.as_fd()]).map_err(
            |error| {
                let message = "the process that makes the TLS connections has ended";
                Problem::new(Code::Unreachable, message).because(error.to_string())
            },
        )?;
        drop(other);
        let reported = async {
            if own.read_u8().await? == CONNECTED {
                return Ok(None);
            }
            let mut text = Vec::new();
            (&mut own).take(REPORT_BYTES).read_to_end(&mut text).await?;
            Ok(Some(text))
        };
        let reported = tokio::time::timeout(TIMEOUT, reported).await;
        let reported = reported.map_err(|_| unreachable(&self.url, "no connection in time"))?;
        match reported.map_err(failed)? {
            None => Ok(Box::new(own)),
            Some(text) => Err(match serde_json::from_slice::<ErrorBody>(&text) {
                Ok(report) => report.error,
                Err(error) => unreachable(&self.url, &error.to_string()),
            }),
        }
    }
}

fn unreachable(url: &ServerUrl, why: &str) -> Problem {
    Problem::new(Code::Unreachable, format!("the server {url} cannot be reached"))
        .because(why)
        .remedied_by(format!("check that it runs: curl -sS {url}/health"))
}
