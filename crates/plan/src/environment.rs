//! The environment of a command: the sandbox's own variables, then those of its network, then those
//! requested for the sandbox, then those for the command. Later ones win.

use std::collections::BTreeMap;

use stockade_core::sandbox::User;

use crate::account::{home, name};
use crate::wipe::wipe_all;

/// The search path for programs inside.
pub const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The variables that every command has.
pub const RESERVED: [&str; 8] =
    ["HOME", "LANG", "LOGNAME", "PATH", "SHELL", "STOCKADE", "TMPDIR", "USER"];

/// The user of a command.
#[derive(Debug, Clone, Copy)]
pub struct Account {
    /// The user of the command.
    pub user: User,
    /// The sandbox's own user.
    pub own: User,
}

/// The whole environment as `NAME=value`, sorted by name. Replaced values are erased from memory,
/// because they may contain secrets.
///
/// `layers` are lists of `NAME=value`, from the weakest to the strongest.
pub fn build<L, V>(account: Account, layers: L) -> Vec<Vec<u8>>
where
    L: IntoIterator<Item = V>,
    V: IntoIterator<Item = Vec<u8>>,
{
    let Account { user, own } = account;
    let name = name(user.user, own);
    let values = [home(user.user, own), "C.UTF-8", &name, PATH, "/bin/sh", "1", "/tmp", &name];
    let mut variables: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
    let mut set = |line: Vec<u8>| {
        let name = line.split(|byte| *byte == b'=').next().unwrap_or_default().to_vec();
        wipe_all(variables.insert(name, line));
    };
    RESERVED.iter().zip(values).for_each(|(name, value)| set(line(name, value)));
    layers.into_iter().flatten().for_each(&mut set);
    variables.into_values().collect()
}

/// `NAME=value`.
pub fn line(name: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Vec<u8> {
    [name.as_ref(), b"=", value.as_ref()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    const USER: User = User { user: 1000, group: 1000 };

    fn built(user: u32, layers: &[&[&str]]) -> Vec<String> {
        let account = Account { user: User { user, group: user }, own: USER };
        let bytes =
            |layer: &&[&str]| layer.iter().map(|line| line.as_bytes().to_vec()).collect::<Vec<_>>();
        let lines = build(account, layers.iter().map(bytes));
        lines.into_iter().map(|line| String::from_utf8(line).unwrap()).collect()
    }

    #[test]
    fn later_variables_win() {
        let layers: [&[&str]; 2] =
            [&["A=sandbox", "B=sandbox", "HOME=/x"], &["B=command", "C=a=b"]];
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
        assert_eq!(built(1000, &layers), expected);
    }

    #[test]
    fn each_user_has_a_name_and_a_home() {
        for (user, name, home) in
            [(1000, "user", "/home/user"), (0, "root", "/root"), (7, "7", "/")]
        {
            let lines = built(user, &[]);
            assert_eq!(lines.len(), RESERVED.len());
            assert!(lines.contains(&format!("USER={name}")), "{lines:?}");
            assert!(lines.contains(&format!("HOME={home}")), "{lines:?}");
        }
    }
}
