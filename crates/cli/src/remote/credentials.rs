//! The API keys that `stockade login` has stored: a file in the user's configuration directory that only
//! the user can read. Keys are in no argument and in no message.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, fstat, openat, renameat, unlinkat};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use stockade_api::SecretValue;
use stockade_client::ServerUrl;
use stockade_core::network::secret::value::can_be_sent;
use stockade_core::{Code, Problem};

use super::chosen::{CLIENT_PREFIXES, ChosenServer, Source};
use crate::problem::caused;
use crate::profile;

/// The variable of the API key.
pub(crate) const KEY: &str = "STOCKADE_API_KEY";
/// The name of the file.
const NAME: &str = "credentials.json";
/// The largest file.
const MAX_BYTES: u64 = 1 << 20;
/// Who else may neither read nor write the file.
const OTHERS: u32 = 0o077;

/// The content of the file.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Document {
    servers: BTreeMap<String, Login>,
    /// The server of commands that name none.
    #[serde(skip_serializing_if = "Option::is_none")]
    default: Option<String>,
}

/// What is stored about one server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Login {
    pub(crate) key: SecretValue,
    /// The file with its authorities.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tls_ca: Option<PathBuf>,
}

/// The file with the keys.
#[derive(Debug)]
pub(crate) struct Credentials {
    path: PathBuf,
    document: Document,
}

impl Credentials {
    /// Reads the file of this user. Without one there are no keys.
    ///
    /// # Errors
    /// [`Code::InvalidInput`] for a file that others can read or have written.
    pub(crate) fn read() -> Result<Self, Problem> {
        let path = profile::user_path().map(|path| path.with_file_name(NAME));
        let path = path.ok_or_else(|| {
            Problem::new(Code::InvalidInput, "there is no directory for the API keys of servers")
                .because("neither XDG_CONFIG_HOME nor HOME is an absolute path")
        })?;
        let document = match content(&path)? {
            None => Document::default(),
            Some(text) => serde_json::from_str(text.0.as_str()).map_err(|error| {
                // The message of the parser may contain a part of a key.
                let place = format!("line {}, column {}", error.line(), error.column());
                refused(&path, format!("it is invalid at {place}"))
            })?,
        };
        Ok(Self { path, document })
    }

    /// Where the file is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// What is stored about a server.
    pub(crate) fn find(&self, url: &ServerUrl) -> Option<&Login> {
        self.document.servers.get(&url.to_string())
    }

    /// The URL of the server of commands that name none, as the file of this user has it.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub(crate) fn default_url() -> Result<Option<String>, Problem> {
        // The home may be another user's, as with `sudo`: then there is no login of this user.
        let path = profile::user_path().map(|path| path.with_file_name(NAME));
        let stat = path.and_then(|path| rustix::fs::lstat(path).ok());
        match stat.is_some_and(|stat| stat.st_uid == rustix::process::geteuid().as_raw()) {
            true => Ok(Self::read()?.document.default),
            false => Ok(None),
        }
    }

    /// Stores what belongs to a server, in place of what was there, and whether it is the server of
    /// commands that name none.
    ///
    /// # Errors
    /// [`Code::Io`] if the file cannot be written.
    pub(crate) fn store(
        &mut self,
        url: &ServerUrl,
        login: Login,
        is_default: bool,
    ) -> Result<(), Problem> {
        self.document.servers.insert(url.to_string(), login);
        if is_default {
            self.document.default = Some(url.to_string());
        }
        self.write()
    }

    /// Removes what is stored about a server, or about all. Returns the URLs.
    ///
    /// # Errors
    /// As [`Self::store`].
    pub(crate) fn remove(&mut self, url: Option<&ServerUrl>) -> Result<Vec<String>, Problem> {
        let all = std::mem::take(&mut self.document.servers);
        let is_removed = |name: &String| url.is_none_or(|url| *name == url.to_string());
        let (removed, left) = all.into_iter().partition(|(name, _)| is_removed(name));
        self.document.servers = left;
        let removed: BTreeMap<String, Login> = removed;
        if self.document.default.as_ref().is_some_and(|default| removed.contains_key(default)) {
            self.document.default = None;
        }
        if !removed.is_empty() {
            self.write()?;
        }
        Ok(removed.into_keys().collect())
    }

    /// Replaces the file: another process finds the old or the new one.
    fn write(&self) -> Result<(), Problem> {
        let failed = |error: std::io::Error| {
            let problem = caused(Code::Io, &error);
            Problem { message: format!("cannot write {}: {error}", self.path.display()), ..problem }
        };
        let directory = self.path.parent().unwrap_or_else(|| Path::new("/"));
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(failed)?;
        let text = serde_json::to_string_pretty(&self.document);
        let text = SecretValue::new(text.map_err(|error| failed(error.into()))?);
        let new = self.path.with_extension(format!("json.{}", std::process::id()));
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        // What a killed command of the same number has left.
        let _ = unlinkat(CWD, &new, AtFlags::empty());
        let file = openat(CWD, &new, flags, Mode::RUSR | Mode::WUSR);
        let mut file = File::from(file.map_err(|errno| failed(errno.into()))?);
        let written = file
            .write_all(text.0.as_bytes())
            .and_then(|()| file.write_all(b"\n"))
            .and_then(|()| file.sync_all())
            .and_then(|()| Ok(renameat(CWD, &new, CWD, &self.path)?));
        written.map_err(|error| {
            let _ = unlinkat(CWD, &new, AtFlags::empty());
            failed(error)
        })
    }
}

