//! Toolchains of the caller's home directory for `--tools`: exactly their directories of programs and
//! libraries, never what lies beside them: credentials, tokens, configuration, caches.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use stockade_core::sandbox::HostMount;
use stockade_core::{Code, Problem};
use stockade_plan::environment::PATH;

use crate::args::sandbox_flags::Tool;

/// What a toolchain consists of.
struct Layout {
    /// Its programs; where the first of them on the search path is found, its prefix is mounted.
    programs: &'static [&'static str],
    /// The directories and files below a prefix that hold programs and libraries.
    prefix: &'static [&'static str],
    /// Directories and files below the home directory.
    home: &'static [&'static str],
    /// Which of those are added to the search path.
    path: &'static [&'static str],
    /// Variables with directories below the home directory.
    variables: &'static [(&'static str, &'static str)],
}

const PREFIX: &[&str] = &["bin", "include", "lib", "lib64", "libexec", "share"];

const fn layout(tool: Tool) -> Layout {
    match tool {
        Tool::Node => Layout {
            programs: &["node"],
            prefix: PREFIX,
            home: &[
                ".volta/bin",
                ".volta/tools",
                ".local/share/fnm/node-versions",
                ".nvm/versions",
            ],
            path: &[".volta/bin"],
            variables: &[],
        },
        Tool::Deno => Layout {
            programs: &["deno"],
            prefix: &["bin"],
            home: &[".deno/bin"],
            path: &[".deno/bin"],
            variables: &[],
        },
        Tool::Bun => Layout {
            programs: &["bun"],
            prefix: &["bin"],
            home: &[".bun/bin"],
            path: &[".bun/bin"],
            variables: &[],
        },
        Tool::Cargo => Layout {
            programs: &[],
            prefix: &[],
            home: &[
                ".cargo/bin",
                ".rustup/settings.toml",
                ".rustup/toolchains",
                // Without it rustup ends at once.
                ".rustup/update-hashes",
            ],
            path: &[".cargo/bin"],
            variables: &[("RUSTUP_HOME", ".rustup")],
        },
        Tool::Uv => Layout {
            programs: &["uv", "uvx"],
            prefix: &["bin"],
            home: &[".local/share/uv/python", ".local/share/uv/tools"],
            path: &[],
            variables: &[],
        },
        Tool::Pyenv => Layout {
            programs: &[],
            prefix: &[],
            home: &[
                ".pyenv/bin",
                ".pyenv/libexec",
                ".pyenv/plugins",
                ".pyenv/shims",
                ".pyenv/version",
                ".pyenv/versions",
            ],
            path: &[".pyenv/shims", ".pyenv/bin"],
            variables: &[("PYENV_ROOT", ".pyenv")],
        },
        Tool::Go => Layout {
            programs: &["go"],
            prefix: &["VERSION", "api", "bin", "go.env", "lib", "pkg", "src"],
            home: &["go/bin"],
            path: &["go/bin"],
            variables: &[],
        },
        Tool::Jvm => Layout {
            programs: &["java"],
            prefix: &["bin", "conf", "include", "jmods", "legal", "lib", "release"],
            home: &[".sdkman/candidates"],
            path: &[
                ".sdkman/candidates/java/current/bin",
                ".sdkman/candidates/maven/current/bin",
                ".sdkman/candidates/gradle/current/bin",
            ],
            variables: &[],
        },
    }
}

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
        for below in layout.home {
            if let Some(home) = home {
                found.add(&home.join(below));
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
    search.dedup();
    let search: Vec<_> = search.iter().filter_map(|directory| directory.to_str()).collect();
    if !search.is_empty() {
        found.variables.push(("PATH".to_owned(), format!("{}:{PATH}", search.join(":"))));
    }
    Ok(found)
}

impl Toolchains {
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
        ] {
            std::fs::create_dir_all(root.join(file).parent().unwrap()).unwrap();
            std::fs::write(root.join(file), "canary").unwrap();
        }
        let path = std::env::join_paths([root.join("node/bin"), root.join(".local/bin")]).unwrap();
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
                ".local/share/uv/python",
                ".rustup/settings.toml",
                ".rustup/toolchains",
                "node/bin",
                "node/lib",
            ]
        );
        assert!(found.mounts.iter().all(|mount| !mount.writable));
        let (_, path) = found.variables.iter().find(|(name, _)| name == "PATH").unwrap();
        assert!(path.contains("node/bin:") && path.ends_with(PATH), "{path}");
        assert!(find(&[Tool::Pyenv], Some(&root), None).is_err());
    }
}
