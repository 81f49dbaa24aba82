//! `create_secret`, `import_secret`, `secrets`, `rotate_secret`, `remove_secret`: the secrets of an
//! owner. No workflow is started, so that no value is recorded; `Request` recognizes what is repeated.

use std::collections::BTreeMap;

use stockade_api::{
    Ack, Caller, CreateSecret, ImportSecret, RemoveSecret, Result, RotateSecret, SecretValue,
    StoredSecret, StoredSecrets,
};
use stockade_core::{Code, OwnerId, Problem};
use stockade_durable::Statement;
use stockade_vault::{Fields, Kind, Label, PredecessorEnvelope, PredecessorKey, SealedRecord};
use zeroize::Zeroizing;

use super::secret_requests::{Request, sealing_key};
use crate::clock::{now_ms, timestamp};
use crate::delivery::no_secret;
use crate::failure::{invalid, store_problem};
use crate::operation::workflow_id;
use crate::service::Service;
use crate::store::audit;
use crate::store::vault::{self as store, SecretRow};
use crate::vault::vault_problem;

/// The longest name, in bytes.
const NAME_BYTES: usize = 128;
/// The most secrets of an owner.
const MAX_SECRETS: usize = 1000;

/// Stores a secret.
pub(crate) async fn create(
    service: &Service,
    caller: &Caller,
    request: CreateSecret,
) -> Result<StoredSecret> {
    let kind: Kind = request.kind.parse().map_err(vault_problem)?;
    check_name(&request.name)?;
    let fields = fields(kind, request.values.clone())?;
    let own = [request.name.as_str(), kind.as_str()];
    let repeated = Request::new(service, caller, "create_secret", parts(own, &request.values));
    let repeated = repeated.await?;
    insert(service, caller, (request.name, kind), &fields, repeated).await
}

/// Stores a secret that FireFlow's predecessor has sealed.
pub(crate) async fn import(
    service: &Service,
    caller: &Caller,
    request: ImportSecret,
) -> Result<StoredSecret> {
    let kind: Kind = request.kind.parse().map_err(vault_problem)?;
    check_name(&request.name)?;
    let key = PredecessorKey::parse(&request.recipient_key.0).map_err(vault_problem)?;
    let envelope =
        PredecessorEnvelope::parse(request.envelope.0.as_bytes()).map_err(vault_problem)?;
    let fields = envelope.open(&key, kind).map_err(vault_problem)?;
    let own = [request.name.as_str(), kind.as_str()];
    let sealed = [request.envelope.0.as_str(), request.recipient_key.0.as_str()];
    let repeated = Request::new(service, caller, "import_secret", own.into_iter().chain(sealed));
    let repeated = repeated.await?;
    insert(service, caller, (request.name, kind), &fields, repeated).await
}

/// Lists the secrets of the caller.
pub(crate) async fn list(service: &Service, caller: &Caller) -> Result<StoredSecrets> {
    let rows = store::list(&*service.inner.store, &caller.owner).await?;
    Ok(StoredSecrets { secrets: rows.iter().map(properties).collect() })
}

/// Replaces the values of a secret.
pub(crate) async fn rotate(
    service: &Service,
    caller: &Caller,
    request: RotateSecret,
) -> Result<StoredSecret> {
    let own = parts([request.id.as_str()], &request.values);
    let repeated = Request::new(service, caller, "rotate_secret", own).await?;
    let _turn = service.inner.owner_locks.lock(&caller.owner).await;
    if let Some(answer) = repeated.answer(service).await? {
        return Ok(answer);
    }
    let old = find(service, &caller.owner, &request.id).await?;
    let fields = fields(old.label.kind, request.values)?;
    let label = Label { version: old.label.version.saturating_add(1), ..old.label };
    let (key_id, sealed) = sealed(service, &label, &fields).await?;
    let row = SecretRow { label, key_id, sealed, updated_at: now_ms(), ..old };
    let answer = properties(&row);
    change(service, caller, store::rotate(&row), repeated.answered(&answer)).await?;
    Ok(answer)
}

/// Removes a secret.
pub(crate) async fn remove(
    service: &Service,
    caller: &Caller,
    request: RemoveSecret,
) -> Result<Ack> {
    let repeated = Request::without_values(caller, "remove_secret", &request.id)?;
    let _turn = service.inner.owner_locks.lock(&caller.owner).await;
    if let Some(answer) = repeated.answer(service).await? {
        return Ok(answer);
    }
    let row = find(service, &caller.owner, &request.id).await?;
    let removal = store::remove(&row.label.secret);
    change(service, caller, removal, repeated.answered(&Ack {})).await?;
    Ok(Ack {})
}

