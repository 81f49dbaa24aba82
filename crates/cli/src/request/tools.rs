//! Toolchains of the caller's home directory for `--tools`: exactly their directories of programs and
//! libraries, never what lies beside them: credentials, tokens, configuration, caches.

mod layout;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use stockade_core::sandbox::HostMount;
use stockade_core::{Code, Problem};
use stockade_plan::environment::PATH;

use self::layout::layout;
use crate::args::sandbox_flags::Tool;

/// What the requested toolchains add to a sandbox.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Toolchains {
    pub(super) mounts: Vec<HostMount>,
    pub(super) variables: Vec<(String, String)>,
}

/// Finds the toolchains of the caller.
///
/// # Errors
/// [`Code::InvalidInput`] for a toolchain that is not installed in the home directory or on the
/// search path.
pub(super) fn find(
    tools: &[Tool],
    home: Option<&Path>,
    path: Option<OsString>,
) -> Result<Toolchains, Problem> {
    let mut found = Toolchains::default();
    let mut search = Vec::new();
    for tool in tools {
        let before = found.mounts.len();
        let layout = layout(*tool);
        for program in layout.programs {
            let Some(prefix) = prefix_of(program, path.as_ref()) else { continue };
            // A program beside those of everyone has no directory of its own.
            let own = prefix.file_name().is_some_and(|name| name != ".local")
                && Some(prefix.as_path()) != home;
            if own {
                layout.prefix.iter().for_each(|below| found.add(&prefix.join(below)));
            } else {
                found.add(&prefix.join("bin").join(program));
            }
            search.push(prefix.join("bin"));
        }
        if let Some(home) = home {
            layout.home.iter().for_each(|below| found.add(&home.join(below)));
            for (versions, parts) in layout.versions {
                for version in directories(home, versions) {
                    parts.iter().for_each(|below| found.add(&version.join(below)));
                }
            }
        }
        if found.mounts.len() == before && !is_of_system(layout.programs) {
            let name = tool.name();
            let message = format!("there is no {name} in your home directory or on your PATH");
            return Err(Problem::new(Code::InvalidInput, message).remedied_by(format!(
                "omit --tools {name}, or mount its directory: --mount /DIR:/DIR:ro"
            )));
        }
        let home = home.unwrap_or_else(|| Path::new("/"));
        search.extend(layout.path.iter().map(|below| home.join(below)).filter(|dir| dir.is_dir()));
        for (variable, below) in layout.variables {
            let value = home.join(below);
            if let Some(value) = value.to_str().filter(|_| value.is_dir()) {
                found.variables.push(((*variable).to_owned(), value.to_owned()));
            }
        }
    }
    let own = path.iter().flat_map(std::env::split_paths).filter(|directory| found.has(directory));
    let mut all: Vec<PathBuf> = Vec::new();
    for directory in own.chain(search) {
        if !all.contains(&directory) {
            all.push(directory);
        }
    }
    let search: Vec<_> = all.iter().filter_map(|directory| directory.to_str()).collect();
    if !search.is_empty() {
        found.variables.push(("PATH".to_owned(), format!("{}:{PATH}", search.join(":"))));
    }
    Ok(found)
}

impl Toolchains {
    /// Whether a directory is shown.
    fn has(&self, directory: &Path) -> bool {
        self.mounts.iter().any(|mount| directory.starts_with(&mount.inside))
    }

    /// Mounts a file or directory read-only at its own path. A link is mounted at its own path too,
    /// and what it leads to at that path.
    fn add(&mut self, path: &Path) {
        let Ok(real) = path.canonicalize() else { return };
        for inside in [path.to_owned(), real.clone()] {
            let is_there = self.mounts.iter().any(|mount| mount.inside == inside);
            if !is_there && !inside.starts_with("/usr") {
                self.mounts.push(HostMount { host: real.clone(), inside, writable: false });
            }
        }
    }
}

