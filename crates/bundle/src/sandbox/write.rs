//! Writing the two directories of a `<Sandbox>`: the request that is sent to it, and the result of
//! a provider that returned it without writing it itself. Both can be [read](super::read).

use std::io::Write as _;

use serde_json::{Value, json};
use stockade_core::BundleLimits;

use super::manifest::{SandboxManifest, Status};
use super::{Error, Limit, SandboxBundle, too_large};
use crate::beneath::{self, Dir};
use crate::path::RelativePath;

/// The request that is sent to a sandbox (Smithers, "How sandbox execution works", step 2).
#[derive(Debug, Clone, Copy)]
pub struct Request<'r> {
    /// The id of the `<Sandbox>`.
    pub sandbox_id: &'r str,
    /// The id of its provider, if it has one.
    pub provider: Option<&'r str>,
    /// The selected runtime, if it has no provider.
    pub runtime: Option<&'r str>,
    /// The input of the child workflow.
    pub input: &'r Value,
    /// Its ancestry, if it is in another sandbox.
    pub lineage: Option<&'r Value>,
    /// Files beside the manifest, such as the child workflow: path and content. Only the owner
    /// can read them.
    pub files: &'r [(RelativePath, Vec<u8>)],
}

/// The result of a provider (Smithers, "Result bundles").
#[derive(Debug, Clone)]
pub struct StructuredResult {
    /// The status at the end of its work.
    pub status: Status,
    /// The value that it returns.
    pub outputs: Value,
    /// The remote run's id.
    pub run_id: Option<String>,
    /// Files for `patches/`, by their paths in the bundle.
    pub patches: Vec<(String, Vec<u8>)>,
    /// Files for `artifacts/`, by their paths in the bundle.
    pub artifacts: Vec<(String, Vec<u8>)>,
    /// The changes to apply, in the form of a manifest.
    pub diff_bundle: Option<Value>,
    /// The content of `logs/stream.ndjson`.
    pub stream_log: Option<Vec<u8>>,
}

/// Writes a request into an empty directory. Returns its size in bytes.
///
/// # Errors
/// [`Error::TooLarge`] beyond the limits of `<Sandbox>` bundles, and errors of file operations.
pub fn write_request(dir: &Dir, request: &Request<'_>) -> Result<u64, Error> {
    let limits = BundleLimits::SANDBOX;
    let Request { sandbox_id, provider, runtime, input, lineage, files } = request;
    let mut manifest = json!({
        "status": "pending",
        "sandboxId": sandbox_id,
        "provider": provider,
        "runtime": runtime,
        "input": input,
    });
    if let Some(lineage) = lineage {
        manifest["lineage"] = (*lineage).clone();
    }
    let manifest = format!("{manifest:#}");
    let contents = files.iter().map(|(_, content)| content.len());
    check_sizes(manifest.len(), contents, &limits)?;
    for (path, content) in *files {
        file(dir, path, content)?;
    }
    file(dir, &readme()?, manifest.as_bytes())?;
    let lengths = files.iter().map(|(_, content)| content.len() as u64);
    Ok(manifest.len() as u64 + lengths.sum::<u64>())
}

/// Writes a result into an empty directory, and reads it again. Nothing is written if the result
/// exceeds the limits or names a path outside its directory.
///
/// # Errors
/// Those of [`super::read`] for such a bundle, and errors of file operations.
pub fn write_result(dir: &Dir, result: &StructuredResult) -> Result<SandboxBundle, Error> {
    let limits = BundleLimits::SANDBOX;
    let listed: Vec<&str> = result.patches.iter().map(|(path, _)| path.as_str()).collect();
    let manifest = json!({
        "status": result.status,
        "runId": result.run_id,
        "outputs": result.outputs,
        "patches": listed,
        "diffBundle": result.diff_bundle,
    });
    let manifest = format!("{manifest:#}");
    let files = result.patches.iter().chain(&result.artifacts).map(|(_, content)| content);
    let files = files.chain(&result.stream_log).map(Vec::len);
    check_sizes(manifest.len(), files, &limits)?;
    let patches = SandboxManifest::parse(manifest.as_bytes(), &limits)?.patches;
    if result.artifacts.len() as u64 > limits.entries {
        return Err(too_large(Limit::Artifacts, limits.entries, &limits));
    }
    let artifacts = result.artifacts.iter().map(|(path, _)| artifact(path, &limits));
    let artifacts = artifacts.collect::<Result<Vec<_>, _>>()?;
    for (path, (_, content)) in patches.iter().zip(&result.patches) {
        file(dir, path, content)?;
    }
    for (path, (_, content)) in artifacts.iter().zip(&result.artifacts) {
        file(dir, path, content)?;
    }
    if let Some(log) = &result.stream_log {
        file(dir, &literal("logs/stream.ndjson")?, log)?;
    }
    // The manifest is written last: without it there is no bundle.
    file(dir, &readme()?, manifest.as_bytes())?;
    super::read_within(dir, &limits)
}

