//! The settings of sandboxes from the environment of a server; `stockade serve --help` lists them.

use std::ffi::OsString;
use std::str::FromStr;
use std::time::Duration;

use stockade_core::{Code, Problem};
use stockade_service::{Options, Quotas};

/// The settings of sandboxes.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    /// How long an idle server waits before it exits.
    pub(crate) idle: Duration,
    /// The size of the pool of unused sandboxes.
    pub(crate) pool: usize,
    /// The options of the service.
    pub(crate) service: Options,
}

/// The default size of the pool.
const POOL: usize = 64;
/// The largest size.
const LARGEST_POOL: usize = 512;

impl Settings {
    /// The settings from the environment, or the defaults.
    ///
    /// # Errors
    /// [`Code::InvalidInput`] for a value that is not a number, or too large.
    pub(crate) fn from_environment(
        variable: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Self, Problem> {
        let default = Quotas::default();
        let quotas = Quotas {
            sandboxes: number(&variable, "STOCKADE_MAX_SANDBOXES", default.sandboxes)?,
            snapshots: number(&variable, "STOCKADE_MAX_SNAPSHOTS", default.snapshots)?,
        };
        let idle = number(&variable, "STOCKADE_SERVER_IDLE_SECONDS", 60_u32)?;
        let pool = number(&variable, "STOCKADE_POOL", POOL)?;
        if pool > LARGEST_POOL {
            let message = format!("STOCKADE_POOL is {pool}; the maximum is {LARGEST_POOL}");
            return Err(Problem::new(Code::InvalidInput, message)
                .remedied_by(format!("export STOCKADE_POOL={LARGEST_POOL}")));
        }
        let text = |name: &str| variable(name).and_then(|value| value.into_string().ok());
        let service = Options { quotas, ..Options::from_environment(text)? };
        Ok(Self { idle: Duration::from_secs(idle.into()), pool, service })
    }
}

fn number<T: FromStr>(
    variable: &impl Fn(&str) -> Option<OsString>,
    name: &str,
    default: T,
) -> Result<T, Problem> {
    let Some(text) = variable(name) else { return Ok(default) };
    let value = text.to_str().and_then(|text| text.parse().ok());
    value.ok_or_else(|| {
        Problem::new(Code::InvalidInput, format!("{name} is {text:?}, which is not a number"))
            .remedied_by(format!("unset {name}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(name: &'static str, value: &'static str) -> Result<Settings, Problem> {
        Settings::from_environment(|asked| (asked == name).then(|| value.into()))
    }

    #[test]
    fn settings_are_numbers_or_refused() {
        let default = settings("", "").unwrap();
        assert_eq!((default.pool, default.idle), (POOL, Duration::from_secs(60)));
        assert_eq!(settings("STOCKADE_POOL", "0").unwrap().pool, 0);
        let quotas = settings("STOCKADE_MAX_SANDBOXES", "3").unwrap().service.quotas;
        assert_eq!((quotas.sandboxes, quotas.snapshots), (3, 1000));
        for (name, value) in [
            ("STOCKADE_POOL", "513"),
            ("STOCKADE_POOL", "many"),
            ("STOCKADE_MAX_SNAPSHOTS", "-1"),
            ("STOCKADE_SERVER_IDLE_SECONDS", ""),
            ("DBOS_SANDBOX_QUEUE_CONCURRENCY", "0"),
        ] {
            let refused = settings(name, value).unwrap_err();
            assert_eq!(refused.code, Code::InvalidInput, "{name}={value}");
            assert!(refused.message.contains(name), "{}", refused.message);
        }
    }
}
