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
    /// How many never-used sandboxes are kept ready.
    pub(crate) pool: usize,
}

/// How many never-used sandboxes are kept ready where nobody says how many.
const POOL: usize = 64;
/// The most.
const LARGEST_POOL: usize = 512;

impl Settings {
    /// The settings that the environment has, else the usual ones.
    ///
    /// # Errors
    /// [`Code::InvalidInput`] for a value that is no number, or too large.
    pub(crate) fn from_environment() -> Result<Self, Problem> {
        let usual = Quotas::default();
        let quotas = Quotas {
            sandboxes: number("STOCKADE_MAX_SANDBOXES", usual.sandboxes)?,
            snapshots: number("STOCKADE_MAX_SNAPSHOTS", usual.snapshots)?,
        };
        let idle = Duration::from_secs(number("STOCKADE_SERVER_IDLE_SECONDS", 60_u32)?.into());
        let pool = number("STOCKADE_POOL", POOL)?;
        if pool > LARGEST_POOL {
            let message = format!("STOCKADE_POOL is {pool}, and at most {LARGEST_POOL} wait");
            return Err(Problem::new(Code::InvalidInput, message)
                .remedied_by(format!("export STOCKADE_POOL={LARGEST_POOL}")));
        }
        Ok(Self { idle, quotas, pool })
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
