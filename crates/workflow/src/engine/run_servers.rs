//! The servers elsewhere that runs have named for their sandboxes. The URL is in the environment of a run;
//! the API key is in the memory of this process only: after its end it is given again, with `stockade resume`.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use stockade_api::ServerAccess;
use stockade_api::variables::SERVER;
use stockade_core::sandbox::ServerElsewhere;
use stockade_core::{Code, Problem};
use tokio::sync::watch;

use super::commands::no_executor;

/// The servers elsewhere that the sandboxes of runs can be created at.
#[async_trait]
pub trait Servers: Debug + Send + Sync {
    /// Lets a run use a server, once the server has accepted the key.
    ///
    /// # Errors
    /// [`Code::InvalidInput`] for a URL or key that cannot be one, [`Code::Unauthenticated`] where the
    /// server refuses the key, [`Code::Unreachable`] where it does not answer.
    async fn add(&self, server: ServerElsewhere, access: ServerAccess) -> Result<(), Problem>;

    /// Lets a run use the server of another one with the key of that, if this process has it.
    fn copy(&self, from: &ServerElsewhere, to: ServerElsewhere);

    /// Whether this process has the key.
    fn knows(&self, server: &ServerElsewhere) -> bool;
}

/// The servers of the runs of an engine.
#[derive(Debug)]
pub(super) struct RunServers {
    servers: Option<Arc<dyn Servers>>,
    /// Changes with each key that is given.
    given: watch::Sender<()>,
    /// How many runs wait for a key.
    waiting: AtomicU64,
}

/// Counts a run as long as it waits for a key.
struct Waiting<'a>(&'a AtomicU64);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl RunServers {
    pub(super) fn new(servers: Option<Arc<dyn Servers>>) -> Self {
        Self { servers, given: watch::Sender::new(()), waiting: AtomicU64::default() }
    }

    /// Lets a run use its server.
    ///
    /// # Errors
    /// As [`Servers::add`]; [`Code::Unsupported`] where there are no sandboxes.
    pub(super) async fn add(&self, run: &str, access: ServerAccess) -> Result<(), Problem> {
        let servers = self.servers.as_ref().ok_or_else(no_executor)?;
        servers.add(named(run, &access.url), access).await?;
        self.given.send_replace(());
        Ok(())
    }

    /// Lets a run use the server of another one, if this process has the key.
    pub(super) fn copy(&self, from: &str, to: &str, environment: &BTreeMap<String, String>) {
        if let (Some(servers), Some(url)) = (&self.servers, of(environment)) {
            servers.copy(&named(from, url), named(to, url));
        }
    }

    /// Lets a run that exists use its server, with the access that is given again, if it is.
    ///
    /// # Errors
    /// [`Code::InvalidInput`] for another server, and what [`Self::missing`] says.
    pub(super) async fn renew(
        &self,
        run: &str,
        environment: &BTreeMap<String, String>,
        access: Option<ServerAccess>,
    ) -> Result<(), Problem> {
        match (access, of(environment)) {
            (Some(access), Some(url)) if access.url == url => self.add(run, access).await,
            (Some(access), own) => {
                let own = own.unwrap_or("this machine");
                let message =
                    format!("the sandboxes of run {run} are on {own}, not on {}", access.url);
                Err(Problem::new(Code::InvalidInput, message)
                    .because("a run keeps using the server that it was started with")
                    .remedied_by(format!("stockade resume {run}")))
            }
            (None, _) => self.missing(run, environment).map_or(Ok(()), Err),
        }
    }

    /// What is missing so that a run can use its server; `None` if nothing is.
    pub(super) fn missing(
        &self,
        run: &str,
        environment: &BTreeMap<String, String>,
    ) -> Option<Problem> {
        let url = of(environment)?;
        if self.servers.as_ref().is_some_and(|servers| servers.knows(&named(run, url))) {
            return None;
        }
        let message = format!("run {run} needs the API key of {url}, which holds its sandboxes");
        Some(
            Problem::new(Code::Unauthenticated, message)
                .because("a key is stored with no run, and the process that had it has ended")
                .remedied_by(format!("STOCKADE_API_KEY=KEY stockade resume {run}")),
        )
    }

