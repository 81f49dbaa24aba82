//! The delivery of secrets to one operation: all of a batch or none. Each secret is sealed by the
//! vault to the key pair of the batch, for this sandbox and operation only, and opened where it is
//! used. The key pair is erased with the batch.

use std::time::Duration;

use async_trait::async_trait;
use stockade_api::{Result, SecretMapping, SecretReference, SecretScope};
use stockade_core::{Code, OwnerId, Problem, SandboxId};
use stockade_egress_control::Values;
use stockade_vault::{
    Batch, BatchKey, Context, Envelope, Fields, REFERENCE_SUFFIX, Reference, SealedRecord,
    check_variables, variable_value,
};
use zeroize::Zeroizing;

use crate::egress::StoredValues;
use crate::failure::{invalid, store_problem};
use crate::inner::Inner;
use crate::owned_sandbox::OwnedSandbox;
use crate::store::vault::{self as store, SecretRow};
use crate::vault::{unavailable, vault_problem};

/// The most secrets of one batch.
const MAX_SECRETS: usize = 64;
/// How long the fetching of a batch may take.
const TIMEOUT: Duration = Duration::from_secs(20);

/// On whose behalf secrets are used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Principal {
    /// The caller of the operation.
    pub(crate) caller: OwnerId,
    /// The owner of the flow that it is part of, if it is another one.
    pub(crate) flow_owner: Option<OwnerId>,
}

/// Secrets for one operation on one sandbox.
#[derive(Debug)]
pub(crate) struct Delivery<'a> {
    pub(crate) inner: &'a Inner,
    pub(crate) principal: &'a Principal,
    pub(crate) sandbox: &'a SandboxId,
    /// The id of the operation.
    pub(crate) operation: &'a str,
}

/// A secret that may be used, and which of its fields.
#[derive(Debug)]
struct Found<'a> {
    row: SecretRow,
    field: Option<&'a str>,
}

impl Delivery<'_> {
    /// Checks that all secrets of mappings are there and may be used. No value is read.
    ///
    /// # Errors
    /// The first reason why not.
    pub(crate) async fn check(&self, mappings: &[SecretMapping]) -> Result<()> {
        check_variables(mappings.iter().map(|mapping| mapping.env.as_str()))
            .map_err(vault_problem)?;
        let references: Vec<_> = mappings.iter().map(|mapping| &mapping.secret).collect();
        self.within_time(self.find(&references)).await.map(drop)
    }

    /// The values of variables.
    ///
    /// # Errors
    /// The first reason why one of them cannot be delivered; none is delivered then.
    pub(crate) async fn variables(
        &self,
        mappings: &[SecretMapping],
    ) -> Result<Vec<(String, Zeroizing<String>)>> {
        if mappings.is_empty() {
            return Ok(Vec::new());
        }
        check_variables(mappings.iter().map(|mapping| mapping.env.as_str()))
            .map_err(vault_problem)?;
        self.values(mappings).await
    }

    /// The values for names that are no variables.
    ///
    /// # Errors
    /// As [`Delivery::variables`].
    pub(crate) async fn values(
        &self,
        mappings: &[SecretMapping],
    ) -> Result<Vec<(String, Zeroizing<String>)>> {
        if mappings.is_empty() {
            return Ok(Vec::new());
        }
        let references: Vec<_> = mappings.iter().map(|mapping| &mapping.secret).collect();
        let all = self.within_time(self.fetch(&references)).await?;
        let value = |(mapping, fields): (&SecretMapping, &Fields)| {
            let value = variable_value(&mapping.env, mapping.secret.field.as_deref(), fields);
            value.map(|value| (mapping.env.clone(), value)).map_err(vault_problem)
        };
        mappings.iter().zip(&all).map(value).collect()
    }

    /// The value of one field.
    ///
    /// # Errors
    /// Why it cannot be delivered.
    pub(crate) async fn value(&self, reference: &SecretReference) -> Result<Zeroizing<String>> {
        let all = self.within_time(self.fetch(&[reference])).await?;
        let fields = all.first().ok_or_else(|| unavailable("the vault gave no secret"))?;
        fields.get(reference.field.as_deref()).cloned().map_err(vault_problem)
    }

    /// Checks one reference. No value is read.
    ///
    /// # Errors
    /// Why it cannot be delivered.
    pub(crate) async fn check_one(&self, reference: &SecretReference) -> Result<()> {
        self.within_time(self.find(&[reference])).await.map(drop)
    }

    async fn within_time<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        let late = |_| Err(unavailable("the vault does not answer"));
        let time = TIMEOUT.min(self.inner.options.deadline);
        tokio::time::timeout(time, work).await.unwrap_or_else(late)
    }

    async fn find<'b>(&self, references: &[&'b SecretReference]) -> Result<Vec<Found<'b>>> {
        if references.len() > MAX_SECRETS {
            return Err(invalid(format!("an operation uses at most {MAX_SECRETS} secrets")));
        }
        let mut all = Vec::with_capacity(references.len());
        for reference in references {
            let row = self.row(reference).await?;
            let field = reference.field.as_deref();
            check_field(&row, field)?;
            all.push(Found { row, field });
        }
        Ok(all)
    }

    /// The row of a secret, if it may be used.
    async fn row(&self, reference: &SecretReference) -> Result<SecretRow> {
        let SecretReference { reference: text, content, scope, .. } = reference;
        let parsed = match content {
            Some(content) => {
                Some(Reference::parse(text, content.as_bytes()).map_err(vault_problem)?)
            }
            None if text.ends_with(REFERENCE_SUFFIX) => {
                return Err(no_reference(text));
            }
            None => None,
        };
        let id = parsed.as_ref().map_or(text.as_str(), |parsed| parsed.secret.as_str());
        let Principal { caller, flow_owner } = self.principal;
        let flow = flow_owner.as_ref().unwrap_or(caller);
        let owner = match scope {
            SecretScope::Caller => caller,
            SecretScope::FlowOwner => flow,
        };
        let database = &*self.inner.store;
        let Some(row) = store::find(database, owner, id).await? else {
            // Only secrets of the caller's own flow are distinguished from unknown ones.
            let is_flows = flow != owner && store::find(database, flow, id).await?.is_some();
            return Err(if is_flows { forbidden(text) } else { no_secret(text) });
        };
        match parsed {
            Some(parsed) if parsed.kind != row.label.kind => {
                let message = format!("{text} is for a secret of type {}", parsed.kind);
                Err(Problem::new(Code::SecretRefInvalid, message)
                    .because(format!("the secret is of type {}", row.label.kind)))
            }
            _ => Ok(row),
        }
    }

    /// The fields of secrets, by way of the key pair of a batch.
    async fn fetch(&self, references: &[&SecretReference]) -> Result<Vec<Fields>> {
        let found = self.find(references).await?;
        let batch = Batch::new(Context {
            sandbox: self.sandbox.as_str().to_owned(),
            operation: self.operation.to_owned(),
            batch: uuid::Uuid::now_v7().simple().to_string(),
        });
        let mut all = Vec::with_capacity(found.len());
        for Found { row, field } in &found {
            let envelope = self.sealed(row, &batch.key(), batch.context()).await?;
            let fields = batch.open(&row.label, &envelope).map_err(vault_problem)?;
            fields.get(*field).map_err(vault_problem)?;
            all.push(fields);
        }
        Ok(all)
    }

    /// What the vault gives: a secret, sealed to the key of a batch.
    async fn sealed(&self, row: &SecretRow, to: &BatchKey, context: &Context) -> Result<Envelope> {
        let key = self.inner.vault.key(false).await?;
        let fields = row.sealed.open(&key, &row.label).map_err(|_| {
            let error = stockade_vault::Error::Record(row.label.name.clone());
            let problem = vault_problem(error);
            match key.id() == row.key_id {
                true => problem,
                false => problem.because(format!(
                    "it was sealed under the key {}, and the vault has the key {}",
                    row.key_id,
                    key.id()
                )),
            }
        })?;
        if !row.sealed.is_bound_to_name() {
            let sealed = SealedRecord::seal(&key, &row.label, &fields).map_err(vault_problem)?;
            let statement = store::seal_again(row, &sealed);
            self.inner.store.execute(vec![statement]).await.map_err(store_problem)?;
        }
        Envelope::seal(to, context, &row.label, &fields).map_err(vault_problem)
    }
}

