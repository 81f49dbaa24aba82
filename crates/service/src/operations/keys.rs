//! `create_key`, `keys`, `revoke_key`, and how a server finds the owner of a key. Keys are random,
//! so a fast hash protects them; the key itself is stored nowhere.

use std::time::Duration;

use async_trait::async_trait;
use stockade_api::{
    ApiKey, Caller, CreateKey, CreatedKey, KeyDirectory, KeyList, ListKeys, Result, RevokeKey,
};
use stockade_core::{Code, Problem};
use stockade_durable::Statement;

use crate::clock::{now_ms, timestamp};
use crate::failure::{invalid, store_problem};
use crate::operation::workflow_id;
use crate::random::{hex, random};
use crate::service::Service;
use crate::spec;
use crate::store::{audit, keys};

/// The prefix of a key. The clients of E2B accept no other form; those of OpenSandbox accept any.
const PREFIX: &str = "e2b_";
/// The random bytes of a key, written as hexadecimal digits.
const RANDOM_BYTES: usize = 20;
/// How often the expiry of a key is checked while a connection is open.
const CHECK_INTERVAL: Duration = Duration::from_secs(15);
/// The longest name of a key.
const NAME_BYTES: usize = 200;
/// Distinguishes the hash of a key from every other hash.
const HASH_DOMAIN: &str = "stockade 2026-11 hash of an API key";
/// The name of the secret for access tokens.
const TOKEN_SECRET: &str = "access-tokens";

/// Creates a key.
pub(crate) async fn create(
    service: &Service,
    caller: &Caller,
    request: CreateKey,
) -> Result<CreatedKey> {
    require_admin(caller)?;
    let CreateKey { name, owner_id, admin, expires_in_seconds } = request;
    if let Some(name) = &name
        && (name.is_empty() || name.len() > NAME_BYTES || name.contains(char::is_control))
    {
        let message = format!("the name of a key must be one line of 1 to {NAME_BYTES} bytes");
        return Err(invalid(message));
    }
    let now = now_ms();
    let expires_at = expires_in_seconds.map(spec::duration).transpose()?;
    let expires_at = expires_at
        .map(|left| now.saturating_add(i64::try_from(left.as_millis()).unwrap_or(i64::MAX)));
    let hash = blake3::hash(workflow_id(caller)?.as_str().as_bytes()).to_hex();
    let properties = ApiKey {
        id: format!("key-{}", &hash[..12]),
        name,
        owner_id: owner_id.unwrap_or_else(|| caller.owner.clone()),
        admin,
        created_at: timestamp(now),
        expires_at: expires_at.map(timestamp),
        revoked_at: None,
    };
    let key = format!("{PREFIX}{}", hex(&random::<RANDOM_BYTES>()?));
    let insert = keys::insert(&properties, &hash_of(&key));
    let inserted = service.inner.store.execute(recorded(service, caller, insert)).await;
    inserted.map_err(|error| match store_problem(error) {
        problem if problem.code == Code::Conflict => {
            Problem::new(Code::Conflict, "the key of this request was revoked since")
                .remedied_by("stockade keys create")
        }
        problem => problem,
    })?;
    Ok(CreatedKey { key, properties })
}

/// Lists keys.
pub(crate) async fn list(service: &Service, caller: &Caller, request: ListKeys) -> Result<KeyList> {
    require_admin(caller)?;
    let keys = keys::list(&*service.inner.store, now_ms(), request.all).await?;
    Ok(KeyList { keys })
}

/// Revokes a key.
pub(crate) async fn revoke(
    service: &Service,
    caller: &Caller,
    request: RevokeKey,
) -> Result<ApiKey> {
    require_admin(caller)?;
    let store = &*service.inner.store;
    let revoke = recorded(service, caller, keys::revoke(&request.id, now_ms()));
    store.execute(revoke).await.map_err(store_problem)?;
    service.inner.revocations.send_replace(());
    keys::find(store, &request.id).await?.ok_or_else(|| {
        Problem::new(Code::NotFound, format!("there is no key {}", request.id))
            .remedied_by("stockade keys list --all")
    })
}

/// A change with the audit record of its start.
fn recorded(service: &Service, caller: &Caller, change: Statement) -> Vec<Statement> {
    let host = service.inner.host();
    let record = caller.start_record.as_deref().map(|record| audit::insert(record, host));
    std::iter::once(change).chain(record).collect()
}

fn require_admin(caller: &Caller) -> Result<()> {
    if caller.admin {
        return Ok(());
    }
    Err(Problem::new(Code::Forbidden, "only an admin may manage API keys")
        .because("the API key of the request has no admin scope")
        .remedied_by("stockade keys create --admin"))
}

#[async_trait]
impl KeyDirectory for Service {
    async fn find_key(&self, key: &str) -> Result<Option<ApiKey>> {
        if !key.starts_with(PREFIX) {
            return Ok(None);
        }
        keys::find_by_hash(&*self.inner.store, now_ms(), &hash_of(key)).await
    }

    async fn find_key_by_id(&self, id: &str) -> Result<Option<ApiKey>> {
        keys::find_active(&*self.inner.store, now_ms(), id).await
    }

    async fn until_unusable(&self, id: &str) {
        let mut revocations = self.inner.revocations.subscribe();
        // What cannot be read now is read again.
        while !matches!(self.find_key_by_id(id).await, Ok(None)) {
            let _ = tokio::time::timeout(CHECK_INTERVAL, revocations.changed()).await;
        }
    }

    async fn has_keys(&self) -> Result<bool> {
        keys::has_active(&*self.inner.store, now_ms()).await
    }

    async fn token_secret(&self) -> Result<[u8; 32]> {
        let new = hex(&random::<32>()?);
        let stored = keys::secret(&*self.inner.store, TOKEN_SECRET, &new).await?;
        Ok(blake3::derive_key("stockade 2026-11 access tokens of sandboxes", stored.as_bytes()))
    }
}

fn hash_of(key: &str) -> String {
    hex(&blake3::derive_key(HASH_DOMAIN, key.as_bytes()))
}
