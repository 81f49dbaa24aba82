//! Which ids a sandbox of an image has: all of the image for root, and for an ordinary user with subordinate
//! ids; else the caller's own alone.

use stockade_core::SandboxSpec;
use stockade_core::sandbox::Root;
use stockade_image::Image;
use stockade_jail::subordinate::Subordinate;
use stockade_runtime::Result;

use super::CREATE;
use super::call::Client;
use super::snapshot::StoredSnapshot;
use super::subordinate::Process;
use crate::bubblewrap::Launcher;
use crate::subordinate::Order;
use crate::wire::Failure;

/// The ids of a sandbox of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ImageIds {
    /// Those of root.
    Root,
    /// The caller's subordinate ids.
    Subordinate,
    /// The caller's own.
    Own,
}

/// The ids for a request. Files of a snapshot keep their owners.
///
/// # Errors
/// The snapshot or another user than the caller needs subordinate ids, and there are none: what is missing.
pub(super) fn choose(client: &Client, spec: &SandboxSpec) -> Result<ImageIds> {
    let own = rustix::process::geteuid();
    if own.is_root() {
        return Ok(ImageIds::Root);
    }
    // Bubblewrap maps one id.
    if client.launcher == Launcher::Bubblewrap {
        return Ok(ImageIds::Own);
    }
    let is_needed = match &spec.root {
        Root::Snapshot(snapshot) => {
            if !StoredSnapshot::open(&client.directory, snapshot)?.is_subordinate() {
                return Ok(ImageIds::Own);
            }
            true
        }
        _ => spec.user.is_some_and(|user| user.user != own.as_raw()),
    };
    match Subordinate::find() {
        Ok(_) => Ok(ImageIds::Subordinate),
        Err(missing) if is_needed => Err(Failure::from(&missing).into_error(&CREATE)),
        Err(_) => Ok(ImageIds::Own),
    }
}

/// Unpacks the layers of an image with their owners, unless that was done.
///
/// # Errors
/// What is wrong with the image, or why the ids cannot be used.
pub(super) fn unpack(client: &Client, image: &Image) -> Result<()> {
    let order = Order::Image { data: client.data().to_owned(), digest: image.digest.to_string() };
    Process::start(client.program(), "unpack", &order, &[])?.finish()
}