/// The values of the stored secrets that a sandbox has recorded.
#[async_trait]
impl StoredValues for Inner {
    async fn fetch(&self, owner: &OwnerId, sandbox: &SandboxId) -> Result<Values> {
        let owned = OwnedSandbox::check(&*self.store, owner, sandbox).await?;
        let mut values = Values::default();
        let Some(network) = &owned.request.network else { return Ok(values) };
        let principal = Principal { caller: owner.clone(), flow_owner: None };
        let delivery = Delivery { inner: self, principal: &principal, sandbox, operation: "serve" };
        for (name, value) in delivery.values(&network.stored_secrets).await? {
            values.add(name, value);
        }
        Ok(values)
    }
}

/// Checks that a secret has a field, from the names alone.
fn check_field(row: &SecretRow, field: Option<&str>) -> Result<()> {
    let fields = row.label.kind.fields();
    let is_there = match field {
        Some(name) => fields.contains(&name),
        None => fields.len() == 1,
    };
    if is_there {
        return Ok(());
    }
    Err(vault_problem(stockade_vault::Error::NoField {
        field: field.map(|name| name.chars().take(64).collect()),
        fields: fields.iter().map(|name| (*name).to_owned()).collect(),
    }))
}

fn shortened(text: &str) -> String {
    text.chars().take(128).collect()
}

/// There is no such secret, or it is another owner's.
pub(crate) fn no_secret(reference: &str) -> Problem {
    let message = format!("there is no secret {}", shortened(reference));
    Problem::new(Code::SecretNotFound, message).remedied_by("stockade secrets list")
}

fn forbidden(reference: &str) -> Problem {
    let reference = shortened(reference);
    Problem::new(Code::SecretForbidden, format!("the secret {reference} is not the caller's"))
        .because("it belongs to the owner of the flow")
        .remedied_by("use it with the scope `flowOwner`")
}

/// The reference is in a file that is not there.
fn no_reference(path: &str) -> Problem {
    let message = format!("there is no reference to a secret at {}", shortened(path));
    Problem::new(Code::SecretRefNotFound, message)
        .remedied_by("use a name or an id of `stockade secrets list`")
}

#[cfg(test)]
mod tests {
    use stockade_test_support::assert_snapshot;

    use super::*;

    #[test]
    fn the_problems_of_a_delivery_match_their_snapshot() {
        let problems = [
            no_secret("github"),
            forbidden("github"),
            no_reference("x.ffsecret"),
            unavailable("the vault does not answer"),
        ];
        let text = serde_json::to_string_pretty(&problems).unwrap();
        assert_snapshot("errors/vault_delivery", &text);
    }
}
