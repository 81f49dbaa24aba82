//! What a server takes from its environment; `stockade serve --help` lists it.

use std::str::FromStr;
use std::time::Duration;

use stockade_core::{Code, Problem};
use stockade_service::Quotas;

/// How a server is set up.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Settings {
    /// How long a server that holds nothing waits for somebody.
    pub(crate) idle: Duration,
    /// What one owner may have.
    pub(crate) quotas: Quotas,
}

impl Settings {
    /// The settings that the environment has, else the usual ones.
    ///
    /// # Errors
    /// [`Code::InvalidInput`] for a value that is no number.
    pub(crate) fn from_environment() -> Result<Self, Problem> {
        let usual = Quotas::default();
        let quotas = Quotas {
            sandboxes: number("STOCKADE_MAX_SANDBOXES", usual.sandboxes)?,
            snapshots: number("STOCKADE_MAX_SNAPSHOTS", usual.snapshots)?,
        };
        let idle = Duration::from_secs(number("STOCKADE_SERVER_IDLE_SECONDS", 60_u32)?.into());
        Ok(Self { idle, quotas })
    }
}

fn number<T: FromStr>(name: &str, usual: T) -> Result<T, Problem> {
    let Some(text) = std::env::var_os(name) else { return Ok(usual) };
    let value = text.to_str().and_then(|text| text.parse().ok());
    value.ok_or_else(|| {
        Problem::new(Code::InvalidInput, format!("{name} is {text:?}, which is no number"))
            .remedied_by(format!("unset {name}"))
    })
}
