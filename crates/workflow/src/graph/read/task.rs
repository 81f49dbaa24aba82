//! Reads the elements that are tasks.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Map, Value};

use super::agent::command;
use super::cache::cache;
use super::node;
use super::props::{Props, WORKFLOW, function_of, tagged};
use super::sandbox;
use crate::graph::function::Function;
use crate::graph::model::{Output, Prompt, Task, Work};
use crate::graph::retry::{Growth, Retry};
use crate::graph::wait::{Approval, Event, OnDeny, OnTimeout, Timer};

/// The fields of `retryPolicy`.
const POLICY: [&str; 3] = ["backoff", "initialDelayMs", "maxDelayMs"];

/// The fields of `request`.
const REQUEST: [&str; 2] = ["title", "summary"];

pub(super) fn read(kind: &str, is_skipped: bool, is_cached: bool, props: &mut Props<'_>) -> Task {
    let id = props.required_text("id");
    let has_output = props.peek("output").is_some();
    let mut output = props.output("output", &id);
    let needs = props.pairs("needs", "ids");
    let deps = props.object("deps");
    let mut after = props.texts("dependsOn");
    after.extend(needs.values().cloned());
    let inputs = inputs(deps, needs);
    after.extend(inputs.iter().flatten().map(|(_, id)| id.clone()));
    after.sort();
    after.dedup();
    let timeout = props.milliseconds("timeoutMs");
    let heartbeat = props.milliseconds("heartbeatTimeoutMs");
    let heartbeat = props.milliseconds("heartbeatTimeout").or(heartbeat);
    let continue_on_fail = props.flag("continueOnFail").unwrap_or_default();
    let meta = props.object("meta").unwrap_or_default();
    let label = props.text("label");
    // Other elements wait or change files, so they are cached only if the workflow requests it.
    let cache = cache(props, is_cached && kind == "task" && !is_skipped);
    let work = match kind {
        // The attributes of a skipped task are not read.
        _ if is_skipped => Work::Static(Value::Null),
        "task" => work(props, inputs),
        "approval" => approval(props),
        "timer" => timer(props),
        "wait-for-event" => event(props, &id),
        "signal" => {
            output = props.output("schema", &id).or(output);
            event(props, &id)
        }
        "subflow" => subflow(props),
        _ => match node::read(kind, props) {
            Some(node) => Work::Node(Box::new(node)),
            None => Work::Sandbox(Box::new(sandbox::read(props))),
        },
    };
    if let Work::Node(node) = &work {
        after.extend(node.from.iter().cloned());
        after.sort();
        after.dedup();
        // Its ports are its output, also if no table is named.
        if output.is_none() && !has_output {
            output = Some(Output { table: id.clone(), schema: None });
        }
    }
    let needs_approval = kind == "task" && props.flag("needsApproval").unwrap_or_default();
    let produces = !matches!(work, Work::Timer(_) | Work::Approval(_) | Work::Event(_));
    if produces && output.is_none() && !has_output && !is_skipped {
        props.fault("needs `output`: its output is validated and stored");
    }
    if cache.is_some() && !produces {
        props.fault("has a `cache`, but waits for an event that can occur only once");
    }
    let retry = retry(props, &work, continue_on_fail);
    Task {
        id,
        work,
        output,
        after,
        is_skipped,
        retry,
        timeout,
        heartbeat_timeout: heartbeat,
        needs_approval,
        continue_on_fail,
        cache,
        label,
        meta,
        location: None,
    }
}

/// The tasks whose outputs a function is called with: the names in `deps` are their ids, unless `needs`
/// maps them to other ids.
fn inputs(
    deps: Option<Map<String, Value>>,
    needs: BTreeMap<String, String>,
) -> Option<BTreeMap<String, String>> {
    let Some(deps) = deps else { return (!needs.is_empty()).then_some(needs) };
    let id = |name: &String| needs.get(name).unwrap_or(name).clone();
    Some(deps.keys().map(|name| (name.clone(), id(name))).collect())
}

fn work(props: &mut Props<'_>, inputs: Option<BTreeMap<String, String>>) -> Work {
    let command = command(props);
    let agent = if command.is_some() { None } else { agent(props) };
    let content = props.take("children");
    if content.as_ref().is_some_and(|content| tagged(content, "element").is_some()) {
        props.fault("cannot contain other elements: write them beside it");
        return Work::Static(Value::Null);
    }
    let function = content.as_ref().and_then(|content| tagged(content, "function"));
    let function = function.and_then(|found| function_of(found, "ref"));
    let value = content.as_ref().and_then(|content| tagged(content, "value"));
    let value = value.and_then(|value| value.get("value")).cloned();
    let is_asked = command.is_some() || agent.is_some();
    let prompt = match (function, value) {
        (Some(function), _) if is_asked => Prompt::Computed { function, inputs },
        (None, Some(Value::String(text))) if is_asked => Prompt::Text(text),
        (None, Some(value)) if is_asked => Prompt::Text(value.to_string()),
        (Some(function), _) => return Work::Compute { function, inputs },
        (None, Some(value)) => return Work::Static(value),
        (None, None) => {
            props.fault(if is_asked {
                "has no prompt for its agent: write one between its tags"
            } else {
                "has no work: write a value or a function between its tags"
            });
            return Work::Static(Value::Null);
        }
    };
    match (command, agent) {
        (Some(command), _) => Work::Command { agent: Box::new(command), prompt },
        (None, agent) => Work::Agent { agent: agent.unwrap_or(Function(0)), prompt },
    }
}

