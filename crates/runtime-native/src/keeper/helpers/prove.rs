//! Tries whether this host can give a sandbox a network with a policy. This needs a separate
//! process, because the process stays in that network.

use std::io::{self, Write as _};

use stockade_jail::network;

use stockade_runtime::Capability;

use crate::wire::Failure;

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

/// The failure for a step of creating such a network that is not possible.
pub(in crate::keeper) fn unsupported(step: &str, source: &io::Error) -> Failure {
    Failure::Unsupported {
        capability: Capability::Egress.as_str().to_owned(),
        reason: format!("cannot {step}: {source}"),
        remedy: network::remedy(step).map(str::to_owned),
    }
}
