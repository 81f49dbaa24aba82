//! Copying directories into a sandbox and out of it, as an archive that the program `tar` inside makes
//! or reads. An archive from inside is hostile: it is extracted below one new directory.

use std::fs::{DirBuilder, File};
use std::io::{self, Read, Seek as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _, symlink};
use std::path::{Component, Path, PathBuf};

use stockade_core::SandboxId;
use stockade_runtime::{Error, FileKind, Result, SandboxPath};
use tokio::io::AsyncReadExt as _;

use crate::client::OpenSandbox;
use crate::execd::NewFile;
use crate::files::text;
use crate::script::{self, quoted_text};

/// How much longer an archive may be than its files.
const HEADER_BYTES: u64 = 256 << 20;
/// The most files that are copied out.
const MAX_FILES: u64 = 1_000_000;

impl OpenSandbox {
    /// Copies a directory of the host to a directory inside.
    pub(crate) async fn copy_in(
        &self,
        id: &SandboxId,
        from: &Path,
        to: &SandboxPath,
    ) -> Result<()> {
        let execd = self.usable(id).await?;
        let source = from.to_owned();
        let packed = blocking(move || pack(&source)).await?;
        let archive = self.new_archive(id).await?;
        let content = Box::pin(tokio::fs::File::from_std(packed));
        let file = NewFile { path: archive.clone(), mode: Some(0o600), owner: None };
        let uploaded = execd.upload(&file, content).await;
        uploaded.map_err(|failure| failure.of_sandbox(id, "the copy of a directory"))?;
        let (to_text, archive) = (quoted_text(text(to)?), quoted_text(&archive));
        let line = format!(
            "mkdir -p -- {to_text} && tar -x -o -f {archive} -C {to_text}; code=$?; rm -f -- {archive}; exit $code"
        );
        self.must(id, &line, "copy to", to).await
    }

    /// Copies a directory inside to a new directory of the host.
    pub(crate) async fn copy_out(
        &self,
        id: &SandboxId,
        from: &SandboxPath,
        to: &Path,
        limit_bytes: u64,
    ) -> Result<()> {
        let execd = self.usable(id).await?;
        let found = self.file(id, from).await?;
        if found.kind != FileKind::Directory {
            let source = io::ErrorKind::NotADirectory.into();
            return Err(Error::File { operation: "copy", path: from.to_string(), source });
        }
        let archive = self.new_archive(id).await?;
        // A hollow file has any length: no more than what is accepted is written.
        let most = limit_bytes.saturating_add(HEADER_BYTES);
        let (name, directory) = (quoted_text(&archive), quoted_text(text(from)?));
        let line = format!(
            "tar -c -f - -C {directory} . 2>{name}.errors | head -c {most} >{name}; \
             cat {name}.errors >&2; test ! -s {name}.errors; code=$?; rm -f {name}.errors; exit $code"
        );
        let made = self.must(id, &line, "copy", from).await;
        let copied = match made {
            Err(error) => Err(error),
            Ok(()) => self.extract(id, &execd, &archive, to, limit_bytes).await,
        };
        let removed = execd.remove(&archive, false).await;
        copied?;
        removed.map_err(|failure| failure.of_sandbox(id, "the removal of an archive"))
    }

    async fn extract(
        &self,
        id: &SandboxId,
        execd: &crate::execd::Execd,
        archive: &str,
        to: &Path,
        limit_bytes: u64,
    ) -> Result<()> {
        let content = execd.download(archive, 0, None).await;
        let content = content.map_err(|failure| failure.of_reading(id))?;
        let mut content = content
            .ok_or_else(|| Error::Invalid("the sandbox returned no archive".to_owned()))?
            // Headers of an archive are small, and those of a hostile one need not be.
            .take(limit_bytes.saturating_add(HEADER_BYTES));
        let failed = |error| host(to, error);
        let file = tempfile_in(to).map_err(failed)?;
        let copy = file.try_clone().map_err(failed)?;
        let mut writer = tokio::fs::File::from_std(copy);
        tokio::io::copy(&mut content, &mut writer).await.map_err(|error| Error::Unreachable {
            what: "the sandbox".to_owned(),
            source: error,
        })?;
        tokio::io::AsyncWriteExt::flush(&mut writer).await.map_err(failed)?;
        let to = to.to_owned();
        blocking(move || unpack(file, &to, limit_bytes)).await
    }

    /// A path inside for an archive.
    async fn new_archive(&self, id: &SandboxId) -> Result<String> {
        let execd = self.usable(id).await?;
        let made = execd.make_directory(script::DIRECTORY, 0o777, None).await;
        made.map_err(|failure| failure.of_sandbox(id, "the copy of a directory"))?;
        Ok(format!("{}/{}.tar", script::DIRECTORY, uuid::Uuid::now_v7().simple()))
    }

    /// Runs a line of the shell that must succeed.
    async fn must(
        &self,
        id: &SandboxId,
        line: &str,
        operation: &'static str,
        path: &SandboxPath,
    ) -> Result<()> {
        let execd = self.usable(id).await?;
        let printed = execd.print(line).await;
        let printed =
            printed.map_err(|failure| failure.of_sandbox(id, "the copy of a directory"))?;
        if printed.code == 0 {
            return Ok(());
        }
        let source = io::Error::other(printed.errors.join("; "));
        Err(Error::File { operation, path: path.to_string(), source })
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(Error::Exhausted(error.to_string())))
}

fn host(path: &Path, source: io::Error) -> Error {
    Error::Host { path: path.display().to_string(), source }
}

