//! `read`, `write`, `list`, `search` and `patch`: the files of a sandbox.

use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stockade_api::{
    ApplyPatch, FileChange, FileContent, FileEntry, FileKind, ListDirectory, Listing, Problem,
    ReadFile, SearchFiles, StatFile, WriteFile,
};
use stockade_core::Code;
use stockade_core::printable::is_printable;
use tokio::io::AsyncReadExt as _;

use super::operation::{Facts, On, Operation, Reply, Scope, Stop};
use super::place::Place;
use crate::mcp::Effects;
use crate::mcp::untrusted::{fenced, line, lines};

/// The most bytes that are read at a time.
const READ_BYTES: u64 = 256 << 10;
/// The most bytes that are written at a time.
const WRITE_BYTES: usize = 8 << 20;
/// The most entries of a list.
const ENTRIES: usize = 1000;
/// The longest pattern.
const PATTERN: usize = 1024;

/// Reads a file.
#[derive(Debug)]
pub(super) struct Read;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct ReadArguments {
    /// The file, relative to the workspace or absolute inside the sandbox.
    path: String,
    /// How many bytes of the file to skip.
    #[serde(default)]
    offset: u64,
    /// The most bytes to read, at most 262144.
    #[serde(default)]
    limit: Option<u64>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct ReadValue {
    path: String,
    /// The text, or its base64 form.
    content: String,
    /// `utf-8`, or `base64` for bytes that are not text.
    encoding: &'static str,
    /// The size of the whole file.
    size_bytes: u64,
    offset: u64,
    /// The offset of the next part, if this is not the last one.
    next_offset: Option<u64>,
}

#[async_trait]
impl Operation for Read {
    type Arguments = ReadArguments;
    type Value = ReadValue;

    fn facts(&self, _: &Scope) -> Facts {
        Facts {
            name: "read",
            title: "Read a file",
            text: "Reads a file of the sandbox. Bytes that are not text come as base64. A long file comes in parts: continue with `nextOffset`.",
            effects: Effects::READ_ONLY,
            on_sandbox: true,
            is_long: false,
        }
    }

