//! File content over HTTP: a message body as a stream of bytes to read, and a stream that is sent
//! as a body.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes as Part;
use http_body::{Body, Frame};
use tokio::io::{AsyncRead, ReadBuf};

use crate::files::FileContent;

/// How many bytes are sent at a time.
const PART: usize = 64 << 10;

/// A body as a stream to read. An incomplete body is an error, not an end of file.
#[derive(Debug)]
pub struct BodyReader<B> {
    body: B,
    rest: Part,
}

impl<B> BodyReader<B> {
    /// Reads a body.
    pub const fn new(body: B) -> Self {
        Self { body, rest: Part::new() }
    }
}

impl<B> AsyncRead for BodyReader<B>
where
    B: Body<Data = Part> + Unpin,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        while self.rest.is_empty() {
            match ready!(Pin::new(&mut self.body).poll_frame(context)) {
                None => return Poll::Ready(Ok(())),
                Some(frame) => {
                    let frame = frame.map_err(io::Error::other)?;
                    self.rest = frame.into_data().unwrap_or_default();
                }
            }
        }
        let taken = self.rest.len().min(buffer.remaining());
        buffer.put_slice(&self.rest.split_to(taken));
        Poll::Ready(Ok(()))
    }
}

/// A body that is read while it is sent. A read error aborts the body, so that it is not taken for
/// complete.
#[derive(Debug)]
pub struct FileBody(pub FileContent);

impl Body for FileBody {
    type Data = Part;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Part>>>> {
        let mut part = vec![0; PART];
        let mut buffer = ReadBuf::new(&mut part);
        ready!(self.0.0.as_mut().poll_read(context, &mut buffer))?;
        let read = buffer.filled().len();
        part.truncate(read);
        Poll::Ready((read > 0).then(|| Ok(Frame::data(Part::from(part)))))
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt as _;

    use super::*;

    #[tokio::test]
    async fn what_is_sent_is_received() {
        let content = vec![7; 3 * PART + 1];
        let sent = FileBody(FileContent(Box::pin(io::Cursor::new(content.clone()))));
        let mut received = Vec::new();
        BodyReader::new(sent).read_to_end(&mut received).await.unwrap();
        assert_eq!(received, content);
    }

    #[tokio::test]
    async fn what_breaks_off_is_an_error() {
        let broken = some_then_a_failure();
        let sent = FileBody(FileContent(Box::pin(broken)));
        assert!(BodyReader::new(sent).read_to_end(&mut Vec::new()).await.is_err());
    }

    /// Some bytes, then a failure.
    fn some_then_a_failure() -> impl AsyncRead + Send {
        struct Broken(bool);
        impl AsyncRead for Broken {
            fn poll_read(
                mut self: Pin<&mut Self>,
                _: &mut Context<'_>,
                buffer: &mut ReadBuf<'_>,
            ) -> Poll<io::Result<()>> {
                if std::mem::replace(&mut self.0, true) {
                    return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
                }
                buffer.put_slice(b"some");
                Poll::Ready(Ok(()))
            }
        }
        Broken(false)
    }
}
