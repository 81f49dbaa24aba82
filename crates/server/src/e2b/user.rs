//! The user inside a sandbox on whose behalf a request is executed, and paths as this user writes them.

use axum::http::{HeaderMap, header};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use stockade_api::{FileEntry, Problem, Sandboxes};
use stockade_core::Code;

use crate::inside::{Names, Target};

/// The ordinary user of a sandbox.
const ORDINARY: (&str, u32) = ("user", 1000);

/// A user inside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct User {
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) home: String,
    /// Whether it is the one that commands run as when a request names none.
    pub(super) is_default: bool,
    /// Its name, if it was added inside: neither the ordinary user nor root.
    pub(super) added: Option<String>,
}

impl User {
    /// The user with that name; the ordinary one without a name.
    pub(super) async fn find(
        sandboxes: &dyn Sandboxes,
        target: &Target,
        name: Option<&str>,
    ) -> Result<Self, Problem> {
        let default = target.sandbox.default_uid.unwrap_or(ORDINARY.1);
        let is_ordinary = default == ORDINARY.1;
        match name.filter(|name| !name.is_empty()) {
            None | Some("user") if is_ordinary => {
                let home = format!("/home/{}", ORDINARY.0);
                Ok(Self { uid: default, gid: default, home, is_default: true, added: None })
            }
            Some("root") => {
                let is_default = default == 0;
                Ok(Self { uid: 0, gid: 0, home: "/root".to_owned(), is_default, added: None })
            }
            name => {
                let names = Names::read(sandboxes, &target.caller, &target.sandbox.id).await;
                let found = match name {
                    Some(name) => names.account(name),
                    None => names.account_of(default),
                };
                let (uid, gid, home) = match (found, name) {
                    (Some(found), _) => found,
                    (None, None) => (default, default, "/".to_owned()),
                    (None, Some(name)) => return Err(unknown(name)),
                };
                let added = name.filter(|_| uid != 0 && uid != default).map(str::to_owned);
                Ok(Self { uid, gid, home, is_default: uid == default, added })
            }
        }
    }

    /// Whether the permissions of a file let the user write it.
    pub(super) const fn may_write(&self, entry: &FileEntry) -> bool {
        let bits = match entry.mode {
            mode if entry.uid == self.uid => mode >> 6,
            mode if entry.gid == self.gid => mode >> 3,
            mode => mode,
        };
        self.uid == 0 || bits & 2 != 0
    }

    /// The absolute path that a client means: relative ones begin in the home of the user.
    pub(super) fn path(&self, text: &str) -> String {
        let joined = match text.strip_prefix('~') {
            Some("") => self.home.clone(),
            Some(rest) if rest.starts_with('/') => format!("{}{rest}", self.home),
            _ if text.starts_with('/') => text.to_owned(),
            _ => format!("{}/{text}", self.home),
        };
        normalized(&joined)
    }
}

/// The path without `.`, `..` and empty parts, as the clients expect it in responses.
pub(super) fn normalized(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

/// The name of the user in the header `authorization`: clients send it as `NAME:` with an empty password.
pub(super) fn name_of(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    let Some(value) = headers.get(header::AUTHORIZATION) else { return Ok(None) };
    let invalid = || Problem::new(Code::Unauthenticated, "the user of the request cannot be read");
    let text = value.to_str().map_err(|_| invalid())?;
    let (scheme, encoded) = text.split_once(' ').ok_or_else(invalid)?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return Err(invalid());
    }
    let decoded = STANDARD.decode(encoded.trim()).map_err(|_| invalid())?;
    let decoded = String::from_utf8(decoded).map_err(|_| invalid())?;
    let (name, _) = decoded.split_once(':').ok_or_else(invalid)?;
    Ok(Some(name.to_owned()))
}

fn unknown(name: &str) -> Problem {
    Problem::new(Code::Unauthenticated, format!("invalid username: user: unknown user {name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_begin_in_the_home_of_the_user() {
        let user =
            User { uid: 7, gid: 7, home: "/home/me".to_owned(), is_default: false, added: None };
        for (text, path) in [
            ("a", "/home/me/a"),
            ("", "/home/me"),
            (".", "/home/me"),
            ("../b", "/home/b"),
            ("~", "/home/me"),
            ("~/a", "/home/me/a"),
            ("~a", "/home/me/~a"),
            ("/a//b/./c/../d/", "/a/b/d"),
            ("/../..", "/"),
        ] {
            assert_eq!(user.path(text), path, "{text}");
        }
    }

    #[test]
    fn the_name_comes_without_a_password() {
        let name = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert("authorization", value.parse().unwrap());
            name_of(&headers).map_err(|problem| problem.code)
        };
        assert_eq!(
            name(&format!("Basic {}", STANDARD.encode("root:"))),
            Ok(Some("root".to_owned()))
        );
        assert_eq!(name(&format!("basic {}", STANDARD.encode("a:b"))), Ok(Some("a".to_owned())));
        for wrong in ["Bearer x", "Basic", "Basic ?", "Basic cm9vdA=="] {
            assert_eq!(name(wrong), Err(Code::Unauthenticated), "{wrong}");
        }
        assert_eq!(name_of(&HeaderMap::new()), Ok(None));
    }
}
