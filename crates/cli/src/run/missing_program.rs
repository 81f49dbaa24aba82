//! What a program of the host needs that the sandbox does not show: the directories of its links, of
//! its interpreters, and of the installation that they belong to, all of them at once.

use std::ffi::{OsStr, OsString};
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use stockade_core::access::SYSTEM;
use stockade_plan::environment::PATH;

use crate::problem::shell_word;

/// The most files that are followed.
const MAX_FILES: usize = 32;
/// The longest first line that a kernel accepts.
const MAX_LINE_BYTES: u64 = 256;
/// Directories of an installation that contain programs.
const PROGRAM_DIRECTORIES: [&str; 5] = ["bin", "sbin", "libexec", "shims", "cmd"];

/// What the caller has on the host.
#[derive(Debug)]
pub(super) struct Host<'a> {
    pub(super) path: &'a OsStr,
    pub(super) home: Option<&'a Path>,
    /// The project, which is visible.
    pub(super) project: &'a Path,
}

/// The directories to mount and those to add to the search path.
#[derive(Debug, Default, PartialEq, Eq)]
struct Needs {
    mounts: Vec<PathBuf>,
    search: Vec<PathBuf>,
}

/// A hint for a program that exists on the host but not inside: the flags that show all of it.
pub(super) fn hint(name: &OsStr, host: &Host<'_>) -> Option<String> {
    let found = if Path::new(name).components().count() > 1 {
        host.project.join(name)
    } else {
        host.find(name)?
    };
    if !found.is_file() {
        return None;
    }
    let needs = host.needs(&found);
    if needs.mounts.is_empty() {
        return None;
    }
    let mut flags = String::new();
    for mount in &needs.mounts {
        let mount = mount.to_str()?;
        flags += &format!(" --mount {}", shell_word(&format!("{mount}:{mount}:ro")));
    }
    if let Some(home) = host.home
        && needs.mounts.iter().any(|mount| *mount == home.join(".rustup"))
    {
        let rustup = home.join(".rustup");
        flags += &format!(" --env {}", shell_word(&format!("RUSTUP_HOME={}", rustup.to_str()?)));
    }
    if !needs.search.is_empty() {
        let search: Option<Vec<_>> = needs.search.iter().map(|path| path.to_str()).collect();
        let path = format!("PATH={}:{PATH}", search?.join(":"));
        flags += &format!(" --env {}", shell_word(&path));
    }
    let found = found.display();
    Some(format!("{found} exists on the host but is not visible in the sandbox; add{flags}"))
}

