//! A data directory that no server uses, for commands that need all of it to themselves.

use std::fs::File;
use std::os::fd::AsFd as _;
use std::path::Path;

use stockade_bundle::data::DataDir;
use stockade_cli::data_dir::find_data_dir;
use stockade_client::ServerDirectory;
use stockade_core::{Code, Problem};

use crate::takeover::end_server_on_demand;

/// The variable of [`crate::settings::Settings::database_url`].
const DATABASE_URL: &str = "STOCKADE_DATABASE_URL";

/// An open data directory. While this value lives, no server starts on it.
#[derive(Debug)]
pub(crate) struct Offline {
    pub(crate) data: DataDir,
    _lock: File,
}

impl Offline {
    /// Opens a data directory. A server that a command has started on demand is ended.
    ///
    /// # Errors
    /// [`Code::NotFound`] if there is none, [`Code::Conflict`] if a server uses it.
    pub(crate) async fn open(path: &Path) -> Result<Self, Problem> {
        let Some(data) = find_data_dir(path)? else {
            let message = format!("there is no data directory {}", path.display());
            return Err(Problem::new(Code::NotFound, message)
                .remedied_by("export STOCKADE_DATA_DIR=DIRECTORY"));
        };
        let directory = ServerDirectory::open(data.as_fd(), path)?;
        let mut lock = directory.lock()?;
        if lock.is_none() && end_server_on_demand(path).await? {
            lock = directory.lock()?;
        }
        match lock {
            Some(lock) => Ok(Self { data, _lock: lock }),
            None => Err(Problem::new(Code::Conflict, "a server uses this data directory")
                .because(path.display().to_string())
                .remedied_by("stop the server, and retry")),
        }
    }
}

/// The database of the environment, if it names one.
///
/// # Errors
/// [`Code::InvalidInput`] if it is not text.
pub(crate) fn database_url() -> Result<Option<String>, Problem> {
    match std::env::var(DATABASE_URL) {
        Ok(url) if url.is_empty() => Ok(None),
        Ok(url) => Ok(Some(url)),
        Err(std::env::VarError::NotPresent) => Ok(None),
        Err(std::env::VarError::NotUnicode(_)) => {
            Err(Problem::new(Code::InvalidInput, format!("{DATABASE_URL} is not text"))
                .remedied_by(format!("unset {DATABASE_URL}")))
        }
    }
}
