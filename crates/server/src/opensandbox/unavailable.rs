//! The paths of OpenSandbox that are not available: each is refused with 501.

use axum::extract::Request;
use stockade_api::Problem;
use stockade_core::Code;

use super::App;
use crate::failure::{Failure, unsupported};
use crate::openapi::{Api, Security, any};

/// The unavailable paths of the lifecycle interface.
pub(super) fn lifecycle() -> Api<App> {
    paths(Security::Key, &["/templates", "/templates/{id}"])
}

fn paths<S: Clone + Send + Sync + 'static>(security: Security, paths: &[&str]) -> Api<S> {
    let add = |api: Api<S>, path: &&str| api.route(path, any(refuse).unavailable());
    paths.iter().fold(Api::new(security), add)
}

async fn refuse(request: Request) -> Failure {
    unsupported(format_args!("the path {}", request.uri().path()))
}

/// The response to a path that does not exist.
pub(super) async fn unknown(request: Request) -> Failure {
    let message = format!("there is no path {} with that method", request.uri().path());
    Failure(Problem::new(Code::NotFound, message))
}
