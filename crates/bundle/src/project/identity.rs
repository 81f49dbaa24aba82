//! Who the user is for git, as configured outside of the project: the one thing that a commit in a
//! sandbox needs of that configuration.
//!
//! Nothing else of it is taken: it names programs, files and credentials. The project's own
//! configuration is not read here, because git reads it inside.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use super::programs::{self, Surroundings};
use super::{Git, Project, config};

/// As in git, to end a ring of files that include each other.
const MAX_INCLUDES: usize = 10;
/// Longer values are not names.
const MAX_VALUE_BYTES: usize = 1000;

#[derive(Debug, Default, PartialEq, Eq)]
struct Identity {
    name: Option<Vec<u8>>,
    email: Option<Vec<u8>>,
}

impl Project {
    /// A configuration for git in a sandbox: the user's name and address, and that git may use this
    /// project although it may belong to another user there.
    pub fn git_configuration(&self) -> Vec<u8> {
        self.configuration_of(&Surroundings::of_process())
    }

    fn configuration_of(&self, surroundings: &Surroundings) -> Vec<u8> {
        let git_dir = match &self.git {
            Git::Worktree { git_dir, .. } => git_dir.clone(),
            Git::Directory | Git::None | Git::Unverified => self.root.join(".git"),
        };
        let mut reader = Reader {
            git_dir,
            home: surroundings.home(),
            seen: HashSet::new(),
            found: Identity::default(),
        };
        for file in surroundings.files() {
            reader.file(file, MAX_INCLUDES);
        }
        let mut text = b"[safe]\n".to_vec();
        line(&mut text, "directory", self.root.as_os_str().as_bytes());
        text.extend_from_slice(b"[user]\n");
        for (name, value) in [("name", &reader.found.name), ("email", &reader.found.email)] {
            if let Some(value) = value {
                line(&mut text, name, value);
            }
        }
        text
    }
}

/// Adds a variable, unless its value could be another line.
fn line(text: &mut Vec<u8>, name: &str, value: &[u8]) {
    if value.len() > MAX_VALUE_BYTES || value.iter().any(|byte| byte.is_ascii_control()) {
        return;
    }
    text.extend_from_slice(format!("\t{name} = \"").as_bytes());
    for byte in value {
        if matches!(byte, b'"' | b'\\') {
            text.push(b'\\');
        }
        text.push(*byte);
    }
    text.extend_from_slice(b"\"\n");
}

struct Reader<'a> {
    git_dir: PathBuf,
    home: Option<&'a Path>,
    seen: HashSet<PathBuf>,
    found: Identity,
}

impl Reader<'_> {
    /// Reads one file, and those that it includes, in the order in which git does.
    fn file(&mut self, path: &Path, left: usize) {
        if left == 0 || !self.seen.insert(path.to_owned()) {
            return;
        }
        let Some(content) = programs::read(path) else { return };
        for variable in config::parse(&content) {
            let Some(value) = variable.value else { continue };
            match (variable.section.as_slice(), variable.subsection, variable.name.as_slice()) {
                (b"user", None, b"name") => self.found.name = Some(value),
                (b"user", None, b"email") => self.found.email = Some(value),
                (b"include", None, b"path") => self.include(path, &value, left),
                (b"includeif", Some(condition), b"path") if self.holds(path, &condition) => {
                    self.include(path, &value, left);
                }
                _ => {}
            }
        }
        self.seen.remove(path);
    }

    fn include(&mut self, from: &Path, value: &[u8], left: usize) {
        let path = self.expanded(value);
        let path = from.parent().map_or_else(|| path.clone(), |above| above.join(&path));
        self.file(&path, left - 1);
    }

    /// Whether the condition of an `includeIf` is one about the git directory, and true.
    fn holds(&self, from: &Path, condition: &[u8]) -> bool {
        let Some(pattern) = condition.strip_prefix(b"gitdir:".as_slice()) else { return false };
        let is_prefix = pattern.ends_with(b"/");
        let pattern = match pattern.strip_prefix(b"./".as_slice()) {
            Some(below) => from.parent().unwrap_or(from).join(OsStr::from_bytes(below)),
            None => self.expanded(pattern),
        };
        let real = pattern.canonicalize().unwrap_or(pattern);
        if is_prefix { self.git_dir.starts_with(&real) } else { self.git_dir == real }
    }

    fn expanded(&self, value: &[u8]) -> PathBuf {
        match (value.strip_prefix(b"~/".as_slice()), self.home) {
            (Some(below), Some(home)) => home.join(OsStr::from_bytes(below)),
            _ => PathBuf::from(OsStr::from_bytes(value)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn configuration(files: &[(&str, &str)]) -> String {
        let home = tempfile::tempdir().unwrap();
        let root = home.path().join("clients/project");
        std::fs::create_dir_all(root.join(".git")).unwrap();
        for (name, text) in files {
            std::fs::write(
                home.path().join(name),
                text.replace("HOME", home.path().to_str().unwrap()),
            )
            .unwrap();
        }
        let surroundings = Surroundings::new(home.path(), vec![home.path().join(".gitconfig")]);
        let project = Project::open(&root.canonicalize().unwrap(), None).unwrap();
        String::from_utf8(project.configuration_of(&surroundings)).unwrap()
    }

    #[test]
    fn a_name_and_an_address_are_taken_and_nothing_else() {
        let text = configuration(&[(
            ".gitconfig",
            "[user]\n name = A \"B\"\n email = a@example.com\n signingkey = K\n[credential]\n helper = evil\n\
             [core]\n hooksPath = /evil\n[url \"x\"]\n insteadOf = y\n[user]\n name = \"C\\\"\\\\ D\"\n",
        )]);
        assert!(text.contains("\tname = \"C\\\"\\\\ D\"\n\temail = \"a@example.com\"\n"), "{text}");
        for other in ["evil", "signing", "credential", "include", "insteadOf", "A B"] {
            assert!(!text.contains(other), "{text}");
        }
    }

    #[test]
    fn included_files_count_where_their_condition_holds() {
        let text = configuration(&[
            (
                ".gitconfig",
                "[user]\nname = Home\n[includeIf \"gitdir:~/clients/\"]\npath = clients.inc\n[includeIf \"gitdir:~/else/\"]\npath = else.inc\n[include]\npath = ring.inc\n",
            ),
            ("clients.inc", "[user]\nname = Clients\n"),
            ("else.inc", "[user]\nname = Else\n"),
            ("ring.inc", "[include]\npath = ~/ring.inc\n[user]\nemail = r@example.com\n"),
        ]);
        assert!(text.contains("name = \"Clients\"\n\temail = \"r@example.com\""), "{text}");
    }

    #[test]
    fn a_value_cannot_add_a_line() {
        let text =
            configuration(&[(".gitconfig", "[user]\nname = \"a\\n[core]\\nhooksPath = /x\"\n")]);
        assert!(!text.contains("hooksPath") && !text.contains("name"), "{text}");
    }
}
