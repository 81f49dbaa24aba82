//! The secrets of `--secret`, for one run and for persistent sandboxes: their values are those of the
//! caller's variables of the same names, and are checked before anything is started.

use std::ffi::OsString;

use stockade_core::network::binding::Binding;
use stockade_core::network::secret::value::{self, Contained};
use stockade_core::network::secret::{self, BoundSecret};
use stockade_core::{Code, Problem};
use stockade_egress_control::Credential;

/// Secrets with their values; one for each binding.
///
/// # Errors
/// [`Code::InvalidInput`] when one has no value, or one that cannot be sent or can be guessed, or if
/// the value of one contains that of another one for the same host.
pub(crate) fn with_values(bindings: Vec<Binding>) -> Result<Vec<Credential>, Problem> {
    let with_value = bindings.into_iter().map(|binding| {
        let name = &binding.credential;
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
    let pairs = || {
        all.iter().filter_map(|own| own.value.as_ref().map(|value| (&own.binding, value.as_str())))
    };
    for (Binding { credential: name, .. }, value) in pairs() {
        if !value::can_be_sent(value) {
            return Err(invalid(format!("the value of the secret {name} cannot be sent"))
                .because("it is empty, too long, or not one line of visible ASCII characters"));
        }
        value::check(value).map_err(|weak| {
            invalid(format!("the value of the secret {name} can be guessed"))
                .because(weak.to_string())
                .remedied_by(format!("export {name}=\"$(openssl rand -hex 32)\""))
        })?;
    }
    if let Some(Contained { outer, inner }) = value::contained(&pairs().collect::<Vec<_>>()) {
        let message = format!("the value of the secret {outer} contains that of {inner}");
        return Err(invalid(message)
            .because("a host that receives both would reveal which part it is")
            .remedied_by(format!("leave out `--secret {inner}@…`, or bind it to another host")));
    }
    Ok(all)
}

/// The same for a persistent sandbox, whose placeholders the server makes.
///
/// # Errors
/// As [`with_values`]; [`Code::InvalidInput`] if secrets contradict each other.
pub(crate) fn read(secrets: &[BoundSecret]) -> Result<Vec<Credential>, Problem> {
    let placeholder = |name: &str| format!("stockade-{name}-for-a-check");
    let bindings = secret::bindings(secrets, placeholder);
    with_values(bindings.map_err(|error| invalid(error.to_string()))?)
}

/// Refuses a secret whose variable `--env` sets.
///
/// # Errors
/// [`Code::InvalidInput`].
pub(crate) fn refuse_set_twice(
    secrets: &[BoundSecret],
    is_set: impl Fn(&str) -> bool,
) -> Result<(), Problem> {
    match secrets.iter().find(|secret| is_set(&secret.name)) {
        Some(BoundSecret { name, .. }) => {
            Err(invalid(format!("`--env` and `--secret` both set {name}")))
        }
        None => Ok(()),
    }
}

/// The problem of secrets of a sandbox without a network.
pub(crate) fn without_network(secret: &BoundSecret) -> Problem {
    invalid(format!("`--secret {secret}` needs a network policy"))
        .remedied_by(format!("--allow {}", secret.host))
}

fn invalid(message: String) -> Problem {
    Problem::new(Code::InvalidInput, message)
}
