//! Sending a copy of the project into a sandbox, as one stream. Links are sent as they are: what they
//! name exists in the sandbox or it does not.

use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use stockade_api::{FileContent, SendFiles};
use stockade_bundle::RelativePath;
use stockade_bundle::beneath::{Dir, FileKind, Stat};
use stockade_core::{Code, Problem, SandboxId};
use stockade_runtime::{Record, TREE_DEPTH, TreeWriter};

use crate::problem::{Failure, caused};
use crate::remote::Remote;
use crate::streams;

/// Sends the copy to the project's own path. Returns how many bytes its files have.
///
/// # Errors
/// If a file of the copy cannot be read, or the server did not take all of it.
pub(super) async fn send(
    remote: &Remote,
    id: &SandboxId,
    root: &Path,
    copy: &Dir,
) -> Result<u64, Failure> {
    let failed = |error| caused(Code::Io, &error);
    let mode = copy.stat_self().map_err(failed)?.mode & 0o777;
    let path = root.as_os_str().as_bytes().to_vec().into();
    let request = SendFiles { sandbox_id: id.clone(), path, mode };
    let mut again = true;
    loop {
        let (writer, reader) = streams::piped();
        let tree = TreeWriter::new(io::BufWriter::with_capacity(64 << 10, writer));
        let (directory, shown) = (copy.reopen().map_err(failed)?, root.to_owned());
        let packing = tokio::task::spawn_blocking(move || pack(&directory, &shown, tree));
        let content = FileContent(Box::pin(reader));
        let caller = remote.idempotent();
        let sent = remote.sandboxes.send_files(&caller, request.clone(), content).await;
        let packed = packing.await.map_err(|error| caused(Code::Io, &error))?;
        match (packed, sent) {
            (Ok(bytes), Ok(_)) => return Ok(bytes),
            // The server ended during the transfer. Repeating all of it gives the same result.
            (_, Err(problem)) if problem.code == Code::Unreachable && again => again = false,
            // The stream was cut off because of the failure on this side.
            (Err(Packing::Failed(problem)), _) | (_, Err(problem)) => return Err(problem.into()),
            (Err(Packing::Cut(error)), Ok(_)) => return Err(caused(Code::Io, &error).into()),
        }
    }
}

/// Why a tree could not be written.
enum Packing {
    /// It could not be read.
    Failed(Problem),
    /// The other side has closed the stream.
    Cut(io::Error),
}

impl From<io::Error> for Packing {
    fn from(error: io::Error) -> Self {
        Self::Cut(error)
    }
}

fn pack(copy: &Dir, root: &Path, tree: TreeWriter<impl Write>) -> Result<u64, Packing> {
    let mut packed = Packed { root: root.to_owned(), bytes: 0, tree };
    let top = copy.reopen().map_err(|error| packed.failed(None, error.into()))?;
    packed.children(&top, None, 0)?;
    packed.tree.finish()?;
    Ok(packed.bytes)
}

struct Packed<W> {
    root: PathBuf,
    bytes: u64,
    tree: TreeWriter<W>,
}

impl<W: Write> Packed<W> {
    fn failed(&self, path: Option<&RelativePath>, error: io::Error) -> Packing {
        let path = path.map_or_else(|| self.root.clone(), |path| self.root.join(path.as_os_str()));
        let message = format!("cannot send {}", path.display());
        Packing::Failed(Problem::new(Code::Io, message).because(error.to_string()))
    }

    fn children(
        &mut self,
        dir: &Dir,
        below: Option<&RelativePath>,
        depth: usize,
    ) -> Result<(), Packing> {
        if depth > TREE_DEPTH {
            let text = format!("it is deeper than {TREE_DEPTH} directories");
            return Err(self.failed(below, io::Error::other(text)));
        }
        let mut entries = dir.entries().map_err(|error| self.failed(below, error.into()))?;
        entries.sort_by(|one, other| one.0.cmp(&other.0));
        for (name, kind) in entries {
            let path = match below {
                None => RelativePath::new(name.clone()),
                Some(below) => below.join(&name),
            };
            let path = path.map_err(|error| self.failed(below, io::Error::other(error)))?;
            let name = RelativePath::new(name)
                .map_err(|error| self.failed(below, io::Error::other(error)))?;
            self.entry(dir, (name, &path), kind, depth)?;
        }
        Ok(())
    }

    fn entry(
        &mut self,
        dir: &Dir,
        (name, path): (RelativePath, &RelativePath),
        kind: FileKind,
        depth: usize,
    ) -> Result<(), Packing> {
        match kind {
            FileKind::Directory => {
                let opened = dir.open_dir(&name).and_then(|dir| Ok((dir.stat_self()?, dir)));
                let (stat, dir) = opened.map_err(|error| self.failed(Some(path), error.into()))?;
                self.tree.record(&Record::Enter { name, mode: stat.mode & 0o777 })?;
                self.children(&dir, Some(path), depth + 1)?;
                self.tree.record(&Record::Leave)?;
            }
            FileKind::File => {
                let opened = dir.open_file(&name).map_err(io::Error::from);
                let opened = opened.and_then(|file| Ok((Stat::of(&file)?, file)));
                let (stat, mut file) = opened.map_err(|error| self.failed(Some(path), error))?;
                let modified = (stat.modified.seconds, stat.modified.nanoseconds);
                self.tree.record(&Record::File { name, mode: stat.mode & 0o777, modified })?;
                let sent = self.tree.content(&mut file)?;
                self.bytes += sent.map_err(|error| self.failed(Some(path), error))?;
            }
            FileKind::Symlink => {
                let target = dir.read_link(&name);
                let target = target.map_err(|error| self.failed(Some(path), error.into()))?;
                self.tree.record(&Record::Link { name, target })?;
            }
            // The copy has neither.
            FileKind::CharacterDevice | FileKind::Other => {}
        }
        Ok(())
    }
}
