//! The file of `--ssh-agent`: what an ssh agent may sign, and with which keys. A run is served by the
//! command itself, and a persistent sandbox by the server, which gets only where the keys are.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use stockade_api::{SshAgent, SshPermission};
use stockade_core::sandbox::SSH_AGENT_VARIABLE;
use stockade_core::{Code, Problem};
use stockade_ssh_agent::{Allowed, Policy, Signers, StoredKey};
use zeroize::Zeroizing;

use crate::document_file;
use crate::remote::chosen::chosen;
use crate::stored_secrets;

/// The longest private key, in bytes.
const MAX_BYTES: u64 = 1 << 20;

/// The policy in a file, in TOML or JSON.
///
/// # Errors
/// [`Code::InvalidInput`] or [`Code::RuleInvalid`].
pub(crate) fn read(path: &Path) -> Result<Policy, Problem> {
    let shown = path.display();
    let policy: Policy = document_file::read(path).map_err(|error| match error {
        document_file::Error::Read(cause) => {
            Problem::new(Code::InvalidInput, format!("cannot read the permissions {shown}"))
                .because(cause)
        }
        document_file::Error::Parse(cause) => {
            Problem::new(Code::RuleInvalid, format!("the permissions {shown} are invalid"))
                .because(cause)
        }
    })?;
    policy.check()?;
    Ok(policy)
}

/// The keys in the files that a policy names.
///
/// # Errors
/// [`Code::InvalidInput`] for a file without a key that can be used.
pub(crate) fn keys_in_files(policy: &Policy) -> Result<Signers, Problem> {
    let mut signers = Signers::default();
    for path in &policy.private_keys {
        signers.0.push(Box::new(private_key(path)?));
    }
    Ok(signers)
}

/// The socket of the caller's own agent, unless the files have all keys.
///
/// # Errors
/// [`Code::InvalidInput`] if it is needed, and there is none.
pub(crate) fn callers_agent(policy: &Policy, files: &Signers) -> Result<Option<PathBuf>, Problem> {
    if !files.0.is_empty() && policy.check_keys(files).is_ok() {
        return Ok(None);
    }
    match std::env::var_os(SSH_AGENT_VARIABLE) {
        Some(socket) => Ok(Some(socket.into())),
        None if files.0.is_empty() => {
            let message = "`--ssh-agent` needs an ssh agent, and there is none";
            Err(Problem::new(Code::InvalidInput, message)
                .because(format!("the variable {SSH_AGENT_VARIABLE} is not set"))
                .remedied_by("eval $(ssh-agent) && ssh-add"))
        }
        None => Ok(None),
    }
}

/// The agent of a persistent sandbox. Where the policy names secrets of the vault, the caller's own
/// agent is not used.
///
/// # Errors
/// As [`read`], and [`Code::Unsupported`] for keys of this machine where the server is on another one.
pub(crate) fn for_sandbox(path: &Path, current: &Path) -> Result<SshAgent, Problem> {
    let policy = read(path)?;
    if let Some(server) = chosen()
        && (policy.secrets.is_empty() || !policy.private_keys.is_empty())
    {
        let message =
            format!("keys of this machine cannot be used by the ssh agent on {}", server.url);
        return Err(Problem::new(Code::Unsupported, message)
            .because("the server on another machine has neither its files nor its ssh agent")
            .remedied_by("store the key on the server: stockade secrets set NAME --type ssh"));
    }
    let secrets = policy.secrets.iter().map(|text| stored_secrets::reference(text));
    let secrets = secrets.collect::<Result<Vec<_>, _>>()?;
    let files = keys_in_files(&policy)?;
    let callers_agent = match secrets.is_empty() {
        true => callers_agent(&policy, &files)?.map(|socket| current.join(socket)),
        false => None,
    };
    let permission = |Allowed { key, host_keys, users, namespaces }: Allowed| SshPermission {
        key,
        host_keys,
        users,
        namespaces,
    };
    Ok(SshAgent {
        private_keys: policy.private_keys.iter().map(|path| current.join(path)).collect(),
        allow: policy.allow.into_iter().map(permission).collect(),
        secrets,
        callers_agent,
    })
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
