//! What a run answers: as the last line for people, as one JSON object for
//! programs.

use std::time::Duration;

use stockade_core::network::binding::Binding;
use stockade_core::network::{Policy, Refusals};
use stockade_core::{Isolation, Level, LimitReport, WallReport};
use stockade_jail::{Captured, Ending, Jail, Teardown, Wall};

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

/// What the wall `network` is where there is a way out.
const BY_POLICY: &str = "by policy: what --allow names is reached, through a process outside";

/// What stands around this jail. Every wall that is not optional stands, or there were no jail.
pub(super) fn isolation(jail: &Jail, limits: Vec<LimitReport>) -> Isolation {
    let walls: Vec<_> = Wall::ALL
        .iter()
        .map(|wall| {
            let reason = match wall {
                Wall::Landlock if jail.landlock == 0 => {
                    Some("this kernel has no Landlock".to_owned())
                }
                Wall::Landlock if jail.landlock < 6 => Some(format!(
                    "version {}: signals and abstract sockets are left to the namespaces",
                    jail.landlock
                )),
                Wall::Proc if jail.proc_missing => {
                    Some("/proc is empty: this container's own is partly covered".to_owned())
                }
                Wall::Network if jail.listeners.is_some() => Some(BY_POLICY.to_owned()),
                _ => None,
            };
            let raised = !(*wall == Wall::Landlock && jail.landlock == 0);
            WallReport { name: wall.as_str().into(), raised, reason }
        })
        .collect();
    // Only what is less than was asked for.
    let fallbacks = walls.iter().filter(|wall| wall.name != Wall::Network.as_str());
    let reasons = fallbacks
        .filter_map(|wall| wall.reason.as_ref().map(|reason| format!("{}: {reason}", wall.name)));
    let reasons = reasons.collect();
    let level = if walls.iter().all(|wall| wall.raised) { Level::Full } else { Level::Reduced };
    Isolation { level, walls, limits, reasons }
}

/// The word for how a command ended.
pub(crate) fn outcome(ending: Ending) -> &'static str {
    match ending {
        Ending::Exited(_) => "exited",
        Ending::Signaled(_) => "signaled",
        Ending::TimedOut => "timed-out",
        Ending::OutOfMemory => "out-of-memory",
        Ending::OutputExceeded => "output-exceeded",
        Ending::LimitExceeded("memory") => "memory-exceeded",
        Ending::LimitExceeded(_) => "disk-exceeded",
        Ending::Stopped(_) => "stopped",
        Ending::NotEntered(_) | Ending::NotRun(_) => "not-run",
    }
}
