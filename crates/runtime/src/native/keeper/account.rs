//! Who commands are inside: names, homes and the environment that follows from them.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use stockade_core::sandbox::{User, Workspace};
use stockade_jail::Identity;
use stockade_jail::network;
use stockade_jail::system::Account;

use super::record::Environment;
use crate::capability::Capability;
use crate::native::wipe::wipe_all;
use crate::native::wire::Failure;

/// The name and the home of the ordinary user.
const NAME: &str = "user";
const HOME: &str = "/home/user";
/// The ordinary user's ids, where there is a choice.
const ORDINARY: User = User { user: 1000, group: 1000 };
/// How many inside ids commands may have, where there is a choice: all but init's.
const USERS: u32 = 65_535;
/// Where programs are, inside.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Who there is inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Users {
    /// The keeper's own user alone.
    Own(User),
    /// Every id below 65 535.
    Many,
}

impl Users {
    /// The users of the jails of this keeper.
    pub(super) fn of(identity: &Identity) -> Self {
        match identity {
            Identity::Own { user, group } => Self::Own(User { user: *user, group: *group }),
            Identity::Range(_) => Self::Many,
        }
    }

    /// Whom commands run as when nobody says.
    pub(super) const fn ordinary(self) -> User {
        match self {
            Self::Own(user) => user,
            Self::Many => ORDINARY,
        }
    }

    /// Whom commands run as when nobody says, where there is a workspace: whoever owns that, since
    /// nobody else might be able to change it.
    pub(super) fn of_workspace(self, workspace: Option<&Workspace>) -> User {
        let owner = workspace.and_then(|workspace| {
            let metadata = std::fs::metadata(&workspace.host).ok()?;
            self.check(User { user: metadata.uid(), group: metadata.gid() }).ok()
        });
        owner.unwrap_or_else(|| self.ordinary())
    }

    /// Refuses a user that there cannot be.
    pub(super) fn check(self, user: User) -> Result<User, Failure> {
        match self {
            Self::Own(own) if user != own => {
                let User { user, group } = own;
                Err(Failure::Unsupported {
                    capability: Capability::Users.as_str().to_owned(),
                    reason: format!(
                        "only root can give a sandbox several users; here there is {user}:{group}"
                    ),
                    remedy: Some("sudo".to_owned()),
                })
            }
            Self::Many if user.user >= USERS || user.group >= USERS => {
                let User { user, group } = user;
                Err(Failure::Invalid(format!("the ids {user}:{group} are not below {USERS}")))
            }
            _ => Ok(user),
        }
    }

    /// The account of the ordinary user.
    pub(super) fn account(self) -> Account {
        let User { user, group } = self.ordinary();
        Account { name: NAME.to_owned(), user, group, home: PathBuf::from(HOME) }
    }

    /// Where a user is at home.
    pub(super) fn home(self, user: User) -> &'static str {
        match user.user {
            id if id == self.ordinary().user => HOME,
            0 => "/root",
            _ => "/",
        }
    }

    /// The environment of a user's commands, as `NAME=value`: what every sandbox has, where there is
    /// a network the way to its proxy, then what this sandbox has, then what the command has; later
    /// ones win.
    pub(super) fn environment(
        self,
        user: User,
        has_network: bool,
        sandbox: Environment,
        command: Vec<Vec<u8>>,
    ) -> Vec<Vec<u8>> {
        let name = match user.user {
            id if id == self.ordinary().user => NAME.to_owned(),
            0 => "root".to_owned(),
            id => id.to_string(),
        };
        let own = [
            ("HOME", self.home(user)),
            ("LANG", "C.UTF-8"),
            ("LOGNAME", &name),
            ("PATH", PATH),
            ("SHELL", "/bin/sh"),
            ("STOCKADE", "1"),
            ("TMPDIR", "/tmp"),
            ("USER", &name),
        ];
        let mut variables: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
        let mut set = |line: Vec<u8>| {
            let name = line.split(|byte| *byte == b'=').next().unwrap_or_default().to_vec();
            wipe_all(variables.insert(name, line));
        };
        own.into_iter().for_each(|(name, value)| set(format!("{name}={value}").into_bytes()));
        let proxy = has_network.then(network::variables).into_iter().flatten();
        proxy.for_each(|(name, value)| set(format!("{name}={value}").into_bytes()));
        for (name, value) in sandbox {
            set([name.as_bytes(), b"=", value.as_bytes()].concat());
            wipe_all([value.into_bytes()]);
        }
        command.into_iter().for_each(set);
        variables.into_values().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ordinary_callers_sandbox_has_one_user() {
        let own = User { user: 4242, group: 42 };
        let users = Users::Own(own);
        assert_eq!((users.ordinary(), users.check(own)), (own, Ok(own)));
        let refused = users.check(User { user: 0, group: 0 }).unwrap_err();
        assert!(
            matches!(refused, Failure::Unsupported { capability, .. } if capability == "users")
        );
    }

    #[test]
    fn root_gives_all_but_inits() {
        let user = |user| User { user, group: 7 };
        assert_eq!(Users::Many.check(user(65_534)), Ok(user(65_534)));
        assert!(Users::Many.check(user(65_535)).is_err());
        assert_eq!(Users::Many.home(user(0)), "/root");
        assert_eq!(Users::Many.home(user(1000)), "/home/user");
    }

    #[test]
    fn later_variables_win() {
        let sandbox = [("A", "sandbox"), ("B", "sandbox"), ("HOME", "/x")];
        let sandbox = sandbox.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let command = vec![b"B=command".to_vec(), b"C=a=b".to_vec()];
        let environment = Users::Many.environment(ORDINARY, false, sandbox, command);
        let expected = [
            "A=sandbox",
            "B=command",
            "C=a=b",
            "HOME=/x",
            "LANG=C.UTF-8",
            "LOGNAME=user",
            &format!("PATH={PATH}"),
            "SHELL=/bin/sh",
            "STOCKADE=1",
            "TMPDIR=/tmp",
            "USER=user",
        ];
        assert_eq!(environment, expected.map(|line| line.as_bytes().to_vec()));

        let sandbox = [("HTTP_PROXY".to_owned(), "mine".to_owned())].into();
        let environment = Users::Many.environment(ORDINARY, true, sandbox, Vec::new());
        let proxies = environment.into_iter().map(|line| String::from_utf8(line).unwrap());
        let proxies: Vec<_> =
            proxies.filter(|line| line.to_lowercase().starts_with("http_proxy=")).collect();
        assert_eq!(proxies, ["HTTP_PROXY=mine", "http_proxy=http://127.0.0.1:1023"]);
    }
}
