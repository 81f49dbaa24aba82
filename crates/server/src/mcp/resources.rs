//! Resources: the bundles that wait for a decision, and the output of commands. A resource of another
//! owner does not exist.

use std::path::PathBuf;
use std::sync::Arc;

use rmcp::model::{ErrorData, Resource, ResourceContents, ResourceTemplate};
use serde_json::json;
use stockade_api::{
    Caller, DiffBundle, ListBundles, ListCommands, ListedBundle, OperationId, OutputChunk, Problem,
    ReadOutput, Sandboxes, ShowBundle,
};
use stockade_core::{Code, SandboxId};

use super::untrusted::{Ends, fenced, line};

/// How many bytes of a resource are shown.
const BYTES: usize = 256 << 10;
/// How many commands are listed.
const COMMANDS: usize = 100;
/// The largest number of characters of an id.
const ID: usize = 128;

const BUNDLES: &str = "stockade://bundles/";
const COMMAND_LOGS: &str = "stockade://commands/";
const DIFF: &str = "/diff";
const LOG: &str = "/log";
const JSON: &str = "application/json";
const TEXT: &str = "text/plain";
const PATCH: &str = "text/x-diff";

/// The resources of a server.
#[derive(Debug, Clone)]
pub struct Resources {
    sandboxes: Arc<dyn Sandboxes>,
    /// Only the bundles of this project, and the commands of this sandbox.
    only: Option<(PathBuf, SandboxId)>,
}

