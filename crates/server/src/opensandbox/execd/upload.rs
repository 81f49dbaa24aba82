//! `POST /files/upload`: writes files. The body is `multipart/form-data` with two parts for each file:
//! its metadata as JSON, and its content, which is passed on as it arrives.

use std::io;

use axum::Extension;
use axum::body::Bytes;
use axum::extract::{Request, State};
use axum::http::header;
use hyper::body::Frame;
use multer::{Constraints, Field, Multipart, SizeLimit};
use serde::Deserialize;
use stockade_api::FileContent;
use stockade_api::body::BodyReader;
use tokio::sync::mpsc;

use super::super::request::parse;
use super::super::target::{PortState, Target};
use super::files::Permissions;
use super::identity::{Right, check};
use super::write::{self, NewFile};
use crate::failure::{Failure, invalid};

/// The largest metadata of a file, in bytes.
const METADATA_BYTES: u64 = 64 << 10;
/// How many parts of a content may wait to be written.
const CHANNEL_CAPACITY: usize = 4;

/// The metadata of a file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Metadata {
    path: String,
    #[serde(default)]
    owner: Option<String>,
    #[serde(default)]
    group: Option<String>,
    #[serde(default)]
    mode: Option<u32>,
}

/// Writes the files of a request, one after the other; each completely or not at all.
pub(super) async fn upload(
    State(state): State<PortState>,
    Extension(target): Extension<Target>,
    request: Request,
) -> Result<(), Failure> {
    let kind = request.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let boundary = multer::parse_boundary(kind.unwrap_or_default())
        .map_err(|_| invalid("the content type of the request must be multipart/form-data"))?;
    let limits = SizeLimit::new().for_field("metadata", METADATA_BYTES);
    let constraints = Constraints::new().size_limit(limits);
    let body = request.into_body().into_data_stream();
    let mut parts = Multipart::with_constraints(body, boundary, constraints);
    let mut metadata: Option<Metadata> = None;
    let mut has_files = false;
    while let Some(part) = parts.next_field().await.map_err(malformed)? {
        match (part.name(), metadata.take()) {
            (Some("metadata"), None) => {
                metadata = Some(parse(&part.bytes().await.map_err(malformed)?)?);
            }
            (Some("file"), Some(metadata)) => {
                write(&state, &target, metadata, part).await?;
                has_files = true;
            }
            _ => return Err(invalid("each file needs a part `metadata`, then a part `file`")),
        }
    }
    if metadata.is_some() {
        return Err(invalid("the last file has no content"));
    }
    if !has_files {
        return Err(invalid("the request has no file: each needs a part `metadata`, then `file`"));
    }
    Ok(())
}

fn malformed(error: multer::Error) -> Failure {
    let Failure(problem) = invalid("the body of the request is malformed");
    Failure(problem.because(error.to_string()))
}

async fn write(
    state: &PortState,
    target: &Target,
    metadata: Metadata,
    content: Field<'_>,
) -> Result<(), Failure> {
    let Metadata { path: name, owner, group, mode } = metadata;
    let permissions = Permissions { owner, group, mode };
    let (uid, gid) = permissions.numbers(state, target).await?;
    check(state, target, Right::Write, &name).await?;
    target.refuse_other_owner(uid, gid)?;
    let file = NewFile { path: &name, mode: permissions.bits()?, uid, gid };
    let (sender, receiver) = mpsc::channel(CHANNEL_CAPACITY);
    let reader = FileContent(Box::pin(BodyReader::new(Parts(receiver))));
    let writing = write::write(state, target, file, reader);
    let (written, sent) = tokio::join!(writing, send(content, sender));
    // A content that was not complete is the cause of a failed write.
    sent?;
    written?;
    Ok(())
}

type Part = io::Result<Frame<Bytes>>;

/// Passes on a content. If it is not complete, the receiver gets an error instead of an end.
async fn send(mut content: Field<'_>, to: mpsc::Sender<Part>) -> Result<(), Failure> {
    loop {
        match content.chunk().await {
            Ok(None) => return Ok(()),
            Ok(Some(part)) => {
                // Without a receiver the write has failed, and reports that itself.
                if to.send(Ok(Frame::data(part))).await.is_err() {
                    return Ok(());
                }
            }
            Err(error) => {
                let _ = to.send(Err(io::Error::other(error.to_string()))).await;
                return Err(malformed(error));
            }
        }
    }
}

/// The parts of a content as a body.
pub(super) struct Parts(pub(super) mpsc::Receiver<Part>);

impl hyper::body::Body for Parts {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Part>> {
        self.0.poll_recv(context)
    }
}
