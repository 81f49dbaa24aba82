//! The programs of the user that may be providers: a file of the user lists them, with the environment
//! variables that they inherit and the owners whose runs may use them. A workflow only has their ids.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::engine::task_error::TaskError;

/// The longest file that is read.
const MAX_BYTES: u64 = 1 << 20;
/// The mode bits that must not be set on the file: write permission for other users.
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// A program that may be a provider.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in super::super) struct ProviderProgram {
    /// A module whose default export is a provider.
    #[serde(default)]
    pub(super) module: Option<PathBuf>,
    /// The program that runs the module: `node`, `bun`, or the path of one of them.
    #[serde(default = "node")]
    pub(super) program: String,
    /// A command that replaces a module. It gets the request in a file.
    #[serde(default)]
    pub(super) command: Vec<String>,
    /// The environment variables that it inherits in addition to `PATH`, `HOME` and the like.
    #[serde(default)]
    pub(super) environment: Vec<String>,
    /// The owners whose runs may use it; if absent, the user of this server.
    #[serde(default)]
    owners: Option<Vec<String>>,
}

fn node() -> String {
    "node".to_owned()
}

/// The program with this id, for a run of this owner.
///
/// # Errors
/// `INVALID_INPUT`, with a remedy, if the id is not registered and the file does not contain it, and
/// for a file that other users may write.
pub(in super::super) fn find_program(
    file: Option<&Path>,
    id: &str,
    owner: &str,
) -> Result<ProviderProgram, TaskError> {
    let unknown = |more: String| {
        let message = format!("Sandbox provider \"{id}\" is not registered.{more}");
        TaskError::new("INVALID_INPUT", message)
    };
    let Some(file) = file else { return Err(unknown(String::new())) };
    let path = file.display();
    let remedy = format!(
        " call registerSandboxProvider() in the workflow; or name a program of this machine in {path}, as {{\"{id}\": {{\"module\": \"/path/to/provider.mjs\"}}}}"
    );
    let wrong = |why: String| TaskError::new("INVALID_INPUT", format!("{path} {why}"));
    let Some(text) = read(file).map_err(wrong)? else { return Err(unknown(remedy)) };
    let all: BTreeMap<String, ProviderProgram> = serde_json::from_str(&text)
        .map_err(|error| wrong(format!("is not a valid list of providers: {error}")))?;
    let Some(found) = all.get(id).cloned() else { return Err(unknown(remedy)) };
    let here = format!("uid:{}", rustix::process::geteuid().as_raw());
    let is_granted = match &found.owners {
        Some(owners) => owners.iter().any(|granted| granted == owner),
        None => here == owner,
    };
    if !is_granted {
        let message = format!(
            "Sandbox provider \"{id}\" is not granted to {owner}: {path} can name it in `owners`"
        );
        return Err(TaskError::new("INVALID_INPUT", message));
    }
    let is_absolute = match (&found.module, found.command.first()) {
        (Some(module), None) => module.is_absolute(),
        (None, Some(program)) => Path::new(program).is_absolute(),
        _ => return Err(wrong(format!("must have either a `module` or a `command` for \"{id}\""))),
    };
    if !is_absolute {
        return Err(wrong(format!("must have an absolute path for \"{id}\"")));
    }
    Ok(found)
}

/// The content of the file, which only the user may write; `None` if it does not exist.
fn read(path: &Path) -> Result<Option<String>, String> {
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
    let flags = i32::try_from(flags.bits()).unwrap_or_default();
    let opened = std::fs::OpenOptions::new().read(true).custom_flags(flags).open(path);
    let file = match opened {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(format!("cannot be read: {error}")),
    };
    let stat = file.metadata().map_err(|error| format!("cannot be read: {error}"))?;
    let trusted_uids = [0, rustix::process::geteuid().as_raw()];
    let is_safe = stat.is_file()
        && trusted_uids.contains(&stat.uid())
        && stat.mode() & WRITABLE_BY_OTHERS == 0;
    if !is_safe {
        return Err("must be a file that only its user can write: chmod go-w".to_owned());
    }
    let mut text = String::new();
    let read = file.take(MAX_BYTES).read_to_string(&mut text);
    read.map(|_| Some(text)).map_err(|error| format!("cannot be read: {error}"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn only_what_the_user_says_is_granted() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("providers.json");
        let of = |owner: &str| find_program(Some(&file), "mine", owner);
        let here = format!("uid:{}", rustix::process::geteuid().as_raw());
        let message_of = |error: TaskError| {
            assert_eq!(error.code, "INVALID_INPUT");
            error.message
        };
        assert!(
            message_of(find_program(None, "mine", &here).unwrap_err())
                .contains("is not registered.")
        );
        assert!(message_of(of(&here).unwrap_err()).contains("name a program of this machine in"));
        let write = |text: &str, mode: u32| {
            std::fs::write(&file, text).unwrap();
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        write(r#"{"mine": {"module": "/m.mjs", "environment": ["KEY"]}}"#, 0o600);
        let found = of(&here).unwrap();
        assert_eq!((found.program.as_str(), found.environment.len()), ("node", 1));
        assert!(message_of(of("token:other").unwrap_err()).contains("not granted to token:other"));
        write(r#"{"mine": {"command": ["/bin/x"], "owners": ["token:other"]}}"#, 0o600);
        assert!(of("token:other").is_ok() && of(&here).is_err());
        for (text, mode, expected) in [
            (r#"{"mine": {"module": "/m.mjs"}}"#, 0o622, "only its user can write"),
            (r#"{"mine": {"module": "m.mjs"}}"#, 0o600, "absolute path"),
            (r#"{"mine": {}}"#, 0o600, "either a `module` or a `command`"),
            (r#"{"mine": {"module": "/m", "command": ["/x"]}}"#, 0o600, "either a `module`"),
            (r#"{"mine": {"modul": "/m"}}"#, 0o600, "is not a valid list of providers"),
            (r#"{"other": {"module": "/m"}}"#, 0o600, "is not registered."),
            ("[]", 0o600, "is not a valid list of providers"),
        ] {
            write(text, mode);
            let message = message_of(of(&here).unwrap_err());
            assert!(message.contains(expected), "{text}: {message}");
        }
    }
}
