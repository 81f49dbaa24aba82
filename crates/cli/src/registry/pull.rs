//! One pull: a download into a directory of its own, and then, after each digest was checked again,
//! into the store.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;

use rustix::fs::OFlags;
use stockade_bundle::data::DataDir;
use stockade_core::{Code, Problem};
use stockade_image::store::{Addition, Error as StoreError};
use stockade_image::{Digest, Document, Image, MAX_DOCUMENT_BYTES, Platform, Reference, Store};
use stockade_registry_control::{Access, DEFAULT_MAX_BYTES, Request, Selector, choose};

use super::download::download;
use super::problem::store_problem;
use super::progress::Progress;
use super::staging::Staging;
use crate::problem::caused;

/// How deep indexes may be nested.
const MAX_DEPTH: u32 = 3;
/// So many blobs of the store are offered to the download, the rest is downloaded again.
const MAX_PRESENT: usize = 8000;

/// What to pull.
#[derive(Debug)]
pub(crate) struct Pull {
    pub(crate) reference: Reference,
    pub(crate) platform: Platform,
    pub(crate) access: Access,
    pub(crate) max_bytes: u64,
}

/// What was pulled.
#[derive(Debug)]
pub(crate) struct Pulled {
    pub(crate) image: Image,
    /// The digest of what the reference names at the registry.
    pub(crate) digest: Digest,
    /// Whether the name meant this image before.
    pub(crate) was_current: bool,
}

impl Pull {
    pub(crate) const fn new(reference: Reference, platform: Platform, access: Access) -> Self {
        Self { reference, platform, access, max_bytes: DEFAULT_MAX_BYTES }
    }

    fn request(&self, staging: &Staging, present: Vec<Digest>) -> Request {
        let selector = match (self.reference.digest(), self.reference.tag()) {
            (Some(digest), _) => Selector::Digest(digest.clone()),
            (None, tag) => Selector::Tag(tag.unwrap_or("latest").to_owned()),
        };
        Request {
            directory: staging.path.clone(),
            registry: self.reference.registry().to_owned(),
            repository: self.reference.repository().to_owned(),
            selector,
            platform: self.platform.clone(),
            access: self.access.clone(),
            present,
            max_bytes: self.max_bytes,
        }
    }
}

/// Pulls an image into the store.
///
/// # Errors
/// Why there is no image. What was downloaded stays for the next attempt.
pub(crate) fn pull(
    data: &DataDir,
    pull: &Pull,
    progress: &mut Progress,
) -> Result<Pulled, Problem> {
    let store = super::store(data)?;
    let key = format!("{} {}", pull.reference, pull.platform);
    let staging = Staging::open(data, &key, || progress.waits())?;
    let before = store.get(&pull.reference, &pull.platform).ok().flatten();
    let mut present = present(data);
    loop {
        let is_all_offered = !present.is_empty();
        let request = pull.request(&staging, std::mem::take(&mut present));
        staging.share_lock(true)?;
        let downloaded = download(&request, &mut |event| progress.event(event));
        staging.share_lock(false)?;
        let downloaded = downloaded?;
        progress.unpacks();
        match take(&store, &staging, pull, &downloaded.digest) {
            Ok(image) => {
                staging.remove();
                let was_current = before.is_some_and(|before| before.digest == image.digest);
                return Ok(Pulled { image, digest: downloaded.digest, was_current });
            }
            // It was removed from the store meanwhile: now it is downloaded, too.
            Err(Refused::Store(StoreError::MissingBlob(_))) if is_all_offered => {}
            Err(Refused::Store(error)) => return Err(store_problem(&error)),
            Err(Refused::Other(problem)) => return Err(problem),
        }
    }
}

/// The digests of the blobs in the store. (That they are complete is checked when they are used.)
fn present(data: &DataDir) -> Vec<Digest> {
    let entries = std::fs::read_dir(data.path().join("images/blobs"));
    let names = entries.into_iter().flatten().flatten().map(|entry| entry.file_name());
    let digests = names.filter_map(|name| format!("sha256:{}", name.to_str()?).parse().ok());
    digests.take(MAX_PRESENT).collect()
}