/// The text of the file, if there is one. Its owner and mode are checked on the descriptor from which it
/// is read.
fn content(path: &Path) -> Result<Option<SecretValue>, Problem> {
    let flags =
        OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::NOFOLLOW;
    let file: OwnedFd = match openat(CWD, path, flags, Mode::empty()) {
        Ok(file) => file,
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
        Err(Errno::LOOP) => return Err(refused(path, "it is a link".to_owned())),
        Err(errno) => return Err(refused(path, errno.to_string())),
    };
    let stat = fstat(&file).map_err(|errno| refused(path, errno.to_string()))?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(refused(path, "it is not a regular file".to_owned()));
    }
    if stat.st_uid != rustix::process::geteuid().as_raw() {
        return Err(refused(path, format!("it belongs to user {}, not to you", stat.st_uid)));
    }
    if stat.st_mode & OTHERS != 0 {
        let why = format!("other users can read or write it (mode {:o})", stat.st_mode & 0o7777);
        return Err(refused(path, why).remedied_by(format!("chmod 600 {}", path.display())));
    }
    let mut text = SecretValue::new(String::new());
    let read = File::from(file).take(MAX_BYTES).read_to_string(&mut text.0);
    read.map_err(|error| refused(path, error.to_string()))?;
    Ok(Some(text))
}

fn refused(path: &Path, why: String) -> Problem {
    Problem::new(Code::InvalidInput, format!("cannot use {}", path.display())).because(why)
}

/// The API key for a server, and the file with its authorities: of the environment, else as stored.
///
/// # Errors
/// [`Code::InvalidInput`] if the stored keys cannot be read, or a key cannot be one.
pub(crate) fn login_for(
    server: &ChosenServer,
    variable: impl Fn(&str) -> Option<OsString>,
) -> Result<Option<Login>, Problem> {
    let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
    let of_environment = |name: &str| {
        variable(name).map(|value| {
            // The system's error for a value that is not UTF-8 would contain that value.
            value.into_string().ok().and_then(|text| checked_key(&text)).ok_or_else(|| {
                let message = format!("the API key in {name} cannot be sent");
                Problem::new(Code::InvalidInput, message)
                    .because("a key is one line of visible ASCII characters")
            })
        })
    };
    if let Some(key) = of_environment(KEY) {
        // A problem of the file has no effect then.
        let stored = Credentials::read().ok();
        let stored = stored.as_ref().and_then(|stored| stored.find(&server.url));
        let tls_ca = stored.and_then(|login| login.tls_ca.clone());
        return Ok(Some(Login { key: key?, tls_ca }));
    }
    // These belong to the server that the variables beside them name.
    let is_theirs = server.source == Source::ClientVariable
        || !CLIENT_PREFIXES.iter().any(|prefix| variable(&format!("{prefix}DOMAIN")).is_some());
    let mut names = CLIENT_PREFIXES.iter().filter(|_| is_theirs);
    let mut theirs =
        || names.find_map(|prefix| of_environment(&format!("{prefix}API_KEY"))).transpose();
    let stored = Credentials::read()?.find(&server.url).cloned();
    Ok(match (server.source, stored) {
        (Source::ClientVariable, stored) => {
            let tls_ca = stored.as_ref().and_then(|login| login.tls_ca.clone());
            theirs()?.map(|key| Login { key, tls_ca }).or(stored)
        }
        (_, Some(stored)) => Some(stored),
        (_, None) => theirs()?.map(|key| Login { key, tls_ca: None }),
    })
}

