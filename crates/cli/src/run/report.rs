//! The report of a run: as final lines of text for users, or as one JSON object for programs.

use std::time::Duration;

use serde_json::{Value, json};
use stockade_core::network::binding::Binding;
use stockade_core::network::{DeniedConnections, Policy, WantedHosts};
use stockade_core::{Ending, Isolation};
use stockade_jail::{Captured, Teardown};

use super::ending::Conclusion;
use super::ssh_agent::Signatures;

/// All results of a finished run.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) ending: Ending,
    pub(crate) exit_code: u8,
    pub(crate) hint: Option<String>,
    pub(crate) output: Captured,
    pub(crate) error: Captured,
    /// Why not all of the command's output could be written.
    pub(crate) write_error: Option<std::io::Error>,
    pub(crate) conclusion: Conclusion,
    /// The image of the store that it ran in.
    pub(crate) image: Option<stockade_image::Image>,
    /// The profile that was used, as JSON.
    pub(crate) profile: Option<serde_json::Value>,
    /// What could not be taken into account when the changes were determined.
    pub(crate) notes: Vec<String>,
    pub(crate) isolation: Isolation,
    /// The network policy, the secrets that were inserted into requests, and the denied
    /// connections, if there was an egress process.
    pub(crate) network: Option<(Policy, Vec<Binding>, DeniedConnections)>,
    /// The hosts that programs asked for, if there was no network access.
    pub(crate) wanted: WantedHosts,
    /// What the ssh agent has signed and refused, if there was one.
    pub(crate) signatures: Option<Signatures>,
    pub(crate) memory_peak_bytes: Option<u64>,
    pub(crate) out_of_memory_kills: u64,
    /// The names of the system calls that its programs made and that were refused.
    pub(crate) refused_calls: Vec<&'static str>,
    /// The teardown of the jail; its completion is awaited after everything was printed.
    pub(crate) _teardown: Teardown,
    pub(crate) duration: Duration,
}

impl Report {
    /// What the audit record of the end says.
    pub(crate) fn audit_details(&self) -> Vec<(&'static str, Value)> {
        let mut details =
            vec![("exitCode", self.exit_code.into()), ("ending", json!(self.ending.kind()))];
        let refused: usize =
            self.network.as_ref().map_or(0, |(_, _, denied)| denied.connections().len());
        if refused > 0 {
            details.push(("deniedConnections", refused.into()));
        }
        if let Some(signatures) = &self.signatures {
            details.push(("sshAgent", signatures.to_json()));
        }
        details.extend(match &self.conclusion {
            Conclusion::Nothing => None,
            Conclusion::Stored(bundle) | Conclusion::NotApplied(bundle, _) => {
                Some(("bundle", bundle.id().into()))
            }
            Conclusion::Applied { id, .. } => Some(("appliedBundle", id.as_str().into())),
            Conclusion::ViewKept(view, _) => Some(("view", view.to_string_lossy().into())),
        });
        details
    }
}
