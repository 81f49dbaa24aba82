//! The body of a request whose content is read while it is sent.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use hyper::body::Frame;
use stockade_runtime::Content;
use tokio::io::ReadBuf;

/// The largest part of a content.
const PART_BYTES: usize = 64 << 10;

/// When the server last took a part of a body; `None` while the content is not there yet, which is no fault
/// of the server.
#[derive(Debug, Clone)]
pub(crate) struct Progress(Arc<Mutex<Option<Instant>>>);

impl Default for Progress {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Some(Instant::now()))))
    }
}

impl Progress {
    /// Whether the server took a part within this time, or waits for the content.
    pub(crate) fn is_seen_within(&self, time: Duration) -> bool {
        let seen = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.is_none_or(|seen| seen.elapsed() < time)
    }

    fn set(&self, seen: Option<Instant>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = seen;
    }
}

/// The parts of a body: what comes before a content, the content, and what comes after it.
pub(crate) struct Parts {
    before: Option<Vec<u8>>,
    content: Option<Content>,
    after: Option<Vec<u8>>,
    progress: Progress,
}

impl Parts {
    pub(crate) fn new(
        before: Vec<u8>,
        content: Content,
        after: Vec<u8>,
        progress: &Progress,
    ) -> Self {
        let progress = progress.clone();
        Self { before: Some(before), content: Some(content), after: Some(after), progress }
    }

    fn poll_part(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Vec<u8>>>> {
        if let Some(before) = self.before.take() {
            return Poll::Ready(Some(Ok(before)));
        }
        if let Some(content) = &mut self.content {
            let mut bytes = vec![0; PART_BYTES];
            let mut buffer = ReadBuf::new(&mut bytes);
            match content.as_mut().poll_read(cx, &mut buffer) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(error)) => return Poll::Ready(Some(Err(error))),
                Poll::Ready(Ok(())) => {
                    let length = buffer.filled().len();
                    if length > 0 {
                        bytes.truncate(length);
                        return Poll::Ready(Some(Ok(bytes)));
                    }
                    self.content = None;
                }
            }
        }
        Poll::Ready(self.after.take().map(Ok))
    }
}

impl futures_util::Stream for Parts {
    type Item = io::Result<Frame<Bytes>>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let part = self.poll_part(cx);
        self.progress.set(part.is_ready().then(Instant::now));
        part.map(|part| part.map(|part| part.map(|bytes| Frame::data(Bytes::from(bytes)))))
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::task::{Context, Poll};
    use std::time::Duration;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, ReadBuf};
    use tokio::net::TcpListener;

    use crate::failure::Failure;
    use crate::http::{Place, Protocol, Sent};

    const TIMEOUT: Duration = Duration::from_millis(200);

    /// A content without end.
    struct Endless;

    impl tokio::io::AsyncRead for Endless {
        fn poll_read(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            buffer: &mut ReadBuf<'_>,
        ) -> Poll<std::io::Result<()>> {
            buffer.put_slice(&vec![7; buffer.remaining()]);
            Poll::Ready(Ok(()))
        }
    }

    async fn server() -> (TcpListener, Place) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let place = Place {
            protocol: Protocol::Http,
            authority: listener.local_addr().unwrap().to_string(),
            path: String::new(),
            headers: Vec::new(),
            authorities: None,
            timeout: TIMEOUT,
        };
        (listener, place)
    }

    #[tokio::test]
    async fn a_server_that_takes_nothing_ends_an_upload() {
        let (listener, place) = server().await;
        let silent = tokio::spawn(async move {
            let accepted = listener.accept().await;
            tokio::time::sleep(Duration::from_secs(60)).await;
            drop(accepted);
        });
        let sent = place.upload("/", Sent::default(), Vec::new(), Box::pin(Endless), Vec::new());
        let sent = tokio::time::timeout(Duration::from_secs(20), sent).await.unwrap();
        assert!(matches!(sent, Err(Failure::TimedOut(_))), "{sent:?}");
        silent.abort();
    }

    #[tokio::test]
    async fn a_slow_content_is_no_fault_of_the_server() {
        let (listener, place) = server().await;
        let answer = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut text = Vec::new();
            while !text.ends_with(b"0\r\n\r\n") {
                assert_ne!(stream.read_buf(&mut text).await.unwrap(), 0);
            }
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.unwrap();
        });
        let (mut writer, reader) = tokio::io::duplex(1024);
        let writes = tokio::spawn(async move {
            writer.write_all(b"one").await.unwrap();
            tokio::time::sleep(4 * TIMEOUT).await;
            writer.write_all(b"two").await.unwrap();
        });
        let content = Box::pin(reader);
        let sent = place.upload("/", Sent::default(), b"<".to_vec(), content, b">".to_vec()).await;
        assert!(sent.is_ok(), "{sent:?}");
        writes.await.unwrap();
        answer.await.unwrap();
    }
}
