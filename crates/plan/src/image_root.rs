//! An image of the store as the root of a sandbox: its layers are the lower layers of an overlay.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use stockade_bundle::data::DataDir;
use stockade_core::SandboxSpec;
use stockade_core::sandbox::User;
use stockade_image::{Digest, Image, Platform, Reference, Store, Tree, store};
use stockade_jail::{HostTree, Mount, Scratch};

use crate::account::Users;
use crate::error::Error;
use crate::host_path::HostPath;

/// The directories of a `<Sandbox>` for its request and its result.
const REQUEST: &str = "/request";
const RESULT: &str = "/result";
/// How large a result may be before it is judged.
const RESULT_BYTES: u64 = 512 << 20;

/// The loader of programs that are linked with the C library of the host.
const LOADER: &str = match cfg!(target_arch = "aarch64") {
    true => "/lib/ld-linux-aarch64.so.1",
    false => "/lib64/ld-linux-x86-64.so.2",
};

/// The layers of an image, open, and what must be made above them.
#[derive(Debug)]
pub(crate) struct ImageRoot {
    /// The layers below the topmost one, the upper ones first.
    pub(crate) below: Vec<HostTree>,
    /// The volumes and the working directory, where the image does not have them.
    pub(crate) directories: Vec<(PathBuf, Mount)>,
    /// Whether the image has a directory for temporary files.
    pub(crate) has_tmp: bool,
    /// Whether the image has the loader that Stockade's own programs need.
    pub(crate) has_loader: bool,
    /// What keeps the layers from being removed.
    pub(crate) locks: Vec<OwnedFd>,
}

/// Finds the image of a digest in the store, and opens its layers. Returns the topmost one first.
///
/// # Errors
/// [`Error::NoImage`], [`Error::Image`].
pub(crate) fn open(
    name: &str,
    data: &Path,
    spec: &SandboxSpec,
    (own, users): (User, Users),
) -> Result<(HostPath, ImageRoot), Error> {
    let missing = || Error::NoImage(name.to_owned());
    let digest: Digest = name.parse().map_err(|_| missing())?;
    let failed = |error: store::Error| match error {
        store::Error::MissingLayer(_) | store::Error::MissingBlob(_) => missing(),
        error => Error::Image(Box::new(error)),
    };
    let data = DataDir::open(data).map_err(|error| failed(error.into()))?;
    let store = Store::open(&data).map_err(failed)?;
    // What the image says is read in layers without owners, which this process may always read.
    let image = store.load(&digest, None).map_err(failed)?;
    let (store, mounted) = match users {
        Users::Subordinate(_) => {
            let owned = Store::open_owned(&data).map_err(failed)?;
            let image = owned.load(&digest, None).map_err(failed)?;
            (owned, image)
        }
        Users::Own(_) | Users::Range => (store, image.clone()),
    };
    let locks = store.hold(&mounted).map_err(failed)?;
    let mut layers = mounted.layers.iter().rev();
    let top = layers.next().ok_or_else(missing)?;
    let open = |path: &PathBuf| {
        HostTree::open(path).map_err(|source| Error::HostPath { path: path.clone(), source })
    };
    let below = layers.map(open).collect::<Result<_, _>>()?;
    let top = HostPath { tree: open(top)?, real: top.clone() };
    let Expected { missing: mut directories, has_tmp, has_loader } = to_make(&image, spec)?;
    // A user of the image other than its root cannot make the directory of a result.
    if own.user != 0 && spec.mounts.iter().any(|mount| mount.inside == Path::new(REQUEST)) {
        let User { user, group } = own;
        let scratch = Scratch { mode: 0o755, size_bytes: RESULT_BYTES, user, group };
        directories.push((RESULT.into(), Mount::Scratch(scratch)));
    }
    Ok((top, ImageRoot { below, directories, has_tmp, has_loader, locks }))
}

/// What a process of an image expects of its root file system.
struct Expected {
    /// The directories that are not there.
    missing: Vec<(PathBuf, Mount)>,
    has_tmp: bool,
    has_loader: bool,
}

