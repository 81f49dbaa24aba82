//! `/v1/pools`: the pool of sandboxes that the server starts in advance. There is one, for sandboxes with
//! the programs of the server's machine, and its size is a setting of the server: a client can read it and
//! name it in `extensions.poolRef`, and can neither make others nor change it.

use axum::Json;
use axum::extract::{Path, State};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use stockade_api::Problem;
use stockade_core::Code;

use super::App;
use super::request::JsonBody;
use crate::auth::Principal;
use crate::failure::{Failure, unsupported};
use crate::openapi::{Api, Security, get, post};

/// The name of the pool, which is that of its image.
pub(super) const NAME: &str = "host";
/// The extension that names a pool.
pub(super) const POOL_REF: &str = "poolRef";
/// How many sandboxes are ready while none has been requested for a while (decision 0020).
const RESTING: u32 = 4;

/// The pool of a server.
#[derive(Debug, Clone, Copy)]
pub struct Pool {
    /// How many sandboxes are started in advance at most; none without a pool.
    pub size: u32,
    /// How many sandboxes an owner may have.
    pub sandboxes: u32,
}

/// The routes.
pub(super) fn routes() -> Api<App> {
    Api::new(Security::Key).route("/pools", post(create).unavailable().get(list)).route(
        "/pools/{name}",
        get(show).put(change).body::<Change>(&json!({ "capacitySpec": {} })).delete(remove),
    )
}

/// The request for another size of a pool.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Change {
    #[expect(dead_code, reason = "no size can be set")]
    capacity_spec: Value,
}

/// A pool in a response.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct PoolBody {
    name: &'static str,
    capacity_spec: Capacity,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Capacity {
    buffer_max: u32,
    buffer_min: u32,
    pool_max: u32,
    pool_min: u32,
}

impl Pool {
    fn body(self) -> PoolBody {
        let Self { size, sandboxes } = self;
        PoolBody {
            name: NAME,
            capacity_spec: Capacity {
                buffer_max: size,
                buffer_min: RESTING.min(size),
                pool_max: sandboxes,
                pool_min: 0,
            },
        }
    }

    /// Refuses the name of a pool that does not exist.
    ///
    /// # Errors
    /// [`Code::NotFound`].
    pub(super) fn check(self, name: &str) -> Result<(), Failure> {
        if name == NAME && self.size > 0 {
            return Ok(());
        }
        let known = if self.size > 0 { NAME } else { "none" };
        Err(Problem::new(Code::NotFound, format!("there is no pool {name:?}"))
            .because(format!("pools of this server: {known}"))
            .remedied_by("GET /v1/pools")
            .into())
    }
}

/// `GET /v1/pools`.
async fn list(State(app): State<App>, _: Principal) -> Json<Value> {
    let pools: Vec<_> = (app.pool.size > 0).then(|| app.pool.body()).into_iter().collect();
    Json(json!({ "items": pools }))
}

/// `GET /v1/pools/{name}`.
async fn show(
    State(app): State<App>,
    _: Principal,
    Path(name): Path<String>,
) -> Result<Json<Value>, Failure> {
    app.pool.check(&name)?;
    Ok(Json(json!(app.pool.body())))
}

/// `POST /v1/pools`.
async fn create(_: Principal) -> Failure {
    refused("another pool")
}

/// `PUT /v1/pools/{name}`.
async fn change(
    State(app): State<App>,
    _: Principal,
    Path(name): Path<String>,
    _: JsonBody<Change>,
) -> Failure {
    app.pool.check(&name).err().unwrap_or_else(|| refused("another size of the pool"))
}

/// `DELETE /v1/pools/{name}`.
async fn remove(State(app): State<App>, _: Principal, Path(name): Path<String>) -> Failure {
    app.pool.check(&name).err().unwrap_or_else(|| refused("the removal of the pool"))
}

fn refused(what: &str) -> Failure {
    let Failure(problem) = unsupported(what);
    let problem =
        problem.because("all owners use the pool, so its size is a setting of the server");
    Failure(problem.remedied_by("stockade serve --pool 64"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_pool_of_the_server_has_a_name() {
        let code = |size, name| {
            let checked = Pool { size, sandboxes: 10 }.check(name);
            checked.err().map(|Failure(problem)| problem.code)
        };
        assert_eq!(code(64, NAME), None);
        assert_eq!(code(64, "other"), Some(Code::NotFound));
        assert_eq!(code(0, NAME), Some(Code::NotFound));
        let body = json!(Pool { size: 2, sandboxes: 10 }.body());
        let capacity = json!({ "bufferMax": 2, "bufferMin": 2, "poolMax": 10, "poolMin": 0 });
        assert_eq!(body, json!({ "name": NAME, "capacitySpec": capacity }));
    }
}
