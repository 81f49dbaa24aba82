//! Requests about secrets that have an idempotency key: the same request again has the same answer,
//! and another one with its key is refused. What is kept of a request has no value: a fingerprint under
//! the vault's key, and the answer.

use serde::Serialize;
use serde::de::DeserializeOwned;
use stockade_api::{Caller, Result};
use stockade_core::{Code, Problem};
use stockade_durable::Statement;
use stockade_vault::{Fingerprint, MasterKey};

use crate::clock::now_ms;
use crate::operation::workflow_id;
use crate::service::Service;
use crate::store::json;
use crate::store::vault as store;

/// How long an answer is kept: a week.
const KEPT_MS: i64 = 7 * 24 * 3600 * 1000;

/// The vault's key, for a value that is to be stored. It is made if there is none and no secret.
///
/// # Errors
/// That it is unavailable.
pub(super) async fn sealing_key(service: &Service) -> Result<MasterKey> {
    // A key that is missing for a while must not be replaced: its secrets could not be opened.
    let is_first = store::is_empty(&*service.inner.store).await?;
    service.inner.vault.key(is_first).await
}

/// A request with a key; nothing for one without.
#[derive(Debug)]
pub(super) struct Request(Option<Known>);

#[derive(Debug)]
struct Known {
    id: String,
    fingerprint: Vec<u8>,
}

impl Request {
    /// A request with values.
    ///
    /// # Errors
    /// That the key of the vault is unavailable, or that the idempotency key is invalid.
    pub(super) async fn new<'a>(
        service: &Service,
        caller: &Caller,
        operation: &'a str,
        parts: impl Iterator<Item = &'a str>,
    ) -> Result<Self> {
        if caller.idempotency_key.is_none() {
            return Ok(Self(None));
        }
        let id = workflow_id(caller)?.as_str().to_owned();
        let key = sealing_key(service).await?;
        let fingerprint = Fingerprint::of(&key, operation, parts).as_bytes().to_vec();
        Ok(Self(Some(Known { id, fingerprint })))
    }

    /// A request that has no values, for which no key of the vault is needed.
    ///
    /// # Errors
    /// That the idempotency key is invalid.
    pub(super) fn without_values(caller: &Caller, operation: &str, id: &str) -> Result<Self> {
        if caller.idempotency_key.is_none() {
            return Ok(Self(None));
        }
        let fingerprint = format!("{operation} {id}").into_bytes();
        Ok(Self(Some(Known { id: workflow_id(caller)?.as_str().to_owned(), fingerprint })))
    }

    /// The answer that the same request had.
    ///
    /// # Errors
    /// [`Code::Conflict`] if another request had this key.
    pub(super) async fn answer<T: DeserializeOwned>(&self, service: &Service) -> Result<Option<T>> {
        let Some(Known { id, fingerprint }) = &self.0 else { return Ok(None) };
        let Some((stored, answer)) = store::request(&*service.inner.store, id).await? else {
            return Ok(None);
        };
        if stored != *fingerprint {
            let message = "another request was made with this idempotency key";
            return Err(Problem::new(Code::Conflict, message)
                .because("it had another operation, name, type or value")
                .remedied_by("use another idempotency key"));
        }
        let damaged = |_| Problem::new(Code::DatabaseInvalid, "a recorded answer cannot be read");
        serde_json::from_str(&answer).map(Some).map_err(damaged)
    }

    /// The statements that record the answer, and remove those that are too old.
    pub(super) fn answered<T: Serialize>(&self, answer: &T) -> Vec<Statement> {
        let Some(Known { id, fingerprint }) = &self.0 else { return Vec::new() };
        let now = now_ms();
        vec![
            store::remove_requests(now.saturating_sub(KEPT_MS)),
            store::insert_request(id, fingerprint, json(answer), now),
        ]
    }
}