/// Why a download was not taken.
enum Refused {
    Store(StoreError),
    Other(Problem),
}

impl From<StoreError> for Refused {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<Problem> for Refused {
    fn from(problem: Problem) -> Self {
        Self::Other(problem)
    }
}

/// Takes a download into the store. Nothing that the process wrote is trusted, only the digests.
fn take(store: &Store, staging: &Staging, pull: &Pull, digest: &Digest) -> Result<Image, Refused> {
    if let Some(wanted) = pull.reference.digest().filter(|wanted| *wanted != digest) {
        let message = format!("the download has the digest {digest}, not {wanted}");
        return Err(Problem::new(Code::ImageInvalid, message).into());
    }
    let named = document(staging, digest)?;
    let (mut manifest, mut index) = (named.clone(), None);
    for _ in 0..MAX_DEPTH {
        let Document::Index(list) = parse(&manifest)? else { break };
        let chosen = choose(&list, &pull.platform).ok_or_else(|| {
            let message = format!("the image does not exist for {}", pull.platform);
            Problem::new(Code::ImagePlatformMissing, message)
        })?;
        manifest = document(staging, &chosen.digest)?;
        index = Some(named.as_slice());
    }
    let Document::Manifest(parts) = parse(&manifest)? else {
        let message = format!("indexes are nested more than {MAX_DEPTH} times");
        return Err(Problem::new(Code::ImageInvalid, message).into());
    };
    let addition = store.start()?;
    for part in parts.parts() {
        if !addition.has_blob(&part.digest)? {
            add_blob(&addition, staging, &part.digest, part.size)?;
        }
    }
    Ok(addition.add(&pull.reference, Some(&pull.platform), &manifest, index)?)
}

fn parse(text: &[u8]) -> Result<Document, StoreError> {
    Ok(Document::parse(text, None)?)
}

/// A document of the download, with its digest checked.
fn document(staging: &Staging, digest: &Digest) -> Result<Vec<u8>, Refused> {
    let mut text = Vec::new();
    let file = open(staging, digest)?.ok_or_else(|| StoreError::MissingBlob(digest.clone()))?;
    let read = file.take(MAX_DOCUMENT_BYTES + 1).read_to_end(&mut text);
    read.map_err(|error| caused(Code::Io, &error))?;
    match Digest::of(&text) {
        found if found == *digest => Ok(text),
        found => Err(StoreError::Digest { expected: digest.clone(), found }.into()),
    }
}

fn add_blob(
    addition: &Addition<'_>,
    staging: &Staging,
    digest: &Digest,
    size: u64,
) -> Result<(), Refused> {
    // What the download did not write was said to be in the store.
    let Some(mut file) = open(staging, digest)? else {
        return Err(StoreError::MissingBlob(digest.clone()).into());
    };
    let mut writer = addition.write_blob(digest, size)?;
    io::copy(&mut file, &mut writer).map_err(|error| match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            Problem::new(Code::StorageFull, "there is no space for the image in the data directory")
                .because(error.to_string())
                .remedied_by("stockade image prune")
        }
        _ => caused(Code::Io, &error),
    })?;
    match writer.finish() {
        Ok(_) => {
            // It would take the space twice.
            let _ = std::fs::remove_file(staging.blob(digest));
            Ok(())
        }
        Err(error) => {
            // The next attempt downloads it again.
            let _ = std::fs::remove_file(staging.blob(digest));
            Err(error.into())
        }
    }
}

/// Opens a blob of the download, if it is a regular file.
fn open(staging: &Staging, digest: &Digest) -> Result<Option<File>, Problem> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let flags = i32::try_from(flags.bits()).unwrap_or_default();
    let opened = OpenOptions::new().read(true).custom_flags(flags).open(staging.blob(digest));
    match opened {
        Ok(file) if file.metadata().is_ok_and(|metadata| metadata.is_file()) => Ok(Some(file)),
        Ok(_) => Err(Problem::new(Code::ImageInvalid, format!("{digest} is not a regular file"))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(caused(Code::Io, &error)),
    }
}
