//! The values that no record of a run contains: those of variables, egress contracts and secret
//! bindings. A text is redacted where it enters a record. The validated output of a task is not: the
//! workflow requested it, and other tasks compute with it.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{GeneralPurpose, general_purpose};
use serde_json::{Map, Value};
use stockade_api::Wait;
use stockade_api::variables::{MAX_OUTPUT_BYTES, SECRETS, SERVER, TOOL_TIMEOUT_MS};
use stockade_core::Problem;
use stockade_core::smithers_egress::{Contract, REDACTED};

use crate::engine::task_error::TaskError;
use crate::graph::{Graph, Sandbox, Task, Work};
use crate::sync::lock;

/// Shorter values are ignored, because they occur in almost every text.
const LEAST_BYTES: usize = 4;
/// A line of a value, or a part of its base64 form, is only recognized from this length on.
const LEAST_PART_BYTES: usize = 8;
/// The variables of a run that only hold limits, and names that are no secret.
const LIMITS: [&str; 4] = [MAX_OUTPUT_BYTES, TOOL_TIMEOUT_MS, SECRETS, SERVER];
/// The fields of an event by which programs recognize it and find an answer to it. Only Stockade and the
/// author of the workflow write them.
const STRUCTURE: [&str; 20] = [
    "type",
    "runId",
    "nodeId",
    "sandboxId",
    "status",
    "level",
    "bundle",
    "bundles",
    "signal",
    "correlationId",
    "schema",
    "request",
    "runtime",
    "provider",
    "rootRunId",
    "parentRunId",
    "parentSandboxId",
    "stage",
    "stream",
    "transportMs",
];

/// The redaction of one run, shared with the attempts of its tasks.
#[derive(Clone, Default)]
pub(crate) struct Redaction(Arc<Mutex<Forms>>);

#[derive(Default)]
struct Forms {
    values: BTreeSet<String>,
    /// Everything that is replaced, the longest first: a value may contain another one.
    texts: Vec<String>,
}

impl fmt::Debug for Redaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redaction").finish_non_exhaustive()
    }
}