fn to_make(image: &Image, spec: &SandboxSpec) -> Result<Expected, Error> {
    let refused = |error: stockade_image::InvalidProcess| Error::ImageProcess(Box::new(error));
    let unread = |error: stockade_image::LayerError| refused(error.into());
    let tree = Tree::open(image).map_err(unread)?;
    let mut wanted = image.volumes().map_err(refused)?;
    wanted.push(image.working_directory().map_err(refused)?);
    wanted.extend(spec.working_directory.clone());
    let is_provided = |path: &Path| {
        let of_host = spec.mounts.iter().map(|mount| &mount.inside);
        let workspace = spec.workspace.iter().map(|workspace| &workspace.inside);
        of_host.chain(workspace).any(|top| path.starts_with(top))
            || ["/dev", "/proc"].iter().any(|own| path.starts_with(own))
    };
    let mut missing = Vec::new();
    for path in wanted {
        if !is_provided(&path) && tree.is_directory(&path).map_err(unread)?.is_none() {
            missing.push((path, Mount::Directory));
        }
    }
    let has_tmp = tree.is_directory(Path::new("/tmp")).map_err(unread)? == Some(true);
    let has_loader = tree.is_directory(Path::new(LOADER)).map_err(unread)? == Some(false);
    Ok(Expected { missing, has_tmp, has_loader })
}

/// The image of a name in the store of a data directory, for this host: a reference, or a digest.
///
/// # Errors
/// [`Error::NoImage`] where there is none, and what is wrong with the store.
pub fn find(name: &str, data: &DataDir) -> Result<Image, Error> {
    let failed = |error: store::Error| Error::Image(Box::new(error));
    let store = Store::open(data).map_err(failed)?;
    let platform = Platform::host();
    // A sandbox may use an image whose name is gone or means another one now.
    let unnamed = |digest: &Digest, reference| match store.load(digest, reference) {
        Err(store::Error::MissingBlob(_) | store::Error::MissingLayer(_)) => Ok(None),
        loaded => loaded.map(Some),
    };
    let found = match name.parse::<Digest>() {
        Ok(digest) => match store.get_by_digest(&digest, &platform) {
            Ok(None) => unnamed(&digest, None),
            found => found,
        },
        Err(_) => match name.parse::<Reference>() {
            Ok(reference) => match (store.get(&reference, &platform), reference.digest()) {
                (Ok(None), Some(digest)) => unnamed(digest, Some(reference.clone())),
                (found, _) => found,
            },
            Err(error) => return Err(Error::ImageName(Box::new(error))),
        },
    };
    found.map_err(failed)?.ok_or_else(|| Error::NoImage(name.to_owned()))
}

/// Completes a request with what its image says: the user, the environment and the working
/// directory, unless the request has its own; and names the image by its digest. `one_id` says
/// that the sandbox has the id of the caller alone: then all of the image runs as that.
///
/// # Errors
/// [`Error::ImageProcess`].
pub fn complete(
    mut spec: SandboxSpec,
    image: &Image,
    one_id: bool,
) -> Result<(SandboxSpec, stockade_image::Start), Error> {
    use stockade_core::sandbox::Root;
    let refused = |error: stockade_image::InvalidProcess| Error::ImageProcess(Box::new(error));
    let tree = Tree::open(image).map_err(|error| refused(error.into()))?;
    let start = image.start(&tree).map_err(refused)?;
    let user = match (&spec.user, &start.user) {
        (Some(User { user, group }), _) => Some(image.user(&format!("{user}:{group}"), &tree)),
        (None, Some(named)) => Some(Ok(named.clone())),
        // Nobody else can change the workspace.
        (None, None) if spec.workspace.is_some() => None,
        (None, None) => Some(image.user("0", &tree)),
    };
    let user = user.transpose().map_err(refused)?;
    if let Some(user) = &user {
        if spec.user.is_none() && !one_id {
            spec.user = Some(User { user: user.user, group: user.group });
            spec.groups.clone_from(&user.groups);
        }
        let mut set = |name: &str, value: &str| {
            if !start.environment.contains_key(name) && !value.is_empty() {
                spec.environment.entry(name.to_owned()).or_insert_with(|| value.into());
            }
        };
        set("HOME", &user.home);
        set("SHELL", if user.shell.is_empty() { "/bin/sh" } else { &user.shell });
        let name = user.name.clone().unwrap_or_else(|| user.user.to_string());
        set("USER", &name);
        set("LOGNAME", &name);
    }
    for (name, value) in &start.environment {
        spec.environment.entry(name.clone()).or_insert_with(|| value.as_str().into());
    }
    spec.working_directory.get_or_insert_with(|| start.working_directory.clone());
    spec.root = Root::Image(image.digest.to_string());
    Ok((spec, start))
}
