//! The copies of files of the host in a pod: of the workspace, whose changes are found at the end, and of what is
//! mounted read-only. A pod has a volume for each directory that they need, because its root cannot be written.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use stockade_core::sandbox::{HostMount, SECRETS_DIRECTORY};
use stockade_core::{SandboxId, SandboxSpec};
use stockade_runtime::{Error, Result, SandboxPath, WorkspaceChanges};
use stockade_runtime_remote::{
    Copies, blocking, host_error, now_ms, pack_mount, remove_all, unpack,
};

use crate::client::{DIRECTORY, Kubernetes};
use crate::objects::HOME;
use crate::tree::{copy_in, copy_out};

/// The most bytes of a workspace that are copied in or out.
const LIMIT_BYTES: u64 = 64 << 30;
/// The directories that every pod has volumes for.
const OWN: [&str; 4] = [HOME, "/tmp", "/var/tmp", SECRETS_DIRECTORY];
/// Directories that no copy may replace.
const OF_THE_POD: [&str; 4] = ["/dev", "/proc", "/stockade", "/sys"];
/// Directories of images: a volume for a single file would hide what is beside it.
const OF_IMAGES: [&str; 8] = ["/bin", "/etc", "/lib", "/lib64", "/run", "/sbin", "/usr", "/var"];

/// The directory inside to which a mount is copied, if the pod can have a volume there.
fn target(mount: &HostMount) -> Result<&Path> {
    let to = stockade_runtime_remote::target(mount)?;
    let is_of_image = to == Path::new("/") || is_in_one_of(&OF_IMAGES, to);
    if to != mount.inside && is_of_image && !is_in_one_of(&OWN, to) {
        return Err(Error::Invalid(format!(
            "{} cannot be copied to {}: the other files of the image there would be hidden; mount a \
             directory",
            mount.host.display(),
            mount.inside.display()
        )));
    }
    Ok(to)
}

fn is_in_one_of(directories: &[&str], path: &Path) -> bool {
    directories.iter().any(|directory| path.starts_with(directory))
}

/// The directories for which the pod of a request needs volumes, none of them within another one.
///
/// # Errors
/// [`Error::Invalid`] for what cannot be copied.
pub(crate) fn directories(spec: &SandboxSpec) -> Result<Vec<String>> {
    let mut all: Vec<&Path> = Vec::new();
    all.extend(spec.workspace.iter().map(|workspace| workspace.inside.as_path()));
    for mount in &spec.mounts {
        if mount.writable {
            let text = format!(
                "{} cannot be changed from a pod: mount it read-only, or use a workspace",
                mount.host.display()
            );
            return Err(Error::Invalid(text));
        }
        all.push(target(mount)?);
    }
    all.sort_unstable();
    let mut kept: Vec<&Path> = Vec::new();
    for path in all {
        if is_in_one_of(&OWN, path) || kept.iter().any(|above| path.starts_with(above)) {
            continue;
        }
        let is_above = OF_THE_POD.iter().any(|directory| Path::new(directory).starts_with(path));
        if is_above || is_in_one_of(&OF_THE_POD, path) {
            return Err(Error::Invalid(format!("{} is needed by the pod itself", path.display())));
        }
        kept.push(path);
    }
    let text = |path: &Path| {
        let text = path.to_str().map(str::to_owned);
        text.ok_or_else(|| Error::Invalid(format!("the path {} is not text", path.display())))
    };
    kept.into_iter().map(text).collect()
}

impl Kubernetes {
    /// Copies what a sandbox is to have of the host, unless that is done. Nothing uses the sandbox meanwhile, so
    /// what an earlier attempt has left is written again.
    pub(crate) async fn copy_all(&self, id: &SandboxId, spec: &SandboxSpec) -> Result<()> {
        if spec.workspace.is_none() && spec.mounts.is_empty() || self.known_file(id).exists() {
            return Ok(());
        }
        let files = self.copies();
        fs::create_dir_all(&files).map_err(|error| host_error(&files, error))?;
        // Complete once the file with this is there.
        let copies = Copies::of(spec, now_ms())?;
        if let Some(workspace) = &spec.workspace {
            let (source, base, known) =
                (workspace.host.clone(), self.base_file(id), copies.clone());
            let fill = move |stage: &Path| {
                unpack(known.pack_workspace(&source, &base)?, 0, stage, LIMIT_BYTES)
            };
            self.send_stage(id, fill, &workspace.inside).await?;
        }
        for mount in &spec.mounts {
            let mounted = mount.clone();
            let fill = move |stage: &Path| unpack(pack_mount(&mounted)?, 0, stage, LIMIT_BYTES);
            self.send_stage(id, fill, target(mount)?).await?;
        }
        let file = self.known_file(id);
        let text = serde_json::to_vec(&copies);
        let text = text.map_err(|error| host_error(&file, error.into()))?;
        let new = file.with_extension("new");
        let written = fs::write(&new, text).and_then(|()| fs::rename(&new, &file));
        written.map_err(|error| host_error(&file, error))
    }

