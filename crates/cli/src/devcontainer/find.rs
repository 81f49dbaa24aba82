//! Where a project's `devcontainer.json` is, as the specification of development containers says.

use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use stockade_bundle::RelativePath;
use stockade_bundle::beneath::{Dir, FileKind};
use stockade_bundle::project::Project;
use stockade_core::{Code, Problem};

use crate::problem::caused;
use crate::profile::read_project_file;

/// The name of the file.
const FILE: &str = "devcontainer.json";
/// The directory of the file, or of one directory for each of several.
const DIRECTORY: &str = ".devcontainer";
/// The name of the file in the project's root.
const IN_ROOT: &str = ".devcontainer.json";
/// How many directories are searched.
const MAX_DIRECTORIES: u64 = 1000;

/// A file, and what was read from it.
#[derive(Debug)]
pub(super) struct Found {
    /// Its path, below the project.
    pub(super) path: PathBuf,
    pub(super) content: Vec<u8>,
}

/// Finds the file, or the one of a name if there are several.
///
/// # Errors
/// [`Code::NotFound`] if there is none, [`Code::InvalidInput`] if a name must be given, or the file
/// cannot be used.
pub(super) fn find(project: &Project, name: Option<&str>) -> Result<Found, Problem> {
    let directory = open(&project.dir, DIRECTORY)?;
    if let Some(name) = name {
        let is_name = !name.is_empty() && name != "." && name != ".." && !name.contains('/');
        if !is_name {
            let message = format!("{name:?} is not the name of a directory in {DIRECTORY}");
            return Err(Problem::new(Code::InvalidInput, message));
        }
        let below =
            directory.as_ref().map(|directory| open(directory, name)).transpose()?.flatten();
        let path = Path::new(DIRECTORY).join(name).join(FILE);
        let found = below.map(|below| read(project, &below, FILE, path.clone())).transpose()?;
        return found.flatten().ok_or_else(|| {
            Problem::new(Code::NotFound, format!("there is no {}", path.display()))
        });
    }
    if let Some(directory) = &directory
        && let Some(found) = read(project, directory, FILE, Path::new(DIRECTORY).join(FILE))?
    {
        return Ok(found);
    }
    if let Some(found) = read(project, &project.dir, IN_ROOT, IN_ROOT.into())? {
        return Ok(found);
    }
    let names = match &directory {
        Some(directory) => names(directory)?,
        None => Vec::new(),
    };
    match names.as_slice() {
        [] => {
            let message = format!("there is no {DIRECTORY}/{FILE} in {}", project.root.display());
            Err(Problem::new(Code::NotFound, message))
        }
        [one] => find(project, Some(one)),
        [first, ..] => {
            let message = format!("{DIRECTORY} has several configurations: {}", names.join(", "));
            Err(Problem::new(Code::InvalidInput, message)
                .remedied_by(format!("--devcontainer={first}")))
        }
    }
}

/// The directories below `.devcontainer` that have a file.
fn names(directory: &Dir) -> Result<Vec<String>, Problem> {
    let failed = |error: stockade_bundle::beneath::Error| caused(Code::Io, &error);
    let entries = directory.entries_up_to(MAX_DIRECTORIES).map_err(failed)?.unwrap_or_default();
    let mut names = Vec::new();
    for (name, kind) in entries {
        let Ok(name) = String::from_utf8(name) else { continue };
        if kind != FileKind::Directory {
            continue;
        }
        let path = RelativePath::new(format!("{name}/{FILE}").as_bytes());
        let path = path.map_err(|error| caused(Code::Io, &error))?;
        if directory.exists(&path).unwrap_or_default() {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

/// A directory below another one; not through a link.
fn open(parent: &Dir, name: &str) -> Result<Option<Dir>, Problem> {
    let path = RelativePath::new(name.as_bytes()).map_err(|error| caused(Code::Io, &error))?;
    match parent.open_dir(&path) {
        Ok(directory) => Ok(Some(directory)),
        Err(error) if matches!(error.errno(), Some(Errno::NOENT | Errno::NOTDIR)) => Ok(None),
        Err(error) => Err(Problem::new(Code::InvalidInput, format!("cannot use {name}"))
            .because(error.to_string())),
    }
}

fn read(
    project: &Project,
    directory: &Dir,
    name: &str,
    path: PathBuf,
) -> Result<Option<Found>, Problem> {
    let content = read_project_file(project, directory.as_fd(), Path::new(name), &path)?;
    Ok(content.map(|content| Found { path, content }))
}
