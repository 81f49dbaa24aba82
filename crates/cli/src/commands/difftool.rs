//! `stockade diff --tool`: shows each changed file in a program of the user, as `git difftool` does. The
//! program gets two files of its own, which are read-only: nothing of the project and no name from a
//! sandbox reaches it, but the contents.

use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use stockade_bundle::patch::Content;
use stockade_bundle::{Entry, RelativePath};
use stockade_core::printable::visible;
use stockade_core::{Code, Problem};

use crate::problem::caused;
use crate::review::Review;

/// Variables that would lead git to another repository than none.
const GIT_VARIABLES: [&str; 4] = ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX"];

/// Shows the entries one after the other, in this program or, without a name, in the difftool of the
/// user's git.
pub(super) fn show(
    review: &Review,
    id: &str,
    entries: &[(Entry, bool)],
    tool: &OsStr,
) -> Result<u8, Problem> {
    let is_half = |path: &RelativePath| {
        entries.iter().any(|(entry, _)| entry.renamed_from.as_ref() == Some(path))
    };
    let shown: Vec<_> = entries
        .iter()
        .map(|(entry, _)| entry)
        .filter(|entry| entry.change.new_node().is_some() || !is_half(&entry.path))
        .collect();
    let place = Place::make()?;
    for (number, entry) in shown.iter().enumerate() {
        let sides = review.contents(id, &entry.path)?;
        if sides.old.is_none() && sides.new.is_none() {
            continue;
        }
        let name = plain_name(entry.path.file_name());
        let files = [("old", &sides.old), ("new", &sides.new)];
        let [old, new] = files.map(|(side, content)| place.write(side, &name, content.as_ref()));
        let (old, new) = (old?, new?);
        eprint_line!(
            "stockade: {} ({} of {})",
            visible(entry.path.as_bytes()),
            number + 1,
            shown.len()
        );
        run(tool, &place.0, &old, &new)?;
        for file in [old, new] {
            fs::remove_file(file).map_err(|error| caused(Code::Io, &error))?;
        }
    }
    Ok(0)
}

/// A name that no program takes for something else, with the ending that tells an editor the language.
fn plain_name(name: &[u8]) -> String {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"._-".contains(byte);
    let plain: String =
        name.iter().map(|byte| if is_plain(byte) { char::from(*byte) } else { '_' }).collect();
    let start = plain.len().saturating_sub(100);
    let end = plain.get(start..).unwrap_or_default();
    let mark = if end.starts_with(['-', '.']) || end.is_empty() { "_" } else { "" };
    format!("{mark}{end}")
}

fn run(tool: &OsStr, place: &Path, old: &Path, new: &Path) -> Result<(), Problem> {
    let mut command = if tool.is_empty() {
        let mut git = Command::new("git");
        git.args(["difftool", "--no-index", "--no-prompt", "--"]);
        git
    } else {
        Command::new(tool)
    };
    for variable in GIT_VARIABLES {
        command.env_remove(variable);
    }
    // No configuration of a repository around the directory has an effect.
    command.env("GIT_CEILING_DIRECTORIES", place.parent().unwrap_or(place));
    // Its exit code says whether the files differ.
    let ended = command.args([old, new]).current_dir(place).status();
    ended.map(drop).map_err(|error| {
        let name = if tool.is_empty() { OsString::from("git") } else { tool.to_owned() };
        let problem = caused(Code::InvalidInput, &error);
        let cause = problem.cause.clone().unwrap_or(problem.message);
        Problem::new(Code::InvalidInput, format!("cannot run {}", visible(name.as_encoded_bytes())))
            .because(cause)
            .remedied_by("stockade diff --tool=PROGRAM ID")
    })
}

/// A directory of the caller's own, which is removed with everything in it.
struct Place(PathBuf);

impl Place {
    fn make() -> Result<Self, Problem> {
        let name = format!("stockade-diff-{}", uuid::Uuid::now_v7().simple());
        let place = Self(std::env::temp_dir().join(name));
        let make = |path: &Path| DirBuilder::new().mode(0o700).create(path);
        make(&place.0)
            .and_then(|()| make(&place.0.join("old")))
            .and_then(|()| make(&place.0.join("new")))
            .map_err(|error| caused(Code::Io, &error))?;
        Ok(place)
    }

    /// Writes one side; a missing one is an empty file.
    fn write(&self, side: &str, name: &str, content: Option<&Content>) -> Result<PathBuf, Problem> {
        let path = self.0.join(side).join(name);
        let failed = |error: io::Error| caused(Code::Io, &error);
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o400)
            .open(&path)
            .map_err(failed)?;
        if let Some(content) = content
            && !content.write(&mut file).map_err(failed)?
        {
            let message = "a content is not stored, or too large to be shown";
            return Err(Problem::new(Code::Io, message));
        }
        Ok(path)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // A failure cannot be reported; only the caller can read what remains.
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_is_an_option_or_hides_anything() {
        for (name, plain) in [
            (&b"main.rs"[..], "main.rs"),
            (b"-rf", "_-rf"),
            (b".vimrc", "_.vimrc"),
            (b"a b;c\x1b.sh", "a_b_c_.sh"),
            (b"\xff\xfe.c", "__.c"),
        ] {
            assert_eq!(plain_name(name), plain);
        }
        assert!(plain_name(&[b'a'; 255]).len() <= 101);
    }

    #[test]
    fn the_files_are_the_callers_own_and_removed() {
        let place = Place::make().unwrap();
        let path = place.write("new", "a", Some(&Content::of(b"text".to_vec()))).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"text");
        assert_eq!(fs::read(place.write("old", "a", None).unwrap()).unwrap(), b"");
        let directory = place.0.clone();
        drop(place);
        assert!(!directory.exists());
    }
}
