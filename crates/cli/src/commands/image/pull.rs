//! `stockade image pull`.

use stockade_api::{PullImage, PulledImage};
use stockade_core::{Code, Problem};
use stockade_image::Reference;
use stockade_registry_control::DEFAULT_MAX_BYTES;

use crate::args::image::ImagePull;
use crate::args::sandbox::ServerMode;
use crate::commands::print::{notify, print, print_text};
use crate::data_dir::{data_path, open_data_dir};
use crate::problem::Failure;
use crate::profile::registry_access;
use crate::registry::{self, Form, Progress, Pull};
use crate::remote;
use crate::remote::chosen::{ChosenServer, chosen};

/// Downloads the image.
pub(super) fn run(arguments: &ImagePull) -> Result<u8, Failure> {
    let reference = registry::reference(&arguments.name)?;
    if reference.is_unpinned() && !arguments.quiet {
        notify("no tag or digest is given, so `latest` is used: it can mean another image later");
    }
    let pulled = match chosen() {
        Some(server) => pull_there(arguments, &reference, server)?,
        None => pull_here(arguments, reference.clone())?,
    };
    let name = reference.familiar();
    if arguments.json {
        print(&pulled)?;
        return Ok(0);
    }
    if !arguments.quiet {
        let what = if pulled.is_new { "was pulled" } else { "is up to date" };
        notify(&format!("{name} {what}: {}", pulled.repository_digest));
    }
    print_text(&format!("{name}\n"))?;
    Ok(0)
}

/// Downloads the image into the store of this machine.
fn pull_here(arguments: &ImagePull, reference: Reference) -> Result<PulledImage, Failure> {
    let platform = registry::platform(arguments.platform.as_deref())?;
    let data = open_data_dir(&data_path()?)?;
    let access = registry_access(reference.registry())?;
    let pull = Pull {
        reference,
        platform,
        access,
        max_bytes: arguments.max_size.unwrap_or(DEFAULT_MAX_BYTES),
    };
    let form = match (arguments.events, arguments.quiet) {
        (true, _) => Form::Events,
        (false, true) => Form::Quiet,
        (false, false) => Form::Text,
    };
    let mut progress = Progress::new(&pull.reference, form);
    let pulled = registry::pull(&data, &pull, &mut progress);
    progress.end();
    let pulled = pulled?;
    Ok(PulledImage {
        reference: pull.reference.to_string(),
        platform: pull.platform.to_string(),
        digest: pulled.image.digest.to_string(),
        repository_digest: pulled.digest.to_string(),
        id: pulled.image.manifest.config.digest.to_string(),
        is_new: !pulled.was_current,
    })
}

/// Lets a server at a URL download the image into its own store.
fn pull_there(
    arguments: &ImagePull,
    reference: &Reference,
    server: &ChosenServer,
) -> Result<PulledImage, Failure> {
    for (is_given, flag, cause) in [
        (
            arguments.max_size.is_some(),
            "--max-size",
            "the server limits the size of what it downloads itself",
        ),
        (arguments.events, "--events", "a server asks a command on its own machine for them"),
    ] {
        if is_given {
            let message = format!("`{flag}` is not available with {}", server.url);
            return Err(Problem::new(Code::Unsupported, message)
                .because(cause)
                .remedied_by(format!("omit `{flag}`"))
                .into());
        }
    }
    let request = PullImage { image: reference.to_string(), platform: arguments.platform.clone() };
    remote::with(ServerMode { in_process: false }, async |remote| {
        let (caller, image) = (remote.idempotent(), request.image.clone());
        let pulled = remote.sandboxes.pull_image(&caller, request);
        Ok(match arguments.quiet {
            true => pulled.await?,
            false => registry::elsewhere::with_progress(&remote, &image, pulled).await?,
        })
    })
}
