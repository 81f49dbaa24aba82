//! `stockade policy`: checks, explains and compares network policies. No connection is made.

use serde_json::json;
use stockade_core::access::Effect;
use stockade_core::network::document::excess;
use stockade_core::network::{Host, Policy, Refusal, Rule};
use stockade_core::{Code, Problem};
use url::Url;

use super::print::{notify, print, print_text};
use crate::args::policy::{PolicyArguments, PolicyCommand};
use crate::policy_file;
use crate::problem::Failure;

/// The port of a host without one.
const HTTPS: u16 = 443;

/// Checks, explains or compares.
pub(super) fn run(arguments: &PolicyArguments) -> Result<u8, Failure> {
    match &arguments.what {
        PolicyCommand::Check { policy, json } => check(policy, *json),
        PolicyCommand::Explain { policy, url, method, json } => {
            explain(policy, (url, method), *json)
        }
        PolicyCommand::Diff { before, after, json } => diff(before, after, *json),
    }
}

fn read(name: &str) -> Result<Policy, Problem> {
    policy_file::policy(&policy_file::read(name)?)
}

fn check(name: &str, json: bool) -> Result<u8, Failure> {
    let policy = read(name)?;
    if json {
        print(&policy)?;
        return Ok(0);
    }
    let rules = policy.rules();
    let text: String = rules.iter().map(|rule| format!("{}\n", line(rule))).collect();
    let limits = match policy.limits() {
        limits if limits.is_none() => String::new(),
        limits => format!("limits: {limits}\n"),
    };
    print_text(&format!("{text}{} everything else\n{limits}", word(policy.default_effect())))?;
    if policy.has_request_rules() {
        notify("connections to hosts with methods or paths are read, with an authority of the run");
    }
    Ok(0)
}

fn explain(name: &str, (url, method): (&str, &str), json: bool) -> Result<u8, Failure> {
    let policy = read(name)?;
    let (host, port, target) = parsed(url)?;
    let checked = policy.check(&host, port).and_then(|()| match &host {
        Host::Name(name) => policy.check_request(name, port, (method, &target)),
        Host::Address(_) => Ok(()),
    });
    let is_read = matches!(&host, Host::Name(name) if policy.reads_requests(name, port));
    if json {
        let refusal = checked.as_ref().err().map(Refusal::problem);
        let reason = checked.as_ref().err().map(Refusal::reason);
        print(&json!({
            "host": host, "port": port, "method": method, "target": target,
            "allowed": checked.is_ok(), "reason": reason, "problem": refusal, "read": is_read,
        }))?;
    } else {
        let verdict = match &checked {
            Ok(()) => format!("allowed: {method} {target} at {host}, port {port}\n"),
            Err(refusal) => format!("denied: {refusal} [{}]\n", refusal.reason()),
        };
        print_text(&verdict)?;
        if is_read {
            notify("requests to this host are read, because a rule is about methods or paths");
        }
        if matches!(host, Host::Name(_)) && checked.is_ok() {
            notify("the addresses of the name are checked when it is connected to");
        }
    }
    Ok(u8::from(checked.is_err()))
}

fn diff(before: &str, after: &str, json: bool) -> Result<u8, Failure> {
    let (before, after) = (read(before)?, read(after)?);
    let more = excess(&after, &before);
    if json {
        print(&json!({ "more": more }))?;
    } else if more.is_empty() {
        notify("the second policy allows nothing that the first one does not");
    } else {
        let text: String = more.iter().map(|line| format!("+ {line}\n")).collect();
        print_text(&text)?;
    }
    Ok(u8::from(!more.is_empty()))
}

/// The host, the port and the target of a URL, or of `HOST:PORT`.
fn parsed(text: &str) -> Result<(Host, u16, String), Problem> {
    let invalid = |cause: String| {
        Problem::new(Code::InvalidInput, format!("{text:?} is no URL")).because(cause)
    };
    let full = if text.contains("://") { text.to_owned() } else { format!("https://{text}") };
    let url = Url::parse(&full).map_err(|error| invalid(error.to_string()))?;
    let host = url.host_str().ok_or_else(|| invalid("it has no host".to_owned()))?;
    let host =
        Host::parse(host.trim_matches(['[', ']'])).map_err(|error| invalid(error.to_string()))?;
    let port = url.port_or_known_default().unwrap_or(HTTPS);
    // As it is typed: a URL that is normalized would hide what a server could read differently.
    let rest = full.split_once("://").map_or("", |(_, rest)| rest);
    let target = rest.find('/').map_or("/", |at| rest.get(at..).unwrap_or("/"));
    Ok((host, port, target.to_owned()))
}

fn line(rule: &Rule) -> String {
    let ports: Vec<_> = rule.ports.iter().map(ToString::to_string).collect();
    let ports = if ports.is_empty() { String::new() } else { format!(" :{}", ports.join(",")) };
    let internal = if rule.internal { " internal" } else { "" };
    format!("{} {}{ports}{internal}", word(rule.action), rule.subject())
}

const fn word(effect: Effect) -> &'static str {
    match effect {
        Effect::Allow => "allow",
        Effect::Deny => "deny",
    }
}
