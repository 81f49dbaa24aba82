//! Everything that the listener over TCP serves, and from the same routes the OpenAPI document: the dialect of
//! OpenSandbox, that of E2B, that of Stockade's own clients, MCP, and the playground. `web` adds the host names of ports.

use std::fmt;
use std::sync::Arc;

use axum::{Router, middleware};
use serde_json::Value;
use stockade_api::wire::TCP_PREFIX;
use stockade_api::{PortAccess, PortSite};
use tokio::sync::watch;

use crate::admission::Admission;
use crate::auth::HttpAuth;
use crate::cluster::{self, Cluster};
use crate::code::Engine;
use crate::failure::unknown;
use crate::handover::Handover;
use crate::observe::{Watch, observe};
use crate::openapi::{Api, describe_operations, document};
use crate::opensandbox::Pool;
use crate::tcp::{Allowed, AllowedHosts, AllowedOrigins, guard, share};
use crate::web::playground;
use crate::{e2b, local, mcp, opensandbox, web};

/// What the listener serves under the names of the server.
pub struct Backend {
    /// The operations for Stockade's own clients.
    pub operations: local::Operations,
    /// The decisions about ports of sandboxes.
    pub ports: Arc<dyn PortAccess>,
    /// The tools for agents.
    pub offer: mcp::Offer,
    /// What runs the snippets of the playground.
    pub snippets: Arc<dyn mcp::Snippets>,
    /// Determines the callers.
    pub auth: Arc<HttpAuth>,
    /// The names of the server.
    pub hosts: AllowedHosts,
    /// The origins whose pages may use it.
    pub origins: AllowedOrigins,
    /// The host names of ports.
    pub site: PortSite,
    /// Whether ports of sandboxes of E2B's clients need no token by default.
    pub has_public_ports: bool,
    /// Sees each request.
    pub watch: Watch,
    /// What the other servers of the cluster are served, if there is one.
    pub cluster: Option<Cluster>,
    /// The pool of sandboxes that are started in advance.
    pub pool: Pool,
    /// Becomes true when the server stops.
    pub stop: watch::Receiver<bool>,
}

impl fmt::Debug for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Backend").finish_non_exhaustive()
    }
}

/// Everything that is served from these operations.
pub fn routes(served: Backend) -> web::Served {
    let (origins, watch) = (served.origins.clone(), served.watch.clone());
    let allowed = Allowed { hosts: served.hosts.clone(), origins: origins.clone() };
    let code = Engine::default();
    let app = served.e2b(code.clone());
    let handover = served.cluster.as_ref().map(|cluster| {
        let (hosts, secret) = (Arc::clone(&cluster.hosts), cluster.secret.clone());
        Handover::new(hosts, secret, cluster.host.clone())
    });
    let others = served.cluster.clone().map(cluster::routes);
    let (routes, _) = api(Some((served.into_parts(code), app.clone()))).into_parts();
    let routes = others.into_iter().fold(routes, Router::merge);
    let by_header =
        |router: Router| router.layer(middleware::from_fn_with_state(app.clone(), e2b::by_header));
    let main = by_header(routes)
        .layer(middleware::from_fn_with_state(allowed, guard))
        .layer(middleware::from_fn_with_state(watch, observe));
    let (own, _) = e2b::api(Some(app.clone())).fallback(unknown).into_parts();
    let e2b = by_header(own).layer(middleware::from_fn_with_state(origins, share));
    web::Served { main, e2b, handover }
}

/// The OpenAPI document of all routes.
pub fn openapi() -> Value {
    let (_, operations) = api(None).into_parts();
    let mut document = document(&operations);
    describe_operations(&mut document);
    document
}

