//! Reads the elements that are tasks.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Map, Value};

use super::agent::{self, command};
use super::cache::cache;
use super::node;
use super::props::{Props, WORKFLOW, function_of, tagged};
use super::sandbox;
use crate::graph::budget::Budgets;
use crate::graph::function::Function;
use crate::graph::model::{Output, Prompt, Task, Work, Worktree};
use crate::graph::retry::{Growth, Retry};
use crate::graph::wait::{Answer, Approval, Event, OnDeny, OnTimeout, Timer};

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
        "human" => human(props),
        "timer" => timer(props),
        "wait-for-event" => event(props, &id),
        "signal" => {
            output = props.output("schema", &id).or(output);
            event(props, &id)
        }
        "subflow" => subflow(props),
        "continue-as-new" => Work::Continue(props.take("state").unwrap_or_default()),
        _ => match node::read(kind, props) {
            Some(node) => Work::Node(Box::new(node)),
            None => Work::Sandbox(Box::new(sandbox::read(props))),
        },
    };
    let fallbacks = if kind == "task" { fallbacks(props, &work) } else { Vec::new() };
    if let Work::Node(node) = &work {
        after.extend(node.from.iter().cloned());
        after.sort();
        after.dedup();
        // Its ports are its output, also if no table is named.
        if output.is_none() && !has_output {
            output = Some(Output { table: id.clone(), schema: None, parse: None });
        }
    }
    let needs_approval = kind == "task" && props.flag("needsApproval").unwrap_or_default();
    let may_be_async = needs_approval || matches!(work, Work::Approval(_) | Work::Event(_));
    let is_async = props.flag("async").unwrap_or_default();
    if is_async && !may_be_async && !is_skipped {
        props.fault("has `async`, but waits for no answer: it needs `needsApproval`");
    }
    let worktree = worktree(props);
    let budgets = props.object("$budgets");
    let budgets = budgets.as_ref().map(Budgets::read).unwrap_or_default();
    if worktree.is_some() && matches!(work, Work::Sandbox(_)) {
        props.fault(
            "cannot be in a <Worktree>: a sandbox works on a copy of the project of its own",
        );
    }
    let produces =
        !matches!(work, Work::Timer(_) | Work::Approval(_) | Work::Event(_) | Work::Continue(_));
    if produces && output.is_none() && !has_output && !is_skipped {
        props.fault("needs `output`: its output is validated and stored");
    }
    if cache.is_some() && !produces {
        props.fault("has a `cache`, but waits for an event that can occur only once");
    }
    let retry = retry(props, &work, continue_on_fail);
    if kind == "task" {
        refuse_unsupported(props);
    }
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
        fallbacks,
        worktree,
        budgets,
        is_async,
        location: None,
    }
}

/// The worktree that encloses a task.
fn worktree(props: &mut Props<'_>) -> Option<Worktree> {
    let found = props.object("$worktree")?;
    let text = |name: &str| found.get(name).and_then(Value::as_str).map(str::to_owned);
    let (branch, base) = (text("branch"), text("baseBranch"));
    Some(Worktree { path: text("path")?, branch, base })
}

/// Refuses attributes of upstream's `<Task>` that need a part of it that is not here.
fn refuse_unsupported(props: &mut Props<'_>) {
    // The realm evaluates outputs itself.
    drop(props.take("scorers"));
    for (name, why) in [
        ("memory", "there is no memory that outlives a run"),
        ("depsOptional", "a function reads an output that may be missing with ctx.outputMaybe()"),
        ("priority", "tasks start in the order of the file; <Parallel maxConcurrency> limits them"),
        ("failurePolicy", "use continueOnFail, or <TryCatchFinally>"),
        ("maxSchemaRetries", "an answer that the schema refuses is a failed attempt: use retries"),
        (
            "sideEffect",
            "a finished task never starts again, and retries={0} prevents a second attempt",
        ),
        ("fork", "an agent gets what it needs in its prompt"),
        ("bind", "pass values with needs or deps"),
        ("hijack", "a person cannot take over an agent in a sandbox"),
        ("onHijackExit", "a person cannot take over an agent in a sandbox"),
    ] {
        props.refuse(name, why);
    }
}

