//! Validates the output of a provider (documentation of `<Sandbox>`, "Result bundles"). It has one of
//! two forms, its texts have limits, and its paths must be below the directories that a result may come
//! from, without links.

use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use serde_json::{Map, Value};
use stockade_bundle::beneath::{self, Dir};
use stockade_bundle::path::RelativePath;
use stockade_bundle::sandbox::{Status, StructuredResult};
use stockade_core::BundleLimits;

use crate::engine::sandbox::remote::RemoteIds;
use crate::engine::task_error::TaskError;
use crate::graph::unknown_field;

/// The maximum length of the id of a remote object, in characters (Smithers, "Run ID length").
const ID_CHARACTERS: usize = 256;

/// The fields of a result.
const FIELDS: [&str; 12] = [
    "bundlePath",
    "status",
    "output",
    "outputs",
    "runId",
    "remoteRunId",
    "workspaceId",
    "containerId",
    "diffBundle",
    "patches",
    "artifacts",
    "streamLogPath",
];

/// The fields of a `diffBundle`.
const DIFF_BUNDLE_FIELDS: [&str; 3] = ["seq", "baseRef", "patches"];
/// The fields of a patch in it.
const DIFF_PATCH_FIELDS: [&str; 4] = ["path", "operation", "diff", "binaryContent"];

/// The directories that a result may come from.
#[derive(Debug, Clone)]
pub(crate) struct ResultRoots {
    /// The project of the run.
    pub(crate) project: PathBuf,
    /// The directory of this sandbox, with its request and its result.
    pub(crate) sandbox: PathBuf,
    /// Directories for temporary files, in which every user may write.
    pub(crate) temporary: Vec<PathBuf>,
}

impl ResultRoots {
    /// The directories for a sandbox whose own directory is `sandbox`, of a run in `project`.
    pub(crate) fn of(project: &Path, sandbox: &Path) -> Self {
        let temporary = vec![std::env::temp_dir(), PathBuf::from("/tmp")];
        Self { project: project.to_owned(), sandbox: sandbox.to_owned(), temporary }
    }
}

/// The output of a provider.
#[derive(Debug)]
pub(crate) struct ProviderOutput {
    pub(crate) result: ProviderResult,
    pub(crate) remote: RemoteIds,
}

/// A result in one of its two forms.
#[derive(Debug)]
pub(crate) enum ProviderResult {
    /// The directory of a bundle that the provider has written. Its content is not validated yet.
    Bundle(Dir),
    /// A result to be written as a bundle, by [`stockade_bundle::sandbox::write_result`].
    Structured(Box<StructuredResult>),
}

/// Reads the output of `run` of a provider. `outputs` takes precedence over `output`, `remoteRunId`
/// over `runId`.
///
/// # Errors
/// `SANDBOX_EXECUTION_FAILED` for an invalid result, `INVALID_INPUT` for an invalid part of a result,
/// `TOOL_PATH_ESCAPE` for a path that leads elsewhere. None of these errors is retried.
pub(crate) fn read(value: Value, roots: &ResultRoots) -> Result<ProviderOutput, TaskError> {
    let Value::Object(mut fields) = value else {
        return Err(failed("Sandbox provider returned an invalid result."));
    };
    check_fields("the result", &fields, &FIELDS)?;
    let status = match text(&mut fields, "status")?.as_deref() {
        Some("finished") => Some(Status::Finished),
        Some("failed") => Some(Status::Failed),
        Some("cancelled") => Some(Status::Cancelled),
        _ => None,
    };
    let bundle = text(&mut fields, "bundlePath")?.filter(|path| !path.is_empty());
    let run_id = id(&mut fields, "runId")?;
    let remote = RemoteIds {
        run_id: id(&mut fields, "remoteRunId")?.or(run_id),
        workspace_id: id(&mut fields, "workspaceId")?,
        container_id: id(&mut fields, "containerId")?,
    };
    let result = match (bundle, status) {
        (Some(_), Some(_)) => {
            return Err(failed(
                "Sandbox provider result must include either bundlePath or status, not both.",
            ));
        }
        (Some(path), None) => ProviderResult::Bundle(directory(&path, roots)?),
        (None, Some(status)) => {
            let result = structured(fields, status, remote.run_id.clone(), roots)?;
            ProviderResult::Structured(Box::new(result))
        }
        (None, None) => {
            return Err(failed(
                "Sandbox provider result must include either bundlePath or status: \
                 \"finished\", \"failed\" or \"cancelled\".",
            ));
        }
    };
    Ok(ProviderOutput { result, remote })
}

