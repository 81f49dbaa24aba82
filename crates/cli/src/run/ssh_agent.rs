//! The ssh agent of a run: its file, its socket in the directory of the view, and what it has signed.

use std::collections::BTreeMap;
use std::fs::Permissions;
use std::io::Read as _;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use stockade_core::sandbox::SSH_AGENT_VARIABLE;
use stockade_core::{Code, Problem};
use stockade_ssh_agent::{
    CallersAgent, Decision, Policy, Record, Records, Running, Signers, StoredKey,
};
use zeroize::Zeroizing;

use crate::args::Run;
use crate::document_file;

/// The name of the socket in the directory of the view.
const SOCKET: &str = "ssh-agent";
/// The longest private key, in bytes.
const MAX_BYTES: u64 = 1 << 20;

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
    let policy = read_policy(path)?;
    let mut signer = Signers::default();
    for path in &policy.private_keys {
        signer.0.push(Box::new(private_key(path)?));
    }
    // Where the files have all keys, no agent is needed.
    if signer.0.is_empty() || policy.check_keys(&signer).is_err() {
        match std::env::var_os(SSH_AGENT_VARIABLE) {
            Some(socket) => signer.0.push(Box::new(CallersAgent::new(socket.into())?)),
            None if signer.0.is_empty() => {
                let message = "`--ssh-agent` needs an ssh agent, and there is none";
                return Err(Problem::new(Code::InvalidInput, message)
                    .because(format!("the variable {SSH_AGENT_VARIABLE} is not set"))
                    .remedied_by("eval $(ssh-agent) && ssh-add"));
            }
            None => {}
        }
    }
    policy.check_keys(&signer)?;
    Ok(Some(Requested { policy, signer }))
}

/// The policy in a file, in TOML or JSON.
///
/// # Errors
/// As [`read`].
pub(crate) fn read_policy(path: &Path) -> Result<Policy, Problem> {
    let shown = path.display();
    let unreadable = |cause: String| {
        Problem::new(Code::InvalidInput, format!("cannot read the permissions {shown}"))
            .because(cause)
    };
    let policy: Policy = document_file::read(path).map_err(|error| match error {
        document_file::Error::Read(cause) => unreadable(cause),
        document_file::Error::Parse(cause) => {
            Problem::new(Code::RuleInvalid, format!("the permissions {shown} are invalid"))
                .because(cause)
        }
    })?;
    policy.check()?;
    Ok(policy)
}

/// The private key in a file.
fn private_key(path: &Path) -> Result<StoredKey, Problem> {
    let shown = path.display();
    let mut text = Zeroizing::new(String::new());
    let read = std::fs::File::open(path)
        .and_then(|file| file.take(MAX_BYTES).read_to_string(&mut text).map(drop));
    read.map_err(|error| {
        Problem::new(Code::InvalidInput, format!("cannot read the private key {shown}"))
            .because(error.to_string())
    })?;
    StoredKey::parse(&text).map_err(|error| Problem::from(error).because(shown.to_string()))
}

impl Requested {
    /// Serves a socket.
    ///
    /// # Errors
    /// If a key of the file is not in the caller's agent.
    pub(super) fn serve(self, listener: UnixListener) -> Result<Running, Problem> {
        Ok(Running::start(listener, &self.policy, Box::new(self.signer))?)
    }
}

/// The path of the socket of a view.
pub(super) fn path(view: &Path) -> PathBuf {
    view.join(SOCKET)
}

/// Makes the socket in the directory of a view, which only its owner can enter. Inside, every user may
/// connect.
///
/// # Errors
/// [`Code::Io`].
pub(super) fn socket(view: &Path) -> Result<UnixListener, Problem> {
    let made = || -> std::io::Result<UnixListener> {
        // The path of a socket is short, and that of a data directory may be long.
        let directory = std::fs::File::open(view)?;
        let short = format!("/proc/self/fd/{}/{SOCKET}", directory.as_raw_fd());
        let listener = UnixListener::bind(short)?;
        std::fs::set_permissions(path(view), Permissions::from_mode(0o666))?;
        Ok(listener)
    };
    made().map_err(|error| stockade_ssh_agent::Error::Socket(error).into())
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
