//! `/files`: the content of files, with a token or a signature; and `/envs`.

use std::collections::BTreeMap;
use std::io::{self, Write as _};

use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::{Extension, Json};
use flate2::write::GzDecoder;
use http_body_util::BodyExt as _;
use hyper::body::Frame;
use multer::Multipart;
use serde_json::{Value, json};
use stockade_api::body::{BodyReader, FileBody};
use stockade_api::{
    CommandLine, Execute, FileContent, FileKind, Problem, ReadFile, SetPermissions,
};
use stockade_core::Code;
use tokio::sync::mpsc;

use super::App;
use super::failure::Refused;
use super::filesystem::ensure_parent;
use super::metadata;
use super::request::Query;
use super::user::User;
use crate::failure::{Failure, invalid, unsupported};
use crate::inside::range::{self, Part};
use crate::inside::write::{NewFile, write};
use crate::inside::{Identity, Parts, Target, attachment, stat};
use crate::openapi::{Api, Security, get};

/// The path of the route.
pub(super) const PATH: &str = "/files";
/// How many parts of a content may wait to be written.
const CHANNEL_CAPACITY: usize = 4;

/// The routes.
pub(super) fn routes() -> Api<App> {
    let query = ["path", "username", "signature", "signature_expiration"];
    Api::new(Security::Token(super::ENVD_TOKEN))
        .route(
            PATH,
            get(download)
                .query(&["path!", "username", "signature", "signature_expiration"])
                .post(upload)
                .query(&query)
                .layer(DefaultBodyLimit::disable()),
        )
        .route("/envs", get(variables))
}

fn absent(path: &str) -> Refused {
    Problem::new(Code::FileNotFound, format!("path '{path}' does not exist")).into()
}

