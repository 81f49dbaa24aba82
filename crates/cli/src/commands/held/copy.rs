//! `stockade cp`: files and directories into a sandbox, or out of it.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use indicatif::{ProgressBar, ProgressStyle};
use stockade_api::{
    Bytes, FileContent, FileEntry, FileKind, ListDirectory, MakeDirectory, Problem, ReadFile,
    StatFile, WriteFile, Written,
};
use stockade_core::{Code, SandboxId};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::{find, print, print_bytes, say};
use crate::args::held::Copy;
use crate::problem::Failure;
use crate::remote::{self, Remote};

/// One end of a copy.
enum End {
    Host(PathBuf),
    Inside(String, Vec<u8>),
}

impl End {
    /// `ID:/PATH`, else a path of the host. A path of the host that holds `:/` is written with
    /// `./` before it.
    fn parse(text: &OsStr) -> Self {
        let bytes = text.as_bytes();
        let at = bytes.windows(2).position(|pair| pair == b":/");
        match at.and_then(|at| Some((std::str::from_utf8(&bytes[..at]).ok()?, at))) {
            Some((id, at)) if !id.is_empty() && !id.contains(['/', '.']) => {
                Self::Inside(id.to_owned(), bytes[at + 1..].to_vec())
            }
            _ => Self::Host(PathBuf::from(text)),
        }
    }
}

/// What was copied.
#[derive(Default)]
struct Copied {
    files: u64,
    bytes: u64,
    left_out: u64,
}

/// Copies.
pub(crate) fn run(arguments: Copy) -> Result<u8, Failure> {
    let to_output = arguments.to == "-";
    let copied = remote::with(arguments.way, async |remote| {
        match (End::parse(&arguments.from), End::parse(&arguments.to)) {
            (End::Host(from), End::Inside(name, to)) => {
                let id = find(&remote, &name).await?;
                Way::new(&remote, id).into_sandbox(&from, to).await
            }
            (End::Inside(name, from), End::Host(to)) if to == Path::new("-") => {
                let id = find(&remote, &name).await?;
                Way::new(&remote, id).print(from).await
            }
            (End::Inside(name, from), End::Host(to)) => {
                let id = find(&remote, &name).await?;
                Way::new(&remote, id).out_of_sandbox(from, to).await
            }
            _ => Err(Problem::new(Code::InvalidInput, unclear(&arguments))
                .remedied_by("stockade cp file.txt latest:/tmp/file.txt")
                .into()),
        }
    })?;
    let Copied { files, bytes, left_out } = copied;
    if arguments.json && !to_output {
        let answer = serde_json::json!({ "files": files, "bytes": bytes, "leftOut": left_out });
        print(&answer)?;
    } else {
        say(&format!("{files} files, {bytes} bytes copied"));
        if left_out > 0 {
            say(&format!(
                "{left_out} links, special files and files that may not be read were left out"
            ));
        }
    }
    Ok(0)
}

/// What is wrong with a copy that is not between the host and a sandbox.
fn unclear(arguments: &Copy) -> String {
    let relative = [&arguments.from, &arguments.to].into_iter().find_map(|end| {
        let (id, path) = end.to_str()?.split_once(':')?;
        let is_id = !id.is_empty() && !id.contains(['/', '.']);
        (is_id && !path.starts_with('/')).then(|| format!("{id}:{path}"))
    });
    match relative {
        Some(end) => format!("a path in a sandbox is absolute, and that of {end} is not: ID:/PATH"),
        None => "one of the two is in a sandbox: ID:/PATH".to_owned(),
    }
}

struct Way<'a> {
    remote: &'a Remote,
    id: SandboxId,
    progress: ProgressBar,
    copied: Copied,
}

impl<'a> Way<'a> {
    fn new(remote: &'a Remote, id: SandboxId) -> Self {
        let progress = ProgressBar::new_spinner();
        let style = ProgressStyle::with_template("{spinner} {bytes} {bytes_per_sec} {wide_msg}");
        if let Ok(style) = style {
            progress.set_style(style);
        }
        Self { remote, id, progress, copied: Copied::default() }
    }

