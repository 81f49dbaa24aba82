//! Completing the result of a child run that wrote its patches and artifacts into the directory
//! itself. The manifest and the log are written last, and no other file of the child run is
//! overwritten.

use serde_json::{Value, json};
use stockade_core::BundleLimits;

use super::manifest::{SandboxManifest, Status};
use super::write::{check_sizes, file, literal, readme};
use super::{Error, SandboxBundle, manifest_bytes, tree};
use crate::beneath::{Dir, Rename};
use crate::path::RelativePath;

/// How a child run ended.
#[derive(Debug, Clone, Copy)]
pub struct Conclusion<'c> {
    /// The status at its end.
    pub status: Status,
    /// The value that it returns.
    pub outputs: &'c Value,
    /// Its id.
    pub run_id: &'c str,
    /// The content of `logs/stream.ndjson`.
    pub stream_log: &'c [u8],
}

/// Completes the result in a directory, and reads it. The files below `patches/` are listed, and the
/// `diffBundle` of an existing manifest is kept. Nothing is changed if the result would exceed the
/// limits.
///
/// # Errors
/// Those of [`super::read`] for such a bundle, and errors of file operations.
pub fn conclude(dir: &Dir, conclusion: &Conclusion<'_>) -> Result<SandboxBundle, Error> {
    let limits = BundleLimits::SANDBOX;
    let Conclusion { status, outputs, run_id, stream_log } = conclusion;
    let tree = tree::walk(dir, &limits)?;
    let (readme, log) = (readme()?, literal("logs/stream.ndjson")?);
    let patches = tree.patches.iter().map(path_text).collect::<Result<Vec<_>, _>>()?;
    let manifest = json!({
        "status": status,
        "runId": run_id,
        "outputs": outputs,
        "patches": patches,
        "diffBundle": earlier_changes(dir, &limits)?,
    });
    let manifest = format!("{manifest:#}");
    SandboxManifest::parse(manifest.as_bytes(), &limits)?;
    let mut kept = tree.total_bytes;
    for replaced in [&readme, &log] {
        let there = dir.stat(replaced).map_err(Error::read_error)?;
        kept = kept.saturating_sub(there.map_or(0, |there| there.size));
    }
    let kept = usize::try_from(kept).unwrap_or(usize::MAX);
    check_sizes(manifest.len(), [kept, stream_log.len()].into_iter(), &limits)?;
    replace(dir, &log, stream_log)?;
    // The manifest is written last: without it there is no bundle.
    replace(dir, &readme, manifest.as_bytes())?;
    super::read_within(dir, &limits)
}

/// The changes to apply in an existing manifest.
fn earlier_changes(dir: &Dir, limits: &BundleLimits) -> Result<Value, Error> {
    let bytes = match manifest_bytes(dir, limits) {
        Ok(bytes) => bytes,
        Err(Error::NoManifest) => return Ok(Value::Null),
        Err(error) => return Err(error),
    };
    match serde_json::from_slice(&bytes) {
        Ok(Value::Object(mut manifest)) => Ok(manifest.remove("diffBundle").unwrap_or_default()),
        Ok(_) => Err(Error::Manifest { reason: "not a JSON object".to_owned() }),
        Err(error) => Err(Error::Manifest { reason: error.to_string() }),
    }
}

fn path_text(path: &RelativePath) -> Result<&str, Error> {
    std::str::from_utf8(path.as_bytes())
        .map_err(|_| Error::Manifest { reason: format!("{} is not UTF-8", path.quoted()) })
}

/// Writes a file, and replaces an existing one.
fn replace(dir: &Dir, path: &RelativePath, content: &[u8]) -> Result<(), Error> {
    let new = literal(".new")?;
    match dir.remove_file(&new) {
        Err(error) if error.kind() != Some(std::io::ErrorKind::NotFound) => {
            return Err(Error::Write(error));
        }
        _ => {}
    }
    if let Some(parent) = path.parent() {
        match dir.mkdir(&parent, 0o700) {
            Err(error) if error.kind() == Some(std::io::ErrorKind::AlreadyExists) => {}
            made => made.map_err(Error::Write)?,
        }
    }
    file(dir, &new, content)?;
    dir.rename(&new, dir, path, Rename::Replace).map_err(Error::Write)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::sandbox::read;

    fn scratch() -> (tempfile::TempDir, Dir) {
        let directory = tempfile::tempdir().unwrap();
        let dir = Dir::open(directory.path()).unwrap();
        (directory, dir)
    }

    const CONCLUSION: Conclusion<'_> = Conclusion {
        status: Status::Finished,
        outputs: &Value::Null,
        run_id: "child",
        stream_log: b"{}\n",
    };

    #[test]
    fn what_a_child_left_is_kept_and_listed() {
        let (directory, dir) = scratch();
        let path = |name: &str| directory.path().join(name);
        for (name, text) in [
            ("patches/a.patch", "mine"),
            ("artifacts/deep/b", "mine too"),
            ("logs/stream.ndjson", "not ours"),
            ("README.md", "{\"diffBundle\": {\"seq\": 1, \"baseRef\": \"HEAD\", \"patches\": []}}"),
        ] {
            fs::create_dir_all(path(name).parent().unwrap()).unwrap();
            fs::write(path(name), text).unwrap();
        }
        for outputs in [json!({ "n": 1 }), json!({ "n": 2 })] {
            let bundle = conclude(&dir, &Conclusion { outputs: &outputs, ..CONCLUSION }).unwrap();
            assert_eq!(bundle.manifest.outputs, outputs);
            assert_eq!(bundle.manifest.run_id.as_deref(), Some("child"));
            assert_eq!(bundle.manifest.patches, bundle.patches);
            assert_eq!(bundle.patches.len() + bundle.artifacts.len(), 2);
            assert_eq!(bundle.manifest.diff_bundle.as_ref().unwrap().base_ref, "HEAD");
        }
        assert_eq!(fs::read_to_string(path("patches/a.patch")).unwrap(), "mine");
        assert_eq!(fs::read_to_string(path("logs/stream.ndjson")).unwrap(), "{}\n");
        assert!(!path(".new").exists());
    }

    #[test]
    fn what_is_beyond_the_limits_is_not_written() {
        let (directory, dir) = scratch();
        let long = json!("x".repeat(65 << 10));
        let refused = conclude(&dir, &Conclusion { outputs: &long, ..CONCLUSION }).unwrap_err();
        assert_eq!(refused.code(), "INVALID_INPUT");
        assert!(refused.limit().is_some());
        fs::write(directory.path().join("README.md"), "[]").unwrap();
        assert!(matches!(conclude(&dir, &CONCLUSION), Err(Error::Manifest { .. })));
        fs::write(directory.path().join("README.md"), "{}").unwrap();
        std::os::unix::fs::symlink("/etc", directory.path().join("artifacts")).unwrap();
        assert_eq!(conclude(&dir, &CONCLUSION).unwrap_err().code(), "TOOL_PATH_ESCAPE");
        fs::remove_file(directory.path().join("artifacts")).unwrap();
        let large = fs::File::create(directory.path().join("large")).unwrap();
        large.set_len(100 << 20).unwrap();
        assert_eq!(conclude(&dir, &CONCLUSION).unwrap_err().code(), "INVALID_INPUT");
        assert!(!directory.path().join("logs").exists());
        fs::remove_file(directory.path().join("large")).unwrap();
        conclude(&dir, &CONCLUSION).unwrap();
        assert_eq!(read(&dir).unwrap().manifest.status, Status::Finished);
    }
}
