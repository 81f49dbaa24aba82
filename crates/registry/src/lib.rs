//! The client of image registries: downloads one image, for one platform, into an OCI layout (the
//! specifications of OCI for distribution and for images, and Docker's token authentication).
//!
//! All that a registry sends is hostile: every wait has a deadline, every body a limit, every blob
//! a digest. Credentials are sent only to the host that they are for, and to the token service that
//! this host names. The process that runs this restricts itself to the directory of the layout
//! after [`Credentials::load`] and [`Trust::load`], which need the user's files.
//!
//! Reading order: `download` (one image), `source` (one registry or mirror: authentication), `blob`,
//! then `exchange` and `connect` (HTTP). Nothing is unpacked here.

mod blob;
mod challenge;
mod connect;
mod credentials;
mod download;
mod error;
mod exchange;
mod host;
mod layout;
mod problem;
mod source;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod times;

pub use connect::Trust;
pub use credentials::Credentials;
pub use download::download;
pub use error::Error;
pub use host::hosts;
pub use problem::problem;
pub use times::Times;
