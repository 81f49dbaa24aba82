//! `ports`: on which ports of a sandbox a process listens.

use std::collections::BTreeSet;

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stockade_api::{CommandLine, Execute, Problem, ResolveEndpoint};
use stockade_core::{Code, SandboxId};

use super::operation::{Facts, On, Operation, Reply, Scope, Stop};
use crate::mcp::Effects;
use crate::mcp::untrusted::lines;

/// How many ports are checked.
const PORTS: usize = 64;
/// The state of a listening socket in `/proc/net/tcp` (`proc_net(5)`).
const LISTENING: &str = "0A";

/// Lists ports.
#[derive(Debug)]
pub(super) struct Ports;

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub(super) struct PortsArguments {
    /// The ports to check, at most 64; those on which processes say they listen when empty.
    ports: Vec<u16>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct PortsValue {
    ports: Vec<Port>,
    /// The ports of the host that lead into the sandbox.
    published: Vec<Published>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Port {
    port: u16,
    /// Whether a process listens there now.
    listening: bool,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Published {
    /// The address and port of the host.
    host: String,
    /// The port inside.
    port: u16,
    /// Why it is not served now; absent while it is.
    problem: Option<String>,
}

#[async_trait]
impl Operation for Ports {
    type Arguments = PortsArguments;
    type Value = PortsValue;

    fn facts(&self, _: &Scope) -> Facts {
        Facts {
            name: "ports",
            title: "List ports",
            text: "Shows on which ports of the sandbox a process listens, and which ports of the host lead into it. A user reaches another port with `stockade forward`.",
            effects: Effects::READ_ONLY,
            on_sandbox: true,
            is_long: false,
        }
    }

    async fn call(&self, on: On<'_>, arguments: PortsArguments) -> Result<Reply<PortsValue>, Stop> {
        if arguments.ports.len() > PORTS || arguments.ports.contains(&0) {
            let message = format!("`ports` must have at most {PORTS} ports from 1 to 65535");
            return Err(Problem::new(Code::InvalidInput, message).into());
        }
        let sandbox = on.sandbox().await?;
        let wanted = match arguments.ports.is_empty() {
            true => reported(&on, &sandbox.id).await?,
            false => arguments.ports.into_iter().collect(),
        };
        let mut ports = Vec::new();
        for port in wanted.into_iter().take(PORTS) {
            let request = ResolveEndpoint { id: sandbox.id.clone(), port };
            let found = on.context.sandboxes.resolve_endpoint(on.call.reader(), request).await?;
            ports.push(Port { port, listening: found.listening });
        }
        let published = sandbox.published.iter().map(|publication| Published {
            host: std::net::SocketAddr::new(publication.port.address, publication.port.host)
                .to_string(),
            port: publication.port.inside,
            problem: publication.problem.as_ref().map(|it| lines(it.as_bytes())),
        });
        Ok(Reply::new(PortsValue { ports, published: published.collect() }))
    }
}

/// The ports that a command inside finds. Each is checked from outside afterwards.
async fn reported(on: &On<'_>, id: &SandboxId) -> Result<BTreeSet<u16>, Problem> {
    let words = ["/bin/sh", "-c", "cat /proc/net/tcp /proc/net/tcp6 2>/dev/null"];
    let line = CommandLine::Program(words.map(str::to_owned).to_vec());
    let execute = Execute { timeout_seconds: Some(10.0), ..Execute::new(id.clone(), line) };
    let ended = on.context.sandboxes.execute(&on.call.writer(), execute).await?;
    Ok(listening(&ended.stdout.lossy()))
}

fn listening(table: &str) -> BTreeSet<u16> {
    let port = |line: &str| {
        let mut fields = line.split_whitespace().skip(1);
        let (local, _, state) = (fields.next()?, fields.next()?, fields.next()?);
        let port = u16::from_str_radix(local.rsplit_once(':')?.1, 16).ok()?;
        (state == LISTENING && port > 0).then_some(port)
    };
    table.lines().filter_map(port).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listening_sockets_are_found() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue\n\
            0: 0100007F:1F90 00000000:0000 0A 00000000:00000000\n\
            1: 0100007F:0016 0100007F:9C40 01 00000000:00000000\n\
            2: 00000000000000000000000001000000:0BB8 00000000000000000000000000000000:0000 0A\n\
            3: nonsense\n4: x:0000 y 0A\n5: x:FFFFF y 0A\n";
        assert_eq!(listening(table), BTreeSet::from([8080, 3000]));
    }
}
