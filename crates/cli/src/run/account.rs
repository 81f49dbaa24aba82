//! Who the command is inside: a name and a home for the user id that it has.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use stockade_jail::Identity;
use stockade_jail::system::Account;

/// Directories that a home can never be made in, as they are the host's own programs or files of
/// the kernel.
const NO_HOME: [&str; 8] = ["/bin", "/dev", "/etc", "/lib", "/proc", "/sbin", "/sys", "/usr"];

/// The account for a jail: as a user, the caller; as root, the owner of the project.
pub(super) fn choose(
    identity: &Identity,
    owner: (u32, u32),
    home: Option<OsString>,
    passwd: &str,
) -> Account {
    let (user, group, own_home) = match identity {
        Identity::Own { user, group } => (*user, *group, home),
        Identity::Range(range) => {
            let inside = |id: u32| if id < range.count { id } else { 0 };
            let home = if owner.0 == 0 { home } else { None };
            (inside(owner.0), inside(owner.1), home)
        }
    };
    let (name, listed_home) = match listed(passwd, user) {
        Some((name, home)) if !name.is_empty() => (name, Some(home)),
        _ => ("user".to_owned(), None),
    };
    let home = own_home
        .map(PathBuf::from)
        .into_iter()
        .chain(listed_home)
        .find(|home| is_possible_home(home))
        .unwrap_or_else(|| Path::new("/home").join(&name));
    Account { name, user, group, home }
}

/// The name and the home that `passwd(5)` lists for a user id.
pub(super) fn listed(passwd: &str, user: u32) -> Option<(String, PathBuf)> {
    passwd.lines().find_map(|line| {
        let fields: Vec<_> = line.split(':').collect();
        let matches = fields.get(2)?.parse() == Ok(user);
        matches.then(|| Some(((*fields.first()?).to_owned(), PathBuf::from(fields.get(5)?))))?
    })
}

fn is_possible_home(home: &Path) -> bool {
    use std::path::Component::{Normal, RootDir};
    home.is_absolute()
        && home != Path::new("/")
        && home.components().all(|c| matches!(c, RootDir | Normal(_)))
        && !NO_HOME.iter().any(|taken| home.starts_with(taken))
        && home != Path::new("/nonexistent")
        && !home.to_string_lossy().contains([':', '\n'])
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str = "root:x:0:0:root:/root:/bin/bash\nann:x:1000:1000:,,,:/home/ann:/bin/sh\nsvc:x:7:7::/usr/sbin:/x\n";

    fn own(user: u32, home: Option<&str>) -> Account {
        let identity = Identity::Own { user, group: user };
        choose(&identity, (0, 0), home.map(OsString::from), PASSWD)
    }

    #[test]
    fn a_user_is_who_it_is() {
        let account = own(1000, Some("/elsewhere/ann"));
        assert_eq!((account.name.as_str(), account.user), ("ann", 1000));
        assert_eq!(account.home, Path::new("/elsewhere/ann"));
        assert_eq!(own(1000, None).home, Path::new("/home/ann"));
    }

    #[test]
    fn a_home_that_cannot_be_is_replaced() {
        for home in ["", "/", "relative", "/a/../b", "/usr/x", "/proc/self", "/a:b"] {
            assert_eq!(own(1000, Some(home)).home, Path::new("/home/ann"), "{home}");
        }
        assert_eq!(own(7, None).home, Path::new("/home/svc"));
        let unlisted = own(4242, None);
        assert_eq!(
            (unlisted.name.as_str(), unlisted.home.as_path()),
            ("user", Path::new("/home/user"))
        );
    }
}
