//! Workspaces at Codeplane: the documented requests below `/repos/OWNER/NAME`.

use hyper::Method;
use hyper::header::{AUTHORIZATION, HeaderValue};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use stockade_runtime_remote::{Answer, Failure, Place, Repeat, Sent, Service};

use crate::address::Address;

/// Codeplane, as errors name it.
pub(crate) const SERVICE: Service =
    Service { name: "Codeplane", key_remedy: "export CODEPLANE_API_KEY=KEY" };
/// How many workspaces are listed at once, and the most pages of a list.
const PAGE: usize = 100;
const PAGES: usize = 1000;

/// The workspaces of a repository.
#[derive(Debug, Clone)]
pub(crate) struct Api {
    place: Place,
}

/// A workspace in an answer.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Workspace {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) status: String,
    #[serde(default)]
    pub(crate) snapshot_id: Option<String>,
}

/// How a workspace is reached over SSH. The token is a password.
#[derive(Clone, Deserialize)]
pub(crate) struct SshAccess {
    pub(crate) host: String,
    /// USER@HOST, where the user names the machine, too.
    #[serde(default)]
    pub(crate) ssh_host: Option<String>,
    pub(crate) username: String,
    #[serde(default = "default_port")]
    pub(crate) port: u16,
    pub(crate) access_token: String,
    /// The public key of the host, in the form of OpenSSH, where the service tells it.
    #[serde(default)]
    pub(crate) host_key: Option<String>,
}

const fn default_port() -> u16 {
    22
}

impl std::fmt::Debug for SshAccess {
    /// Without the token.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

impl SshAccess {
    /// The user to log in as.
    pub(crate) fn login(&self) -> &str {
        let of_host = self.ssh_host.as_ref().and_then(|text| text.rsplit_once('@'));
        of_host.map_or(self.username.as_str(), |(user, _)| user)
    }
}

impl Api {
    pub(crate) fn new(address: &Address) -> Result<Self, String> {
        let authorization = HeaderValue::from_str(&format!("token {}", address.key));
        let mut authorization =
            authorization.map_err(|_| "the key cannot be sent in a header".to_owned())?;
        authorization.set_sensitive(true);
        let (owner, name) = &address.repository;
        let place = Place {
            protocol: address.protocol,
            authority: address.authority.clone(),
            path: format!("{}/repos/{owner}/{name}", address.path),
            headers: vec![(AUTHORIZATION, authorization)],
            authorities: None,
            timeout: address.timeout,
        };
        Ok(Self { place })
    }

    /// Its URL.
    pub(crate) fn name(&self) -> String {
        self.place.name()
    }

    /// Whether it answers, with this key.
    pub(crate) async fn check(&self) -> Result<(), Failure> {
        self.get::<serde_json::Value>("/workspaces?page=1&per_page=1").await.map(drop)
    }

    /// The workspace with a name.
    pub(crate) async fn find(&self, name: &str) -> Result<Option<Workspace>, Failure> {
        let mut all = self.list().await?.into_iter();
        Ok(all.find(|workspace| workspace.name == name))
    }

    /// All workspaces.
    pub(crate) async fn list(&self) -> Result<Vec<Workspace>, Failure> {
        let mut found = Vec::new();
        for page in 1..=PAGES {
            let items: Vec<Workspace> =
                self.get(&format!("/workspaces?page={page}&per_page={PAGE}")).await?;
            let is_last = items.len() < PAGE;
            found.extend(items);
            if is_last {
                return Ok(found);
            }
        }
        Err(Failure::Answer(self.name(), "a list without an end".to_owned()))
    }

    pub(crate) async fn workspace(&self, id: &str) -> Result<Workspace, Failure> {
        self.get(&format!("/workspaces/{}", segment(id))).await
    }

