//! `stockade image import`.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufReader, Read as _};
use std::path::Path;

use serde_json::json;
use stockade_core::{Code, Problem};
use stockade_image::Platform;
use stockade_image::import::{Error, Source, import};

use super::open;
use crate::args::image::ImageImport;
use crate::commands::print::{notify, print, print_text};
use crate::problem::{Failure, caused};
use crate::registry;

/// How many blocks of an archive are searched for the entry that tells its kind.
const SEARCHED: usize = 4096;
const BLOCK: usize = 512;

/// Adds the images of the source.
pub(super) fn run(arguments: &ImageImport) -> Result<u8, Failure> {
    let source = source(&arguments.source)?;
    let reference = arguments.name.as_deref().map(registry::reference).transpose()?;
    let platform = arguments.platform.as_deref();
    let platform: Option<Platform> =
        platform.map(|platform| registry::platform(Some(platform))).transpose()?;
    let (_, store) = open()?;
    let added = import(&store, &source, reference.as_ref(), platform.as_ref());
    let added = added.map_err(|error| problem(&error, &source))?;
    let name = |image: &stockade_image::Image| {
        image.reference.as_ref().map_or_else(|| image.digest.to_string(), |name| name.familiar())
    };
    if arguments.json {
        let one = |image: &stockade_image::Image| {
            json!({
                "reference": image.reference,
                "platform": image.configuration.platform().to_string(),
                "digest": image.digest,
                "id": image.manifest.config.digest,
            })
        };
        print(&json!({ "images": added.iter().map(one).collect::<Vec<_>>() }))?;
        return Ok(0);
    }
    if !arguments.quiet {
        for image in &added {
            notify(&format!("{} was imported: {}", name(image), image.digest));
        }
    }
    print_text(&added.iter().map(|image| format!("{}\n", name(image))).collect::<String>())?;
    Ok(0)
}

/// The source of an argument. A path without a kind is looked at.
fn source(argument: &OsStr) -> Result<Source, Problem> {
    let text = argument.to_str().ok_or_else(|| {
        Problem::new(Code::InvalidInput, "the name of the source is not UTF-8 text")
    })?;
    const KINDS: [&str; 5] = ["oci", "oci-archive", "docker-archive", "tar", "dir"];
    let has_kind = text.split_once(':').is_some_and(|(kind, _)| KINDS.contains(&kind));
    let path = Path::new(text);
    if has_kind && !path.exists() {
        return text.parse().map_err(|error: Error| caused(Code::InvalidInput, &error));
    }
    let unreadable = |error: std::io::Error| {
        Problem::new(Code::InvalidInput, format!("cannot read {text}")).because(error.to_string())
    };
    let owned = path.to_owned();
    if path.metadata().map_err(unreadable)?.is_dir() {
        return Ok(match path.join("oci-layout").exists() {
            true => Source::Layout { path: owned, tag: None },
            false => Source::Directory(owned),
        });
    }
    let names = first_names(path).map_err(unreadable)?;
    let has = |name: &str| names.iter().any(|found| found == name);
    Ok(match (has("manifest.json"), has("oci-layout")) {
        (true, _) => Source::DockerArchive { path: owned, tag: None },
        (false, true) => Source::LayoutArchive { path: owned, tag: None },
        (false, false) => Source::Tar(owned),
    })
}

/// The names of entries of an archive of an image. The content of an entry is passed over; what is
/// not such an archive has none of these names.
fn first_names(path: &Path) -> std::io::Result<Vec<String>> {
    let mut file = BufReader::new(File::open(path)?);
    let mut names = Vec::new();
    for _ in 0..SEARCHED {
        let mut header = [0; BLOCK];
        if file.read_exact(&mut header).is_err() || header[257..262] != *b"ustar" {
            break;
        }
        let name = header[..100].split(|byte| *byte == 0).next().unwrap_or_default();
        let name = String::from_utf8_lossy(name);
        names.push(name.strip_prefix("./").unwrap_or(&name).to_owned());
        let digits = header[124..136].split(|byte| matches!(byte, 0 | b' '));
        let digits = digits.map(String::from_utf8_lossy).find(|digits| !digits.is_empty());
        let size = digits.and_then(|digits| i64::from_str_radix(&digits, 8).ok());
        let block = i64::try_from(BLOCK).unwrap_or_default();
        // A size that is not in octal digits is one of more than 8 GiB, which no layout starts with.
        let Some(rest) = size.and_then(|size| size.checked_add(block - 1)) else { break };
        file.seek_relative(rest / block * block)?;
    }
    Ok(names)
}

fn problem(error: &Error, source: &Source) -> Problem {
    let invalid = caused(Code::InvalidInput, error);
    match error {
        Error::Store(error) => registry::store_problem(error),
        Error::Document(_) | Error::Layer { .. } => caused(Code::ImageInvalid, error),
        Error::NoName(_) => invalid.remedied_by(format!("stockade image import {source} NAME:TAG")),
        Error::NoPlatform { known, .. } => {
            let missing = caused(Code::ImagePlatformMissing, error);
            match known.first() {
                Some(known) => missing.remedied_by(format!("--platform {known}")),
                None => missing,
            }
        }
        Error::NoTag { known, .. } | Error::Several { known, .. } => match known.first() {
            Some(tag) => invalid.remedied_by(format!("stockade image import {source}:{tag}")),
            None => invalid,
        },
        _ => invalid,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_looked_at() {
        let scratch = tempfile::tempdir().unwrap();
        let kind = |path: &Path| source(path.as_os_str());
        assert!(matches!(kind(scratch.path()), Ok(Source::Directory(_))));
        std::fs::write(scratch.path().join("oci-layout"), "").unwrap();
        assert!(matches!(kind(scratch.path()), Ok(Source::Layout { .. })));
        let archive = |name: &str, entries: &[&str]| {
            let path = scratch.path().join(name);
            let mut bytes = Vec::new();
            for entry in entries {
                let mut header = [0; BLOCK];
                header[..entry.len()].copy_from_slice(entry.as_bytes());
                header[124..135].copy_from_slice(b"00000000003");
                header[257..262].copy_from_slice(b"ustar");
                bytes.extend(header);
                bytes.extend([1; BLOCK]);
            }
            std::fs::write(&path, bytes).unwrap();
            path
        };
        let docker = archive("docker", &["oci-layout", "./manifest.json"]);
        assert!(matches!(kind(&docker), Ok(Source::DockerArchive { .. })));
        assert!(matches!(
            kind(&archive("oci", &["blobs/x", "oci-layout"])),
            Ok(Source::LayoutArchive { .. })
        ));
        assert!(matches!(kind(&archive("tar", &["etc/passwd"])), Ok(Source::Tar(_))));
        std::fs::write(scratch.path().join("empty"), "").unwrap();
        assert!(matches!(kind(&scratch.path().join("empty")), Ok(Source::Tar(_))));
        assert!(kind(&scratch.path().join("none")).is_err());
        assert!(matches!(source("oci:/x".as_ref()), Ok(Source::Layout { .. })));
        assert!(source("tar:".as_ref()).is_err());
    }
}
