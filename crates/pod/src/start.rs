//! The start of the sandbox of a pod: init, the keeper's takeover of it, and the environment of the image.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::Path;
use std::time::Duration;

use rustix::fs::FlockOperation;
use stockade_core::bytes::Bytes;
use stockade_core::sandbox::{Root, User};
use stockade_core::{Isolation, SandboxSpec};
use stockade_runtime::{Error, Result, Status};
use stockade_runtime_native::{Native, NewContainer};

use crate::first::{Ask, ask};
use crate::wire::sandbox;

/// How long another call may take to start it.
const LOCK: Duration = Duration::from_secs(30);
const LOCK_POLL: Duration = Duration::from_millis(20);
/// How long init may take to connect.
const INIT: Duration = Duration::from_secs(20);
/// Variables that a cluster or a container engine has set, and not the image.
const NOT_OF_THE_IMAGE: [&str; 4] = ["HOME", "HOSTNAME", "PWD", "SHLVL"];
const SERVICES: &str = "KUBERNETES_";

/// Starts the sandbox, or finds it.
pub(crate) async fn start(
    native: &Native,
    data: &Path,
    spec: SandboxSpec,
    isolation: Isolation,
) -> Result<Status> {
    let id = sandbox()?;
    let mut spec = with_image_environment(spec, std::env::vars_os());
    // An exec starts in the working directory of the image.
    if let (None, Ok(directory)) = (&spec.working_directory, std::env::current_dir()) {
        spec.working_directory = Some(directory);
    }
    let _lock = lock(data).await?;
    if let Some(found) = native.find(&id, &spec).await? {
        return Ok(found);
    }
    let user = User {
        user: rustix::process::geteuid().as_raw(),
        group: rustix::process::getegid().as_raw(),
    };
    let Root::Image(_) = &spec.root else {
        return Err(Error::Invalid("a pod starts from an image".to_owned()));
    };
    let staged = native.stage(&spec, user, spec.root.clone()).await?;
    let socket = staged.control().join(stockade_runtime_native::StagedContainer::socket());
    ask(data, Ask::Init(socket)).await?;
    let init = staged.accept(INIT).await?;
    native.take_over(&id, &spec, &staged, NewContainer { user, isolation, init }).await
}

/// The specification with the variables of the image, which those of the request replace.
fn with_image_environment(
    mut spec: SandboxSpec,
    variables: impl Iterator<Item = (OsString, OsString)>,
) -> SandboxSpec {
    for (name, value) in variables {
        let Ok(name) = name.into_string() else { continue };
        if NOT_OF_THE_IMAGE.contains(&name.as_str()) || name.starts_with(SERVICES) {
            continue;
        }
        spec.environment.entry(name).or_insert_with(|| Bytes(value.into_vec()));
    }
    spec
}

/// Waits until no other call starts the sandbox.
async fn lock(data: &Path) -> Result<std::fs::File> {
    let path = data.join("start");
    let failed = |source| Error::Host { path: path.display().to_string(), source };
    let file = std::fs::File::options().create(true).truncate(false).write(true).open(&path);
    let file = file.map_err(failed)?;
    let end = tokio::time::Instant::now() + LOCK;
    loop {
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(file),
            Err(rustix::io::Errno::WOULDBLOCK) if tokio::time::Instant::now() < end => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                return Err(Error::Deadline("wait for another start of the sandbox"));
            }
            Err(errno) => return Err(failed(errno.into())),
        }
        tokio::time::sleep(LOCK_POLL).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_of_the_image_are_used_and_those_of_the_cluster_are_not() {
        let mut spec = SandboxSpec::default();
        spec.environment.insert("LANG".to_owned(), Bytes(b"own".to_vec()));
        let variables = [
            ("PATH", "/bin"),
            ("LANG", "image"),
            ("HOME", "/root"),
            ("KUBERNETES_SERVICE_HOST", "10.0.0.1"),
        ];
        let variables = variables.map(|(name, value)| (name.into(), value.into()));
        let spec = with_image_environment(spec, variables.into_iter());
        let found: Vec<_> =
            spec.environment.iter().map(|(name, value)| (name.as_str(), &value.0[..])).collect();
        assert_eq!(found, [("LANG", &b"own"[..]), ("PATH", b"/bin")]);
    }
}