fn check_name(name: &str) -> Result<()> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if name.is_empty() || name.len() > NAME_BYTES || !name.bytes().all(is_plain) {
        let message = format!(
            "the name of a secret must have 1 to {NAME_BYTES} letters, digits, `-`, `_` and `.`"
        );
        return Err(invalid(message));
    }
    Ok(())
}

async fn insert(
    service: &Service,
    caller: &Caller,
    (name, kind): (String, Kind),
    fields: &Fields,
    repeated: Request,
) -> Result<StoredSecret> {
    let hash = blake3::hash(workflow_id(caller)?.as_str().as_bytes()).to_hex();
    let secret = format!("sec-{}", &hash[..24]);
    let _turn = service.inner.owner_locks.lock(&caller.owner).await;
    if let Some(answer) = repeated.answer(service).await? {
        return Ok(answer);
    }
    let all = store::list(&*service.inner.store, &caller.owner).await?;
    if all.iter().any(|row| row.label.secret == secret) {
        let message = "a secret was stored with this idempotency key before";
        return Err(Problem::new(Code::Conflict, message)
            .because("its request is too old to be compared with this one")
            .remedied_by("use another idempotency key"));
    }
    if all.iter().any(|row| row.label.name == name) {
        return Err(Problem::new(Code::Conflict, format!("there is a secret {name}"))
            .remedied_by(format!("stockade secrets rotate {name}")));
    }
    if all.len() >= MAX_SECRETS {
        let message = format!("an owner has at most {MAX_SECRETS} secrets");
        return Err(
            Problem::new(Code::QuotaExceeded, message).remedied_by("stockade secrets remove NAME")
        );
    }
    let label = Label { secret, version: 1, owner: caller.owner.clone(), name, kind };
    let (key_id, sealed) = sealed(service, &label, fields).await?;
    let now = now_ms();
    let row = SecretRow { label, key_id, sealed, created_at: now, updated_at: now };
    let answer = properties(&row);
    change(service, caller, store::insert(&row), repeated.answered(&answer)).await?;
    Ok(answer)
}

async fn sealed(
    service: &Service,
    label: &Label,
    fields: &Fields,
) -> Result<(String, SealedRecord)> {
    let key = sealing_key(service).await?;
    let sealed = SealedRecord::seal(&key, label, fields).map_err(vault_problem)?;
    Ok((key.id(), sealed))
}

/// A change together with its answer and the audit record of its start.
async fn change(
    service: &Service,
    caller: &Caller,
    change: Statement,
    answered: Vec<Statement>,
) -> Result<()> {
    let host = service.inner.host();
    let record = caller.start_record.as_deref().map(|record| audit::insert(record, host));
    let statements = std::iter::once(change).chain(answered).chain(record).collect();
    service.inner.store.execute(statements).await.map(drop).map_err(store_problem)
}

async fn find(service: &Service, owner: &OwnerId, id: &str) -> Result<SecretRow> {
    let found = store::find(&*service.inner.store, owner, id).await?;
    found.ok_or_else(|| no_secret(id))
}

fn fields(kind: Kind, values: BTreeMap<String, SecretValue>) -> Result<Fields> {
    let values = values.into_iter().map(|(name, SecretValue(value))| (name, value));
    let values: BTreeMap<String, Zeroizing<String>> = values.collect();
    Fields::new(kind, values).map_err(vault_problem)
}

/// The parts of a request that it is recognized by.
fn parts<'a, const N: usize>(
    own: [&'a str; N],
    values: &'a BTreeMap<String, SecretValue>,
) -> impl Iterator<Item = &'a str> {
    let values = values.iter().flat_map(|(name, value)| [name.as_str(), value.0.as_str()]);
    own.into_iter().chain(values)
}

fn properties(row: &SecretRow) -> StoredSecret {
    let SecretRow { label, created_at, updated_at, .. } = row;
    StoredSecret {
        id: label.secret.clone(),
        name: label.name.clone(),
        owner_id: label.owner.clone(),
        kind: label.kind.as_str().to_owned(),
        fields: label.kind.fields().iter().map(|field| (*field).to_owned()).collect(),
        version: label.version,
        created_at: timestamp(*created_at),
        updated_at: timestamp(*updated_at),
    }
}
