//! The routes of the server, and from the same list the OpenAPI document: a route that is served is in the
//! document, with what authenticates its requests.
//!
//! [`Api`] has the methods of axum's `Router` that the dialects use, and the functions of this module those
//! of `axum::routing`. Each part of the routes names once what authenticates its requests.

mod document;
mod methods;
mod own;

use axum::Router;
use axum::handler::Handler;
use methods::Description;

pub(crate) use document::document;
pub(crate) use methods::{Methods, any, delete, get, patch, post, put, service};
pub(crate) use own::describe_operations;

/// What authenticates the requests to a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Security {
    /// Nothing does.
    None,
    /// An API key; the user of the server needs none as long as there are no keys.
    Key,
    /// The same with the admin scope.
    Admin,
    /// The access token for a port of a sandbox, in this header.
    Token(&'static str),
    /// The token for the content of a volume, as a bearer token.
    Volume,
    /// The session of a browser with a port, or its access token.
    Session,
    /// A code that is used once, in the query.
    Code,
}

/// The host name under which a route is served.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Site {
    /// That of the server.
    #[default]
    Server,
    /// That of a port of a sandbox.
    Port,
}

/// An operation of the document.
#[derive(Debug, Clone)]
pub(crate) struct Operation {
    pub(crate) path: String,
    pub(crate) method: &'static str,
    pub(crate) security: Security,
    pub(crate) site: Site,
    pub(crate) description: methods::Description,
}

impl Operation {
    /// A route that is served by its host name, or without a router.
    pub(crate) fn new(
        method: &'static str,
        path: &str,
        security: Security,
        site: Site,
        name: &str,
    ) -> Self {
        let description = Description { name: name.to_owned(), ..Description::default() };
        Self { path: path.to_owned(), method, security, site, description }
    }
}

/// Routes, and what the document says about them.
#[derive(Debug)]
pub(crate) struct Api<S = ()> {
    router: Router<S>,
    security: Security,
    operations: Vec<Operation>,
}

impl<S: Clone + Send + Sync + 'static> Api<S> {
    /// Without routes. The requests to those that are added are authenticated in this way.
    pub(crate) fn new(security: Security) -> Self {
        Self { router: Router::new(), security, operations: Vec::new() }
    }

    /// Adds a route.
    pub(crate) fn route(mut self, path: &str, methods: Methods<S>) -> Self {
        let (router, descriptions) = methods.into_parts();
        self.router = self.router.route(path, router);
        let security = self.security;
        self.operations.extend(descriptions.into_iter().map(|(method, description)| Operation {
            path: path.replace("{*path}", "{path}"),
            method,
            security,
            site: Site::Server,
            description,
        }));
        self
    }

    /// Adds routes that have their own authentication.
    pub(crate) fn merge(mut self, other: Self) -> Self {
        self.router = self.router.merge(other.router);
        self.operations.extend(other.operations);
        self
    }

    /// Adds routes below a path.
    pub(crate) fn nest(mut self, path: &str, other: Self) -> Self {
        self.router = self.router.nest(path, other.router);
        self.operations.extend(
            other.operations.into_iter().map(|operation| Operation {
                path: format!("{path}{}", operation.path),
                ..operation
            }),
        );
        self
    }

    /// Lists routes below a path that another handler serves.
    pub(crate) fn list(mut self, path: &str, operations: Vec<Operation>) -> Self {
        self.operations.extend(
            operations.into_iter().map(|operation| Operation {
                path: format!("{path}{}", operation.path),
                ..operation
            }),
        );
        self
    }

    /// The answer to a path that is no route.
    pub(crate) fn fallback<H, T>(mut self, handler: H) -> Self
    where
        H: Handler<T, S>,
        T: 'static,
    {
        self.router = self.router.fallback(handler);
        self
    }

    /// The answer to a method that a route does not have.
    pub(crate) fn method_not_allowed_fallback<H, T>(mut self, handler: H) -> Self
    where
        H: Handler<T, S>,
        T: 'static,
    {
        self.router = self.router.method_not_allowed_fallback(handler);
        self
    }

    /// Changes the router, such as by a layer, without changing its routes.
    pub(crate) fn map(mut self, change: impl FnOnce(Router<S>) -> Router<S>) -> Self {
        self.router = change(self.router);
        self
    }

    /// Changes the router by a layer that needs a state; without one only for the document.
    pub(crate) fn layered<L: Clone>(
        mut self,
        state: Option<&L>,
        add: impl FnOnce(Router<S>, L) -> Router<S>,
    ) -> Self {
        if let Some(state) = state {
            self.router = add(self.router, state.clone());
        }
        self
    }

    /// The routes with their state; without one only what the document says about them.
    pub(crate) fn with_state(self, state: Option<S>) -> Api {
        let Self { router, security, operations } = self;
        let router = state.map_or_else(Router::new, |state| router.with_state(state));
        Api { router, security, operations }
    }

    /// The routes, and the operations of the document.
    pub(crate) fn into_parts(self) -> (Router<S>, Vec<Operation>) {
        (self.router, self.operations)
    }
}
