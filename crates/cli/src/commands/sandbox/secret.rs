//! `stockade secret set` and `stockade secret rm`, and what `create` and `exec` do with `--secret`:
//! the secrets of a persistent sandbox. What is bound to which host is recorded; values go to the
//! egress process through the server, and are recorded nowhere.

use std::collections::{BTreeMap, BTreeSet};

use stockade_api::{
    ChangeNetwork, Sandbox, SecretMapping, SecretReference, SecretStatus, SecretValue, SetSecrets,
};
use stockade_core::SandboxId;
use stockade_egress_control::Credential;

use super::find;
use crate::args::sandbox::{Secret, SecretCommand};
use crate::args::sandbox_flags::SecretFlags;
use crate::commands::print::{escaped, notify, print};
use crate::problem::Failure;
use crate::remote::{self, Remote};
use crate::secrets;
use crate::stored_secrets;

/// Gives a sandbox secrets, or takes them away.
pub(crate) fn run(arguments: Secret) -> Result<u8, Failure> {
    match arguments.what {
        SecretCommand::Set { id, secrets: secret, strict_secrets, stored, json, server_mode } => {
            let flags = SecretFlags { secret, strict_secrets };
            let stored = stored.as_deref().map(stored_secrets::reference).transpose()?;
            let values = match stored {
                Some(_) => Vec::new(),
                None => secrets::read(&flags.secret)?,
            };
            let sandbox = remote::with(server_mode, async |remote| {
                let id = find(&remote, &id).await?;
                if let Some(stored) = stored {
                    return bind_stored(&remote, &id, &flags, stored).await;
                }
                bind_and_give(&remote, &id, &flags, values).await
            })?;
            report(&sandbox, json)
        }
        SecretCommand::Rm { id, names, json, server_mode } => {
            let sandbox = remote::with(server_mode, async |remote| {
                let id = find(&remote, &id).await?;
                let request = ChangeNetwork { remove_secrets: names, ..ChangeNetwork::new(id) };
                Ok(remote.sandboxes.change_network(&remote.idempotent(), request).await?)
            })?;
            report(&sandbox, json)
        }
    }
}

/// Binds secrets to hosts, and gives their values.
pub(super) async fn bind_and_give(
    remote: &Remote,
    id: &SandboxId,
    flags: &SecretFlags,
    values: Vec<Credential>,
) -> Result<Sandbox, Failure> {
    let request = ChangeNetwork {
        secrets: flags.secret.clone(),
        strict_secrets: flags.strict_secrets.then_some(true),
        ..ChangeNetwork::new(id.clone())
    };
    remote.sandboxes.change_network(&remote.idempotent(), request).await?;
    give(remote, id, values).await
}

/// Binds secrets to hosts; their values are those of a stored secret.
async fn bind_stored(
    remote: &Remote,
    id: &SandboxId,
    flags: &SecretFlags,
    stored: SecretReference,
) -> Result<Sandbox, Failure> {
    let request = ChangeNetwork {
        secrets: flags.secret.clone(),
        strict_secrets: flags.strict_secrets.then_some(true),
        ..ChangeNetwork::new(id.clone())
    };
    remote.sandboxes.change_network(&remote.idempotent(), request).await?;
    let names: BTreeSet<_> = flags.secret.iter().map(|secret| secret.name.clone()).collect();
    let mapping = |env| SecretMapping { env, secret: stored.clone() };
    let stored = names.into_iter().map(mapping).collect();
    let request = SetSecrets { id: id.clone(), values: BTreeMap::new(), stored };
    Ok(remote.sandboxes.set_secrets(remote.caller(), request).await?)
}

/// Gives the values of secrets that a sandbox has.
pub(super) async fn give(
    remote: &Remote,
    id: &SandboxId,
    values: Vec<Credential>,
) -> Result<Sandbox, Failure> {
    let values = values.into_iter().filter_map(|Credential { binding, value }| {
        Some((binding.credential, SecretValue(value?)))
    });
    let request = SetSecrets { id: id.clone(), values: values.collect(), stored: Vec::new() };
    Ok(remote.sandboxes.set_secrets(remote.caller(), request).await?)
}

/// The command that gives the values of missing secrets again, if values are missing.
pub(super) fn command_for_missing(id: &SandboxId, secrets: &[SecretStatus]) -> Option<String> {
    let missing = secrets.iter().filter(|secret| secret.missing);
    let words = missing.flat_map(|secret| {
        secret.hosts.iter().map(|host| {
            // A shell would replace a star.
            let quote = if host.contains('*') { "'" } else { "" };
            format!(" {quote}{}@{host}{quote}", escaped(&secret.name))
        })
    });
    let words: String = words.collect();
    (!words.is_empty()).then(|| format!("stockade secret set {id}{words}"))
}

fn report(sandbox: &Sandbox, json: bool) -> Result<u8, Failure> {
    if json {
        print(sandbox)?;
        return Ok(0);
    }
    let secrets = sandbox.network.as_ref().map_or(&[][..], |network| &network.secrets);
    let each = |secret: &SecretStatus| {
        format!("{} for {}", escaped(&secret.name), secret.hosts.join(", "))
    };
    let names: Vec<_> = secrets.iter().map(each).collect();
    let names = if names.is_empty() { "no secrets".to_owned() } else { names.join("; ") };
    notify(&format!("the sandbox {} has {names}", sandbox.id));
    if let Some(command) = command_for_missing(&sandbox.id, secrets) {
        notify(&format!("values are missing; give them again: {command}"));
    }
    Ok(0)
}