/// `GET /files?path=`.
async fn download(
    State(app): State<App>,
    Extension(target): Extension<Target>,
    Extension(user): Extension<User>,
    headers: HeaderMap,
    request: Request,
) -> Result<Response, Refused> {
    let query = Query::parse(request.uri().query());
    let path = user.path(query.one("path")?.unwrap_or_default());
    let entry = match stat(&app.sandboxes, &target, &path, true).await {
        Ok(entry) => entry,
        Err(Failure(problem)) if problem.code == Code::FileNotFound => return Err(absent(&path)),
        Err(failure) => return Err(failure.into()),
    };
    match entry.kind {
        FileKind::Directory => return Err(invalid(format!("path '{path}' is a directory")).into()),
        FileKind::File | FileKind::Link | FileKind::Other => {}
    }
    let wanted = headers.get(header::RANGE).and_then(|range| range.to_str().ok());
    let size = entry.size_bytes;
    // The size of a file of the kernel is only known once it is read.
    let is_plain = entry.kind == FileKind::File && size > 0;
    let part = wanted.filter(|_| is_plain).map_or(Part::Whole, |range| range::parse(range, size));
    let (offset, length) = match part {
        Part::Whole => (0, is_plain.then_some(size)),
        Part::Range(offset, length) => (offset, Some(length)),
        Part::Outside => {
            let range = [(header::CONTENT_RANGE, format!("bytes */{size}"))];
            let refused = Refused::from(invalid("the range is outside the file"));
            return Ok((StatusCode::RANGE_NOT_SATISFIABLE, range, refused).into_response());
        }
    };
    let read = ReadFile {
        sandbox_id: target.sandbox.id.clone(),
        path: path.as_str().into(),
        offset,
        length,
    };
    let content = app.sandboxes.read_file(&target.caller, read).await?;
    let mut response = Body::new(FileBody(content)).into_response();
    let fixed = [
        (header::CONTENT_TYPE, "application/octet-stream"),
        (header::ACCEPT_RANGES, "bytes"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    let headers = response.headers_mut();
    for (name, value) in fixed {
        headers.insert(name, header::HeaderValue::from_static(value));
    }
    headers.insert(header::CONTENT_DISPOSITION, attachment(&path));
    if let Some(length) = length {
        headers.insert(header::CONTENT_LENGTH, length.into());
    }
    if let Part::Range(offset, length) = part {
        let range = format!("bytes {offset}-{}/{size}", offset + length - 1);
        if let Ok(range) = range.parse() {
            headers.insert(header::CONTENT_RANGE, range);
        }
        *response.status_mut() = StatusCode::PARTIAL_CONTENT;
    }
    Ok(response)
}

/// `POST /files`: one file as the body, or several as parts of a form.
async fn upload(
    State(app): State<App>,
    Extension(target): Extension<Target>,
    Extension(user): Extension<User>,
    request: Request,
) -> Result<Json<Vec<Value>>, Refused> {
    let (head, body) = request.into_parts();
    let metadata = metadata::requested(&head.headers)?;
    let query = Query::parse(head.uri.query());
    let path = query.one("path")?.filter(|path| !path.is_empty()).map(str::to_owned);
    let text = |name| head.headers.get(name).and_then(|value| value.to_str().ok());
    let kind = text(header::CONTENT_TYPE).unwrap_or_default().to_owned();
    let coding = text(header::CONTENT_ENCODING).unwrap_or("identity").to_ascii_lowercase();
    let is_compressed = match coding.as_str() {
        "identity" | "" => false,
        "gzip" => true,
        other => return Err(unsupported(format_args!("the content encoding {other:?}")).into()),
    };
    let target = Upload { app, target, user, metadata };
    let Ok(boundary) = multer::parse_boundary(&kind) else {
        let path = path.ok_or_else(|| invalid("the parameter `path` is missing"))?;
        let (sender, receiver) = mpsc::channel(CHANNEL_CAPACITY);
        let send = send_body(body, sender, is_compressed);
        return Ok(Json(vec![target.write(&path, receiver, send).await?]));
    };
    if is_compressed {
        return Err(unsupported("a compressed form").into());
    }
    let mut parts = Multipart::new(body.into_data_stream(), boundary);
    let mut written = Vec::new();
    while let Some(part) = parts.next_field().await.map_err(|error| malformed(&error))? {
        if part.name() != Some("file") {
            continue;
        }
        // With several files, the name of each has its whole path.
        let name = path.clone().or_else(|| part.file_name().map(str::to_owned));
        let name = name.filter(|name| !name.is_empty());
        let name = name.ok_or_else(|| invalid("a file of the request has no path"))?;
        let (sender, receiver) = mpsc::channel(CHANNEL_CAPACITY);
        written.push(target.write(&name, receiver, send_part(part, sender)).await?);
    }
    if written.is_empty() {
        return Err(invalid("the request has no file").into());
    }
    Ok(Json(written))
}

fn malformed(error: &dyn std::error::Error) -> Problem {
    Problem::new(Code::InvalidInput, "the body of the request is malformed")
        .because(error.to_string())
}

type PartOf = io::Result<Frame<Bytes>>;

/// Where the files of a request are written.
struct Upload {
    app: App,
    target: Target,
    user: User,
    metadata: BTreeMap<String, String>,
}

impl Upload {
    /// Writes one file, completely or not at all.
    async fn write(
        &self,
        name: &str,
        content: mpsc::Receiver<PartOf>,
        send: impl Future<Output = Result<(), Problem>>,
    ) -> Result<Value, Refused> {
        let Self { app, target, user, metadata } = self;
        let path = user.path(name);
        if name.ends_with('/') {
            return Err(invalid(format!("path '{name}' is a directory")).into());
        }
        match stat(&app.sandboxes, target, &path, true).await {
            Ok(entry) if entry.kind == FileKind::Directory => {
                return Err(invalid(format!("path '{path}' is a directory")).into());
            }
            _ => {}
        }
        let may_write = ensure_parent(app, target, user, &path).await?;
        // New files belong to the ordinary user anyway. Others are written as clients expect it, with every
        // right, and then belong to the user of the request.
        let is_ordinary = user.is_default && may_write;
        let root = Target { identity: Some(Identity { uid: 0, gid: 0 }), ..target.clone() };
        let writer = if is_ordinary { target } else { &root };
        let file = NewFile { path: &path, mode: None, uid: None, gid: None };
        let reader = FileContent(Box::pin(BodyReader::new(Parts(content))));
        let writing = write(&app.sandboxes, writer, file, reader);
        let (written, sent) = tokio::join!(writing, send);
        // A content that was not complete is the cause of a failed write.
        sent?;
        written?;
        if !is_ordinary && user.uid != 0 {
            let set = SetPermissions {
                sandbox_id: target.sandbox.id.clone(),
                path: path.as_str().into(),
                mode: None,
                uid: Some(user.uid),
                gid: Some(user.gid),
            };
            app.sandboxes.set_permissions(&target.caller, set).await?;
        }
        metadata::set(app, target, user, (&path, metadata)).await?;
        let name = path.rsplit('/').next().unwrap_or_default();
        let mut body = json!({ "name": name, "type": "file", "path": path });
        if !metadata.is_empty() {
            body["metadata"] = json!(metadata);
        }
        Ok(body)
    }
}

/// Passes on the content of a part. If it is not complete, the receiver gets an error.
async fn send_part(mut part: multer::Field<'_>, to: mpsc::Sender<PartOf>) -> Result<(), Problem> {
    loop {
        match part.chunk().await {
            Ok(None) => return Ok(()),
            Ok(Some(bytes)) => {
                // Without a receiver the write has failed, and reports that itself.
                if to.send(Ok(Frame::data(bytes))).await.is_err() {
                    return Ok(());
                }
            }
            Err(error) => {
                let _ = to.send(Err(io::Error::other(error.to_string()))).await;
                return Err(malformed(&error));
            }
        }
    }
}

/// Reports that a content is not complete.
async fn broken(to: &mpsc::Sender<PartOf>, problem: Problem) -> Result<(), Problem> {
    let _ = to.send(Err(io::Error::other(problem.message.clone()))).await;
    Err(problem)
}

/// The same for a body, which may be compressed.
async fn send_body(
    mut body: Body,
    to: mpsc::Sender<PartOf>,
    is_compressed: bool,
) -> Result<(), Problem> {
    let mut decoder = is_compressed.then(|| GzDecoder::new(Vec::new()));
    loop {
        let bytes = match body.frame().await {
            None => break,
            Some(Ok(frame)) => frame.into_data().unwrap_or_default(),
            Some(Err(error)) => return broken(&to, malformed(&error)).await,
        };
        // A small part of the body may be a large content: it is passed on bit by bit.
        for piece in bytes.chunks(4096) {
            let content = match &mut decoder {
                None => Bytes::copy_from_slice(piece),
                Some(decoder) => match decoder.write_all(piece) {
                    Ok(()) => Bytes::from(std::mem::take(decoder.get_mut())),
                    Err(error) => return broken(&to, malformed(&error)).await,
                },
            };
            if !content.is_empty() && to.send(Ok(Frame::data(content))).await.is_err() {
                return Ok(());
            }
        }
    }
    if let Some(decoder) = decoder {
        match decoder.finish() {
            Ok(rest) if rest.is_empty() => {}
            Ok(rest) => drop(to.send(Ok(Frame::data(Bytes::from(rest)))).await),
            Err(error) => return broken(&to, malformed(&error)).await,
        }
    }
    Ok(())
}

/// `GET /envs`: the environment of commands.
async fn variables(
    State(app): State<App>,
    Extension(target): Extension<Target>,
) -> Result<Json<Value>, Refused> {
    let line = CommandLine::Program(vec!["env".to_owned(), "-0".to_owned()]);
    let execute = Execute::new(target.sandbox.id.clone(), line);
    let ran = app.sandboxes.execute(&target.caller, execute).await?;
    let text = ran.stdout.lossy().into_owned();
    let pairs = text.split('\0').filter_map(|line| line.split_once('='));
    let found: serde_json::Map<_, _> =
        pairs.map(|(name, value)| (name.to_owned(), value.into())).collect();
    Ok(Json(Value::Object(found)))
}