pub(super) fn check_sizes(
    manifest: usize,
    files: impl Iterator<Item = usize>,
    limits: &BundleLimits,
) -> Result<(), Error> {
    if manifest as u64 > limits.manifest_bytes {
        return Err(too_large(Limit::ManifestBytes, limits.manifest_bytes, limits));
    }
    let total = files.fold(manifest as u64, |sum, length| sum.saturating_add(length as u64));
    if total > limits.total_bytes {
        return Err(too_large(Limit::TotalBytes, limits.total_bytes, limits));
    }
    Ok(())
}

/// The path of an artifact, which must be below `artifacts/`.
fn artifact(text: &str, limits: &BundleLimits) -> Result<RelativePath, Error> {
    if text.len() as u64 > limits.path_bytes {
        return Err(too_large(Limit::PathBytes, limits.path_bytes, limits));
    }
    let path = RelativePath::new(text).ok();
    path.filter(|path| path.as_bytes().starts_with(b"artifacts/")).ok_or_else(|| Error::Escape {
        path: stockade_core::printable::escaped(text).into_owned(),
        inside: "artifacts/",
    })
}

pub(super) fn readme() -> Result<RelativePath, Error> {
    literal("README.md")
}

pub(super) fn literal(path: &'static str) -> Result<RelativePath, Error> {
    RelativePath::new(path).map_err(|error| Error::Manifest { reason: error.to_string() })
}

/// Creates a file and its parent directories. A path that two files have is refused.
pub(super) fn file(dir: &Dir, path: &RelativePath, content: &[u8]) -> Result<(), Error> {
    let mut missing = Vec::new();
    let mut parent = path.parent();
    while let Some(directory) = parent {
        parent = directory.parent();
        missing.push(directory);
    }
    for directory in missing.into_iter().rev() {
        match dir.mkdir(&directory, 0o700) {
            Err(error) if error.kind() == Some(std::io::ErrorKind::AlreadyExists) => {}
            made => made.map_err(|error| duplicate_error(error, path))?,
        }
    }
    let mut file = dir.create_file(path, 0o600).map_err(|error| duplicate_error(error, path))?;
    file.write_all(content).and_then(|()| file.sync_data()).map_err(Error::WriteFile)
}

