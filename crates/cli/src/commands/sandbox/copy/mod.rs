//! `stockade cp`: copies files and directories into a sandbox, or out of it.

mod exclude;
mod into;
mod out;
mod target;

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt as _;
use std::path::Path;

use indicatif::{ProgressBar, ProgressStyle};
use stockade_api::{Bytes, FileEntry, FileKind, Problem, StatFile};
use stockade_bundle::path::{self, RelativePath};
use stockade_core::{Code, SandboxId};

use self::exclude::Exclusions;
use super::path_argument::PathArgument;
use super::{absolute, find, with_files};
use crate::args::sandbox::Copy;
use crate::commands::print::{escaped, notify, print};
use crate::problem::Failure;
use crate::remote::{self, Remote};

/// Statistics about a copy.
#[derive(Default)]
struct CopySummary {
    files: u64,
    bytes: u64,
    links: u64,
    skipped: u64,
    /// The paths that patterns leave out, without those below them.
    excluded: u64,
    /// The first link that leads out of the copied tree.
    first_link: Option<String>,
    /// The first path that could not be read.
    first_unreadable: Option<String>,
}

impl CopySummary {
    fn skip_link(&mut self, path: &str) {
        self.skipped += 1;
        self.first_link.get_or_insert_with(|| path.to_owned());
    }

    fn skip_unreadable(&mut self, path: &str) {
        self.skipped += 1;
        self.first_unreadable.get_or_insert_with(|| path.to_owned());
    }
}

/// Copies files or directories.
pub(crate) fn run(arguments: Copy) -> Result<u8, Failure> {
    let to_output = arguments.to == "-";
    let excluded = Exclusions::new(&arguments.exclude, &arguments.exclude_from)?;
    let copied = remote::with(arguments.server_mode, async |remote| {
        match (PathArgument::parse(&arguments.from), PathArgument::parse(&arguments.to)) {
            (PathArgument::Host(from), PathArgument::Sandbox(name, to))
                if from == Path::new("-") =>
            {
                let id = find(&remote, &name).await?;
                let copy = async {
                    let to = absolute(&remote, &id, None, to).await?;
                    Transfer::new(&remote, id.clone()).send_stdin(to).await
                };
                with_files(&remote, &id, copy).await
            }
            (PathArgument::Host(from), PathArgument::Sandbox(name, to)) => {
                let id = find(&remote, &name).await?;
                let copy = async {
                    let to = absolute(&remote, &id, None, to).await?;
                    Transfer::new(&remote, id.clone()).into_sandbox(&from, to, excluded).await
                };
                with_files(&remote, &id, copy).await
            }
            (PathArgument::Sandbox(name, from), PathArgument::Host(to)) if to == Path::new("-") => {
                let id = find(&remote, &name).await?;
                let copy = async {
                    let from = absolute(&remote, &id, None, from).await?;
                    Transfer::new(&remote, id.clone()).print(from).await
                };
                with_files(&remote, &id, copy).await
            }
            (PathArgument::Sandbox(name, from), PathArgument::Host(to)) => {
                let id = find(&remote, &name).await?;
                let copy = async {
                    let from = absolute(&remote, &id, None, from).await?;
                    Transfer::new(&remote, id.clone()).out_of_sandbox(from, &to, excluded).await
                };
                with_files(&remote, &id, copy).await
            }
            _ => Err(Problem::new(
                Code::InvalidInput,
                "one of the two paths must be in a sandbox: ID:PATH",
            )
            .remedied_by("stockade cp file.txt latest:/tmp/file.txt")
            .into()),
        }
    })?;
    let CopySummary {
        files,
        bytes,
        links,
        skipped: left_out,
        excluded,
        first_link,
        first_unreadable,
    } = copied;
    if arguments.json && !to_output {
        let answer = serde_json::json!({ "files": files, "bytes": bytes, "links": links, "leftOut": left_out, "excluded": excluded });
        print(&answer)?;
    } else {
        notify(&format!("{files} files, {bytes} bytes copied"));
        if excluded > 0 {
            notify(&format!("{excluded} paths were excluded"));
        }
        if left_out > 0 {
            let named = |why: &str, path: Option<String>| {
                path.map(|path| format!("; {why}: {}", escaped(&path))).unwrap_or_default()
            };
            notify(&format!(
                "{left_out} links, special files and unreadable files were skipped{}{}",
                named("leads out of the copied tree", first_link),
                named("not readable", first_unreadable)
            ));
        }
    }
    Ok(0)
}

