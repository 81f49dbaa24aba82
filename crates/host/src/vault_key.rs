//! Where the key of the vault comes from: a variable, the output of a command, or a file. The file is
//! in the user's configuration directory unless a variable names another one, is never in the data
//! directory, and is created for the first secret.

use std::ffi::OsString;
use std::fmt;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use async_trait::async_trait;
use rustix::fs::OFlags;
use rustix::rand::{GetRandomFlags, getrandom};
use stockade_api::Result;
use stockade_core::{Code, Problem};
use stockade_service::KeySource;
use stockade_vault::MasterKey;
use tokio::io::AsyncReadExt as _;
use tokio::process::Command;
use zeroize::Zeroizing;

/// The variable with the key itself.
const KEY: &str = "STOCKADE_VAULT_KEY";
/// The variable with the command that prints the key.
const COMMAND: &str = "STOCKADE_VAULT_KEY_COMMAND";
/// The variable with the path of the file.
const FILE: &str = "STOCKADE_VAULT_KEY_FILE";

/// The longest text of a key, in bytes.
const MAX_BYTES: u64 = 4096;
/// How long the command may take.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(8);

/// The configured source.
#[derive(Clone)]
pub(crate) enum Source {
    /// The key itself.
    Text(Zeroizing<String>),
    /// A line for the shell that prints it.
    Command(OsString),
    /// A file.
    File(PathBuf),
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(_) => f.write_str("Text"),
            Self::Command(_) => f.write_str("Command"),
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
        }
    }
}

/// The source that these variables name, else the file in the configuration directory; `None` without
/// such a directory.
pub(crate) fn from_environment(variable: impl Fn(&str) -> Option<OsString>) -> Option<Source> {
    if let Some(text) = variable(KEY) {
        // A text that is not UTF-8 is no key either.
        return Some(Source::Text(Zeroizing::new(text.into_string().unwrap_or_default())));
    }
    if let Some(line) = variable(COMMAND) {
        return Some(Source::Command(line));
    }
    if let Some(path) = variable(FILE) {
        return Some(Source::File(path.into()));
    }
    let named = |name: &str| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let base =
        named("XDG_CONFIG_HOME").or_else(|| named("HOME").map(|home| home.join(".config")))?;
    Some(Source::File(base.join("stockade/vault/key")))
}

#[async_trait]
impl KeySource for Source {
    async fn key(&self, create: bool) -> Result<MasterKey> {
        match self {
            Self::Text(text) => parse(text, &format!("the variable {KEY}")),
            Self::Command(line) => {
                let text = tokio::time::timeout(COMMAND_TIMEOUT, printed(line)).await;
                let text = text.unwrap_or_else(|_| Err("it did not end in time".to_owned()));
                let name = "the command for the key of the vault";
                parse(&text.map_err(|cause| unreadable(name).because(cause))?, name)
            }
            Self::File(path) => {
                let path = path.clone();
                let read = tokio::task::spawn_blocking(move || file(&path, create)).await;
                read.map_err(|error| unreadable("the key of the vault").because(error.to_string()))?
            }
        }
    }
}

fn parse(text: &str, place: &str) -> Result<MasterKey> {
    MasterKey::parse(text).map_err(|error| {
        Problem::new(Code::InvalidKey, format!("{place} has no valid key of a vault"))
            .because(error.to_string())
            .remedied_by("openssl rand -base64 32")
    })
}

fn unreadable(what: &str) -> Problem {
    Problem::new(Code::SecretBackendUnavailable, format!("{what} cannot be read"))
}

/// What a command prints. Its messages go where those of the server go.
async fn printed(line: &OsString) -> std::result::Result<Zeroizing<String>, String> {
    let mut command = Command::new("/bin/sh");
    command.arg("-c").arg(line).stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().map_err(|error| error.to_string())?;
    let mut text = Zeroizing::new(String::new());
    if let Some(output) = child.stdout.take() {
        // The text of the error could be the content.
        let read = output.take(MAX_BYTES).read_to_string(&mut text).await;
        read.map_err(|_| "its output is not UTF-8 text".to_owned())?;
    }
    match child.wait().await {
        Ok(status) if status.success() => Ok(text),
        Ok(status) => Err(format!("it ended with {status}")),
        Err(error) => Err(error.to_string()),
    }
}

