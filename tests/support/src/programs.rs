//! Finds the programs that a test starts, which other packages build, and refuses one that is older
//! than its sources: cargo builds only the programs of the package whose tests it runs.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The environment variable that names a directory with the programs. They are used without a
/// check: `cargo xtask` sets this after it has built them, so that editing a source while the tests
/// run does not fail the remaining ones.
pub const DIRECTORY: &str = "STOCKADE_TEST_PROGRAMS";

/// The command that builds all programs that tests start.
const REMEDY: &str = "run `cargo xtask build`";

/// The path of a program of this workspace, a binary or an example, in the directory that
/// [`DIRECTORY`] names, otherwise in cargo's directory of the running test.
///
/// # Panics
///
/// When the program is missing, or older than one of its sources.
#[must_use]
#[track_caller]
pub fn program(name: &str) -> PathBuf {
    let found = match std::env::var_os(DIRECTORY) {
        Some(directory) => find(Path::new(&directory), name),
        None => built_beside_the_test(name),
    };
    found.unwrap_or_else(|problem| panic!("{problem}: {REMEDY}"))
}

/// The program in the directory of the profile: the running test is `PROFILE/deps/TEST-HASH`.
fn built_beside_the_test(name: &str) -> Result<PathBuf, String> {
    let test = std::env::current_exe().map_err(|error| format!("the running test: {error}"))?;
    let profile = test.ancestors().nth(2).unwrap_or(&test);
    let program = find(profile, name)?;
    check_is_current(&program)?;
    Ok(program)
}

/// The program in a directory of cargo, which has a subdirectory for examples.
fn find(directory: &Path, name: &str) -> Result<PathBuf, String> {
    let places = [directory.join(name), directory.join("examples").join(name)];
    let found = places.into_iter().find(|place| place.is_file());
    found.ok_or_else(|| format!("there is no `{name}` in {}", directory.display()))
}

/// Compares a program with its sources, which cargo lists in the file `PROGRAM.d` when it builds
/// the program itself.
fn check_is_current(program: &Path) -> Result<(), String> {
    let list = program.with_extension("d");
    let text = fs::read_to_string(&list).map_err(|error| format!("{}: {error}", list.display()))?;
    let built = modified(program).ok_or_else(|| format!("{} is gone", program.display()))?;
    for source in sources(&text) {
        let name = source.display();
        match modified(&source) {
            Some(changed) if changed <= built => {}
            Some(_) => return Err(format!("{} is older than {name}", program.display())),
            None => {
                return Err(format!("{} was built from {name}, which is gone", program.display()));
            }
        }
    }
    Ok(())
}

fn modified(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).and_then(|metadata| metadata.modified()).ok()
}

/// The files after the colon of `PROGRAM: FILE FILE…`, where `\ ` is a space in a name.
fn sources(list: &str) -> Vec<PathBuf> {
    let Some((_, files)) = list.split_once(": ") else { return Vec::new() };
    let mut sources = vec![String::new()];
    let mut characters = files.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '\\' if characters.next_if_eq(&' ').is_some() => add(&mut sources, ' '),
            ' ' | '\n' => sources.push(String::new()),
            other => add(&mut sources, other),
        }
    }
    sources.retain(|source| !source.is_empty());
    sources.iter().map(|source| PathBuf::from(OsStr::new(source))).collect()
}

fn add(sources: &mut [String], character: char) {
    if let Some(last) = sources.last_mut() {
        last.push(character);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// A cargo directory with one program and its source, removed when dropped.
    struct TestDir(PathBuf);

    impl TestDir {
        fn new(name: &str) -> Self {
            let path = format!("stockade-support-{name}-{}", std::process::id());
            let dir = Self(std::env::temp_dir().join(path));
            fs::create_dir_all(dir.0.join("examples")).unwrap();
            fs::write(dir.source(), "fn main() {}").unwrap();
            fs::write(dir.program(), "program").unwrap();
            let list = format!("{}: {}\n", dir.program().display(), dir.source().display());
            fs::write(dir.0.join("examples/probe.d"), list).unwrap();
            dir
        }

        fn program(&self) -> PathBuf {
            self.0.join("examples/probe")
        }

        fn source(&self) -> PathBuf {
            self.0.join("main.rs")
        }
    }

    impl Drop for TestDir {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).unwrap();
        }
    }

    #[test]
    fn an_example_is_found_in_its_directory() {
        let dir = TestDir::new("find");
        assert_eq!(find(&dir.0, "probe"), Ok(dir.program()));
        assert!(find(&dir.0, "other").unwrap_err().starts_with("there is no `other` in "));
    }

    #[test]
    fn a_program_that_is_older_than_a_source_is_refused() {
        let dir = TestDir::new("stale");
        assert_eq!(check_is_current(&dir.program()), Ok(()));
        let source = fs::File::options().write(true).open(dir.source()).unwrap();
        source.set_modified(SystemTime::now() + Duration::from_secs(5)).unwrap();
        assert!(check_is_current(&dir.program()).unwrap_err().contains(" is older than "));
        fs::remove_file(dir.source()).unwrap();
        assert!(check_is_current(&dir.program()).unwrap_err().ends_with(", which is gone"));
    }

    #[test]
    fn a_program_without_a_list_of_sources_is_refused() {
        let dir = TestDir::new("list");
        fs::remove_file(dir.0.join("examples/probe.d")).unwrap();
        assert!(check_is_current(&dir.program()).unwrap_err().contains("probe.d: "));
    }

    #[test]
    fn names_of_sources_may_hold_spaces() {
        assert_eq!(
            sources("/t/a: /s/one.rs /s/two\\ words.rs\n"),
            [PathBuf::from("/s/one.rs"), PathBuf::from("/s/two words.rs")]
        );
    }
}
