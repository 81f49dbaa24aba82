//! What a caller on another machine must not request: whatever names files, ports or addresses of the
//! machine of this server. A path means something else there than here, and an API key gives rights to
//! sandboxes, not to this machine.

use std::net::{IpAddr, UdpSocket};
use std::path::Path;

use stockade_api::{Caller, ChangeNetwork, CreateSandbox, Result};
use stockade_core::network::{AllowedHost, Target, is_host_loopback};
use stockade_core::{Code, Problem};

use crate::host_paths;
use crate::options::Options;

/// Checks the request for a sandbox, and resolves the paths in it that the server allows
/// ([`host_paths::check`]).
///
/// # Errors
/// [`Code::Forbidden`] or [`Code::PathRefused`] with what names something of this machine.
pub(crate) fn check_sandbox(
    caller: &Caller,
    request: &mut CreateSandbox,
    options: &Options,
) -> Result<()> {
    if !caller.remote {
        return Ok(());
    }
    host_paths::check(caller, request, options)?;
    if !request.publish.is_empty() {
        return Err(refused("a port of the server's machine").remedied_by(FORWARD));
    }
    if request.server.is_some() {
        return Err(
            refused("a server that a run of the server's machine uses").remedied_by("--server URL")
        );
    }
    match &request.network {
        None => Ok(()),
        Some(network) => check_hosts(&network.allow, &network.allow_internal),
    }
}

/// Checks a change of the network policy. What is removed is not checked.
///
/// # Errors
/// As [`check_sandbox`].
pub(crate) fn check_network(caller: &Caller, change: &ChangeNetwork) -> Result<()> {
    match caller.remote {
        false => Ok(()),
        true => check_hosts(&change.allow, &change.allow_internal),
    }
}

/// Refuses an operation that writes to a directory of this machine, unless it lies in a directory of
/// the setting for paths of the host.
///
/// # Errors
/// [`Code::Forbidden`].
pub(crate) fn check_directory(
    caller: &Caller,
    directory: &Path,
    options: &Options,
    what: &str,
) -> Result<()> {
    if !caller.remote || host_paths::allowed(directory, &options.host_paths).is_some() {
        return Ok(());
    }
    Err(refused(what).remedied_by("on the server: stockade serve --host-paths /srv/projects"))
}

const FORWARD: &str = "stockade forward ID PORT";

fn check_hosts(allow: &[AllowedHost], internal: &[AllowedHost]) -> Result<()> {
    if let Some(host) = internal.first() {
        return Err(refused(&format!("the internal host {host}")).remedied_by(LOCAL));
    }
    let is_address = |host: &&AllowedHost| match host.target() {
        Target::Exact(name) => is_host_loopback(name),
        // Small public ones give no more than an open network gives, except for a rule for exactly one
        // of this machine.
        Target::Block(block) => {
            !block.is_public() || block.single().is_some_and(is_of_this_machine)
        }
        Target::Subdomains(_) | Target::Any => false,
    };
    match allow.iter().find(is_address) {
        None => Ok(()),
        Some(host) => Err(refused(&format!("the address {host}")).remedied_by(LOCAL)),
    }
}

/// Whether an interface of this machine has the address, as far as it can be seen.
fn is_of_this_machine(address: IpAddr) -> bool {
    UdpSocket::bind((address, 0)).is_ok()
}

const LOCAL: &str = "on the server's machine: stockade allow ID HOST";

fn refused(what: &str) -> Problem {
    let message = format!("a request over the network must not name {what}");
    Problem::new(Code::Forbidden, message)
        .because("it would be one of the server's machine, which only its own users may open")
}

#[cfg(test)]
mod tests {
    use stockade_api::{Network, PublishedPort};
    use stockade_core::OwnerId;
    use stockade_core::sandbox::Workspace;

    use super::*;

    fn check(mut request: CreateSandbox) -> Result<()> {
        let here = Caller::new(OwnerId::new("me").unwrap());
        let options = Options::default().for_exposed_server();
        assert_eq!(check_sandbox(&here, &mut request, &options), Ok(()));
        check_sandbox(&here.over_network(), &mut request, &options)
    }

    fn network(allow: &str, internal: &str) -> CreateSandbox {
        let hosts = |text: &str| text.split_whitespace().map(|it| it.parse().unwrap()).collect();
        let network =
            Network { allow: hosts(allow), allow_internal: hosts(internal), ..Network::default() };
        CreateSandbox { network: Some(network), ..CreateSandbox::default() }
    }

    #[test]
    fn a_directory_of_the_setting_may_be_written() {
        let top = tempfile::tempdir().unwrap();
        let (shared, other) = (top.path().join("shared"), top.path().join("other"));
        for directory in [&shared, &other] {
            std::fs::create_dir(directory).unwrap();
        }
        let options = Options { host_paths: vec![shared.clone()], ..Options::default() };
        let here = Caller::new(OwnerId::new("me").unwrap());
        let check = |caller: &Caller, directory: &Path| {
            check_directory(caller, directory, &options, "a project").is_ok()
        };
        assert!(check(&here, &other) && check(&here, &shared));
        let there = here.over_network();
        assert!(check(&there, &shared) && !check(&there, &other));
        assert!(!check(&there, &shared.join("../other")));
    }

    #[test]
    fn a_caller_elsewhere_names_nothing_of_this_machine() {
        let plain = CreateSandbox::default;
        let workspace = Workspace { host: "/srv".into(), inside: "/srv".into() };
        let port: PublishedPort = serde_json::from_value(
            serde_json::json!({ "address": "127.0.0.1", "host": 80, "inside": 80 }),
        )
        .unwrap();
        for refused in [
            CreateSandbox { workspace: Some(workspace), ..plain() },
            CreateSandbox { image: Some("/srv/root.tar".to_owned()), ..plain() },
            CreateSandbox { publish: vec![port], ..plain() },
            CreateSandbox { private_base: Some(false), ..plain() },
            network("host.stockade.internal:8080", ""),
            network("a.example 127.0.0.1", ""),
            network("::1", ""),
            network("192.168.0.0/16", ""),
            network("8.0.0.0/5", ""),
            network("2000::/3", ""),
            network("", "mirror.corp.example"),
        ] {
            let problem = check(refused.clone()).unwrap_err();
            assert!(
                matches!(problem.code, Code::Forbidden | Code::PathRefused),
                "{refused:?}: {problem:?}"
            );
        }
        for allowed in [
            plain(),
            CreateSandbox { image: Some("debian:12".to_owned()), ..plain() },
            CreateSandbox { private_base: Some(true), ..plain() },
            network("a.example:443 *.b.example", ""),
            network("9.9.9.9/32 8.8.8.0/24:53", ""),
        ] {
            assert_eq!(check(allowed.clone()), Ok(()), "{allowed:?}");
        }
    }
}
