//! Commands and files inside (`execd-api.yaml` of OpenSandbox 1.1).

use std::collections::BTreeMap;
use std::io::Cursor;
use std::time::Duration;

use hyper::header::{HeaderValue, RANGE};
use hyper::{Method, StatusCode};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use serde_json::{Value, json};
use stockade_runtime::Content;
use stockade_runtime_remote::{Download, Failure, Place, Repeat, Sent};
use tokio::io::AsyncReadExt as _;

/// The most that is read of the stream of a command.
const STREAM_BYTES: u64 = 4 << 20;

/// How long a command may take that makes or reads an archive.
const ARCHIVE: Duration = Duration::from_secs(240);

/// `execd` of one sandbox.
#[derive(Debug, Clone)]
pub(crate) struct Execd(pub(crate) Place);

/// The properties of a file.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct RemoteFile {
    pub(crate) path: String,
    #[serde(rename = "type", default)]
    pub(crate) kind: String,
    pub(crate) size: u64,
    #[serde(default)]
    pub(crate) modified_at: Option<String>,
    #[serde(default)]
    pub(crate) owner: String,
    #[serde(default)]
    pub(crate) group: String,
    #[serde(default)]
    pub(crate) mode: u32,
}

/// An event of a command.
#[derive(Debug, Deserialize)]
struct StreamEvent {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    text: Option<String>,
    #[serde(default)]
    error: Option<StreamError>,
}

#[derive(Debug, Deserialize)]
struct StreamError {
    #[serde(default)]
    evalue: String,
}

/// The status of a command.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct CommandStatus {
    pub(crate) running: bool,
}

/// What a short command printed, as text, and its exit code.
#[derive(Debug)]
pub(crate) struct Printed {
    pub(crate) code: i32,
    pub(crate) lines: Vec<String>,
    pub(crate) errors: Vec<String>,
}

/// How a file is created.
#[derive(Debug, Clone, Default)]
pub(crate) struct NewFile {
    pub(crate) path: String,
    /// The permission bits.
    pub(crate) mode: Option<u32>,
    pub(crate) owner: Option<(u32, u32)>,
}

impl Execd {
    /// The same, for commands that make or read an archive.
    pub(crate) fn for_archives(mut self) -> Self {
        self.0.timeout = self.0.timeout.max(ARCHIVE);
        self
    }

    /// Whether it answers.
    pub(crate) async fn ping(&self) -> Result<(), Failure> {
        self.0.call(Method::GET, "/ping", Sent::default(), Repeat::Always).await.map(drop)
    }

    /// Starts a command of the shell in the background, and returns its id. It is not repeated if it may have
    /// been started.
    pub(crate) async fn start(&self, command: &str) -> Result<String, Failure> {
        let body = json!({ "command": command, "background": true });
        let events = self.stream(&body).await?;
        let id = events.into_iter().find(|event| event.kind == "init").and_then(|event| event.text);
        id.ok_or_else(|| Failure::Answer(self.0.name(), "a command without an id".to_owned()))
    }

    /// Runs a short command of the shell to its end.
    pub(crate) async fn print(&self, command: &str) -> Result<Printed, Failure> {
        let mut printed = Printed { code: 0, lines: Vec::new(), errors: Vec::new() };
        let mut has_ended = false;
        for event in self.stream(&json!({ "command": command })).await? {
            let text = event.text.unwrap_or_default();
            match event.kind.as_str() {
                "stdout" => printed.lines.push(text),
                "stderr" => printed.errors.push(text),
                "execution_complete" => has_ended = true,
                "error" => {
                    has_ended = true;
                    let code = event.error.and_then(|error| error.evalue.parse().ok());
                    printed.code = code.unwrap_or(1);
                }
                _ => {}
            }
        }
        if has_ended {
            return Ok(printed);
        }
        Err(Failure::Lost(self.0.name(), "the output of a command has no end".to_owned()))
    }