    /// Creates a workspace. It is not repeated if the service may have seen it: the caller looks for it by
    /// its name.
    pub(crate) async fn create(
        &self,
        name: &str,
        snapshot: Option<&str>,
    ) -> Result<Workspace, Failure> {
        let mut body = json!({ "name": name });
        if let Some(snapshot) = snapshot {
            body["snapshot_id"] = json!(snapshot);
        }
        let sent = Sent::json(&body);
        let answer = self.place.call(Method::POST, "/workspaces", sent, Repeat::IfUnseen).await?;
        self.parse(&answer)
    }

    /// Deletes a workspace. One that does not exist is deleted.
    pub(crate) async fn delete(&self, id: &str) -> Result<(), Failure> {
        let path = format!("/workspaces/{}", segment(id));
        let deleted = self.place.call(Method::DELETE, &path, Sent::default(), Repeat::Always).await;
        match deleted {
            Ok(_) => Ok(()),
            Err(failure) if matches!(failure.status(), Some(404 | 410)) => Ok(()),
            Err(failure) => Err(failure),
        }
    }

    /// Suspends a workspace: its memory and disk are kept, and nothing of it runs.
    pub(crate) async fn suspend(&self, id: &str) -> Result<(), Failure> {
        self.act(id, "suspend").await
    }

    /// Resumes a workspace.
    pub(crate) async fn resume(&self, id: &str) -> Result<(), Failure> {
        self.act(id, "resume").await
    }

    /// How a workspace is reached over SSH.
    pub(crate) async fn ssh(&self, id: &str) -> Result<SshAccess, Failure> {
        let access: SshAccess = self.get(&format!("/workspaces/{}/ssh", segment(id))).await?;
        if !is_host(&access.host) {
            return Err(Failure::Answer(self.name(), "a host with an invalid name".to_owned()));
        }
        Ok(access)
    }

    async fn act(&self, id: &str, action: &str) -> Result<(), Failure> {
        let path = format!("/workspaces/{}/{action}", segment(id));
        let sent = Sent::json(&json!({}));
        self.place.call(Method::POST, &path, sent, Repeat::Always).await.map(drop)
    }

    async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Failure> {
        let answer = self.place.call(Method::GET, path, Sent::default(), Repeat::Always).await?;
        self.parse(&answer)
    }

    fn parse<T: DeserializeOwned>(&self, answer: &Answer) -> Result<T, Failure> {
        // Without the text of the answer, which may have a token.
        let odd =
            |error: serde_json::Error| format!("{:?} in line {}", error.classify(), error.line());
        serde_json::from_slice(&answer.body).map_err(|e| Failure::Answer(self.name(), odd(e)))
    }
}

/// Whether a text is the name or the address of a host. It appears in hints that users paste.
fn is_host(text: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | ':' | '-' | '_');
    !text.is_empty() && text.len() <= 253 && !text.starts_with('-') && text.chars().all(is_plain)
}

/// What is encoded in a part of a path.
const ENCODED: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'_');

/// A part of a path.
fn segment(id: &str) -> String {
    utf8_percent_encode(id, &ENCODED).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_no_command() {
        for host in ["vm.example", "vm_1-a.example", "127.0.0.1", "::1"] {
            assert!(is_host(host), "{host}");
        }
        for text in ["", "-oProxyCommand=x", "a b", "a;id", "$(id)", "`id`", "a\nb", "a@b", "é"] {
            assert!(!is_host(text), "{text}");
        }
    }

    #[test]
    fn the_login_names_the_machine_where_the_service_says_so() {
        let text = r#"{"host":"h","username":"developer","access_token":"ws_secret"}"#;
        let plain: SshAccess = serde_json::from_str(text).unwrap();
        assert_eq!((plain.login(), plain.port), ("developer", 22));
        let full = SshAccess { ssh_host: Some("vm_1+developer@h".to_owned()), ..plain };
        assert_eq!(full.login(), "vm_1+developer");
        assert!(!format!("{full:?}").contains("secret"));
    }
}
