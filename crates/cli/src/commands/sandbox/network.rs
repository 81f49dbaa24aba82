//! `allow` and `refuse`: the hosts that a persistent sandbox may connect to.

use stockade_api::{ChangeNetwork, Sandbox};
use stockade_core::SandboxId;
use stockade_core::network::{AllowedHost, Rule};

use super::find;
use crate::args::sandbox::{AllowHosts, NetworkChange};
use crate::commands::print::{notify, print};
use crate::problem::Failure;
use crate::remote;

/// Allows a sandbox to connect to more hosts.
pub(crate) fn allow(arguments: AllowHosts) -> Result<u8, Failure> {
    let AllowHosts { id, hosts, allow_internal, json, server_mode } = arguments;
    let change = NetworkChange { id, hosts, json, server_mode };
    self::change(change, |id, allow| ChangeNetwork {
        allow,
        allow_internal,
        ..ChangeNetwork::new(id)
    })
}

/// Removes hosts from those that a sandbox may connect to.
pub(crate) fn refuse(arguments: NetworkChange) -> Result<u8, Failure> {
    change(arguments, |id, refuse| ChangeNetwork { refuse, ..ChangeNetwork::new(id) })
}

fn change(
    arguments: NetworkChange,
    request: impl FnOnce(SandboxId, Vec<AllowedHost>) -> ChangeNetwork,
) -> Result<u8, Failure> {
    let NetworkChange { id, hosts, json, server_mode: way } = arguments;
    let sandbox = remote::with(way, async |remote| {
        let request = request(find(&remote, &id).await?, hosts);
        Ok(remote.sandboxes.change_network(&remote.idempotent(), request).await?)
    })?;
    if json {
        print(&sandbox)?;
    } else {
        notify(&describe(&sandbox));
    }
    Ok(0)
}

fn describe(sandbox: &Sandbox) -> String {
    let rules = sandbox.network.as_ref().map_or(&[][..], |network| network.policy.rules());
    let host = |Rule { target, ports, .. }: &Rule| match ports.as_slice() {
        [] => target.to_string(),
        ports => {
            let ports: Vec<_> = ports.iter().map(u16::to_string).collect();
            format!("{target} on port {}", ports.join(", "))
        }
    };
    let hosts: Vec<_> = rules.iter().map(host).collect();
    let hosts = if hosts.is_empty() { "nothing".to_owned() } else { hosts.join(", ") };
    format!("the sandbox {} may connect to {hosts}", sandbox.id)
}