    /// Ends a command with everything that it has started. One that does not run has ended.
    pub(crate) async fn interrupt(&self, id: &str) -> Result<(), Failure> {
        let path = format!("/command?id={}", encode(id));
        let ended = self.0.call(Method::DELETE, &path, Sent::default(), Repeat::Always).await;
        match ended {
            Ok(_) => Ok(()),
            Err(failure) if matches!(failure.status(), Some(400 | 404 | 409 | 410)) => Ok(()),
            Err(failure) => Err(failure),
        }
    }

    pub(crate) async fn status(&self, id: &str) -> Result<CommandStatus, Failure> {
        let path = format!("/command/status/{}", encode(id));
        self.get(&path).await
    }

    pub(crate) async fn file(&self, path: &str) -> Result<RemoteFile, Failure> {
        let path = format!("/files/info?path={}", encode(path));
        let found: BTreeMap<String, RemoteFile> = self.get(&path).await?;
        let first = found.into_values().next();
        first.ok_or_else(|| Failure::Answer(self.0.name(), "no properties of a file".to_owned()))
    }

    pub(crate) async fn directory(&self, path: &str) -> Result<Vec<RemoteFile>, Failure> {
        self.get(&format!("/directories/list?path={}&depth=1", encode(path))).await
    }

    /// The content of a file from an offset on, at most `length` bytes; `None` if it ends before.
    pub(crate) async fn download(
        &self,
        path: &str,
        offset: u64,
        length: Option<u64>,
    ) -> Result<Option<Download>, Failure> {
        let mut sent = Sent::default();
        let is_range = offset > 0 || length.is_some();
        if is_range {
            let end = length.map_or_else(String::new, |length| {
                (offset.saturating_add(length).saturating_sub(1)).to_string()
            });
            let range = HeaderValue::try_from(format!("bytes={offset}-{end}"));
            let range = range.map_err(|e| Failure::Answer(self.0.name(), e.to_string()))?;
            sent.headers.push((RANGE, range));
        }
        let path = format!("/files/download?path={}", encode(path));
        match self.0.open(Method::GET, &path, &sent).await {
            Ok((StatusCode::PARTIAL_CONTENT, body)) => Ok(Some(body)),
            Ok((_, body)) if !is_range => Ok(Some(body)),
            // A server without ranges: what was not asked for is skipped.
            Ok((_, mut body)) => {
                let (mut before, mut sink) = ((&mut body).take(offset), tokio::io::sink());
                let skipped = tokio::io::copy(&mut before, &mut sink).await;
                match skipped {
                    Ok(skipped) if skipped == offset => Ok(Some(body)),
                    Ok(_) => Ok(None),
                    Err(error) => Err(Failure::Lost(self.0.name(), error.to_string())),
                }
            }
            Err(failure) if failure.status() == Some(416) => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    /// Writes a file.
    pub(crate) async fn upload(&self, file: &NewFile, content: Content) -> Result<(), Failure> {
        let boundary = format!("stockade-{}", uuid::Uuid::now_v7().simple());
        let owner = file.owner.map(|(uid, gid)| (uid.to_string(), gid.to_string()));
        let metadata = json!({
            "path": file.path,
            "mode": file.mode.map(digits),
            "owner": owner.as_ref().map(|(uid, _)| uid),
            "group": owner.as_ref().map(|(_, gid)| gid),
        });
        let part = |name: &str, kind: &str| {
            format!(
                "--{boundary}\r\nContent-Disposition: form-data; name=\"{name}\"; filename=\"{name}\"\r\n\
                 Content-Type: {kind}\r\n\r\n"
            )
        };
        let before = format!(
            "{}{metadata}\r\n{}",
            part("metadata", "application/json"),
            part("file", "application/octet-stream")
        );
        let after = format!("\r\n--{boundary}--\r\n");
        let sent = Sent {
            content_type: Some(format!("multipart/form-data; boundary={boundary}")),
            ..Sent::default()
        };
        let uploaded =
            self.0.upload("/files/upload", sent, before.into(), content, after.into()).await;
        uploaded.map(drop)
    }

    /// Writes a file that appears complete, in place of an earlier one.
    pub(crate) async fn replace(&self, path: &str, content: Vec<u8>) -> Result<(), Failure> {
        let new = format!("{path}.new");
        let file = NewFile { path: new.clone(), mode: Some(0o600), owner: None };
        self.upload(&file, Box::pin(Cursor::new(content))).await?;
        self.rename(&new, path).await
    }

    pub(crate) async fn make_directory(
        &self,
        path: &str,
        mode: u32,
        owner: Option<(u32, u32)>,
    ) -> Result<(), Failure> {
        self.post("/directories", &json!({ path: permissions(Some(mode), owner) })).await
    }

    pub(crate) async fn set_permissions(
        &self,
        path: &str,
        mode: Option<u32>,
        owner: Option<(u32, u32)>,
    ) -> Result<(), Failure> {
        self.post("/files/permissions", &json!({ path: permissions(mode, owner) })).await
    }

    pub(crate) async fn rename(&self, from: &str, to: &str) -> Result<(), Failure> {
        let body = json!([{ "src": from, "dest": to }]);
        let sent = Sent::json(&body);
        // A second time, the file would be missing.
        self.0.call(Method::POST, "/files/mv", sent, Repeat::IfUnseen).await.map(drop)
    }

    pub(crate) async fn remove(&self, path: &str, is_directory: bool) -> Result<(), Failure> {
        let kind = if is_directory { "directories" } else { "files" };
        let path = format!("/{kind}?path={}", encode(path));
        self.0.call(Method::DELETE, &path, Sent::default(), Repeat::IfUnseen).await.map(drop)
    }

    /// The events of a command until its stream ends.
    async fn stream(&self, body: &Value) -> Result<Vec<StreamEvent>, Failure> {
        let sent = Sent::json(body);
        let opened = Repeat::IfUnseen.send(|| self.0.open(Method::POST, "/command", &sent)).await?;
        let (_, stream) = opened;
        let mut text = Vec::new();
        let mut stream = stream.take(STREAM_BYTES);
        let read = stream.read_to_end(&mut text);
        let late = |_| Failure::TimedOut(self.0.name());
        let read = tokio::time::timeout(self.0.timeout, read).await.map_err(late)?;
        read.map_err(|error| Failure::Lost(self.0.name(), error.to_string()))?;
        let text = String::from_utf8_lossy(&text);
        let lines = text.lines().map(|line| line.strip_prefix("data:").unwrap_or(line).trim());
        let events = lines.filter(|line| line.starts_with('{'));
        events
            .map(serde_json::from_str)
            .collect::<Result<_, _>>()
            .map_err(|error| Failure::Answer(self.0.name(), error.to_string()))
    }

    async fn get<T: serde::de::DeserializeOwned>(&self, path: &str) -> Result<T, Failure> {
        let answer = self.0.call(Method::GET, path, Sent::default(), Repeat::Always).await?;
        serde_json::from_slice(&answer.body)
            .map_err(|error| Failure::Answer(self.0.name(), error.to_string()))
    }

    async fn post(&self, path: &str, body: &Value) -> Result<(), Failure> {
        self.0.call(Method::POST, path, Sent::json(body), Repeat::Always).await.map(drop)
    }
}

fn permissions(mode: Option<u32>, owner: Option<(u32, u32)>) -> Value {
    let mut all = serde_json::Map::new();
    if let Some(mode) = mode {
        all.insert("mode".to_owned(), json!(digits(mode)));
    }
    if let Some((uid, gid)) = owner {
        all.insert("owner".to_owned(), json!(uid.to_string()));
        all.insert("group".to_owned(), json!(gid.to_string()));
    }
    Value::Object(all)
}

/// Permission bits in octal digits, as a decimal number: 755.
fn digits(mode: u32) -> u32 {
    [1, 10, 100, 1000].iter().enumerate().map(|(at, ten)| ((mode >> (3 * at)) & 7) * ten).sum()
}

/// The permission bits of such a number.
pub(crate) fn bits(digits: u32) -> u32 {
    u32::from_str_radix(&digits.to_string(), 8).unwrap_or_default() & 0o7777
}

fn encode(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_octal_digits() {
        for mode in [0o755, 0o644, 0o4755, 0, 0o7777] {
            assert_eq!(bits(digits(mode)), mode);
        }
        assert_eq!((digits(0o755), bits(999)), (755, 0));
    }
}
