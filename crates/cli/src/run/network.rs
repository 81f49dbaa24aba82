//! The network access of the command: only its own loopback, or the hosts that `--allow` names; and
//! the secrets that the egress proxy inserts into its requests.

use std::ffi::OsString;

use stockade_core::network::binding::{Binding, CredentialSlot, check_bindings};
use stockade_core::network::secret;
use stockade_core::network::secret::value::{self, Contained};
use stockade_core::{Code, Problem, SandboxSpec};
use stockade_egress_control::{Authorities, Credential};
use uuid::Uuid;

use crate::args::Run;
use crate::egress::Egress;

/// The secrets of a run with their values, which are those of the caller's variables of the same
/// names.
///
/// # Errors
/// [`Code::InvalidInput`] when one has no value or one that can be guessed, or its host is not
/// allowed.
pub(super) fn secrets(arguments: &Run, spec: &SandboxSpec) -> Result<Vec<Credential>, Problem> {
    let invalid = |message: String| Problem::new(Code::InvalidInput, message);
    let Some(first) = arguments.secret.first() else { return Ok(Vec::new()) };
    let policy = spec.network.as_ref().ok_or_else(|| {
        invalid(format!("`--secret {first}` needs a network policy"))
            .remedied_by(format!("--allow {}", first.host))
    })?;
    let placeholder = || format!("stockade-{}", Uuid::now_v7().simple());
    let mut bindings = secret::bindings(&arguments.secret, placeholder)
        .map_err(|error| invalid(error.to_string()))?;
    for binding in &mut bindings {
        binding.strict = arguments.strict_secrets;
    }
    check_bindings(&bindings, policy)?;
    let with_value = bindings.into_iter().map(|binding| {
        let name = &binding.credential;
        if spec.environment.contains_key(name) {
            return Err(invalid(format!("`--env` and `--secret` both set {name}")));
        }
        // The system's error for a value that is not UTF-8 would contain that value.
        match std::env::var_os(name).map(OsString::into_string) {
            Some(Ok(value)) => Ok(Credential::new(binding, value)),
            Some(Err(_)) => {
                Err(invalid(format!("the value of the secret {name} is not UTF-8 text")))
            }
            None => Err(invalid(format!("the secret {name} has no value"))
                .because("the environment variable is not set")
                .remedied_by(format!("export {name}=VALUE"))),
        }
    });
    let all: Vec<Credential> = with_value.collect::<Result<_, Problem>>()?;
    for credential in &all {
        let name = &credential.binding.credential;
        value::check(&credential.value).map_err(|weak| {
            invalid(format!("the value of the secret {name} can be guessed"))
                .because(weak.to_string())
                .remedied_by(format!("export {name}=\"$(openssl rand -hex 32)\""))
        })?;
    }
    let pairs: Vec<_> = all.iter().map(|secret| (&secret.binding, secret.value.as_str())).collect();
    if let Some(Contained { outer, inner }) = value::contained(&pairs) {
        let message = format!("the value of the secret {outer} contains that of {inner}");
        return Err(invalid(message)
            .because("a host that receives both would reveal which part it is")
            .remedied_by(format!("leave out `--secret {inner}@…`, or bind it to another host")));
    }
    Ok(all)
}

/// How many connections there may be at a time, if that was requested.
///
/// # Errors
/// [`Code::InvalidInput`] without network access.
pub(super) fn connection_limit(
    arguments: &Run,
    spec: &SandboxSpec,
) -> Result<Option<u16>, Problem> {
    if arguments.max_connections.is_some() && spec.network.is_none() {
        let message = "`--max-connections` needs a network policy";
        return Err(Problem::new(Code::InvalidInput, message).remedied_by("--allow HOST"));
    }
    Ok(arguments.max_connections)
}

/// The certificates that programs must trust, if they are not those of the system, and which of the
/// caller's cannot be read.
///
/// # Errors
/// As [`Egress::set_credentials`].
pub(super) fn authorities(
    egress: &mut Egress,
    secrets: Vec<Credential>,
) -> Result<(Option<String>, Vec<String>), Problem> {
    if secrets.is_empty() && !Authorities::has_variables() {
        return Ok((None, Vec::new()));
    }
    let Authorities { text, has_own, unreadable } = Authorities::of_caller();
    let text = match secrets.is_empty() {
        true => has_own.then_some(text),
        false => Some(egress.set_credentials(secrets)?),
    };
    Ok((text, unreadable))
}

/// The placeholders that the command sees instead of secrets, in variables of the same names.
pub(super) fn placeholders(secrets: &[Binding]) -> impl Iterator<Item = (&str, String)> {
    secrets.iter().filter_map(|binding| match &binding.place {
        CredentialSlot::Placeholder(text) => Some((binding.credential.as_str(), text.clone())),
        CredentialSlot::Header { .. } => None,
    })
}
