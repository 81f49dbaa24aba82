//! Authentication: the caller of a connection. A dialect describes the connection, and an
//! [`Authenticate`] maps that to the [`Caller`] on whose behalf its requests are executed.
//!
//! `principal` does that for each request over TCP, `token`, `public` and
//! `link` for requests to ports of sandboxes, `volume` for those to the content of volumes.

mod lifetime;
mod link;
mod principal;
mod public;
mod token;
mod volume;

use std::fmt::Debug;

use stockade_api::{Caller, Origin};
use stockade_core::{Door, OwnerId};

pub(crate) use lifetime::Lifetime;
pub(crate) use link::is_link;
pub use principal::{HttpAuth, Reach, TcpPeer};
pub(crate) use principal::{KEY_HEADERS, Principal};
pub(crate) use public::PUBLIC;
pub(crate) use token::{E2B_TOKEN_HEADERS, Scope, TOKEN_HEADERS, invalid_token};
pub(crate) use volume::invalid_volume_token;

/// The known properties of a connection.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Connection {
    /// The peer process, as the kernel reports it; for a Unix socket.
    pub peer: Option<Peer>,
}

impl Connection {
    /// A connection from a local process.
    pub const fn from_peer(peer: Peer) -> Self {
        Self { peer: Some(peer) }
    }
}

/// The peer process of a Unix socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// Its user id at the time of the connection.
    pub uid: u32,
}

/// Why a connection is not served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AuthError {
    /// The peer is unknown.
    #[error("the connection has no peer credentials")]
    Anonymous,
    /// The user may not use this server.
    #[error("the user {uid} may not use this server")]
    User {
        /// The user id of the peer process.
        uid: u32,
    },
}

/// Determines the caller of a connection.
pub trait Authenticate: Debug + Send + Sync {
    /// The caller of a connection.
    ///
    /// # Errors
    /// Why the connection is not served.
    fn caller(&self, connection: &Connection) -> Result<Caller, AuthError>;
}

/// Serves one user of the machine: the owner of a data directory.
#[derive(Debug, Clone)]
pub struct SingleUser {
    uid: u32,
    owner: OwnerId,
}

impl SingleUser {
    /// Serves the user with that id, as that owner.
    pub const fn new(uid: u32, owner: OwnerId) -> Self {
        Self { uid, owner }
    }

    /// The owner as which the user is served.
    pub(crate) const fn owner(&self) -> &OwnerId {
        &self.owner
    }
}

impl Authenticate for SingleUser {
    fn caller(&self, connection: &Connection) -> Result<Caller, AuthError> {
        match connection.peer {
            None => Err(AuthError::Anonymous),
            Some(Peer { uid }) if uid != self.uid => Err(AuthError::User { uid }),
            Some(Peer { uid }) => {
                let origin = Origin { door: Door::Socket, uid: Some(uid), ..Origin::default() };
                Ok(Caller::new(self.owner.clone()).with_admin().with_origin(origin))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_user_is_served() {
        let owner = OwnerId::new("uid:7").unwrap();
        let user = SingleUser::new(7, owner.clone());
        let caller = |connection: &Connection| user.caller(connection).map(|caller| caller.owner);
        let from = |uid| Connection::from_peer(Peer { uid });
        assert_eq!(caller(&from(7)), Ok(owner));
        for uid in [0, 6, 8] {
            assert_eq!(caller(&from(uid)), Err(AuthError::User { uid }));
        }
        assert_eq!(caller(&Connection::default()), Err(AuthError::Anonymous));
    }
}