impl Host<'_> {
    /// The first file of this name in the search path.
    fn find(&self, name: &OsStr) -> Option<PathBuf> {
        let mut candidates = std::env::split_paths(self.path).map(|directory| directory.join(name));
        candidates.find(|candidate| candidate.is_absolute() && candidate.is_file())
    }

    fn is_visible(&self, path: &Path) -> bool {
        path.starts_with(self.project) || SYSTEM.iter().any(|system| path.starts_with(system))
    }

    /// Everything that a program needs.
    fn needs(&self, program: &Path) -> Needs {
        let mut needs = Needs::default();
        let mut files = vec![program.to_owned()];
        if let Some(directory) = program.parent().filter(|_| !self.is_visible(program)) {
            needs.search.push(directory.to_owned());
        }
        let mut followed = Vec::new();
        while let Some(file) = files.pop() {
            if followed.contains(&file) || followed.len() >= MAX_FILES {
                continue;
            }
            followed.push(file.clone());
            if !self.is_visible(&file) {
                self.add(&mut needs.mounts, &file);
            }
            if let Ok(target) = std::fs::read_link(&file) {
                let directory = file.parent().unwrap_or(&file);
                files.push(normalize(&directory.join(target)));
            }
            if let Ok(real) = file.canonicalize() {
                files.push(real.clone());
                files.extend(self.interpreter(&real, &mut needs.search));
                if let Some(home) = self.home
                    && real.file_name() == Some(OsStr::new("rustup"))
                {
                    needs.mounts.push(home.join(".rustup"));
                }
            }
        }
        let all = needs.mounts.clone();
        let is_below =
            |mount: &PathBuf| all.iter().any(|other| other != mount && mount.starts_with(other));
        needs.mounts.retain(|mount| !is_below(mount));
        needs.mounts.sort();
        needs.mounts.dedup();
        needs
    }

    /// Adds the directory that has to be visible for a file: that of its installation, if the file is
    /// in one, else its own.
    fn add(&self, mounts: &mut Vec<PathBuf>, file: &Path) {
        let Some(own) = file.parent() else { return };
        let mut components: Vec<_> = file.components().collect();
        let modules =
            components.iter().position(|part| *part == Component::Normal("node_modules".as_ref()));
        let directory = if let Some(at) = modules {
            components.truncate(at + 1);
            components.iter().collect()
        } else {
            let is_program_directory = own
                .file_name()
                .and_then(OsStr::to_str)
                .is_some_and(|name| PROGRAM_DIRECTORIES.contains(&name));
            match own.parent() {
                Some(installation)
                    if is_program_directory && self.is_installation(installation) =>
                {
                    installation.to_owned()
                }
                _ => own.to_owned(),
            }
        };
        mounts.push(directory);
    }

    /// Whether a directory contains nothing but one installation. A directory of the user with more in
    /// it may contain credentials.
    fn is_installation(&self, directory: &Path) -> bool {
        let shared = [".local", ".cargo", ".config", ".npm", ".bun", ".deno", "go"];
        let of_home = |home: &Path| {
            home.starts_with(directory) || shared.iter().any(|name| directory == home.join(name))
        };
        directory.components().count() > 2 && !self.home.is_some_and(of_home)
    }

    /// The interpreter that the first line of a script names. A program that `env` finds is added to
    /// the search path.
    fn interpreter(&self, script: &Path, search: &mut Vec<PathBuf>) -> Option<PathBuf> {
        let mut line = Vec::new();
        std::fs::File::open(script).ok()?.take(MAX_LINE_BYTES).read_to_end(&mut line).ok()?;
        let line = line.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
        let words = line.split(|byte| byte.is_ascii_whitespace()).filter(|word| !word.is_empty());
        let mut words = words.map(OsStr::from_bytes);
        let interpreter = PathBuf::from(words.next()?);
        if interpreter.file_name() != Some(OsStr::new("env")) {
            return Some(interpreter);
        }
        let is_name =
            |word: &&OsStr| !word.as_bytes().starts_with(b"-") && !word.as_bytes().contains(&b'=');
        let found = self.find(words.find(is_name)?)?;
        let directory = found.parent()?.to_owned();
        if !self.is_visible(&found) && !search.contains(&directory) {
            search.push(directory);
        }
        Some(found)
    }
}

/// A path without `.` and `..`, by its text.
fn normalize(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => drop(normal.pop()),
            Component::CurDir => {}
            other => normal.push(other),
        }
    }
    normal
}

