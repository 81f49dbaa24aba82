//! Everything that crosses the wall as files: copy-on-write views of a project,
//! the bundle of what changed in one, and its atomic way back.
//!
//! Works on directory descriptors (`beneath`), never on a path that came from
//! inside a sandbox. Knows no process, namespace or network.
//!
//! The way of a run through this crate: [`project::Project::find`], [`data::DataDir::open`],
//! [`view::View::create`]; the command runs elsewhere; [`scan::scan`], [`store::Store::create`],
//! [`view::View::remove`]. Later: [`store::Store::find`], [`patch::render`], [`apply::apply`],
//! [`apply::Ledger::mark`], [`store::Bundle::remove`].

pub mod apply;
mod attributes;
pub mod beneath;
pub mod claim;
pub mod content;
pub mod data;
pub mod history;
pub mod ignore;
pub mod image;
pub mod index;
pub mod layer;
pub mod manifest;
pub mod patch;
pub mod path;
pub mod policy;
pub mod project;
pub mod propose;
pub mod sandbox;
pub mod scan;
pub mod store;
#[cfg(test)]
mod testing;
pub mod validate;
pub mod view;

pub use manifest::{Change, Entry, Manifest, Node};
pub use path::RelativePath;
