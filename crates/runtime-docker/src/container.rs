//! The life of one container in the engine: created, started, and removed with what belongs to it.

use std::time::Duration;

use bollard::models::ContainerCreateBody;
use bollard::query_parameters::{
    CreateContainerOptions, DownloadFromContainerOptions, InspectContainerOptions,
    RemoveContainerOptions, StartContainerOptions,
};
use futures_util::TryStreamExt as _;
use stockade_core::sandbox::LimitChange;
use stockade_jail::container::WaitingInit;
use stockade_runtime::{Error, Result};
use stockade_runtime_native::StagedContainer;

use crate::engine::{DEADLINE, Engine, Failure, is_full_disk};
use crate::request;

/// How long the engine may take to start a container, and its init to connect.
const START: Duration = Duration::from_secs(60);
/// How often a container that does not connect is looked at.
const POLL: Duration = Duration::from_millis(200);
/// How long a container may take to disappear.
const REMOVAL: Duration = Duration::from_secs(30);
/// The longest file of an image that is read.
const FILE_BYTES: usize = 1 << 20;

/// Creates a container. Warnings of the engine are refusals: what was requested would not be in
/// force.
pub(crate) async fn create(engine: &Engine, name: &str, body: ContainerCreateBody) -> Result<()> {
    let options = CreateContainerOptions { name: Some(name.to_owned()), platform: String::new() };
    let created = engine.request(|client| client.create_container(Some(options), body)).await;
    let created = created.map_err(not_created)?;
    match created.warnings.into_iter().find(|warning| warning.contains("discarded")) {
        None => Ok(()),
        Some(warning) => Err(Error::Wall {
            wall: "cgroup".to_owned(),
            reason: format!("the Docker engine reports: {}", warning.trim()),
        }),
    }
}

/// Starts a container, and waits until its init has connected.
pub(crate) async fn start(
    engine: &Engine,
    name: &str,
    staged: &StagedContainer,
) -> Result<WaitingInit> {
    let options = None::<StartContainerOptions>;
    let started = engine.request(|client| client.start_container(name, options)).await;
    started.map_err(not_started)?;
    let end = tokio::time::Instant::now() + START;
    loop {
        match staged.accept(POLL).await {
            Err(Error::Deadline(_)) if tokio::time::Instant::now() < end => {}
            accepted => break accepted,
        }
        if process(engine, name).await?.is_none() {
            // Unless it has connected just before its end.
            break staged.accept(POLL).await.map_err(|_| {
                let reason = "its init ended before it connected".to_owned();
                Error::Wall { wall: "pid".to_owned(), reason }
            });
        }
    }
}

fn not_created(failure: Failure) -> Error {
    match failure {
        // A full disk is no fault of the request.
        Failure::Refused(reason) if !is_full_disk(&reason) => {
            Error::Invalid(format!("the Docker engine refuses the container: {}", reason.trim()))
        }
        failure => failure.into_error("create the container"),
    }
}

fn not_started(failure: Failure) -> Error {
    match failure {
        Failure::Refused(reason) | Failure::Conflict(reason) | Failure::NotFound(reason)
            if !is_full_disk(&reason) =>
        {
            let reason = format!("the Docker engine cannot start it: {}", reason.trim());
            Error::Wall { wall: "root".to_owned(), reason }
        }
        failure => failure.into_error("start the container"),
    }
}

/// Changes the limits of a container, all or none.
pub(crate) async fn change_limits(engine: &Engine, name: &str, change: &LimitChange) -> Result<()> {
    let changed = engine.request(|client| client.update_container(name, request::update(change)));
    changed.await.map_err(|failure| match (failure, change.each().next()) {
        (Failure::Refused(reason) | Failure::Conflict(reason), Some((limit, _))) => Error::Limit {
            limit,
            reason: format!("the Docker engine refuses the change: {}", reason.trim()),
            remedy: "choose a larger limit".to_owned(),
        },
        (failure, _) => failure.into_error("change the limits of the container"),
    })
}

