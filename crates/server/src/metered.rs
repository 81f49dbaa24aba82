//! Bodies of requests and responses whose bytes are counted, and bodies of requests that must arrive in
//! time and, where they wait in memory for their ends, take a limited part of it.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, Bytes};
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use stockade_api::Problem;
use stockade_core::Code;
use tokio::time::{Instant, Sleep};

use crate::limits::{Arriving, Usage};

/// How long the next part of a request's body may take.
const BODY_TIMEOUT: Duration = Duration::from_secs(60);

/// A body whose bytes count for a principal.
pub(crate) struct Metered {
    body: Body,
    usage: Usage,
    principal: String,
    deadline: Option<Pin<Box<Sleep>>>,
    /// For a body that waits in memory for its end.
    arriving: Option<Arriving>,
}

/// What becomes of the body of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    /// A program inside a sandbox receives it. It may pause as long as the programs agree on.
    Relayed,
    /// It is passed on as it arrives.
    Streamed,
    /// It waits in memory for its end.
    Whole,
}

/// A body that is refused while it arrives.
#[derive(Debug, thiserror::Error)]
#[error("{}", .0.message)]
pub(crate) struct RefusedBody(pub(crate) Problem);

/// The problem of a body that cannot be read: why it was refused, if it was.
pub(crate) fn body_problem(error: &(dyn std::error::Error + 'static)) -> Problem {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(RefusedBody(problem)) = error.downcast_ref() {
            return problem.clone();
        }
        cause = error.source();
    }
    Problem::new(Code::InvalidInput, error.to_string())
}

impl Metered {
    /// The body of a response.
    pub(crate) fn response(body: Body, usage: Usage, principal: String) -> Body {
        Body::new(Self { body, usage, principal, deadline: None, arriving: None })
    }

    /// The body of a request.
    pub(crate) fn request(body: Body, usage: Usage, principal: String, what: Use) -> Body {
        let has_deadline = what != Use::Relayed;
        let deadline = has_deadline.then(|| Box::pin(tokio::time::sleep(BODY_TIMEOUT)));
        let arriving = (what == Use::Whole).then(|| usage.arriving(&principal));
        Body::new(Self { body, usage, principal, deadline, arriving })
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
            if let Some(Err(problem)) = this.arriving.as_mut().map(|all| all.add(data.len())) {
                return Poll::Ready(Some(Err(RefusedBody(problem).into())));
            }
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
        let mut body = Metered::request(body, usage, "a".to_owned(), Use::Whole);
        assert!(body.frame().await.unwrap().is_err());
    }

    #[tokio::test]
    async fn only_a_body_that_waits_in_memory_is_limited_by_what_others_take() {
        let usage = Usage::new(Limits::default());
        let mut others = usage.arriving("a");
        while others.add(1 << 20).is_ok() {}
        let read = async |what| {
            let body = Body::from(vec![0; 2 << 20]);
            let body = Metered::request(body, usage.clone(), "a".to_owned(), what);
            axum::body::to_bytes(body, usize::MAX).await
        };
        assert!(read(Use::Streamed).await.is_ok() && read(Use::Relayed).await.is_ok());
        let refused = read(Use::Whole).await.unwrap_err();
        assert_eq!(body_problem(&refused).code, Code::RateLimited);
        drop(others);
        assert!(read(Use::Whole).await.is_ok());
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
