//! Reading the `README.md` of a result bundle, within limits.

use base64::Engine as _;
use serde_json::{Map, Value};
use stockade_core::BundleLimits;

use super::{Error, Limit, too_large};
use crate::path::RelativePath;

/// Smithers, "Run ID length", in characters.
const RUN_ID_CHARACTERS: usize = 256;
/// Smithers, "Output JSON depth".
const OUTPUT_DEPTH: usize = 16;
/// Smithers, "Output array length".
const OUTPUT_ARRAY_ITEMS: usize = 512;
/// Smithers, "Output string length": 64 KB.
const OUTPUT_STRING_BYTES: usize = 64 << 10;

/// How a child run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// It ran to completion.
    Finished,
    /// It failed.
    Failed,
    /// It was cancelled.
    Cancelled,
}

/// The manifest of a result bundle.
#[derive(Debug, Clone, PartialEq)]
pub struct SandboxManifest {
    /// How the child run ended.
    pub status: Status,
    /// The child run's id.
    pub run_id: Option<String>,
    /// The value that it returns; `null` if the manifest has none.
    pub outputs: Value,
    /// The files below `patches/` that it lists, in its order.
    pub patches: Vec<RelativePath>,
    /// The changes to apply.
    pub diff_bundle: Option<DiffBundle>,
}

/// Changes in the form of a manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiffBundle {
    /// Its sequence number within one run.
    pub seq: u64,
    /// The commit that the changes are based on.
    pub base_ref: String,
    /// The changes.
    pub patches: Vec<DiffPatch>,
}

/// One changed file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiffPatch {
    /// The path of the file.
    pub path: RelativePath,
    /// The kind of change.
    pub operation: Operation,
    /// A unified diff in git's format; not yet compared with `path` and `operation`.
    pub diff: String,
    /// The new content of a binary file.
    pub binary_content: Option<Vec<u8>>,
}

/// The kind of change of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// It is new.
    Add,
    /// It was changed.
    Modify,
    /// It was removed.
    Delete,
}

impl SandboxManifest {
    /// Reads the bytes of a `README.md`, whose size the caller has checked. Any bytes result in
    /// a manifest within the limits, or in an error that says what is wrong.
    pub fn parse(bytes: &[u8], limits: &BundleLimits) -> Result<Self, Error> {
        parse(bytes, limits)
    }
}

fn parse(bytes: &[u8], limits: &BundleLimits) -> Result<SandboxManifest, Error> {
    let value: Value = serde_json::from_slice(bytes).map_err(|error| invalid(error.to_string()))?;
    let Value::Object(mut object) = value else { return Err(invalid("not a JSON object")) };
    let status = match object.get("status").and_then(Value::as_str) {
        Some("finished") => Status::Finished,
        Some("failed") => Status::Failed,
        Some("cancelled") => Status::Cancelled,
        _ => return Err(invalid("status must be finished, failed or cancelled")),
    };
    let run_id = match object.remove("runId") {
        None | Some(Value::Null) => None,
        Some(Value::String(id)) if id.chars().count() > RUN_ID_CHARACTERS => {
            return Err(too_large(Limit::RunIdCharacters, RUN_ID_CHARACTERS as u64, limits));
        }
        Some(Value::String(id)) => Some(id),
        Some(_) => return Err(invalid("runId is not a string")),
    };
    let outputs = object.remove("outputs").unwrap_or_default();
    check_output(&outputs, OUTPUT_DEPTH, limits)?;
    let patches = match object.remove("patches") {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(patches)) => listed_patches(&patches, limits)?,
        Some(_) => return Err(invalid("patches is not an array")),
    };
    let diff_bundle = match object.remove("diffBundle") {
        None | Some(Value::Null) => None,
        Some(Value::Object(diff)) => Some(diff_bundle(diff, limits)?),
        Some(_) => return Err(invalid("diffBundle is not an object")),
    };
    Ok(SandboxManifest { status, run_id, outputs, patches, diff_bundle })
}

/// `depth` is the remaining nesting depth of arrays and objects.
fn check_output(value: &Value, depth: usize, limits: &BundleLimits) -> Result<(), Error> {
    let deeper = || {
        depth
            .checked_sub(1)
            .ok_or_else(|| too_large(Limit::OutputDepth, OUTPUT_DEPTH as u64, limits))
    };
    match value {
        Value::Array(items) => {
            let depth = deeper()?;
            if items.len() > OUTPUT_ARRAY_ITEMS {
                let at_most = OUTPUT_ARRAY_ITEMS as u64;
                return Err(too_large(Limit::OutputArrayItems, at_most, limits));
            }
            items.iter().try_for_each(|item| check_output(item, depth, limits))
        }
        Value::Object(fields) => {
            let depth = deeper()?;
            fields.iter().try_for_each(|(name, value)| {
                check_string(name, limits)?;
                check_output(value, depth, limits)
            })
        }
        Value::String(text) => check_string(text, limits),
        Value::Null | Value::Bool(_) | Value::Number(_) => Ok(()),
    }
}

