//! Images of the engine: what it has is used, and nothing is pulled.

use std::collections::{BTreeMap, BTreeSet};

use bollard::models::ImageInspect;
use bollard::query_parameters::{CommitContainerOptions, RemoveImageOptions};
use stockade_core::Bytes;
use stockade_core::sandbox::User;
use stockade_core::{SandboxId, SnapshotId};
use stockade_runtime::{Error, Result};

use crate::engine::{Engine, Failure};
use crate::labels::Owner;

/// An image as a container is made from it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Image {
    /// Its id, which names its content.
    pub(crate) id: String,
    /// Its user, as it names it; empty for none.
    pub(crate) user: String,
    /// The variables that every command has.
    pub(crate) environment: BTreeMap<String, Bytes>,
    /// The directory in which commands start.
    pub(crate) working_directory: Option<String>,
    /// The directories that it wants to be writable.
    pub(crate) volumes: BTreeSet<String>,
    entrypoint: Option<Vec<String>>,
    command: Option<Vec<String>>,
}

impl Image {
    /// The image of this name or id, or of a name with the id of what it meant when it was resolved:
    /// then the id decides.
    ///
    /// # Errors
    /// [`Error::NoImage`].
    pub(crate) async fn find(engine: &Engine, name: &str) -> Result<Self> {
        let id = name.rsplit_once('@').map(|(_, id)| id);
        match (Self::inspect(engine, name).await, id) {
            (Err(Error::NoImage { .. }), Some(id)) => Self::inspect(engine, id).await,
            (found, _) => found,
        }
    }

    /// A name with the id of what it means now; a name that has a digest, and an id, stay as they are.
    pub(crate) fn pinned(&self, name: &str) -> String {
        if self.id.is_empty() || name.contains('@') || self.id.contains(name) {
            return name.to_owned();
        }
        format!("{name}@{}", self.id)
    }

    async fn inspect(engine: &Engine, name: &str) -> Result<Self> {
        if name.is_empty() || name.chars().any(|one| one.is_control() || one.is_whitespace()) {
            return Err(Error::Invalid(format!("{name:?} is not the name of an image")));
        }
        match engine.request(|client| client.inspect_image(name)).await {
            Ok(inspected) => Ok(Self::read(inspected)),
            Err(Failure::NotFound(_)) => Err(Error::NoImage {
                image: name.to_owned(),
                remedy: format!("docker pull {name}"),
            }),
            Err(Failure::Refused(reason)) => {
                Err(Error::Invalid(format!("the image {name:?}: {}", reason.trim())))
            }
            Err(failure) => Err(failure.into_error("inspect an image")),
        }
    }

    fn read(inspected: ImageInspect) -> Self {
        let config = inspected.config.unwrap_or_default();
        let variable = |line: String| {
            let (name, value) = line.split_once('=')?;
            let is_valid = !name.is_empty() && !line.contains('\0');
            is_valid.then(|| (name.to_owned(), Bytes(value.as_bytes().to_vec())))
        };
        let is_absolute = |path: &String| path.starts_with('/');
        Self {
            id: inspected.id.unwrap_or_default(),
            user: config.user.unwrap_or_default(),
            environment: config.env.unwrap_or_default().into_iter().filter_map(variable).collect(),
            working_directory: config.working_dir.filter(is_absolute),
            volumes: config.volumes.unwrap_or_default().into_iter().filter(is_absolute).collect(),
            entrypoint: config.entrypoint,
            command: config.cmd,
        }
    }

    /// Its user as numbers: `None` if it names none, `Err` with a name that only its own files
    /// translate.
    pub(crate) fn numeric_user(&self) -> std::result::Result<Option<User>, &str> {
        let text = self.user.trim();
        if text.is_empty() {
            return Ok(None);
        }
        let (user, group) = text.split_once(':').unwrap_or((text, ""));
        let number = |name: &str| match name {
            "root" => Some(0),
            name => name.parse().ok(),
        };
        match (number(user), number(group)) {
            (Some(user), Some(group)) => Ok(Some(User { user, group })),
            // As the engine does: the group of root where it is not in the image's list.
            (Some(0), None) if group.is_empty() => Ok(Some(User { user: 0, group: 0 })),
            _ => Err(text),
        }
    }
}

