//! The names of users and groups inside a sandbox, from its own `/etc/passwd` and `/etc/group`.

use stockade_api::{Caller, ReadFile, Sandboxes};
use stockade_core::SandboxId;
use tokio::io::AsyncReadExt as _;

use crate::failure::{Failure, invalid};

/// The most bytes of a file with names that are read.
const FILE_BYTES: u64 = 1 << 20;

/// The names of users and groups.
#[derive(Debug, Default)]
pub(crate) struct Names {
    users: Vec<(String, u32)>,
    groups: Vec<(String, u32)>,
    /// For each user its number, its group and its home.
    accounts: Vec<(String, u32, u32, String)>,
}

impl Names {
    /// Reads the names of a sandbox. A file that cannot be read has none.
    pub(crate) async fn read(sandboxes: &dyn Sandboxes, caller: &Caller, id: &SandboxId) -> Self {
        let read = async |path: &str| {
            let request = ReadFile {
                sandbox_id: id.clone(),
                path: path.as_bytes().to_vec().into(),
                offset: 0,
                length: Some(FILE_BYTES),
            };
            let mut text = Vec::new();
            if let Ok(mut content) = sandboxes.read_file(caller, request).await {
                let _ = content.0.read_to_end(&mut text).await;
            }
            String::from_utf8_lossy(&text).into_owned()
        };
        let users = read("/etc/passwd").await;
        let groups = parse(&read("/etc/group").await);
        Self { users: parse(&users), groups, accounts: accounts(&users) }
    }

    /// The number, the group and the home of a user.
    pub(crate) fn account(&self, name: &str) -> Option<(u32, u32, String)> {
        let found = self.accounts.iter().find(|(known, ..)| known == name)?;
        Some((found.1, found.2, found.3.clone()))
    }

    /// The same of the user with that number.
    pub(crate) fn account_of(&self, uid: u32) -> Option<(u32, u32, String)> {
        let found = self.accounts.iter().find(|(_, known, ..)| *known == uid)?;
        Some((found.1, found.2, found.3.clone()))
    }

    /// The name of a user; its number if it has none.
    pub(crate) fn user(&self, uid: u32) -> String {
        name(&self.users, uid)
    }

    /// The name of a group; its number if it has none.
    pub(crate) fn group(&self, gid: u32) -> String {
        name(&self.groups, gid)
    }

    /// The number of a user.
    pub(crate) fn uid(&self, name: &str) -> Result<u32, Failure> {
        number(&self.users, name, "user")
    }

    /// The number of a group.
    pub(crate) fn gid(&self, name: &str) -> Result<u32, Failure> {
        number(&self.groups, name, "group")
    }
}

/// Lines of the form `NAME:PASSWORD:NUMBER:GROUP:COMMENT:HOME…`.
fn accounts(text: &str) -> Vec<(String, u32, u32, String)> {
    let account = |line: &str| {
        let fields: Vec<_> = line.split(':').collect();
        let [name, _, uid, gid, _, home, ..] = fields.as_slice() else { return None };
        let home = if home.is_empty() { "/" } else { home };
        Some(((*name).to_owned(), uid.parse().ok()?, gid.parse().ok()?, home.to_owned()))
    };
    text.lines().filter_map(account).collect()
}

/// Lines of the form `NAME:PASSWORD:NUMBER…`.
fn parse(text: &str) -> Vec<(String, u32)> {
    let entry = |line: &str| {
        let mut fields = line.split(':');
        let (name, number) = (fields.next()?, fields.nth(1)?);
        Some((name.to_owned(), number.parse().ok()?))
    };
    text.lines().filter_map(entry).collect()
}

fn name(entries: &[(String, u32)], number: u32) -> String {
    let found = entries.iter().find(|(_, id)| *id == number).map(|(name, _)| name.clone());
    match found {
        Some(name) => name,
        None if number == 0 => "root".to_owned(),
        None => number.to_string(),
    }
}

fn number(entries: &[(String, u32)], name: &str, what: &str) -> Result<u32, Failure> {
    let found = entries.iter().find(|(known, _)| known == name).map(|(_, number)| *number);
    let number = match name {
        "root" => found.or(Some(0)),
        _ => found.or_else(|| name.parse().ok()),
    };
    number.ok_or_else(|| invalid(format!("the sandbox has no {what} {name:?}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_are_found_both_ways() {
        let users = parse("root:x:0:0:root:/root:/bin/sh\nme:x:1000:1000::/home/me:\nbad\n:x:y\n");
        assert_eq!(name(&users, 1000), "me");
        assert_eq!(name(&users, 7), "7");
        assert_eq!(name(&[], 0), "root");
        assert_eq!(number(&users, "me", "user").unwrap(), 1000);
        assert_eq!(number(&users, "12", "user").unwrap(), 12);
        assert!(number(&users, "you", "user").is_err());
    }
}
