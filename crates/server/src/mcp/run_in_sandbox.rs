//! The tool `run_in_sandbox`, with the arguments, the response and the texts of the reference.

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::{Map, Value, json};
use stockade_core::Problem;
use stockade_snippet::{ErrorCode, Input, InvalidInput, Payload, Phase, Transcript, UsedLibrary};

use super::{Call, Description, Effects, Interrupt, Tool, ToolResult, object, playground};

/// The longest `source`, in UTF-16 units, as the reference counts.
const MAX_SOURCE: usize = 8_000;
/// The most files.
const MAX_FILES: usize = 10;
/// The longest path, in UTF-16 units.
const MAX_PATH: usize = 120;
/// The allowed timeouts of a snippet, in milliseconds.
const TIMEOUTS_MS: std::ops::RangeInclusive<u64> = 100..=10_000;

const TEXT: &str = "Runs a TypeScript snippet in a sandbox and returns its result: console lines, the facts of its systems after settle(), the values of their derivations, and errors with their code. Call it after generating or changing Directive code, to see how the code behaves. Pass `source` for one file, or `files` with a `src/main.ts`. There are no files and no processes, and a snippet cannot use setTimeout, fetch or eval itself. ";

/// The text about what snippets may import.
fn text(packages: &[String], is_open: bool) -> String {
    let named: String = packages.iter().map(|package| format!(", `{package}`")).collect();
    let network = match is_open {
        true => " Packages may send requests to hosts outside.",
        false => "",
    };
    format!("{TEXT}Imports are `@directive-run/*`{named} and relative `./x.js`.{network}")
}

/// A runner of snippets.
#[async_trait]
pub trait Snippets: Send + Sync {
    /// Runs a snippet to its end. Its failures are part of the transcript.
    ///
    /// # Errors
    /// If snippets cannot be run here.
    async fn run(&self, input: Input) -> Result<Transcript, Problem>;

    /// The packages that snippets may import besides those of Directive.
    fn packages(&self) -> Vec<String> {
        Vec::new()
    }

    /// Whether packages may send requests to other hosts.
    fn is_open(&self) -> bool {
        false
    }
}

#[async_trait]
impl<S: Snippets + ?Sized> Snippets for Arc<S> {
    async fn run(&self, input: Input) -> Result<Transcript, Problem> {
        (**self).run(input).await
    }

    fn packages(&self) -> Vec<String> {
        (**self).packages()
    }

    fn is_open(&self) -> bool {
        (**self).is_open()
    }
}

/// The tool. See the [module](self).
#[derive(Debug)]
pub struct RunInSandbox<S> {
    snippets: S,
    text: String,
    effects: Effects,
}

impl<S: Snippets> RunInSandbox<S> {
    /// The tool for these snippets: its description says what they can do.
    pub fn new(snippets: S) -> Self {
        let is_open = snippets.is_open();
        let text = text(&snippets.packages(), is_open);
        let effects = match is_open {
            true => Effects { is_open_world: true, is_destructive: true, ..Effects::ADDS },
            false => Effects::READ_ONLY,
        };
        Self { snippets, text, effects }
    }
}

#[async_trait]
impl<S: Snippets> Tool for RunInSandbox<S> {
    fn description(&self) -> Description {
        Description {
            name: "run_in_sandbox",
            title: "Execute a Directive snippet and return its observed behavior",
            text: self.text.clone().into(),
            input: input_schema(),
            output: output_schema(),
            effects: self.effects,
            is_long: false,
        }
    }

    async fn call(&self, _: &Call, arguments: Map<String, Value>) -> Result<ToolResult, Interrupt> {
        let input = match input(arguments) {
            Ok(input) => input,
            Err(Refusal { code, message }) => return Ok(failed(code, &message)),
        };
        let link = playground::link(input.source.as_deref(), input.files.as_deref());
        Ok(match self.snippets.run(input).await {
            Ok(transcript) => success(&transcript, link),
            Err(problem) => failed("runtime-error", &problem.message),
        })
    }
}

/// Why arguments are refused.
struct Refusal {
    code: &'static str,
    message: String,
}

fn invalid(message: impl Into<String>) -> Refusal {
    Refusal { code: "input-invalid", message: message.into() }
}

fn too_large(message: impl Into<String>) -> Refusal {
    Refusal { code: "input-too-large", message: message.into() }
}

