//! OCI images without an engine: references to images, a content-addressed store below the data
//! directory, and layers that are unpacked once, as hostile input.
//!
//! The crate knows no network and no sandbox. What fetches an image writes its parts into the
//! [`Store`]; what starts a sandbox reads the [`Image`] from there: its configuration and the
//! directories of its layers, which are the lower layers of an overlay.
//!
//! The documents of an image (manifest, index, configuration) are read by types of this crate: they
//! accept the `null` and the missing members that older tools write.
//!
//! The [`base`] is no image but takes the place of one: the copy of the host's own programs.
//!
//! Reading order: `reference`, `document`, `store`, `layer`, `import`; `base`.

pub mod base;
mod digest;
mod document;
mod export;
pub mod import;
mod layer;
mod limits;
mod platform;
mod process;
mod reference;
pub mod store;
#[cfg(test)]
mod testing;
mod tree;

pub use digest::{Digest, InvalidDigest, Sha256Stream};
pub use document::{
    Configuration, DescribedPlatform, Descriptor, Document, Empty, Index, InvalidDocument,
    MAX_DOCUMENT_BYTES, Manifest, MediaType, Process, RootFs,
};
pub use export::{Format, export};
pub use layer::{Error as LayerError, LayerRecord, unpack as unpack_layer};
pub use limits::Limits;
pub use platform::{InvalidPlatform, Platform};
pub use process::{InvalidProcess, Start, User};
pub use reference::{InvalidReference, Reference};
pub use store::{Addition, BlobWriter, Image, InUse, Record, Removed, Store, Taken, Usage};
pub use tree::Tree;
