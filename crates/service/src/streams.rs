//! Output while it is produced: a bounded channel that many can read, each at its own pace and
//! from its own place, the splitter of a command's output, and text that is cut between bytes.
//!
//! Nothing here waits for a reader: who is too slow is told how much is gone. Nothing here lasts
//! longer than the process; what must is a stream of the durable engine.

mod channel;
mod split;
mod text;

pub use channel::{Channel, Cursor, Item, Reader, Size, Writer, channel};
pub use split::{Chunk, Piece, Split, split};
pub use text::{Decoder, Encoding};

/// Why a stream ended before it was at its end.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Whoever wrote it went away without a word.
    #[error("the source of the stream no longer exists")]
    Abandoned,
    /// A command's output ended, and nobody told how the command did.
    #[error("the output ended without an exit code")]
    NoExit,
    /// Whoever wrote it says so.
    #[error("{0}")]
    Failed(String),
}
