//! Images: the store of the data directory, and downloads into it. The front contains no TLS: a
//! process of `stockade-server` downloads into a directory, and this module checks what it wrote and
//! takes it into the store.

mod download;
pub(crate) mod elsewhere;
mod problem;
mod progress;
mod pull;
mod staging;

use std::path::Path;

use stockade_bundle::data::DataDir;
use stockade_core::sandbox::Root;
use stockade_core::{Code, Problem};
use stockade_image::store::Error as StoreError;
use stockade_image::{Digest, Platform, Reference, Store};
use stockade_plan::image_root;

pub(crate) use self::problem::store_problem;
pub(crate) use self::progress::{Form, Progress};
pub(crate) use self::pull::{Pull, pull};
pub(crate) use self::staging::remove_unused;
use crate::args::image::PullPolicy;
use crate::args::sandbox_flags::SandboxFlags;
use crate::request::root;

/// Reads the name of an image.
///
/// # Errors
/// [`Code::InvalidInput`].
pub(crate) fn reference(name: &str) -> Result<Reference, Problem> {
    name.parse().map_err(|error: stockade_image::InvalidReference| {
        Problem::caused(Code::InvalidInput, &error)
    })
}

/// Reads a platform; without one, that of this host.
///
/// # Errors
/// [`Code::InvalidInput`].
pub(crate) fn platform(text: Option<&str>) -> Result<Platform, Problem> {
    let Some(text) = text else { return Ok(Platform::host()) };
    text.parse().map_err(|error: stockade_image::InvalidPlatform| {
        Problem::caused(Code::InvalidInput, &error).remedied_by("--platform linux/amd64")
    })
}

/// Opens the store.
///
/// # Errors
/// The data directory cannot be used.
pub(crate) fn store(data: &DataDir) -> Result<Store, Problem> {
    Store::open(data).map_err(|error| store_problem(&error))
}

/// Downloads the image of a sandbox if it is one of a registry, as the flags say.
///
/// # Errors
/// It is not there, and cannot be downloaded.
pub(crate) fn ensure_root(
    data: &DataDir,
    flags: &SandboxFlags,
    current: &Path,
    quiet: bool,
) -> Result<(), Problem> {
    let Some(image) = &flags.image else { return Ok(()) };
    match (root(image, current), flags.pull) {
        (Root::Image(name), policy) => ensure(data, &name, policy.unwrap_or_default(), quiet),
        (_, None) => Ok(()),
        (_, Some(_)) => {
            let message = "`--pull` is for an image of a registry, and this is a path";
            Err(Problem::new(Code::InvalidInput, message))
        }
    }
}

/// Makes sure that an image is in the store as the policy says, before it is used.
///
/// # Errors
/// It is not there, and cannot be downloaded.
fn ensure(data: &DataDir, name: &str, policy: PullPolicy, quiet: bool) -> Result<(), Problem> {
    if policy != PullPolicy::Always || name.parse::<Digest>().is_ok() {
        match image_root::find(name, data) {
            Err(error) if policy != PullPolicy::Never && is_missing(&error) => {}
            Err(error) => return Err(crate::images::problem(&error)),
            Ok(_) => return Ok(()),
        }
    }
    let reference = reference(name)?;
    let platform = Platform::host();
    let access = crate::profile::registry_access(reference.registry())?;
    let form = if quiet { Form::Quiet } else { Form::Text };
    let mut progress = Progress::new(&reference, form);
    let pulled = pull(data, &Pull::new(reference, platform, access), &mut progress);
    progress.end();
    pulled.map(drop)
}

/// Whether an image, or a part of it, is not in the store.
fn is_missing(error: &stockade_plan::Error) -> bool {
    match error {
        stockade_plan::Error::NoImage(name) => name.parse::<Digest>().is_err(),
        stockade_plan::Error::Image(error) => {
            matches!(**error, StoreError::MissingBlob(_) | StoreError::MissingLayer(_))
        }
        _ => false,
    }
}

/// The problem of an image that is not in the store.
pub(crate) fn missing(reference: &Reference) -> Problem {
    let name = reference.familiar();
    Problem::new(Code::ImageNotFound, format!("there is no image {name} in the store"))
        .remedied_by(format!("stockade image pull {name}"))
}
