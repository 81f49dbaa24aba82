//! `stockade image pull`.

use serde_json::json;
use stockade_registry_control::DEFAULT_MAX_BYTES;

use crate::args::image::ImagePull;
use crate::commands::print::{notify, print, print_text};
use crate::data_dir::{data_path, open_data_dir};
use crate::problem::Failure;
use crate::profile::registry_access;
use crate::registry::{self, Form, Progress, Pull};

/// Downloads the image.
pub(super) fn run(arguments: &ImagePull) -> Result<u8, Failure> {
    let reference = registry::reference(&arguments.name)?;
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
    if pull.reference.is_unpinned() && !arguments.quiet {
        notify("no tag or digest is given, so `latest` is used: it can mean another image later");
    }
    let pulled = registry::pull(&data, &pull, &mut progress);
    progress.end();
    let pulled = pulled?;
    let name = pull.reference.familiar();
    if arguments.json {
        print(&json!({
            "reference": pull.reference,
            "platform": pull.platform.to_string(),
            "digest": pulled.image.digest,
            "repositoryDigest": pulled.digest,
            "id": pulled.image.manifest.config.digest,
            "isNew": !pulled.was_current,
        }))?;
        return Ok(0);
    }
    if !arguments.quiet {
        let what = if pulled.was_current { "is up to date" } else { "was pulled" };
        notify(&format!("{name} {what}: {}", pulled.digest));
    }
    print_text(&format!("{name}\n"))?;
    Ok(0)
}
