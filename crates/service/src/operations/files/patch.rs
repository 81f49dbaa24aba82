//! `apply_patch`: a unified diff for files below a directory, all or none. Every new content is computed
//! before the first file is written; if a write fails, the files before it get their old content back.

use std::collections::HashSet;

use stockade_api::{
    AppliedPatch, ApplyPatch, Bytes, Caller, FileChange, FileContent, PatchedFile, RemoveFile,
    Result, WriteFile,
};
use stockade_bundle::RelativePath;
use stockade_bundle::patch::{self, FilePatch, Hunk, Operation, Side};
use stockade_bundle::propose::apply_hunks;
use stockade_core::access::Level;
use stockade_core::{BundleLimits, Code, Problem};
use stockade_runtime::{Error, FileKind, ReadRange, Runtime, SandboxPath};
use tokio::io::AsyncReadExt as _;

use super::change::{Change, change, write};
use super::{join, refuse_secret_files, resolve_allowed, use_sandbox};
use crate::failure::{invalid, runtime_problem};
use crate::owned_sandbox::OwnedSandbox;
use crate::paths::{as_bytes, as_path, resolve};
use crate::service::Service;

/// The largest file that is patched.
const FILE_BYTES: u64 = 64 << 20;
/// The largest size of all files of one patch together, before and after it.
const TOTAL_BYTES: usize = 256 << 20;
/// The largest diff.
const DIFF_BYTES: usize = 64 << 20;

/// The file type bits of a symbolic link in a mode.
const LINK: u32 = 0o120_000;
/// The permission bits of a mode.
const PERMISSIONS: u32 = 0o7777;

/// A file before or after the patch.
struct File {
    content: Vec<u8>,
    mode: u32,
}

/// One path of the patch.
struct Planned {
    path: Bytes,
    before: Option<File>,
    after: Option<File>,
}

/// Applies a patch.
pub(crate) async fn apply(
    service: &Service,
    caller: &Caller,
    request: ApplyPatch,
) -> Result<AppliedPatch> {
    let owned = use_sandbox(service, caller, &request.sandbox_id).await?;
    let runtime = &**service.inner.runtime(&owned.runtime)?;
    if request.diff.0.len() > DIFF_BYTES {
        return Err(invalid(format!("the diff is larger than {DIFF_BYTES} bytes")));
    }
    let patches = patch::parse(&request.diff.0, &BundleLimits::RUN).map_err(|error| {
        invalid("the diff cannot be read").because(error.to_string()).remedied_by(
            "send a unified diff with `--- a/PATH` and `+++ b/PATH` before the hunks of each file",
        )
    })?;
    if patches.is_empty() {
        return Err(invalid("the diff changes nothing")
            .because("it has no `--- a/PATH` and `+++ b/PATH` lines"));
    }
    let mut plan =
        Plan { runtime, owned: &owned, base: request.path, seen: HashSet::new(), size: 0 };
    let (mut planned, mut files) = (Vec::new(), Vec::new());
    for patch in &patches {
        files.push(plan.add(patch, &mut planned).await?);
    }
    let caller = Caller { idempotency_key: None, ..caller.clone() };
    for (index, file) in planned.iter().enumerate() {
        if let Err(problem) = put(service, &caller, &owned, &file.path, file.after.as_ref()).await {
            restore(service, &caller, &owned, &planned[..index]).await;
            return Err(problem);
        }
    }
    Ok(AppliedPatch { files })
}

struct Plan<'a> {
    runtime: &'a dyn Runtime,
    owned: &'a OwnedSandbox,
    base: Bytes,
    /// The paths of the patch.
    seen: HashSet<RelativePath>,
    size: usize,
}