/// A file without a name beside a path.
fn tempfile_in(beside: &Path) -> io::Result<File> {
    let directory = beside.parent().unwrap_or_else(|| Path::new("/"));
    let flags =
        rustix::fs::OFlags::TMPFILE | rustix::fs::OFlags::RDWR | rustix::fs::OFlags::CLOEXEC;
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    Ok(File::from(rustix::fs::open(directory, flags, mode)?))
}

/// An archive of a directory, which may contain only files, directories and links.
fn pack(from: &Path) -> Result<File> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |error| host(&path, error)
    };
    let file = tempfile_in(&std::env::temp_dir().join("x")).map_err(failed(from))?;
    let mut archive = tar::Builder::new(file);
    archive.follow_symlinks(false);
    let mut waiting = vec![PathBuf::new()];
    while let Some(directory) = waiting.pop() {
        let real = from.join(&directory);
        let mut entries: Vec<_> = std::fs::read_dir(&real)
            .and_then(Iterator::collect::<io::Result<Vec<_>>>)
            .map_err(failed(&real))?;
        entries.sort_by_key(std::fs::DirEntry::file_name);
        for entry in entries {
            let (path, real) = (directory.join(entry.file_name()), entry.path());
            let kind = entry.file_type().map_err(failed(&real))?;
            if !(kind.is_dir() || kind.is_file() || kind.is_symlink()) {
                let source = io::Error::other("it is neither a file, a directory nor a link");
                return Err(host(&real, source));
            }
            archive.append_path_with_name(&real, &path).map_err(failed(&real))?;
            if kind.is_dir() {
                waiting.push(path);
            }
        }
    }
    let mut file = archive.into_inner().map_err(failed(from))?;
    file.rewind().map_err(failed(from))?;
    Ok(file)
}

/// Extracts an archive to a new directory; after an error there is none.
fn unpack(mut file: File, to: &Path, limit_bytes: u64) -> Result<()> {
    file.rewind().map_err(|error| host(to, error))?;
    DirBuilder::new().mode(0o700).create(to).map_err(|error| host(to, error))?;
    let done = unpack_to(file, to, limit_bytes);
    if done.is_err() {
        // The error is the one to report.
        let _ = std::fs::remove_dir_all(to);
    }
    done
}

fn unpack_to(file: File, to: &Path, limit_bytes: u64) -> Result<()> {
    let hostile = |what: &str| Error::Invalid(format!("the archive of the sandbox {what}"));
    let odd = |error: io::Error| Error::Invalid(format!("the archive of the sandbox: {error}"));
    let mut archive = tar::Archive::new(io::BufReader::new(file));
    let (mut bytes, mut files) = (0_u64, 0_u64);
    let mut directories = Vec::new();
    for entry in archive.entries().map_err(odd)? {
        let mut entry = entry.map_err(odd)?;
        let name = entry.path().map_err(odd)?.into_owned();
        let path: PathBuf = name.components().filter(|part| *part != Component::CurDir).collect();
        if path.components().any(|part| !matches!(part, Component::Normal(_))) {
            return Err(hostile("leads out of its directory"));
        }
        if path.as_os_str().is_empty() {
            continue;
        }
        files += 1;
        bytes = bytes.saturating_add(entry.size());
        if bytes > limit_bytes {
            return Err(Error::Invalid(format!("it is larger than {limit_bytes} bytes")));
        }
        if files > MAX_FILES {
            return Err(Error::Invalid(format!("it has more than {MAX_FILES} files")));
        }
        let target = to.join(&path);
        // Only directories of this archive are above it: nothing follows a link.
        let parent = target.parent().unwrap_or(to);
        let is_directory = std::fs::symlink_metadata(parent).is_ok_and(|found| found.is_dir());
        if !is_directory || above_is_link(to, &path) {
            return Err(hostile("has a file below something that is no directory"));
        }
        let mode = entry.header().mode().map_err(odd)? & 0o777;
        let made = match entry.header().entry_type() {
            tar::EntryType::Directory => {
                directories.push((target.clone(), mode));
                DirBuilder::new().mode(0o700).create(&target)
            }
            tar::EntryType::Regular | tar::EntryType::Continuous => {
                write_file(&mut entry, &target, mode)
            }
            tar::EntryType::Symlink => {
                let link = entry.link_name_bytes().unwrap_or_default().into_owned();
                let link = std::ffi::OsStr::from_bytes(&link).to_owned();
                // A link is copied as it is, wherever it leads.
                symlink(link, &target)
            }
            tar::EntryType::Link => {
                let link = entry.link_name().map_err(odd)?.unwrap_or_default().into_owned();
                let first: PathBuf =
                    link.components().filter(|part| *part != Component::CurDir).collect();
                let is_inside = first.components().all(|part| matches!(part, Component::Normal(_)));
                if !is_inside || above_is_link(to, &first) {
                    return Err(hostile("has a link that leads out of it"));
                }
                std::fs::hard_link(to.join(first), &target)
            }
            // Pipes, sockets and devices are left out.
            _ => Ok(()),
        };
        made.map_err(|error| host(&target, error))?;
    }
    for (directory, mode) in directories.into_iter().rev() {
        let permissions = std::fs::Permissions::from_mode(mode);
        let set = std::fs::set_permissions(&directory, permissions);
        set.map_err(|error| host(&directory, error))?;
    }
    Ok(())
}

/// Whether a directory above a path is a link.
fn above_is_link(root: &Path, path: &Path) -> bool {
    let mut above = path.ancestors().skip(1);
    above.any(|above| std::fs::symlink_metadata(root.join(above)).is_ok_and(|m| m.is_symlink()))
}

fn write_file(entry: &mut impl Read, target: &Path, mode: u32) -> io::Result<()> {
    let mut file = File::options().write(true).create_new(true).open(target)?;
    io::copy(entry, &mut file)?;
    file.flush()?;
    file.set_permissions(std::fs::Permissions::from_mode(mode))
}
