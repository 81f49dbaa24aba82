//! Metadata of files, which clients set when they write one. It is in extended attributes of the file, which a
//! command inside sets and reads.

use std::collections::{BTreeMap, BTreeSet};

use axum::http::HeaderMap;
use serde_json::{Value, json};
use stockade_api::{ChangeMetadata, CommandLine, Execute, Problem};
use stockade_core::Code;

use super::App;
use super::body::YES;
use super::user::User;
use crate::failure::invalid;
use crate::inside::Target;

/// The prefix of the headers.
const HEADER: &str = "x-metadata-";
/// The metadata of a sandbox that has such files: only there they are read.
const LABEL: &str = "e2b.dev/file-metadata";
/// Sets the attributes of a file.
const SET: &str = r#"
import json, os, sys
path, values = sys.argv[1], json.load(sys.stdin)
for name, value in values.items():
    os.setxattr(path, "user.e2b." + name, value.encode())
"#;
/// Prints those of files, by their path.
const GET: &str = r#"
import json, os, sys
found, prefix = {}, "user.e2b."
for path in json.load(sys.stdin):
    try:
        names = [name for name in os.listxattr(path) if name.startswith(prefix)]
        values = {name[len(prefix):]: os.getxattr(path, name).decode("utf-8", "replace") for name in names}
    except OSError:
        continue
    if values:
        found[path] = values
json.dump(found, sys.stdout)
"#;

/// The metadata of files by their path.
pub(super) type Found = BTreeMap<String, BTreeMap<String, String>>;

/// The metadata in the headers of a request.
pub(super) fn requested(headers: &HeaderMap) -> Result<BTreeMap<String, String>, Problem> {
    let mut found = BTreeMap::new();
    for (name, value) in headers {
        let Some(name) = name.as_str().strip_prefix(HEADER).filter(|name| !name.is_empty()) else {
            continue;
        };
        let value =
            value.to_str().map_err(|_| invalid(format!("the metadata {name:?} is not text")).0)?;
        if found.insert(name.to_owned(), value.to_owned()).is_some() {
            return Err(invalid(format!("the metadata {name:?} is given twice")).0);
        }
    }
    Ok(found)
}

async fn run(
    app: &App,
    target: &Target,
    user: &User,
    (program, path, input): (&str, Option<&str>, Value),
) -> Result<Vec<u8>, Problem> {
    let words = ["python3", "-c", program].into_iter().chain(path).map(str::to_owned);
    let line = CommandLine::Program(words.collect());
    let mut execute = Execute::new(target.sandbox.id.clone(), line);
    if !user.is_default {
        (execute.uid, execute.gid) = (Some(user.uid), Some(user.gid));
    }
    execute.stdin = Some(input.to_string().into_bytes().into());
    let mut caller = target.caller.clone();
    caller.idempotency_key = None;
    let ran = app.sandboxes.execute(&caller, execute).await?;
    if ran.end.exit_code == Some(0) {
        return Ok(ran.stdout.0);
    }
    let cause = ran.end.reason.unwrap_or_else(|| ran.stderr.lossy().into_owned());
    Err(Problem::new(Code::Unsupported, "the sandbox stores no metadata of files").because(cause))
}

/// Sets the metadata of a file.
pub(super) async fn set(
    app: &App,
    target: &Target,
    user: &User,
    (path, values): (&str, &BTreeMap<String, String>),
) -> Result<(), Problem> {
    if values.is_empty() {
        return Ok(());
    }
    run(app, target, user, (SET, Some(path), json!(values))).await?;
    if !target.sandbox.metadata.contains_key(LABEL) {
        let mut caller = target.caller.clone();
        caller.idempotency_key = None;
        let metadata = BTreeMap::from([(LABEL.to_owned(), Some(YES.to_owned()))]);
        let change = ChangeMetadata { id: target.sandbox.id.clone(), metadata };
        app.sandboxes.change_metadata(&caller, change).await?;
    }
    Ok(())
}

/// The metadata of files. One that cannot be read has none.
pub(super) async fn get(app: &App, target: &Target, user: &User, paths: BTreeSet<String>) -> Found {
    if paths.is_empty() || !target.sandbox.metadata.contains_key(LABEL) {
        return Found::new();
    }
    match run(app, target, user, (GET, None, json!(paths))).await {
        Ok(text) => serde_json::from_slice(&text).unwrap_or_default(),
        Err(_) => Found::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_comes_in_headers() {
        let mut headers = HeaderMap::new();
        headers.insert("x-metadata-one", "1".parse().unwrap());
        headers.insert("X-Metadata-Two", "2".parse().unwrap());
        headers.insert("content-type", "text/plain".parse().unwrap());
        let expected = BTreeMap::from(
            [("one", "1"), ("two", "2")].map(|(name, value)| (name.to_owned(), value.to_owned())),
        );
        assert_eq!(requested(&headers).unwrap(), expected);
        headers.append("x-metadata-one", "3".parse().unwrap());
        assert!(requested(&headers).is_err());
    }
}