impl Plan<'_> {
    /// Adds what one file of the patch needs.
    async fn add(&mut self, patch: &FilePatch<'_>, to: &mut Vec<Planned>) -> Result<PatchedFile> {
        let path = patch.new_path.as_ref().or(patch.old_path.as_ref());
        let path = path.ok_or_else(|| invalid("a file of the diff has no path"))?;
        let misfit = |reason: &str| {
            Problem::new(Code::Conflict, format!("the diff of {} does not apply", path.quoted()))
                .because(reason.to_owned())
                .remedied_by("read the file, and send a diff of its present content")
        };
        if patch.binary {
            return Err(Problem::new(
                Code::Unsupported,
                format!("the diff of {} is binary", path.quoted()),
            ));
        }
        let is_link = |mode: Option<u32>| mode.is_some_and(|mode| mode & LINK == LINK);
        if is_link(patch.old_mode) || is_link(patch.new_mode) {
            return Err(Problem::new(
                Code::Unsupported,
                format!("the diff of {} changes a symbolic link", path.quoted()),
            ));
        }
        let source = match patch.operation {
            Operation::Rename | Operation::Copy => patch.old_path.as_ref().unwrap_or(path),
            _ => path,
        };
        let (source_path, old) = self.read(source).await?;
        let (target_path, target) = match source == path {
            true => (source_path.clone(), None),
            false => self.read(path).await?,
        };
        let is_new = patch.operation == Operation::Add;
        match (&old, &target) {
            (Some(_), _) if is_new => return Err(misfit("the file exists already")),
            (_, Some(_)) => return Err(misfit("the file exists already")),
            (None, _) if !is_new => return Err(misfit("there is no such file")),
            _ => {}
        }
        let before = old.as_ref().map_or(&[][..], |file| file.content.as_slice());
        let content = relocate(before, &patch.hunks).and_then(|hunks| apply_hunks(before, &hunks));
        let content = content.map_err(misfit)?;
        self.count(content.len())?;
        if patch.operation == Operation::Delete && !content.is_empty() {
            return Err(misfit("the file would not be empty after its deletion"));
        }
        let mode = patch.new_mode.map(|mode| mode & PERMISSIONS);
        let mode = mode.or_else(|| old.as_ref().map(|file| file.mode)).unwrap_or(0o644);
        let after = File { content, mode };
        let mut once = |path: &RelativePath| {
            let is_first = self.seen.insert(path.clone());
            is_first.then_some(()).ok_or_else(|| {
                invalid(format!("the diff changes {} more than once", path.quoted()))
            })
        };
        let change = match patch.operation {
            Operation::Add | Operation::Modify => {
                once(path)?;
                to.push(Planned { path: source_path, before: old, after: Some(after) });
                if is_new { FileChange::Added } else { FileChange::Modified }
            }
            Operation::Delete => {
                once(path)?;
                to.push(Planned { path: source_path, before: old, after: None });
                FileChange::Deleted
            }
            Operation::Copy => {
                once(path)?;
                to.push(Planned { path: target_path, before: None, after: Some(after) });
                FileChange::Added
            }
            Operation::Rename => {
                once(path)?;
                once(source)?;
                to.push(Planned { path: target_path, before: None, after: Some(after) });
                to.push(Planned { path: source_path, before: old, after: None });
                FileChange::Renamed
            }
        };
        Ok(PatchedFile { path: Bytes(path.as_bytes().to_vec()), change })
    }

    /// The path of a file below the directory, and the file if it exists. No link may lead to it, so that
    /// a patch changes only files below the directory.
    async fn read(&mut self, path: &RelativePath) -> Result<(Bytes, Option<File>)> {
        let base = as_path(&self.base)?;
        let base = resolve(self.runtime, &self.owned.id, &base, true).await?;
        let named = Bytes(join(as_bytes(&base), path.as_bytes()));
        let plain = as_path(&named)?;
        let reached = resolve(self.runtime, &self.owned.id, &plain, true).await?;
        if as_bytes(&reached) != named.0 {
            let message = format!("{} leads through a symbolic link", path.quoted());
            return Err(Problem::new(Code::PathInvalid, message)
                .because("a diff changes files below one directory only"));
        }
        resolve_allowed(self.runtime, self.owned, Level::ReadWrite, &named, true).await?;
        // It could be moved to a place that is copied.
        refuse_secret_files(self.runtime, &self.owned.id, &plain).await?;
        let file = self.content(&plain, path).await?;
        self.count(file.as_ref().map_or(0, |file| file.content.len()))?;
        Ok((named, file))
    }

    async fn content(&self, path: &SandboxPath, name: &RelativePath) -> Result<Option<File>> {
        let info = match self.runtime.stat(&self.owned.id, path).await {
            Ok(info) => info,
            Err(error) => {
                let problem = runtime_problem(&error);
                let is_missing = problem.code == Code::FileNotFound;
                return match error {
                    Error::File { .. } if is_missing => Ok(None),
                    _ => Err(problem),
                };
            }
        };
        if info.kind != FileKind::File {
            return Err(Problem::new(
                Code::PathInvalid,
                format!("{} is not a regular file", name.quoted()),
            ));
        }
        let range = ReadRange { offset: 0, length: Some(FILE_BYTES + 1) };
        let content = self.runtime.read_file(&self.owned.id, path, range).await;
        let mut content = content.map_err(|error| runtime_problem(&error))?;
        let mut bytes = Vec::new();
        content.read_to_end(&mut bytes).await.map_err(|error| {
            Problem::new(Code::Io, format!("cannot read {}", name.quoted()))
                .because(error.to_string())
        })?;
        if bytes.len() as u64 > FILE_BYTES {
            return Err(invalid(format!("{} is larger than {FILE_BYTES} bytes", name.quoted())));
        }
        Ok(Some(File { content: bytes, mode: info.mode & PERMISSIONS }))
    }

    fn count(&mut self, size: usize) -> Result<()> {
        self.size = self.size.saturating_add(size);
        if self.size > TOTAL_BYTES {
            let message =
                format!("the files of the diff are larger than {TOTAL_BYTES} bytes together");
            return Err(invalid(message));
        }
        Ok(())
    }
}