struct Transfer<'a> {
    remote: &'a Remote,
    id: SandboxId,
    progress: ProgressBar,
    copied: CopySummary,
}

impl<'a> Transfer<'a> {
    fn new(remote: &'a Remote, id: SandboxId) -> Self {
        let progress = ProgressBar::new_spinner();
        let style = ProgressStyle::with_template("{spinner} {bytes} {bytes_per_sec} {wide_msg}");
        if let Ok(style) = style {
            progress.set_style(style);
        }
        Self { remote, id, progress, copied: CopySummary::default() }
    }

    /// Displays the path that is being copied.
    fn show(&self, path: &Path) {
        self.progress.set_message(escaped(&path.display().to_string()));
    }

    /// The metadata of a path inside, links followed; `None` if it does not exist.
    async fn stat(&self, path: &[u8]) -> Result<Option<FileEntry>, Failure> {
        let (sandbox_id, path) = (self.id.clone(), path.to_vec().into());
        let request = StatFile { sandbox_id, path, follow: true };
        match self.remote.sandboxes.stat_file(self.remote.caller(), request).await {
            Ok(entry) => Ok(Some(entry)),
            Err(problem) if problem.code == Code::FileNotFound => Ok(None),
            Err(problem) => Err(problem.into()),
        }
    }
}

fn is_directory(entry: Option<&FileEntry>) -> bool {
    entry.is_some_and(|entry| entry.kind == FileKind::Directory)
}

fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    let mut path = directory.strip_suffix(b"/").unwrap_or(directory).to_vec();
    path.push(b'/');
    path.extend_from_slice(name);
    path
}

/// A path below a directory; `None` is the top directory.
fn join_relative(
    directory: Option<&RelativePath>,
    name: &[u8],
) -> Result<RelativePath, path::Error> {
    match directory {
        None => RelativePath::new(name),
        Some(directory) => directory.join(name),
    }
}

/// The last component of a path; `None` if it could lead elsewhere.
fn last_name(path: &[u8]) -> Option<OsString> {
    let path = path.strip_suffix(b"/").unwrap_or(path);
    let name = path.rsplit(|byte| *byte == b'/').next()?;
    let plain = !name.is_empty() && name != b"." && name != b"..";
    plain.then(|| OsString::from_vec(name.to_vec()))
}

fn not_found(path: &[u8]) -> Failure {
    let message = format!("there is no {} in the sandbox", String::from_utf8_lossy(path));
    Problem::new(Code::FileNotFound, message).into()
}

fn special_file(path: impl std::fmt::Display) -> Failure {
    let message = format!("{path} is neither a file nor a directory");
    Problem::new(Code::InvalidInput, message).into()
}

fn invalid_name(path: &Bytes) -> Failure {
    let message = format!("the sandbox returned an invalid file name {:?}", path.lossy());
    Problem::new(Code::PathInvalid, message).into()
}

fn host_failure(path: &Path, error: &io::Error) -> Failure {
    let code = match error.kind() {
        io::ErrorKind::NotFound => Code::FileNotFound,
        _ => Code::Io,
    };
    Problem::new(code, format!("cannot copy {}", path.display())).because(error.to_string()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_leads_elsewhere() {
        for (path, name) in [(&b"/a/b"[..], Some("b")), (b"/a/b/", Some("b")), (b"/", None)] {
            assert_eq!(last_name(path), name.map(OsString::from));
        }
        for path in [&b"/a/.."[..], b"..", b"/."] {
            assert_eq!(last_name(path), None);
        }
    }
}
