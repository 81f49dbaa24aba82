//! `stockade show`: the state of a sandbox.

use stockade_api::{GetSandbox, NetworkStatus, Sandbox};
use stockade_core::access::Effect;
use stockade_core::network::{AllowedHost, Rule};
use stockade_core::sandbox::{Limits, Workspace};
use stockade_core::{Enforcement, State};

use super::{find, secret};
use crate::args::sandbox::OneSandbox;
use crate::commands::print::{escaped, print, print_text};
use crate::problem::Failure;
use crate::remote;

/// The most denied connections that are printed as text.
const MAX_LISTED: usize = 16;

/// Prints it.
pub(crate) fn run(arguments: OneSandbox) -> Result<u8, Failure> {
    let sandbox = remote::with(arguments.server_mode, async |remote| {
        let id = find(&remote, &arguments.id).await?;
        let request = GetSandbox { id, metrics: true };
        Ok(remote.sandboxes.get_status(remote.caller(), request).await?)
    })?;
    if arguments.json {
        print(&sandbox)?;
    } else {
        print_text(&text(&sandbox))?;
    }
    Ok(0)
}

/// When the files of a stopped sandbox are removed.
pub(super) fn removal(sandbox: &Sandbox) -> Option<String> {
    let is_stopped = sandbox.state == State::Stopped;
    is_stopped
        .then(|| sandbox.remove_at.map_or_else(|| "never".to_owned(), |at| format!("{at:.0}")))
}

/// When a sandbox will end, as the last part of a sentence.
pub(super) fn expiry(sandbox: &Sandbox) -> String {
    match sandbox.expires_at.filter(|_| sandbox.state != State::Stopped) {
        Some(at) => format!(" until {at:.0}"),
        None => String::new(),
    }
}

/// Its limits, with those of its network; `None` if it has none of its own.
pub(super) fn limits(sandbox: &Sandbox) -> Option<String> {
    let Limits { memory_bytes, cpu_millis, processes, disk_bytes, shm_bytes: _ } = sandbox.limits;
    let traffic = sandbox.network.as_ref().map(|network| network.policy.limits());
    let traffic = traffic.filter(|limits| !limits.is_none());
    let thousandths = |millis: u64| {
        let text = format!("{}.{:03}", millis / 1000, millis % 1000);
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    };
    let each = [
        memory_bytes.map(|bytes| format!("{} of memory", mebibytes(bytes))),
        cpu_millis.map(|millis| format!("{} processors", thousandths(millis))),
        processes.map(|count| format!("{count} processes")),
        disk_bytes.map(|bytes| format!("{} on disk", mebibytes(bytes))),
        traffic.map(|limits| limits.to_string()),
    ];
    let each: Vec<_> = each.into_iter().flatten().collect();
    (!each.is_empty()).then(|| each.join(", "))
}

/// The runtime that holds it, and the requested one if that has another name.
fn runtime(sandbox: &Sandbox) -> String {
    let selected = escaped(&sandbox.runtime);
    match sandbox.requested_runtime.as_deref() {
        Some(requested) if requested != sandbox.runtime => {
            format!("{selected}, requested: {}", escaped(requested))
        }
        _ => selected,
    }
}

fn text(sandbox: &Sandbox) -> String {
    let mut lines = vec![
        ("id", sandbox.id.to_string()),
        ("state", sandbox.state.to_string()),
        ("image", escaped(&sandbox.image)),
        ("runtime", runtime(sandbox)),
        ("created", format!("{:.0}", sandbox.created_at)),
        ("expires", sandbox.expires_at.map_or_else(|| "never".to_owned(), |at| format!("{at:.0}"))),
    ];
    lines.extend(sandbox.workspace.as_ref().map(|Workspace { host, inside }| {
        let host = escaped(&host.to_string_lossy());
        let inside = escaped(&inside.to_string_lossy());
        let location = if host == inside { host } else { format!("{host} at {inside}") };
        ("workspace", location)
    }));
    lines.extend(sandbox.volumes.iter().map(|volume| {
        let inside = escaped(&volume.inside.to_string_lossy());
        let mode = if volume.read_only { " (read-only)" } else { "" };
        ("volume", format!("{} at {inside}{mode}", volume.name))
    }));
    lines.extend(sandbox.caches.iter().map(|cache| ("cache", cache.name.to_string())));
    lines.extend(removal(sandbox).map(|at| ("removed", at)));
    lines.extend(sandbox.bundle.as_ref().map(|id| ("bundle", id.clone())));
    lines.extend(sandbox.reason.as_ref().map(|reason| ("reason", escaped(reason))));
    lines.extend(sandbox.terminated_at.map(|at| ("terminated", format!("{at:.0}"))));
    let labels = sandbox.metadata.iter().map(|(name, value)| format!("{name}={value}"));
    lines.extend(labels.map(|label| ("label", escaped(&label))));
    lines.extend(sandbox.published.iter().map(|publication| {
        let port = publication.port;
        let address = std::net::SocketAddr::new(port.address, port.host);
        let problem = publication.problem.as_ref();
        let problem = problem.map(|text| format!(" (not served: {text})")).unwrap_or_default();
        ("published", format!("{address} to port {}{problem}", port.inside))
    }));
    let rules = match sandbox.access_rules.as_slice() {
        [] => vec!["none (all paths allowed)".to_owned()],
        rules => rules
            .iter()
            .map(|rule| {
                let part = |name: &str| rule[name].as_str().unwrap_or_default().to_owned();
                format!("{} {} {}", part("effect"), part("level"), escaped(&part("path")))
            })
            .collect(),
    };
    lines.extend(limits(sandbox).map(|limits| ("limits", limits)));
    lines.extend(rules.into_iter().map(|rule| ("rules", rule)));
    if let Some(network) = &sandbox.network {
        lines.extend(network_lines(sandbox, network));
    }
    if let Some(metrics) = &sandbox.metrics {
        lines.push(("commands", metrics.commands.to_string()));
        lines.extend(metrics.processes.map(|count| ("processes", count.to_string())));
        lines.extend(metrics.memory_bytes.map(|bytes| ("memory", mebibytes(bytes))));
        lines.extend(metrics.cpu_ms.map(|ms| ("processor", seconds(ms))));
        lines.extend(metrics.disk_bytes.map(|bytes| ("disk", mebibytes(bytes))));
        lines.extend(metrics.reasons.iter().map(|reason| ("not known", escaped(reason))));
    }
    if let Some(isolation) = &sandbox.isolation {
        lines.push(("isolation", format!("{:?}", isolation.level).to_lowercase()));
        lines.extend(isolation.reasons.iter().map(|reason| ("note", escaped(reason))));
        let weak =
            isolation.limits.iter().filter(|limit| limit.enforcement != Enforcement::Enforced);
        for limit in weak {
            let how = format!("{:?}", limit.enforcement).to_lowercase();
            lines.push(("limit", format!("{} is {how}", limit.name)));
        }
    }
    lines.iter().map(|(name, value)| format!("{name:<11}{value}\n")).collect()
}

