//! Orbiter's file tool: files below directories of a list, in the sandbox.

use async_trait::async_trait;
use serde_json::{Value, json};
use stockade_api::{Bytes, FileContent, FileKind, ListDirectory, ReadFile, Result, WriteFile};
use stockade_core::{Code, Problem};
use stockade_runtime::SandboxPath;
use tokio::io::AsyncReadExt as _;

use super::built_in::FILE_BYTES;
use super::{Handler, ToolCall};
use crate::failure::path_problem;
use crate::paths::{as_bytes, as_path};

/// Reads, writes and lists files: the arguments are an `action` (`read`, `write` or `list`), a
/// `path` and for `write` a `content`. A relative path starts at the first directory.
#[derive(Debug)]
pub struct FilesystemTool {
    roots: Vec<SandboxPath>,
}

impl FilesystemTool {
    /// A tool for the files below these directories.
    ///
    /// # Errors
    /// [`Code::InvalidInput`] for an empty list, [`Code::PathInvalid`] for an invalid path.
    pub fn new(roots: &[&str]) -> Result<Self> {
        if roots.is_empty() {
            return Err(Problem::new(Code::InvalidInput, "a file tool needs at least one root"));
        }
        let roots = roots.iter().map(|root| as_path(&(*root).into())).collect::<Result<_>>()?;
        Ok(Self { roots })
    }

    /// The resolved path, if both it and the path as given are below one of the directories.
    async fn find(&self, call: &ToolCall, text: &str) -> Result<Bytes> {
        let outside = || {
            let message = format!("{text:?} is outside allowed directories");
            Problem::new(Code::AccessDenied, message)
        };
        let first = self.roots.first().ok_or_else(outside)?;
        let path = first.as_path().join(text);
        let mut plain = std::path::PathBuf::new();
        for component in path.components() {
            match component {
                std::path::Component::ParentDir => drop(plain.pop()),
                other => plain.push(other),
            }
        }
        if !self.roots.iter().any(|root| plain.starts_with(root.as_path())) {
            return Err(outside());
        }
        let (owner, sandbox) = (&call.caller.owner, &call.sandbox_id);
        let path = SandboxPath::new(&plain).map_err(|error| path_problem(&error))?;
        let found = call.paths.resolve(owner, sandbox, &path).await?;
        for root in &self.roots {
            let root = call.paths.resolve(owner, sandbox, root).await?;
            if found.as_path().starts_with(root.as_path()) {
                return Ok(Bytes(as_bytes(&found).to_vec()));
            }
        }
        Err(outside())
    }
}

/// A missing file or directory, in Orbiter's terms.
fn missing(what: &'static str, path: &str) -> impl Fn(Problem) -> Problem {
    move |problem| match problem.code {
        Code::FileNotFound => Problem::new(problem.code, format!("{what} not found: {path}")),
        _ => problem,
    }
}

#[async_trait]
impl Handler for FilesystemTool {
    fn is_recorded(&self) -> bool {
        false
    }

    async fn call(&self, call: ToolCall) -> Result<Value> {
        let action = call.text("action")?;
        if !matches!(action, "read" | "write" | "list") {
            let message = format!("Unknown filesystem action: {action}");
            return Err(Problem::new(Code::InvalidInput, message));
        }
        let text = if action == "list" && !call.arguments.contains_key("path") {
            "."
        } else {
            call.text("path")?
        };
        let path = self.find(&call, text).await?;
        let (sandbox_id, service) = (call.sandbox_id.clone(), &call.service);
        match action {
            "read" => {
                let request = ReadFile { sandbox_id, path, offset: 0, length: Some(FILE_BYTES) };
                let read = service.read_file(&call.caller, request).await;
                let FileContent(mut content) = read.map_err(missing("File", text))?;
                let mut bytes = Vec::new();
                content.read_to_end(&mut bytes).await.map_err(|error| {
                    Problem::new(Code::Io, "the file cannot be read").because(error.to_string())
                })?;
                Ok(json!({ "content": Bytes(bytes) }))
            }
            "write" => {
                let content = call.text("content")?.as_bytes().to_vec();
                let request = WriteFile { sandbox_id, path, mode: None, uid: None, gid: None };
                let content = FileContent(Box::pin(std::io::Cursor::new(content)));
                let written = service.write_file(&call.caller, request, content).await?;
                Ok(json!({ "sizeBytes": written.size_bytes }))
            }
            _ => {
                let request = ListDirectory { sandbox_id, path, depth: None };
                let listing = service.list_directory(&call.caller, request).await;
                let mut entries = listing.map_err(missing("Directory", text))?.entries;
                entries.sort_by(|one, other| one.path.0.cmp(&other.path.0));
                let entries = entries.iter().map(|entry| {
                    let path = entry.path.lossy();
                    let name = path.rsplit('/').next().unwrap_or_default();
                    let kind = if entry.kind == FileKind::Directory { "dir" } else { "file" };
                    json!({ "name": name, "type": kind })
                });
                Ok(json!({ "entries": entries.collect::<Vec<_>>() }))
            }
        }
    }
}
