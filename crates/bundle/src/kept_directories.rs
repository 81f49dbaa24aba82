//! Ignored directories that a run leaves for the next run of the same project, such as `node_modules`.
//!
//! They are parts of the upper layer of an overlay, with the marks of the overlay, and are stored as
//! such: the next layer has them from its start, over what the project has then. The project itself
//! never gets them, and no bundle contains them. Only what the project's own rules ignore is kept, and
//! nothing in which git tracks a file.

use std::io::{self, Read as _, Write as _};

use rustix::io::Errno;

use crate::beneath::{self, Dir, FileKind, Rename};
use crate::ignore::Ignore;
use crate::index::{self, Index};
use crate::layer::{self, Marks, Owners, renamed};
use crate::path::RelativePath;
use crate::project::{Project, ReadRules};
use crate::view::{Ownership, PlacedDirectories, View};

/// The directory with what is kept, and the one in which it is written first.
const KEPT: &str = "kept";
const NEW: &str = "new";
const OLD: &str = "old";
/// The list of the paths.
const LIST: &str = "paths.json";
/// A longer list was not written by this module.
const MAX_LIST_BYTES: u64 = 16 << 20;
/// The most directories.
const MAX_TREES: usize = 1_000;

/// Why ignored directories could not be kept, or not be used again.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A directory could not be read or written.
    #[error(transparent)]
    Beneath(#[from] beneath::Error),
    /// A directory could not be copied.
    #[error(transparent)]
    Layer(#[from] layer::Error),
    /// A renamed directory could not be completed.
    #[error(transparent)]
    Renamed(#[from] renamed::Error),
    /// A view could not be prepared.
    #[error(transparent)]
    View(#[from] crate::view::Error),
    /// The list of paths cannot be read or written.
    #[error("cannot use the list of kept directories")]
    List(#[source] io::Error),
    /// The list of tracked files is damaged.
    #[error("the index of git cannot be read")]
    Index(#[from] index::Error),
    /// The layers record changes differently, as when the data directory was moved to another file system.
    #[error("what was kept was written to another kind of layer")]
    OtherMarks,
}

/// What a project ignores.
struct Ignored<'a> {
    rules: Ignore<ReadRules<'a>>,
    tracked: Index,
}

impl Ignored<'_> {
    /// Whether a directory is ignored with all that it contains.
    fn has(&mut self, directory: &RelativePath) -> bool {
        self.rules.ignores(directory, true) == Ok(true) && !self.tracked.tracks(directory)
    }
}

fn ignored(project: &Project) -> Result<Ignored<'_>, index::Error> {
    Ok(Ignored { rules: project.ignore_rules(), tracked: project.tracked()? })
}

/// The topmost directories of a view's layer that the project ignores, sorted. The content of renamed
/// directories is completed before.
///
/// # Errors
/// All but [`Error::List`].
pub fn find(view: &View, project: &Project, limit_bytes: u64) -> Result<Vec<RelativePath>, Error> {
    let Some(layer) = view.upper() else { return Ok(Vec::new()) };
    let mut ignored = ignored(project)?;
    renamed::fill(layer, &project.dir, limit_bytes)?;
    let mut found = Vec::new();
    let mut pending = vec![None::<RelativePath>];
    while let Some(directory) = pending.pop() {
        let opened = match &directory {
            None => layer.reopen()?,
            // A mode of the sandbox's own choice; what cannot be read is not kept.
            Some(path) => match layer.open_dir(path) {
                Err(error) if error.errno() == Some(Errno::ACCESS) => continue,
                opened => opened?,
            },
        };
        for (name, kind) in opened.entries()? {
            let path = match &directory {
                None => RelativePath::new(name.clone()),
                Some(above) => above.join(&name),
            };
            let Ok(path) = path else { continue };
            if kind != FileKind::Directory || name == b".git" {
                continue;
            }
            match ignored.has(&path) {
                true if found.len() < MAX_TREES => found.push(path),
                true => {}
                false => pending.push(Some(path)),
            }
        }
    }
    found.sort();
    Ok(found)
}

/// Stores these directories of a view's layer in place of what `store` has, up to a size. `ids` is the
/// first id of the sandbox's range. Returns their size on disk. Nothing else uses `store` meanwhile.
///
/// # Errors
/// All of [`Error`]; what was kept before then remains.
pub fn store(
    view: &View,
    paths: &[RelativePath],
    store: &Dir,
    ids: Option<u32>,
    limit_bytes: u64,
) -> Result<u64, Error> {
    let Some(layer) = view.upper() else { return Ok(0) };
    let [kept, new, old] = [KEPT, NEW, OLD].map(RelativePath::literal);
    for left in [&new, &old] {
        remove(store, left)?;
    }
    store.mkdir(&new, 0o700)?;
    let to = store.open_dir(&new)?;
    let marks = Marks::of(layer);
    if marks == Marks::Trusted && Marks::of_new(&to) != marks {
        return Err(Error::OtherMarks);
    }
    let owners = match ids {
        Some(from) => Owners::Shifted { from, to: Owners::STORED },
        None => Owners::Same,
    };
    let mut size_bytes = 0;
    for (number, path) in paths.iter().enumerate() {
        let name = numbered(number)?;
        to.mkdir(&name, 0o700)?;
        let (from, to) = (layer.open_dir(path)?, to.open_dir(&name)?);
        size_bytes += layer::copy_part(&from, &to, limit_bytes - size_bytes, owners, marks)?;
    }
    let text = serde_json::to_vec(paths).map_err(|error| Error::List(error.into()))?;
    let mut file = to.create_file(&RelativePath::literal(LIST), 0o600)?;
    file.write_all(&text).map_err(Error::List)?;
    match store.rename(&kept, store, &old, Rename::NoReplace) {
        Err(error) if error.errno() == Some(Errno::NOENT) => {}
        renamed => renamed?,
    }
    store.rename(&new, store, &kept, Rename::NoReplace)?;
    // Otherwise the next one removes it.
    let _ = remove(store, &old);
    Ok(size_bytes)
}

/// Puts what `store` has into the layer of a view that nothing uses yet: the directories that the project
/// still ignores, and whose places it still has. `ids` is as for [`store`]. Returns their paths.
///
/// # Errors
/// All of [`Error`]; the view must then not be used.
pub fn place(
    from: &Dir,
    view: &mut View,
    project: &Project,
    ownership: Option<Ownership>,
) -> Result<Vec<RelativePath>, Error> {
    let kept = match from.open_dir(&RelativePath::literal(KEPT)) {
        Err(error) if error.errno() == Some(Errno::NOENT) => return Ok(Vec::new()),
        opened => opened?,
    };
    let Some(layer) = view.upper() else { return Ok(Vec::new()) };
    let marks = Marks::of(&kept);
    if marks != Marks::of(layer) {
        return Err(Error::OtherMarks);
    }
    let mut text = Vec::new();
    let list = kept.open_file(&RelativePath::literal(LIST))?;
    list.take(MAX_LIST_BYTES).read_to_end(&mut text).map_err(Error::List)?;
    let paths: Vec<RelativePath> =
        serde_json::from_slice(&text).map_err(|error| Error::List(error.into()))?;
    let mut ignored = ignored(project)?;
    let owners = match ownership {
        Some(ownership) => Owners::Shifted { from: Owners::STORED, to: ownership.host_start },
        None => Owners::Same,
    };
    let mut directories = PlacedDirectories::new(&project.dir, layer, ownership);
    let mut placed = Vec::new();
    for (number, path) in paths.into_iter().enumerate() {
        let is_directory = |path: &RelativePath| match project.dir.stat(path).unwrap_or_default() {
            Some(stat) => stat.kind == FileKind::Directory,
            None => false,
        };
        let has_place = path.parent().is_none_or(|parent| is_directory(&parent))
            && (!project.dir.exists(&path)? || is_directory(&path));
        if !has_place || !ignored.has(&path) {
            continue;
        }
        let (parent, name) = directories.parent(&path)?;
        parent.mkdir(&name, 0o700)?;
        let (from, to) = (kept.open_dir(&numbered(number)?)?, parent.open_dir(&name)?);
        layer::copy_part(&from, &to, u64::MAX, owners, marks)?;
        placed.push(path);
    }
    directories.finish()?;
    if !placed.is_empty() {
        view.record_placed()?;
    }
    Ok(placed)
}

fn numbered(number: usize) -> Result<RelativePath, Error> {
    RelativePath::new(number.to_string()).map_err(|error| Error::List(io::Error::other(error)))
}

fn remove(at: &Dir, name: &RelativePath) -> Result<(), beneath::Error> {
    match at.exists(name)? {
        true => at.remove_tree(name),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use stockade_core::BundleLimits;

    use super::*;
    use crate::data::DataDir;
    use crate::manifest::ViewKind;
    use crate::view::coarse_now;

    fn view(scratch: &Path, project: &Project) -> View {
        let data = DataDir::open(&scratch.join("data")).unwrap();
        View::create(&data, project, ViewKind::Overlay, None, &[][..], coarse_now()).unwrap()
    }

    fn upper(scratch: &Path, view: &View) -> std::path::PathBuf {
        scratch.join("data/views").join(view.id()).join("upper")
    }

    #[test]
    fn what_a_project_ignores_is_found_stored_and_placed() {
        let scratch = tempfile::tempdir().unwrap();
        let scratch = scratch.path().canonicalize().unwrap();
        for directory in ["p/.git", "p/app", "p/gone", "data", "store"] {
            fs::create_dir_all(scratch.join(directory)).unwrap();
        }
        fs::write(scratch.join("p/.gitignore"), "node_modules/\n/build\n").unwrap();
        let project = Project::open(&scratch.join("p"), None).unwrap();
        let mut first = view(&scratch, &project);
        let layer = upper(&scratch, &first);
        for directory in ["app/node_modules/x", "gone/node_modules", "build", "app/src"] {
            fs::create_dir_all(layer.join(directory)).unwrap();
        }
        fs::write(layer.join("app/node_modules/x/file"), "text").unwrap();
        fs::hard_link(layer.join("app/node_modules/x/file"), layer.join("app/node_modules/other"))
            .unwrap();
        let found = find(&first, &project, u64::MAX).unwrap();
        let names: Vec<_> = found.iter().map(RelativePath::quoted).collect();
        assert_eq!(names, ["app/node_modules", "build", "gone/node_modules"]);
        let kept = Dir::open(&scratch.join("store")).unwrap();
        let too_large = store(&first, &found, &kept, None, 1);
        assert!(matches!(too_large, Err(Error::Layer(_))), "{too_large:?}");
        assert!(place(&kept, &mut first, &project, None).unwrap().is_empty());
        assert!(store(&first, &found, &kept, None, 1 << 30).unwrap() > 0);
        // Another one replaces it.
        store(&first, &found, &kept, None, 1 << 30).unwrap();

        fs::remove_dir(scratch.join("p/gone")).unwrap();
        fs::write(scratch.join("p/.gitignore"), "node_modules/\n").unwrap();
        let mut second = view(&scratch, &project);
        let placed = place(&kept, &mut second, &project, None).unwrap();
        assert_eq!(placed, [RelativePath::new("app/node_modules").unwrap()]);
        let layer = upper(&scratch, &second);
        assert_eq!(fs::read(layer.join("app/node_modules/x/file")).unwrap(), b"text");
        assert!(!layer.join("build").exists() && !layer.join("gone").exists());
        let changes = crate::scan::scan(&second, &project, &BundleLimits::SANDBOX).unwrap();
        assert_eq!(changes.entries, []);
    }
}
