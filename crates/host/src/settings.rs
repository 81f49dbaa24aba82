//! The settings of sandboxes from the environment of a server; `stockade serve --help` lists them.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use stockade_core::{Code, Problem};
use stockade_image::Reference;
use stockade_server::cluster::ClusterSecret;
use stockade_service::{Options, Quotas};

use crate::vault_key;

/// The settings of sandboxes.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    /// How long an idle server waits before it exits.
    pub(crate) idle: Duration,
    /// The size of the pool of unused sandboxes.
    pub(crate) pool: usize,
    /// The directories of the host of which a `<Sandbox>` may mount what lies in them, if not all. A
    /// client with an API key may name no others in any case.
    pub(crate) host_paths: Option<Vec<PathBuf>>,
    /// The PostgreSQL database with the records, instead of a file in the data directory. Only
    /// `serve` has one.
    pub(crate) database_url: Option<String>,
    /// The secret of the cluster that the server is part of.
    pub(crate) cluster_secret: Option<ClusterSecret>,
    /// The options of the service.
    pub(crate) service: Options,
}

/// The variable of [`Settings::host_paths`].
const HOST_PATHS: &str = "STOCKADE_HOST_PATHS";
/// The variable of [`Options::registries`].
const REGISTRIES: &str = "STOCKADE_REGISTRIES";
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
        let host_paths = variable(HOST_PATHS).as_deref().map(host_paths).transpose()?;
        let registries = text(REGISTRIES).map(|list| registries(&list)).transpose()?;
        let service = Options {
            quotas,
            host_paths: host_paths.clone().unwrap_or_default(),
            registries: registries.unwrap_or_default(),
            vault_key: vault_key::from_environment(&variable).map(|source| Arc::new(source) as _),
            ..Options::from_environment(text)?
        };
        Ok(Self {
            idle: Duration::from_secs(idle.into()),
            pool,
            host_paths,
            database_url: None,
            cluster_secret: None,
            service,
        })
    }

    /// The settings of a server that other hosts reach: nothing of this host is shared unless a
    /// setting says so.
    #[must_use]
    pub(crate) fn for_exposed_server(self) -> Self {
        let host_paths = Some(self.host_paths.unwrap_or_default());
        Self { host_paths, service: self.service.for_exposed_server(), ..self }
    }
}

/// A list of registries, separated by commas, as they are named in references.
fn registries(list: &str) -> Result<BTreeSet<String>, Problem> {
    let names = list.split(',').map(str::trim).filter(|name| !name.is_empty());
    let registry = |name: &str| {
        let read = format!("{name}/image").parse::<Reference>();
        // A name without a dot or port would be the first part of a path at the default registry.
        let named = read.ok().filter(|reference| reference.registry() == name);
        named.map(|_| name.to_owned()).ok_or_else(|| {
            Problem::new(
                Code::InvalidInput,
                format!("{REGISTRIES} has {name:?}, which names no registry"),
            )
            .remedied_by(format!("export {REGISTRIES}=docker.io,ghcr.io"))
        })
    };
    names.map(registry).collect()
}

/// A list of directories, separated as in `PATH`. An empty one allows nothing.
fn host_paths(list: &OsStr) -> Result<Vec<PathBuf>, Problem> {
    let paths = std::env::split_paths(list).filter(|path| !path.as_os_str().is_empty());
    let paths: Vec<_> = paths.collect();
    match paths.iter().find(|path| !path.is_absolute()) {
        None => Ok(paths),
        Some(path) => {
            let message = format!("{HOST_PATHS} has {}, which is not absolute", path.display());
            Err(Problem::new(Code::InvalidInput, message)
                .remedied_by(format!("export {HOST_PATHS}=/srv/data")))
        }
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
    fn paths_of_the_host_are_a_list_of_absolute_ones() {
        assert_eq!(settings("", "").unwrap().host_paths, None);
        assert_eq!(settings(HOST_PATHS, "").unwrap().host_paths, Some(Vec::new()));
        let two = settings(HOST_PATHS, "/a:/b").unwrap().host_paths;
        assert_eq!(two, Some(vec!["/a".into(), "/b".into()]));
        assert!(settings(HOST_PATHS, "/a:b").is_err());
    }

    #[test]
    fn registries_are_a_list_of_hosts() {
        let read = |list| settings(REGISTRIES, list).map(|it| it.service.registries);
        assert!(settings("", "").unwrap().service.registries.is_empty());
        let two = ["docker.io".to_owned(), "localhost:5000".to_owned()];
        assert_eq!(read("docker.io, localhost:5000,").unwrap(), two.into());
        for bad in ["library", "https://example.com", "docker.io/library", "*"] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn an_exposed_server_shares_nothing_of_its_host() {
        let exposed = settings("", "").unwrap().for_exposed_server();
        assert_eq!(exposed.host_paths, Some(Vec::new()));
        assert!(exposed.service.private_base && exposed.service.host_paths.is_empty());
        let allowed = settings(HOST_PATHS, "/a").unwrap().for_exposed_server();
        assert_eq!(allowed.service.host_paths, allowed.host_paths.unwrap());
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
