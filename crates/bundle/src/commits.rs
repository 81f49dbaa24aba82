//! The commits that a command has made, as objects that were checked one by one.
//!
//! A sandbox's git directory is hostile: its objects, packs, references and configuration. So when a
//! bundle is made, [`harvest`] copies object files without reading them. Later git reads these files
//! in a jail that has nothing else, and prints the objects ([`stream`]); here every object is checked
//! against its name and by strict parsers ([`object`]). [`crate::new_commits`] checks what they change
//! and takes them to a branch. No reference, configuration or hook of the sandbox is used, and no git
//! runs on the project.

mod harvest;
mod object;
mod stream;

use std::path::PathBuf;

pub use harvest::{Harvest, harvest};
pub(crate) use object::{Commit, Kind, Mode, TreeEntry, tree};
pub use object::{Format, ObjectId};
pub use stream::{MAX_BYTES, Objects};

use crate::beneath;
use crate::manifest::Refusal;

/// The most new commits.
pub const MAX_COMMITS: usize = 10_000;

/// Why commits cannot be taken.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The bundle has none.
    #[error("the command has made no commit")]
    None,
    /// The objects that git printed could not be read.
    #[error("cannot read the objects of the commits")]
    Read(#[source] std::io::Error),
    /// Git printed something else than objects.
    #[error("the objects of the commits are invalid: {0}")]
    Stream(&'static str),
    /// An object is missing, or is none that git writes.
    #[error("the object {id} is {what}")]
    Object {
        /// The object.
        id: ObjectId,
        /// What is wrong.
        what: &'static str,
    },
    /// The commits do not start at the commit that the command started with.
    #[error("the commit {0} does not descend from the commit that the command started with")]
    Unrelated(ObjectId),
    /// A change can never be applied.
    #[error("the commit {commit} changes {path}, which is refused: {reason}")]
    Refused {
        /// The commit.
        commit: ObjectId,
        /// The path.
        path: String,
        /// Why.
        reason: &'static str,
    },
    /// There are too many commits or changes, or they are too large.
    #[error("the commits are too large, or too many")]
    TooLarge,
    /// The name is none of a branch.
    #[error("`{0}` is not a valid name of a branch")]
    Name(String),
    /// There is another branch of this name.
    #[error("there is another branch `{0}`")]
    Exists(String),
    /// The repository stores its references or objects in a way that is not supported.
    #[error("the repository uses {0}, which is not supported")]
    Unsupported(&'static str),
    /// The project has no repository.
    #[error("{} has no git repository", .0.display())]
    NoRepository(PathBuf),
    /// A file operation failed.
    #[error("cannot {operation} the commits")]
    Io {
        /// The attempted operation, as a verb.
        operation: &'static str,
        /// Why.
        #[source]
        source: beneath::Error,
    },
}

pub(crate) fn with_operation<T>(
    operation: &'static str,
    result: Result<T, beneath::Error>,
) -> Result<T, Error> {
    result.map_err(|source| Error::Io { operation, source })
}

/// Why a refused change is refused, for a message.
pub(crate) fn reason(refusal: Refusal) -> &'static str {
    match refusal {
        Refusal::GitDirectory => "it is or contains a git directory",
        Refusal::BareRepository => "git takes its directory for a repository",
        Refusal::LinkLeaves => "it is a link that leaves the project",
        Refusal::SpecialFile => "it is not a regular file",
        Refusal::PathTooLong => "its path is too long",
    }
}
