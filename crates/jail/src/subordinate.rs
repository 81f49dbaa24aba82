//! A user namespace with the subordinate ids of an ordinary user: 65 536 ids, of which 0 is the user's own
//! outside. Either the caller enters it, and the jails that it makes then have the same ids; or the caller
//! stays outside, and gives the ids to a jail.
//!
//! Only the programs newuidmap and newgidmap, which are set-user-id, may map ids that are not the
//! caller's. They take them from `/etc/subuid` and `/etc/subgid` (`subuid(5)`).

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::sys;

/// How many ids the namespace has: 0, which is the caller, and as many as a usual range but one.
pub(crate) const COUNT: u32 = 65_536;
const USERS: &str = "/etc/subuid";
const GROUPS: &str = "/etc/subgid";
/// Where set-user-id programs are.
const DIRECTORIES: [&str; 4] = ["/usr/bin", "/bin", "/usr/local/bin", "/usr/sbin"];
/// Maps the ids when the caller is in its namespace, which it says by a line.
const SCRIPT: &str = "read -r _ && \"$1\" \"$3\" 0 \"$4\" 1 1 \"$5\" \"$8\" && \
                      \"$2\" \"$3\" 0 \"$6\" 1 1 \"$7\" \"$8\"";

/// Whether this process has entered such a namespace.
static IS_INSIDE: AtomicBool = AtomicBool::new(false);

pub(crate) fn is_inside() -> bool {
    IS_INSIDE.load(Ordering::Relaxed)
}

/// The subordinate ids of a user, and the programs that map them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subordinate {
    users: u32,
    groups: u32,
    programs: [PathBuf; 2],
}

/// Why there are no subordinate ids.
#[derive(Debug, thiserror::Error)]
pub enum Missing {
    /// The user has no range, or one that is too small.
    #[error("{file} gives the user {user} no range of 65536 ids")]
    Range {
        /// The file.
        file: &'static str,
        /// The name of the user, or the id.
        user: String,
    },
    /// A program is not installed.
    #[error("the program {0} is not installed")]
    Program(&'static str),
    /// The namespace cannot be made, or the ids cannot be mapped.
    #[error("the subordinate ids cannot be mapped: {0}")]
    Refused(String),
}

impl Missing {
    /// What the user can do about it.
    pub fn remedy(&self) -> Option<String> {
        match self {
            Self::Range { user, .. } => Some(format!(
                "sudo usermod --add-subuids 100000-165535 --add-subgids 100000-165535 {user}"
            )),
            Self::Program(_) => Some("sudo apt-get install uidmap".to_owned()),
            Self::Refused(_) => None,
        }
    }
}

impl Subordinate {
    /// Those of the caller.
    ///
    /// # Errors
    /// [`Missing::Range`] and [`Missing::Program`].
    pub fn find() -> Result<Self, Missing> {
        let uid = rustix::process::getuid().as_raw();
        let passwd = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
        let name = name_of(&passwd, uid);
        let range = |file: &'static str| {
            let text = std::fs::read_to_string(file).unwrap_or_default();
            let user = || name.clone().unwrap_or_else(|| uid.to_string());
            first_range(&text, name.as_deref(), uid)
                .ok_or_else(|| Missing::Range { file, user: user() })
        };
        let program = |name: &'static str| {
            let mut paths = DIRECTORIES.iter().map(|directory| Path::new(directory).join(name));
            paths.find(|path| path.is_file()).ok_or(Missing::Program(name))
        };
        let programs = [program("newuidmap")?, program("newgidmap")?];
        Ok(Self { users: range(USERS)?, groups: range(GROUPS)?, programs })
    }

    /// Gives the ids to a process that is in a user namespace of its own, and waits for them.
    ///
    /// # Errors
    /// What newuidmap or newgidmap said.
    pub(crate) fn map(&self, process: libc::pid_t) -> io::Result<()> {
        let own = [rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw()];
        let [users, groups] = &self.programs;
        for (program, own, first) in [(users, own[0], self.users), (groups, own[1], self.groups)] {
            let numbers = [0, own, 1, 1, first, COUNT - 1].map(|number| number.to_string());
            let ended = Command::new(program)
                .arg(process.to_string())
                .args(numbers)
                .env_clear()
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .output()?;
            if !ended.status.success() {
                let text = String::from_utf8_lossy(&ended.stderr).trim().replace('\n', "; ");
                return Err(io::Error::other(format!("{}: {text}", program.display())));
            }
        }
        Ok(())
    }

    /// Enters the namespace. The caller has a single thread.
    ///
    /// # Errors
    /// [`Missing::Refused`]; the caller must then end, as it may be in a namespace without ids.
    pub fn enter(&self) -> Result<(), Missing> {
        let refused = |what: &str, error: &dyn std::fmt::Display| {
            Missing::Refused(format!("{what}: {error}"))
        };
        sys::single_thread().map_err(|error| refused("one thread is needed", &error))?;
        let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
        let numbers = [std::process::id(), uid, self.users, gid, self.groups];
        let mut helper = Command::new("/bin/sh")
            .args(["-c", SCRIPT, "sh"])
            .args(&self.programs)
            .args(numbers.map(|number| number.to_string()))
            .arg((COUNT - 1).to_string())
            .env_clear()
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| refused("/bin/sh", &error))?;
        let entered = sys::enter_user_namespace();
        if let (Ok(()), Some(mut input)) = (&entered, helper.stdin.take()) {
            // If it has ended, it says why below.
            let _ = input.write_all(b"\n");
        }
        drop(helper.stdin.take());
        let ended = helper.wait_with_output();
        entered.map_err(|error| refused("make a user namespace", &error))?;
        let ended = ended.map_err(|error| refused("newuidmap", &error))?;
        if !ended.status.success() {
            let text = String::from_utf8_lossy(&ended.stderr).trim().replace('\n', "; ");
            return Err(refused("newuidmap and newgidmap", &text));
        }
        IS_INSIDE.store(true, Ordering::Relaxed);
        Ok(())
    }
}

