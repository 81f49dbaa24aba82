//! The files below `patches/` of a result as changes. Each is a unified diff of any number of files, and is
//! split into one change per file; whether a change fits the project is decided where it is proposed.

use std::collections::HashMap;
use std::io::Read as _;

use serde_json::{Value, json};
use stockade_core::BundleLimits;

use super::{Error, Limit, SandboxBundle, too_large};
use crate::beneath::Dir;
use crate::patch::{self, FilePatch};
use crate::path::RelativePath;

/// The largest size of all patch files together, in bytes. They are held in memory, unlike artifacts.
const PATCH_BYTES: u64 = 16 << 20;

/// The changes in the files below `patches/`, as a `diffBundle`; `None` if there are none. An empty file, as
/// `git diff` writes it where nothing has changed, has none.
///
/// # Errors
/// A file that is not a patch, that changes nothing, or that changes a path which another one changes too.
pub fn patch_files(
    dir: &Dir,
    bundle: &SandboxBundle,
    limits: &BundleLimits,
) -> Result<Option<Value>, Error> {
    let mut changes = Vec::new();
    let mut origins = HashMap::new();
    let mut left = PATCH_BYTES;
    for name in &bundle.patches {
        let text = read(dir, name, left, limits)?;
        left -= text.len() as u64;
        let files = patch::parse(text.as_bytes(), limits)
            .map_err(|source| Error::PatchFile { path: name.quoted(), source })?;
        if files.is_empty() && !text.trim().is_empty() {
            return Err(Error::NoPatch { path: name.quoted() });
        }
        for file in files {
            let path = changed_path(&file)?;
            let change = change(&file, &path, &text)?;
            if let Some(other) = origins.insert(path.clone(), name) {
                let (one, other) = (other.quoted(), name.quoted());
                return Err(Error::PatchedTwice { path: path.quoted(), one, other });
            }
            changes.push(change);
            if changes.len() as u64 > limits.entries {
                return Err(too_large(Limit::Patches, limits.entries, limits));
            }
        }
    }
    let has_changes = !changes.is_empty();
    Ok(has_changes.then(|| json!({ "seq": 0, "baseRef": "HEAD", "patches": changes })))
}

fn read(dir: &Dir, name: &RelativePath, left: u64, limits: &BundleLimits) -> Result<String, Error> {
    let mut bytes = Vec::new();
    let file = dir.open_file(name).map_err(Error::read_error)?;
    file.take(left + 1).read_to_end(&mut bytes).map_err(Error::ReadManifest)?;
    if bytes.len() as u64 > left {
        return Err(too_large(Limit::PatchBytes, PATCH_BYTES, limits));
    }
    String::from_utf8(bytes).map_err(|_| Error::PatchText { path: name.quoted() })
}

/// The path that a change is announced for.
fn changed_path(file: &FilePatch<'_>) -> Result<RelativePath, Error> {
    let path = file.new_path.as_ref().or(file.old_path.as_ref());
    path.cloned().ok_or_else(|| Error::Manifest { reason: "a patch names no path".to_owned() })
}

