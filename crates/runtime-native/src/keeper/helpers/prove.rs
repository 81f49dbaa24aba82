//! Trying whether this host can give a sandbox a network by policy: in a process of its own, for it
//! stays in that network.

use std::io::{self, Write as _};

use stockade_jail::network;

use crate::keeper::network::unsupported;

/// Tries it, and says why there can be none: a [`Failure`](crate::wire::Failure) in JSON.
pub(super) fn prove() -> io::Result<()> {
    network::prove().map_err(|network::Unavailable { step, source }| {
        let failure = serde_json::to_string(&unsupported(step, &source));
        let said = failure.map_err(io::Error::from);
        match said.and_then(|failure| io::stdout().write_all(failure.as_bytes())) {
            Ok(()) => source,
            Err(error) => error,
        }
    })
}
