//! Requests to the keeper of a pod: finding the pod, an exec for each request, and what is tried again.

use std::io;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::Value;
use stockade_core::SandboxId;
use stockade_pod::{Frame, Reply, Request};
use stockade_runtime::{Content, Error, Result};
use tokio::io::AsyncReadExt as _;

use crate::client::{Kubernetes, Opened};
use crate::failure::{CLUSTER, Failure};
use crate::observed::{Phase, Pod};
use crate::session::{Receiver, Sender, Session};

/// How often a call is made, and the first pause between two of them.
const ATTEMPTS: u32 = 4;
const PAUSE: Duration = Duration::from_millis(100);
/// How long a call may take to answer, where the operation itself has no limit of its own.
const REPLY: Duration = Duration::from_secs(60);
/// The size of the pieces of a content.
const PIECE: usize = 64 << 10;
/// How long the reason may take to arrive why a content is not read.
const REASON: Duration = Duration::from_secs(5);

/// Why a call has no reply.
enum Broken {
    /// It was not started.
    NotStarted(Failure),
    /// The connection was lost after that.
    Lost(io::Error),
    /// It failed for good.
    Failed(Error),
}

impl Kubernetes {
    /// The pod of a sandbox, as the watch knows it or else the API server.
    pub(crate) async fn pod(&self, id: &SandboxId) -> Result<Pod> {
        let opened = self.opened().await?;
        if let Some(pod) = opened.watch.find(id)
            && !matches!(pod.phase, Phase::Waiting(_))
        {
            return Ok(pod);
        }
        self.current_pod(opened, id).await
    }

    /// The pod of a sandbox, as the API server knows it now.
    pub(crate) async fn current_pod(&self, opened: &Opened, id: &SandboxId) -> Result<Pod> {
        let listed = opened.list(&opened.names.one(id)).await;
        let pods = listed.map_err(|failure| failure.into_error("find the pod"))?;
        let found = pods.into_iter().find(|pod| pod.id == *id);
        found.ok_or_else(|| Error::NoSandbox(id.clone()))
    }

    /// Asks the keeper of a sandbox.
    pub(crate) async fn ask<T: DeserializeOwned>(
        &self,
        id: &SandboxId,
        request: &Request,
    ) -> Result<T> {
        let (value, _) = self.begin(id, request, None).await?;
        read(value)
    }

    /// The same with a content after the request.
    pub(crate) async fn send<T: DeserializeOwned>(
        &self,
        id: &SandboxId,
        request: &Request,
        content: Content,
    ) -> Result<T> {
        let (value, _) = self.begin(id, request, Some(content)).await?;
        read(value)
    }

    /// Makes a call until there is a reply; what follows it can be read from the session.
    pub(crate) async fn begin(
        &self,
        id: &SandboxId,
        request: &Request,
        mut content: Option<Content>,
    ) -> Result<(Value, Session)> {
        let opened = self.opened().await?;
        let has_content = content.is_some();
        let mut pause = PAUSE;
        let mut was_lost = false;
        // A request whose reply was lost may have had its effect before the sandbox ended.
        let told = |error, was_lost| match error {
            Error::WrongState { .. } if was_lost => {
                Error::OutcomeUnknown(format!("the request to {}", request.verb()))
            }
            other => other,
        };
        for attempt in 1.. {
            let pod = self.pod(id).await?;
            running(&pod, request).map_err(|error| told(error, was_lost))?;
            let failure = match attempted(opened, &pod, id, request, &mut content).await {
                Ok(done) => return Ok(done),
                Err(Broken::Failed(error)) => return Err(told(error, was_lost)),
                Err(Broken::NotStarted(failure)) => {
                    if failure.code() == Some(404) {
                        opened.watch.forget(id);
                    } else if failure.retry().is_none() || attempt >= ATTEMPTS {
                        return Err(failure.into_error(request.verb()));
                    }
                    failure
                }
                Err(Broken::Lost(source)) => {
                    let may_repeat = request.is_repeatable() && !has_content;
                    if !may_repeat || attempt >= ATTEMPTS {
                        let what = "the keeper of the pod".to_owned();
                        return Err(Error::Unreachable { what, source });
                    }
                    was_lost = true;
                    Failure::Lost(source.to_string())
                }
            };
            tokio::time::sleep(pause.max(failure.retry().unwrap_or_default())).await;
            pause *= 2;
            // The pod may have ended meanwhile, without the watch having told it yet.
            let current = self.current_pod(opened, id).await?;
            running(&current, request).map_err(|error| told(error, was_lost))?;
        }
        Err(Error::Unreachable { what: CLUSTER.to_owned(), source: io::ErrorKind::Other.into() })
    }
}

