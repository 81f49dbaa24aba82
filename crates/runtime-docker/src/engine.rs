//! The connection to an engine: every request has a deadline, and every failure a type.

use std::io;
use std::time::Duration;

use bollard::errors::Error as EngineError;
use bollard::models::SystemInfo;
use bollard::{API_DEFAULT_VERSION, Docker as Client};
use stockade_runtime::{Error, Result};
use tokio::sync::OnceCell;

use crate::address::Address;

/// How long an engine may usually take for one request.
pub const DEADLINE: Duration = Duration::from_secs(30);
/// The answers of the engine: no such object, and a conflict with another one.
const NOT_FOUND: u16 = 404;
const CONFLICT: u16 = 409;
const NOT_MODIFIED: u16 = 304;

/// An engine.
#[derive(Debug)]
pub(crate) struct Engine {
    address: Address,
    deadline: Duration,
    client: OnceCell<Client>,
}

/// The failure of one request.
#[derive(Debug)]
pub(crate) enum Failure {
    /// There is no such object.
    NotFound(String),
    /// The name is in use, or the object is in a state that forbids it.
    Conflict(String),
    /// The engine refuses the request.
    Refused(String),
    /// Everything else.
    Other(Error),
}

impl Engine {
    pub(crate) fn new(address: Address, deadline: Duration) -> Self {
        Self { address, deadline, client: OnceCell::new() }
    }

    /// The connection. The version of the interface is the newest that both sides know.
    async fn client(&self) -> Result<&Client> {
        self.client
            .get_or_try_init(|| async {
                let path = self.address.socket.to_string_lossy();
                let seconds = self.deadline.as_secs().max(1);
                let client = Client::connect_with_unix(&path, seconds, API_DEFAULT_VERSION)
                    .map_err(|error| self.unreachable(&error))?;
                let negotiated = tokio::time::timeout(self.deadline, client.negotiate_version());
                let negotiated = negotiated.await.map_err(|_| too_slow())?;
                negotiated.map_err(|error| self.unreachable(&error))
            })
            .await
    }

    /// One request, within its deadline.
    pub(crate) async fn request<'a, T, F>(
        &'a self,
        act: impl FnOnce(&'a Client) -> F + Send,
    ) -> std::result::Result<T, Failure>
    where
        F: Future<Output = std::result::Result<T, EngineError>> + Send,
    {
        let client = self.client().await.map_err(Failure::Other)?;
        match tokio::time::timeout(self.deadline, act(client)).await {
            Ok(answer) => answer.map_err(|error| self.failure(error)),
            Err(_) => Err(Failure::Other(too_slow())),
        }
    }

    /// What the engine is and can do.
    pub(crate) async fn info(&self) -> Result<SystemInfo> {
        self.request(Client::info).await.map_err(|failure| failure.into_error("describe itself"))
    }

    fn failure(&self, error: EngineError) -> Failure {
        match error {
            EngineError::DockerResponseServerError { status_code, message } => match status_code {
                NOT_FOUND => Failure::NotFound(message),
                CONFLICT | NOT_MODIFIED => Failure::Conflict(message),
                _ => Failure::Refused(message),
            },
            EngineError::RequestTimeoutError => Failure::Other(too_slow()),
            error => Failure::Other(self.unreachable(&error)),
        }
    }

    fn unreachable(&self, error: &EngineError) -> Error {
        // The last cause names the reason; those around it name parts of the client.
        let mut cause: &dyn std::error::Error = error;
        while let Some(inner) = cause.source() {
            cause = inner;
        }
        let reason = cause.to_string();
        let remedy = match reason.contains("ermission denied") {
            true => "sudo usermod -aG docker \"$USER\" && newgrp docker",
            false => "sudo systemctl start docker",
        };
        Error::Unavailable { what: self.address.to_string(), reason, remedy: remedy.to_owned() }
    }
}

fn too_slow() -> Error {
    Error::Deadline("get an answer of the Docker engine")
}

/// Whether an answer of the engine says that its disk is full.
pub(crate) fn is_full_disk(text: &str) -> bool {
    text.contains("no space left on device")
}

impl Failure {
    /// The error of an operation that needed the answer.
    pub(crate) fn into_error(self, operation: &str) -> Error {
        let text = match self {
            Self::Other(error) => return error,
            Self::NotFound(text) | Self::Conflict(text) | Self::Refused(text) => text,
        };
        let text = text.trim();
        if is_full_disk(text) {
            return Error::Exhausted(format!("the Docker engine cannot {operation}: {text}"));
        }
        Error::Unreachable {
            what: "the Docker engine".to_owned(),
            source: io::Error::other(format!("it cannot {operation}: {text}")),
        }
    }
}
