//! A commit of synchronized files in the git repository of a directory: made by `git fast-import`
//! below a name of our own, and then moved to the branch if nobody else has changed it. No hook, no
//! filter and nothing of the files runs.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::plan::Action;
use super::tree::write_mode;
use crate::beneath::{Dir, Stat};
use crate::manifest::{ContentHash, Node};

/// How often a commit is made when the branch changes meanwhile.
const ATTEMPTS: u32 = 3;

/// What writes the standard input of a command.
type Input<'a> = &'a dyn Fn(&mut dyn Write) -> io::Result<()>;
/// The name of an object that does not exist.
const NONE: &str = "0000000000000000000000000000000000000000";

/// Who commits, where git knows nobody.
#[derive(Debug, Clone, Copy)]
pub struct Identity<'a> {
    /// The name.
    pub name: &'a str,
    /// The address.
    pub email: &'a str,
}

/// A commit to make.
#[expect(missing_debug_implementations, reason = "a function has none")]
pub struct Commit<'a> {
    /// The directory, which lies in the working tree of a repository.
    pub directory: &'a Path,
    /// Identifies the operation: the same one makes one commit.
    pub key: &'a str,
    /// The message.
    pub message: &'a str,
    /// The branch; the current one if absent.
    pub branch: Option<&'a str>,
    /// Seconds since 1970.
    pub time: i64,
    /// Who commits where git knows nobody.
    pub identity: Identity<'a>,
    /// What has changed.
    pub actions: &'a [Action],
    /// Opens a content.
    pub open: &'a dyn Fn(ContentHash) -> io::Result<File>,
}

