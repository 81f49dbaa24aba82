//! The OpenID provider of logins: discovery, the authorization code flow with PKCE, and the check of the
//! identity token. The crate `openidconnect` checks signature, issuer, audience, time and nonce.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use openidconnect::core::{CoreAuthenticationFlow, CoreClient, CoreProviderMetadata};
use openidconnect::{
    AccessTokenHash, AuthorizationCode, ClientId, ClientSecret, CsrfToken, HttpRequest, IssuerUrl,
    Nonce, OAuth2TokenResponse as _, PkceCodeChallenge, PkceCodeVerifier, RedirectUrl, Scope,
    TokenResponse as _,
};
use stockade_api::Problem;
use stockade_core::{Code, OwnerId};
use tokio::sync::Mutex;
use tokio_rustls::rustls::ClientConfig;

use super::fetch::{fetch, is_loopback, trust};

/// How long what the provider publishes about itself is used.
const METADATA_AGE: Duration = Duration::from_secs(300);
/// The owner of a user whom the configuration does not name.
const OWNER_PREFIX: &str = "oidc:";

/// The property of a user that determines the owner.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OwnerClaim {
    /// The identifier that the provider never gives to another user.
    #[default]
    Subject,
    /// The address, if the provider has verified it.
    Email,
}

/// The options of logins.
#[derive(Debug, Clone)]
pub struct LoginOptions {
    /// The issuer, under which the provider publishes its metadata.
    pub issuer: String,
    /// The name of this server at the provider.
    pub client_id: String,
    /// The secret of this server; absent for a public client.
    pub client_secret: Option<String>,
    /// The property that determines the owner.
    pub owner_claim: OwnerClaim,
    /// The owners of users, by that property. Another user is the owner `oidc:PROPERTY`.
    pub owners: BTreeMap<String, OwnerId>,
    /// The authorities for connections to the provider, in PEM format; those of the system when
    /// absent.
    pub ca_file: Option<PathBuf>,
}

/// What a login needs again when the browser comes back.
pub(super) struct Attempt {
    nonce: Nonce,
    verifier: PkceCodeVerifier,
}

impl std::fmt::Debug for Attempt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Attempt")
    }
}

/// The provider.
pub(super) struct Provider {
    options: LoginOptions,
    issuer: IssuerUrl,
    redirect: RedirectUrl,
    trust: Option<Arc<ClientConfig>>,
    metadata: Mutex<Option<(Instant, CoreProviderMetadata)>>,
}

impl std::fmt::Debug for Provider {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Provider").field("issuer", &self.issuer).finish_non_exhaustive()
    }
}

impl Provider {
    /// A provider to which `redirect` is known as the address to return to.
    pub(super) fn new(options: LoginOptions, redirect: &str) -> Result<Self, Problem> {
        let invalid = |message: String| Problem::new(Code::InvalidInput, message);
        let issuer = IssuerUrl::new(options.issuer.clone())
            .map_err(|error| invalid(format!("the issuer {:?}: {error}", options.issuer)))?;
        let is_secure = issuer.url().scheme() == "https";
        let is_local = issuer.url().scheme() == "http" && is_loopback(issuer.url());
        if !is_secure && !is_local {
            let message = format!("the issuer {:?} has no TLS", options.issuer);
            return Err(invalid(message)
                .because("who answers in its place could be any user")
                .remedied_by("use an issuer that starts with https://"));
        }
        let redirect = RedirectUrl::new(redirect.to_owned())
            .map_err(|error| invalid(format!("the public URL: {error}")))?;
        let trust = is_secure.then(|| trust(options.ca_file.as_deref())).transpose()?;
        Ok(Self { options, issuer, redirect, trust, metadata: Mutex::default() })
    }

    /// Starts a login: the address at the provider, the state that comes back, and what the end needs.
    pub(super) async fn start(&self) -> Result<(String, String, Attempt), Problem> {
        let metadata = self.metadata(false).await?;
        let client = CoreClient::from_provider_metadata(
            metadata,
            ClientId::new(self.options.client_id.clone()),
            self.options.client_secret.clone().map(ClientSecret::new),
        )
        .set_redirect_uri(self.redirect.clone());
        let (challenge, verifier) = PkceCodeChallenge::new_random_sha256();
        let flow = CoreAuthenticationFlow::AuthorizationCode;
        let request = client
            .authorize_url(flow, CsrfToken::new_random, Nonce::new_random)
            .set_pkce_challenge(challenge);
        let request = match self.options.owner_claim {
            OwnerClaim::Subject => request,
            OwnerClaim::Email => request.add_scope(Scope::new("email".to_owned())),
        };
        let (url, state, nonce) = request.url();
        Ok((url.to_string(), state.into_secret(), Attempt { nonce, verifier }))
    }

