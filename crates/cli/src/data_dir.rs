//! Where the data directory is, and opening it.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use stockade_bundle::data::DataDir;
use stockade_core::{Code, Problem};

use crate::problem::caused;

/// The directory that the command line names.
static CHOSEN: OnceLock<PathBuf> = OnceLock::new();

/// Uses a directory instead of the configured one.
///
/// # Errors
/// [`Code::Io`] if the current directory cannot be determined.
pub fn choose(path: &Path) -> Result<(), Problem> {
    let path = std::path::absolute(path).map_err(|error| caused(Code::Io, &error))?;
    // It is chosen once, before any command runs.
    let _ = CHOSEN.set(path);
    Ok(())
}

/// The directory of views and bundles: `$STOCKADE_DATA_DIR`, else `$XDG_DATA_HOME/stockade`,
/// else `~/.local/share/stockade`.
pub fn data_path() -> Result<PathBuf, Problem> {
    if let Some(path) = configured_data_path()? {
        return Ok(path);
    }
    // A path that is not absolute is ignored (XDG Base Directory Specification).
    let named = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
    named("XDG_DATA_HOME")
        .map(|base| base.join("stockade"))
        .or_else(|| named("HOME").map(|home| home.join(".local/share/stockade")))
        .ok_or_else(|| {
            Problem::new(Code::InvalidInput, "no data directory is configured")
                .because("neither STOCKADE_DATA_DIR, XDG_DATA_HOME nor HOME is an absolute path")
                .remedied_by("export STOCKADE_DATA_DIR=/var/lib/stockade")
        })
}

/// The directory that the command line names.
#[must_use]
pub fn chosen_data_path() -> Option<PathBuf> {
    CHOSEN.get().cloned()
}

/// The directory that the command line names, else the value of `$STOCKADE_DATA_DIR`, if it is set.
///
/// # Errors
/// [`Code::InvalidInput`] for a path that is not absolute: it would mean a different directory
/// for each working directory.
pub fn configured_data_path() -> Result<Option<PathBuf>, Problem> {
    if let Some(chosen) = CHOSEN.get() {
        return Ok(Some(chosen.clone()));
    }
    let named = std::env::var_os("STOCKADE_DATA_DIR").filter(|named| !named.is_empty());
    let Some(path) = named.map(PathBuf::from) else { return Ok(None) };
    if path.is_absolute() {
        return Ok(Some(path));
    }
    let message = format!("STOCKADE_DATA_DIR is {}, which is not an absolute path", path.display());
    let whole = std::path::absolute(&path).unwrap_or_else(|_| path.clone());
    Err(Problem::new(Code::InvalidInput, message)
        .remedied_by(format!("export STOCKADE_DATA_DIR={}", whole.display())))
}

/// Opens a data directory, before anything in it is used. It is created if it does not exist.
///
/// # Errors
/// [`Code::Io`] for one that cannot be used, or that other users own or can change.
pub fn open_data_dir(path: &Path) -> Result<DataDir, Problem> {
    DataDir::open(path).map_err(|error| data_problem(&error))
}

/// Opens a data directory if it exists.
///
/// # Errors
/// As [`open_data_dir`].
pub fn find_data_dir(path: &Path) -> Result<Option<DataDir>, Problem> {
    DataDir::find(path).map_err(|error| data_problem(&error))
}

fn data_problem(error: &stockade_bundle::data::Error) -> Problem {
    let problem = caused(Code::Io, error);
    match error.hint() {
        Some(hint) => problem.remedied_by(hint),
        None => problem,
    }
}
