//! What a run answers: as the last line for people, as one JSON object for
//! programs.

use std::time::Duration;

use stockade_core::network::binding::Binding;
use stockade_core::network::{Policy, Refusals};
use stockade_core::{Ending, Isolation};
use stockade_jail::{Captured, Teardown};

use super::ending::Conclusion;

/// Everything that is known when a run is over.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) ending: Ending,
    pub(crate) exit_code: u8,
    pub(crate) hint: Option<String>,
    pub(crate) output: Captured,
    pub(crate) error: Captured,
    /// Why not all that the command wrote could be passed on.
    pub(crate) unwritten: Option<std::io::Error>,
    pub(crate) conclusion: Conclusion,
    /// What could not be taken into account when the changes were told.
    pub(crate) notes: Vec<String>,
    pub(crate) isolation: Isolation,
    /// The policy of the network, the secrets that went with requests, and what was told of the
    /// traffic, where there was a way out.
    pub(crate) network: Option<(Policy, Vec<Binding>, Refusals)>,
    pub(crate) memory_peak_bytes: Option<u64>,
    pub(crate) out_of_memory_kills: u64,
    /// Waited for when everything has been told.
    pub(crate) _teardown: Teardown,
    pub(crate) duration: Duration,
}