/// Parses the arguments by the schema, then checks the limits of a payload.
fn input(arguments: Map<String, Value>) -> Result<Input, Refusal> {
    let timeout = arguments.get("timeoutMs");
    if let Some(timeout) = timeout
        && !timeout.as_u64().is_some_and(|timeout| TIMEOUTS_MS.contains(&timeout))
    {
        return Err(invalid("timeoutMs must be an integer from 100 to 10000"));
    }
    let input: Input = serde_json::from_value(Value::Object(arguments))
        .map_err(|error| invalid(error.to_string()))?;
    if let Some(source) = &input.source {
        match source.encode_utf16().count() {
            0 => return Err(invalid("source is empty")),
            length if length > MAX_SOURCE => {
                return Err(too_large(format!("source is {length} characters (max {MAX_SOURCE})")));
            }
            _ => {}
        }
    }
    for file in input.files.iter().flatten() {
        if file.path.encode_utf16().count() > MAX_PATH || !is_path(&file.path) {
            return Err(invalid(format!(
                "file path {:?} is not of 1 to {MAX_PATH} letters, digits, `.`, `_`, `-` and `/`",
                file.path
            )));
        }
    }
    match Payload::new(input.clone()) {
        Ok(_) => Ok(input),
        Err(error @ (InvalidInput::TooManyFiles | InvalidInput::TooLarge(_))) => {
            Err(too_large(error.to_string()))
        }
        Err(error) => Err(invalid(error.to_string())),
    }
}

fn is_path(path: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '/' | '-');
    !path.is_empty() && path.chars().all(plain)
}

fn failed(code: &str, message: &str) -> ToolResult {
    ToolResult::error(format!("run_in_sandbox failed — {code}: {message}"))
}

/// The response text: the fields of the reference, in its order, and `derived`.
#[derive(serde::Serialize)]
#[serde(rename_all = "camelCase")]
struct ToolOutput<'t> {
    logs: &'t [String],
    facts: &'t Map<String, Value>,
    derived: &'t Map<String, Value>,
    errors: &'t [String],
    duration_ms: u64,
    timed_out: bool,
    phase: Phase,
    error_code: Option<ErrorCode>,
    warnings: &'t [String],
    libraries: &'t [UsedLibrary],
    playground_url: Option<&'t str>,
}

fn success(transcript: &Transcript, link: Option<String>) -> ToolResult {
    let output = ToolOutput {
        logs: &transcript.logs,
        facts: &transcript.facts,
        derived: &transcript.derived,
        errors: &transcript.errors,
        duration_ms: transcript.duration_ms,
        timed_out: transcript.timed_out,
        phase: transcript.phase,
        error_code: transcript.error_code,
        warnings: &transcript.warnings,
        libraries: &transcript.libraries,
        playground_url: link.as_deref(),
    };
    // Serializing texts, numbers and maps of them cannot fail.
    let text = serde_json::to_string_pretty(&output).unwrap_or_default();
    // The output of a snippet must not close the tag around it; in JSON, both forms are equal.
    let text = text.replace("</", "<\\/");
    let mut structured = json!(transcript);
    if let Some(fields) = structured.as_object_mut() {
        fields.insert("playgroundUrl".to_owned(), json!(link));
    }
    ToolResult::new(format!("<directive-data>\n{text}\n</directive-data>"), structured)
}

fn input_schema() -> Map<String, Value> {
    object(json!({
        "type": "object",
        "properties": {
            "source": {
                "type": "string",
                "minLength": 1,
                "maxLength": MAX_SOURCE,
                "description": "One file, which is run. Not together with `files`."
            },
            "files": {
                "type": "array",
                "minItems": 1,
                "maxItems": MAX_FILES,
                "items": {
                    "type": "object",
                    "properties": {
                        "path": { "type": "string", "minLength": 1, "maxLength": MAX_PATH },
                        "source": { "type": "string", "minLength": 1 }
                    },
                    "required": ["path", "source"],
                    "additionalProperties": false
                },
                "description": "Several files, of which `src/main.ts` is run."
            },
            "timeoutMs": {
                "type": "integer",
                "minimum": TIMEOUTS_MS.start(),
                "maximum": TIMEOUTS_MS.end(),
                "description": "Time limit in milliseconds (default: 5000)."
            }
        },
        "additionalProperties": false
    }))
}

fn output_schema() -> Map<String, Value> {
    let texts = || json!({ "type": "array", "items": { "type": "string" } });
    object(json!({
        "type": "object",
        "properties": {
            "logs": texts(),
            "facts": { "type": "object" },
            "derived": { "type": "object" },
            "errors": texts(),
            "durationMs": { "type": "integer", "minimum": 0 },
            "timedOut": { "type": "boolean" },
            "playgroundUrl": { "type": ["string", "null"] },
            "phase": { "type": "string" },
            "errorCode": { "type": ["string", "null"] },
            "warnings": texts(),
            "libraries": { "type": "array", "items": { "type": "object" } }
        },
        "required": [
            "logs", "facts", "derived", "errors", "durationMs", "timedOut", "playgroundUrl"
        ]
    }))
}
