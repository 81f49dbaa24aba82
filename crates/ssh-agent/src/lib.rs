//! An ssh agent outside of a sandbox. Programs inside reach it through a socket; it signs only what its
//! policy names: logins at hosts with certain keys, and messages of certain namespaces, such as commits
//! of git. Private keys stay in the caller's own agent, or in the process of this one.
//!
//! Everything that arrives is hostile. The process that can sign decides itself: a confined process in
//! front of it could only ask for signatures, so a fault there would sign anything.
//!
//! Reading order: `policy`, `wire` (the protocol, without I/O), `purpose` (what is signed), `session`
//! (one connection), `signer` and `stored_key` (who signs), `serve` (the socket).

mod error;
mod policy;
mod purpose;
mod record;
mod serve;
mod session;
mod signer;
mod stored_key;
mod wire;

pub use error::Error;
pub use policy::{Allowed, Policy};
pub use purpose::Purpose;
pub use record::{Decision, Observer, Record, Records};
pub use serve::Running;
pub use signer::{CallersAgent, SignError, Signer, Signers};
pub use stored_key::StoredKey;
