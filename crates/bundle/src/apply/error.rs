//! Why an application did not happen.

use crate::beneath;
use crate::manifest::{ExecutedBy, Refusal};
use crate::path::RelativePath;

/// Why an application did not happen.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Paths on the host are not as they were when the bundle was made.
    #[error("{} changed on the host since the bundle was made", paths(.0.len()))]
    Conflicts(Vec<Conflict>),
    /// Entries that host tools execute by themselves were not accepted.
    #[error("{} would be executed by tools on the host and must be accepted", paths(.0.len()))]
    Executed(Vec<(RelativePath, ExecutedBy)>),
    /// Entries were asked for by name that may never be applied.
    #[error("{} may never be applied", paths(.0.len()))]
    Refused(Vec<(RelativePath, Refusal)>),
    /// Paths were asked for that the bundle does not touch.
    #[error("the bundle does not change {}", listed(.0))]
    NotInBundle(Vec<RelativePath>),
    /// Paths lie on another file system than the project's root, so that they cannot be swapped
    /// with the rest in one go.
    #[error("on another file system than the project's root: {}", listed(.0))]
    OtherFileSystem(Vec<RelativePath>),
    /// These paths lie in directories that this user may not change.
    #[error("no permission to change the directory of: {}", listed(.0))]
    NotWritable(Vec<RelativePath>),
    /// Another application to the same project is running.
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
    /// The application failed and was undone, except for files that somebody changed meanwhile.
    #[error("undone, but {} changed meanwhile and were not restored", paths(.left.len()))]
    Left {
        /// Why it failed.
        #[source]
        cause: Box<Self>,
        /// What was left, and where its old content is.
        left: Vec<super::Left>,
    },
    /// The application could be neither finished nor undone now; the next command does either.
    #[error("the apply could be neither finished nor undone; the next command will do one of them")]
    Stuck {
        /// Why not.
        #[source]
        cause: Box<Self>,
    },
    /// What was applied cannot be recorded.
    #[error("cannot record what was applied")]
    Record(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// A journal cannot be understood.
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
        /// What was tried, as a verb.
        operation: &'static str,
        /// The path, printable.
        path: String,
        /// The kernel's answer.
        #[source]
        source: std::io::Error,
    },
}

/// What is wrong with a stored content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BlobFault {
    /// It is not there.
    #[error("is missing from the bundle")]
    Missing,
    /// It is not what its name says.
    #[error("does not match its hash and size")]
    Altered,
}

/// A path that cannot be changed because the host's side of it is not as expected.
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
    /// It changed between the start of the view and the making of the bundle.
    #[error("changed while the command ran")]
    WhileRunning,
    /// Nothing is there any more.
    #[error("no longer exists")]
    Gone,
    /// Something is there where nothing was.
    #[error("exists now")]
    Exists,
    /// It is another type of thing.
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
    /// Its parent is missing, or no directory, or a symbolic link.
    #[error("its directory no longer exists")]
    Parent,
    /// A directory that is to become something else holds things that stay.
    #[error("contains files that are not part of the change")]
    NotEmpty,
    /// It changed while the bundle was being applied.
    #[error("changed during the apply")]
    Meanwhile,
}

fn paths(count: usize) -> String {
    match count {
        1 => "1 path".to_owned(),
        count => format!("{count} paths"),
    }
}

fn listed(paths: &[RelativePath]) -> String {
    const SHOWN: usize = 5;
    let mut text =
        paths.iter().take(SHOWN).map(RelativePath::quoted).collect::<Vec<_>>().join(", ");
    if paths.len() > SHOWN {
        text.push_str(&format!(" and {} more", paths.len() - SHOWN));
    }
    text
}
