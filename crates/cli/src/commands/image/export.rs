//! `stockade image export`.

use std::ffi::OsStr;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use serde_json::json;
use stockade_core::{Code, Problem};
use stockade_image::{Format, export};

use super::{find, open};
use crate::args::image::ImageExport;
use crate::commands::print::{notify, print};
use crate::problem::{Failure, caused};
use crate::registry;

/// The name of the standard output.
const STANDARD_OUTPUT: &str = "-";

/// Writes the archive. A file has its name only when it is complete.
pub(super) fn run(arguments: &ImageExport) -> Result<u8, Failure> {
    let (format, target) = target(arguments)?;
    let (_, store) = open()?;
    let wanted = registry::platform(arguments.platform.as_deref())?;
    let found = find(&store, &arguments.name)?;
    let record = found.iter().find(|record| record.platform == wanted);
    let record = record.or_else(|| found.first().filter(|_| arguments.platform.is_none()));
    let Some(record) = record else {
        return Err(registry::missing(&registry::reference(&arguments.name)?).into());
    };
    let name = Some(&record.reference);
    let image = store.load(&record.digest, name.cloned());
    let image = image.map_err(|error| registry::store_problem(&error))?;
    if target.as_os_str() == STANDARD_OUTPUT {
        if rustix::termios::isatty(std::io::stdout()) {
            let message = "an archive is not written to a terminal";
            return Err(Problem::new(Code::InvalidInput, message).remedied_by("-o FILE").into());
        }
        let written = export(&store, &image, name, format, std::io::stdout().lock());
        written.map_err(|error| registry::store_problem(&error))?;
        return Ok(0);
    }
    let failed = |error: std::io::Error| {
        caused(Code::Io, &error).because(format!("{}: {error}", target.display()))
    };
    let mut unfinished = target.as_os_str().to_owned();
    unfinished.push(format!(".{}.unfinished", std::process::id()));
    let unfinished = Unfinished(PathBuf::from(unfinished));
    let mut file = std::fs::File::create_new(&unfinished.0).map_err(failed)?;
    let written = export(&store, &image, name, format, std::io::BufWriter::new(&mut file));
    written.map_err(|error| registry::store_problem(&error))?;
    file.flush().and_then(|()| file.sync_all()).map_err(failed)?;
    std::fs::rename(&unfinished.0, &target).map_err(failed)?;
    if arguments.json {
        print(&json!({
            "reference": record.reference,
            "digest": record.digest,
            "file": target.to_string_lossy(),
        }))?;
    } else {
        notify(&format!("{} was written to {}", record.reference.familiar(), target.display()));
    }
    Ok(0)
}

/// A file that is removed unless it got another name.
struct Unfinished(PathBuf);

impl Drop for Unfinished {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn target(arguments: &ImageExport) -> Result<(Format, PathBuf), Problem> {
    if let Some(path) = &arguments.output {
        return Ok((Format::Docker, path.clone()));
    }
    let text = arguments.target.as_deref().unwrap_or_default();
    let after = |prefix: &str| text.as_bytes().strip_prefix(prefix.as_bytes());
    let path = |bytes: &[u8]| Path::new(OsStr::from_bytes(bytes)).to_owned();
    let found = after("oci-archive:")
        .map(|rest| (Format::Oci, path(rest)))
        .or_else(|| after("docker-archive:").map(|rest| (Format::Docker, path(rest))));
    found.filter(|(_, path)| !path.as_os_str().is_empty()).ok_or_else(|| {
        let text = text.to_string_lossy();
        Problem::new(
            Code::InvalidInput,
            format!("{text:?} is not oci-archive:FILE or docker-archive:FILE"),
        )
        .remedied_by(format!("docker-archive:{text}"))
    })
}
