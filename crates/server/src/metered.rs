//! Bodies of requests and responses whose bytes are counted, and bodies of requests that must arrive in
//! time.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, Bytes};
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tokio::time::{Instant, Sleep};

use crate::limits::Usage;

/// How long the next part of a request's body may take.
const BODY_TIMEOUT: Duration = Duration::from_secs(60);

/// A body whose bytes count for a principal.
pub(crate) struct Metered {
    body: Body,
    usage: Usage,
    principal: String,
    deadline: Option<Pin<Box<Sleep>>>,
}

impl Metered {
    /// The body of a response.
    pub(crate) fn response(body: Body, usage: Usage, principal: String) -> Body {
        Body::new(Self { body, usage, principal, deadline: None })
    }

    /// The body of a request. `is_relayed` is for one that a program inside a sandbox receives: it may
    /// pause as long as the programs agree on.
    pub(crate) fn request(body: Body, usage: Usage, principal: String, is_relayed: bool) -> Body {
        let deadline = (!is_relayed).then(|| Box::pin(tokio::time::sleep(BODY_TIMEOUT)));
        Body::new(Self { body, usage, principal, deadline })
    }
}

impl HttpBody for Metered {
    type Data = Bytes;
    type Error = axum::BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::BoxError>>> {
        let this = &mut *self;
        let Poll::Ready(frame) = Pin::new(&mut this.body).poll_frame(context) else {
            let Some(deadline) = &mut this.deadline else { return Poll::Pending };
            ready!(deadline.as_mut().poll(context));
            let message = "the body of the request did not arrive in time";
            return Poll::Ready(Some(Err(io::Error::new(io::ErrorKind::TimedOut, message).into())));
        };
        if let Some(deadline) = &mut this.deadline {
            deadline.as_mut().reset(Instant::now() + BODY_TIMEOUT);
        }
        if let Some(Ok(frame)) = &frame
            && let Some(data) = frame.data_ref()
        {
            this.usage.count(&this.principal, data.len());
        }
        Poll::Ready(frame.map(|frame| frame.map_err(Into::into)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;

    use super::*;
    use crate::limits::Limits;

    #[tokio::test(start_paused = true)]
    async fn a_body_that_does_not_arrive_is_an_error() {
        let (_sender, receiver) = tokio::sync::mpsc::channel::<io::Result<Bytes>>(1);
        let body = Body::from_stream(Receiver(receiver));
        let usage = Usage::new(Limits::default());
        let mut body = Metered::request(body, usage, "a".to_owned(), false);
        assert!(body.frame().await.unwrap().is_err());
    }

    #[tokio::test]
    async fn the_bytes_of_a_body_are_counted() {
        let usage = Usage::new(Limits { requests: None, bytes: Some(10) });
        let body = Metered::response(Body::from(vec![0; 20]), usage.clone(), "a".to_owned());
        assert_eq!(body.collect().await.unwrap().to_bytes().len(), 20);
        assert!(usage.admit("a").is_err());
    }

    struct Receiver(tokio::sync::mpsc::Receiver<io::Result<Bytes>>);

    impl futures_util::Stream for Receiver {
        type Item = io::Result<Bytes>;

        fn poll_next(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
        ) -> Poll<Option<Self::Item>> {
            self.0.poll_recv(context)
        }
    }
}
