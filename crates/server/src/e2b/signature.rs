//! Signed URLs of files. They name no sandbox: the signature is made with its token, so that of each live
//! sandbox is compared.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use sha2::{Digest as _, Sha256};
use stockade_api::{ListSandboxes, Problem, SandboxList};
use stockade_core::{Code, SandboxId};

use super::App;
use crate::auth::Scope;

/// The version of signatures.
const PREFIX: &str = "v1_";

/// How often the tokens that other servers have given are read at most.
const RELOAD_INTERVAL: Duration = Duration::from_secs(1);

/// The tokens of how many sandboxes are kept.
const SANDBOXES: usize = 1 << 16;

/// The tokens that clients may have signed with.
#[derive(Debug, Default)]
pub(super) struct Tokens {
    known: Mutex<BTreeMap<SandboxId, BTreeSet<String>>>,
    /// When the tokens that this server has not given itself were last read.
    loaded: tokio::sync::Mutex<Option<Instant>>,
}

impl Tokens {
    /// Remembers the token that a client received.
    pub(super) fn add(&self, id: &SandboxId, token: &str) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        // Those of sandboxes that have expired are not removed otherwise. A token that is used is added again.
        if known.len() >= SANDBOXES && !known.contains_key(id) {
            known.pop_first();
        }
        known.entry(id.clone()).or_default().insert(token.to_owned());
    }

    /// Forgets the tokens of a sandbox.
    pub(super) fn remove(&self, id: &SandboxId) {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
    }

    /// The sandbox of a token, for clients that do not name the sandbox.
    pub(super) fn sandbox_of(&self, token: &str) -> Option<SandboxId> {
        // Hashes are compared in constant time.
        let wanted = blake3::hash(token.as_bytes());
        self.find(|known| blake3::hash(known.as_bytes()) == wanted).map(|(id, _)| id)
    }

    /// Remembers the tokens of all sandboxes that there are, if a server has given one since the last time.
    /// Anyone can cause that, so it is not done all the time.
    pub(super) async fn load(&self, app: &App) -> Result<(), Problem> {
        let mut loaded = self.loaded.lock().await;
        let is_due = match *loaded {
            None => true,
            // What other servers have created is only in the database.
            Some(at) => app.is_clustered && at.elapsed() > RELOAD_INTERVAL,
        };
        if is_due {
            load(app).await?;
            *loaded = Some(Instant::now());
        }
        Ok(())
    }

    fn find(&self, is_signed_with: impl Fn(&str) -> bool) -> Option<(SandboxId, String)> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let all = known.iter().flat_map(|(id, tokens)| tokens.iter().map(move |token| (id, token)));
        let mut found = None;
        for (id, token) in all {
            if is_signed_with(token) {
                found = Some((id.clone(), token.clone()));
            }
        }
        found
    }
}

/// What a signed URL permits.
#[derive(Debug, Clone, Copy)]
pub(super) struct Signed<'a> {
    pub(super) path: &'a str,
    /// `read` or `write`.
    pub(super) operation: &'static str,
    pub(super) user: &'a str,
    pub(super) signature: &'a str,
    /// In seconds since 1970.
    pub(super) expiration: Option<i64>,
}

impl Signed<'_> {
    fn is_signed_with(&self, token: &str) -> bool {
        let Self { path, operation, user, signature, expiration } = self;
        let mut text = format!("{path}:{operation}:{user}:{token}");
        if let Some(expiration) = expiration {
            text.push_str(&format!(":{expiration}"));
        }
        let expected = format!("{PREFIX}{}", STANDARD_NO_PAD.encode(Sha256::digest(text)));
        // Hashes are compared in constant time.
        blake3::hash(expected.as_bytes()) == blake3::hash(signature.as_bytes())
    }

    /// The sandbox and the token with which it was signed; `None` if its time is over.
    pub(super) async fn verify(
        &self,
        app: &App,
        now_seconds: i64,
    ) -> Result<Option<(SandboxId, String)>, Problem> {
        let mut found = app.tokens.find(|token| self.is_signed_with(token));
        if found.is_none() {
            app.tokens.load(app).await?;
            found = app.tokens.find(|token| self.is_signed_with(token));
        }
        let found =
            found.ok_or_else(|| Problem::new(Code::Unauthenticated, "invalid signature"))?;
        let is_over = self.expiration.is_some_and(|expiration| expiration < now_seconds);
        Ok((!is_over).then_some(found))
    }
}

/// Remembers the tokens of all sandboxes that there are.
async fn load(app: &App) -> Result<(), Problem> {
    for principal in app.auth.principals(&*app.sandboxes).await? {
        let mut request = ListSandboxes::default();
        loop {
            let SandboxList { sandboxes, more } =
                app.sandboxes.list(&principal.caller, request.clone()).await?;
            request.after = sandboxes.last().map(|sandbox| sandbox.id.clone());
            for sandbox in &sandboxes {
                app.tokens.add(&sandbox.id, &app.auth.token(&principal, sandbox, Scope::Envd));
            }
            if !more || request.after.is_none() {
                break;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_for_one_path_operation_user_and_time() {
        // Made by the client e2b 2.63.0: get_signature("/a b", "read", None, "token").
        let text = "/a b:read::token";
        let signature = format!("v1_{}", STANDARD_NO_PAD.encode(Sha256::digest(text)));
        let signed = Signed {
            path: "/a b",
            operation: "read",
            user: "",
            signature: &signature,
            expiration: None,
        };
        assert!(signed.is_signed_with("token"));
        for other in [
            Signed { path: "/a", ..signed },
            Signed { operation: "write", ..signed },
            Signed { user: "root", ..signed },
            Signed { expiration: Some(1), ..signed },
            Signed { signature: "v1_", ..signed },
            Signed { signature: "", ..signed },
        ] {
            assert!(!other.is_signed_with("token"), "{other:?}");
        }
        assert!(!signed.is_signed_with("other"));
    }
}
