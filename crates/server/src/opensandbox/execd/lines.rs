//! Some lines of a file, as they are read: no line is held in memory as a whole.

use std::io;

use axum::body::{Body, Bytes};
use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use hyper::body::Frame;
use stockade_api::FileContent;
use tokio::io::{AsyncBufRead, AsyncBufReadExt as _, BufReader};
use tokio::sync::mpsc;

use super::super::request::Query;
use crate::failure::{Failure, invalid};
use crate::inside::Parts;

/// How many parts may wait for a slow client.
const CHANNEL_CAPACITY: usize = 4;

/// Lines of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Lines {
    /// The number of the first one; it begins at 1.
    first: u64,
    /// How many; all further ones when absent.
    count: Option<u64>,
}

impl Lines {
    /// The lines that a query requests, if it requests lines.
    pub(super) fn of(query: &Query) -> Result<Option<Self>, Failure> {
        let (first, count) = (query.number("offset")?, query.number("limit")?);
        if first == Some(0) || count == Some(0) {
            return Err(invalid("`offset` and `limit` are numbers of lines, and begin at 1"));
        }
        let is_requested = first.is_some() || count.is_some();
        Ok(is_requested.then(|| Self { first: first.unwrap_or(1), count }))
    }

    /// The number of the last one.
    fn last(self) -> u64 {
        self.count.map_or(u64::MAX, |count| self.first.saturating_add(count - 1))
    }
}

/// The response with lines of a file. The end of the last line is not part of it.
pub(super) fn response(content: FileContent, lines: Lines) -> Response {
    let (sender, receiver) = mpsc::channel(CHANNEL_CAPACITY);
    tokio::spawn(async move {
        let content = BufReader::new(content.0);
        if let Err(error) = send(content, lines, &sender).await {
            // The client may have disconnected.
            let _ = sender.send(Err(error)).await;
        }
    });
    let headers = [
        (header::CONTENT_TYPE, "text/plain; charset=utf-8"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    (headers, Body::new(Parts(receiver))).into_response()
}

async fn send(
    mut content: impl AsyncBufRead + Unpin,
    lines: Lines,
    to: &mpsc::Sender<io::Result<Frame<Bytes>>>,
) -> io::Result<()> {
    let mut line = 1;
    // The end of a line is sent when another one follows.
    let mut has_ended = false;
    while line <= lines.last() {
        let bytes = content.fill_buf().await?;
        if bytes.is_empty() {
            break;
        }
        let end = bytes.iter().position(|byte| *byte == b'\n');
        let length = end.unwrap_or(bytes.len());
        if line >= lines.first {
            let mut part = Vec::with_capacity(length + 1);
            if std::mem::take(&mut has_ended) {
                part.push(b'\n');
            }
            part.extend(bytes.iter().take(length));
            if !part.is_empty() && to.send(Ok(Frame::data(part.into()))).await.is_err() {
                return Ok(());
            }
            has_ended = end.is_some();
        }
        content.consume(length + usize::from(end.is_some()));
        line += u64::from(end.is_some());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read(text: &str, first: u64, count: Option<u64>) -> String {
        let (sender, mut receiver) = mpsc::channel(1000);
        // Small parts, so that lines are split.
        let content = BufReader::with_capacity(3, text.as_bytes());
        send(content, Lines { first, count }, &sender).await.unwrap();
        drop(sender);
        let mut found = Vec::new();
        while let Some(part) = receiver.recv().await {
            found.extend(part.unwrap().into_data().unwrap());
        }
        String::from_utf8(found).unwrap()
    }

    #[tokio::test]
    async fn lines_are_selected_by_their_numbers() {
        let text = "line1\nline2\n\nline4\nline5";
        for (first, count, expected) in [
            (1, None, text),
            (2, Some(2), "line2\n"),
            (2, Some(3), "line2\n\nline4"),
            (4, None, "line4\nline5"),
            (1, Some(1), "line1"),
            (3, Some(1), ""),
            (6, None, ""),
            (u64::MAX, Some(u64::MAX), ""),
        ] {
            assert_eq!(read(text, first, count).await, expected, "{first} {count:?}");
        }
        assert_eq!(read("a\nb\n", 1, None).await, "a\nb");
        assert_eq!(read("", 1, None).await, "");
    }
}
