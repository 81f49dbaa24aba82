//! `GET /files/download`: the content of a file, a range of its bytes, or some of its lines.

use axum::Extension;
use axum::body::Body;
use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use stockade_api::body::FileBody;
use stockade_api::{FileKind, ReadFile};

use super::super::request::Query;
use super::super::target::{PortState, Target};
use super::files::path;
use super::identity::{Right, check};
use super::lines::{self, Lines};
use crate::failure::{Failure, invalid};
use crate::inside::range::{self, Part};
use crate::inside::{attachment, stat};

/// `GET /files/download?path=…`, with the header `range` for bytes, or with `&offset=…&limit=…` for
/// lines.
pub(super) async fn download(
    State(state): State<PortState>,
    Extension(target): Extension<Target>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let query = Query::parse(query.as_deref(), &["path", "offset", "limit"])?;
    let name = query.required("path")?;
    let entry = stat(&state.sandboxes, &target, name, true).await?;
    check(&state, &target, Right::Read, name).await?;
    if entry.kind != FileKind::File {
        return Err(invalid(format!("{name} is not a regular file")));
    }
    let size = entry.size_bytes;
    let wanted = headers.get(header::RANGE).and_then(|range| range.to_str().ok());
    if let Some(lines) = Lines::of(&query)? {
        if wanted.is_some() {
            return Err(invalid("`offset` and `limit` exclude the header `range`"));
        }
        let sandbox_id = target.sandbox.id.clone();
        let request = ReadFile { sandbox_id, path: path(name), offset: 0, length: None };
        let content = state.sandboxes.read_file(&target.caller, request).await?;
        return Ok(lines::response(content, lines));
    }
    let part = wanted.map_or(Part::Whole, |range| range::parse(range, size));
    let (offset, length) = match part {
        Part::Whole => (0, size),
        Part::Range(offset, length) => (offset, length),
        Part::Outside => {
            let range = [(header::CONTENT_RANGE, format!("bytes */{size}"))];
            let failure = invalid("the range is outside the file").into_response();
            return Ok((StatusCode::RANGE_NOT_SATISFIABLE, range, failure).into_response());
        }
    };
    let request = ReadFile {
        sandbox_id: target.sandbox.id.clone(),
        path: path(name),
        offset,
        length: Some(length),
    };
    let content = state.sandboxes.read_file(&target.caller, request).await?;
    let headers = [
        (header::CONTENT_TYPE, "application/octet-stream".to_owned()),
        (header::CONTENT_LENGTH, length.to_string()),
        (header::ACCEPT_RANGES, "bytes".to_owned()),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff".to_owned()),
    ];
    let disposition = [(header::CONTENT_DISPOSITION, attachment(name))];
    let response = (headers, disposition, Body::new(FileBody(content))).into_response();
    if part == Part::Whole {
        return Ok(response);
    }
    let range = format!("bytes {offset}-{}/{size}", offset + length - 1);
    Ok((StatusCode::PARTIAL_CONTENT, [(header::CONTENT_RANGE, range)], response).into_response())
}
