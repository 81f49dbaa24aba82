//! The methods of a route: axum's, with their names and descriptions.

use std::convert::Infallible;

use axum::extract::Request;
use axum::handler::Handler;
use axum::response::IntoResponse;
use axum::routing::{self, MethodRouter, Route};
use schemars::JsonSchema;
use serde_json::Value;
use tower::{Layer, Service};

/// The methods of a route for any of them. The document lists these.
const ANY: [&str; 6] = ["get", "post", "put", "patch", "delete", "options"];

/// What the document says about an operation.
#[derive(Debug, Clone, Default)]
pub(crate) struct Description {
    /// The name of the function that serves it.
    pub(crate) name: String,
    /// The schema of the JSON in the request.
    pub(crate) body: Option<Value>,
    /// A valid example of it.
    pub(crate) example: Option<Value>,
    /// The parameters in the query: the name, and whether it is required.
    pub(crate) query: Vec<(&'static str, bool)>,
    /// Whether every request is refused with 501.
    pub(crate) is_unavailable: bool,
}

/// The methods of a route.
pub(crate) struct Methods<S> {
    router: MethodRouter<S, Infallible>,
    descriptions: Vec<(&'static str, Description)>,
    /// How many of the descriptions the last method has.
    last: usize,
}

/// Defines a function for each HTTP method, as `axum::routing` has them.
macro_rules! functions {
    ($($name:ident),*) => {
        $(
            /// A route with this method.
            pub(crate) fn $name<H, T, S>(handler: H) -> Methods<S>
            where
                H: Handler<T, S>,
                T: 'static,
                S: Clone + Send + Sync + 'static,
            {
                Methods { router: MethodRouter::new(), descriptions: Vec::new(), last: 0 }
                    .$name(handler)
            }
        )*
    };
}

/// Defines a method for each HTTP method, which adds it to a route.
macro_rules! methods {
    ($($name:ident),*) => {
        impl<S: Clone + Send + Sync + 'static> Methods<S> {
            $(
                /// Adds this method.
                pub(crate) fn $name<H, T>(mut self, handler: H) -> Self
                where
                    H: Handler<T, S>,
                    T: 'static,
                {
                    self.router = self.router.$name(handler);
                    self.describe::<H>(&[stringify!($name)]);
                    self
                }
            )*
        }
    };
}

functions!(get, post, put, patch, delete);
methods!(get, post, put, patch, delete);

/// A route with any method.
pub(crate) fn any<H, T, S>(handler: H) -> Methods<S>
where
    H: Handler<T, S>,
    T: 'static,
    S: Clone + Send + Sync + 'static,
{
    let mut methods = Methods { router: routing::any(handler), descriptions: Vec::new(), last: 0 };
    methods.describe::<H>(&ANY);
    methods
}

/// A route that a service answers. It has these methods, and refuses others itself.
pub(crate) fn service<V, S>(methods: &[&'static str], service: V, name: &str) -> Methods<S>
where
    V: Service<Request, Error = Infallible> + Clone + Send + Sync + 'static,
    V::Response: IntoResponse + 'static,
    V::Future: Send + 'static,
    S: Clone + Send + Sync + 'static,
{
    let router = routing::any_service(service);
    let description = Description { name: name.to_owned(), ..Description::default() };
    let descriptions: Vec<_> =
        methods.iter().map(|method| (*method, description.clone())).collect();
    Methods { router, last: descriptions.len(), descriptions }
}

impl<S: Clone + Send + Sync + 'static> Methods<S> {
    fn describe<H>(&mut self, methods: &[&'static str]) {
        let description = Description { name: name::<H>(), ..Description::default() };
        self.descriptions.extend(methods.iter().map(|method| (*method, description.clone())));
        self.last = methods.len();
    }

    fn change_last(mut self, change: impl Fn(&mut Description)) -> Self {
        let from = self.descriptions.len().saturating_sub(self.last);
        self.descriptions[from..].iter_mut().for_each(|(_, description)| change(description));
        self
    }

    /// Says that the requests of the last method have JSON of this type, and gives an example.
    pub(crate) fn body<T: JsonSchema>(self, example: &Value) -> Self {
        let schema = schemars::schema_for!(T).to_value();
        self.change_last(|description| {
            description.body = Some(schema.clone());
            description.example = Some(example.clone());
        })
    }

    /// Names the parameters in the query of the last method; a `!` after a name requires it.
    pub(crate) fn query(self, names: &[&'static str]) -> Self {
        let query = |name: &&'static str| match name.strip_suffix('!') {
            Some(required) => (required, true),
            None => (*name, false),
        };
        let query: Vec<_> = names.iter().map(query).collect();
        self.change_last(|description| description.query.clone_from(&query))
    }

    /// Says that every request of the last method is refused.
    pub(crate) fn unavailable(self) -> Self {
        self.change_last(|description| description.is_unavailable = true)
    }

    /// Adds a layer to all methods.
    pub(crate) fn layer<L>(mut self, layer: L) -> Self
    where
        L: Layer<Route<Infallible>> + Clone + Send + Sync + 'static,
        L::Service: Service<Request> + Clone + Send + Sync + 'static,
        <L::Service as Service<Request>>::Response: IntoResponse + 'static,
        <L::Service as Service<Request>>::Error: Into<Infallible> + 'static,
        <L::Service as Service<Request>>::Future: Send + 'static,
    {
        self.router = self.router.layer(layer);
        self
    }

    pub(super) fn into_parts(
        self,
    ) -> (MethodRouter<S, Infallible>, Vec<(&'static str, Description)>) {
        (self.router, self.descriptions)
    }
}

/// The last two parts of a function's path.
fn name<H>() -> String {
    let path = std::any::type_name::<H>().split('<').next().unwrap_or_default();
    let parts: Vec<_> = path.split("::").collect();
    parts[parts.len().saturating_sub(2)..].join(".")
}