fn structured(
    mut fields: Map<String, Value>,
    status: Status,
    run_id: Option<String>,
    roots: &ResultRoots,
) -> Result<StructuredResult, TaskError> {
    let output = fields.remove("output");
    let outputs = fields.remove("outputs").or(output).unwrap_or_default();
    let diff_bundle = match fields.remove("diffBundle") {
        None | Some(Value::Null) => None,
        Some(Value::Object(diff)) => {
            check_diff_bundle(&diff)?;
            Some(Value::Object(diff))
        }
        Some(_) => return Err(invalid("diffBundle is not an object")),
    };
    let patches = files(&mut fields, "patches")?;
    if let Some((path, _)) = patches.iter().find(|(path, _)| {
        !path.starts_with("patches/") || RelativePath::new(path.as_bytes()).is_err()
    }) {
        let message = format!("{path:?} of patches is not a path below patches");
        return Err(TaskError::new("TOOL_PATH_ESCAPE", message));
    }
    let stream_log = text(&mut fields, "streamLogPath")?.filter(|path| !path.is_empty());
    let stream_log = stream_log.map(|path| log(&path, roots)).transpose()?;
    Ok(StructuredResult {
        status,
        outputs,
        run_id,
        patches,
        artifacts: files(&mut fields, "artifacts")?,
        diff_bundle,
        stream_log,
    })
}

fn files(
    fields: &mut Map<String, Value>,
    name: &'static str,
) -> Result<Vec<(String, Vec<u8>)>, TaskError> {
    let files = match fields.remove(name) {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Array(files)) => files,
        Some(_) => return Err(invalid(format!("{name} is not an array"))),
    };
    if files.len() as u64 > BundleLimits::SANDBOX.entries {
        return Err(invalid(format!("{name} has {} files, which is too many", files.len())));
    }
    let file = |file: Value| {
        let mut file = match file {
            Value::Object(file) => file,
            _ => Map::new(),
        };
        let (path, content) = (file.remove("path"), file.remove("content"));
        check_fields(&format!("a file of {name}"), &file, &["path", "content"])?;
        match (path, content) {
            (Some(Value::String(path)), Some(Value::String(content))) => {
                Ok((path, content.into_bytes()))
            }
            _ => Err(invalid(format!(
                "a file of {name} is not {{ path, content }} with two strings"
            ))),
        }
    };
    files.into_iter().map(file).collect()
}

/// Refuses unknown fields of a `diffBundle`. The rest of it is checked where it is used.
fn check_diff_bundle(diff: &Map<String, Value>) -> Result<(), TaskError> {
    check_fields("diffBundle", diff, &DIFF_BUNDLE_FIELDS)?;
    let patches = diff.get("patches").and_then(Value::as_array);
    let mut patches = patches.into_iter().flatten().filter_map(Value::as_object);
    patches.try_for_each(|patch| check_fields("a patch of diffBundle", patch, &DIFF_PATCH_FIELDS))
}

/// Refuses fields that are not known.
fn check_fields(name: &str, fields: &Map<String, Value>, known: &[&str]) -> Result<(), TaskError> {
    let is_unknown =
        |(field, value): &(&String, &Value)| !known.contains(&field.as_str()) && !value.is_null();
    match fields.iter().find(is_unknown) {
        Some((field, _)) => Err(invalid(unknown_field(name, field, known))),
        None => Ok(()),
    }
}

