//! The protocol Connect with JSON, as the released clients speak it: calls with one message in each
//! direction, and streams of messages in envelopes.
//!
//! A call on a stream always has the status 200, and an error in its last envelope: some clients ignore the
//! body of another status.

mod envelope;
mod stream;
mod terms;
mod unary;

pub(super) use envelope::{Envelope, Envelopes};
use envelope::{data, end};
pub(super) use stream::{StreamBody, StreamError, respond, whole_stream};
pub(super) use terms::Terms;
pub(super) use unary::{Unary, bytes_or_none};