/// The host's process id of the first process of a container; `None` if it does not run.
pub(crate) async fn process(engine: &Engine, name: &str) -> Result<Option<i32>> {
    let options = None::<InspectContainerOptions>;
    match engine.request(|client| client.inspect_container(name, options)).await {
        Ok(container) => {
            let state = container.state.unwrap_or_default();
            let process = state.pid.and_then(|pid| i32::try_from(pid).ok());
            Ok(process.filter(|pid| *pid > 0 && state.running == Some(true)))
        }
        Err(Failure::NotFound(_)) => Ok(None),
        Err(failure) => Err(failure.into_error("inspect the container")),
    }
}

/// The id of the image of a container; `None` if there is no such container.
pub(crate) async fn image(engine: &Engine, name: &str) -> Result<Option<String>> {
    let options = None::<InspectContainerOptions>;
    match engine.request(|client| client.inspect_container(name, options)).await {
        Ok(container) => Ok(container.image),
        Err(Failure::NotFound(_)) => Ok(None),
        Err(failure) => Err(failure.into_error("inspect the container")),
    }
}

/// Whether there is a container of this name, in any state.
pub(crate) async fn exists(engine: &Engine, name: &str) -> Result<bool> {
    let options = None::<InspectContainerOptions>;
    match engine.request(|client| client.inspect_container(name, options)).await {
        Ok(_) => Ok(true),
        Err(Failure::NotFound(_)) => Ok(false),
        Err(failure) => Err(failure.into_error("inspect the container")),
    }
}

/// Removes a container with its volumes, and waits until the engine does not know it any more.
/// Succeeds if it does not exist.
pub(crate) async fn remove(engine: &Engine, name: &str) -> Result<()> {
    let end = tokio::time::Instant::now() + REMOVAL;
    loop {
        let options = RemoveContainerOptions { v: true, force: true, link: false };
        match engine.request(|client| client.remove_container(name, Some(options))).await {
            Err(Failure::NotFound(_)) => return Ok(()),
            // The engine already removes it.
            Ok(()) | Err(Failure::Conflict(_)) => {}
            Err(failure) => return Err(failure.into_error("remove the container")),
        }
        if !exists(engine, name).await? {
            return Ok(());
        }
        if tokio::time::Instant::now() >= end {
            return Err(Error::Deadline("remove the container"));
        }
        tokio::time::sleep(POLL).await;
    }
}

/// A small file of a container that need not run, as the engine packs it; `None` if there is none.
pub(crate) async fn file(engine: &Engine, name: &str, path: &str) -> Result<Option<Vec<u8>>> {
    let options = DownloadFromContainerOptions { path: path.to_owned() };
    let read = engine.request(|client| async {
        let mut archive = Vec::new();
        let mut pieces = std::pin::pin!(client.download_from_container(name, Some(options)));
        while let Some(piece) = pieces.try_next().await? {
            archive.extend_from_slice(&piece);
            if archive.len() > 2 * FILE_BYTES {
                break;
            }
        }
        Ok(archive)
    });
    let archive = match tokio::time::timeout(DEADLINE, read).await {
        Ok(Ok(archive)) => archive,
        Ok(Err(Failure::NotFound(_))) => return Ok(None),
        Ok(Err(failure)) => return Err(failure.into_error("read a file of the image")),
        Err(_) => return Err(Error::Deadline("read a file of the image")),
    };
    Ok(first_file(&archive))
}

/// The content of the first file of an archive, if it is a regular file of moderate size.
fn first_file(archive: &[u8]) -> Option<Vec<u8>> {
    use std::io::Read as _;
    let mut archive = tar::Archive::new(archive);
    let entry = archive.entries().ok()?.next()?.ok()?;
    if !entry.header().entry_type().is_file() {
        return None;
    }
    let mut content = Vec::new();
    entry.take(FILE_BYTES as u64).read_to_end(&mut content).ok()?;
    Some(content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_of_the_engine_is_no_fault_of_the_request() {
        let text = "mkdir /var/lib/docker/overlay2/0: no space left on device";
        for refused in [not_created, not_started] {
            let full = refused(Failure::Refused(text.to_owned()));
            assert!(matches!(full, Error::Exhausted(_)), "{full:?}");
        }
        let wrong = not_created(Failure::Refused("invalid volume".to_owned()));
        assert!(matches!(wrong, Error::Invalid(_)), "{wrong:?}");
        let wrong = not_started(Failure::Refused("exec format error".to_owned()));
        assert!(matches!(wrong, Error::Wall { .. }), "{wrong:?}");
    }
}