    /// Ends a login: the owner that the user is.
    pub(super) async fn finish(
        &self,
        code: &str,
        issuer: Option<&str>,
        attempt: Attempt,
    ) -> Result<OwnerId, Problem> {
        // RFC 9207: a code of another provider must not be sent to this one.
        if issuer.is_some_and(|issuer| issuer != self.issuer.as_str()) {
            return Err(refused("the response is from another issuer"));
        }
        let client = CoreClient::from_provider_metadata(
            self.metadata(false).await?,
            ClientId::new(self.options.client_id.clone()),
            self.options.client_secret.clone().map(ClientSecret::new),
        )
        .set_redirect_uri(self.redirect.clone());
        let http = |request: HttpRequest| fetch(self.trust.clone(), request);
        let request = client
            .exchange_code(AuthorizationCode::new(code.to_owned()))
            .map_err(|error| {
                refused("the provider has no token endpoint").because(error.to_string())
            })?
            .set_pkce_verifier(attempt.verifier);
        let response = request.request_async(&http).await.map_err(|error| {
            refused("the OpenID provider has not accepted the code").because(error.to_string())
        })?;
        let token = response
            .id_token()
            .ok_or_else(|| refused("the OpenID provider has sent no identity token"))?;
        let invalid = |error: &dyn std::error::Error| {
            refused("the identity token is invalid").because(error.to_string())
        };
        let verifier = client.id_token_verifier();
        let claims = match token.claims(&verifier, &attempt.nonce) {
            Ok(claims) => claims.clone(),
            // The provider may sign with a new key.
            Err(_) => {
                let client = CoreClient::from_provider_metadata(
                    self.metadata(true).await?,
                    ClientId::new(self.options.client_id.clone()),
                    self.options.client_secret.clone().map(ClientSecret::new),
                );
                let verifier = client.id_token_verifier();
                let claims = token.claims(&verifier, &attempt.nonce);
                return self.owner(claims.map_err(|error| invalid(&error))?);
            }
        };
        if let Some(expected) = claims.access_token_hash() {
            let algorithm = token.signing_alg().map_err(|error| invalid(&error))?;
            let key = token.signing_key(&verifier).map_err(|error| invalid(&error))?;
            let actual = AccessTokenHash::from_token(response.access_token(), algorithm, key);
            if actual.map_err(|error| invalid(&error))? != *expected {
                return Err(refused("the access token is not that of the identity token"));
            }
        }
        self.owner(&claims)
    }

    fn owner(&self, claims: &openidconnect::core::CoreIdTokenClaims) -> Result<OwnerId, Problem> {
        let name = match self.options.owner_claim {
            OwnerClaim::Subject => claims.subject().as_str(),
            OwnerClaim::Email => {
                let verified = claims.email().filter(|_| claims.email_verified() == Some(true));
                verified.map(|email| email.as_str()).ok_or_else(|| {
                    refused("the OpenID provider names no verified address of the user")
                })?
            }
        };
        match self.options.owners.get(name) {
            Some(owner) => Ok(owner.clone()),
            // No name that a provider chooses is that of another kind of owner.
            None => OwnerId::new(format!("{OWNER_PREFIX}{name}"))
                .map_err(|error| refused("the user cannot be an owner").because(error.to_string())),
        }
    }

    /// What the provider publishes about itself, with its keys.
    async fn metadata(&self, again: bool) -> Result<CoreProviderMetadata, Problem> {
        let mut known = self.metadata.lock().await;
        if let Some((read, metadata)) = &*known
            && !again
            && read.elapsed() < METADATA_AGE
        {
            return Ok(metadata.clone());
        }
        let http = |request: HttpRequest| fetch(self.trust.clone(), request);
        let found = CoreProviderMetadata::discover_async(self.issuer.clone(), &http).await;
        let metadata = found.map_err(|error| {
            Problem::new(Code::Unreachable, "the OpenID provider is not available")
                .because(error.to_string())
        })?;
        *known = Some((Instant::now(), metadata.clone()));
        Ok(metadata)
    }
}

fn refused(message: &str) -> Problem {
    Problem::new(Code::Forbidden, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(issuer: &str) -> LoginOptions {
        LoginOptions {
            issuer: issuer.to_owned(),
            client_id: "stockade".to_owned(),
            client_secret: None,
            owner_claim: OwnerClaim::Subject,
            owners: BTreeMap::new(),
            ca_file: None,
        }
    }

    #[test]
    fn a_provider_on_another_host_needs_tls() {
        let redirect = "http://localhost:8080/auth/callback";
        for issuer in ["http://127.0.0.1:9000", "http://localhost:9000/realm", "http://[::1]:1"] {
            assert!(Provider::new(options(issuer), redirect).is_ok(), "{issuer}");
        }
        for issuer in ["http://id.example", "ftp://localhost", "http://localhost.evil.example", ""]
        {
            assert!(Provider::new(options(issuer), redirect).is_err(), "{issuer}");
        }
    }
}
