//! The decisions about the bundles of a data directory: they are listed, shown, compared with the
//! project, applied and rejected, and made of what a view or a sandbox has changed.
//!
//! Reading order: `look` (list, show, differences), `decide` (apply, reject), then the three sources
//! of bundles: `views` (a run), `collect` (a sandbox that lives on) and `propose` (a `<Sandbox>`).
//! `problem` and `words` say what went wrong and how to go on.
//!
//! This crate works on files and knows no owner and no record. The service puts those around each
//! call; a command without a server calls it as it is, on the files of its own user.

mod bundles;
mod collect;
mod decide;
mod look;
mod paths;
pub mod problem;
mod propose;
mod views;
pub mod words;

pub use bundles::{Bundles, limits, pending};
pub use collect::Collection;
pub use decide::{Found, Outcome};
pub use look::{Differences, entries};
pub use paths::paths;
pub use views::of_view;