    /// Copies a file or directory of the host to a path inside. Into a directory that exists it is
    /// copied under its own name.
    async fn into_sandbox(mut self, from: &Path, to: Vec<u8>) -> Result<Copied, Failure> {
        let failed = |error: io::Error| host(from, &error);
        let to = match (self.is_directory(&to).await?, from.file_name()) {
            (true, Some(name)) => join(&to, name.as_bytes()),
            _ => to,
        };
        let mut waiting = vec![(from.to_owned(), to)];
        while let Some((from, to)) = waiting.pop() {
            let found = fs::symlink_metadata(&from).map_err(failed)?;
            let is_first = self.copied.files + self.copied.left_out == 0 && waiting.is_empty();
            // Who names a link means what it leads to.
            let found = if is_first { fs::metadata(&from).map_err(failed)? } else { found };
            if found.is_dir() {
                let mode = Some(found.permissions().mode() & 0o777);
                let request =
                    MakeDirectory { sandbox_id: self.id.clone(), path: to.clone().into(), mode };
                self.remote.sandboxes.make_directory(&self.remote.once(), request).await?;
                for entry in fs::read_dir(&from).map_err(failed)? {
                    let entry = entry.map_err(failed)?;
                    waiting.push((entry.path(), join(&to, entry.file_name().as_bytes())));
                }
            } else if found.is_file() {
                self.progress.set_message(from.display().to_string());
                let request = WriteFile {
                    sandbox_id: self.id.clone(),
                    path: to.into(),
                    mode: Some(found.permissions().mode() & 0o777),
                    uid: None,
                    gid: None,
                };
                let written = match self.write(&from, request.clone()).await {
                    // Its server died on it. Written again, it is what it would have been.
                    Err(failure) if failure.code() == Code::Unreachable => {
                        self.write(&from, request).await?
                    }
                    written => written?,
                };
                self.copied.files += 1;
                self.copied.bytes += written.size_bytes;
            } else {
                self.copied.left_out += 1;
            }
        }
        self.progress.finish_and_clear();
        Ok(self.copied)
    }

    async fn write(&self, from: &Path, request: WriteFile) -> Result<Written, Failure> {
        let file = tokio::fs::File::open(from).await.map_err(|error| host(from, &error))?;
        let content = FileContent(Box::pin(self.progress.wrap_async_read(file)));
        let caller = self.remote.once();
        Ok(self.remote.sandboxes.write_file(&caller, request, content).await?)
    }

    /// Copies a file or directory inside to a path of the host. Links and special files are left
    /// out: what they would do on the host, nobody has looked at.
    async fn out_of_sandbox(mut self, from: Vec<u8>, to: PathBuf) -> Result<Copied, Failure> {
        let root = self.stat(&from).await?;
        let to = match (to.is_dir(), last_name(&from)) {
            (true, Some(name)) => to.join(name),
            _ => to,
        };
        let mut waiting = vec![(from, root.kind, root.mode, to)];
        while let Some((from, kind, mode, to)) = waiting.pop() {
            match kind {
                FileKind::Directory => {
                    directory(&to).map_err(|error| host(&to, &error))?;
                    let request = ListDirectory {
                        sandbox_id: self.id.clone(),
                        path: from.into(),
                        depth: None,
                    };
                    let caller = self.remote.caller();
                    let listing = self.remote.sandboxes.list_directory(caller, request).await?;
                    self.copied.left_out += listing.hidden;
                    for FileEntry { path, kind, mode, .. } in listing.entries {
                        let name = last_name(&path.0).ok_or_else(|| odd(&path))?;
                        waiting.push((path.0, kind, mode, to.join(name)));
                    }
                }
                FileKind::File => self.read(from, mode, &to).await?,
                FileKind::Link | FileKind::Other => self.copied.left_out += 1,
            }
        }
        self.progress.finish_and_clear();
        Ok(self.copied)
    }

