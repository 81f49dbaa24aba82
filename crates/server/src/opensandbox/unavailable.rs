//! The paths of OpenSandbox that are not available: each is refused with 501.

use axum::Router;
use axum::extract::Request;
use axum::routing::any;
use stockade_api::Problem;
use stockade_core::Code;

use super::App;
use super::target::PortState;
use crate::failure::{Failure, unsupported};

/// The unavailable paths of the lifecycle interface.
pub(super) fn lifecycle() -> Router<App> {
    paths(&["/pools", "/pools/{name}", "/templates", "/templates/{id}"])
}

/// The unavailable paths of the interface for commands and files.
pub(super) fn execd() -> Router<PortState> {
    paths(&["/code", "/code/{*path}"])
}

/// The unavailable paths of the interface for the network policy.
pub(super) fn egress() -> Router<PortState> {
    paths(&["/credential-vault", "/credential-vault/{*path}"])
}

fn paths<S: Clone + Send + Sync + 'static>(paths: &[&str]) -> Router<S> {
    paths.iter().fold(Router::new(), |router, path| router.route(path, any(refuse)))
}

async fn refuse(request: Request) -> Failure {
    unsupported(format_args!("the path {}", request.uri().path()))
}

/// The response to a path that does not exist.
pub(super) async fn unknown(request: Request) -> Failure {
    let message = format!("there is no path {} with that method", request.uri().path());
    Failure(Problem::new(Code::NotFound, message))
}