impl Redaction {
    /// Adds the variables of the run itself.
    pub(crate) fn add_environment<'a>(
        &self,
        environment: impl IntoIterator<Item = (&'a String, &'a String)>,
    ) {
        let is_limit = |name: &str| LIMITS.contains(&name);
        let values = environment.into_iter().filter(|(name, _)| !is_limit(name));
        self.add(values.map(|(_, value)| value.as_str()));
    }

    /// Adds the values of all tasks of a rendering.
    pub(crate) fn add_graph(&self, graph: &Graph) {
        for work in graph.tasks().into_iter().flat_map(Task::works) {
            match work {
                Work::Sandbox(sandbox) => self.add_sandbox(sandbox),
                Work::Node(node) => {
                    let variables = node.inputs.get("env").and_then(|env| env.as_object());
                    let values = variables.into_iter().flat_map(|variables| variables.values());
                    self.add(values.filter_map(|value| value.as_str()));
                }
                Work::Command { agent, .. } => {
                    self.add(agent.environment.0.values().map(String::as_str));
                }
                _ => {}
            }
        }
    }

    /// Adds the values of a sandbox.
    pub(crate) fn add_sandbox(&self, sandbox: &Sandbox) {
        self.add(sandbox.env.values().map(String::as_str));
        // A contract that cannot be read fails the task, and its values are reported nowhere.
        let contract = sandbox.egress.as_ref().and_then(|raw| Contract::parse(raw).ok());
        let Some(contract) = contract else { return };
        self.add(contract.env.values().map(String::as_str));
        let bindings = contract.secret_bindings.iter();
        self.add(bindings.flat_map(|(one, other)| [one.as_str(), other.as_str()]));
        let single = [&contract.http_proxy, &contract.https_proxy, &contract.ca_cert_pem];
        self.add(single.into_iter().flatten().map(String::as_str));
    }

    fn add<'a>(&self, values: impl IntoIterator<Item = &'a str>) {
        let mut forms = lock(&self.0);
        let before = forms.values.len();
        let values = values.into_iter().filter(|value| value.trim().len() >= LEAST_BYTES);
        let values: Vec<_> = values.filter(|value| !forms.values.contains(*value)).collect();
        for value in values {
            forms.values.insert(value.to_owned());
            forms.texts.extend(forms_of(value));
        }
        if forms.values.len() > before {
            forms.texts.sort_by(|a, b| (b.len(), b).cmp(&(a.len(), a)));
            forms.texts.dedup();
        }
    }

    /// Redacts a text.
    pub(crate) fn text(&self, text: &mut String) {
        for form in &lock(&self.0).texts {
            if text.contains(form.as_str()) {
                *text = text.replace(form.as_str(), REDACTED);
            }
        }
    }

    /// Redacts the texts in a value that others wrote, and the names of its fields.
    pub(crate) fn value(&self, value: &mut Value) {
        match value {
            Value::String(text) => self.text(text),
            Value::Array(items) => items.iter_mut().for_each(|item| self.value(item)),
            Value::Object(fields) => {
                for (mut name, mut value) in std::mem::take(fields) {
                    // Stockade's own fields in a heartbeat.
                    if !STRUCTURE.contains(&name.as_str()) {
                        self.text(&mut name);
                    }
                    self.value(&mut value);
                    fields.insert(name, value);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    /// Redacts the values of an object whose names are Stockade's, except for some fields.
    fn fields(&self, fields: &mut Map<String, Value>, except: &[&str]) {
        for (name, value) in fields {
            match name.as_str() {
                name if except.contains(&name) => {}
                "error" => self.error(value),
                _ => self.value(value),
            }
        }
    }

    /// Redacts an event.
    pub(crate) fn event(&self, event: &mut Value) {
        match event {
            Value::Object(fields) => self.fields(fields, &STRUCTURE),
            other => self.value(other),
        }
    }

    /// Redacts what a command wrote for people.
    pub(crate) fn bytes(&self, bytes: &mut Vec<u8>) {
        let mut text = String::from_utf8_lossy(bytes).into_owned();
        self.text(&mut text);
        *bytes = text.into_bytes();
    }

    /// Redacts the questions of a child. Its names stay: they are needed for the answers.
    pub(crate) fn waits(&self, waits: &mut [Wait]) {
        for wait in waits {
            let texts = match wait {
                Wait::Approval { label, title, summary, .. } => [label, title, summary].map(Some),
                Wait::Signal { label, .. } => [Some(label), None, None],
                Wait::Timer { .. } | Wait::Sandbox { .. } => continue,
            };
            texts.into_iter().flatten().flatten().for_each(|text| self.text(text));
        }
    }

    /// Redacts a problem.
    pub(crate) fn problem(&self, mut problem: Problem) -> Problem {
        let others = [&mut problem.cause, &mut problem.remediation];
        others.into_iter().flatten().for_each(|text| self.text(text));
        self.text(&mut problem.message);
        problem
    }

    /// Redacts the stored form of a failure.
    pub(crate) fn error(&self, error: &mut Value) {
        match error {
            Value::Object(fields) => self.fields(fields, &["code", "task"]),
            other => self.value(other),
        }
    }

    /// Redacts a failure.
    pub(crate) fn task_error(&self, mut error: TaskError) -> TaskError {
        self.text(&mut error.message);
        error.frames.iter_mut().for_each(|frame| self.text(frame));
        error
    }
}

/// The forms in which programs print a value.
fn forms_of(value: &str) -> Vec<String> {
    let trimmed = value.trim();
    let mut forms = vec![value.to_owned(), trimmed.to_owned()];
    let lines = trimmed.lines().map(str::trim).filter(|line| line.len() >= LEAST_PART_BYTES);
    forms.extend(lines.map(str::to_owned));
    // An error in JSON is often quoted in another one.
    let once = escaped(value);
    forms.push(escaped(&once));
    forms.push(once);
    for is_plain in [is_unreserved as fn(u8) -> bool, is_of_form] {
        let upper = percent(trimmed, is_plain);
        forms.push(lower_percent(&upper));
        forms.push(upper);
    }
    let hex: String = trimmed.bytes().map(|byte| format!("{byte:02x}")).collect();
    forms.push(hex.to_uppercase());
    forms.push(hex);
    for text in [value, trimmed] {
        forms.extend(in_base64(text.as_bytes()));
    }
    forms.retain(|form| form.len() >= LEAST_BYTES);
    forms
}

/// A text as JSON writes it, without the quotes.
fn escaped(text: &str) -> String {
    let quoted = Value::from(text).to_string();
    quoted.get(1..quoted.len() - 1).unwrap_or_default().to_owned()
}

const fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

/// `encodeURIComponent` of JavaScript leaves these too.
const fn is_of_form(byte: u8) -> bool {
    is_unreserved(byte) || matches!(byte, b'!' | b'*' | b'\'' | b'(' | b')')
}

fn percent(text: &str, is_plain: fn(u8) -> bool) -> String {
    let byte = |byte: u8| match byte {
        byte if is_plain(byte) => char::from(byte).to_string(),
        byte => format!("%{byte:02X}"),
    };
    text.bytes().map(byte).collect()
}

/// The same with small letters after each `%`.
fn lower_percent(text: &str) -> String {
    let mut left = 0_u8;
    let character = |character: char| {
        if character == '%' {
            left = 2;
            return character;
        }
        let is_digit = left > 0;
        left = left.saturating_sub(1);
        if is_digit { character.to_ascii_lowercase() } else { character }
    };
    text.chars().map(character).collect()
}

/// The base64 forms of a value: by itself, and as a part of a longer text, of which only the characters
/// count that depend on nothing else.
fn in_base64(value: &[u8]) -> Vec<String> {
    let config = general_purpose::NO_PAD;
    let mut forms = Vec::new();
    for alphabet in [alphabet::STANDARD, alphabet::URL_SAFE] {
        let engine = GeneralPurpose::new(&alphabet, config);
        forms.push(engine.encode(value));
        for before in 0..3_usize {
            let mut bytes = vec![0; before];
            bytes.extend_from_slice(value);
            let text = engine.encode(&bytes);
            let part = text.get((before * 8).div_ceil(6)..bytes.len() * 8 / 6);
            forms.extend(part.filter(|part| part.len() >= LEAST_PART_BYTES).map(str::to_owned));
        }
    }
    forms
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(values: &[&str]) -> Redaction {
        let redaction = Redaction::default();
        redaction.add(values.iter().copied());
        redaction
    }

    fn redacted(values: &[&str], text: &str) -> String {
        let mut text = text.to_owned();
        of(values).text(&mut text);
        text
    }

    #[test]
    fn a_value_is_found_in_the_forms_in_which_programs_print_it() {
        let value = "pä\"ss w/ord\n+&?";
        let base64 = |text: &str| general_purpose::STANDARD.encode(text);
        for text in [
            value.to_owned(),
            format!("before {value} after"),
            json!(value).to_string(),
            json!({ "message": json!({ "value": value }).to_string() }).to_string(),
            "p%C3%A4%22ss%20w%2Ford%0A%2B%26%3F".to_owned(),
            "p%c3%a4%22ss%20w%2ford%0a%2b%26%3f".to_owned(),
            base64(value),
            base64(&format!("user:{value}")),
            base64(&format!("x{value}y")),
            base64(&format!("xy{value}z")),
            general_purpose::URL_SAFE_NO_PAD.encode(value),
            "70c3a42273732077 2f6f72640a2b263f".replace(' ', ""),
        ] {
            let left = redacted(&[value], &text);
            assert!(left.contains(REDACTED), "{text}: {left}");
            assert!(!left.contains("w/ord") && !left.contains("2Ford"), "{text}: {left}");
        }
    }

    #[test]
    fn each_line_of_a_value_is_one_that_is_not_printed() {
        let key = "-----BEGIN KEY-----\nMIIEvQIBADANBgkq\n-----END KEY-----\n";
        let left = redacted(&[key], "  | -----BEGIN KEY-----\n  | MIIEvQIBADANBgkq\n");
        assert!(!left.contains("MIIE") && !left.contains("BEGIN"), "{left}");
    }

    #[test]
    fn the_longest_value_counts_and_short_ones_do_not() {
        assert_eq!(redacted(&["canary", "canary-42"], "canary-42"), REDACTED);
        assert_eq!(redacted(&["1", "abc", "    "], "1 abc     "), "1 abc     ");
    }

    #[test]
    fn the_structure_of_an_event_stays() {
        let redaction = of(&["NodeFailed", "canary-42", "error", "message", "FAILED"]);
        let mut event = json!({
            "type": "NodeFailed", "attempt": 1, "signal": "message",
            "error": { "code": "FAILED", "message": "canary-42", "frames": ["at canary-42"] },
            "data": { "stage": "error", "canary-42": ["NodeFailed"] },
        });
        redaction.event(&mut event);
        let expected = json!({
            "type": "NodeFailed", "attempt": 1, "signal": "message",
            "error": { "code": "FAILED", "message": REDACTED, "frames": [format!("at {REDACTED}")] },
            "data": { "stage": REDACTED, REDACTED: [REDACTED] },
        });
        assert_eq!(event, expected);
    }

    #[test]
    fn limits_are_no_secrets() {
        let redaction = Redaction::default();
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let environment = std::collections::BTreeMap::from([
            pair(MAX_OUTPUT_BYTES, "200000"),
            pair("TOKEN", "canary-42"),
        ]);
        redaction.add_environment(&environment);
        let mut text = "canary-42 of 200000".to_owned();
        redaction.text(&mut text);
        assert_eq!(text, format!("{REDACTED} of 200000"));
        assert!(!format!("{redaction:?}").contains("canary"));
    }
}
