//! The request of a child for a nested sandbox: a request bundle as in the documentation of
//! `<Sandbox>`, with a description of the sandbox. It is written in the enclosing sandbox, and read on
//! the host as untrusted input: any process in that sandbox may have written it.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use stockade_bundle::RelativePath;
use stockade_bundle::beneath::{Dir, FileKind};
use stockade_bundle::sandbox::{Request, write_request};
use stockade_core::BundleLimits;
use stockade_core::smithers_egress::Contract;

use crate::engine::sandbox::request::NESTED;
use crate::engine::task_error::TaskError;
use crate::graph::{OnLimit, Sandbox, ToolLimits};
use crate::schedule::Key;

/// The two directories of a nested sandbox.
pub(super) const REQUEST: &str = "request";
pub(super) const RESULT: &str = "result";
/// The file with the description of the sandbox.
const SANDBOX: &str = "sandbox.json";
/// The largest such file.
const SANDBOX_BYTES: u64 = 1 << 20;
const INPUT: &str = "input.json";
/// The files of a child's program. No other files are read from a request.
const PROGRAM: [&str; 2] = ["bundle.tsx", "bundle.json"];
/// The length of a name, in hexadecimal digits.
const NAME_BYTES: usize = 40;
/// The longest node, including the ids of the runs that contain it.
const NODE_BYTES: usize = 200;
/// The maximum number of attempts of one sandbox.
const MAX_ATTEMPTS: u32 = 10_000;

/// Identifies an attempt of a nested sandbox among those of its child.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct NestedId {
    /// Identifies the attempt among those of the child. Its directory has this name.
    pub(crate) name: String,
    /// The id of the task, preceded by the ids of the child's descendant runs that contain it,
    /// separated by `/`.
    pub(crate) node: String,
    pub(crate) iteration: u32,
    pub(crate) attempt: u32,
}

/// A request for a nested sandbox.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct NestedRequest {
    pub(crate) id: NestedId,
    pub(crate) sandbox: Sandbox,
    pub(crate) timeout: Option<Duration>,
    /// The child's program; empty if a command is executed.
    pub(crate) program: BTreeMap<String, Vec<u8>>,
}

/// The content of `sandbox.json`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct SandboxFile {
    sandbox: NestedId,
    config: Map<String, Value>,
    #[serde(default)]
    waits_for_place: bool,
    #[serde(default)]
    timeout_ms: Option<u64>,
    #[serde(default)]
    max_output_bytes: Option<u64>,
    #[serde(default)]
    tool_timeout_ms: Option<u64>,
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn refused(message: impl std::fmt::Display) -> TaskError {
    TaskError::new("INVALID_INPUT", format!("the request of a nested <Sandbox>: {message}"))
}

fn relative(path: &str) -> Result<RelativePath, TaskError> {
    RelativePath::new(path)
        .map_err(|error| TaskError::new("TOOL_PATH_ESCAPE", format!("{path:?}: {error}")))
}

impl NestedId {
    pub(crate) fn new(name: &str, key: &Key, attempt: u32) -> Self {
        let (name, node) = (name.to_owned(), key.node.clone());
        Self { name, node, iteration: key.iteration, attempt }
    }

    /// Checks that the id can be a part of a path, and of another id.
    ///
    /// # Errors
    /// `INVALID_INPUT` if it cannot.
    pub(crate) fn check(self) -> Result<Self, TaskError> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.@=:".contains(&byte);
        let is_id = |id: &str| !id.is_empty() && !id.starts_with('.') && id.bytes().all(is_plain);
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        let is_good = self.node.len() <= NODE_BYTES
            && self.node.split('/').all(is_id)
            && self.name.len() == NAME_BYTES
            && self.name.bytes().all(is_digit)
            && (1..=MAX_ATTEMPTS).contains(&self.attempt);
        if is_good {
            return Ok(self);
        }
        let node: String = self.node.chars().take(NODE_BYTES).collect();
        Err(refused(format!(
            "the identity of {node:?} is invalid: a node has at most {NODE_BYTES} letters, digits, `-`, `_`, `.`, `:` and `=`, a name {NAME_BYTES} hexadecimal digits, and an attempt is a number up to {MAX_ATTEMPTS}"
        )))
    }

    /// Its directory, relative to the child's result.
    pub(crate) fn directory(&self) -> String {
        format!("{NESTED}/{}", self.name)
    }
}

