//! Why a patch was refused.

use crate::path;
use crate::validate::LimitExceeded;

/// Why a patch is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line} of the patch: {fault}")]
pub struct Error {
    /// The line, counted from one, at which the error was found.
    pub line: usize,
    /// What is wrong.
    #[source]
    pub fault: Fault,
}

/// What is wrong with a patch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// It is larger than allowed.
    #[error(transparent)]
    Limit(#[from] LimitExceeded),
    /// A path is not a valid relative path.
    #[error(transparent)]
    Path(path::Error),
    /// A path does not begin with `a/` or `b/`.
    #[error("a path does not begin with `a/` or `b/`")]
    Prefix,
    /// A quoted path is not closed or has an unknown escape.
    #[error("a quoted path cannot be read")]
    Quoting,
    /// The lines of the header name different paths.
    #[error("the lines of the header do not name the same paths")]
    Names,
    /// Header lines contradict each other.
    #[error("the lines of the header contradict each other")]
    Contradiction,
    /// A header line is duplicated.
    #[error("a line of the header is repeated")]
    Repeated,
    /// A mode is not that of a file or link.
    #[error("a mode is not that of a file or a symbolic link")]
    Mode,
    /// A symbolic link leaves the project, or its target is not in the patch.
    #[error("a symbolic link leaves the project, or its target is unknown")]
    Link,
    /// A `---` line is not followed by a `+++` line.
    #[error("`---` and `+++` lines do not follow each other")]
    Sides,
    /// A hunk's header is invalid.
    #[error("the header of a hunk cannot be read")]
    HunkHeader,
    /// The number of a hunk's lines differs from its header.
    #[error("a hunk does not have as many lines as its header says")]
    HunkLength,
    /// Hunks are out of order or overlap.
    #[error("the hunks of a file overlap or are not in order")]
    HunkOrder,
    /// `\ No newline` does not refer to the last line of a file.
    #[error("`No newline at end of file` is not at the end of the file")]
    NoNewline,
    /// Lines of a diff occur at an invalid position.
    #[error("lines of a diff are outside of a diff")]
    UnexpectedLine,
    /// Binary data is invalid.
    #[error("binary data cannot be read")]
    Binary,
    /// A change changes nothing.
    #[error("a file is named without a change")]
    Empty,
}
