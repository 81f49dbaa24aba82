//! The names of users and groups inside a sandbox, from its own `/etc/passwd` and `/etc/group`.

use stockade_api::{Caller, ReadFile, Sandboxes};
use stockade_core::SandboxId;
use tokio::io::AsyncReadExt as _;

use crate::failure::{Failure, invalid};

/// The most bytes of a file with names that are read.
const FILE_BYTES: u64 = 1 << 20;

/// The names of users and groups.
#[derive(Debug, Default)]
pub(super) struct Names {
    users: Vec<(String, u32)>,
    groups: Vec<(String, u32)>,
}

impl Names {
    /// Reads the names of a sandbox. A file that cannot be read has none.
    pub(super) async fn read(sandboxes: &dyn Sandboxes, caller: &Caller, id: &SandboxId) -> Self {
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
            parse(&String::from_utf8_lossy(&text))
        };
        Self { users: read("/etc/passwd").await, groups: read("/etc/group").await }
    }

    /// The name of a user; its number if it has none.
    pub(super) fn user(&self, uid: u32) -> String {
        name(&self.users, uid)
    }

    /// The name of a group; its number if it has none.
    pub(super) fn group(&self, gid: u32) -> String {
        name(&self.groups, gid)
    }

    /// The number of a user.
    pub(super) fn uid(&self, name: &str) -> Result<u32, Failure> {
        number(&self.users, name, "user")
    }

    /// The number of a group.
    pub(super) fn gid(&self, name: &str) -> Result<u32, Failure> {
        number(&self.groups, name, "group")
    }
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
