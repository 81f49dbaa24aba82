//! One exec: a WebSocket to a call in a pod. The first byte of each message names a stream.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt as _, Stream as _, StreamExt as _};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use kube::api::AttachParams;
use kube::core::Request as ApiRequest;
use kube_websocket::WebSocketStream;
use kube_websocket::tungstenite::Message;
use stockade_pod::{ARGUMENT, CALL, Frame, PROGRAM, PROGRAMS, read_frame, write_frame};
use tokio::io::{AsyncRead, ReadBuf};

use crate::cluster::Cluster;
use crate::failure::Failure;
use crate::objects::CONTAINER;

/// How long an exec may take to start.
const START: Duration = Duration::from_secs(30);
/// The streams.
const INPUT: u8 = 0;
const OUTPUT: u8 = 1;
const ERRORS: u8 = 2;
const RESULT: u8 = 3;
/// The longest message that is sent.
const MESSAGE: usize = 32 << 10;
/// How much of the standard error is kept for messages.
const ERROR_BYTES: usize = 2048;

type Socket = WebSocketStream<TokioIo<Upgraded>>;

/// A call that runs in a pod. Dropping both halves ends it.
pub(crate) struct Session {
    pub(crate) sender: Sender,
    pub(crate) receiver: Receiver,
}

/// The standard input of a call.
pub(crate) struct Sender(SplitSink<Socket, Message>);

/// The standard output of a call.
pub(crate) struct Receiver {
    from: SplitStream<Socket>,
    output: VecDeque<u8>,
    /// What it wrote to the standard error, which is ours, and never a command's.
    errors: Vec<u8>,
    is_over: bool,
}

impl Session {
    /// Starts a call.
    pub(crate) async fn open(
        cluster: &Cluster,
        namespace: &str,
        pod: &str,
    ) -> Result<Self, Failure> {
        let path = format!("/api/v1/namespaces/{namespace}/pods");
        let program = format!("{PROGRAMS}/{PROGRAM}");
        let parameters = AttachParams {
            container: Some(CONTAINER.to_owned()),
            stdin: true,
            stdout: true,
            stderr: true,
            tty: false,
            ..AttachParams::default()
        };
        let request = ApiRequest::new(path).exec(pod, [&program, ARGUMENT, CALL], &parameters);
        let request = request.map_err(|error| Failure::Odd(error.to_string()))?;
        let connected = tokio::time::timeout(START, cluster.client().connect(request)).await;
        let connection = connected.map_err(|_| Failure::TimedOut)??;
        let (to, from) = connection.into_stream().split();
        let receiver =
            Receiver { from, output: VecDeque::new(), errors: Vec::new(), is_over: false };
        Ok(Self { sender: Sender(to), receiver })
    }
}

impl Sender {
    /// Sends a frame.
    pub(crate) async fn send(&mut self, frame: &Frame) -> io::Result<()> {
        let mut bytes = Vec::new();
        write_frame(&mut bytes, frame).await?;
        for piece in bytes.chunks(MESSAGE) {
            let message = [&[INPUT], piece].concat();
            self.0.send(Message::binary(message)).await.map_err(io::Error::other)?;
        }
        Ok(())
    }
}

impl Receiver {
    /// The next frame; `None` when the call has ended.
    ///
    /// # Errors
    /// The connection is lost.
    pub(crate) async fn receive(&mut self) -> io::Result<Option<Frame>> {
        read_frame(self).await
    }

    /// What the call wrote to its standard error.
    pub(crate) fn errors(&self) -> String {
        String::from_utf8_lossy(&self.errors).trim().to_owned()
    }

    fn take(&mut self, message: &[u8]) {
        match message.split_first() {
            Some((&OUTPUT, bytes)) => self.output.extend(bytes),
            Some((&ERRORS, bytes)) => {
                let room = ERROR_BYTES.saturating_sub(self.errors.len()).min(bytes.len());
                self.errors.extend(&bytes[..room]);
            }
            Some((&RESULT, _)) => self.is_over = true,
            _ => {}
        }
    }
}

impl AsyncRead for Receiver {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        while self.output.is_empty() {
            if self.is_over {
                return Poll::Ready(Ok(()));
            }
            match ready!(Pin::new(&mut self.from).poll_next(context)) {
                Some(Ok(Message::Binary(bytes))) => self.take(&bytes),
                Some(Ok(Message::Close(_))) | None => self.is_over = true,
                Some(Ok(_)) => {}
                Some(Err(error)) => return Poll::Ready(Err(io::Error::other(error))),
            }
        }
        let (front, _) = self.output.as_slices();
        let length = front.len().min(buffer.remaining());
        buffer.put_slice(&front[..length]);
        self.output.drain(..length);
        Poll::Ready(Ok(()))
    }
}
