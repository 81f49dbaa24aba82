//! Small files that a user names, in TOML or JSON.

use std::io::Read as _;
use std::path::Path;

use serde::de::DeserializeOwned;

/// The longest file, in bytes.
const MAX_BYTES: u64 = 1 << 20;

/// Why a file was not read.
#[derive(Debug)]
pub(crate) enum Error {
    /// It cannot be read, or is too large.
    Read(String),
    /// Its content has another form.
    Parse(String),
}

/// The content of a file.
///
/// # Errors
/// [`Error`], with the cause as text.
pub(crate) fn read<T: DeserializeOwned>(path: &Path) -> Result<T, Error> {
    let unreadable = |error: std::io::Error| Error::Read(error.to_string());
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(unreadable)?;
    file.take(MAX_BYTES + 1).read_to_string(&mut text).map_err(unreadable)?;
    if text.len() as u64 > MAX_BYTES {
        return Err(Error::Read(format!("it is larger than {MAX_BYTES} bytes")));
    }
    let parsed = if text.trim_start().starts_with('{') {
        serde_json::from_str(&text).map_err(|error| error.to_string())
    } else {
        toml::from_str(&text).map_err(|error| error.to_string())
    };
    parsed.map_err(Error::Parse)
}