/// Keeps the image of a container under the name of a snapshot, so that a sandbox can start from the
/// snapshot as long as it exists, whatever becomes of the image's own name.
pub(crate) async fn commit(
    engine: &Engine,
    owner: &Owner,
    container: &str,
    (sandbox, snapshot): (&SandboxId, &SnapshotId),
    image: &Image,
) -> Result<()> {
    let (repository, tag) = owner.image(snapshot);
    let options = CommitContainerOptions {
        container: Some(container.to_owned()),
        repo: Some(repository),
        tag: Some(tag),
        comment: Some(format!("snapshot of the sandbox {sandbox}")),
        pause: false,
        ..CommitContainerOptions::default()
    };
    let mut labels = owner.of_snapshot(snapshot);
    // The image belongs to the snapshot, and stays when the sandbox is removed.
    labels.insert(crate::labels::SANDBOX.to_owned(), String::new());
    let config = bollard::models::ContainerConfig {
        labels: Some(labels),
        entrypoint: Some(image.entrypoint.clone().unwrap_or_default()),
        cmd: Some(image.command.clone().unwrap_or_default()),
        ..bollard::models::ContainerConfig::default()
    };
    let committed = engine.request(|client| client.commit_container(options, config)).await;
    committed.map(drop).map_err(|failure| failure.into_error("keep the image of a snapshot"))
}

/// Removes the image of a snapshot, by its name or id. Containers that were made from it keep its
/// files, and the engine keeps it for them: it is removed with the last of them.
pub(crate) async fn remove(engine: &Engine, name: &str) -> Result<()> {
    let options = RemoveImageOptions { force: true, ..RemoveImageOptions::default() };
    match engine.request(|client| client.remove_image(name, Some(options), None)).await {
        Ok(_) | Err(Failure::NotFound(_) | Failure::Conflict(_)) => Ok(()),
        Err(failure) => Err(failure.into_error("remove the image of a snapshot")),
    }
}

#[cfg(test)]
mod tests {
    use bollard::models::ImageConfig;

    use super::*;

    fn image(config: ImageConfig) -> Image {
        Image::read(ImageInspect { config: Some(config), ..ImageInspect::default() })
    }

    #[test]
    fn a_user_is_a_number_a_name_or_none() {
        let user = |text: &str| {
            let image = image(ImageConfig { user: Some(text.into()), ..ImageConfig::default() });
            image.numeric_user().map_err(str::to_owned)
        };
        assert_eq!(user(""), Ok(None));
        assert_eq!(user("root"), Ok(Some(User { user: 0, group: 0 })));
        assert_eq!(user("0"), Ok(Some(User { user: 0, group: 0 })));
        assert_eq!(user("7:8"), Ok(Some(User { user: 7, group: 8 })));
        for name in ["node", "node:node", "7", "7:staff", "-1", "4294967296"] {
            assert_eq!(user(name), Err(name.to_owned()));
        }
    }

    #[test]
    fn a_name_is_pinned_by_the_id_of_the_image() {
        let id = "sha256:0123456789abcdef";
        let image = Image { id: id.to_owned(), ..image(ImageConfig::default()) };
        assert_eq!(image.pinned("node:20"), format!("node:20@{id}"));
        for whole in [id, "0123456789ab", "node@sha256:ff"] {
            assert_eq!(image.pinned(whole), whole);
        }
    }

    #[test]
    fn what_is_no_variable_or_path_is_left_out() {
        let image = image(ImageConfig {
            env: Some(vec!["A=b=c".into(), "=x".into(), "none".into()]),
            volumes: Some(vec!["/data".into(), "relative".into()]),
            working_dir: Some(String::new()),
            ..ImageConfig::default()
        });
        assert_eq!(image.environment, [("A".to_owned(), "b=c".into())].into());
        assert_eq!(image.volumes, ["/data".to_owned()].into());
        assert_eq!(image.working_directory, None);
    }
}
