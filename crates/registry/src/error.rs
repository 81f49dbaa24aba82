//! Why an image cannot be downloaded. No text contains a credential.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use stockade_core::address::Class;
use stockade_image::Platform;

/// Why an image cannot be downloaded.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The registry has no such manifest or blob.
    #[error("{host} has no {what}")]
    NotFound {
        /// The registry.
        host: String,
        /// What was asked for.
        what: String,
    },
    /// The registry, or its token service, refuses the credentials or the lack of them.
    #[error("{host} refuses access to {what}")]
    Unauthorized {
        /// The registry.
        host: String,
        /// What was asked for.
        what: String,
        /// Whether credentials were sent.
        with_credentials: bool,
        /// What it answered, in words.
        reason: String,
    },
    /// The registry answers no more requests for some time.
    #[error("{host} limits the rate of requests")]
    RateLimited {
        /// The registry.
        host: String,
        /// When it answers again, if it says so.
        after: Option<Duration>,
        /// Whether credentials were sent.
        with_credentials: bool,
    },
    /// No connection, or it broke, or a deadline passed.
    #[error("{host} cannot be reached")]
    Unreachable {
        /// The host.
        host: String,
        /// Why.
        reason: String,
    },
    /// A registry led to an address that only this machine or its network should reach.
    #[error("a registry leads to {host}, which is {address}")]
    LedInside {
        /// The host that it led to.
        host: String,
        /// Its address.
        address: IpAddr,
        /// The kind of address of the registry.
        from: Class,
    },
    /// The host speaks HTTP without TLS, which is not allowed for it.
    #[error("{host} cannot be reached with TLS")]
    NoTls {
        /// The host.
        host: String,
        /// What failed.
        reason: String,
    },
    /// The registry failed.
    #[error("{host} answered {status}")]
    Failed {
        /// The registry.
        host: String,
        /// The HTTP status.
        status: u16,
        /// What it answered, in words.
        reason: String,
    },
    /// A response breaks the protocol or a rule of this client.
    #[error("the response of {host} is invalid")]
    Invalid {
        /// The host.
        host: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Content does not have the expected digest or size.
    #[error("{what} from {host} is not what its digest says")]
    Mismatch {
        /// The host.
        host: String,
        /// What was downloaded.
        what: String,
        /// What was found instead.
        found: String,
    },
    /// The image does not exist for the platform.
    #[error("the image does not exist for {wanted}")]
    NoPlatform {
        /// The platform that was asked for.
        wanted: Platform,
        /// Those that there are.
        available: Vec<Platform>,
    },
    /// The image or a part of it is larger than allowed.
    #[error("{what} is larger than {limit} bytes")]
    TooLarge {
        /// What is too large.
        what: String,
        /// The limit in bytes.
        limit: u64,
        /// Whether the caller can raise the limit.
        is_total: bool,
    },
    /// The Docker configuration or a credential helper cannot be used.
    #[error("the credentials for {host} cannot be read")]
    Credentials {
        /// The registry.
        host: String,
        /// Why.
        reason: String,
    },
    /// The layout cannot be written.
    #[error("cannot write {path}")]
    Write {
        /// The file.
        path: String,
        /// The cause.
        #[source]
        source: io::Error,
    },
}

impl Error {
    /// Whether the same request may succeed a moment later.
    pub(crate) fn is_temporary(&self) -> bool {
        match self {
            Self::Unreachable { .. } => true,
            Self::Failed { status, .. } => *status >= 500 || *status == 408,
            Self::RateLimited { .. } => true,
            _ => false,
        }
    }

    /// Whether another source of the same image may succeed. What concerns this machine or the
    /// request does not change elsewhere.
    pub(crate) fn depends_on_source(&self) -> bool {
        !matches!(
            self,
            Self::Write { .. } | Self::NoPlatform { .. } | Self::TooLarge { is_total: true, .. }
        )
    }
}
