//! The operations of the current server of the data directory, or of one at a URL. If a server ends
//! before it has responded, the same request is sent to the next one under the same idempotency key: what
//! was already done is not done again, only its result is returned.

use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use serde_json::Value;
use stockade_api::{
    AttachCommand, Caller, Connect, DiffBundle, Duplex, FileContent, HttpRequest, HttpStream,
    Items, OpenSession, OpenWebSocket, OutputItem, PathDiff, ReadEvents, ReadFile, ReadOutput,
    ReceiveFiles, RecordedEvent, Result, SendFiles, SentFiles, Session, Transport, WebSocket,
    WriteFile, WriteResult,
};
use stockade_client::{Client, ServerDirectory};
use stockade_core::{Code, Problem};

use super::chosen::ChosenServer;
use super::{connect, start};

/// How long the next server at a URL may take until it responds.
const RESTART: Duration = Duration::from_secs(30);
/// The interval between two attempts to reach it.
const PAUSE: Duration = Duration::from_millis(250);

/// The connection to a server, and to its successors.
#[derive(Debug)]
pub(super) struct Reconnecting {
    place: Place,
    client: Client,
}

/// Where the server is.
#[derive(Debug)]
enum Place {
    /// In this data directory. The next one is started if there is none.
    Data { path: PathBuf, directory: ServerDirectory },
    /// At a URL. It is waited for if it has responded before.
    Url { server: ChosenServer, has_responded: AtomicBool },
}

impl Reconnecting {
    /// Connects to the running server, or to a new one.
    pub(super) async fn find_or_start(data: PathBuf) -> Result<Self> {
        let directory = crate::data_dir::open_data_dir(&data)?;
        let directory = ServerDirectory::open(directory.as_fd(), &data)?;
        start::find_or_start(&data, &directory).await?;
        Ok(Self::of(data, directory))
    }

    /// Connects to a server that is known to run.
    pub(super) fn of(data: PathBuf, directory: ServerDirectory) -> Self {
        let client = Client::new(directory.socket());
        Self { client, place: Place::Data { path: data, directory } }
    }

    /// Uses the server at a URL. Nothing is sent yet.
    pub(super) fn at_url(server: &ChosenServer) -> Result<Self> {
        let has_responded = AtomicBool::new(false);
        let place = Place::Url { server: server.clone(), has_responded };
        Ok(Self { client: connect::client(server)?, place })
    }

    /// Returns once a server responds, after a request has failed with this problem.
    async fn next(&self, problem: Problem) -> Result<()> {
        match &self.place {
            Place::Data { path, directory } => start::replace(path, directory).await,
            Place::Url { has_responded, .. } => {
                if !has_responded.load(Ordering::Relaxed) {
                    return Err(problem);
                }
                let deadline = Instant::now() + RESTART;
                while Instant::now() < deadline {
                    tokio::time::sleep(PAUSE).await;
                    match self.client.health().await {
                        Err(Problem { code: Code::Unreachable, .. }) => {}
                        other => return other.map(drop),
                    }
                }
                Err(problem)
            }
        }
    }

    /// What is known after a request to a server at a URL.
    fn observe<T>(&self, answer: Result<T>) -> Result<T> {
        let Place::Url { server, has_responded } = &self.place else { return answer };
        if !matches!(answer, Err(Problem { code: Code::Unreachable, .. })) {
            has_responded.store(true, Ordering::Relaxed);
        }
        answer.map_err(|problem| connect::explained(problem, server))
    }

    /// Sends a request; sends it once more to the next server if the first no longer runs.
    async fn with_retry<T, Fut>(&self, ask: impl Fn() -> Fut + Send) -> Result<T>
    where
        Fut: Future<Output = Result<T>> + Send,
    {
        match self.observe(ask().await) {
            Err(problem) if problem.code == Code::Unreachable => {
                self.observe(self.next(problem).await)?;
                self.observe(ask().await)
            }
            answer => answer,
        }
    }
}

#[async_trait]
impl Transport for Reconnecting {
    async fn call(&self, caller: &Caller, operation: &str, request: Value) -> Result<Value> {
        self.with_retry(|| self.client.call(caller, operation, request.clone())).await
    }

    async fn open_session(&self, caller: &Caller, request: OpenSession) -> Result<Session> {
        // A command whose streams were lost is not started again: it may have run.
        self.with_retry(|| self.client.health()).await?;
        self.observe(self.client.open_session(caller, request).await)
    }

    async fn attach_command(&self, caller: &Caller, request: AttachCommand) -> Result<Session> {
        self.with_retry(|| self.client.attach_command(caller, request.clone())).await
    }

    async fn read_output(&self, caller: &Caller, request: ReadOutput) -> Result<Items<OutputItem>> {
        self.with_retry(|| self.client.read_output(caller, request.clone())).await
    }

    async fn read_events(
        &self,
        caller: &Caller,
        request: ReadEvents,
    ) -> Result<Items<RecordedEvent>> {
        self.with_retry(|| self.client.read_events(caller, request.clone())).await
    }

    async fn diff_bundle(&self, caller: &Caller, request: DiffBundle) -> Result<Items<PathDiff>> {
        self.with_retry(|| self.client.diff_bundle(caller, request.clone())).await
    }

    async fn read_file(&self, caller: &Caller, request: ReadFile) -> Result<FileContent> {
        self.with_retry(|| self.client.read_file(caller, request.clone())).await
    }

    async fn write_file(
        &self,
        caller: &Caller,
        request: WriteFile,
        content: FileContent,
    ) -> Result<WriteResult> {
        // The content may have been sent in part, and cannot be read twice here.
        self.with_retry(|| self.client.health()).await?;
        self.observe(self.client.write_file(caller, request, content).await)
    }

    async fn send_files(
        &self,
        caller: &Caller,
        request: SendFiles,
        content: FileContent,
    ) -> Result<SentFiles> {
        // As with a file.
        self.with_retry(|| self.client.health()).await?;
        self.observe(self.client.send_files(caller, request, content).await)
    }

    async fn receive_files(&self, caller: &Caller, request: ReceiveFiles) -> Result<FileContent> {
        self.with_retry(|| self.client.receive_files(caller, request.clone())).await
    }

    async fn http_stream(&self, caller: &Caller, request: HttpRequest) -> Result<HttpStream> {
        // The request may already have been forwarded, and is not sent twice.
        self.observe(self.client.http_stream(caller, request).await)
    }

    async fn web_socket(&self, caller: &Caller, request: WebSocket) -> Result<OpenWebSocket> {
        self.with_retry(|| self.client.web_socket(caller, request.clone())).await
    }

    async fn connect(&self, caller: &Caller, request: Connect) -> Result<Box<dyn Duplex>> {
        self.with_retry(|| self.client.connect(caller, request.clone())).await
    }
}
