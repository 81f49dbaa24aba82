//! The decisions about the bundles of a data directory. Bundles are listed, shown, compared with the
//! project, applied and rejected, and created from the changes of a view or a sandbox.
//!
//! Reading order: `inspect` (list, show, differences), `decide` (apply, reject), then the three sources
//! of bundles: `views` (a run), `collect` (a persistent sandbox) and `propose` (a `<Sandbox>`).
//! `problem` and `messages` contain the error messages and remedies.
//!
//! This crate works on files and does not handle owners or records. The service adds those around
//! each call; a command without a server calls this crate directly, on the files of its own user.

mod age;
mod branch;
mod bundles;
mod collect;
mod commits;
pub mod current;
mod decide;
pub mod groups;
mod hunks;
mod inspect;
pub mod messages;
mod paths;
pub mod problem;
mod propose;
mod shown;
mod undo;
mod views;

pub use age::MAX_AGE;
pub use branch::CommittedBranch;
pub use branch::object;
pub use bundles::{Bundles, limits, pending};
pub use collect::{Collection, GatheredChanges};
pub use commits::{StoredCommits, commits_problem};
pub use current::CurrentProject;
pub use decide::{ApplyDecision, RejectTarget};
pub use inspect::{Differences, counts, entries};
pub use paths::paths;
pub use undo::UndoOutcome;
pub use views::{LookUp, bundle_view};
