//! Why a bundle was not applied.

use crate::beneath;
use crate::manifest::{ExecutedBy, Refusal};
use crate::path::RelativePath;

/// Why a bundle was not applied.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Paths on the host differ from the state that the bundle was made from.
    #[error("{} changed on the host since the bundle was made", count_paths(.0.len()))]
    Conflicts(Vec<Conflict>),
    /// Entries that host tools execute automatically were not accepted.
    #[error("{} would be executed by tools on the host and must be accepted", count_paths(.paths.len()))]
    Executed {
        /// The entries, each with the kind of tool.
        paths: Vec<(RelativePath, ExecutedBy)>,
        /// Whether there are also entries for [`Error::Unseen`].
        has_unseen: bool,
    },
    /// Entries whose new content no diff shows were not accepted. Each is here with its size.
    #[error("the diff does not show the new content of {}, which must be accepted", count_paths(.0.len()))]
    Unseen(Vec<(RelativePath, u64)>),
    /// Entries that may never be applied were requested by name.
    #[error("{} may never be applied", count_paths(.0.len()))]
    Refused(Vec<(RelativePath, Refusal)>),
    /// Paths were requested that the bundle does not contain.
    #[error("the bundle does not change {}", list_paths(.0))]
    NotInBundle(Vec<RelativePath>),
    /// Paths lie on another file system than the project's root, so that they cannot be swapped
    /// atomically with the rest.
    #[error("on another file system than the project's root: {}", list_paths(.0))]
    OtherFileSystem(Vec<RelativePath>),
    /// These paths lie in directories that this user may not change.
    #[error("no permission to change the directory of: {}", list_paths(.0))]
    NotWritable(Vec<RelativePath>),
    /// Another apply operation on the same project is running.
    #[error("another apply to this project is running")]
    Busy,
    /// The bundle's stored content of a path is missing or altered.
    #[error("the stored content of {path} {fault}")]
    Blob {
        /// The path whose content it is.
        path: RelativePath,
        /// What is wrong with it.
        fault: BlobFault,
    },
    /// The apply operation failed and was undone, except for files that changed meanwhile.
    #[error("undone, but {} changed meanwhile and were not restored", count_paths(.not_restored.len()))]
    PartlyUndone {
        /// Why it failed.
        #[source]
        cause: Box<Self>,
        /// The files that were not undone, and where their old content is.
        not_restored: Vec<NotRestored>,
    },
    /// The apply operation could be neither finished nor undone now; the next command does one of
    /// them.
    #[error("the apply could be neither finished nor undone; the next command will do one of them")]
    NeedsRecovery {
        /// Why not.
        #[source]
        cause: Box<Self>,
    },
    /// What was applied cannot be recorded.
    #[error("cannot record what was applied")]
    Record(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// A journal is invalid.
    #[error("the journal {name} is damaged: {reason}")]
    JournalDamaged {
        /// Its name.
        name: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A file operation beneath a directory failed.
    #[error(transparent)]
    Beneath(#[from] beneath::Error),
    /// Reading or writing an open file failed.
    #[error("cannot {operation} {path}")]
    Io {
        /// The attempted operation, as a verb.
        operation: &'static str,
        /// The path, printable.
        path: String,
        /// The kernel's error.
        #[source]
        source: std::io::Error,
    },
}

/// What is wrong with a stored content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BlobFault {
    /// It does not exist.
    #[error("is missing from the bundle")]
    Missing,
    /// It does not match the hash in its name.
    #[error("does not match its hash and size")]
    Altered,
}

/// A path that cannot be changed because its state on the host is not as expected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// The path.
    pub path: RelativePath,
    /// What is different.
    pub difference: Difference,
}

/// What is different on the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Difference {
    /// It changed after the view was created and before the bundle was created.
    #[error("changed while the command ran")]
    DuringRun,
    /// It no longer exists.
    #[error("no longer exists")]
    Missing,
    /// It exists although it did not before.
    #[error("exists now")]
    Exists,
    /// It has another type.
    #[error("is now another type of file")]
    Type,
    /// A file's content is different.
    #[error("now has other content")]
    Content,
    /// A file's or directory's permission bits are different.
    #[error("now has other permissions")]
    Mode,
    /// A symbolic link's target is different.
    #[error("now points elsewhere")]
    Target,
    /// Both sides have changed the same lines.
    #[error("has changes of the same lines on both sides")]
    Lines,
    /// Both sides have changed a content that is not text.
    #[error("is not text and was changed on both sides")]
    Binary,
    /// It changed while the command ran, and what was there before is not known.
    #[error(
        "changed while the command ran, and its content at the start of the command is not known"
    )]
    BaseUnknown,
    /// The path that it was renamed from no longer exists.
    #[error("was renamed from a path that no longer exists")]
    Source,
    /// Its parent is missing, or not a directory, or a symbolic link.
    #[error("its directory no longer exists")]
    Parent,
    /// A directory that is to be replaced by something else contains files that stay.
    #[error("contains files that are not part of the change")]
    NotEmpty,
    /// It changed while the bundle was being applied.
    #[error("changed during the apply")]
    DuringApply,
}

/// A path that was not undone because it was changed meanwhile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotRestored {
    /// The path.
    pub path: RelativePath,
    /// The path in the project of its content from before the apply operation, if there was any.
    pub preserved_at: Option<RelativePath>,
}

fn count_paths(count: usize) -> String {
    match count {
        1 => "1 path".to_owned(),
        count => format!("{count} paths"),
    }
}

fn list_paths(paths: &[RelativePath]) -> String {
    const SHOWN: usize = 5;
    let mut text =
        paths.iter().take(SHOWN).map(RelativePath::quoted).collect::<Vec<_>>().join(", ");
    if paths.len() > SHOWN {
        text.push_str(&format!(" and {} more", paths.len() - SHOWN));
    }
    text
}