    async fn call(&self, on: On<'_>, arguments: ReadArguments) -> Result<Reply<ReadValue>, Stop> {
        let place = on.place().await?;
        let path = place.path(&arguments.path)?;
        let (caller, sandbox_id) = (on.call.reader(), place.id.clone());
        let stat = StatFile { sandbox_id: sandbox_id.clone(), path: path.clone(), follow: true };
        let entry = on.context.sandboxes.stat_file(caller, stat).await?;
        if entry.kind != FileKind::File {
            return Err(not_a_file(&place, &path).into());
        }
        let limit = arguments.limit.unwrap_or(READ_BYTES).min(READ_BYTES);
        let offset = arguments.offset;
        let request = ReadFile { sandbox_id, path: path.clone(), offset, length: Some(limit) };
        let FileContent(content) = on.context.sandboxes.read_file(caller, request).await?;
        let mut bytes = Vec::new();
        // Not more than was requested, whatever the other end sends.
        content.take(limit).read_to_end(&mut bytes).await.map_err(|error| {
            Problem::new(Code::Io, format!("cannot read {}", place.show(&path)))
                .because(error.to_string())
        })?;
        let is_last = offset.saturating_add(bytes.len() as u64) >= entry.size_bytes;
        let cut = if is_last { bytes.len() } else { whole_characters(&bytes) };
        bytes.truncate(cut);
        let next_offset = (!is_last && !bytes.is_empty()).then(|| offset + bytes.len() as u64);
        let shown = place.show(&path);
        let (content, encoding, text) = match String::from_utf8(bytes) {
            Ok(text) if is_plain(&text) => (text.clone(), "utf-8", text),
            Ok(text) => (STANDARD.encode(&text), "base64", lines(text.as_bytes())),
            Err(error) => {
                let encoded = STANDARD.encode(error.as_bytes());
                (encoded.clone(), "base64", encoded)
            }
        };
        let more = match next_offset {
            Some(next) => format!(", continues at offset {next}"),
            None => String::new(),
        };
        let head = format!("{shown}: {} bytes{more}", entry.size_bytes);
        let size_bytes = entry.size_bytes;
        let value = ReadValue { path: shown, content, encoding, size_bytes, offset, next_offset };
        Ok(Reply::new(value).with_text(format!("{head}\n{}", fenced(&text))))
    }
}

fn not_a_file(place: &Place, path: &stockade_api::Bytes) -> Problem {
    let message = format!("{} is not a regular file", place.show(path));
    Problem::new(Code::PathInvalid, message)
}

/// Whether a text has no hidden characters besides ends of lines and tabs.
fn is_plain(text: &str) -> bool {
    text.split(['\n', '\t']).all(is_printable)
}

/// The length without a character that continues after the end.
fn whole_characters(bytes: &[u8]) -> usize {
    let end = bytes.utf8_chunks().last();
    match end {
        // An incomplete character has at most three bytes.
        Some(chunk) if !chunk.invalid().is_empty() && chunk.invalid().len() < 4 => {
            let length = bytes.len() - chunk.invalid().len();
            if length == 0 { bytes.len() } else { length }
        }
        _ => bytes.len(),
    }
}

/// Writes a file.
#[derive(Debug)]
pub(super) struct Write;

#[derive(Debug, Default, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Encoding {
    #[default]
    #[serde(rename = "utf-8")]
    Utf8,
    Base64,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct WriteArguments {
    /// The file, relative to the workspace or absolute inside the sandbox. Missing directories are created.
    path: String,
    /// The new content, at most 8 MiB.
    content: String,
    /// The form of the content.
    #[serde(default)]
    encoding: Encoding,
    /// Whether the file may be executed; as before when absent.
    #[serde(default)]
    executable: Option<bool>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct WriteValue {
    path: String,
    size_bytes: u64,
}

#[async_trait]
impl Operation for Write {
    type Arguments = WriteArguments;
    type Value = WriteValue;

    fn facts(&self, _: &Scope) -> Facts {
        Facts {
            name: "write",
            title: "Write a file",
            text: "Writes a whole file of the sandbox, which replaces an existing one. The host's own file does not change. For small changes of a long file use `patch`.",
            effects: Effects::CHANGES.idempotent(),
            on_sandbox: true,
            is_long: false,
        }
    }

    async fn call(&self, on: On<'_>, arguments: WriteArguments) -> Result<Reply<WriteValue>, Stop> {
        let content = match arguments.encoding {
            Encoding::Utf8 => arguments.content.into_bytes(),
            Encoding::Base64 => STANDARD.decode(arguments.content.as_bytes()).map_err(|error| {
                Problem::new(Code::InvalidInput, "the content is not base64")
                    .because(error.to_string())
            })?,
        };
        if content.len() > WRITE_BYTES {
            let message = format!("the content is {} bytes (max {WRITE_BYTES})", content.len());
            return Err(Problem::new(Code::InvalidInput, message).into());
        }
        let place = on.place().await?;
        let path = place.path(&arguments.path)?;
        let sandbox_id = place.id.clone();
        let mode = match arguments.executable {
            Some(true) => Some(0o755),
            Some(false) => Some(0o644),
            None => {
                let stat =
                    StatFile { sandbox_id: sandbox_id.clone(), path: path.clone(), follow: true };
                let entry = on.context.sandboxes.stat_file(on.call.reader(), stat).await;
                entry.ok().filter(|entry| entry.kind == FileKind::File).map(|entry| entry.mode)
            }
        };
        let request = WriteFile { sandbox_id, path: path.clone(), mode, uid: None, gid: None };
        let content = FileContent(Box::pin(std::io::Cursor::new(content)));
        let written = on.context.sandboxes.write_file(&on.call.writer(), request, content).await?;
        Ok(Reply::new(WriteValue { path: place.show(&path), size_bytes: written.size_bytes }))
    }
}

/// One entry of a directory.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Entry {
    path: String,
    /// `file`, `directory`, `link` or `other`.
    kind: &'static str,
    size_bytes: u64,
    /// The target of a link.
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<String>,
}

impl Entry {
    fn new(place: &Place, entry: &FileEntry) -> Self {
        let kind = match entry.kind {
            FileKind::File => "file",
            FileKind::Directory => "directory",
            FileKind::Link => "link",
            FileKind::Other => "other",
        };
        let target = entry.link.as_ref().map(|link| line(&link.0));
        Self { path: place.show(&entry.path), kind, size_bytes: entry.size_bytes, target }
    }
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Entries {
    entries: Vec<Entry>,
    /// How many entries are not listed here.
    omitted: u64,
}

fn entries(place: &Place, listing: &Listing) -> Entries {
    let shown: Vec<_> =
        listing.entries.iter().take(ENTRIES).map(|entry| Entry::new(place, entry)).collect();
    let left = (listing.entries.len() - shown.len()) as u64;
    Entries { entries: shown, omitted: left.saturating_add(listing.hidden) }
}

/// Lists a directory.
#[derive(Debug)]
pub(super) struct List;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct ListArguments {
    /// The directory; the workspace when absent.
    #[serde(default = "here")]
    path: String,
    /// How many levels down, from 1 to 16.
    #[serde(default = "one")]
    depth: u32,
}

fn here() -> String {
    ".".to_owned()
}

const fn one() -> u32 {
    1
}

#[async_trait]
impl Operation for List {
    type Arguments = ListArguments;
    type Value = Entries;

    fn facts(&self, _: &Scope) -> Facts {
        Facts {
            name: "list",
            title: "List a directory",
            text: "Lists a directory of the sandbox, at most 1000 entries.",
            effects: Effects::READ_ONLY,
            on_sandbox: true,
            is_long: false,
        }
    }