/// The name of a user in a text of `passwd(5)`.
fn name_of(passwd: &str, uid: u32) -> Option<String> {
    passwd.lines().find_map(|line| {
        let fields: Vec<_> = line.split(':').collect();
        (fields.get(2)?.parse() == Ok(uid)).then(|| fields[0].to_owned())
    })
}

/// The first id of the first range that is large enough, in a text of `subuid(5)`.
fn first_range(text: &str, name: Option<&str>, uid: u32) -> Option<u32> {
    let uid = uid.to_string();
    text.lines().find_map(|line| {
        let (user, range) = line.trim().split_once(':')?;
        let (start, count) = range.split_once(':')?;
        let (start, count) = (start.parse::<u32>().ok()?, count.parse::<u32>().ok()?);
        let is_own = Some(user) == name || user == uid;
        (is_own && count >= COUNT - 1 && start > 0).then_some(start)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_found_by_name_and_by_id() {
        let text = "other:100000:65536\nme:1:5\nme:300000:65536\n1000:400000:65536\n";
        assert_eq!(first_range(text, Some("me"), 1000), Some(300_000));
        assert_eq!(first_range(text, None, 1000), Some(400_000));
        assert_eq!(first_range(text, Some("nobody"), 7), None);
        for bad in ["", "me", "me:1", "me:x:65536", "me:0:65536", "me:1:-1", "# me:1:65536"] {
            assert_eq!(first_range(bad, Some("me"), 1), None, "{bad}");
        }
        let passwd = "root:x:0:0:root:/root:/bin/sh\nme:x:1000:1000::/home/me:/bin/sh\nbad\n";
        assert_eq!(name_of(passwd, 1000).as_deref(), Some("me"));
        assert_eq!(name_of(passwd, 7), None);
    }

    #[test]
    fn what_is_missing_is_named_with_a_remedy() {
        let range = Missing::Range { file: USERS, user: "me".to_owned() };
        assert!(range.to_string().contains("/etc/subuid gives the user me"));
        assert!(range.remedy().is_some_and(|it| it.ends_with(" me")));
        assert!(Missing::Program("newuidmap").remedy().is_some_and(|it| it.contains("uidmap")));
    }
}