    /// Writes one file to standard output.
    async fn print(mut self, from: Vec<u8>) -> Result<Copied, Failure> {
        let request =
            ReadFile { sandbox_id: self.id.clone(), path: from.into(), offset: 0, length: None };
        let content = self.remote.sandboxes.read_file(self.remote.caller(), request).await?;
        let mut content = content.0;
        let mut piece = vec![0; 64 << 10];
        loop {
            let read = content.read(&mut piece).await;
            let length = read.map_err(|error| host(Path::new("-"), &error))?;
            if length == 0 {
                break;
            }
            print_bytes(&piece[..length])?;
            self.copied.bytes += length as u64;
        }
        self.copied.files = 1;
        Ok(self.copied)
    }

    async fn read(&mut self, from: Vec<u8>, mode: u32, to: &Path) -> Result<(), Failure> {
        let failed = |error: io::Error| host(to, &error);
        self.progress.set_message(to.display().to_string());
        let request =
            ReadFile { sandbox_id: self.id.clone(), path: from.into(), offset: 0, length: None };
        let content = self.remote.sandboxes.read_file(self.remote.caller(), request).await?;
        // Written beside and renamed: what is there stays whole until the new one is.
        let mut beside = to.as_os_str().to_owned();
        beside.push(format!(".{}.part", std::process::id()));
        let beside = PathBuf::from(beside);
        let mut options = fs::OpenOptions::new();
        let options = options.write(true).create_new(true).mode(mode & 0o755);
        let written = async {
            let mut file = tokio::fs::File::from_std(options.open(&beside)?);
            let mut content = self.progress.wrap_async_read(content.0);
            let length = tokio::io::copy(&mut content, &mut file).await?;
            file.flush().await?;
            fs::rename(&beside, to)?;
            Ok(length)
        };
        let length = written.await.map_err(|error| {
            // What was begun is of no use.
            let _ = fs::remove_file(&beside);
            failed(error)
        })?;
        self.copied.files += 1;
        self.copied.bytes += length;
        Ok(())
    }

    async fn stat(&self, path: &[u8]) -> Result<FileEntry, Failure> {
        let request = StatFile { sandbox_id: self.id.clone(), path: path.to_vec().into() };
        Ok(self.remote.sandboxes.stat_file(self.remote.caller(), request).await?)
    }

    async fn is_directory(&self, path: &[u8]) -> Result<bool, Failure> {
        let request = StatFile { sandbox_id: self.id.clone(), path: path.to_vec().into() };
        match self.remote.sandboxes.stat_file(self.remote.caller(), request).await {
            Ok(entry) => Ok(entry.kind == FileKind::Directory),
            Err(problem) if problem.code == Code::FileNotFound => Ok(false),
            Err(problem) => Err(problem.into()),
        }
    }
}

fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    let mut path = directory.strip_suffix(b"/").unwrap_or(directory).to_vec();
    path.push(b'/');
    path.extend_from_slice(name);
    path
}

/// Makes a directory of the host, unless there is one. A link to one leads elsewhere.
fn directory(path: &Path) -> io::Result<()> {
    match fs::create_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            match fs::symlink_metadata(path)?.is_dir() {
                true => Ok(()),
                false => Err(error),
            }
        }
        made => made,
    }
}

/// The last name of a path; none that would lead elsewhere.
fn last_name(path: &[u8]) -> Option<OsString> {
    let path = path.strip_suffix(b"/").unwrap_or(path);
    let name = path.rsplit(|byte| *byte == b'/').next()?;
    let plain = !name.is_empty() && name != b"." && name != b"..";
    plain.then(|| OsString::from_vec(name.to_vec()))
}

fn odd(path: &Bytes) -> Failure {
    let message = format!("the sandbox names a file {:?}", path.lossy());
    Problem::new(Code::PathInvalid, message).into()
}

fn host(path: &Path, error: &io::Error) -> Failure {
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
    fn an_end_is_told_by_its_colon() {
        for (text, inside) in [
            ("latest:/tmp/a", true),
            ("0a1b:/", true),
            ("/tmp/a", false),
            ("./a:/b", false),
            ("a:b", false),
            (":/a", false),
        ] {
            assert_eq!(matches!(End::parse(OsStr::new(text)), End::Inside(..)), inside, "{text}");
        }
    }

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
