//! The client for a server's operations, over its local socket or over a network.
//!
//! This crate does not define operations: `stockade_api` lists them, and this crate transports them.
//! `directory` locates the server of a data directory; the caller must start the server. `dial` makes
//! the connections: those over a network have TLS, which this crate does not contain, so that the
//! caller provides them.

mod body;
mod dial;
mod directory;
mod request;
mod server_url;
mod session;

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use hyper::header::{AUTHORIZATION, HOST, HeaderMap, HeaderName, HeaderValue};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use stockade_api::body::BodyReader;
use stockade_api::wire::{
    ATTACH, CALL, CLUSTER_PREFIX, CONNECT, DIFF, EVENTS, FORWARDED_HEADER, HEALTH, HTTP_STREAM,
    OUTPUT, READ, RECEIVE, SEND, SESSION, TCP_PREFIX, VERSION, VERSION_HEADER, WEB_SOCKET, WRITE,
};
use stockade_api::{
    AttachCommand, Caller, Connect, DiffBundle, Duplex, FileContent, HttpRequest, HttpStream,
    Items, OpenSession, OpenWebSocket, OutputItem, PathDiff, Problem, ReadEvents, ReadFile,
    ReadOutput, ReceiveFiles, RecordedEvent, Remote, Result, SendFiles, SentFiles, Session,
    Transport, WebSocket, WriteFile, WriteResult,
};
use stockade_core::Code;
use tokio::sync::mpsc;

pub use crate::dial::Dial;
use crate::dial::LocalSocket;
pub use crate::directory::ServerDirectory;
use crate::request::Request;
pub use crate::server_url::{InvalidUrl, ServerUrl};

/// How many items of a streamed response are read ahead.
const CHANNEL_CAPACITY: usize = 16;

/// A server's operations.
pub type Server = Remote<Client>;

impl From<Client> for Server {
    fn from(client: Client) -> Self {
        Self(client)
    }
}

/// A client of one server.
#[derive(Debug, Clone)]
pub struct Client {
    dial: Arc<dyn Dial>,
    /// What precedes the path of each request.
    prefix: &'static str,
    /// What each request has, besides its own headers.
    headers: HeaderMap,
}

/// The server's identity.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, serde::Deserialize)]
pub struct Health {
    /// The server's version.
    pub version: String,
    /// Its process number.
    pub pid: u32,
    /// Whether it was started by a command that needed it.
    #[serde(default, rename = "onDemand")]
    pub on_demand: bool,
}

impl Client {
    /// A client for the server that listens on a socket. Nothing is sent yet.
    pub fn new(socket: impl AsRef<Path>) -> Self {
        let mut headers = HeaderMap::new();
        headers.insert(HOST, HeaderValue::from_static("stockade"));
        let dial = Arc::new(LocalSocket(socket.as_ref().to_owned()));
        Self { dial, prefix: "", headers }
    }

    /// A client for the server at a URL, with an API key. Nothing is sent yet.
    ///
    /// # Errors
    /// [`Code::InvalidInput`] for a key that cannot be sent. The message does not contain it.
    pub fn of_url(dial: Arc<dyn Dial>, url: &ServerUrl, key: Option<&str>) -> Result<Self> {
        let mut headers = HeaderMap::new();
        let host = HeaderValue::try_from(url.authority());
        headers.insert(HOST, host.map_err(|error| unreadable(error.to_string()))?);
        headers.insert(HeaderName::from_static(VERSION_HEADER), HeaderValue::from_static(VERSION));
        if let Some(key) = key {
            let value = HeaderValue::try_from(format!("Bearer {key}"));
            let mut value = value.map_err(|_| {
                Problem::new(Code::InvalidInput, "the API key contains invalid characters")
            })?;
            // It is not printed by `Debug`.
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        Ok(Self { dial, prefix: TCP_PREFIX, headers })
    }

    /// A client for another server of a cluster, on behalf of a caller that `forwarded` names. Nothing is
    /// sent yet.
    ///
    /// # Errors
    /// [`Code::InvalidInput`] if a header cannot be sent.
    pub fn of_cluster(dial: Arc<dyn Dial>, url: &ServerUrl, forwarded: &str) -> Result<Self> {
        let mut client = Self::of_url(dial, url, None)?;
        let mut value = HeaderValue::try_from(forwarded)
            .map_err(|error| Problem::new(Code::InvalidInput, error.to_string()))?;
        // It is not printed by `Debug`.
        value.set_sensitive(true);
        client.headers.insert(HeaderName::from_static(FORWARDED_HEADER), value);
        client.prefix = CLUSTER_PREFIX;
        Ok(client)
    }

    /// The identity of the server at this socket.
    ///
    /// # Errors
    /// [`Code::Unreachable`] when no server responds.
    pub async fn health(&self) -> Result<Health> {
        let request = Request::get(HEALTH);
        request::json(request.send(self).await?).await
    }

    async fn session(&self, request: Request) -> Result<Session> {
        let request = request.with_upgrade();
        let (head, connection) = request::upgraded_connection(request.send(self).await?).await?;
        let id = head.get("stockade-workflow-id").and_then(|id| id.to_str().ok());
        let id = id.ok_or_else(|| unreadable("it does not name the session"))?.to_owned();
        Ok(session::open(id, connection))
    }

    async fn lines<T: DeserializeOwned + Send + 'static>(
        &self,
        caller: &Caller,
        path: &'static str,
        request: &(impl Serialize + Sync),
    ) -> Result<Items<T>> {
        let request = Request::post(path, caller).json(request)?;
        let answer = request::check_status(request.send(self).await?).await?;
        let (sender, receiver) = mpsc::channel(CHANNEL_CAPACITY);
        tokio::spawn(body::lines(answer, sender));
        Ok(Items::new(receiver))
    }
}

