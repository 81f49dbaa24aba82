//! Secrets: their types and fields, sealed at rest under one key, sealed for one delivery to the key
//! of a batch, opened in the form of FireFlow's predecessor, and named by references. Values are
//! erased from memory after their use. Nothing here reads a file, a clock or a database.

mod batch;
mod error;
mod fields;
mod fingerprint;
mod key;
mod kind;
mod mapping;
mod predecessor;
mod reference;
mod rest;
#[cfg(test)]
mod testing;

pub use batch::{Batch, BatchKey, Context, Envelope, Label};
pub use error::{Error, Part};
pub use fields::Fields;
pub use fingerprint::Fingerprint;
pub use key::MasterKey;
pub use kind::Kind;
pub use mapping::{check_variables, variable_value};
pub use predecessor::{PredecessorEnvelope, PredecessorKey};
pub use reference::{MAX_BYTES as MAX_REFERENCE_BYTES, Reference, SUFFIX as REFERENCE_SUFFIX};
pub use rest::SealedRecord;

/// Joins parts so that no two lists of parts have the same bytes: each after its length.
fn joined<'a>(domain: &'a str, parts: impl IntoIterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for part in std::iter::once(domain.as_bytes()).chain(parts) {
        bytes.extend_from_slice(&u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
        bytes.extend_from_slice(part);
    }
    bytes
}