/// A key without surrounding space, if it can be one.
pub(crate) fn checked_key(text: &str) -> Option<SecretValue> {
    let key = text.trim();
    can_be_sent(key).then(|| SecretValue::new(key))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    fn url(text: &str) -> ServerUrl {
        text.parse().unwrap()
    }

    fn login(key: &str) -> Login {
        Login { key: SecretValue::new(key), tls_ca: None }
    }

    #[test]
    fn keys_are_stored_for_one_server_each_and_for_this_user_only() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("new/credentials.json");
        let mut own = Credentials { path: path.clone(), document: Document::default() };
        let (one, two) = (url("https://a.example"), url("https://b.example"));
        own.store(&one, login("e2b_1"), true).unwrap();
        own.store(&two, login("e2b_2"), false).unwrap();
        own.store(&one, login("e2b_3"), false).unwrap();
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
        let text = content(&path).unwrap().unwrap();
        let document: Document = serde_json::from_str(text.0.as_str()).unwrap();
        let mut read = Credentials { path: path.clone(), document };
        assert_eq!(read.find(&one), Some(&login("e2b_3")));
        assert_eq!(read.find(&url("https://a.example:8443")), None);
        assert_eq!(read.document.default.as_deref(), Some("https://a.example"));
        assert_eq!(read.remove(Some(&one)).unwrap(), ["https://a.example"]);
        assert_eq!(read.remove(Some(&one)).unwrap(), [""; 0]);
        assert_eq!(read.document.default, None);
        assert_eq!(read.remove(None).unwrap(), ["https://b.example"]);
        assert!(!std::fs::read_to_string(&path).unwrap().contains("e2b_"));
        assert_eq!(path.parent().unwrap().read_dir().unwrap().count(), 1);
    }

    #[test]
    fn a_file_that_others_can_read_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("credentials.json");
        assert!(content(&path).unwrap().is_none());
        std::fs::write(&path, "{}").unwrap();
        for (mode, is_right) in [(0o600, true), (0o400, true), (0o640, false), (0o604, false)] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(content(&path).is_ok(), is_right, "{mode:o}");
        }
        let link = directory.path().join("link");
        symlink(&path, &link).unwrap();
        assert!(content(&link).is_err() && content(directory.path()).is_err());
    }

    #[test]
    fn keys_of_other_clients_go_to_their_server_only() {
        let server = |source| ChosenServer {
            url: url("https://nowhere.example"),
            authorities: None,
            source,
        };
        let key = |source, variables: &[(&str, &str)]| {
            let found = login_for(&server(source), |asked| {
                let found = variables.iter().find(|(name, _)| *name == asked);
                found.map(|(_, value)| OsString::from(value))
            });
            found.map(|login| login.map(|login| login.key.0.to_string())).map_err(|it| it.code)
        };
        let (flag, client) = (Source::Flag, Source::ClientVariable);
        let own = ("STOCKADE_API_KEY", "e2b_1\n");
        let theirs = ("OPEN_SANDBOX_API_KEY", "e2b_2");
        let domain = ("OPEN_SANDBOX_DOMAIN", "localhost:8080");
        let some = |key: &str| Ok(Some(key.to_owned()));
        assert_eq!(key(flag, &[]), Ok(None));
        assert_eq!(key(flag, &[own, theirs]), some("e2b_1"));
        assert_eq!(key(flag, &[theirs]), some("e2b_2"));
        assert_eq!(key(flag, &[theirs, domain]), Ok(None));
        assert_eq!(key(client, &[theirs, domain]), some("e2b_2"));
        assert_eq!(key(client, &[("OPENSANDBOX_API_KEY", "e2b_3"), domain]), some("e2b_3"));
        assert_eq!(key(flag, &[("STOCKADE_API_KEY", "two lines\nof it")]), Err(Code::InvalidInput));
    }
}