impl NestedRequest {
    /// Writes the request into an empty directory.
    ///
    /// # Errors
    /// If the request exceeds the limits of request bundles.
    pub(super) fn write(&self, dir: &Dir) -> Result<(), TaskError> {
        let sandbox = &self.sandbox;
        let described = SandboxFile {
            sandbox: self.id.clone(),
            config: sandbox.config.clone(),
            waits_for_place: sandbox.on_limit == OnLimit::Wait,
            timeout_ms: self.timeout.map(milliseconds),
            max_output_bytes: sandbox.tools.output_bytes,
            tool_timeout_ms: sandbox.tools.timeout.map(milliseconds),
        };
        let described = serde_json::to_vec(&described).map_err(refused)?;
        let mut files = vec![
            (relative(SANDBOX)?, described),
            (relative(INPUT)?, sandbox.input.to_string().into_bytes()),
        ];
        for (name, content) in &self.program {
            files.push((relative(name)?, content.clone()));
        }
        let request = Request {
            sandbox_id: &self.id.node,
            provider: None,
            runtime: sandbox.runtime.as_deref(),
            input: &sandbox.input,
            lineage: None,
            files: &files,
        };
        write_request(dir, &request)
            .map(drop)
            .map_err(|error| TaskError::new(error.code(), error.to_string()))
    }

    /// Reads the request with this id from a copy of the directory that was written in the sandbox.
    ///
    /// # Errors
    /// `INVALID_INPUT` and `TOOL_PATH_ESCAPE` for invalid requests.
    pub(crate) fn read(dir: &Dir, id: &NestedId) -> Result<Self, TaskError> {
        let id = id.clone().check()?;
        let described = file(dir, SANDBOX, SANDBOX_BYTES)?;
        let described = described.ok_or_else(|| refused(format!("it has no {SANDBOX}")))?;
        let described: SandboxFile = serde_json::from_slice(&described).map_err(refused)?;
        if described.sandbox.name != id.name {
            return Err(refused("it belongs to another sandbox"));
        }
        let manifest = BundleLimits::SANDBOX.manifest_bytes;
        let input = file(dir, INPUT, manifest)?.unwrap_or_else(|| b"null".to_vec());
        let input: Value = serde_json::from_slice(&input).map_err(refused)?;
        let sandbox = Sandbox::of_config(described.config, input);
        let mut sandbox = sandbox.map_err(|faults| {
            refused(faults.first().map_or("it is empty", |fault| fault.message.as_str()))
        })?;
        sandbox.tools = ToolLimits {
            output_bytes: described.max_output_bytes,
            timeout: described.tool_timeout_ms.map(Duration::from_millis),
        };
        if described.waits_for_place {
            sandbox.on_limit = OnLimit::Wait;
        }
        // A contract that cannot be read is rejected before anything is created.
        sandbox.egress.as_ref().map(Contract::parse).transpose().map_err(refused)?;
        let mut program = BTreeMap::new();
        for name in PROGRAM {
            if let Some(content) = file(dir, name, BundleLimits::SANDBOX.total_bytes)? {
                program.insert(name.to_owned(), content);
            }
        }
        if program.is_empty() && sandbox.command.is_none() {
            return Err(refused("it has no workflow and no command"));
        }
        let timeout = described.timeout_ms.map(Duration::from_millis);
        Ok(Self { id, sandbox, timeout, program })
    }
}

