//! What a caller on another machine must not request: whatever names files, ports or addresses of the
//! machine of this server. A path means something else there than here, and an API key gives rights to
//! sandboxes, not to this machine.

use stockade_api::{Caller, ChangeNetwork, CreateSandbox, Result};
use stockade_core::network::{AllowedHost, Target, is_host_loopback};
use stockade_core::{Code, Problem};

/// Checks the request for a sandbox. What a snapshot brings with it is not part of the request.
///
/// # Errors
/// [`Code::Forbidden`] with the member of the request that names something of this machine.
pub(crate) fn check_sandbox(
    caller: &Caller,
    request: &CreateSandbox,
    is_base_private: bool,
) -> Result<()> {
    if !caller.remote {
        return Ok(());
    }
    let is_path = request.image.as_deref().is_some_and(|image| image.starts_with('/'));
    let named = [
        (request.workspace.is_some(), "a workspace", COPY),
        (!request.mounts.is_empty(), "a mount of a host directory", COPY),
        (is_path, "an image by the path of a file", IMPORT),
        (!request.publish.is_empty(), "a port of the server's machine", FORWARD),
        (
            is_base_private && request.private_base == Some(false),
            "the system files of the server's machine",
            PRIVATE,
        ),
    ];
    if let Some((_, what, remedy)) = named.iter().find(|(is_named, ..)| *is_named) {
        return Err(refused(what).remedied_by(*remedy));
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

/// Refuses an operation that reads or writes files of this machine.
///
/// # Errors
/// [`Code::Forbidden`].
pub(crate) fn check_host_files(caller: &Caller, what: &str) -> Result<()> {
    match caller.remote {
        false => Ok(()),
        true => Err(refused(what)),
    }
}

const COPY: &str = "stockade cp DIR ID:/path";
const IMPORT: &str = "on the server's machine: stockade image import FILE NAME";
const FORWARD: &str = "stockade forward ID PORT";
const PRIVATE: &str = "leave out `privateBase`";

fn check_hosts(allow: &[AllowedHost], internal: &[AllowedHost]) -> Result<()> {
    if let Some(host) = internal.first() {
        return Err(refused(&format!("the internal host {host}")).remedied_by(LOCAL));
    }
    let is_address = |host: &&AllowedHost| match host.target() {
        Target::Exact(name) => is_host_loopback(name),
        // An address of this machine is not always recognizable as one.
        Target::Block(_) => true,
        Target::Subdomains(_) | Target::Any => false,
    };
    match allow.iter().find(is_address) {
        None => Ok(()),
        Some(host) => Err(refused(&format!("the address {host}")).remedied_by(LOCAL)),
    }
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

    fn check(request: CreateSandbox) -> Result<()> {
        let here = Caller::new(OwnerId::new("me").unwrap());
        assert_eq!(check_sandbox(&here, &request, true), Ok(()));
        check_sandbox(&here.over_network(), &request, true)
    }

    fn network(allow: &str, internal: &str) -> CreateSandbox {
        let hosts = |text: &str| text.split_whitespace().map(|it| it.parse().unwrap()).collect();
        let network =
            Network { allow: hosts(allow), allow_internal: hosts(internal), ..Network::default() };
        CreateSandbox { network: Some(network), ..CreateSandbox::default() }
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
            network("9.9.9.9/32", ""),
            network("", "mirror.corp.example"),
        ] {
            let problem = check(refused.clone()).unwrap_err();
            assert_eq!(problem.code, Code::Forbidden, "{refused:?}");
        }
        for allowed in [
            plain(),
            CreateSandbox { image: Some("debian:12".to_owned()), ..plain() },
            CreateSandbox { private_base: Some(true), ..plain() },
            network("a.example:443 *.b.example", ""),
        ] {
            assert_eq!(check(allowed.clone()), Ok(()), "{allowed:?}");
        }
    }
}