/// The error for a path that another file of the same bundle already uses.
fn duplicate_error(error: beneath::Error, path: &RelativePath) -> Error {
    use std::io::ErrorKind::{AlreadyExists, NotADirectory};
    match error.kind() {
        Some(AlreadyExists | NotADirectory) => {
            Error::Manifest { reason: format!("{} would overwrite another file", path.quoted()) }
        }
        _ => Error::Write(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sandbox::Operation;

    fn empty() -> (tempfile::TempDir, Dir) {
        let directory = tempfile::tempdir().unwrap();
        let dir = Dir::open(directory.path()).unwrap();
        (directory, dir)
    }

    fn result() -> StructuredResult {
        StructuredResult {
            status: Status::Finished,
            outputs: json!({"summary": "done"}),
            run_id: Some("vm-1".to_owned()),
            patches: Vec::new(),
            artifacts: Vec::new(),
            diff_bundle: None,
            stream_log: None,
        }
    }

    fn named(path: &str) -> Vec<(String, Vec<u8>)> {
        vec![(path.to_owned(), b"content".to_vec())]
    }

    #[test]
    fn a_request_is_a_pending_manifest_with_its_files() {
        let (directory, dir) = empty();
        let files = [(RelativePath::new(".smithers/egress/ca.crt").unwrap(), b"PEM".to_vec())];
        let input = json!({"prompt": "x"});
        let provider = Some("remote-vm");
        let request = Request {
            sandbox_id: "review",
            provider,
            runtime: None,
            input: &input,
            lineage: None,
            files: &files,
        };
        let size = write_request(&dir, &request).unwrap();
        let text = std::fs::read_to_string(directory.path().join("README.md")).unwrap();
        assert_eq!(size, text.len() as u64 + 3);
        let manifest: Value = serde_json::from_str(&text).unwrap();
        let expected = json!({"status": "pending", "sandboxId": "review", "provider": "remote-vm",
            "runtime": null, "input": {"prompt": "x"}});
        assert_eq!(manifest, expected);
        assert!(text.starts_with("{\n  \""), "{text}");
        let written = std::fs::read(directory.path().join(".smithers/egress/ca.crt")).unwrap();
        assert_eq!(written, b"PEM");
    }

    #[test]
    fn a_result_is_written_as_a_sandbox_would() {
        let (_place, dir) = empty();
        let patch = json!({"path": "src/app.ts", "operation": "modify", "diff": "diff --git"});
        let whole = StructuredResult {
            patches: named("patches/a.patch"),
            artifacts: named("artifacts/deep/report.txt"),
            diff_bundle: Some(json!({"seq": 1, "baseRef": "HEAD", "patches": [patch]})),
            stream_log: Some(b"{}\n".to_vec()),
            ..result()
        };
        let bundle = write_result(&dir, &whole).unwrap();
        assert_eq!(bundle.manifest.status, Status::Finished);
        assert_eq!(bundle.manifest.run_id.as_deref(), Some("vm-1"));
        assert_eq!(bundle.manifest.outputs, whole.outputs);
        assert_eq!(bundle.patches[0].as_bytes(), b"patches/a.patch");
        assert_eq!(bundle.artifacts[0].as_bytes(), b"artifacts/deep/report.txt");
        assert!(bundle.stream_log.is_some());
        let diff = bundle.manifest.diff_bundle.unwrap();
        assert_eq!(diff.patches[0].operation, Operation::Modify);
    }

    #[test]
    fn what_is_refused_is_not_begun() {
        let depth = (0..17).fold(json!(1), |inner, _| json!([inner]));
        let over = |limit, result| (Some(limit), "INVALID_INPUT", result);
        let escapes = |result| (None, "TOOL_PATH_ESCAPE", result);
        let many = |count: usize| (0..count).map(|n| (format!("artifacts/{n}"), Vec::new()));
        for (limit, code, refused) in [
            over(Limit::OutputDepth, StructuredResult { outputs: depth, ..result() }),
            over(
                Limit::ManifestBytes,
                StructuredResult {
                    diff_bundle: Some(
                        json!({"seq": 1, "baseRef": "x".repeat(6 << 20), "patches": []}),
                    ),
                    ..result()
                },
            ),
            over(
                Limit::TotalBytes,
                StructuredResult { stream_log: Some(vec![0; (100 << 20) + 1]), ..result() },
            ),
            over(
                Limit::RunIdCharacters,
                StructuredResult { run_id: Some("x".repeat(257)), ..result() },
            ),
            over(
                Limit::Artifacts,
                StructuredResult { artifacts: many(1001).collect(), ..result() },
            ),
            over(
                Limit::PathBytes,
                StructuredResult {
                    artifacts: named(&format!("artifacts/{}", "x".repeat(1024))),
                    ..result()
                },
            ),
            escapes(StructuredResult { patches: named("patches/../x"), ..result() }),
            escapes(StructuredResult { patches: named("other/x"), ..result() }),
            escapes(StructuredResult { artifacts: named("artifacts/../README.md"), ..result() }),
            escapes(StructuredResult { artifacts: named("/etc/passwd"), ..result() }),
            escapes(StructuredResult { artifacts: named("README.md"), ..result() }),
        ] {
            let (directory, dir) = empty();
            let error = write_result(&dir, &refused).unwrap_err();
            assert_eq!((error.limit(), error.code()), (limit, code), "{error}");
            assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "{error}");
        }
    }

    #[test]
    fn two_files_cannot_have_one_place() {
        for (one, other) in [("artifacts/a", "artifacts/a"), ("artifacts/a", "artifacts/a/b")] {
            let (directory, dir) = empty();
            let artifacts = [named(one), named(other)].concat();
            let error = write_result(&dir, &StructuredResult { artifacts, ..result() });
            assert_eq!(error.unwrap_err().code(), "INVALID_INPUT");
            assert!(!directory.path().join("README.md").exists());
        }
    }
}