fn agent(props: &mut Props<'_>) -> Option<Function> {
    let expected = "a function, an object with `generate`, or a command, as in { command: \"…\" }";
    props.function_or("agent", expected)
}

fn approval(props: &mut Props<'_>) -> Work {
    let request = props.object("request").unwrap_or_default();
    props.check_fields("request", &request, &REQUEST);
    let mut text = |name: &str| match request.get(name)? {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        other => {
            props.fault(format!("`request.{name}` must be a string, not {other}"));
            None
        }
    };
    let (title, summary) = (text("title"), text("summary"));
    let choices = [("fail", OnDeny::Fail), ("continue", OnDeny::Continue), ("skip", OnDeny::Skip)];
    Work::Approval(Approval {
        title,
        summary,
        on_deny: props.choice("onDeny", &choices).unwrap_or_default(),
    })
}

fn timer(props: &mut Props<'_>) -> Work {
    let (duration, until) = (props.take("duration"), props.take("until"));
    let timer = match (&duration, &until) {
        (Some(duration), None) => length(duration).map(Timer::After),
        (None, Some(until)) => timestamp(until).map(Timer::Until),
        _ => None,
    };
    if timer.is_none() {
        props.fault("needs either `duration`, such as \"30s\", or `until`, such as \"2030-01-31T12:00:00Z\"");
    }
    Work::Timer(timer.unwrap_or(Timer::Until(0)))
}

/// A time such as `30s`, `5m`, `2h` or `250ms`, or a number of milliseconds.
fn length(value: &Value) -> Option<Duration> {
    match value {
        Value::String(text) => stockade_core::parse_duration(text).ok(),
        value => Duration::try_from_secs_f64(value.as_f64()? / 1_000.0).ok(),
    }
}

fn timestamp(value: &Value) -> Option<i64> {
    let text = match tagged(value, "date") {
        Some(date) => date.get("value")?.as_str()?,
        None => value.as_str()?,
    };
    text.parse::<jiff::Timestamp>().ok().map(jiff::Timestamp::as_millisecond)
}

fn event(props: &mut Props<'_>, id: &str) -> Work {
    let choices =
        [("fail", OnTimeout::Fail), ("continue", OnTimeout::Continue), ("skip", OnTimeout::Skip)];
    Work::Event(Event {
        name: props.text("event").unwrap_or_else(|| id.to_owned()),
        correlation: props.text("correlationId"),
        on_timeout: props.choice("onTimeout", &choices).unwrap_or_default(),
    })
}

fn subflow(props: &mut Props<'_>) -> Work {
    let input = props.take("input").unwrap_or_default();
    props.choice("mode", &[("childRun", ()), ("inline", ())]);
    let has_workflow = props.peek("workflow").is_some();
    let workflow = props.function_or("workflow", WORKFLOW);
    if !has_workflow {
        props.fault(format!("needs `workflow`: {WORKFLOW}"));
    }
    Work::Subflow { workflow: workflow.unwrap_or(Function(0)), input }
}

fn retry(props: &mut Props<'_>, work: &Work, continue_on_fail: bool) -> Retry {
    let never = props.flag("noRetry").unwrap_or_default();
    let limit = props.count("retries", 0);
    let policy = props.object("retryPolicy").unwrap_or_default();
    props.check_fields("retryPolicy", &policy, &POLICY);
    let mut number = |name: &str| {
        let found = policy.get(name).filter(|found| !found.is_null())?;
        // The JavaScript engine may write a whole number as 1.0.
        let pause =
            found.as_f64().and_then(|number| Duration::try_from_secs_f64(number / 1_000.0).ok());
        if pause.is_none() {
            props.fault(format!(
                "`retryPolicy.{name}` must be a number of milliseconds, not {found}"
            ));
        }
        pause
    };
    let (first, longest) = (number("initialDelayMs"), number("maxDelayMs"));
    let growth = match policy.get("backoff") {
        None | Some(Value::Null) => Growth::Exponential,
        Some(Value::String(word)) if word == "exponential" => Growth::Exponential,
        Some(Value::String(word)) if word == "linear" => Growth::Linear,
        Some(Value::String(word)) if word == "fixed" => Growth::Fixed,
        Some(other) => {
            props.fault(format!(
                "`retryPolicy.backoff` must be \"fixed\", \"linear\" or \"exponential\", not {other}"
            ));
            Growth::Exponential
        }
    };
    let waits = matches!(work, Work::Approval(_) | Work::Timer(_) | Work::Event(_));
    let is_known = matches!(work, Work::Static(_));
    let usual = if continue_on_fail { Some(0) } else { Retry::DEFAULT.limit };
    let limit = if never || waits || is_known { Some(0) } else { limit.unwrap_or(usual) };
    Retry {
        limit,
        growth,
        first: first.unwrap_or(Retry::DEFAULT.first),
        longest: longest.unwrap_or(Retry::DEFAULT.longest),
    }
}
