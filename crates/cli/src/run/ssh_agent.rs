//! The ssh agent of a run: its file, its socket in the directory of the view, and what it has signed.

use std::collections::BTreeMap;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use stockade_core::sandbox::SSH_AGENT_SOCKET;
use stockade_core::{Code, Problem};
use stockade_ssh_agent::{CallersAgent, Decision, Policy, Record, Records, Running, Signers};

use crate::args::Run;
use crate::ssh_permissions;

/// What the agent is for, before there is a sandbox.
#[derive(Debug)]
pub(super) struct Requested {
    policy: Policy,
    signer: Signers,
}

/// What a run wants to have signed.
///
/// # Errors
/// [`Code::InvalidInput`] or [`Code::RuleInvalid`] for the file; [`Code::Unreachable`] if the caller has
/// no agent.
pub(super) fn read(arguments: &Run) -> Result<Option<Requested>, Problem> {
    let Some(path) = &arguments.ssh_agent else { return Ok(None) };
    let policy = ssh_permissions::read(path)?;
    if let Some(secret) = policy.secrets.first() {
        let message = format!("a run cannot use the key of the stored secret {secret:?}");
        return Err(Problem::new(Code::Unsupported, message)
            .because(
                "the vault is with the server, which serves the agents of persistent sandboxes",
            )
            .remedied_by("stockade create --ssh-agent FILE"));
    }
    let mut signer = ssh_permissions::keys_in_files(&policy)?;
    if let Some(socket) = ssh_permissions::callers_agent(&policy, &signer)? {
        signer.0.push(Box::new(CallersAgent::new(socket)?));
    }
    policy.check_keys(&signer)?;
    Ok(Some(Requested { policy, signer }))
}

impl Requested {
    /// Serves a socket.
    ///
    /// # Errors
    /// If a key of the file is not in the caller's agent.
    pub(super) fn serve(self, listener: UnixListener) -> Result<Running, Problem> {
        Ok(Running::start(listener, &self.policy, Box::new(self.signer), Records::default())?)
    }
}

/// The path of the socket of a view.
pub(super) fn path(view: &Path) -> PathBuf {
    view.join(SSH_AGENT_SOCKET)
}

/// Makes the socket in the directory of a view.
///
/// # Errors
/// [`Code::Io`].
pub(super) fn socket(view: &Path) -> Result<UnixListener, Problem> {
    let made = std::fs::File::open(view).and_then(stockade_plan::ssh_agent::listen);
    made.map_err(|error| stockade_ssh_agent::Error::Socket(error).into())
}

/// Removes its name once the jail has it.
pub(super) fn remove_socket(view: &Path) {
    let _ = std::fs::remove_file(path(view));
}

/// What the agent of a run has signed and refused.
#[derive(Debug, Default)]
pub(crate) struct Signatures {
    records: Vec<Record>,
    lost: u64,
}

impl Signatures {
    pub(super) fn of(records: &Records) -> Self {
        let (records, lost) = records.take();
        Self { records, lost }
    }

    /// Each different request once, with how often it was made.
    fn counted(&self) -> Vec<(&Record, u64)> {
        let mut counts: BTreeMap<String, (&Record, u64)> = BTreeMap::new();
        for record in &self.records {
            counts.entry(format!("{record:?}")).or_insert((record, 0)).1 += 1;
        }
        counts.into_values().collect()
    }

    /// For a report and an audit record.
    pub(crate) fn to_json(&self) -> Value {
        let one = |(record, count): (&Record, u64)| {
            let Record { request, key, decision } = record;
            let (decision, reason) = match decision {
                Decision::Signed => ("signed", None),
                Decision::Refused(reason) => ("refused", Some((*reason).to_owned())),
                Decision::Failed(reason) => ("failed", Some(reason.clone())),
            };
            json!({
                "request": request, "key": key, "decision": decision, "reason": reason,
                "count": count,
            })
        };
        let requests: Vec<_> = self.counted().into_iter().map(one).collect();
        json!({ "requests": requests, "lost": self.lost })
    }

    /// Lines for a user: what was refused or failed.
    pub(crate) fn lines(&self) -> Vec<String> {
        let line = |(record, _): (&Record, u64)| {
            let request = &record.request;
            match &record.decision {
                Decision::Signed => None,
                Decision::Refused(reason) => {
                    Some(format!("the ssh agent refused to {request}: {reason}"))
                }
                Decision::Failed(reason) => {
                    Some(format!("the ssh agent could not {request}: {reason}"))
                }
            }
        };
        self.counted().into_iter().filter_map(line).collect()
    }
}
