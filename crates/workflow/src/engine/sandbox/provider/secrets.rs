//! Values that must not be stored: those of the egress contract of a sandbox, and variables whose names
//! indicate secrets.

use serde_json::Value;
use stockade_core::smithers_egress::Contract;

use crate::engine::task_error::TaskError;
use crate::graph::Sandbox;

/// Shorter values are ignored, because they occur in almost every text.
const MIN_SECRET_BYTES: usize = 4;
const SECRET_NAMES: [&str; 6] = ["token", "secret", "key", "passw", "credential", "authorization"];
const REDACTED: &str = "[redacted]";

/// The secrets of a sandbox.
#[derive(Debug, Default)]
pub(super) struct Secrets(Vec<String>);

impl Secrets {
    pub(super) fn of(sandbox: &Sandbox, contract: Option<&Contract>) -> Self {
        let is_secret = |name: &str| {
            let name = name.to_lowercase();
            SECRET_NAMES.iter().any(|secret| name.contains(secret))
        };
        let named = sandbox.env.iter().filter(|(name, _)| is_secret(name)).map(|(_, value)| value);
        let mut all: Vec<String> = named.cloned().collect();
        if let Some(contract) = contract {
            all.extend(contract.env.values().cloned());
            let bindings = contract.secret_bindings.iter();
            all.extend(bindings.flat_map(|(one, other)| [one.clone(), other.clone()]));
            let single = [&contract.http_proxy, &contract.https_proxy, &contract.ca_cert_pem];
            all.extend(single.into_iter().flatten().cloned());
        }
        all.retain(|secret| secret.len() >= MIN_SECRET_BYTES);
        // The longest secrets come first: a secret may contain another one.
        all.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        Self(all)
    }

    fn redact_text(&self, text: &mut String) {
        for secret in &self.0 {
            if text.contains(secret) {
                *text = text.replace(secret, REDACTED);
            }
        }
    }

    pub(super) fn redact(&self, value: &mut Value) {
        match value {
            Value::String(text) => self.redact_text(text),
            Value::Array(items) => items.iter_mut().for_each(|item| self.redact(item)),
            Value::Object(fields) => fields.values_mut().for_each(|item| self.redact(item)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    pub(super) fn redacted(&self, mut error: TaskError) -> TaskError {
        self.redact_text(&mut error.message);
        error
    }
}
