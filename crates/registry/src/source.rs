//! One host that serves a repository: the registry or a mirror. Requests are authenticated as the
//! host asks for it, at most twice for each request.

use std::cell::{Cell, RefCell};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use hyper::header;
use serde::Deserialize;
use stockade_core::address::Class;
use url::Url;
use zeroize::Zeroizing;

use crate::challenge::{self, Challenge};
use crate::credentials::Credential;
use crate::error::Error;
use crate::exchange::{Client, Request, Response};
use crate::host::Host;

/// The largest answer of a token service, and the largest text of an error that is read, in bytes.
const TOKEN_BYTES: u64 = 256 << 10;
const ERROR_BYTES: u64 = 16 << 10;
/// The longest reason that a message repeats, in characters.
const REASON_LETTERS: usize = 200;
/// How often one request is sent: without credentials, with a token, and with a new one instead of
/// one that expired.
const ROUNDS: u32 = 3;

/// A host that serves a repository.
pub(crate) struct Source<'a> {
    pub(crate) host: Host,
    pub(crate) repository: &'a str,
    pub(crate) client: &'a Client,
    pub(crate) credential: Option<Result<Credential, String>>,
    /// Whether it was found to speak no TLS, which is allowed.
    is_plain: Cell<bool>,
    /// What the last authentication gave, the value of `Authorization`.
    authorization: RefCell<Option<Zeroizing<String>>>,
}

impl<'a> Source<'a> {
    pub(crate) fn new(
        host: Host,
        repository: &'a str,
        client: &'a Client,
        credential: Option<Result<Credential, String>>,
    ) -> Self {
        let is_plain = Cell::new(false);
        Self { host, repository, client, credential, is_plain, authorization: RefCell::default() }
    }

    /// Asks for a manifest or blob of the repository; `path` is such as `blobs/sha256:…`. With
    /// `from`, a part of it may be the answer.
    pub(crate) async fn get(&self, path: &str, accept: &str, from: u64) -> Result<Response, Error> {
        let mut tried = 0;
        loop {
            let url = self.url(path)?;
            let sent = self.authorization.borrow().clone();
            let request = Request {
                accept: accept.to_owned(),
                authorization: sent,
                from,
                ..Request::get(url)
            };
            let response = match self.client.follow(&request).await {
                Err(error) if self.falls_back(&error) => {
                    self.is_plain.set(true);
                    continue;
                }
                other => other?,
            };
            match response.status.as_u16() {
                200 | 206 => return Ok(response),
                // Only the host itself may ask for credentials, not one that it redirected to.
                401 if response.url.origin() == request.url.origin() && tried + 1 < ROUNDS => {
                    tried += 1;
                    let had = request.authorization;
                    let new = self.authenticate(&response, path).await?;
                    // Another request may have renewed it meanwhile, or nothing else can be sent.
                    if new.is_none() || (new == had && tried > 1) {
                        return Err(self.failure(response, path).await);
                    }
                    *self.authorization.borrow_mut() = new;
                }
                _ => return Err(self.failure(response, path).await),
            }
        }
    }

    /// Whether the host speaks no TLS and need not.
    fn falls_back(&self, error: &Error) -> bool {
        let is_https = self.host.base.scheme() == "https" && !self.is_plain.get();
        let has_port = self.host.base.port().is_some();
        let is_sign = match error {
            Error::NoTls { .. } => true,
            // Nothing listens at the port for TLS; plain HTTP has another one.
            Error::Unreachable { .. } => !has_port,
            _ => false,
        };
        is_https && self.host.may_be_plain && is_sign
    }

    fn url(&self, path: &str) -> Result<Url, Error> {
        let mut base = self.host.base.clone();
        if self.is_plain.get() && base.set_scheme("http").is_err() {
            return Err(self.invalid("it has no URL without TLS".to_owned()));
        }
        base.join(&format!("v2/{}/{path}", self.repository))
            .map_err(|error| self.invalid(error.to_string()))
    }

    /// What to send in `Authorization` after a challenge; `None` if there is nothing to send.
    async fn authenticate(
        &self,
        response: &Response,
        path: &str,
    ) -> Result<Option<Zeroizing<String>>, Error> {
        let headers = response.headers.get_all(header::WWW_AUTHENTICATE);
        let challenge = Challenge::parse(headers.iter().filter_map(|value| value.to_str().ok()));
        let credential = self.credential.as_ref().and_then(|found| found.as_ref().ok());
        match challenge {
            None => Ok(None),
            Some(Challenge::Basic) => Ok(match credential {
                Some(Credential::Password { user, password }) => Some(basic(user, password)),
                _ => None,
            }),
            Some(Challenge::Bearer { realm, service }) => {
                let realm = Url::parse(&realm).map_err(|_| {
                    self.invalid("it names a token service that is not a URL".to_owned())
                })?;
                self.client.check_scheme(&realm).map_err(|why| self.invalid(why))?;
                let token = self.token(realm, service, credential, response.class, path).await?;
                Ok(Some(Zeroizing::new(format!("Bearer {}", *token))))
            }
        }
    }