    async fn call(&self, on: On<'_>, arguments: ListArguments) -> Result<Reply<Entries>, Stop> {
        if !(1..=16).contains(&arguments.depth) {
            return Err(Problem::new(Code::InvalidInput, "`depth` must be from 1 to 16").into());
        }
        let place = on.place().await?;
        let request = ListDirectory {
            sandbox_id: place.id.clone(),
            path: place.path(&arguments.path)?,
            depth: Some(arguments.depth),
        };
        let listing = on.context.sandboxes.list_directory(on.call.reader(), request).await?;
        Ok(Reply::new(entries(&place, &listing)))
    }
}

/// Searches for files.
#[derive(Debug)]
pub(super) struct Search;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct SearchArguments {
    /// A glob for paths below the directory, such as `**/*.rs`: `*` stays within a name.
    pattern: String,
    /// The directory; the workspace when absent.
    #[serde(default = "here")]
    path: String,
}

#[async_trait]
impl Operation for Search {
    type Arguments = SearchArguments;
    type Value = Entries;

    fn facts(&self, _: &Scope) -> Facts {
        Facts {
            name: "search",
            title: "Find files",
            text: "Finds files of the sandbox by a pattern for their paths, at most 1000. To search in contents, run `grep` with `exec`.",
            effects: Effects::READ_ONLY,
            on_sandbox: true,
            is_long: false,
        }
    }

    async fn call(&self, on: On<'_>, arguments: SearchArguments) -> Result<Reply<Entries>, Stop> {
        if arguments.pattern.is_empty() || arguments.pattern.len() > PATTERN {
            let message = format!("`pattern` must have 1 to {PATTERN} bytes");
            return Err(Problem::new(Code::InvalidInput, message).into());
        }
        let place = on.place().await?;
        let request = SearchFiles {
            sandbox_id: place.id.clone(),
            path: place.path(&arguments.path)?,
            pattern: arguments.pattern,
        };
        let listing = on.context.sandboxes.search_files(on.call.reader(), request).await?;
        Ok(Reply::new(entries(&place, &listing)))
    }
}

/// Applies a diff.
#[derive(Debug)]
pub(super) struct Patch;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct PatchArguments {
    /// A unified diff with `--- a/PATH` and `+++ b/PATH` before the hunks of each file; `/dev/null` for a new
    /// or a removed file. Paths are relative to `path`.
    diff: String,
    /// The directory; the workspace when absent.
    #[serde(default = "here")]
    path: String,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct PatchValue {
    files: Vec<PatchedFile>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct PatchedFile {
    /// The path below the directory.
    path: String,
    /// `added`, `modified`, `deleted` or `renamed`.
    change: &'static str,
}

#[async_trait]
impl Operation for Patch {
    type Arguments = PatchArguments;
    type Value = PatchValue;

    fn facts(&self, _: &Scope) -> Facts {
        Facts {
            name: "patch",
            title: "Apply a diff to files",
            text: "Applies a unified diff to files of the sandbox, all or none: if one hunk does not fit, nothing is changed. Hunks may have moved, but their context must be the same.",
            effects: Effects::CHANGES,
            on_sandbox: true,
            is_long: false,
        }
    }

    async fn call(&self, on: On<'_>, arguments: PatchArguments) -> Result<Reply<PatchValue>, Stop> {
        let mut diff = arguments.diff.into_bytes();
        if diff.len() > WRITE_BYTES {
            let message = format!("the diff is {} bytes (max {WRITE_BYTES})", diff.len());
            return Err(Problem::new(Code::InvalidInput, message).into());
        }
        // Agents often leave out the end of the last line.
        if diff.last() != Some(&b'\n') {
            diff.push(b'\n');
        }
        let place = on.place().await?;
        let request = ApplyPatch {
            sandbox_id: place.id.clone(),
            path: place.path(&arguments.path)?,
            diff: diff.into(),
        };
        let applied = on.context.sandboxes.apply_patch(&on.call.writer(), request).await?;
        let files = applied.files.iter().map(|file| PatchedFile {
            path: line(&file.path.0),
            change: match file.change {
                FileChange::Added => "added",
                FileChange::Modified => "modified",
                FileChange::Deleted => "deleted",
                FileChange::Renamed => "renamed",
            },
        });
        Ok(Reply::new(PatchValue { files: files.collect() }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_ends_with_a_whole_character() {
        assert_eq!(whole_characters("ab".as_bytes()), 2);
        assert_eq!(whole_characters(&"aé".as_bytes()[..2]), 1);
        assert_eq!(whole_characters(&"a😀".as_bytes()[..4]), 1);
        assert_eq!(whole_characters("a😀".as_bytes()), 5);
        assert_eq!(whole_characters(&[0xff]), 1, "a part is never empty");
        assert_eq!(whole_characters(b""), 0);
    }

    #[test]
    fn hidden_characters_are_not_plain() {
        assert!(is_plain("a\n\tb é 😀\n"));
        assert!(!is_plain("a\u{1b}[2J"));
        assert!(!is_plain("a\rb"));
        assert!(!is_plain("\u{202e}"));
    }
}
