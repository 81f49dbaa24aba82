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
use super::stat::stat;
use crate::failure::{Failure, invalid};

/// The part of a file that a request selects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Whole,
    /// From this byte on, so many bytes.
    Range(u64, u64),
    /// None of its bytes.
    Outside,
}

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
    let entry = stat(&state, &target, name, true).await?;
    check(&state, &target, Right::Read, name).await?;
    if entry.kind != FileKind::File {
        return Err(invalid(format!("{name} is not a regular file")));
    }
    let size = entry.size_bytes;
    let range = headers.get(header::RANGE).and_then(|range| range.to_str().ok());
    if let Some(lines) = Lines::of(&query)? {
        if range.is_some() {
            return Err(invalid("`offset` and `limit` exclude the header `range`"));
        }
        let sandbox_id = target.sandbox.id.clone();
        let request = ReadFile { sandbox_id, path: path(name), offset: 0, length: None };
        let content = state.sandboxes.read_file(&target.caller, request).await?;
        return Ok(lines::response(content, lines));
    }
    let part = range.map_or(Part::Whole, |range| parse(range, size));
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
        (header::CONTENT_DISPOSITION, "attachment".to_owned()),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff".to_owned()),
    ];
    let response = (headers, Body::new(FileBody(content))).into_response();
    if part == Part::Whole {
        return Ok(response);
    }
    let range = format!("bytes {offset}-{}/{size}", offset + length - 1);
    Ok((StatusCode::PARTIAL_CONTENT, [(header::CONTENT_RANGE, range)], response).into_response())
}

/// A range (RFC 9110, section 14). One that is invalid, or of several parts, is ignored, as the
/// standard says.
fn parse(range: &str, size: u64) -> Part {
    let Some(range) = range.strip_prefix("bytes=") else { return Part::Whole };
    let Some((first, last)) = range.trim().split_once('-') else { return Part::Whole };
    let number = |text: &str| text.trim().parse::<u64>().ok();
    let (from, to) = match (number(first), number(last)) {
        (Some(from), Some(to)) if from <= to => (from, to.min(size.saturating_sub(1))),
        (Some(from), None) if last.trim().is_empty() => (from, size.saturating_sub(1)),
        (None, Some(0)) if first.trim().is_empty() => return Part::Outside,
        (None, Some(last)) if first.trim().is_empty() => {
            (size.saturating_sub(last), size.saturating_sub(1))
        }
        _ => return Part::Whole,
    };
    if from >= size { Part::Outside } else { Part::Range(from, to - from + 1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_those_of_http() {
        for (range, part) in [
            ("bytes=0-3", Part::Range(0, 4)),
            ("bytes=8-100", Part::Range(8, 2)),
            ("bytes=5-", Part::Range(5, 5)),
            ("bytes=-3", Part::Range(7, 3)),
            ("bytes=-30", Part::Range(0, 10)),
            ("bytes=10-", Part::Outside),
            ("bytes=-0", Part::Outside),
            ("bytes=3-1", Part::Whole),
            ("bytes=0-1,3-4", Part::Whole),
            ("lines=1-2", Part::Whole),
            ("bytes=", Part::Whole),
        ] {
            assert_eq!(parse(range, 10), part, "{range}");
        }
        assert_eq!(parse("bytes=0-", 0), Part::Outside);
    }
}
