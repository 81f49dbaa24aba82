//! The users, names and homes of commands inside.

use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use stockade_core::sandbox::{User, Workspace};
use stockade_jail::Identity;
use stockade_jail::system::Account;

use crate::error::Error;

/// The home directory of the sandbox's own user, in every sandbox.
pub const HOME: &str = "/home/user";
/// The name of that user, unless it is root.
const NAME: &str = "user";
/// The ids of that user, where there is a choice and neither a request nor a workspace determines
/// them.
const ORDINARY: User = User { user: 1000, group: 1000 };
/// How many ids commands may have, where there is a choice: all but init's.
const USERS: u32 = 65_535;
/// The owner inside of files whose owner has no id there (`overflowuid` in `proc(5)`).
const NO_OWNER: u32 = 65_534;

/// Which users are possible inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Users {
    /// The caller's own user alone.
    Own(User),
    /// Every id below 65 535.
    Range,
    /// The same as subordinate ids, which the caller does not have itself: 0 inside is this user of the host.
    Subordinate(User),
}

impl Users {
    /// The users of jails with this identity.
    pub fn for_identity(identity: &Identity) -> Self {
        match identity {
            Identity::Own { user, group } => Self::Own(User { user: *user, group: *group }),
            Identity::Range(range) if range.subordinate().is_some() => {
                let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
                Self::Subordinate(User { user: user.as_raw(), group: group.as_raw() })
            }
            Identity::Range(_) => Self::Range,
        }
    }

    /// The user of a sandbox without a workspace, for which nothing was requested.
    pub const fn ordinary(self) -> User {
        match self {
            Self::Own(user) => user,
            Self::Range | Self::Subordinate(_) => ORDINARY,
        }
    }

    /// The sandbox's own user: the requested one, else the owner of the workspace, because another
    /// user might not be able to change that, else the ordinary one.
    ///
    /// # Errors
    /// As [`Users::check`].
    pub fn choose(
        self,
        requested: Option<User>,
        workspace: Option<&Workspace>,
    ) -> Result<User, Error> {
        match (requested, workspace) {
            (Some(user), _) => self.check(user),
            (None, Some(workspace)) => Ok(self.owner_of(workspace)),
            (None, None) => Ok(self.ordinary()),
        }
    }

    /// The owner of a workspace. Ids that have no counterpart inside become root there.
    fn owner_of(self, workspace: &Workspace) -> User {
        let inside = |id: u32| if id < USERS { id } else { 0 };
        match (self, std::fs::metadata(&workspace.host)) {
            (Self::Range, Ok(metadata)) => {
                User { user: inside(metadata.uid()), group: inside(metadata.gid()) }
            }
            (Self::Subordinate(own), Ok(metadata)) => {
                let inside = |id: u32, own: u32| if id == own { 0 } else { NO_OWNER };
                let user = inside(metadata.uid(), own.user);
                User { user, group: inside(metadata.gid(), own.group) }
            }
            _ => self.ordinary(),
        }
    }

    /// Whether a jail has a range of ids.
    pub(crate) const fn has_range(self) -> bool {
        matches!(self, Self::Range | Self::Subordinate(_))
    }

    /// Refuses supplementary groups that are not possible: a jail with one id has none.
    ///
    /// # Errors
    /// [`Error::OneUser`] and [`Error::UserTooLarge`].
    pub fn check_groups(self, groups: &[u32]) -> Result<Vec<u32>, Error> {
        match self {
            Self::Own(own) if !groups.is_empty() => Err(Error::OneUser(own)),
            Self::Own(_) => Ok(Vec::new()),
            Self::Range | Self::Subordinate(_) => {
                groups
                    .iter()
                    .try_for_each(|group| self.check(User { user: 0, group: *group }).map(drop))?;
                Ok(groups.to_vec())
            }
        }
    }

    /// Refuses a user that is not possible.
    ///
    /// # Errors
    /// [`Error::OneUser`] and [`Error::UserTooLarge`].
    pub const fn check(self, user: User) -> Result<User, Error> {
        match self {
            // If only a user is named, the group has the same number.
            Self::Own(own)
                if user.user == own.user
                    && (user.group == own.group || user.group == user.user) =>
            {
                Ok(own)
            }
            Self::Own(own) => Err(Error::OneUser(own)),
            Self::Range | Self::Subordinate(_) if user.user >= USERS || user.group >= USERS => {
                Err(Error::UserTooLarge { user, limit: USERS })
            }
            _ => Ok(user),
        }
    }
}

/// The account of a sandbox's own user.
pub fn account(own: User) -> Account {
    let User { user, group } = own;
    Account { name: name(user, own), user, group, home: PathBuf::from(HOME) }
}

/// The name of a user, where `own` is the sandbox's own.
pub(crate) fn name(user: u32, own: User) -> String {
    match user {
        0 => "root".to_owned(),
        id if id == own.user => NAME.to_owned(),
        id => id.to_string(),
    }
}

/// The home directory of a user, where `own` is the sandbox's own.
pub const fn home(user: u32, own: User) -> &'static str {
    match user {
        id if id == own.user => HOME,
        0 => "/root",
        _ => "/",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn user(user: u32, group: u32) -> User {
        User { user, group }
    }

    #[test]
    fn an_ordinary_callers_sandbox_has_one_user() {
        let own = user(4242, 42);
        let users = Users::Own(own);
        assert_eq!((users.ordinary(), users.check(own).unwrap()), (own, own));
        for other in [user(0, 0), user(4242, 7), user(7, 42)] {
            assert!(matches!(users.check(other), Err(Error::OneUser(only)) if only == own));
        }
        assert_eq!(users.check(user(4242, 4242)).unwrap(), own);
        let workspace = Workspace { host: "/".into(), inside: "/".into() };
        assert_eq!(users.choose(None, Some(&workspace)).unwrap(), own);
    }

    #[test]
    fn root_gives_all_but_inits() {
        assert_eq!(Users::Range.check(user(65_534, 7)).unwrap(), user(65_534, 7));
        assert!(Users::Range.check(user(65_535, 7)).is_err());
        assert!(Users::Range.check(user(7, 65_535)).is_err());
        assert_eq!(Users::Range.check_groups(&[4, 27]).unwrap(), [4, 27]);
        assert!(Users::Range.check_groups(&[65_535]).is_err());
        assert!(Users::Own(user(7, 7)).check_groups(&[7]).is_err());
        assert!(Users::Own(user(7, 7)).check_groups(&[]).unwrap().is_empty());
    }

    #[test]
    fn a_request_beats_a_workspace_which_beats_the_ordinary_user() {
        let workspace = Workspace { host: "/".into(), inside: "/".into() };
        assert_eq!(Users::Range.choose(None, None).unwrap(), ORDINARY);
        assert_eq!(Users::Range.choose(None, Some(&workspace)).unwrap(), user(0, 0));
        assert_eq!(Users::Range.choose(Some(user(7, 8)), Some(&workspace)).unwrap(), user(7, 8));
    }

    #[test]
    fn the_sandboxes_own_user_is_at_home_in_one_place_whoever_it_is() {
        for own in [0, 1000, 4242] {
            assert_eq!(home(own, user(own, own)), HOME);
        }
        assert_eq!((home(0, ORDINARY), home(7, ORDINARY)), ("/root", "/"));
        let names = [0, 1000, 7].map(|id| name(id, ORDINARY));
        assert_eq!(names, ["root", "user", "7"]);
    }
}
