//! Tries whether this host can give a sandbox a network with a policy. This needs a separate
//! process, because the process stays in that network.

use std::io::{self, Write as _};

use stockade_jail::network;

use crate::keeper::network::unsupported;

/// Tries it, and prints the reason if it fails: a [`Failure`](crate::wire::Failure) in JSON.
pub(super) fn prove() -> io::Result<()> {
    network::probe().map_err(|network::Unavailable { step, source }| {
        let failure = serde_json::to_string(&unsupported(step, &source));
        let report = failure.map_err(io::Error::from);
        match report.and_then(|failure| io::stdout().write_all(failure.as_bytes())) {
            Ok(()) => source,
            Err(error) => error,
        }
    })
}