fn text(fields: &mut Map<String, Value>, name: &'static str) -> Result<Option<String>, TaskError> {
    match fields.remove(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(invalid(format!("{name} is not a string"))),
    }
}

fn id(fields: &mut Map<String, Value>, name: &'static str) -> Result<Option<String>, TaskError> {
    let found = text(fields, name)?.filter(|id| !id.is_empty());
    match found {
        Some(id) if id.chars().count() > ID_CHARACTERS => {
            Err(invalid(format!("{name} has more than {ID_CHARACTERS} characters")))
        }
        found => Ok(found),
    }
}

/// A directory that a provider names: in the project, beside the request, or in a directory for
/// temporary files (the documentation has `/tmp/smithers-result-bundle`). In the last case it must
/// belong to this user, because other users may create directories there too.
fn directory(path: &str, roots: &ResultRoots) -> Result<Dir, TaskError> {
    let allowed = [&roots.sandbox, &roots.project];
    let found = below(path, &allowed, &roots.project);
    let is_temporary = found.is_none();
    let temporary = || below(path, &roots.temporary.iter().collect::<Vec<_>>(), &roots.project);
    let (root, inside) = found.or_else(temporary).ok_or_else(|| escape(path))?;
    let opened = Dir::open(root).and_then(|root| root.open_dir(&inside));
    let dir = opened.map_err(|error| refused(path, &error))?;
    if is_temporary {
        let owner = dir.stat_self().map_err(|error| refused(path, &error))?.uid;
        if owner != rustix::process::geteuid().as_raw() {
            let message = format!("{} belongs to another user", display(path));
            return Err(TaskError::new("TOOL_PATH_ESCAPE", message));
        }
    }
    Ok(dir)
}

/// The log that a provider names. It must be in the project, as in upstream.
fn log(path: &str, roots: &ResultRoots) -> Result<Vec<u8>, TaskError> {
    let allowed = [&roots.sandbox, &roots.project];
    let (root, inside) = below(path, &allowed, &roots.project).ok_or_else(|| escape(path))?;
    let file = Dir::open(root).and_then(|root| root.open_file(&inside));
    let file = file.map_err(|error| refused(path, &error))?;
    let limit = BundleLimits::SANDBOX.total_bytes;
    let mut content = Vec::new();
    let read = file.take(limit + 1).read_to_end(&mut content);
    read.map_err(|error| failed(format!("cannot read {}: {error}", display(path))))?;
    if content.len() as u64 > limit {
        return Err(invalid(format!("{} is larger than {limit} bytes", display(path))));
    }
    Ok(content)
}

/// The first of the directories that contains a path, and the rest of the path. Relative paths are
/// relative to the project.
fn below<'p>(
    path: &str,
    roots: &[&'p PathBuf],
    project: &'p Path,
) -> Option<(&'p Path, RelativePath)> {
    let named = Path::new(path);
    let is_way = |part: Component<'_>| !matches!(part, Component::ParentDir);
    if !named.components().all(is_way) {
        return None;
    }
    let below = |root: &&'p PathBuf| Some((root.as_path(), named.strip_prefix(root).ok()?));
    let (root, inside) = match named.is_absolute() {
        true => roots.iter().find_map(below)?,
        false => (project, named),
    };
    let inside: PathBuf = inside.components().filter(|part| *part != Component::CurDir).collect();
    Some((root, RelativePath::new(inside.as_os_str().as_bytes()).ok()?))
}

fn refused(path: &str, error: &beneath::Error) -> TaskError {
    match error {
        beneath::Error::ThroughLink { .. } | beneath::Error::NotRegular { .. } => escape(path),
        error => failed(format!("cannot open {}: {error}", display(path))),
    }
}

