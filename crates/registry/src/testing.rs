//! A registry of the tests' own on the loopback, which can do everything wrong.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use stockade_core::Problem;
use stockade_image::Digest;
use stockade_registry_control::{Access, Event, Request, Selector};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::connect::Trust;
use crate::credentials::Credentials;
use crate::times::Times;

/// A request as the server received it.
#[derive(Debug, Clone)]
pub(crate) struct HttpRequest {
    pub(crate) line: String,
    pub(crate) authorization: Option<String>,
    pub(crate) range: Option<String>,
    pub(crate) body: String,
}

impl HttpRequest {
    pub(crate) fn path(&self) -> &str {
        self.line.split(' ').nth(1).unwrap_or_default()
    }
}

/// How a response ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// As it should.
    Right,
    /// After so many bytes of the body the connection is closed.
    Cut(usize),
    /// After so many bytes of the body nothing follows.
    Stall(usize),
    /// The body never ends.
    Endless,
    /// A byte at a time, with pauses.
    Slow,
}

#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    pub(crate) end: End,
}

impl Answer {
    pub(crate) fn new(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Self { status, headers: Vec::new(), body: body.into(), end: End::Right }
    }

    pub(crate) fn with(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.push((name.to_owned(), value.into()));
        self
    }

    pub(crate) fn ending(mut self, end: End) -> Self {
        self.end = end;
        self
    }
}

/// A server, and what it was asked.
pub(crate) struct Server {
    pub(crate) host: String,
    asked: Arc<Mutex<Vec<HttpRequest>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Server {
    pub(crate) async fn start(
        answer: impl Fn(&HttpRequest, &str) -> Answer + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let host = listener.local_addr().unwrap().to_string();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (log, name, answer) = (Arc::clone(&asked), host.clone(), Arc::new(answer));
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (log, name, answer) = (Arc::clone(&log), name.clone(), Arc::clone(&answer));
                tokio::spawn(async move {
                    let _ = serve(stream, |asked| {
                        log.lock().unwrap().push(asked.clone());
                        answer(asked, &name)
                    })
                    .await;
                });
            }
        });
        Self { host, asked, task }
    }

    pub(crate) fn asked(&self) -> Vec<HttpRequest> {
        self.asked.lock().unwrap().clone()
    }
}

async fn serve(
    mut stream: TcpStream,
    answer: impl Fn(&HttpRequest) -> Answer,
) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
        // The first byte of a TLS record: this server does not speak TLS.
        if head[0] == 0x16 {
            return stream.write_all(b"HTTP/1.0 400 Bad Request\r\n\r\n").await;
        }
    }
    let text = String::from_utf8_lossy(&head).into_owned();
    let header = |name: &str| {
        let mut lines = text.lines();
        let line = lines.find(|line| line.to_lowercase().starts_with(&format!("{name}:")));
        line.map(|line| line.split_once(':').unwrap().1.trim().to_owned())
    };
    let length = header("content-length").and_then(|text| text.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await?;
    let asked = HttpRequest {
        line: text.lines().next().unwrap_or_default().to_owned(),
        authorization: header("authorization"),
        range: header("range"),
        body: String::from_utf8_lossy(&body).into_owned(),
    };
    let Answer { status, headers, body, end } = answer(&asked);
    let mut head = format!("HTTP/1.1 {status} Text\r\n");
    for (name, value) in &headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    if end != End::Endless && !headers.iter().any(|(name, _)| name == "Content-Length") {
        head.push_str(&format!("Content-Length: {}\r\n", body.len()));
    }
    stream.write_all(format!("{head}\r\n").as_bytes()).await?;
    match end {
        End::Right => stream.write_all(&body).await?,
        End::Cut(count) => stream.write_all(&body[..count]).await?,
        End::Stall(count) => {
            stream.write_all(&body[..count]).await?;
            tokio::time::sleep(Duration::from_secs(600)).await;
        }
        End::Endless => loop {
            stream.write_all(&[b' '; 4096]).await?;
        },
        End::Slow => {
            for byte in body {
                stream.write_all(&[byte]).await?;
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    }
    stream.shutdown().await
}

/// An image with one layer.
pub(crate) struct Sample {
    pub(crate) layer: Vec<u8>,
    pub(crate) config: Vec<u8>,
    pub(crate) manifest: Vec<u8>,
}

impl Sample {
    pub(crate) fn new() -> Self {
        Self::with_layer((0_u32..200_000).flat_map(u32::to_le_bytes).collect(), "amd64")
    }

    pub(crate) fn with_layer(layer: Vec<u8>, architecture: &str) -> Self {
        let config =
            json!({ "os": "linux", "architecture": architecture }).to_string().into_bytes();
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": typed(&config, "application/vnd.oci.image.config.v1+json"),
            "layers": [typed(&layer, "application/vnd.oci.image.layer.v1.tar")],
        });
        Self { layer, config, manifest: manifest.to_string().into_bytes() }
    }

    /// The right answer to a request.
    pub(crate) fn answer(&self, asked: &HttpRequest) -> Answer {
        let path = asked.path();
        let is = |content: &[u8]| path.ends_with(Digest::of(content).hex());
        if path.contains("/manifests/tag") || is(&self.manifest) {
            return Answer::new(200, self.manifest.clone());
        }
        let blob = [&self.layer, &self.config].into_iter().find(|content| is(content));
        let Some(blob) = blob else { return not_found() };
        match asked.range.as_deref().and_then(|range| range.strip_prefix("bytes=")) {
            None => Answer::new(200, blob.clone()),
            Some(range) => {
                let from: usize = range.trim_end_matches('-').parse().unwrap();
                let part = format!("bytes {from}-{}/{}", blob.len() - 1, blob.len());
                Answer::new(206, &blob[from..]).with("Content-Range", part)
            }
        }
    }
}