/// A file of a request; `None` if it does not exist.
fn file(dir: &Dir, name: &str, most: u64) -> Result<Option<Vec<u8>>, TaskError> {
    let path = relative(name)?;
    match dir.stat(&path)? {
        None => return Ok(None),
        Some(stat) if stat.kind == FileKind::File => {}
        Some(_) => {
            let message = format!("Sandbox bundle may only contain files: {name}");
            return Err(TaskError::new("TOOL_PATH_ESCAPE", message));
        }
    }
    let mut content = Vec::new();
    let read = dir.open_file(&path)?.take(most.saturating_add(1)).read_to_end(&mut content);
    read.map_err(refused)?;
    if content.len() as u64 > most {
        return Err(refused(format!("{name} has more than {most} bytes")));
    }
    Ok(Some(content))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::Path;

    use serde_json::json;

    use super::*;

    fn nested_id() -> NestedId {
        NestedId {
            name: "0123456789abcdef".repeat(3)[..40].to_owned(),
            node: "inner".to_owned(),
            iteration: 2,
            attempt: 3,
        }
    }

    fn nested_request() -> NestedRequest {
        let config = json!({ "allowNested": true, "memoryLimit": "1g", "reviewDiffs": false });
        let Value::Object(config) = config else { panic!("it is an object") };
        let sandbox = Sandbox::of_config(config, json!({ "n": 1 })).unwrap();
        let program = BTreeMap::from([("bundle.tsx".to_owned(), b"export default 1".to_vec())]);
        let tools = ToolLimits { output_bytes: Some(7), timeout: Some(Duration::from_millis(9)) };
        let sandbox = Sandbox { on_limit: OnLimit::Wait, tools, ..sandbox };
        let timeout = Some(Duration::from_secs(5));
        NestedRequest { id: nested_id(), sandbox, timeout, program }
    }

    /// Reads a valid request after `change` was applied to its directory.
    fn read_with(change: impl FnOnce(&Path)) -> Result<NestedRequest, TaskError> {
        let temporary = tempfile::tempdir().unwrap();
        let dir = Dir::open(temporary.path()).unwrap();
        nested_request().write(&dir).unwrap();
        change(temporary.path());
        NestedRequest::read(&dir, &nested_id())
    }

    #[test]
    fn a_request_survives_the_way() {
        assert_eq!(read_with(|_| {}).unwrap(), nested_request());
    }

    #[test]
    fn what_is_no_request_is_refused() {
        let described = |value: Value| {
            move |path: &Path| fs::write(path.join(SANDBOX), value.to_string()).unwrap()
        };
        let all = |more: Value| {
            let mut all = json!({ "sandbox": nested_id(), "config": { "command": "true" } });
            all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            all
        };
        let refusal = |done: Result<NestedRequest, TaskError>| {
            let error = done.unwrap_err();
            assert!(!error.is_retryable);
            (error.code, error.message)
        };
        for (value, expected) in [
            (json!([]), "invalid length"),
            (json!({}), "missing field"),
            (
                all(json!({ "sandbox": NestedId { name: "f".repeat(40), ..nested_id() } })),
                "another",
            ),
            (all(json!({ "more": 1 })), "more"),
            (all(json!({ "config": { "provider": "p" } })), "provider"),
            (all(json!({ "config": { "workflow": { "$": "function", "ref": 1 } } })), "workflow"),
            (all(json!({ "config": { "memoryLimit": 7 } })), "memoryLimit"),
            (all(json!({ "config": { "volumes": [{ "host": 1 }] } })), "volumes"),
            (all(json!({ "config": { "egress": { "httpProxy": 7 } } })), "httpProxy"),
        ] {
            let (code, message) = refusal(read_with(described(value.clone())));
            assert_eq!(code, "INVALID_INPUT", "{value}");
            assert!(message.contains(expected), "{value}: {message}");
        }
        for name in [SANDBOX, INPUT, "bundle.tsx"] {
            let linked = read_with(|path| {
                fs::remove_file(path.join(name)).unwrap();
                symlink("/etc/passwd", path.join(name)).unwrap();
            });
            assert_eq!(refusal(linked).0, "TOOL_PATH_ESCAPE", "{name}");
        }
        let large = read_with(|path| {
            fs::File::create(path.join(SANDBOX)).unwrap().set_len(SANDBOX_BYTES + 1).unwrap();
        });
        assert!(refusal(large).1.contains("more than"));
        let empty = read_with(|path| fs::remove_file(path.join("bundle.tsx")).unwrap());
        assert!(refusal(empty).1.contains("no workflow"));
        let missing = read_with(|path| fs::remove_file(path.join(SANDBOX)).unwrap());
        assert!(refusal(missing).1.contains("no sandbox.json"));
    }

    #[test]
    fn an_id_is_no_path() {
        let long = "x".repeat(NODE_BYTES + 1);
        for node in
            ["", ".", "..", ".hidden", "a/../b", "/a", "a/", "a\0", "a b", "ü", long.as_str()]
        {
            let id = NestedId { node: node.to_owned(), ..nested_id() };
            assert_eq!(id.check().unwrap_err().code, "INVALID_INPUT", "{node:?}");
        }
        for attempt in [0, MAX_ATTEMPTS + 1] {
            assert!(NestedId { attempt, ..nested_id() }.check().is_err());
        }
        for name in ["", "..", "f", &"F".repeat(40), &"/".repeat(40)] {
            assert!(NestedId { name: name.to_owned(), ..nested_id() }.check().is_err());
        }
        assert!(nested_id().check().is_ok());
        assert!(NestedId { node: "flow/inner@@2".to_owned(), ..nested_id() }.check().is_ok());
    }
}
