//! What the command reaches: nothing but its own loopback, or what `--allow` names; and which secrets
//! go with its requests without being told to it.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;

use stockade_core::access::Effect;
use stockade_core::network::binding::{Binding, Place, check_bindings};
use stockade_core::network::{Allowed, Policy, Rule, secret};
use stockade_core::{Code, Problem};
use stockade_egress_control::Credential;
use uuid::Uuid;

use crate::args::{Network, Run};

/// The policy of a run; none where there is to be no way out at all.
pub(super) fn policy(arguments: &Run) -> Result<Option<Policy>, Problem> {
    let Some(allowed) = allowed(arguments.net, &arguments.allow)? else { return Ok(None) };
    let rules = allowed.iter().cloned().map(Rule::from).collect();
    Ok(Some(Policy::new(Effect::Deny, rules)?))
}

/// What `--net` and `--allow` let through; none where there is to be no way out at all.
pub(crate) fn allowed(
    net: Option<Network>,
    allow: &[Allowed],
) -> Result<Option<&[Allowed]>, Problem> {
    match (net, allow) {
        (None | Some(Network::Off), []) => Ok(None),
        (Some(Network::Off), _) => {
            Err(Problem::new(Code::InvalidInput, "`--net off` and `--allow` exclude each other")
                .remedied_by("leave `--net off` out: `--allow` lets through what it names alone"))
        }
        (None | Some(Network::Policy), allow) => Ok(Some(allow)),
    }
}

/// The secrets of a run with their values, which are those of the caller's variables of their names.
///
/// # Errors
/// [`Code::InvalidInput`] where one has no value, or no way to its host.
pub(super) fn secrets(
    arguments: &Run,
    policy: Option<&Policy>,
) -> Result<Vec<Credential>, Problem> {
    let invalid = |message: String| Problem::new(Code::InvalidInput, message);
    let Some(first) = arguments.secret.first() else { return Ok(Vec::new()) };
    let policy = policy.ok_or_else(|| {
        invalid(format!("`--secret {first}` is of no use where the network is off"))
            .remedied_by(format!("--allow {}", first.host))
    })?;
    let placeholder = || format!("stockade-{}", Uuid::now_v7().simple());
    let bindings = secret::bindings(&arguments.secret, placeholder)
        .map_err(|error| invalid(error.to_string()))?;
    check_bindings(&bindings, policy)?;
    let with_value = bindings.into_iter().map(|binding| {
        let name = &binding.credential;
        let is_set = |given: &OsString| {
            let rest = given.as_bytes().strip_prefix(name.as_bytes());
            rest.is_some_and(|rest| rest.starts_with(b"="))
        };
        if arguments.env.iter().any(is_set) {
            return Err(invalid(format!("`--env` and `--secret` both set {name}")));
        }
        // What the system says of a value that is no text has that value in it.
        let value = std::env::var_os(name).map(OsString::into_string);
        match value {
            Some(Ok(value)) => Ok(Credential::new(binding, value)),
            Some(Err(_)) => Err(invalid(format!("the value of the secret {name} is no text"))),
            None => Err(invalid(format!("the secret {name} has no value"))
                .because("the environment has no variable of that name")
                .remedied_by(format!("export {name}=VALUE"))),
        }
    });
    with_value.collect()
}

/// What the command has in the place of secrets, in variables of their names.
pub(super) fn placeholders(secrets: &[Binding]) -> impl Iterator<Item = (&str, String)> {
    secrets.iter().filter_map(|binding| match &binding.place {
        Place::Placeholder(text) => Some((binding.credential.as_str(), text.clone())),
        Place::Header { .. } => None,
    })
}