/// What an URI names.
#[derive(Debug, PartialEq, Eq)]
enum Named<'u> {
    Bundle(&'u str),
    Diff(&'u str),
    Log(&'u str),
}

/// The URI and MIME type of a bundle's diff.
pub(super) fn diff_uri(id: &str) -> (String, &'static str) {
    (format!("{BUNDLES}{id}{DIFF}"), PATCH)
}

/// The URI and MIME type of a command's output.
pub(super) fn log_uri(id: &OperationId) -> (String, &'static str) {
    (format!("{COMMAND_LOGS}{id}{LOG}"), TEXT)
}

/// The patterns of URIs.
pub(super) fn templates() -> Vec<ResourceTemplate> {
    [
        ("{id}", "bundle", "Properties and changed paths of a bundle", BUNDLES, JSON),
        ("{id}/diff", "bundle-diff", "The changed lines of a bundle", BUNDLES, PATCH),
        ("{id}/log", "command-log", "The output of a command", COMMAND_LOGS, TEXT),
    ]
    .into_iter()
    .map(|(path, name, description, base, mime_type)| {
        ResourceTemplate::new(format!("{base}{path}"), name)
            .with_description(description)
            .with_mime_type(mime_type)
    })
    .collect()
}

impl Resources {
    /// Everything of an owner.
    pub fn new(sandboxes: Arc<dyn Sandboxes>) -> Self {
        Self { sandboxes, only: None }
    }

    /// Only the bundles of a project, and the commands of a sandbox.
    pub fn of_workspace(
        sandboxes: Arc<dyn Sandboxes>,
        project: PathBuf,
        sandbox: SandboxId,
    ) -> Self {
        Self { sandboxes, only: Some((project, sandbox)) }
    }

    pub(super) async fn list(&self, caller: &Caller) -> Result<Vec<Resource>, ErrorData> {
        let stored = ListBundles { stored_only: true, ..ListBundles::default() };
        let bundles = self.sandboxes.bundles(caller, stored).await.map_err(failed)?;
        let commands =
            ListCommands { sandbox_id: self.only.as_ref().map(|(_, id)| id.clone()), ended: true };
        let commands = match self.sandboxes.commands(caller, commands).await {
            Ok(commands) => commands.commands,
            // The sandbox of the workspace is created with its first use.
            Err(problem) if self.only.is_some() && problem.code == Code::NotFound => Vec::new(),
            Err(problem) => return Err(failed(problem)),
        };
        let mut resources = Vec::new();
        for bundle in bundles.bundles {
            let ListedBundle::Bundle(bundle) = bundle else { continue };
            if !self.shows(&bundle.project.0) {
                continue;
            }
            let changes = bundle.changes.total;
            let text = format!("{changes} changes of {}", line(&bundle.project.0));
            let short: String = bundle.id.chars().take(12).collect();
            resources.push(
                Resource::new(format!("{BUNDLES}{}", bundle.id), format!("bundle {short}"))
                    .with_description(&text)
                    .with_mime_type(JSON),
            );
            let (uri, mime_type) = diff_uri(&bundle.id);
            resources.push(
                Resource::new(uri, format!("diff of bundle {short}"))
                    .with_description(text)
                    .with_mime_type(mime_type),
            );
        }
        for command in commands.into_iter().filter(|command| command.detached).take(COMMANDS) {
            let (uri, mime_type) = log_uri(&command.workflow_id);
            let text = format!("The output of a command in the sandbox {}", command.sandbox_id);
            resources.push(
                Resource::new(uri, format!("output of command {}", command.id))
                    .with_description(text)
                    .with_mime_type(mime_type),
            );
        }
        Ok(resources)
    }

    pub(super) async fn read(
        &self,
        caller: &Caller,
        uri: &str,
    ) -> Result<ResourceContents, ErrorData> {
        let missing = || {
            let uri = stockade_core::printable::escaped(uri).into_owned();
            ErrorData::resource_not_found(
                format!("there is no resource {uri}"),
                Some(json!({ "uri": uri })),
            )
        };
        let found = match named(uri).ok_or_else(missing)? {
            Named::Bundle(id) => self.bundle(caller, id).await.map(|text| (text, JSON)),
            Named::Diff(id) => self.diff(caller, id).await.map(|text| (text, PATCH)),
            Named::Log(id) => self.log(caller, id).await.map(|text| (text, TEXT)),
        };
        match found {
            Ok((text, mime_type)) => {
                Ok(ResourceContents::text(text, uri).with_mime_type(mime_type))
            }
            Err(problem)
                if matches!(
                    problem.code,
                    Code::NotFound | Code::BundleNotFound | Code::InvalidInput
                ) =>
            {
                Err(missing())
            }
            Err(problem) => Err(failed(problem)),
        }
    }

    /// Whether bundles of this project are shown.
    fn shows(&self, project: &[u8]) -> bool {
        use std::os::unix::ffi::OsStrExt as _;
        let of = |(path, _): &(PathBuf, SandboxId)| path.as_os_str().as_bytes() == project;
        self.only.as_ref().is_none_or(of)
    }

    async fn bundle(&self, caller: &Caller, id: &str) -> Result<String, Problem> {
        let request = ShowBundle { id: id.to_owned(), paths: Vec::new() };
        let bundle = self.sandboxes.show_bundle(caller, request).await?;
        if !self.shows(&bundle.bundle.project.0) {
            return Err(Problem::new(Code::NotFound, "there is no such bundle"));
        }
        let mut value = json!(bundle);
        escape(&mut value);
        let text = serde_json::to_string_pretty(&value).unwrap_or_default();
        if text.len() > BYTES {
            // JSON has no end in the middle: only the properties.
            let mut value = json!(bundle.bundle);
            escape(&mut value);
            value["omittedEntries"] = json!(bundle.entries.len());
            return Ok(serde_json::to_string_pretty(&value).unwrap_or_default());
        }
        Ok(text)
    }

    async fn diff(&self, caller: &Caller, id: &str) -> Result<String, Problem> {
        let request = ShowBundle { id: id.to_owned(), paths: Vec::new() };
        let bundle = self.sandboxes.show_bundle(caller, request).await?;
        if !self.shows(&bundle.bundle.project.0) {
            return Err(Problem::new(Code::NotFound, "there is no such bundle"));
        }
        let request = DiffBundle { id: bundle.bundle.id, paths: Vec::new() };
        let mut items = self.sandboxes.diff_bundle(caller, request).await?;
        let mut text = Ends::new(BYTES);
        while let Some(item) = items.next().await {
            let item = item?;
            text.push(&item.readable.unwrap_or(item.diff).0);
        }
        Ok(fenced(&text.text()))
    }

    async fn log(&self, caller: &Caller, id: &str) -> Result<String, Problem> {
        let id = OperationId(id.to_owned());
        let command = self.sandboxes.get_command(caller, id).await?;
        if self.only.as_ref().is_some_and(|(_, sandbox)| *sandbox != command.sandbox_id) {
            return Err(Problem::new(Code::NotFound, "there is no such command"));
        }
        let workflow_id = command.workflow_id;
        let request = ReadOutput { workflow_id, from: 0, follow: false, from_sandbox: false };
        let mut items = self.sandboxes.read_output(caller, request).await?;
        let mut text = Ends::new(BYTES);
        while let Some(item) = items.next().await {
            match item?.chunk {
                OutputChunk::Stdout { data } | OutputChunk::Stderr { data } => text.push(&data.0),
                OutputChunk::Truncated { bytes } => text.lost(bytes),
                OutputChunk::Exit(_) => break,
            }
        }
        Ok(fenced(&text.text()))
    }
}

/// Makes hidden characters of all texts of a value visible.
pub(super) fn escape(value: &mut serde_json::Value) {
    match value {
        serde_json::Value::String(text) => {
            if let std::borrow::Cow::Owned(escaped) = stockade_core::printable::escaped_lines(text)
            {
                *text = escaped;
            }
        }
        serde_json::Value::Array(items) => items.iter_mut().for_each(escape),
        serde_json::Value::Object(members) => {
            let old = std::mem::take(members);
            members.extend(old.into_iter().map(|(name, mut value)| {
                escape(&mut value);
                (stockade_core::printable::escaped(&name).into_owned(), value)
            }));
        }
        _ => {}
    }
}

fn named(uri: &str) -> Option<Named<'_>> {
    let is_id = |id: &str| {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        !id.is_empty() && id.len() <= ID && id.bytes().all(plain)
    };
    let named = match (uri.strip_prefix(BUNDLES), uri.strip_prefix(COMMAND_LOGS)) {
        (Some(rest), _) => match rest.strip_suffix(DIFF) {
            Some(id) => Named::Diff(id),
            None => Named::Bundle(rest),
        },
        (_, Some(rest)) => Named::Log(rest.strip_suffix(LOG)?),
        _ => return None,
    };
    let (Named::Bundle(id) | Named::Diff(id) | Named::Log(id)) = named;
    // `latest` is a name of the command line, whose meaning changes.
    (is_id(id) && id != "latest").then_some(named)
}

fn failed(problem: Problem) -> ErrorData {
    let message = stockade_core::printable::escaped(&problem.message).into_owned();
    ErrorData::internal_error(message, Some(json!({ "code": problem.code })))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_uri_names_one_thing_or_nothing() {
        assert_eq!(named("stockade://bundles/ab12"), Some(Named::Bundle("ab12")));
        assert_eq!(named("stockade://bundles/ab12/diff"), Some(Named::Diff("ab12")));
        assert_eq!(named("stockade://commands/key-1/log"), Some(Named::Log("key-1")));
        for other in [
            "",
            "stockade://bundles/",
            "stockade://bundles/latest",
            "stockade://bundles//diff",
            "stockade://bundles/../keys",
            "stockade://bundles/a/b",
            "stockade://bundles/a%2f",
            "stockade://commands/a",
            "file:///etc/passwd",
            "STOCKADE://bundles/a",
        ] {
            assert_eq!(named(other), None, "{other}");
        }
    }

    #[test]
    fn every_text_of_a_value_is_escaped() {
        let mut value = json!({"a\u{1b}": ["\u{202e}", {"b": "x\ny"}]});
        escape(&mut value);
        assert_eq!(value, json!({"a\\u{1b}": ["\\u{202e}", {"b": "x\ny"}]}));
    }
}
