//! Reads the attribute `agent` if it is a command.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Map, Value};
use stockade_api::CommandLine;

use super::props::{Props, function_of};
use crate::graph::agent::{Command, Program, Variables};
use crate::graph::function::Function;

const KEYS: [&str; 11] = [
    "adapter",
    "args",
    "command",
    "env",
    "id",
    "image",
    "maxOutputBytes",
    "model",
    "network",
    "systemPrompt",
    "timeoutMs",
];

/// Reads the agent of a task; `None` if it is not a command.
pub(super) fn command(props: &mut Props<'_>) -> Option<Command> {
    let found = props.take_tagged("agent", "agent")?;
    Some(from(props, found))
}

/// Reads a command from its description.
pub(super) fn from(props: &mut Props<'_>, mut found: Map<String, Value>) -> Command {
    found.remove("$");
    let read = function_of(&found, "read");
    found.remove("read");
    props.check_fields("agent", &found, &KEYS);
    let mut found = Fields { found, props };
    Command {
        program: found.program(),
        model: found.text("model"),
        arguments: found.texts("args"),
        image: found.text("image"),
        environment: Variables(found.variables()),
        timeout: found.timeout(),
        output_bytes: found.bytes("maxOutputBytes"),
        network: found.flag("network"),
        system_prompt: found.text("systemPrompt"),
        read: read.unwrap_or(Function(0)),
    }
}

/// The fields of an agent, which are taken one by one.
struct Fields<'a, 'b> {
    found: Map<String, Value>,
    props: &'a mut Props<'b>,
}

impl Fields<'_, '_> {
    fn take(&mut self, name: &str) -> Option<Value> {
        self.found.remove(name).filter(|value| !value.is_null())
    }

    fn type_fault<T: Default>(&mut self, name: &str, expected: &str) -> T {
        self.props.fault(format!("`agent.{name}` must be {expected}"));
        T::default()
    }

    fn text(&mut self, name: &str) -> Option<String> {
        match self.take(name)? {
            Value::String(text) if !text.is_empty() => Some(text),
            _ => self.type_fault(name, "a string"),
        }
    }

    fn texts(&mut self, name: &str) -> Vec<String> {
        match self.take(name).map(string_list) {
            None => Vec::new(),
            Some(Some(texts)) => texts,
            Some(None) => self.type_fault(name, "a list of strings"),
        }
    }

    fn flag(&mut self, name: &str) -> bool {
        match self.take(name) {
            None => false,
            Some(Value::Bool(flag)) => flag,
            Some(_) => self.type_fault(name, "true or false"),
        }
    }

    fn bytes(&mut self, name: &str) -> Option<u64> {
        match self.take(name)?.as_u64() {
            Some(bytes) if bytes > 0 => Some(bytes),
            _ => self.type_fault(name, "a whole number of bytes above 0"),
        }
    }

    fn timeout(&mut self) -> Option<Duration> {
        let milliseconds = self.take("timeoutMs")?.as_f64().filter(|number| *number > 0.0);
        let length =
            milliseconds.and_then(|number| Duration::try_from_secs_f64(number / 1_000.0).ok());
        if length.is_none() {
            return self.type_fault("timeoutMs", "a number of milliseconds above 0");
        }
        length
    }

    fn variables(&mut self) -> BTreeMap<String, String> {
        let Some(found) = self.take("env") else { return BTreeMap::new() };
        let text =
            |(name, value): (&String, &Value)| Some((name.clone(), value.as_str()?.to_owned()));
        let pairs = found.as_object().and_then(|pairs| pairs.iter().map(text).collect());
        pairs.unwrap_or_else(|| self.type_fault("env", "an object with string values"))
    }

    fn program(&mut self) -> Program {
        let line = self.take("command").map(|command| match command {
            Value::String(line) if !line.trim().is_empty() => Some(CommandLine::Shell(line)),
            command => string_list(command)
                .filter(|words| words.first().is_some_and(|word| !word.is_empty()))
                .map(CommandLine::Program),
        });
        match (line, self.text("adapter")) {
            (Some(Some(line)), None) => Program::Line(line),
            (Some(None), None) => {
                self.type_fault::<()>(
                    "command",
                    "a shell command line, or a program and its arguments",
                );
                Program::Adapter(String::new())
            }
            (None, Some(name)) => Program::Adapter(name),
            (found, _) => {
                let what = if found.is_some() { "not both" } else { "exactly one of them" };
                self.props.fault(format!("`agent` has a `command` or an `adapter`: {what}"));
                Program::Adapter(String::new())
            }
        }
    }
}

fn string_list(value: Value) -> Option<Vec<String>> {
    let Value::Array(items) = value else { return None };
    let text = |item: Value| match item {
        Value::String(text) => Some(text),
        _ => None,
    };
    items.into_iter().map(text).collect()
}
