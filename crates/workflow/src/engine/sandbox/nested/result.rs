//! The result of a nested sandbox: its outputs or its failure, and its accepted changes. It is stored
//! on the host, and handed back to the child that waits for it.

use std::io::{Read as _, Write as _};

use serde_json::{Value, json};
use stockade_bundle::RelativePath;
use stockade_bundle::beneath::Dir;
use stockade_bundle::manifest::{Entry, Node};
use stockade_bundle::sandbox::{Status, StructuredResult, write_result};
use stockade_core::BundleLimits;

use super::changes::{self, BLOBS, CHANGES, Changes};
use super::inner_sandbox::{InnerSandbox, RESULT_DIRECTORY, failed, part};
use super::request;
use crate::engine::sandbox::attempt::{NestedSource, SandboxAttempt};
use crate::engine::sandbox::handle::SandboxHandle;
use crate::engine::sandbox::request::RESULT as RESULTS;
use crate::engine::sandbox::{result, review};
use crate::engine::task_error::TaskError;
use crate::store::sandboxes::Review;

impl InnerSandbox<'_> {
    /// Stores the result on the host until it is handed back.
    pub(super) fn store_result(&self, result: Result<Value, &TaskError>) -> Result<(), TaskError> {
        let giving = self.part("giving");
        let into = self.directory.create_fresh(&giving)?;
        let (status, outputs) = match result {
            Ok(outputs) => {
                self.store_changes(&into)?;
                (Status::Finished, outputs)
            }
            Err(task_error) => {
                let mut error = task_error.to_json();
                error["retryable"] = task_error.is_retryable.into();
                (Status::Failed, json!({ "error": error }))
            }
        };
        let written = StructuredResult {
            status,
            outputs,
            run_id: Some(self.name.clone()),
            patches: Vec::new(),
            artifacts: Vec::new(),
            diff_bundle: None,
            stream_log: None,
        };
        write_result(&into, &written).map_err(|error| result::refused(&error))?;
        self.directory.rename(&giving, &self.part(RESULT_DIRECTORY))
    }

    /// Stores its accepted changes, with their contents. They were applied to the copy of the
    /// workspace.
    fn store_changes(&self, into: &Dir) -> Result<(), TaskError> {
        let noted = self.part("noted");
        if !self.directory.has(&noted)? {
            return Ok(());
        }
        let all: Changes = read_changes(&self.directory.open_part(&noted)?)?;
        let fork = Dir::open(&self.directory.path.join(self.part("workspace")))?;
        let blobs_name = RelativePath::new(BLOBS).map_err(failed)?;
        into.mkdir(&blobs_name, 0o700)?;
        let blobs = into.open_dir(&blobs_name)?;
        let mut accepted = Changes::default();
        let mut left = BundleLimits::SANDBOX.total_bytes;
        for entry in all.entries {
            let new = entry.change.new_node();
            if entry.refused.is_some() || !changes::is_applied(&fork, &entry)? {
                continue;
            }
            if let Some(Node::File { hash, size, .. }) = new {
                left = left.checked_sub(*size).ok_or_else(|| {
                    TaskError::new(
                        "INVALID_INPUT",
                        "its changes exceed the maximum size of a bundle",
                    )
                })?;
                let name = changes::blob(*hash)?;
                if blobs.stat(&name)?.is_none() {
                    changes::copy_blob(&fork, &entry.path, *hash, &blobs, &name)?;
                }
            }
            accepted.entries.push(entry);
        }
        write_changes(into, &accepted)
    }

    /// Writes the result into the enclosing sandbox, with the manifest last: without a manifest there
    /// is no result.
    pub(super) async fn return_result(&self) -> Result<(), TaskError> {
        let result_dir = self.directory.open_part(&self.part(RESULT_DIRECTORY))?;
        let to = format!("{RESULTS}/{}/{}", self.id.directory(), request::RESULT);
        let operation = |what: &str| format!("give-{}-{what}", &self.name[..12]);
        self.handle.make_directory(&operation("directory"), &format!("{to}/{BLOBS}")).await?;
        let mut files = Vec::new();
        if result_dir.stat(&RelativePath::new(CHANGES).map_err(failed)?)?.is_some() {
            let blobs = result_dir.open_dir(&RelativePath::new(BLOBS).map_err(failed)?)?;
            for (name, _) in blobs.entries()? {
                let name = String::from_utf8(name).map_err(failed)?;
                files.push(format!("{BLOBS}/{name}"));
            }
            files.push(CHANGES.to_owned());
        }
        files.push("README.md".to_owned());
        for file in files {
            let path = RelativePath::new(file.as_str()).map_err(failed)?;
            let mut content = Vec::new();
            let most = BundleLimits::SANDBOX.total_bytes;
            result_dir.open_file(&path)?.take(most).read_to_end(&mut content).map_err(failed)?;
            let at = format!("{to}/{file}");
            self.handle.write_again(&operation(&file), &at, &content).await?;
        }
        Ok(())
    }
}

impl SandboxAttempt {
    /// Stores the changes of a nested sandbox before they are applied to its copy of the workspace,
    /// because applying them removes their bundles.
    pub(in super::super) async fn record_changes(
        &self,
        handle: &SandboxHandle,
        review: &Review,
    ) -> Result<(), TaskError> {
        let Some(NestedSource { name, .. }) = &self.nested_source else { return Ok(()) };
        let (directory, noted) = (self.directory()?, part("noted", name));
        if directory.has(&noted)? {
            return Ok(());
        }
        let mut entries: Vec<Entry> = Vec::new();
        for id in &review.bundles {
            entries.extend(review::entries(handle, id).await?.into_iter().flatten());
        }
        entries.sort_by(|one, other| one.path.cmp(&other.path));
        entries.dedup_by(|one, other| one.path == other.path);
        let noting = part("noting", name);
        write_changes(&directory.create_fresh(&noting)?, &Changes { entries })?;
        directory.rename(&noting, &noted)
    }
}

pub(super) fn read_changes(dir: &Dir) -> Result<Changes, TaskError> {
    let name = RelativePath::new(CHANGES).map_err(failed)?;
    let mut text = Vec::new();
    let most = BundleLimits::SANDBOX.total_bytes;
    dir.open_file(&name)?.take(most).read_to_end(&mut text).map_err(failed)?;
    serde_json::from_slice(&text).map_err(failed)
}

fn write_changes(dir: &Dir, changes: &Changes) -> Result<(), TaskError> {
    let name = RelativePath::new(CHANGES).map_err(failed)?;
    let text = serde_json::to_vec(changes).map_err(failed)?;
    let mut file = dir.create_file(&name, 0o600)?;
    file.write_all(&text).and_then(|()| file.sync_data()).map_err(failed)
}