#[async_trait]
impl Transport for Client {
    async fn call(&self, caller: &Caller, operation: &str, request: Value) -> Result<Value> {
        let request = Request::post(&format!("{CALL}{operation}"), caller).json(&request)?;
        request::json(request.send(self).await?).await
    }

    async fn open_session(&self, caller: &Caller, request: OpenSession) -> Result<Session> {
        self.session(Request::post(SESSION, caller).json(&request)?).await
    }

    async fn attach_command(&self, caller: &Caller, request: AttachCommand) -> Result<Session> {
        self.session(Request::post(ATTACH, caller).json(&request)?).await
    }

    async fn read_output(&self, caller: &Caller, request: ReadOutput) -> Result<Items<OutputItem>> {
        self.lines(caller, OUTPUT, &request).await
    }

    async fn read_events(
        &self,
        caller: &Caller,
        request: ReadEvents,
    ) -> Result<Items<RecordedEvent>> {
        self.lines(caller, EVENTS, &request).await
    }

    async fn diff_bundle(&self, caller: &Caller, request: DiffBundle) -> Result<Items<PathDiff>> {
        self.lines(caller, DIFF, &request).await
    }

    async fn read_file(&self, caller: &Caller, request: ReadFile) -> Result<FileContent> {
        let request = Request::post(READ, caller).json(&request)?;
        let answer = request::check_status(request.send(self).await?).await?;
        Ok(FileContent(Box::pin(BodyReader::new(answer))))
    }

    async fn write_file(
        &self,
        caller: &Caller,
        request: WriteFile,
        content: FileContent,
    ) -> Result<WriteResult> {
        let request = Request::post(WRITE, caller).json_header(&request)?;
        let request = request.content(request::stream_body(content));
        request::json(request.send(self).await?).await
    }

    async fn send_files(
        &self,
        caller: &Caller,
        request: SendFiles,
        content: FileContent,
    ) -> Result<SentFiles> {
        let request = Request::post(SEND, caller).json_header(&request)?;
        let request = request.content(request::stream_body(content));
        request::json(request.send(self).await?).await
    }

    async fn receive_files(&self, caller: &Caller, request: ReceiveFiles) -> Result<FileContent> {
        let request = Request::post(RECEIVE, caller).json(&request)?;
        let answer = request::check_status(request.send(self).await?).await?;
        Ok(FileContent(Box::pin(BodyReader::new(answer))))
    }

    async fn connect(&self, caller: &Caller, request: Connect) -> Result<Box<dyn Duplex>> {
        let request = Request::post(CONNECT, caller).json(&request)?.with_upgrade();
        let (_, connection) = request::upgraded_connection(request.send(self).await?).await?;
        Ok(Box::new(connection))
    }

    async fn http_stream(&self, caller: &Caller, request: HttpRequest) -> Result<HttpStream> {
        let request = Request::post(HTTP_STREAM, caller).json(&request)?;
        let answer = request.send(self).await?;
        let head = answer.headers().clone();
        let body = request::check_status(answer).await?;
        let body = FileContent(Box::pin(BodyReader::new(body)));
        Ok(HttpStream { head: request::response_header(&head)?, body })
    }

    async fn web_socket(&self, caller: &Caller, request: WebSocket) -> Result<OpenWebSocket> {
        let request = Request::post(WEB_SOCKET, caller).json(&request)?.with_upgrade();
        let (head, connection) = request::upgraded_connection(request.send(self).await?).await?;
        let protocol = request::response_header(&head)?;
        Ok(OpenWebSocket { protocol, connection: Box::new(connection) })
    }
}

fn unreadable(error: impl ToString) -> Problem {
    Problem::new(Code::Io, "the server's response cannot be read").because(error.to_string())
}

fn unreachable(error: impl ToString) -> Problem {
    Problem::new(Code::Unreachable, "the server does not answer").because(error.to_string())
}