fn escape(path: &str) -> TaskError {
    let message =
        format!("{} leads outside the directories that a result may come from", display(path));
    TaskError::new("TOOL_PATH_ESCAPE", message)
}

/// A path as it is displayed in a message.
fn display(path: &str) -> String {
    path.chars().take(ID_CHARACTERS).collect::<String>().escape_debug().to_string()
}

fn invalid(what: impl std::fmt::Display) -> TaskError {
    TaskError::new("INVALID_INPUT", format!("Sandbox provider returned an invalid result: {what}"))
}

fn failed(message: impl Into<String>) -> TaskError {
    TaskError::new("SANDBOX_EXECUTION_FAILED", message)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use serde_json::json;

    use super::*;

    /// A project with its own sandbox, in a directory that results must not come from.
    fn result_roots() -> (tempfile::TempDir, ResultRoots) {
        let base = tempfile::tempdir().unwrap();
        let project = base.path().join("project");
        let sandbox = project.join(".smithers/sandboxes/run/box");
        let temporary = base.path().join("temporary");
        for root in [&sandbox.join("result"), &temporary.join("bundle"), &base.path().join("out")] {
            fs::create_dir_all(root).unwrap();
        }
        fs::write(project.join("log"), "{}\n").unwrap();
        fs::write(base.path().join("out/log"), "no").unwrap();
        symlink("../out", project.join("link")).unwrap();
        symlink("../out/log", project.join("log-link")).unwrap();
        symlink("../out", temporary.join("link")).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, project.join("pipe"), rustix::fs::Mode::RUSR)
            .unwrap();
        (base, ResultRoots { project, sandbox, temporary: vec![temporary] })
    }

    fn code(value: Value, roots: &ResultRoots) -> String {
        let error = read(value, roots).unwrap_err();
        assert!(!error.is_retryable, "{error:?}");
        error.code
    }

    #[test]
    fn a_structured_result_is_read_with_its_precedences() {
        let (_base, roots) = result_roots();
        let value = json!({
            "status": "finished", "output": 1, "outputs": {"a": 2}, "runId": "r",
            "remoteRunId": "vm", "workspaceId": "w", "containerId": "", "streamLogPath": "log",
            "patches": [],
            "artifacts": [{"path": "artifacts/a", "content": "c"}],
            "diffBundle": {"seq": 1, "baseRef": "HEAD", "patches": []}, "more": null,
        });
        let ProviderOutput { result, remote } = read(value, &roots).unwrap();
        let expected = RemoteIds {
            run_id: Some("vm".to_owned()),
            workspace_id: Some("w".to_owned()),
            container_id: None,
        };
        assert_eq!(remote, expected);
        let ProviderResult::Structured(result) = result else { panic!("{result:?}") };
        assert_eq!((result.status, &result.outputs), (Status::Finished, &json!({"a": 2})));
        assert_eq!(result.run_id.as_deref(), Some("vm"));
        assert!(result.patches.is_empty());
        assert_eq!(result.artifacts, [("artifacts/a".to_owned(), b"c".to_vec())]);
        assert_eq!(result.stream_log.as_deref(), Some(b"{}\n".as_slice()));
        assert!(result.diff_bundle.is_some());
        let least = read(json!({"status": "failed", "runId": "r"}), &roots).unwrap();
        let ProviderResult::Structured(result) = least.result else { panic!("{least:?}") };
        assert_eq!((result.status, result.outputs), (Status::Failed, Value::Null));
        assert_eq!(least.remote.run_id.as_deref(), Some("r"));
    }

    #[test]
    fn what_is_no_result_is_refused_with_the_code_of_its_fault() {
        let (_base, roots) = result_roots();
        let with = |name: &str, value: Value| {
            let mut result = json!({"status": "finished"});
            result[name] = value;
            result
        };
        let many: Vec<Value> = (0..1001).map(|_| json!({"path": "a", "content": ""})).collect();
        for (value, expected) in [
            (Value::Null, "SANDBOX_EXECUTION_FAILED"),
            (json!(7), "SANDBOX_EXECUTION_FAILED"),
            (json!([]), "SANDBOX_EXECUTION_FAILED"),
            (json!({}), "SANDBOX_EXECUTION_FAILED"),
            (json!({"status": "running"}), "SANDBOX_EXECUTION_FAILED"),
            (json!({"status": 1}), "INVALID_INPUT"),
            (json!({"bundlePath": 1}), "INVALID_INPUT"),
            (with("bundlePath", json!("temporary")), "SANDBOX_EXECUTION_FAILED"),
            (with("runId", json!(1)), "INVALID_INPUT"),
            (with("workspaceId", json!("x".repeat(257))), "INVALID_INPUT"),
            (with("diffBundle", json!("x")), "INVALID_INPUT"),
            (
                with("diffBundle", json!({"seq": 1, "basRef": "HEAD", "patches": []})),
                "INVALID_INPUT",
            ),
            (
                with("diffBundle", json!({"seq": 1, "baseRef": "", "patches": [{"mode": 1}]})),
                "INVALID_INPUT",
            ),
            (with("patches", json!({})), "INVALID_INPUT"),
            (with("patches", json!([{"path": "patches/a"}])), "INVALID_INPUT"),
            (with("patches", json!([{"path": "patches/../a", "content": ""}])), "TOOL_PATH_ESCAPE"),
            (with("patches", json!([{"path": "artifacts/a", "content": ""}])), "TOOL_PATH_ESCAPE"),
            (with("patches", json!([{"path": "/etc/a", "content": ""}])), "TOOL_PATH_ESCAPE"),
            (with("artifacts", json!([{"path": 1, "content": ""}])), "INVALID_INPUT"),
            (with("artifacts", json!(["artifacts/a"])), "INVALID_INPUT"),
            (with("artifacts", json!(many)), "INVALID_INPUT"),
            (with("streamLogPath", json!(["log"])), "INVALID_INPUT"),
            (with("ouputs", json!({})), "INVALID_INPUT"),
            (
                with("patches", json!([{"path": "patches/a", "content": "", "mode": 1}])),
                "INVALID_INPUT",
            ),
        ] {
            assert_eq!(code(value.clone(), &roots), expected, "{value}");
        }
    }

    #[test]
    fn paths_stay_in_the_places_that_results_come_from() {
        let (base, roots) = result_roots();
        let at = |path: &str| base.path().join(path).display().to_string();
        for path in [
            at("temporary/bundle"),
            at("project/.smithers/sandboxes/run/box/result"),
            ".smithers/sandboxes/run/box/result".to_owned(),
            at("project/./.smithers"),
        ] {
            let found = read(json!({ "bundlePath": path }), &roots).unwrap();
            assert!(matches!(found.result, ProviderResult::Bundle(_)), "{path}");
        }
        for path in [
            "/".to_owned(),
            "/etc".to_owned(),
            "..".to_owned(),
            at("out"),
            at("project"),
            at("temporary"),
            at("temporary/link"),
            at("project/link"),
            at("project/../out"),
            at("projectile"),
            "link".to_owned(),
            "a\0b".to_owned(),
        ] {
            assert_eq!(code(json!({"bundlePath": path}), &roots), "TOOL_PATH_ESCAPE", "{path}");
        }
        for path in ["gone", "log"] {
            let code = code(json!({ "bundlePath": path }), &roots);
            assert_eq!(code, "SANDBOX_EXECUTION_FAILED", "{path}");
        }
        for path in [
            "/etc/passwd".to_owned(),
            at("out/log"),
            at("temporary/bundle"),
            "log-link".to_owned(),
            "link/log".to_owned(),
            "pipe".to_owned(),
            "../out/log".to_owned(),
        ] {
            let value = json!({ "status": "finished", "streamLogPath": path });
            assert_eq!(code(value, &roots), "TOOL_PATH_ESCAPE", "{path}");
        }
    }
}
