//! Copying the object files of a command's commits to its bundle. Nothing of them is read here but
//! their names; the name of the last commit is read from the files of references.

use std::io::{Read as _, Write as _};

use super::object::ObjectId;
use super::{Error, with_operation};
use crate::beneath::{Dir, FileKind};
use crate::content;
use crate::path::RelativePath;
use crate::project::{Git, Project};
use crate::view::View;

/// The directory in a bundle.
const DIRECTORY: &str = "git";
/// The file with the name of the last commit.
const TIP: &str = "tip";
/// The objects.
const OBJECTS: &str = "objects";
/// The most files, and the most bytes of all together.
const MAX_FILES: usize = 200_000;
const MAX_BYTES: u64 = 2 << 30;
/// The longest file with a reference.
const MAX_REFERENCE_BYTES: u64 = 8 << 10;
const MAX_PACKED_BYTES: u64 = 16 << 20;
/// The longest chain of symbolic references, as in git.
const MAX_SYMBOLIC: usize = 5;

/// The commits of a bundle, as the files that a command has left.
#[derive(Debug)]
pub struct Harvest {
    /// The last commit.
    pub tip: ObjectId,
    /// The directory with the object files.
    pub objects: Dir,
}

impl Harvest {
    /// Those of a bundle's directory.
    ///
    /// # Errors
    /// [`Error::None`].
    pub(crate) fn of(bundle: &Dir) -> Result<Self, Error> {
        let dir = bundle.open_dir(&RelativePath::literal(DIRECTORY)).map_err(|_| Error::None)?;
        let tip = read(&dir, &RelativePath::literal(TIP), MAX_REFERENCE_BYTES);
        let tip = tip.and_then(|tip| ObjectId::from_hex(&tip)).ok_or(Error::None)?;
        let objects = with_operation("open", dir.open_dir(&RelativePath::literal(OBJECTS)))?;
        Ok(Self { tip, objects })
    }
}

/// Copies the new object files of a view to the directory of its bundle, if its last commit is
/// another one than at the start. Commits that are too large are left out.
///
/// # Errors
/// A file that cannot be copied.
pub fn harvest(bundle: &Dir, view: &View, project: &Project) -> Result<(), Error> {
    match copy(bundle, view, project) {
        Err(Error::TooLarge) => {
            with_operation("remove", bundle.remove_tree(&RelativePath::literal(DIRECTORY)))
        }
        copied => copied,
    }
}

fn copy(bundle: &Dir, view: &View, project: &Project) -> Result<(), Error> {
    let Some(repository) = Repository::of(view, project) else { return Ok(()) };
    let Some(tip) = repository.tip() else { return Ok(()) };
    let base = view.record().base_ref.as_ref().or(project.base_ref.as_ref());
    if base.is_some_and(|base| *base == tip.to_string()) {
        return Ok(());
    }
    let objects = RelativePath::literal(OBJECTS);
    let Ok(from) = repository.layer.open_dir(&objects) else { return Ok(()) };
    let dir = make(bundle, &RelativePath::literal(DIRECTORY))?;
    let to = make(&dir, &objects)?;
    let there = repository.host.open_dir(&objects).ok();
    let mut copy = Copy { there, files: 0, bytes: 0 };
    for (name, kind) in with_operation("list", from.entries())? {
        let is_fan_out = name.len() == 2 && name.iter().all(u8::is_ascii_hexdigit);
        if kind != FileKind::Directory || !is_fan_out && name != b"pack" {
            continue;
        }
        let Ok(below) = RelativePath::new(name) else { continue };
        copy.directory(&from, &to, &below, is_fan_out)?;
    }
    let file = with_operation("write", dir.create_file(&RelativePath::literal(TIP), 0o600))?;
    write(file, tip.to_string().as_bytes())
}

struct Copy {
    /// The objects of the project, which are not copied.
    there: Option<Dir>,
    files: usize,
    bytes: u64,
}