    /// Copies to a directory inside what a function puts into a new directory of the host: so what is sent is
    /// exactly what is known here, whatever changes on the host meanwhile.
    async fn send_stage(
        &self,
        id: &SandboxId,
        fill: impl FnOnce(&Path) -> Result<()> + Send + 'static,
        to: &Path,
    ) -> Result<()> {
        let stage = self.stage(id);
        let new = stage.clone();
        blocking(move || remove_all(&new).and_then(|()| fill(&new))).await?;
        let copied = copy_in(self, id, &stage, &SandboxPath::new(to)?).await;
        let removed = blocking(move || remove_all(&stage)).await;
        copied.and(removed)
    }

    /// Copies the changed files of the workspace to a new directory of the host, and lists the removed ones.
    pub(crate) async fn gather(&self, id: &SandboxId, to: &Path) -> Result<WorkspaceChanges> {
        let none = || Error::Invalid(format!("the sandbox {id} has no workspace"));
        let file = self.known_file(id);
        let text = match fs::read(&file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(none()),
            read => read.map_err(|error| host_error(&file, error))?,
        };
        let copies: Copies =
            serde_json::from_slice(&text).map_err(|error| host_error(&file, error.into()))?;
        let inside = copies.workspace.as_ref().ok_or_else(none)?.0.clone();
        copy_out(self, id, &SandboxPath::new(inside)?, to, LIMIT_BYTES).await?;
        let (base, to) = (self.base_file(id), to.to_owned());
        blocking(move || copies.changes(&base, &to)).await
    }

    /// Forgets the copies of a sandbox.
    pub(crate) fn forget_copies(&self, id: &SandboxId) -> Result<()> {
        let all = [self.known_file(id), self.base_file(id), self.stage(id)];
        all.iter().try_for_each(|path| remove_all(path))
    }

    fn known_file(&self, id: &SandboxId) -> PathBuf {
        self.copies_file(id, "json")
    }

    fn base_file(&self, id: &SandboxId) -> PathBuf {
        self.copies_file(id, "base")
    }

    /// The directory with what is being sent.
    fn stage(&self, id: &SandboxId) -> PathBuf {
        self.copies_file(id, "stage")
    }

    fn copies_file(&self, id: &SandboxId, kind: &str) -> PathBuf {
        self.copies().join(format!("{id}.{kind}"))
    }

    fn copies(&self) -> PathBuf {
        self.options().data.join(DIRECTORY).join("copies")
    }
}

#[cfg(test)]
mod tests {
    use stockade_core::sandbox::Workspace;

    use super::*;

    fn with(mounts: Vec<HostMount>) -> SandboxSpec {
        let workspace = Workspace { host: "/".into(), inside: "/workspace".into() };
        SandboxSpec { workspace: Some(workspace), mounts, ..SandboxSpec::default() }
    }

    fn mount(host: &Path, inside: &str) -> HostMount {
        HostMount { host: host.to_owned(), inside: inside.into(), writable: false }
    }

    #[test]
    fn each_directory_has_one_volume() {
        let top = tempfile::tempdir().unwrap();
        let file = top.path().join("program");
        fs::write(&file, "").unwrap();
        let mounts = vec![
            mount(top.path(), "/workspace/.smithers"),
            mount(top.path(), "/request"),
            mount(&file, "/opt/stockade/bin/program"),
            mount(&file, "/tmp/program"),
        ];
        let all = directories(&with(mounts)).unwrap();
        assert_eq!(all, ["/opt/stockade/bin", "/request", "/workspace"]);
    }

    #[test]
    fn what_cannot_be_copied_is_refused() {
        let top = tempfile::tempdir().unwrap();
        let file = top.path().join("program");
        fs::write(&file, "").unwrap();
        let writable = HostMount { writable: true, ..mount(top.path(), "/shared") };
        for (mount, why) in [
            (writable, "mount it read-only"),
            (mount(&file, "/etc/program"), "would be hidden"),
            (mount(&file, "/program"), "would be hidden"),
            (mount(top.path(), "/"), "needed by the pod"),
            (mount(top.path(), "/proc/it"), "needed by the pod"),
            (mount(top.path(), "/stockade"), "needed by the pod"),
        ] {
            let refused = directories(&with(vec![mount])).unwrap_err();
            assert!(refused.to_string().contains(why), "{refused}");
        }
    }
}