/// The hunks with the line numbers at which they fit: each at the place nearest to the one that it names,
/// as the lines before it may have moved.
fn relocate<'a>(
    base: &[u8],
    hunks: &[Hunk<'a>],
) -> std::result::Result<Vec<Hunk<'a>>, &'static str> {
    let lines: Vec<&[u8]> = base.split_inclusive(|byte| *byte == b'\n').collect();
    let mut moved = Vec::with_capacity(hunks.len());
    // Where the last hunk ended, and how far it was from its line.
    let (mut from, mut offset) = (0_usize, 0_isize);
    for hunk in hunks {
        let mut hunk = hunk.clone();
        let old: Vec<_> = hunk.lines.iter().filter(|line| line.side != Side::New).collect();
        if old.is_empty() {
            // Nothing shows where it belongs but its number.
            moved.push(hunk);
            continue;
        }
        let fits = |first: usize| {
            let found = lines.get(first..first + old.len());
            found.is_some_and(|found| {
                found.iter().zip(&old).all(|(found, line)| match found.strip_suffix(b"\n") {
                    Some(text) => line.newline && text == line.text,
                    None => !line.newline && *found == line.text,
                })
            })
        };
        let named = (hunk.old_start as usize).saturating_sub(1);
        let expected = named.saturating_add_signed(offset).max(from);
        let last = lines.len().saturating_sub(old.len());
        let farthest = expected.saturating_sub(from).max(last.saturating_sub(expected));
        let mut candidates = (0..=farthest).flat_map(|distance| {
            let before = expected.checked_sub(distance).filter(|first| *first >= from);
            before.into_iter().chain((distance > 0).then(|| expected.saturating_add(distance)))
        });
        let first = candidates
            .find(|first| fits(*first))
            .ok_or("the lines that it refers to are different")?;
        offset = first.cast_signed().saturating_sub(named.cast_signed());
        from = first + old.len();
        hunk.old_start = u32::try_from(first + 1).map_err(|_| "the file has too many lines")?;
        moved.push(hunk);
    }
    Ok(moved)
}

/// Gives a file this content, or removes it.
async fn put(
    service: &Service,
    caller: &Caller,
    owned: &OwnedSandbox,
    path: &Bytes,
    file: Option<&File>,
) -> Result<()> {
    let (sandbox_id, path) = (owned.id.clone(), path.clone());
    match file {
        Some(file) => {
            let mode = Some(file.mode);
            let request = WriteFile { sandbox_id, path, mode, uid: None, gid: None };
            let content = FileContent(Box::pin(std::io::Cursor::new(file.content.clone())));
            write(service, caller, request, content).await.map(drop)
        }
        None => {
            let remove = Change::Remove(RemoveFile { sandbox_id, path });
            change(service, caller, remove).await.map(drop)
        }
    }
}

/// Gives files their old content back. What fails here was reported by the write that failed.
async fn restore(service: &Service, caller: &Caller, owned: &OwnedSandbox, files: &[Planned]) {
    for file in files.iter().rev() {
        let _ = put(service, caller, owned, &file.path, file.before.as_ref()).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn patched(base: &str, hunks: &str) -> std::result::Result<String, &'static str> {
        let diff = format!("--- a/f\n+++ b/f\n{hunks}");
        let files = patch::parse(diff.as_bytes(), &BundleLimits::RUN).unwrap();
        let hunks = relocate(base.as_bytes(), &files[0].hunks)?;
        apply_hunks(base.as_bytes(), &hunks).map(|bytes| String::from_utf8(bytes).unwrap())
    }

    #[test]
    fn a_hunk_is_found_where_its_lines_are() {
        let hunk = "@@ -2,2 +2,2 @@\n b\n-c\n+C\n";
        assert_eq!(patched("a\nb\nc\n", hunk).unwrap(), "a\nb\nC\n");
        assert_eq!(patched("x\ny\na\nb\nc\nz\n", hunk).unwrap(), "x\ny\na\nb\nC\nz\n");
        assert_eq!(patched("b\nc\n", hunk).unwrap(), "b\nC\n");
        // The nearest one of several.
        assert_eq!(
            patched("b\nc\nb\nc\nb\nc\n", "@@ -3,2 +3,2 @@\n b\n-c\n+C\n").unwrap(),
            "b\nc\nb\nC\nb\nc\n"
        );
        assert!(patched("a\nb\nd\n", hunk).is_err());
        assert!(patched("", hunk).is_err());
    }

    #[test]
    fn later_hunks_follow_earlier_ones() {
        let hunks = "@@ -1,1 +1,2 @@\n a\n+b\n@@ -5,1 +6,1 @@\n-e\n+E\n";
        let moved = patched("0\n0\na\nb\nc\nd\ne\n", hunks).unwrap();
        assert_eq!(moved, "0\n0\na\nb\nb\nc\nd\nE\n");
        // The lines of the second are only before those of the first.
        assert!(patched("e\na\nb\n", hunks).is_err());
        let last = "@@ -1,2 +1,2 @@\n a\n-b\n\\ No newline at end of file\n+B\n";
        assert_eq!(patched("a\nb", last).unwrap(), "a\nB\n");
        assert!(patched("a\nb\n", last).is_err());
    }
}
