//! Committing the changes of a bundle to a new branch, without touching the work tree.
//!
//! Git writes the objects (`git fast-import`), with an environment and options in which no hook, filter
//! or other program of the repository's configuration runs. The branch is created last, and only if it
//! does not exist.

use std::ffi::OsStr;
use std::io::{Read as _, Write};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde::Serialize;
use stockade_api::{ApplyBundle, Bytes, Result, SkippedPath};
use stockade_bundle::apply;
use stockade_bundle::decisions::Action;
use stockade_bundle::manifest::{ContentHash, Node};
use stockade_bundle::patch;
use stockade_bundle::store::Bundle;
use stockade_bundle::{Entry, RelativePath};
use stockade_core::{Code, Problem};

use crate::bundles::Bundles;
use crate::decide::{refusal, skipped_paths};
use crate::messages;
use crate::paths::to_bytes;
use crate::problem::{apply_problem, caused, short_id, store_problem};

/// How long one call of git may take.
const GIT_TIMEOUT: Duration = Duration::from_secs(600);

/// Options with which git runs no program that the repository names.
const OPTIONS: &[&str] = &[
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.alternateRefsCommand=/bin/false",
    "core.editor=/bin/false",
    "core.pager=cat",
    "core.sshCommand=/bin/false",
    "credential.helper=",
    "gc.auto=0",
    "maintenance.auto=false",
    "protocol.allow=never",
    "safe.directory=*",
];

/// The most of git's messages that are shown.
const MAX_MESSAGE_BYTES: u64 = 4 << 10;

/// A branch with the changes of a bundle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CommittedBranch {
    /// The bundle.
    pub id: String,
    /// The project.
    pub project: Bytes,
    /// The name of the branch.
    pub branch: String,
    /// Its commit.
    pub commit: String,
    /// The committed paths.
    pub committed: Vec<Bytes>,
    /// The paths that were left out.
    pub skipped: Vec<SkippedPath>,
}

impl Bundles {
    /// Commits the selected changes to a new branch, on top of the commit from which the command
    /// started. The bundle stays.
    ///
    /// # Errors
    /// [`Code::InvalidInput`] for a branch that exists or a name that is none, and those of an
    /// application.
    pub fn commit_to_branch(&self, request: &ApplyBundle, name: &str) -> Result<CommittedBranch> {
        let (bundle, manifest, selection) = self.prepare(request, false)?;
        let root = PathBuf::from(OsStr::from_bytes(&bundle.manifest.project));
        let chosen = apply::chosen(&root, &manifest, &selection);
        let (entries, skipped) =
            chosen.map_err(|error| refusal(&error, request, &bundle, Some(name)))?;
        let git = Git::find(&root)?;
        git.check_name(name, bundle.id())?;
        let base = bundle.manifest.base_ref.as_deref();
        // A proposal names its own base, and git reads it as a line of commands.
        if !base.is_none_or(is_commit_name) {
            let message = "the base of the bundle is not the name of a commit";
            return Err(Problem::new(Code::BundleInvalid, message));
        }
        let submodules = base.map_or(Ok(Vec::new()), |base| git.submodules(base))?;
        let in_submodule =
            |entry: &Entry| submodules.iter().any(|submodule| entry.path.is_within(submodule));
        let (apart, entries): (Vec<Entry>, Vec<Entry>) =
            entries.into_iter().partition(in_submodule);
        let changes: Vec<&Entry> = entries.iter().filter(|entry| is_tracked(entry)).collect();
        if changes.is_empty() {
            let message = "the bundle has nothing that git can commit";
            return Err(Problem::new(Code::PathRefused, message)
                .remedied_by(format!("stockade diff {} --stat", short_id(bundle.id()))));
        }
        let commit = git.commit(&bundle, base, &changes)?;
        git.create(name, &commit, bundle.id())?;
        let recorded = bundle.record(&self.data, Action::Branch, changes.len());
        recorded.map_err(|error| store_problem(&error))?;
        let submodule = |entry: &Entry| SkippedPath {
            path: to_bytes(&entry.path),
            reason: "is in a submodule".to_owned(),
            paths: 1,
        };
        let mut skipped = skipped_paths(&bundle, &skipped)?;
        skipped.extend(apart.iter().map(submodule));
        Ok(CommittedBranch {
            id: bundle.id().to_owned(),
            project: Bytes(bundle.manifest.project.clone()),
            branch: name.to_owned(),
            commit,
            committed: changes.iter().map(|entry| to_bytes(&entry.path)).collect(),
            skipped,
        })
    }
}