/// Why no commit was made.
#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    /// The program is missing, or cannot be started.
    #[error("cannot start git")]
    Start(#[source] io::Error),
    /// The directory is in no repository with a working tree.
    #[error("{} is not in a git repository", .0.display())]
    NoRepository(PathBuf),
    /// The branch has no valid name, or HEAD names none.
    #[error("{0:?} is no branch")]
    NoBranch(String),
    /// Other processes change the branch all the time.
    #[error("the branch {0} is changed by another process")]
    Changed(String),
    /// Git failed.
    #[error("git {command}: {output}")]
    Git {
        /// The command.
        command: String,
        /// What it has written.
        output: String,
    },
    /// A content could not be read or written.
    #[error("cannot give git the content of a commit")]
    Content(#[source] io::Error),
}

/// Makes a commit. Returns its id; `None` if it would change nothing.
///
/// # Errors
/// [`CommitError`].
pub fn commit(commit: &Commit<'_>) -> Result<Option<String>, CommitError> {
    let git = Git::find(commit.directory)?;
    let own = format!("refs/stockade/sync/{}", commit.key);
    let (branch, is_current) = git.branch(commit.branch)?;
    // An earlier attempt may have moved the branch already.
    if let Some(made) = git.find_commit(&own)?
        && git.contains(&branch, &made)?
    {
        git.update_index(is_current, &made)?;
        git.run(&["update-ref", "-d", &own])?;
        return Ok(Some(made));
    }
    for _ in 0..ATTEMPTS {
        let parent = git.find_commit(&branch)?;
        git.run(&["update-ref", "-d", &own])?;
        git.import(commit, &own, parent.as_deref())?;
        let made = git.find_commit(&own)?.ok_or_else(|| CommitError::Git {
            command: "fast-import".to_owned(),
            output: "no commit was made".to_owned(),
        })?;
        let tree = |commit: &str| git.run(&["rev-parse", &format!("{commit}^{{tree}}")]);
        if let Some(parent) = &parent
            && tree(parent)? == tree(&made)?
        {
            git.run(&["update-ref", "-d", &own])?;
            return Ok(None);
        }
        let message = "commit: synchronized by stockade";
        let old = parent.as_deref().unwrap_or(NONE);
        if git.run(&["update-ref", "-m", message, &branch, &made, old]).is_ok() {
            git.update_index(is_current, &made)?;
            git.run(&["update-ref", "-d", &own])?;
            return Ok(Some(made));
        }
    }
    Err(CommitError::Changed(branch))
}

/// Refuses a directory that is in no repository, and what is no branch.
///
/// # Errors
/// [`CommitError`].
pub fn check_repository(directory: &Path, branch: Option<&str>) -> Result<(), CommitError> {
    Git::find(directory)?.branch(branch).map(drop)
}

/// Git in one repository.
struct Git {
    top: PathBuf,
    /// The path of the directory below the top.
    prefix: Vec<u8>,
    /// The user as whom root runs it: the owner of the directory.
    user: Option<(u32, u32)>,
}

impl Git {
    fn find(directory: &Path) -> Result<Self, CommitError> {
        let stat = Dir::open(directory).and_then(|dir| dir.stat_self()).ok();
        let is_root = rustix::process::geteuid().is_root();
        let user = stat.filter(|stat: &Stat| is_root && stat.uid != 0);
        let user = user.map(|stat| (stat.uid, stat.gid));
        let mut git = Self { top: directory.to_owned(), prefix: Vec::new(), user };
        let none = |_| CommitError::NoRepository(directory.to_owned());
        let top = git.output(&["rev-parse", "--show-toplevel"], None).map_err(none)?;
        git.prefix = git.output(&["rev-parse", "--show-prefix"], None).map_err(none)?;
        git.top = PathBuf::from(std::ffi::OsString::from_vec(top));
        Ok(git)
    }

    /// The full name of a branch, and whether it is the current one.
    fn branch(&self, name: Option<&str>) -> Result<(String, bool), CommitError> {
        let current = self.run(&["symbolic-ref", "-q", "HEAD"]).ok();
        let branch = match (name, &current) {
            (None, Some(current)) => current.clone(),
            (None, None) => return Err(CommitError::NoBranch("HEAD".to_owned())),
            (Some(name), _) => {
                let full = format!("refs/heads/{name}");
                self.run(&["check-ref-format", &full])
                    .map_err(|_| CommitError::NoBranch(name.to_owned()))?;
                full
            }
        };
        let is_current = current.as_ref() == Some(&branch);
        Ok((branch, is_current))
    }

    fn find_commit(&self, name: &str) -> Result<Option<String>, CommitError> {
        match self.run(&["rev-parse", "-q", "--verify", &format!("{name}^{{commit}}")]) {
            Ok(id) => Ok(Some(id)),
            Err(CommitError::Git { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn contains(&self, branch: &str, commit: &str) -> Result<bool, CommitError> {
        match self.run(&["merge-base", "--is-ancestor", commit, branch]) {
            Ok(_) => Ok(true),
            Err(CommitError::Git { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn import(
        &self,
        commit: &Commit<'_>,
        name: &str,
        parent: Option<&str>,
    ) -> Result<(), CommitError> {
        let person = self.person(commit.identity, commit.time);
        let write = |to: &mut dyn Write| -> io::Result<()> {
            writeln!(to, "feature done\ncommit {name}\nauthor {person}\ncommitter {person}")?;
            writeln!(to, "data {}\n{}", commit.message.len(), commit.message)?;
            if let Some(parent) = parent {
                writeln!(to, "from {parent}")?;
            }
            for action in commit.actions {
                let path = [&self.prefix[..], action.path.as_bytes()].concat();
                let path = quoted(&path);
                match action.new.as_ref().map(|new| &new.node) {
                    None => {
                        let is_file = |node: &Node| !matches!(node, Node::Directory { .. });
                        if action.old.as_ref().is_some_and(|old| is_file(&old.node)) {
                            writeln!(to, "D {path}")?;
                        }
                    }
                    Some(Node::Directory { .. }) => {}
                    Some(Node::Symlink { target }) => {
                        writeln!(to, "M 120000 inline {path}\ndata {}", target.len())?;
                        to.write_all(target)?;
                        writeln!(to)?;
                    }
                    Some(Node::File { hash, size, mode }) => {
                        let executable = write_mode(*mode) & 0o100 != 0;
                        let mode = if executable { "100755" } else { "100644" };
                        writeln!(to, "M {mode} inline {path}\ndata {size}")?;
                        io::copy(&mut (commit.open)(*hash)?, to)?;
                        writeln!(to)?;
                    }
                }
            }
            writeln!(to, "done")
        };
        self.output(&["fast-import", "--quiet", "--date-format=raw"], Some(&write)).map(drop)
    }

    fn person(&self, fallback: Identity<'_>, time: i64) -> String {
        let setting = |name: &str, fallback: &str| {
            let found = self.run(&["config", "--get", name]).ok();
            let found = found.filter(|found| !found.is_empty());
            let found = found.unwrap_or_else(|| fallback.to_owned());
            found.replace(['<', '>', '\n'], "")
        };
        let (name, email) =
            (setting("user.name", fallback.name), setting("user.email", fallback.email));
        format!("{name} <{email}> {time} +0000")
    }

    /// Records the committed files in the index, if it belongs to the branch.
    fn update_index(&self, is_current: bool, commit: &str) -> Result<(), CommitError> {
        if !is_current {
            return Ok(());
        }
        let changed = self.output(
            &["diff-tree", "-r", "-z", "--root", "--no-commit-id", "--no-renames", commit],
            None,
        )?;
        let mut fields = changed.split(|byte| *byte == 0).filter(|field| !field.is_empty());
        let mut lines = Vec::new();
        while let Some(field) = fields.next() {
            // The id of the commit comes first.
            let Some(described) = field.strip_prefix(b":") else { continue };
            let words: Vec<_> = described.split(|byte| *byte == b' ').collect();
            let (Some(mode), Some(id), Some(path)) = (words.get(1), words.get(3), fields.next())
            else {
                break;
            };
            let mode = if *mode == b"000000" { b"0" } else { *mode };
            lines.extend([mode, b" ", id, b"\t", path, b"\0"].concat());
        }
        let write = |to: &mut dyn Write| to.write_all(&lines);
        // A user's command may hold the index; the commit is made nevertheless.
        let _ = self.output(&["update-index", "-z", "--index-info"], Some(&write));
        Ok(())
    }

    fn run(&self, words: &[&str]) -> Result<String, CommitError> {
        let output = self.output(words, None)?;
        Ok(String::from_utf8_lossy(&output).into_owned())
    }

    /// The output of a command, without the newline at its end.
    fn output(&self, words: &[&str], input: Option<Input<'_>>) -> Result<Vec<u8>, CommitError> {
        let mut command = Command::new("git");
        for (name, _) in std::env::vars_os() {
            if name.as_encoded_bytes().starts_with(b"GIT_") {
                command.env_remove(name);
            }
        }
        command.args(["-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false"]);
        // Files that came from a sandbox are never taken for a repository.
        command.args(["-c", "safe.bareRepository=explicit", "-c", "gc.auto=0"]);
        command.args(["-c", "core.quotePath=false"]).args(words);
        command.env("LC_ALL", "C").env("GIT_TERMINAL_PROMPT", "0").current_dir(&self.top);
        if let Some((uid, gid)) = self.user {
            command.uid(uid).gid(gid).env_remove("HOME").env_remove("XDG_CONFIG_HOME");
        }
        let stdin = if input.is_some() { Stdio::piped() } else { Stdio::null() };
        command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(CommitError::Start)?;
        let mut written = Ok(());
        if let (Some(input), Some(stdin)) = (input, child.stdin.take()) {
            let mut stdin = io::BufWriter::new(stdin);
            written = input(&mut stdin).and_then(|()| stdin.flush());
        }
        let output = child.wait_with_output().map_err(CommitError::Start)?;
        if !output.status.success() {
            let text = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            let command = words.first().copied().unwrap_or_default().to_owned();
            return Err(CommitError::Git { command, output: text });
        }
        written.map_err(CommitError::Content)?;
        let mut text = output.stdout;
        if text.last() == Some(&b'\n') {
            text.pop();
        }
        Ok(text)
    }
}

/// A path as `git fast-import` reads it.
fn quoted(path: &[u8]) -> String {
    let mut text = String::from("\"");
    for byte in path {
        match byte {
            b'"' => text.push_str("\\\""),
            b'\\' => text.push_str("\\\\"),
            b' '..=b'~' => text.push(char::from(*byte)),
            other => text.push_str(&format!("\\{other:03o}")),
        }
    }
    text.push('"');
    text
}
