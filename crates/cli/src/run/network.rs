//! The network access of the command: only its own loopback, or the hosts that `--allow` names; and
//! the secrets that the egress proxy inserts into its requests.

use std::path::PathBuf;

use stockade_core::network::binding::{Binding, CredentialSlot, check_bindings};
use stockade_core::network::{Upstream, secret};
use stockade_core::{Code, Problem, SandboxSpec};
use stockade_egress_control::{Authorities, Credential};
use uuid::Uuid;

use crate::args::Run;
use crate::args::sandbox_flags::{Network, SecretFlags};
use crate::egress::Egress;
use crate::policy_file;
use crate::secrets;
use crate::upstream_proxy;

/// The secrets of a run with their values, which are those of the caller's variables of the same
/// names.
///
/// # Errors
/// [`Code::InvalidInput`] when one has no value or one that can be guessed, or its host is not
/// allowed.
pub(super) fn secrets(arguments: &Run, spec: &SandboxSpec) -> Result<Vec<Credential>, Problem> {
    let invalid = |message: String| Problem::new(Code::InvalidInput, message);
    let SecretFlags { secret: bound, strict_secrets } = &arguments.secrets;
    let Some(first) = bound.first() else { return Ok(Vec::new()) };
    let policy = spec.network.as_ref().ok_or_else(|| secrets::without_network(first))?;
    let placeholder = |_: &str| format!("stockade-{}", Uuid::now_v7().simple());
    let mut bindings =
        secret::bindings(bound, placeholder).map_err(|error| invalid(error.to_string()))?;
    for binding in &mut bindings {
        binding.strict = *strict_secrets;
    }
    check_bindings(&bindings, policy)?;
    secrets::refuse_set_twice(bound, |name| spec.environment.contains_key(name))?;
    secrets::with_values(bindings)
}

/// The file for the policy that is learned, if one is.
///
/// # Errors
/// [`Code::Conflict`] if it exists; [`Code::InvalidInput`] if nothing is learned.
pub(super) fn learned_file(arguments: &Run) -> Result<Option<PathBuf>, Problem> {
    if arguments.sandbox.net != Some(Network::Learn) {
        return match arguments.learn_file {
            Some(_) => Err(Problem::new(Code::InvalidInput, "`--learn-file` needs `--net learn`")
                .remedied_by("--net learn")),
            None => Ok(None),
        };
    }
    let path = arguments.learn_file.clone().unwrap_or_else(|| policy_file::LEARNED.into());
    policy_file::refuse_existing(&path)?;
    Ok(Some(path))
}

/// The proxy through which the allowed hosts are reached.
///
/// # Errors
/// As [`upstream_proxy::read`].
pub(super) fn upstream(arguments: &Run, spec: &SandboxSpec) -> Result<Option<Upstream>, Problem> {
    upstream_proxy::read(arguments.upstream_proxy.as_deref(), spec.network.is_some())
}

/// The certificates that programs must trust (also those of the authority by which requests are read), if they are not those of the system, and which of the
/// caller's cannot be read.
///
/// # Errors
/// As [`Egress::set_credentials`].
pub(super) fn authorities(
    egress: &mut Egress,
    secrets: Vec<Credential>,
    reads_requests: bool,
) -> Result<(Option<String>, Vec<String>), Problem> {
    if secrets.is_empty() && !reads_requests && !Authorities::has_variables() {
        return Ok((None, Vec::new()));
    }
    let Authorities { text, has_own, unreadable } = Authorities::of_caller();
    let text = match secrets.is_empty() && !reads_requests {
        true => has_own.then_some(text),
        false => Some(egress.set_credentials(secrets)?),
    };
    Ok((text, unreadable))
}

/// The placeholders that the command sees instead of secrets, in variables of the same names.
pub(super) fn placeholders(secrets: &[Binding]) -> impl Iterator<Item = (&str, String)> {
    secrets.iter().filter_map(|binding| match &binding.place {
        CredentialSlot::Placeholder(text) => Some((binding.credential.as_str(), text.clone())),
        CredentialSlot::Header { .. } | CredentialSlot::Query { .. } => None,
    })
}