/// How the file is opened: without following a link.
fn flags(more: OFlags) -> i32 {
    (OFlags::NOFOLLOW | OFlags::CLOEXEC | more).bits().cast_signed()
}

/// The key in a file of this user that no other user can read.
fn file(path: &Path, create: bool) -> Result<MasterKey> {
    let failed = |error: io::Error| {
        unreadable(&format!("the key of the vault, {},", path.display())).because(error.to_string())
    };
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(flags(OFlags::NONBLOCK));
    let file = match options.open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound && create => {
            return new_file(path).map_err(failed);
        }
        Err(error) => return Err(failed(error)),
    };
    let metadata = file.metadata().map_err(failed)?;
    let own = rustix::process::geteuid().as_raw();
    if !metadata.is_file() || metadata.uid() != own || metadata.mode() & 0o077 != 0 {
        return Err(unreadable("the key of the vault")
            .because(format!("{} is not a file that only user {own} can read", path.display()))
            .remedied_by(format!("chmod 600 {}", path.display())));
    }
    let mut text = Zeroizing::new(String::new());
    file.take(MAX_BYTES).read_to_string(&mut text).map_err(failed)?;
    parse(&text, &path.display().to_string())
}

/// Creates a file with a new key. Of two processes that do so, one wins.
fn new_file(path: &Path) -> io::Result<MasterKey> {
    let mut bytes = Zeroizing::new([0; 32]);
    let length = getrandom(bytes.as_mut_slice(), GetRandomFlags::empty())?;
    if length != bytes.len() {
        return Err(io::Error::other("the kernel gave too few random bytes"));
    }
    let key = MasterKey::new(bytes);
    let directory = path.parent().unwrap_or_else(|| Path::new("/"));
    DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600).custom_flags(flags(OFlags::empty()));
    // A complete file or none: it is written under another name first.
    let draft = path.with_extension(format!("{}.new", std::process::id()));
    let written = options.open(&draft).and_then(|mut file| {
        file.write_all(key.to_text().as_bytes())?;
        file.sync_all()
    });
    let linked = written.and_then(|()| std::fs::hard_link(&draft, path));
    let removed = std::fs::remove_file(&draft);
    linked.and(removed)?;
    File::open(directory)?.sync_all()?;
    Ok(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_key_comes_from_a_file_a_variable_or_a_command() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a/b/key");
        let source = Source::File(path.clone());
        assert_eq!(source.key(false).await.unwrap_err().code, Code::SecretBackendUnavailable);
        let made = source.key(true).await.unwrap();
        assert_eq!(source.key(true).await.unwrap().id(), made.id());
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);

        let text = std::fs::read_to_string(&path).unwrap();
        let named = |name: &'static str, value: OsString| {
            from_environment(move |asked| (asked == name).then(|| value.clone())).unwrap()
        };
        assert_eq!(named(KEY, text.clone().into()).key(false).await.unwrap().id(), made.id());
        let command = format!("cat {}", path.display());
        assert_eq!(named(COMMAND, command.into()).key(false).await.unwrap().id(), made.id());
        assert_eq!(named(FILE, path.clone().into()).key(false).await.unwrap().id(), made.id());

        let failing = named(COMMAND, "echo canary-7f3a >&1; exit 3".into()).key(false).await;
        let failing = failing.unwrap_err();
        assert_eq!(failing.code, Code::SecretBackendUnavailable);
        assert!(!format!("{failing:?}").contains("canary"), "{failing:?}");
        let bad = named(KEY, "canary-7f3a".into()).key(false).await.unwrap_err();
        assert_eq!(bad.code, Code::InvalidKey);
        assert!(!format!("{bad:?}").contains("canary"), "{bad:?}");
    }

    #[tokio::test]
    async fn a_file_that_others_can_read_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        let source = Source::File(path.clone());
        source.key(true).await.unwrap();
        let readable = std::os::unix::fs::PermissionsExt::from_mode(0o644);
        std::fs::set_permissions(&path, readable).unwrap();
        assert_eq!(source.key(true).await.unwrap_err().code, Code::SecretBackendUnavailable);
        let link = directory.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(Source::File(link).key(true).await.is_err());
    }
}