fn check_string(text: &str, limits: &BundleLimits) -> Result<(), Error> {
    if text.len() > OUTPUT_STRING_BYTES {
        return Err(too_large(Limit::OutputStringBytes, OUTPUT_STRING_BYTES as u64, limits));
    }
    Ok(())
}

fn listed_patches(values: &[Value], limits: &BundleLimits) -> Result<Vec<RelativePath>, Error> {
    if values.len() as u64 > limits.entries {
        return Err(too_large(Limit::Patches, limits.entries, limits));
    }
    values
        .iter()
        .map(|value| {
            let text = value.as_str().ok_or_else(|| invalid("a patch is not a path"))?;
            let path = confined(text, "patches/", limits)?;
            match path.as_bytes().starts_with(b"patches/") {
                true => Ok(path),
                false => Err(escape(text, "patches/")),
            }
        })
        .collect()
}

fn diff_bundle(mut object: Map<String, Value>, limits: &BundleLimits) -> Result<DiffBundle, Error> {
    check_fields("diffBundle", &object, &["seq", "baseRef", "patches"])?;
    let seq = object
        .get("seq")
        .and_then(Value::as_u64)
        .ok_or_else(|| invalid("diffBundle.seq is not a whole number"))?;
    let base_ref = text(&mut object, "baseRef")?;
    let Some(Value::Array(patches)) = object.remove("patches") else {
        return Err(invalid("diffBundle.patches is not an array"));
    };
    if patches.len() as u64 > limits.entries {
        return Err(too_large(Limit::Patches, limits.entries, limits));
    }
    let patches =
        patches.into_iter().map(|patch| diff_patch(patch, limits)).collect::<Result<_, _>>()?;
    Ok(DiffBundle { seq, base_ref, patches })
}

/// Refuses unknown fields: what they say about a change would be ignored.
fn check_fields(what: &str, object: &Map<String, Value>, known: &[&str]) -> Result<(), Error> {
    let is_unknown =
        |(name, value): &(&String, &Value)| !known.contains(&name.as_str()) && !value.is_null();
    match object.iter().find(is_unknown) {
        Some((name, _)) => {
            let name = name.escape_debug();
            Err(invalid(format!("{what} has no `{name}`: it has {}", known.join(", "))))
        }
        None => Ok(()),
    }
}

fn diff_patch(value: Value, limits: &BundleLimits) -> Result<DiffPatch, Error> {
    let Value::Object(mut object) = value else {
        return Err(invalid("a patch of diffBundle is not an object"));
    };
    let known = ["path", "operation", "diff", "binaryContent"];
    check_fields("a patch of diffBundle", &object, &known)?;
    let path = confined(&text(&mut object, "path")?, "the project", limits)?;
    let operation = match object.get("operation").and_then(Value::as_str) {
        Some("add") => Operation::Add,
        Some("modify") => Operation::Modify,
        Some("delete") => Operation::Delete,
        _ => return Err(invalid("an operation must be add, modify or delete")),
    };
    let diff = text(&mut object, "diff")?;
    let binary_content = match object.remove("binaryContent") {
        None | Some(Value::Null) => None,
        Some(Value::String(encoded)) => Some(
            base64::engine::general_purpose::STANDARD
                .decode(encoded)
                .map_err(|_| invalid("a binaryContent is not base64"))?,
        ),
        Some(_) => return Err(invalid("a binaryContent is not a string")),
    };
    Ok(DiffPatch { path, operation, diff, binary_content })
}

fn confined(
    text: &str,
    inside: &'static str,
    limits: &BundleLimits,
) -> Result<RelativePath, Error> {
    if text.len() as u64 > limits.path_bytes {
        return Err(too_large(Limit::PathBytes, limits.path_bytes, limits));
    }
    RelativePath::new(text).map_err(|_| escape(text, inside))
}

fn text(object: &mut Map<String, Value>, name: &str) -> Result<String, Error> {
    match object.remove(name) {
        Some(Value::String(text)) => Ok(text),
        _ => Err(invalid(format!("{name} is not a string"))),
    }
}

fn escape(path: &str, inside: &'static str) -> Error {
    Error::Escape { path: stockade_core::printable::escaped(path).into_owned(), inside }
}

fn invalid(reason: impl Into<String>) -> Error {
    Error::Manifest { reason: reason.into() }
}
