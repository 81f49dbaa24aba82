//! Links to the playground: that of the running server, else that of the reference. The snippet is in
//! the fragment of the URL, which browsers do not send. No server is contacted to create one.

use std::sync::OnceLock;

use async_trait::async_trait;
use serde_json::{Map, Value, json};
use stockade_snippet::SourceFile;
use url::form_urlencoded::byte_serialize;

use super::lz::compress;
use super::{Call, Description, Effects, Interrupt, Tool, ToolResult, object};

/// The page on which a snippet is shown and edited.
const PREVIEW: &str = "https://directive.run/playground";
/// The page on which it runs immediately.
const INSTANT: &str = "https://directive.run/run";
/// The origin of the running server, if there is one.
static ORIGIN: OnceLock<String> = OnceLock::new();

/// Links lead to the playground of this origin from now on.
pub fn use_playground_of(origin: String) {
    // A process serves, or uses, one server.
    let _ = ORIGIN.set(origin);
}

/// The largest snippet in a link, in bytes.
const MAX_BYTES: usize = 8_000;

/// The tool that creates links to the playground.
#[derive(Debug, Clone, Copy)]
pub struct PlaygroundLink;

/// The arguments.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    source: Option<String>,
    files: Option<Vec<SourceFile>>,
    title: Option<String>,
    #[serde(default)]
    mode: Mode,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
enum Mode {
    #[default]
    Preview,
    Instant,
}

/// A link and its content.
#[derive(Debug, serde::Serialize)]
#[serde(rename_all = "camelCase")]
struct Link {
    url: String,
    mode: Mode,
    file_count: usize,
    size_bytes: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<String>,
}

/// Why there is no link, with the code of the reference.
type Refusal = (&'static str, String);

/// The link to a snippet without a title; `None` if it is too long for a link.
pub(super) fn link(source: Option<&str>, files: Option<&[SourceFile]>) -> Option<String> {
    let arguments = Arguments {
        source: source.map(ToOwned::to_owned),
        files: files.map(<[_]>::to_vec),
        ..Arguments::default()
    };
    make(arguments).ok().map(|link| link.url)
}

fn make(arguments: Arguments) -> Result<Link, Refusal> {
    let Arguments { source, files, title, mode } = arguments;
    let (name, text, file_count, size_bytes) = match (source, files) {
        (Some(_), Some(_)) => {
            return Err((
                "both-source-and-files",
                "pass either source or files, not both".to_owned(),
            ));
        }
        (None, None) => return Err(("no-input", "pass source or files".to_owned())),
        (Some(source), None) if source.is_empty() => {
            return Err(("source-empty", "source is empty".to_owned()));
        }
        (Some(source), None) => {
            let size = source.len();
            ("src", source, 1, size)
        }
        (None, Some(files)) => {
            let wrong = files.iter().find(|file| file.path.is_empty() || file.source.is_empty());
            if files.is_empty() || wrong.is_some() {
                return Err(("invalid-file", "every file needs a path and a source".to_owned()));
            }
            let size = files.iter().map(|file| file.source.len()).sum();
            ("files", json!(files).to_string(), files.len(), size)
        }
    };
    if size_bytes > MAX_BYTES {
        let message = format!("the source is {size_bytes} bytes (max {MAX_BYTES})");
        return Err(("source-too-large", message));
    }
    let base = match (mode, ORIGIN.get()) {
        (Mode::Preview, None) => PREVIEW.to_owned(),
        (Mode::Instant, None) => INSTANT.to_owned(),
        (Mode::Preview, Some(origin)) => format!("{origin}/playground"),
        (Mode::Instant, Some(origin)) => format!("{origin}/run"),
    };
    let mut url = format!("{base}#{name}={}", compress(&text));
    if let Some(title) = &title {
        // The encoding of a query, except for spaces.
        let title: String = byte_serialize(title.as_bytes()).collect();
        url.push_str(&format!("&t={}", title.replace('+', "%20")));
    }
    Ok(Link { url, mode, file_count, size_bytes, title })
}

#[async_trait]
impl Tool for PlaygroundLink {
    fn description(&self) -> Description {
        Description {
            name: "playground_link",
            title: "Create a link that opens a snippet in the playground",
            text: "Creates a link that contains a Directive snippet and opens it in the playground. Show it to a user who wants to read, change or run the snippet.".into(),
            input: input_schema(),
            output: output_schema(),
            effects: Effects::READ_ONLY,
            is_long: false,
        }
    }

    async fn call(&self, _: &Call, arguments: Map<String, Value>) -> Result<ToolResult, Interrupt> {
        let arguments = serde_json::from_value(Value::Object(arguments));
        let link = arguments.map_err(|error| ("invalid-file", error.to_string())).and_then(make);
        Ok(match link {
            Ok(link) => {
                let text = serde_json::to_string_pretty(&link).unwrap_or_default();
                let text = format!("<directive-data>\n{text}\n</directive-data>");
                ToolResult::new(text, json!(link))
            }
            Err((code, message)) => {
                ToolResult::error(format!("playground_link failed — {code}: {message}"))
            }
        })
    }
}

fn input_schema() -> Map<String, Value> {
    object(json!({
        "type": "object",
        "properties": {
            "source": { "type": "string", "minLength": 1, "maxLength": MAX_BYTES },
            "files": {
                "type": "array",
                "minItems": 1,
                "items": {
                    "type": "object",
                    "properties": {
                        "path": { "type": "string", "minLength": 1 },
                        "source": { "type": "string", "minLength": 1 }
                    },
                    "required": ["path", "source"],
                    "additionalProperties": false
                }
            },
            "title": { "type": "string" },
            "mode": { "enum": ["preview", "instant"], "default": "preview" }
        },
        "additionalProperties": false
    }))
}

fn output_schema() -> Map<String, Value> {
    object(json!({
        "type": "object",
        "properties": {
            "url": { "type": "string" },
            "mode": { "enum": ["preview", "instant"] },
            "fileCount": { "type": "integer" },
            "sizeBytes": { "type": "integer" },
            "title": { "type": "string" }
        },
        "required": ["url", "mode", "fileCount", "sizeBytes"]
    }))
}
