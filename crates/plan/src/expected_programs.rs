//! Programs that clients expect of a machine and that the system directories of the host cannot give: `python` where there
//! is only `python3`, `sudo`, for no set-user-id bit works inside, and `adduser`, for root inside has no capability. They
//! are part of the lower layer of every sandbox with the host's own programs, in a directory of their own: the system
//! directories may be the host's.
//!
//! Commands find them where the sandbox was created with `sudo`, login shells always.

use std::path::{Path, PathBuf};

use crate::environment;

/// Where they are inside. Only root may change it.
pub(crate) const DIRECTORY: &str = "/opt/stockade/bin";
/// What login shells of every user read, after they have set `PATH`.
pub(crate) const PROFILE: (&str, &str) =
    ("/etc/profile.d/stockade.sh", include_str!("expected_programs/profile.sh"));

/// The program that `python` means where there is none of that name, and that runs the others.
const PYTHON3: &str = "/usr/bin/python3";
/// Where the host may have `python`.
const PYTHON: [&str; 2] = ["/usr/bin/python", "/usr/local/bin/python"];
const PYTHON_TEXT: &str = "#!/bin/sh\nexec python3 \"$@\"\n";
const SUDO_TEXT: &str = include_str!("expected_programs/sudo.py");
const ADD_USER_TEXT: &str = include_str!("expected_programs/adduser.py");
/// The programs of the host that add users. The first one does the work of both.
const USERADD: &str = "/usr/sbin/useradd";
const ADDUSER: &str = "/usr/sbin/adduser";

/// The programs for a host, by their paths inside.
pub(crate) fn files() -> Vec<(PathBuf, Vec<u8>)> {
    files_for(|path| Path::new(path).exists())
}

fn files_for(has: impl Fn(&str) -> bool) -> Vec<(PathBuf, Vec<u8>)> {
    let mut files = Vec::new();
    if !has(PYTHON3) {
        return files;
    }
    let mut add = |name: &str, text: &str| {
        files.push((Path::new(DIRECTORY).join(name), text.as_bytes().to_vec()));
    };
    add("sudo", SUDO_TEXT);
    if !PYTHON.iter().any(|path| has(path)) {
        add("python", PYTHON_TEXT);
    }
    if has(USERADD) {
        add("useradd", ADD_USER_TEXT);
        if has(ADDUSER) {
            add("adduser", ADD_USER_TEXT);
        }
    }
    files
}

/// `PATH` of commands that find them.
pub fn search_path() -> Vec<u8> {
    environment::line("PATH", format!("{DIRECTORY}:{}", environment::PATH))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(has: impl Fn(&str) -> bool) -> Vec<String> {
        let files = files_for(has).into_iter();
        files.map(|(path, _)| path.file_name().unwrap().to_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn only_what_the_host_lacks_or_has_in_vain_is_added() {
        assert_eq!(names(|_| true), ["sudo", "useradd", "adduser"]);
        assert_eq!(names(|path| path == PYTHON3), ["sudo", "python"]);
        assert_eq!(names(|path| path != PYTHON3), [""; 0]);
        assert_eq!(names(|path| path != ADDUSER), ["sudo", "useradd"]);
    }

    #[test]
    fn every_text_names_the_same_directory() {
        assert!(PROFILE.1.contains(&format!("PATH=\"{DIRECTORY}:$PATH\"")));
        assert!(ADD_USER_TEXT.contains(&format!("SUDO = \"{DIRECTORY}/sudo\"")));
        assert!(search_path().starts_with(format!("PATH={DIRECTORY}:/usr").as_bytes()));
    }
}