    /// A token of a token service, for reading the repository and nothing else.
    async fn token(
        &self,
        realm: Url,
        service: Option<String>,
        credential: Option<&Credential>,
        registry: Class,
        path: &str,
    ) -> Result<Zeroizing<String>, Error> {
        let scope = format!("repository:{}:pull", self.repository);
        let mut request = Request::get(realm);
        request.accept = "application/json".to_owned();
        if let Some(Credential::IdentityToken(token)) = credential {
            let mut form = url::form_urlencoded::Serializer::new(String::new());
            form.append_pair("grant_type", "refresh_token").append_pair("client_id", "stockade");
            form.append_pair("service", service.as_deref().unwrap_or_default());
            form.append_pair("scope", &scope).append_pair("refresh_token", token);
            request.form = Some(Zeroizing::new(form.finish()));
        } else {
            let mut query = request.url.query_pairs_mut();
            query.extend_pairs(service.as_deref().map(|service| ("service", service)));
            query.append_pair("scope", &scope);
            if let Some(Credential::Password { user, password }) = credential {
                query.append_pair("account", user);
                request.authorization = Some(basic(user, password));
            }
            drop(query);
        }
        // Redirects are not followed.
        let response = self.client.send(&request, Some(registry)).await?;
        if response.status.as_u16() != 200 {
            return Err(self.failure(response, path).await);
        }
        let host = response.host();
        let answer = Zeroizing::new(response.document("the token", TOKEN_BYTES).await?);
        challenge::token(&answer).ok_or_else(|| Error::Invalid {
            host,
            reason: "the token service answered without a token".to_owned(),
        })
    }

    /// The error of a response that is not what was asked for.
    async fn failure(&self, response: Response, path: &str) -> Error {
        let host = self.host.name.clone();
        let with_credentials = matches!(self.credential, Some(Ok(_)));
        let what = match path.split_once('/') {
            Some(("manifests", name)) => format!("image {}:{name}", self.repository),
            Some((_, name)) => format!("blob {name} in {}", self.repository),
            None => self.repository.to_owned(),
        };
        let what = what.replace(":sha256:", "@sha256:");
        let (status, after) = (response.status.as_u16(), response.retry_after());
        let text = response.document("the text of an error", ERROR_BYTES).await.unwrap_or_default();
        let reason = self.hide(&reason(&text).unwrap_or_else(|| format!("status {status}")));
        match status {
            401 | 403 => match &self.credential {
                Some(Err(why)) => Error::Credentials { host, reason: why.clone() },
                _ => Error::Unauthorized { host, what, with_credentials, reason },
            },
            404 => Error::NotFound { host, what },
            429 => Error::RateLimited { host, after, with_credentials },
            _ => Error::Failed { host, status, reason },
        }
    }

    fn invalid(&self, reason: String) -> Error {
        Error::Invalid { host: self.host.name.clone(), reason }
    }

    /// A text of the host without the credentials that it was sent.
    fn hide(&self, text: &str) -> String {
        let authorization = self.authorization.borrow();
        let mut secrets: Vec<&str> = Vec::new();
        if let Some((_, value)) = authorization.as_deref().and_then(|all| all.split_once(' ')) {
            secrets.push(value);
        }
        let encoded = match &self.credential {
            Some(Ok(Credential::Password { user, password })) => {
                secrets.push(password);
                Some(basic(user, password))
            }
            Some(Ok(Credential::IdentityToken(token))) => {
                secrets.push(token);
                None
            }
            _ => None,
        };
        secrets.extend(encoded.as_deref().and_then(|all| Some(all.split_once(' ')?.1)));
        let found = secrets.iter().any(|secret| !secret.is_empty() && text.contains(secret));
        if found { "its text repeats a credential".to_owned() } else { text.to_owned() }
    }
}

fn basic(user: &str, password: &str) -> Zeroizing<String> {
    let pair = Zeroizing::new(format!("{user}:{password}"));
    Zeroizing::new(format!("Basic {}", BASE64.encode(pair.as_bytes())))
}

/// The reason in the text of an error, in OCI's form.
fn reason(text: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Answer {
        errors: Vec<Entry>,
    }
    #[derive(Deserialize)]
    struct Entry {
        code: Option<String>,
        message: Option<String>,
    }
    let answer: Answer = serde_json::from_slice(text).ok()?;
    let Entry { code, message } = answer.errors.into_iter().next()?;
    let words: Vec<_> = code.into_iter().chain(message).collect();
    let text: String = words.join(": ").chars().take(REASON_LETTERS).collect();
    (!text.is_empty()).then_some(text)
}