    /// Waits until a run can use its server.
    pub(super) async fn wait(&self, run: &str, environment: &BTreeMap<String, String>) {
        let mut given = self.given.subscribe();
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let _waiting = Waiting(&self.waiting);
        while self.missing(run, environment).is_some() {
            // The sender lives as long as this.
            let _ = given.changed().await;
        }
    }

    /// How many runs wait for a key.
    pub(super) fn waiting(&self) -> u64 {
        self.waiting.load(Ordering::Relaxed)
    }
}

/// The URL of the server of a run with this environment.
pub(super) fn of(environment: &BTreeMap<String, String>) -> Option<&str> {
    environment.get(SERVER).map(String::as_str)
}

/// The server of a run, or of a child of it.
pub(super) fn named(run: &str, url: &str) -> ServerElsewhere {
    let root = run.split(":child:").next().unwrap_or(run);
    ServerElsewhere { url: url.to_owned(), run: root.to_owned() }
}

/// Refuses an environment that would name a server without its key.
///
/// # Errors
/// [`Code::InvalidInput`].
pub(super) fn check_environment(environment: &BTreeMap<String, String>) -> Result<(), Problem> {
    if !environment.contains_key(SERVER) {
        return Ok(());
    }
    Err(Problem::new(Code::InvalidInput, format!("the variable {SERVER} cannot be set"))
        .because("it has the URL of the server of a run")
        .remedied_by("stockade up FILE --server URL"))
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::time::Duration;

    use super::*;
    use crate::sync::lock;

    #[derive(Debug, Default)]
    struct Known(Mutex<Vec<ServerElsewhere>>);

    #[async_trait]
    impl Servers for Known {
        async fn add(&self, server: ServerElsewhere, _: ServerAccess) -> Result<(), Problem> {
            lock(&self.0).push(server);
            Ok(())
        }

        fn copy(&self, from: &ServerElsewhere, to: ServerElsewhere) {
            let mut known = lock(&self.0);
            if known.contains(from) {
                known.push(to);
            }
        }

        fn knows(&self, server: &ServerElsewhere) -> bool {
            lock(&self.0).contains(server)
        }
    }

    fn environment(url: &str) -> BTreeMap<String, String> {
        BTreeMap::from([(SERVER.to_owned(), url.to_owned())])
    }

    fn access(url: &str) -> ServerAccess {
        ServerAccess { url: url.to_owned(), key: None, authorities: None }
    }

    #[tokio::test]
    async fn a_run_waits_until_its_own_key_is_given() {
        let servers = RunServers::new(Some(Arc::new(Known::default())));
        let own = environment("http://a");
        assert!(servers.missing("r", &BTreeMap::new()).is_none());
        let missing = servers.renew("r", &own, None).await.unwrap_err();
        assert_eq!(missing.code, Code::Unauthenticated);
        assert!(missing.remediation.unwrap().contains("STOCKADE_API_KEY"));
        let other = servers.renew("r", &own, Some(access("http://b"))).await.unwrap_err();
        assert_eq!(other.code, Code::InvalidInput);
        servers.add("other", access("http://a")).await.unwrap();
        let waits = servers.wait("r:child:x", &own);
        let mut waits = std::pin::pin!(waits);
        let early = tokio::time::timeout(Duration::from_millis(20), &mut waits).await;
        assert!(early.is_err() && servers.waiting() == 1);
        servers.renew("r", &own, Some(access("http://a"))).await.unwrap();
        tokio::time::timeout(Duration::from_secs(5), waits).await.unwrap();
        assert_eq!(servers.waiting(), 0);
        servers.renew("r", &own, None).await.unwrap();
        servers.copy("r", "r.2", &own);
        servers.copy("unknown", "r.3", &own);
        assert!(servers.missing("r.2", &own).is_none() && servers.missing("r.3", &own).is_some());
    }

    #[test]
    fn nobody_sets_the_variable() {
        assert!(check_environment(&BTreeMap::new()).is_ok());
        assert!(check_environment(&environment("http://a")).is_err());
    }
}
