//! What the command reaches: nothing but its own loopback, or what `--allow` names.

use stockade_core::access::Effect;
use stockade_core::network::{Allowed, Policy, Rule};
use stockade_core::{Code, Problem};

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
