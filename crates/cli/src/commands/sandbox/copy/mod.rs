//! `stockade cp`: copies files and directories into a sandbox, or out of it.

mod exclude;
mod into;
mod mirror;
mod out;
mod pattern;
mod target;

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

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
    /// The paths of the destination that were deleted, without those below them.
    deleted: u64,
    /// The first link that leads out of the copied tree.
    first_link: Option<String>,
    /// The first path that could not be read.
    first_unreadable: Option<String>,
}

impl CopySummary {
    fn add(&mut self, other: Self) {
        self.files += other.files;
        self.bytes += other.bytes;
        self.links += other.links;
        self.skipped += other.skipped;
        self.excluded += other.excluded;
        self.deleted += other.deleted;
        self.first_link = self.first_link.take().or(other.first_link);
        self.first_unreadable = self.first_unreadable.take().or(other.first_unreadable);
    }

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
    let options = Options::read(&arguments)?;
    let copied = remote::with(arguments.server_mode, async |remote| {
        let from = arguments.from.iter().map(|text| PathArgument::parse(text)).collect::<Vec<_>>();
        match PathArgument::parse(&arguments.to) {
            PathArgument::Sandbox(name, to) => {
                let from = from.into_iter().map(on_host).collect::<Result<Vec<_>, _>>()?;
                let id = find(&remote, &name).await?;
                let copy = async {
                    let to = absolute(&remote, &id, None, to).await?;
                    copy_in(&remote, &id, from, to, &options).await
                };
                with_files(&remote, &id, copy).await
            }
            PathArgument::Host(to) => {
                let from = from.into_iter().map(in_sandbox).collect::<Result<Vec<_>, _>>()?;
                copy_out(&remote, from, &to, &options).await
            }
        }
    })?;
    let CopySummary {
        files,
        bytes,
        links,
        skipped: left_out,
        excluded,
        deleted,
        first_link,
        first_unreadable,
    } = copied;
    if arguments.json && !to_output {
        let answer = serde_json::json!({ "files": files, "bytes": bytes, "links": links, "leftOut": left_out, "excluded": excluded, "deleted": deleted });
        print(&answer)?;
    } else {
        notify(&format!("{files} files, {bytes} bytes copied"));
        if deleted > 0 {
            notify(&format!("{deleted} paths were deleted, with what was below them"));
        }
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

/// What is left out, and what is deleted.
struct Options {
    patterns: Vec<OsString>,
    files: Vec<PathBuf>,
    delete: bool,
}

impl Options {
    /// # Errors
    /// A file of patterns that cannot be read, or what excludes each other.
    fn read(arguments: &Copy) -> Result<Self, Failure> {
        let streams = arguments.from.iter().chain([&arguments.to]).any(|path| path == "-");
        if streams && arguments.from.len() > 1 {
            return Err(invalid("`-` stands for one file, and several are named"));
        }
        if streams && arguments.delete {
            return Err(invalid("`--delete` needs a directory, and `-` is a file"));
        }
        let (patterns, files) = (arguments.exclude.clone(), arguments.exclude_from.clone());
        let options = Self { patterns, files, delete: arguments.delete };
        options.exclusions()?;
        Ok(options)
    }

    fn exclusions(&self) -> Result<Exclusions, Failure> {
        Exclusions::new(&self.patterns, &self.files)
    }
}

fn invalid(message: &str) -> Failure {
    Problem::new(Code::InvalidInput, message).into()
}

fn on_host(path: PathArgument) -> Result<PathBuf, Failure> {
    match path {
        PathArgument::Host(path) => Ok(path),
        PathArgument::Sandbox(..) => Err(two_places()),
    }
}

fn in_sandbox(path: PathArgument) -> Result<(String, Vec<u8>), Failure> {
    match path {
        PathArgument::Sandbox(name, path) => Ok((name, path)),
        PathArgument::Host(_) => Err(two_places()),
    }
}

fn two_places() -> Failure {
    let message =
        "what is copied and the destination must be on different sides: one of them is ID:PATH";
    Problem::new(Code::InvalidInput, message)
        .remedied_by("stockade cp file.txt latest:/tmp/file.txt")
        .into()
}

/// The failure of a copy of several files to what is no directory.
fn several(to: impl std::fmt::Display) -> Failure {
    let message = format!("several files are copied, and {to} is not a directory");
    Problem::new(Code::InvalidInput, message).into()
}

/// Copies files of the host into a sandbox.
async fn copy_in(
    remote: &Remote,
    id: &SandboxId,
    from: Vec<PathBuf>,
    to: Vec<u8>,
    options: &Options,
) -> Result<CopySummary, Failure> {
    let transfer = || Transfer::new(remote, id.clone());
    if from.iter().any(|path| path == Path::new("-")) {
        return transfer().send_stdin(to).await;
    }
    if from.len() > 1 && !is_directory(transfer().stat(&to).await?.as_ref()) {
        return Err(several(escaped(&String::from_utf8_lossy(&to))));
    }
    let mut all = CopySummary::default();
    for path in from {
        all.add(transfer().into_sandbox(&path, to.clone(), options).await?);
    }
    Ok(all)
}

/// Copies files of sandboxes to the host.
async fn copy_out(
    remote: &Remote,
    from: Vec<(String, Vec<u8>)>,
    to: &Path,
    options: &Options,
) -> Result<CopySummary, Failure> {
    let mut paths = Vec::new();
    for (name, path) in from {
        let id = find(remote, &name).await?;
        let expand = async {
            let path = absolute(remote, &id, None, path).await?;
            Transfer::new(remote, id.clone()).expand(path).await
        };
        let found = with_files(remote, &id, expand).await?;
        paths.extend(found.into_iter().map(|path| (id.clone(), path)));
    }
    let is_output = to == Path::new("-");
    if paths.len() > 1 && (is_output || !to.is_dir()) {
        return Err(several(escaped(&to.display().to_string())));
    }
    let mut all = CopySummary::default();
    for (id, path) in paths {
        let transfer = Transfer::new(remote, id.clone());
        let copy = async {
            match is_output {
                true => transfer.print(path).await,
                false => transfer.out_of_sandbox(path, to, options).await,
            }
        };
        all.add(with_files(remote, &id, copy).await?);
    }
    Ok(all)
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

fn no_directory(path: impl std::fmt::Display) -> Failure {
    let message = format!("`--delete` needs a directory, and {path} is a file");
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