/// The search path of the caller.
pub(super) fn search_path() -> OsString {
    std::env::var_os("PATH").unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    struct Scene {
        _directory: tempfile::TempDir,
        home: PathBuf,
        path: OsString,
    }

    impl Scene {
        fn new() -> Self {
            let directory = tempfile::tempdir().unwrap();
            let home = directory.path().canonicalize().unwrap().join("home");
            let path = [".local/bin", "nvm/v20/bin", ".cargo/bin", ".pyenv/shims"];
            let path = std::env::join_paths(path.map(|name| home.join(name))).unwrap();
            Self { _directory: directory, home, path }
        }

        fn file(&self, name: &str, text: &str) {
            let path = self.home.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, text.replace('@', self.home.to_str().unwrap())).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        }

        fn link(&self, name: &str, target: &str) {
            let path = self.home.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            symlink(target.replace('@', self.home.to_str().unwrap()), path).unwrap();
        }

        fn needs(&self, name: &str) -> (Vec<String>, Vec<String>) {
            let host =
                Host { path: &self.path, home: Some(&self.home), project: Path::new("/project") };
            let needs = host.needs(&host.find(OsStr::new(name)).unwrap());
            let below = |paths: &[PathBuf]| -> Vec<String> {
                let names = paths.iter().map(|path| path.strip_prefix(&self.home).unwrap());
                names.map(|name| name.to_str().unwrap().to_owned()).collect()
            };
            (below(&needs.mounts), below(&needs.search))
        }
    }

    #[test]
    fn every_link_and_interpreter_of_a_program_is_followed() {
        let scene = Scene::new();
        let expect = |name: &str, mounts: &[&str], search: &[&str]| {
            let (found, path) = scene.needs(name);
            assert_eq!((found, path), (mounts.map_owned(), search.map_owned()), "{name}");
        };
        scene.file(".local/share/tool/v1/tool", "#!/bin/sh\n");
        scene.link(".local/bin/mytool", "@/.local/share/tool/v1/tool");
        expect("mytool", &[".local/bin", ".local/share/tool/v1"], &[".local/bin"]);

        // pipx and uv: a virtual environment whose interpreter is a link to another installation.
        scene.file(".local/share/uv/python/3.13/bin/python3.13", "");
        scene.link(
            ".local/share/pipx/venvs/black/bin/python",
            "@/.local/share/uv/python/3.13/bin/python3.13",
        );
        scene.file(
            ".local/share/pipx/venvs/black/bin/black",
            "#!@/.local/share/pipx/venvs/black/bin/python\n",
        );
        scene.link(".local/bin/black", "../share/pipx/venvs/black/bin/black");
        let mounts = [".local/bin", ".local/share/pipx/venvs/black", ".local/share/uv/python/3.13"];
        expect("black", &mounts, &[".local/bin"]);

        // npm with nvm: the script is in `node_modules`, and `env` finds its interpreter.
        scene.file("nvm/v20/bin/node", "");
        scene.file("nvm/v20/lib/node_modules/agent/cli.js", "#!/usr/bin/env -S node\n");
        scene.link("nvm/v20/bin/agent", "../lib/node_modules/agent/cli.js");
        expect("agent", &["nvm/v20"], &["nvm/v20/bin"]);

        // rustup: a link to one program for all names, and its toolchains. No credentials of cargo.
        scene.file(".cargo/bin/rustup", "");
        scene.link(".cargo/bin/cargo", "rustup");
        expect("cargo", &[".cargo/bin", ".rustup"], &[".cargo/bin"]);

        scene.file(".pyenv/shims/pytest", "#!/usr/bin/env bash\n");
        expect("pytest", &[".pyenv"], &[".pyenv/shims"]);

        // Links in a ring.
        scene.link(".local/bin/ring", "@/.local/bin/gnir");
        scene.link(".local/bin/gnir", "@/.local/bin/ring");
        let host = Host { path: &scene.path, home: None, project: Path::new("/project") };
        assert_eq!(hint(OsStr::new("ring"), &host), None);
    }

    #[test]
    fn flags_can_be_pasted() {
        let scene = Scene::new();
        scene.file(".local/share/my tool/tool", "");
        scene.link(".local/bin/tool", "@/.local/share/my tool/tool");
        let host = Host { path: &scene.path, home: Some(&scene.home), project: Path::new("/p") };
        let hint = hint(OsStr::new("tool"), &host).unwrap();
        let home = scene.home.to_str().unwrap();
        assert!(
            hint.contains(&format!(" --mount {home}/.local/bin:{home}/.local/bin:ro")),
            "{hint}"
        );
        let quoted = format!("'{home}/.local/share/my tool:{home}/.local/share/my tool:ro'");
        assert!(hint.contains(&quoted), "{hint}");
        assert!(hint.contains(&format!("--env PATH={home}/.local/bin:/usr")), "{hint}");
    }

    trait MapOwned {
        fn map_owned(&self) -> Vec<String>;
    }

    impl MapOwned for [&str] {
        fn map_owned(&self) -> Vec<String> {
            self.iter().map(|text| (*text).to_owned()).collect()
        }
    }
}