/// The works of further attempts, with the same prompt and other agents.
fn fallbacks(props: &mut Props<'_>, first: &Work) -> Vec<Work> {
    let prompt = match first {
        Work::Agent { prompt, .. } | Work::Command { prompt, .. } => prompt.clone(),
        _ => {
            drop(props.take("$fallbacks"));
            return Vec::new();
        }
    };
    let mut works = Vec::new();
    for found in props.list("$fallbacks") {
        let prompt = prompt.clone();
        if let Some(command) = tagged(&found, "agent") {
            let agent = Box::new(agent::from(props, command.clone()));
            works.push(Work::Command { agent, prompt });
        } else if let Some(agent) =
            tagged(&found, "function").and_then(|function| function_of(function, "ref"))
        {
            works.push(Work::Agent { agent, prompt });
        } else {
            props.fault(format!("a further `agent` must be {AGENT}"));
        }
    }
    works
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

/// The term for an agent in messages.
const AGENT: &str = "a function, an object with `generate`, or a command, as in { command: \"…\" }";

fn agent(props: &mut Props<'_>) -> Option<Function> {
    props.function_or("agent", AGENT)
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
    for (name, why) in [
        ("allowedUsers", "who decides is not checked: the owner of the run does"),
        ("allowedScopes", "who decides is not checked: the owner of the run does"),
        ("autoApprove", "nothing is approved by itself; use skipIf"),
        ("bind", "pass values with needs or deps"),
    ] {
        if props.take(name).is_some() {
            props.fault(format!("`{name}` is not supported: {why}"));
        }
    }
    let on_deny = props.choice("onDeny", &choices).unwrap_or_default();
    Work::Approval(Approval { title, summary, on_deny, answer: answer(props) })
}

/// The fields of an option of a selection.
const OPTION: [&str; 4] = ["key", "label", "summary", "metadata"];

/// What the user answers: a decision, or a choice among options.
fn answer(props: &mut Props<'_>) -> Answer {
    let modes = [("approve", 0), ("decision", 0), ("select", 1), ("rank", 2)];
    let mode = props.choice("mode", &modes).unwrap_or_default();
    let mut keys = Vec::new();
    for (number, option) in props.list("options").iter().enumerate() {
        match option {
            Value::String(key) => keys.push(key.clone()),
            Value::Object(option) => {
                props.check_fields(&format!("options[{number}]"), option, &OPTION);
                keys.extend(option.get("key").and_then(Value::as_str).map(str::to_owned));
            }
            _ => props.fault("`options` must be a list of { key, label }"),
        }
    }
    match mode {
        0 if keys.is_empty() => Answer::Decision,
        0 => {
            props.fault("has `options`: it needs mode=\"select\" or mode=\"rank\"");
            Answer::Decision
        }
        _ if keys.is_empty() => {
            props.fault("needs `options`, a list of { key, label }");
            Answer::Decision
        }
        1 => Answer::Selection(keys),
        _ => Answer::Ranking(keys),
    }
}

/// A task that a person does: the answer is JSON.
fn human(props: &mut Props<'_>) -> Work {
    let prompt = props.required_text("prompt");
    // Every invalid answer is refused when it is given, so there is no maximum.
    props.count("maxAttempts", 1);
    Work::Approval(Approval {
        title: None,
        summary: Some(prompt),
        on_deny: OnDeny::Fail,
        answer: Answer::Note,
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
    props.refuse("tagged", "with onTimeout=\"skip\" there is no output after a timeout");
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
    let waits =
        matches!(work, Work::Approval(_) | Work::Timer(_) | Work::Event(_) | Work::Continue(_));
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