fn change(file: &FilePatch<'_>, path: &RelativePath, text: &str) -> Result<Value, Error> {
    let operation = match file.operation {
        patch::Operation::Add | patch::Operation::Copy => "add",
        patch::Operation::Delete => "delete",
        patch::Operation::Modify | patch::Operation::Rename => "modify",
    };
    let diff = text.get(file.place.clone()).unwrap_or_default();
    let path = std::str::from_utf8(path.as_bytes())
        .map_err(|_| Error::PatchText { path: path.quoted() })?;
    Ok(json!({ "path": path, "operation": operation, "diff": diff }))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::sandbox::{Operation, SandboxManifest, read};

    const EDIT: &str = "--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-one\n+two\n";

    fn split(files: &[(&str, &[u8])]) -> Result<Option<Value>, Error> {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("patches")).unwrap();
        for (name, content) in files {
            fs::write(directory.path().join("patches").join(name), content).unwrap();
        }
        fs::write(directory.path().join("README.md"), "{\"status\":\"finished\"}").unwrap();
        let dir = Dir::open(directory.path()).unwrap();
        patch_files(&dir, &read(&dir).unwrap(), &BundleLimits::SANDBOX)
    }

    fn refused(files: &[(&str, &[u8])]) -> String {
        let error = split(files).unwrap_err();
        assert_eq!(error.code(), "INVALID_INPUT", "{error}");
        let source = std::error::Error::source(&error).map(ToString::to_string);
        format!("{error}: {}", source.unwrap_or_default())
    }

    #[test]
    fn a_patch_is_split_into_one_change_per_file() {
        let mail = format!(
            "From 0123 Mon Sep 17 00:00:00 2001\nSubject: [PATCH] Change\n\n---\n a.txt | 2 +-\n\n\
             diff --git a/old b/new\nsimilarity index 100%\nrename from old\nrename to new\n\
             diff --git a/gone b/gone\ndeleted file mode 100644\n--- a/gone\n+++ /dev/null\n@@ -1 +0,0 @@\n--- b/\n\
             {EDIT}-- \n2.39.0\n"
        );
        let files: [(&str, &[u8]); 3] = [
            ("1.patch", mail.as_bytes()),
            ("2.patch", b""),
            ("3.patch", b"--- /dev/null\n+++ b/b\n@@ -0,0 +1 @@\n+x\n"),
        ];
        let diff = split(&files).unwrap().unwrap();
        let manifest = json!({ "status": "finished", "diffBundle": diff }).to_string();
        let manifest = SandboxManifest::parse(manifest.as_bytes(), &BundleLimits::SANDBOX).unwrap();
        let patches = manifest.diff_bundle.unwrap().patches;
        let told: Vec<_> =
            patches.iter().map(|patch| (patch.path.quoted(), patch.operation)).collect();
        let wanted = [
            ("new", Operation::Modify),
            ("gone", Operation::Delete),
            ("a.txt", Operation::Modify),
            ("b", Operation::Add),
        ];
        assert_eq!(told, wanted.map(|(path, operation)| (path.to_owned(), operation)));
        assert_eq!(patches[2].diff, EDIT);
        for patch in &patches {
            let parsed = patch::parse(patch.diff.as_bytes(), &BundleLimits::SANDBOX).unwrap();
            assert_eq!(parsed.len(), 1, "{}", patch.diff);
        }
        assert_eq!(split(&[]).unwrap(), None);
        assert_eq!(split(&[("empty.patch", b"")]).unwrap(), None);
    }

    #[test]
    fn what_is_no_patch_is_refused_with_its_name() {
        for (text, why) in [
            (&b"mine\n"[..], "patches/x has no diff"),
            (b"--- a.txt\n+++ a.txt\n@@ -1 +1 @@\n-one\n+two\n", "does not begin with `a/`"),
            (b"--- a/../up\n+++ b/../up\n@@ -1 +1 @@\n-one\n+two\n", "patches/x is not a patch"),
            (
                b"--- /etc/passwd\n+++ /etc/passwd\n@@ -1 +1 @@\n-one\n+two\n",
                "patches/x is not a patch",
            ),
            (b"--- a/a\n+++ b/a\n@@ -1,9 +1 @@\n-one\n+two\n", "as many lines"),
            (b"--- a/a\n+++ b/a\n@@ -1 +1 @@\n-one\n+\xff\n", "UTF-8"),
        ] {
            let error = refused(&[("x", text)]);
            assert!(error.contains(why), "{error}");
        }
        let error = refused(&[("1.patch", EDIT.as_bytes()), ("2.patch", EDIT.as_bytes())]);
        assert!(error.contains("patches/1.patch and patches/2.patch"), "{error}");
        let large = [b"\n".repeat(9 << 20), b"\n".repeat(9 << 20)];
        let error = refused(&[("1", &large[0]), ("2", &large[1])]);
        assert!(error.contains("the size of all patches"), "{error}");
    }
}