/// Whether a text is the full name of a commit.
fn is_commit_name(text: &str) -> bool {
    matches!(text.len(), 40 | 64) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Whether git tracks a change: it knows no directories.
fn is_tracked(entry: &Entry) -> bool {
    [entry.change.old(), entry.change.new_node()]
        .into_iter()
        .flatten()
        .any(|node| !matches!(node, Node::Directory { .. }))
}

/// Git in one repository.
struct Git {
    program: PathBuf,
    root: PathBuf,
}

/// The content of a blob of the project's own repository; `None` where git does not have it.
pub fn object(project: &Path, name: &str) -> Option<Vec<u8>> {
    Git::find(project).ok()?.output(&["cat-file", "blob", name]).ok()?.ok()
}

impl Git {
    /// The git of the host, from a directory of the PATH that the project does not contain.
    fn find(root: &Path) -> Result<Self> {
        if !root.join(".git").exists() {
            let message =
                format!("{} is not a git repository, so it has no branches", root.display());
            return Err(Problem::new(Code::ProjectRefused, message));
        }
        let path = std::env::var_os("PATH").unwrap_or_default();
        let program = std::env::split_paths(&path)
            .filter(|directory| directory.is_absolute() && !directory.starts_with(root))
            .map(|directory| directory.join("git"))
            .find(|program| program.is_file())
            .ok_or_else(|| Problem::new(Code::Unsupported, "git is not installed"))?;
        Ok(Self { program, root: root.to_owned() })
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        let kept = ["HOME", "PATH", "TMPDIR"].map(|name| (name, std::env::var_os(name)));
        command.env_clear();
        command.envs(kept.into_iter().filter_map(|(name, value)| Some((name, value?))));
        command.envs([
            ("GIT_CONFIG_NOSYSTEM", "1"),
            ("GIT_CONFIG_GLOBAL", "/dev/null"),
            ("GIT_NO_LAZY_FETCH", "1"),
            ("GIT_NO_REPLACE_OBJECTS", "1"),
            ("GIT_OPTIONAL_LOCKS", "0"),
            ("GIT_TERMINAL_PROMPT", "0"),
            ("LC_ALL", "C"),
        ]);
        command.current_dir(&self.root);
        for option in OPTIONS {
            command.args(["-c", option]);
        }
        // A repository elsewhere is never meant.
        command.arg("--git-dir").arg(self.root.join(".git")).args(arguments);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// The standard output of git, or what it reports.
    fn output(&self, arguments: &[&str]) -> Result<std::result::Result<Vec<u8>, String>> {
        let child = self.command(arguments).spawn().map_err(|error| spawn_problem(&error))?;
        finish(child)
    }

    fn check_name(&self, name: &str, bundle: &str) -> Result<()> {
        let invalid = |message: String| {
            let other = format!(
                "stockade apply {} --branch agent-{}",
                short_id(bundle),
                &short_id(bundle)[..6]
            );
            Problem::new(Code::InvalidInput, message).remedied_by(other)
        };
        let reference = format!("refs/heads/{name}");
        let is_valid = !name.starts_with('-')
            && name != "HEAD"
            && self.output(&["check-ref-format", &reference])?.is_ok();
        if !is_valid {
            return Err(invalid(format!("`{}` is not a name of a branch", name.escape_default())));
        }
        match self.output(&["show-ref", "--verify", "--quiet", &reference])? {
            Ok(_) => Err(invalid(format!("the branch {name} exists"))),
            Err(_) => Ok(()),
        }
    }

    /// The submodules of a commit.
    fn submodules(&self, commit: &str) -> Result<Vec<RelativePath>> {
        let tree = format!("{commit}^{{tree}}");
        let listed = self.output(&["ls-tree", "-r", "-z", "--full-tree", &tree])?;
        let listed =
            listed.map_err(|error| git_problem("read the commit of the project", &error))?;
        let paths = listed.split(|byte| *byte == 0).filter(|line| line.starts_with(b"160000 "));
        let paths = paths.filter_map(|line| line.splitn(2, |byte| *byte == b'\t').nth(1));
        Ok(paths.filter_map(|path| RelativePath::new(path).ok()).collect())
    }

    /// Who commits: the user's own identity, as git knows it.
    fn identity(&self) -> Result<String> {
        let mut found = Vec::new();
        for (key, default) in [("user.name", "Stockade"), ("user.email", "stockade@localhost")] {
            let mut command = self.command(&["config", "--get", key]);
            command.env_remove("GIT_CONFIG_GLOBAL").env_remove("GIT_CONFIG_NOSYSTEM");
            let output = finish(command.spawn().map_err(|error| spawn_problem(&error))?)?;
            let value =
                output.ok().and_then(|value| String::from_utf8(value).ok()).unwrap_or_default();
            let value: String =
                value.trim().chars().filter(|it| !it.is_control() && !"<>".contains(*it)).collect();
            found.push(if value.is_empty() { default.to_owned() } else { value });
        }
        Ok(format!("{} <{}>", found[0], found[1]))
    }

    /// Writes the commit; returns its name. It belongs to no branch yet.
    fn commit(&self, bundle: &Bundle, base: Option<&str>, changes: &[&Entry]) -> Result<String> {
        let reference = format!("refs/stockade/{}-{}", short_id(bundle.id()), std::process::id());
        let identity = self.identity()?;
        let mut command = self.command(&["fast-import", "--quiet", "--done", "--date-format=raw"]);
        let mut child =
            command.stdin(Stdio::piped()).spawn().map_err(|error| spawn_problem(&error))?;
        let written = match child.stdin.take() {
            Some(mut input) => stream(&mut input, bundle, (&reference, &identity, base), changes),
            None => Ok(()),
        };
        let output = finish(child)?;
        // If git has ended early, its own message is the reason.
        output.map_err(|error| git_problem("commit the changes", &error))?;
        written?;
        let name = self.output(&["rev-parse", "--verify", "--quiet", &reference])?;
        let removed = self.output(&["update-ref", "--no-deref", "-d", &reference])?;
        let name = name.and_then(|name| removed.map(|_| name));
        let name = name.map_err(|error| git_problem("read the new commit", &error))?;
        Ok(String::from_utf8_lossy(&name).trim().to_owned())
    }

    /// Creates the branch, unless it exists by now.
    fn create(&self, name: &str, commit: &str, bundle: &str) -> Result<()> {
        let reference = format!("refs/heads/{name}");
        let none = "0".repeat(commit.len());
        let message = format!("stockade: bundle {}", short_id(bundle));
        let arguments = ["update-ref", "--no-deref", "-m", &message, &reference, commit, &none];
        let created = self.output(&arguments)?;
        created.map(drop).map_err(|error| git_problem("create the branch", &error))
    }
}

/// Writes the commands for `git fast-import`.
fn stream(
    input: &mut impl Write,
    bundle: &Bundle,
    (reference, identity, base): (&str, &str, Option<&str>),
    changes: &[&Entry],
) -> Result<()> {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let command: Vec<String> =
        bundle.manifest.command.iter().map(|word| messages::shell_quote(word.as_bytes())).collect();
    let message = format!("{}\n\nStockade bundle {}\n", command.join(" "), bundle.id());
    let mut write = |bytes: &[u8]| input.write_all(bytes).map_err(|error| write_problem(&error));
    write(format!("commit {reference}\n").as_bytes())?;
    for role in ["author", "committer"] {
        write(format!("{role} {identity} {seconds} +0000\n").as_bytes())?;
    }
    write(format!("data {}\n{message}\n", message.len()).as_bytes())?;
    if let Some(base) = base {
        write(format!("from {base}\n").as_bytes())?;
    }
    let is_gone = |entry: &&&Entry| {
        !matches!(entry.change.old(), None | Some(Node::Directory { .. }))
            && matches!(entry.change.new_node(), None | Some(Node::Directory { .. }))
    };
    for entry in changes.iter().filter(is_gone) {
        write(&[b"D ", &*patch::quoted(&entry.path), b"\n"].concat())?;
    }
    for entry in changes {
        let (mode, content) = match entry.change.new_node() {
            Some(Node::File { hash, size, mode }) => {
                let mode = if mode & 0o100 == 0 { "100644" } else { "100755" };
                (mode, content(bundle, entry, *hash, *size)?)
            }
            Some(Node::Symlink { target }) => ("120000", target.clone()),
            Some(Node::Directory { .. }) | None => continue,
        };
        write(&[b"M ", mode.as_bytes(), b" inline ", &patch::quoted(&entry.path), b"\n"].concat())?;
        write(format!("data {}\n", content.len()).as_bytes())?;
        write(&content)?;
        write(b"\n")?;
    }
    write(b"done\n")
}

/// A new content, if it is the one that the manifest names.
fn content(bundle: &Bundle, entry: &Entry, hash: ContentHash, size: u64) -> Result<Vec<u8>> {
    let mut content = Vec::new();
    let file = bundle.blob(hash).map_err(|error| store_problem(&error))?;
    file.take(size + 1).read_to_end(&mut content).map_err(|error| caused(Code::Io, &error))?;
    if ContentHash::of(&content) == hash {
        return Ok(content);
    }
    let fault = apply::BlobFault::Altered;
    Err(apply_problem(&apply::Error::Blob { path: entry.path.clone(), fault }, bundle.id()))
}

/// Waits for git; the inner error is what it reports.
fn finish(mut child: Child) -> Result<std::result::Result<Vec<u8>, String>> {
    let deadline = Instant::now() + GIT_TIMEOUT;
    let mut output = Vec::new();
    let mut message = Vec::new();
    let stderr = child.stderr.take();
    let reader = std::thread::spawn(move || {
        let mut message = Vec::new();
        if let Some(mut stderr) = stderr {
            // What cannot be read is not shown.
            let _ = stderr.by_ref().take(MAX_MESSAGE_BYTES).read_to_end(&mut message);
            let _ = std::io::copy(&mut stderr, &mut std::io::sink());
        }
        message
    });
    if let Some(mut stdout) = child.stdout.take() {
        stdout.read_to_end(&mut output).map_err(|error| caused(Code::Io, &error))?;
    }
    let status = loop {
        match child.try_wait().map_err(|error| caused(Code::Io, &error))? {
            Some(status) => break status,
            None if Instant::now() >= deadline => {
                // It may have ended by now.
                let _ = child.kill();
                let _ = child.wait();
                return Err(Problem::new(Code::TimedOut, "git did not end in time"));
            }
            None => std::thread::sleep(Duration::from_millis(2)),
        }
    };
    if let Ok(text) = reader.join() {
        message = text;
    }
    match status.success() {
        true => Ok(Ok(output)),
        false => Ok(Err(String::from_utf8_lossy(&message).trim().to_owned())),
    }
}

fn spawn_problem(error: &std::io::Error) -> Problem {
    Problem::new(Code::Io, "git could not be started").because(error.to_string())
}

fn write_problem(error: &std::io::Error) -> Problem {
    Problem::new(Code::Io, "git did not accept the changes").because(error.to_string())
}

fn git_problem(operation: &str, message: &str) -> Problem {
    Problem::new(Code::Io, format!("git could not {operation}")).because(message.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_name_of_a_commit_is_passed_to_git() {
        assert!(is_commit_name(&"a0".repeat(20)) && is_commit_name(&"F9".repeat(32)));
        let injected = format!("{}\nreset refs/heads/main", "a".repeat(40));
        for text in ["", "HEAD", "main", &injected, &"g".repeat(40), &"a".repeat(41)] {
            assert!(!is_commit_name(text), "{text}");
        }
    }
}