fn read<T: DeserializeOwned>(value: Value) -> Result<T> {
    serde_json::from_value(value).map_err(|error| Error::Unreachable {
        what: "the keeper of the pod".to_owned(),
        source: io::Error::new(io::ErrorKind::InvalidData, error),
    })
}

/// Refuses a request to a pod that does not run.
fn running(pod: &Pod, request: &Request) -> Result<()> {
    if pod.phase == Phase::Running {
        return Ok(());
    }
    let state = pod.status().state;
    Err(Error::WrongState { id: pod.id.clone(), state, operation: request.verb() })
}

async fn attempted(
    opened: &Opened,
    pod: &Pod,
    id: &SandboxId,
    request: &Request,
    content: &mut Option<Content>,
) -> std::result::Result<(Value, Session), Broken> {
    let session = Session::open(&opened.cluster, &pod.namespace, &pod.name).await;
    let Session { mut sender, mut receiver } = session.map_err(Broken::NotStarted)?;
    let sending = send_all(&mut sender, request, content.take());
    let reply = tokio::select! {
        // A call that has failed reads no more.
        reply = receiver.receive() => reply,
        sent = sending => match sent {
            Ok(()) => {
                let late = || Broken::Failed(Error::Deadline(request.verb()));
                tokio::time::timeout(REPLY, receiver.receive()).await.map_err(|_| late())?
            }
            Err(Sending::Content(error)) => {
                // The reply comes when nothing incomplete is left. The error is the one to report.
                let _ = tokio::time::timeout(REPLY, receiver.receive()).await;
                return Err(Broken::Failed(error));
            }
            Err(Sending::Connection(error)) => {
                let told = tokio::time::timeout(REASON, receiver.receive()).await;
                told.unwrap_or(Err(error))
            }
        },
    };
    let reply = match reply {
        Ok(Some(Frame::Message(reply))) => serde_json::from_slice(&reply),
        Ok(None) => return Err(Broken::Lost(ended(&receiver))),
        Ok(Some(_)) => return Err(Broken::Lost(io::ErrorKind::InvalidData.into())),
        Err(error) => return Err(Broken::Lost(error)),
    };
    match reply.map_err(|error| Broken::Lost(error.into()))? {
        Reply::Done(value) => Ok((value, Session { sender, receiver })),
        Reply::Failed(fault) => Err(Broken::Failed(fault.into_error(id, request.verb()))),
        _ => Err(Broken::Lost(io::ErrorKind::InvalidData.into())),
    }
}

/// The error of a call that has ended without a reply.
pub(crate) fn ended(receiver: &Receiver) -> io::Error {
    let errors = receiver.errors();
    let text = if errors.is_empty() { "its process has ended".to_owned() } else { errors };
    io::Error::new(io::ErrorKind::UnexpectedEof, text)
}

/// Why a request was not sent.
enum Sending {
    Content(Error),
    Connection(io::Error),
}

async fn send_all(
    sender: &mut Sender,
    request: &Request,
    content: Option<Content>,
) -> std::result::Result<(), Sending> {
    let head = serde_json::to_vec(request).map_err(io::Error::from);
    let head = Frame::Message(head.map_err(Sending::Connection)?);
    sender.send(&head).await.map_err(Sending::Connection)?;
    let Some(mut content) = content else { return Ok(()) };
    let mut piece = vec![0; PIECE];
    loop {
        let read = match content.read(&mut piece).await {
            Ok(read) => read,
            Err(source) => {
                sender.send(&Frame::Broken).await.map_err(Sending::Connection)?;
                let what = "the content that is sent".to_owned();
                return Err(Sending::Content(Error::Unreachable { what, source }));
            }
        };
        let frame = if read == 0 { Frame::End } else { Frame::Data(piece[..read].to_vec()) };
        sender.send(&frame).await.map_err(Sending::Connection)?;
        if read == 0 {
            return Ok(());
        }
    }
}
