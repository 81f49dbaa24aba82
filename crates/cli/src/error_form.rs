//! In which form a command prints an error.

/// The form in which a command prints an error, beside the text on stderr.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// None.
    Text,
    /// An indented JSON document on stdout.
    Json,
    /// One line of JSON on stdout, as the other lines of the command.
    JsonLines,
}