pub(crate) fn descriptor(content: &[u8]) -> Value {
    json!({ "digest": Digest::of(content), "size": content.len() })
}

fn typed(content: &[u8], media_type: &str) -> Value {
    let mut descriptor = descriptor(content);
    descriptor["mediaType"] = media_type.into();
    descriptor
}

pub(crate) fn not_found() -> Answer {
    Answer::new(404, r#"{"errors":[{"code":"MANIFEST_UNKNOWN","message":"unknown"}]}"#)
}

/// A download into a directory of its own.
pub(crate) struct Download {
    pub(crate) directory: tempfile::TempDir,
    pub(crate) request: Request,
    pub(crate) credentials: Credentials,
    pub(crate) times: Times,
    pub(crate) events: std::cell::RefCell<Vec<Event>>,
}

impl Download {
    pub(crate) fn from(registry: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let request = Request {
            directory: directory.path().to_owned(),
            registry: registry.to_owned(),
            repository: "team/name".to_owned(),
            selector: Selector::Tag("tag".to_owned()),
            platform: "linux/amd64".parse().unwrap(),
            access: Access::default(),
            present: Vec::new(),
            max_bytes: 100 << 20,
        };
        let short = Duration::from_millis(1500);
        let times = Times {
            head: short,
            document: short,
            window: short,
            pause: Duration::from_millis(1),
            retries: 3,
            ..Times::default()
        };
        let credentials = Credentials::default();
        Self { directory, request, credentials, times, events: std::cell::RefCell::default() }
    }

    /// Reads credentials from a Docker configuration.
    pub(crate) async fn log_in(&mut self, config: &Value) {
        let home = tempfile::tempdir().unwrap();
        std::fs::write(home.path().join("config.json"), config.to_string()).unwrap();
        let path = home.path().as_os_str().to_owned();
        let hosts = crate::hosts(&self.request.registry, &self.request.access).unwrap();
        let variable = |name: &str| (name == "DOCKER_CONFIG").then(|| path.clone());
        self.credentials = Credentials::load(&hosts, variable).await;
    }

    pub(crate) async fn run(&self) -> Result<(), Problem> {
        let report = |event| self.events.borrow_mut().push(event);
        let trust = Trust::load(&[], None);
        let done =
            crate::download(&self.request, &self.credentials, trust, self.times, &report).await;
        done.map_err(|error| crate::problem(&error))
    }

    pub(crate) fn has(&self, content: &[u8]) -> bool {
        let path = self.directory.path().join("blobs/sha256").join(Digest::of(content).hex());
        std::fs::read(path).is_ok_and(|found| found == content)
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.directory.path().join("index.json").exists()
    }
}
