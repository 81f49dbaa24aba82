//! File transfer between a sandbox and the host: copy-on-write views of a project, bundles of
//! the changes in a view, and the atomic application of a bundle to the project.
//!
//! All code here works on directory descriptors (`beneath`), never on a path that came from
//! inside a sandbox. It does not deal with processes, namespaces or networks.
//!
//! The order of calls for a run: [`project::Project::find`], [`data::DataDir::open`],
//! [`view::View::create`]; another crate executes the command; [`scan::scan`],
//! [`store::Store::create`], [`view::View::remove`]. Later: [`store::Store::find`],
//! [`patch::render`], [`apply::apply`], [`apply::Ledger::mark`], [`store::Bundle::remove`].

pub mod apply;
pub mod attributes;
pub mod baseline;
pub mod beneath;
pub mod claim;
pub mod commits;
pub mod content;
pub mod data;
pub mod decisions;
pub mod disk_usage;
pub mod history;
pub mod ignore;
pub mod ignored_tree;
pub mod image;
pub mod index;
pub mod kept_directories;
pub mod kept_trees;
pub mod layer;
pub mod manifest;
pub mod new_commits;
pub mod patch;
pub mod path;
pub mod policy;
pub mod project;
pub mod propose;
pub mod sandbox;
pub mod scan;
pub mod store;
pub mod sync;
#[cfg(test)]
mod testing;
pub mod validate;
pub mod view;
pub mod workspace;

pub use manifest::{Change, Entry, Manifest, Node};
pub use path::RelativePath;
