//! The servers elsewhere that runs name for their sandboxes: the runtime of such servers has the keys.

use async_trait::async_trait;
use stockade_api::ServerAccess;
use stockade_core::sandbox::ServerElsewhere;
use stockade_core::{Code, Problem};
use stockade_runtime_opensandbox::{Access, NamingError, OpenSandbox};
use stockade_workflow::engine::Servers;

/// The servers of the runs of a data directory.
#[derive(Debug)]
pub(crate) struct RunServers(pub(crate) OpenSandbox);

#[async_trait]
impl Servers for RunServers {
    async fn add(&self, server: ServerElsewhere, access: ServerAccess) -> Result<(), Problem> {
        let url = server.url.clone();
        let key = access.key.as_ref().map(|key| key.0.to_string());
        let authorities = access.authorities.map(Into::into);
        let added = self.0.name_server(server, &Access { key, authorities }).await;
        added.map_err(|error| match error {
            NamingError::Invalid(reason) => {
                let message = format!("the server {url} cannot be used");
                Problem::new(Code::InvalidInput, message)
                    .because(reason)
                    .remedied_by("--server https://HOST:PORT")
            }
            NamingError::Refused(reason) => {
                let message = format!("the server {url} needs a valid API key");
                Problem::new(Code::Unauthenticated, message)
                    .because(reason)
                    .remedied_by(format!("export STOCKADE_API_KEY=KEY, or: stockade login {url}"))
            }
            NamingError::Unreachable(reason) => {
                let message = format!("the server {url} cannot be reached");
                Problem::new(Code::Unreachable, message)
                    .because(reason)
                    .remedied_by(format!("curl {url}/health"))
            }
        })
    }

    fn copy(&self, from: &ServerElsewhere, to: ServerElsewhere) {
        self.0.copy_server(from, to);
    }

    fn knows(&self, server: &ServerElsewhere) -> bool {
        self.0.knows(server)
    }
}
