//! Routes of E2B that are refused: each with the name of what is not available.

use super::App;
use super::failure::Refused;
use crate::failure::unsupported;
use crate::openapi::{Api, Security, get, post};

/// The routes.
pub(super) fn routes() -> Api<App> {
    let building = || async {
        Refused::from(unsupported("building a template from an image or a Dockerfile"))
    };
    let tags = || async { Refused::from(unsupported("a tag of a template")) };
    let logs = || async { Refused::from(unsupported("the log of a sandbox in the form of E2B")) };
    let templates = || async { Refused::from(unsupported("a list of templates")) };
    Api::new(Security::Key)
        .route("/templates", get(templates).unavailable().post(building).unavailable())
        .route("/v2/templates", post(building).unavailable())
        .route("/v3/templates", post(building).unavailable())
        .route("/templates/{template}/files/{hash}", get(building).unavailable())
        .route("/templates/{template}/builds/{build}", post(building).unavailable())
        .route("/v2/templates/{template}/builds/{build}", post(building).unavailable())
        .route("/templates/{template}/builds/{build}/status", get(building).unavailable())
        .route("/templates/{template}/builds/{build}/logs", get(building).unavailable())
        .route("/templates/tags", post(tags).unavailable().delete(tags).unavailable())
        .route("/templates/{template}/tags", get(tags).unavailable())
        .route("/sandboxes/{id}/logs", get(logs).unavailable())
        .route("/v2/sandboxes/{id}/logs", get(logs).unavailable())
}
