//! The current project: a relative reference such as `latest` means something of it.

use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use stockade_bundle::project::Project;

/// The project that contains a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CurrentProject {
    root: Option<PathBuf>,
}

impl CurrentProject {
    /// The project that contains a directory, as `stockade run` finds it. A directory that may not
    /// be a project is in none.
    pub fn of(directory: &Path) -> Self {
        Self { root: root(directory) }
    }

    /// Its root; `None` if the directory is in no project.
    pub fn root(&self) -> Option<&Path> {
        self.root.as_deref()
    }

    /// Whether the directory at an absolute path belongs to the project: it is its root, or is in
    /// it and in no other project.
    pub fn has(&self, path: &Path) -> bool {
        let Some(own) = self.root() else { return false };
        path == own || path.starts_with(own) && root(path).as_deref() == Some(own)
    }

    /// The same for a path as bundles record it.
    pub fn has_bytes(&self, path: &[u8]) -> bool {
        self.has(Path::new(std::ffi::OsStr::from_bytes(path)))
    }
}

fn root(directory: &Path) -> Option<PathBuf> {
    Project::find(directory, None).ok().map(|project| project.root)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_project_has_its_directories_and_none_of_another_project() {
        let scratch = tempfile::tempdir().unwrap();
        let top = scratch.path().canonicalize().unwrap();
        for directory in ["p/.git", "p/src/deep", "p/vendored/.git", "p/vendored/src", "pp"] {
            std::fs::create_dir_all(top.join(directory)).unwrap();
        }
        let project = CurrentProject::of(&top.join("p/src"));
        assert_eq!(project.root(), Some(top.join("p").as_path()));
        for (path, is_own) in [
            ("p", true),
            ("p/src", true),
            ("p/src/deep", true),
            ("p/vendored", false),
            ("p/vendored/src", false),
            ("pp", false),
            ("", false),
            ("p/removed", false),
        ] {
            assert_eq!(project.has(&top.join(path)), is_own, "{path}");
        }
        // Without a repository, a project is exactly its directory.
        let plain = CurrentProject::of(&top.join("pp"));
        assert!(plain.has(&top.join("pp")) && !plain.has(&top.join("p")));
        let none = CurrentProject::of(Path::new("/"));
        assert!(none.root().is_none() && !none.has(Path::new("/")) && !none.has(&top));
    }
}