/// All routes; without anything to serve only for the document.
fn api(served: Option<(Parts, e2b::App)>) -> Api {
    let (parts, app) = served.unzip();
    let (main, own, tools, snippets) = match parts {
        Some((main, own, tools, snippets)) => (Some(main), Some(own), Some(tools), Some(snippets)),
        None => (None, None, None, None),
    };
    opensandbox::api(main)
        .merge(e2b::api(app))
        .merge(mcp::api(tools))
        .merge(playground::api(snippets))
        .nest(TCP_PREFIX, local::api(own))
        .list("", web::operations())
        .fallback(unknown)
}

/// What each part serves.
type Parts = (
    opensandbox::Backend,
    (local::Operations, Admission),
    mcp::Backend,
    (Arc<dyn mcp::Snippets>, Admission),
);

impl Backend {
    fn e2b(&self, code: Engine) -> e2b::App {
        let (sandboxes, ports) = (&self.operations.sandboxes, &self.ports);
        e2b::App::new(e2b::Backend {
            sandboxes: Arc::clone(sandboxes),
            ports: Arc::clone(ports),
            auth: Arc::clone(&self.auth),
            watch: self.watch.clone(),
            site: self.site.clone(),
            has_public_ports: self.has_public_ports,
            code,
            is_clustered: self.cluster.is_some(),
        })
    }

    fn into_parts(self, code: Engine) -> Parts {
        let Self {
            operations,
            ports,
            offer,
            snippets,
            auth,
            hosts: _,
            origins: _,
            site: _,
            has_public_ports: _,
            watch,
            cluster: _,
            pool,
            stop,
        } = self;
        let admission = Admission::new(Arc::clone(&auth), watch.clone());
        let sandboxes = Arc::clone(&operations.sandboxes);
        let main = opensandbox::Backend { sandboxes, ports, auth, watch, code, pool };
        let tools = mcp::Backend { offer, admission: admission.clone(), stop };
        (main, (operations, admission.clone()), tools, (snippets, admission))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::json;

    use super::*;

    /// The variable that makes the test write the document.
    const WRITE: &str = "STOCKADE_WRITE_OPENAPI";

    #[test]
    fn the_document_is_that_of_the_routes() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/openapi.json");
        let current = serde_json::to_string_pretty(&openapi()).unwrap() + "\n";
        if std::env::var_os(WRITE).is_some() {
            std::fs::write(&path, &current).unwrap();
        }
        let stored = std::fs::read_to_string(&path).unwrap_or_default();
        let is_same = stored == current;
        assert!(is_same, "docs/openapi.json is older than the routes; write it with {WRITE}=1");
    }

    #[test]
    fn only_pages_health_and_version_are_open() {
        let document = openapi();
        let mut open = Vec::new();
        let mut ids = std::collections::BTreeSet::new();
        for (path, methods) in document["paths"].as_object().unwrap() {
            for (method, operation) in methods.as_object().unwrap() {
                if operation["security"] == json!([]) {
                    open.push(format!("{method} {path}"));
                }
                let id = operation["operationId"].as_str().unwrap();
                assert!(ids.insert(id.to_owned()), "{id} names two operations");
            }
        }
        let expected = [
            "get /auth/authorize",
            "get /health",
            "get /playground",
            "get /playground/{file}",
            "get /run",
            "get /version",
        ];
        assert_eq!(open, expected);
        // Those of the ports that the server itself serves are in it, too.
        for path in [
            "/v1/sandboxes",
            "/v1/sandboxes/{id}/proxy/{port}/{path}",
            "/v1/sandboxes/{id}/proxy/44772/files/upload",
            "/v1/sandboxes/{id}/proxy/44772/v1/isolated/session/{session}/files/download",
            "/v1/sandboxes/{id}/proxy/44772/v1/filesystem/{uid}/{gid}/files",
            "/v1/sandboxes/{id}/proxy/18080/policy",
            "/stockade/v0/call/{operation}",
            "/mcp",
            "/api/sandbox",
            "/.stockade/open",
            "/v2/sandboxes/{id}/connect",
            "/process.Process/Start",
            "/files",
            "/execute",
        ] {
            assert!(document["paths"][path].is_object(), "{path}");
        }
    }
}
