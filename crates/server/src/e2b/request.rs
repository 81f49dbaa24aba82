//! What the routes for sandboxes read from a request: its caller, its JSON, its sandbox and its query.

use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Path, Request};
use axum::http::request::Parts;
use serde::de::DeserializeOwned;
use stockade_api::{GetSandbox, Problem, Sandbox};
use stockade_core::{Code, SandboxId, State};

use super::App;
use super::failure::Refused;
use crate::auth::Principal;
use crate::failure::invalid;
use crate::metered::body_problem;

/// The caller of a request, with its idempotency key.
pub(super) struct Owner(pub(super) Principal);

impl FromRequestParts<App> for Owner {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, _: &App) -> Result<Self, Refused> {
        let mut principal = parts
            .extensions
            .get::<Principal>()
            .cloned()
            .ok_or_else(|| Problem::new(Code::Unauthenticated, "the request has no caller"))?;
        let key = parts.headers.get(stockade_api::wire::KEY_HEADER);
        let key = key.map(|key| key.to_str().map(str::to_owned)).transpose();
        principal.caller.idempotency_key =
            key.map_err(|_| invalid("the idempotency key is not text"))?;
        Ok(Self(principal))
    }
}

/// The sandbox that a path names.
pub(super) struct Id(pub(super) SandboxId);

impl FromRequestParts<App> for Id {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Refused> {
        let path =
            Path::<std::collections::HashMap<String, String>>::from_request_parts(parts, app);
        let path = path.await.map_err(|error| invalid(error.to_string()))?;
        let text = path.get("id").map_or("", String::as_str);
        // Older clients send the id of the client after it.
        let id = SandboxId::new(text).map_err(|_| absent(text))?;
        Ok(Self(id))
    }
}

/// The problem of a sandbox that does not exist, for its owner.
pub(super) fn absent(id: &str) -> Problem {
    Problem::new(Code::NotFound, format!("there is no sandbox {id:?}"))
}

/// A sandbox of the caller that has not ended.
pub(super) async fn find(
    app: &App,
    principal: &Principal,
    id: &SandboxId,
) -> Result<Sandbox, Refused> {
    let request = GetSandbox { id: id.clone(), metrics: false };
    let sandbox = app.sandboxes.get_status(&principal.caller, request).await?;
    if sandbox.state == State::Terminated {
        return Err(absent(id.as_str()).into());
    }
    Ok(sandbox)
}

/// The JSON of a request.
pub(super) struct JsonBody<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for JsonBody<T> {
    type Rejection = Refused;

    async fn from_request(request: Request, state: &S) -> Result<Self, Refused> {
        let body = Bytes::from_request(request, state).await;
        let body = body.map_err(|error| body_problem(&error))?;
        let text: &[u8] = if body.is_empty() { b"{}" } else { &body };
        let parsed = serde_json::from_slice(text).map_err(|error| {
            Problem::new(Code::InvalidInput, "the request cannot be read")
                .because(error.to_string())
        });
        Ok(Self(parsed?))
    }
}

/// The parameters in the query of a request. Unknown ones are left out.
pub(super) struct Query(Vec<(String, String)>);

impl Query {
    pub(super) fn parse(query: Option<&str>) -> Self {
        let pairs = url::form_urlencoded::parse(query.unwrap_or_default().as_bytes());
        Self(pairs.into_owned().collect())
    }

    /// All values of a parameter, each of which may be several with commas between them.
    pub(super) fn words<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        let values = self.0.iter().filter(move |(key, _)| key == name);
        values.flat_map(|(_, value)| value.split(',')).filter(|word| !word.is_empty())
    }

    /// The value of a parameter that is given once.
    pub(super) fn one<'a>(&'a self, name: &'a str) -> Result<Option<&'a str>, Refused> {
        let mut values = self.0.iter().filter(|(key, _)| key == name);
        let first = values.next().map(|(_, value)| value.as_str());
        if values.next().is_some() {
            return Err(invalid(format!("the parameter `{name}` is given twice")).into());
        }
        Ok(first)
    }

    /// A number.
    pub(super) fn number(&self, name: &str) -> Result<Option<i64>, Refused> {
        let value = self.one(name)?.map(str::parse::<i64>).transpose();
        value.map_err(|_| invalid(format!("the parameter `{name}` is not a number")).into())
    }
}

/// A page of a list, and the token of the next one.
pub(super) fn page<T>(
    all: Vec<T>,
    id: impl Fn(&T) -> String,
    query: &Query,
) -> Result<(Vec<T>, Option<String>), Refused> {
    /// The largest page.
    const LIMIT: usize = 100;
    let limit = match query.number("limit")? {
        None => LIMIT,
        Some(limit) => usize::try_from(limit)
            .ok()
            .filter(|limit| (1..=LIMIT).contains(limit))
            .ok_or_else(|| invalid(format!("`limit` is 1 to {LIMIT}")))?,
    };
    let from = match query.one("nextToken")?.filter(|token| !token.is_empty()) {
        None => 0,
        Some(token) => {
            let last = all.iter().position(|item| id(item) == token);
            last.ok_or_else(|| invalid("`nextToken` is not that of a page"))? + 1
        }
    };
    let more = all.len() > from + limit;
    let items: Vec<T> = all.into_iter().skip(from).take(limit).collect();
    let next = items.last().filter(|_| more).map(id);
    Ok((items, next))
}

/// The header with the token of the next page.
pub(super) const NEXT_TOKEN: &str = "x-next-token";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_has_pages() {
        let numbers = || (0..5).collect::<Vec<u8>>();
        let page = |text: &str| {
            page(numbers(), ToString::to_string, &Query::parse(Some(text)))
                .map_err(|Refused(problem)| problem.code)
        };
        assert_eq!(page(""), Ok((numbers(), None)));
        assert_eq!(page("limit=2"), Ok((vec![0, 1], Some("1".to_owned()))));
        assert_eq!(page("limit=2&nextToken=1"), Ok((vec![2, 3], Some("3".to_owned()))));
        assert_eq!(page("limit=2&nextToken=3"), Ok((vec![4], None)));
        for wrong in ["limit=0", "limit=101", "limit=x", "nextToken=9", "limit=1&limit=1"] {
            assert_eq!(page(wrong), Err(Code::InvalidInput), "{wrong}");
        }
    }

    #[test]
    fn a_value_may_be_several_words() {
        let query = Query::parse(Some("state=running%2Cpaused&state=x"));
        assert_eq!(query.words("state").collect::<Vec<_>>(), ["running", "paused", "x"]);
    }
}
