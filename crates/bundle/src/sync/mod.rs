//! Directories that are kept equal in two places: what is compared, what is left out, what is done,
//! and how it is done on the host.
//!
//! `tree` has the nouns, `filter` what is left out, `host` reads a directory of the host, `plan`
//! compares two trees and what they last had in common, `blobs` stores content until it is placed,
//! `place` makes the changes on the host. Nothing here knows a sandbox.

mod blobs;
mod commit;
mod filter;
mod host;
mod place;
mod plan;
mod tree;

pub use blobs::{BlobWriter, Blobs};
pub use commit::{Commit, CommitError, Identity, check_repository, commit};
pub use filter::{Filter, Patterns, ReadIgnoreFile, Verdict};
pub use host::{has_content, scan};
pub use place::{Place, Placed};
pub use plan::{Action, Comparison, Conflict, Mode, Plan, Policy, Sides, compare};
pub use tree::{
    Found, MAX_DEPTH, Nodes, Scan, SkipReason, TEMPORARY, is_temporary, same, skip_repositories,
    stays_inside, write_mode,
};

#[cfg(test)]
mod tests;
