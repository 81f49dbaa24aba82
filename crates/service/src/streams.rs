//! Live output: a bounded channel with many readers, each at its own pace and position, the
//! splitter of a command's output, and text that is cut between bytes.
//!
//! No code here waits for a reader: a slow reader receives the number of lost bytes. No state here
//! survives the process; output that must is a stream of the durable engine.

mod channel;
mod split;
mod text;

pub use channel::{Channel, Cursor, Item, Reader, Size, Writer, channel};
pub use split::{Chunk, Piece, Split, split};
pub use text::{Decoder, Encoding};

/// Why a stream ended before its end.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The writer was dropped without closing the stream.
    #[error("the source of the stream no longer exists")]
    Abandoned,
    /// A command's output ended without its exit code.
    #[error("the output ended without an exit code")]
    NoExit,
    /// The writer reported a failure.
    #[error("{0}")]
    Failed(String),
}