/// The directories of a pattern whose parts `*` are every directory of their parent that is not hidden, in
/// order.
fn directories(top: &Path, pattern: &str) -> Vec<PathBuf> {
    let mut all = vec![top.to_owned()];
    for part in pattern.split('/') {
        all = match part {
            "*" => all.iter().flat_map(|directory| visible(directory)).collect(),
            name => all.into_iter().map(|directory| directory.join(name)).collect(),
        };
    }
    all
}

fn visible(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let visible = entries.filter(|entry| !entry.file_name().as_encoded_bytes().starts_with(b"."));
    let mut paths: Vec<_> =
        visible.map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
    paths.sort();
    paths
}

/// Whether the system has such a program, which every sandbox sees.
fn is_of_system(programs: &[&str]) -> bool {
    let is_there =
        |program: &&str| PATH.split(':').any(|dir| Path::new(dir).join(program).exists());
    programs.iter().any(is_there)
}

/// The directory above `bin` of the first program of this name outside of the system's directories.
fn prefix_of(program: &str, path: Option<&OsString>) -> Option<PathBuf> {
    let found =
        std::env::split_paths(path?).map(|dir| dir.join(program)).find(|at| at.is_file())?;
    let real = found.canonicalize().ok()?;
    let bin = real.parent().filter(|bin| bin.ends_with("bin"))?;
    let prefix = bin.parent()?;
    (!prefix.starts_with("/usr") && prefix.parent().is_some()).then(|| prefix.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_programs_and_libraries_are_mounted() {
        let home = tempfile::tempdir().unwrap();
        let root = home.path().canonicalize().unwrap();
        for file in [
            ".cargo/bin/cargo",
            ".cargo/credentials.toml",
            ".cargo/config.toml",
            ".cargo/registry/x",
            ".rustup/toolchains/stable/bin/cargo",
            ".rustup/settings.toml",
            ".npmrc",
            "node/bin/node",
            "node/lib/node_modules/npm/x",
            "node/etc/npmrc",
            "node/.npmrc",
            ".local/bin/uv",
            ".local/share/uv/credentials/x",
            ".local/share/uv/python/3/bin/python",
            ".local/share/uv/python/3/pip.conf",
            ".local/share/uv/tools/x/pyvenv.cfg",
            ".local/share/uv/tools/x/uv-receipt.toml",
            ".nvm/alias/default",
            ".nvm/versions/node/v20/bin/node",
            ".nvm/versions/node/v20/etc/npmrc",
            ".nvm/versions/node/v20/.npmrc",
        ] {
            std::fs::create_dir_all(root.join(file).parent().unwrap()).unwrap();
            std::fs::write(root.join(file), "canary").unwrap();
        }
        let own = ["node/bin", ".local/bin", ".nvm/versions/node/v20/bin", ".nvm/alias"];
        let path = std::env::join_paths(own.map(|below| root.join(below))).unwrap();
        let found = find(&[Tool::Cargo, Tool::Node, Tool::Uv], Some(&root), Some(path)).unwrap();
        let mut inside: Vec<_> = found
            .mounts
            .iter()
            .map(|mount| mount.inside.strip_prefix(&root).unwrap().display().to_string())
            .collect();
        inside.sort();
        assert_eq!(
            inside,
            [
                ".cargo/bin",
                ".local/bin/uv",
                ".local/share/uv/python/3/bin",
                ".local/share/uv/tools/x/pyvenv.cfg",
                ".nvm/versions/node/v20/bin",
                ".rustup/settings.toml",
                ".rustup/toolchains/stable/bin",
                "node/bin",
                "node/lib",
            ]
        );
        assert!(found.mounts.iter().all(|mount| !mount.writable));
        let (_, path) = found.variables.iter().find(|(name, _)| name == "PATH").unwrap();
        let of_caller = own[..1].iter().chain(&own[2..3]).map(|below| root.join(below));
        let of_caller = std::env::join_paths(of_caller).unwrap().into_string().unwrap();
        assert!(path.starts_with(&of_caller) && path.ends_with(PATH), "{path}");
        assert!(!path.contains(".nvm/alias"), "{path}");
        assert!(find(&[Tool::Pyenv], Some(&root), None).is_err());
    }
}