impl Copy {
    fn directory(
        &mut self,
        from: &Dir,
        to: &Dir,
        below: &RelativePath,
        is_fan_out: bool,
    ) -> Result<(), Error> {
        let Ok(source) = from.open_dir(below) else { return Ok(()) };
        let there = self.there.as_ref().and_then(|there| there.open_dir(below).ok());
        let mut target = None;
        for (name, kind) in with_operation("list", source.entries())? {
            let is_object = match is_fan_out {
                true => matches!(name.len(), 38 | 62) && name.iter().all(u8::is_ascii_hexdigit),
                false => {
                    name.starts_with(b"pack-")
                        && (name.ends_with(b".pack") || name.ends_with(b".idx"))
                }
            };
            let Ok(name) = RelativePath::new(name) else { continue };
            let is_known =
                there.as_ref().is_some_and(|there| matches!(there.stat(&name), Ok(Some(_))));
            if kind != FileKind::File || !is_object || is_known {
                continue;
            }
            let Ok(file) = source.open_file(&name) else { continue };
            self.files += 1;
            self.bytes = self.bytes.saturating_add(file.metadata().map_or(0, |data| data.len()));
            if self.files > MAX_FILES || self.bytes > MAX_BYTES {
                return Err(Error::TooLarge);
            }
            let target = match &mut target {
                Some(target) => target,
                none => none.insert(make(to, below)?),
            };
            let copy = with_operation("copy", target.create_file(&name, 0o600))?;
            let copied = content::copy(&file, &copy, u64::MAX, u64::MAX);
            copied.map_err(|error| Error::Read(std::io::Error::other(error)))?;
            with_operation("copy", target.chmod(&name, 0o644))?;
        }
        Ok(())
    }
}

/// Creates a directory that a sandbox's user may read.
fn make(dir: &Dir, name: &RelativePath) -> Result<Dir, Error> {
    with_operation("create", dir.mkdir(name, 0o755))?;
    with_operation("create", dir.chmod(name, 0o755))?;
    with_operation("create", dir.open_dir(name))
}

fn write(mut file: std::fs::File, text: &[u8]) -> Result<(), Error> {
    file.write_all(text).map_err(Error::Read)
}

/// The git directory of a view: what the command wrote, over what the host has.
struct Repository {
    layer: Dir,
    host: Dir,
    /// The directory of this worktree below them.
    own: Option<RelativePath>,
    is_copy: bool,
}

impl Repository {
    fn of(view: &View, project: &Project) -> Option<Self> {
        let is_copy = view.copy().is_some();
        let git = RelativePath::literal(".git");
        match &project.git {
            Git::Directory => {
                let (layer, host) =
                    (view.changed().open_dir(&git).ok()?, project.dir.open_dir(&git).ok()?);
                Some(Self { layer, host, own: None, is_copy })
            }
            Git::Worktree { git_dir, common_dir } => {
                let own = git_dir.strip_prefix(common_dir).ok()?.as_os_str().as_encoded_bytes();
                let own = if own.is_empty() { None } else { Some(RelativePath::new(own).ok()?) };
                let layer = view.repository()?.try_clone().ok()?;
                Some(Self { layer, host: Dir::open(common_dir).ok()?, own, is_copy })
            }
            Git::None | Git::Unverified => None,
        }
    }

    /// The commit that HEAD names after the command.
    fn tip(&self) -> Option<ObjectId> {
        let mut content = self.read_own(&RelativePath::literal("HEAD"))?;
        for _ in 0..MAX_SYMBOLIC {
            let line = content.trim_ascii_end();
            let Some(name) = line.strip_prefix(b"ref:") else { return ObjectId::from_hex(line) };
            let name = RelativePath::new(name.trim_ascii()).ok()?;
            if name.components().next() != Some(b"refs") {
                return None;
            }
            let own = self.read_own(&name);
            match own.or_else(|| self.read(&name, MAX_REFERENCE_BYTES)) {
                Some(next) => content = next,
                None => return self.packed(&name),
            }
        }
        None
    }

    fn packed(&self, name: &RelativePath) -> Option<ObjectId> {
        let content = self.read(&RelativePath::literal("packed-refs"), MAX_PACKED_BYTES)?;
        content.split(|byte| *byte == b'\n').find_map(|line| {
            let (hex, after) =
                line.split_at_checked(line.iter().position(|byte| *byte == b' ')?)?;
            (&after[1..] == name.as_bytes()).then(|| ObjectId::from_hex(hex)).flatten()
        })
    }

    fn read_own(&self, name: &RelativePath) -> Option<Vec<u8>> {
        let path = match &self.own {
            Some(own) => own.join(name.as_bytes()).ok()?,
            None => name.clone(),
        };
        self.read(&path, MAX_REFERENCE_BYTES)
    }

    /// A file as the command left it: removed files of an overlay are device files there.
    fn read(&self, path: &RelativePath, limit: u64) -> Option<Vec<u8>> {
        match self.layer.stat(path) {
            Ok(Some(stat)) if stat.kind == FileKind::File => read(&self.layer, path, limit),
            Ok(None) if !self.is_copy => read(&self.host, path, limit),
            _ => None,
        }
    }
}

fn read(dir: &Dir, path: &RelativePath, limit: u64) -> Option<Vec<u8>> {
    let mut content = Vec::new();
    dir.open_file(path).ok()?.take(limit + 1).read_to_end(&mut content).ok()?;
    (content.len() as u64 <= limit).then_some(content)
}