/// The hosts that a sandbox may connect to, and its denied connections with how to allow them.
fn network_lines(sandbox: &Sandbox, network: &NetworkStatus) -> Vec<(&'static str, String)> {
    let rules = network.policy.rules();
    let allowed = |rule: &Rule| {
        let internal = if rule.internal { ", also in a private network" } else { "" };
        let ports = match rule.ports.as_slice() {
            [] => String::new(),
            ports => {
                let ports: Vec<_> = ports.iter().map(u16::to_string).collect();
                format!(" port {}", ports.join(", "))
            }
        };
        format!("{} {}{ports}{internal}", rule.action, rule.target)
    };
    let mut lines: Vec<_> = rules.iter().map(|rule| ("network", allowed(rule))).collect();
    lines.push(match network.policy.default_effect() {
        Effect::Deny => ("network", "deny everything else".to_owned()),
        Effect::Allow => {
            ("network", "allow every name that resolves to public addresses only".to_owned())
        }
    });
    let proxy = network.upstream_proxy.as_ref();
    lines.extend(proxy.map(|proxy| ("network", format!("through the proxy {proxy}"))));
    lines.extend(network.closed.as_ref().map(|reason| ("closed", escaped(reason))));
    if network.connections > 0 {
        let (sent, received) = (mebibytes(network.sent_bytes), mebibytes(network.received_bytes));
        let traffic = format!("{} connections, {sent} out, {received} in", network.connections);
        lines.push(("traffic", traffic));
    }
    for own in &network.secrets {
        let value = if own.missing { "; its value is missing" } else { "" };
        let name = escaped(&own.name);
        lines.push(("secret", format!("{name} for {}{value}", own.hosts.join(", "))));
    }
    let command = secret::command_for_missing(&sandbox.id, &network.secrets);
    let is_alive = matches!(sandbox.state, State::Running | State::Paused);
    lines.extend(command.filter(|_| is_alive).map(|it| ("hint", it)));
    for own in network.misdirected.iter().take(MAX_LISTED) {
        let was = if own.blocked { "was not sent" } else { "was sent" };
        let to = AllowedHost::new(&own.host, Some(own.port));
        let text = format!("the placeholder of {} {was} to {to}", escaped(&own.secret));
        lines.push(("secret", text));
    }
    for refused in network.refused.iter().take(MAX_LISTED) {
        let times = match refused.times {
            1 => String::new(),
            times => format!(" ({times} times)"),
        };
        let text = format!("{} [{}]{times}", escaped(&refused.message), refused.reason);
        lines.push(("refused", text));
        let hint = |allow: &String| match allow.strip_prefix("--allow ") {
            Some(host) if !sandbox.state.is_terminal() => {
                format!("stockade allow {} {}", sandbox.id, escaped(host))
            }
            _ => escaped(allow),
        };
        lines.extend(refused.allow.as_ref().map(|allow| ("hint", hint(allow))));
    }
    let others = network.refused.len().saturating_sub(MAX_LISTED) as u64;
    let others = network.lost.saturating_add(others);
    if others > 0 {
        lines.push(("refused", format!("{others} more, see --json")));
    }
    lines
}

/// A size for display: in MiB, with one decimal digit.
fn mebibytes(bytes: u64) -> String {
    let tenths = bytes.saturating_mul(10) >> 20;
    format!("{}.{} MiB", tenths / 10, tenths % 10)
}

/// A time in seconds, with two decimal digits.
fn seconds(ms: u64) -> String {
    format!("{}.{:02} s", ms / 1000, ms % 1000 / 10)
}
