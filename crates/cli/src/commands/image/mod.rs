//! `stockade image`: images in the store.

mod export;
mod import;
mod inspect;
mod list;
mod prune;
mod pull;
mod remove;
mod used;

use stockade_bundle::data::DataDir;
use stockade_core::{Code, Problem};
use stockade_image::{Digest, Record, Reference, Store};

use crate::args::image::{Image, ImageCommand};
use crate::data_dir::{data_path, open_data_dir};
use crate::problem::Failure;
use crate::registry;

/// How many digits of an id are printed.
const ID_DIGITS: usize = 12;

/// Runs the command.
pub(crate) fn run(arguments: Image) -> Result<u8, Failure> {
    match arguments.command {
        ImageCommand::Pull(arguments) => pull::run(&arguments),
        ImageCommand::Ls(arguments) => list::run(&arguments),
        ImageCommand::Rm(arguments) => remove::run(&arguments),
        ImageCommand::Inspect(arguments) => inspect::run(&arguments),
        ImageCommand::Import(arguments) => import::run(&arguments),
        ImageCommand::Export(arguments) => export::run(&arguments),
        ImageCommand::Prune(arguments) => prune::run(&arguments),
    }
}

/// The data directory and its store.
fn open() -> Result<(DataDir, Store), Problem> {
    let data = open_data_dir(&data_path()?)?;
    let store = registry::store(&data)?;
    Ok((data, store))
}

/// The records that a name or an id means, of all platforms: an id is the start of the digest of
/// a configuration, as Docker shows it, or of a manifest.
fn find(store: &Store, text: &str) -> Result<Vec<Record>, Problem> {
    let records = store.list().map_err(|error| registry::store_problem(&error))?;
    if let Ok(reference) = text.parse::<Reference>() {
        let named: Vec<_> =
            records.iter().filter(|record| record.answers(&reference)).cloned().collect();
        if !named.is_empty() {
            return Ok(named);
        }
    }
    let digits = text.strip_prefix("sha256:").unwrap_or(text);
    let is_id = digits.len() >= 4 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    let fits = |digest: &Digest| is_id && digest.hex().starts_with(digits);
    let mut found: Vec<_> = records
        .into_iter()
        .filter(|record| fits(&record.configuration) || fits(&record.digest))
        .collect();
    let first = found.first().map(|record| record.configuration.clone());
    if found.iter().any(|record| Some(&record.configuration) != first.as_ref()) {
        found.clear();
        let message = format!("several images have an id that starts with {digits}");
        return Err(
            Problem::new(Code::InvalidInput, message).remedied_by("stockade image ls --no-trunc")
        );
    }
    if found.is_empty() {
        return Err(registry::missing(&registry::reference(text)?));
    }
    Ok(found)
}

/// The start of a digest, as people see it.
fn short(digest: &Digest) -> &str {
    &digest.hex()[..ID_DIGITS]
}
