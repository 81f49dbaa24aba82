//! Credentials for registries, as `docker login` stores them: in Docker's `config.json`, or in a
//! credential helper (`docker-credential-NAME get`), which runs with limits.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{ErrorKind, Read as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use zeroize::Zeroizing;

use crate::host::{DOCKER_KEYS, Host};

/// The largest configuration, and the longest answer of a helper, in bytes.
const CONFIG_BYTES: u64 = 1 << 20;
const ANSWER_BYTES: u64 = 64 << 10;
/// How long a helper may take. It may ask the user something.
const HELPER_TIMEOUT: Duration = Duration::from_secs(60);
/// The user name with which a helper says that the secret is an identity token.
const TOKEN_USER: &str = "<token>";
/// What a helper prints if it has no credentials for a host.
const NONE_STORED: &str = "credentials not found";

/// What authenticates a user to one registry. Without `Debug`, so that no message contains it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Credential {
    Password {
        user: String,
        password: Zeroizing<String>,
    },
    /// A token that is exchanged for others (OAuth 2's refresh token).
    IdentityToken(Zeroizing<String>),
}

/// The credentials for the hosts of one download, or why those of a host cannot be read. Such a
/// failure matters only if the host refuses anonymous access.
#[derive(Clone, Default, Serialize, Deserialize)]
pub struct Credentials(BTreeMap<String, Result<Credential, String>>);

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.0.keys()).finish()
    }
}

/// Docker's configuration.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Config {
    auths: BTreeMap<String, Entry>,
    cred_helpers: BTreeMap<String, String>,
    creds_store: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Entry {
    auth: Zeroizing<String>,
    username: String,
    password: Zeroizing<String>,
    identitytoken: Zeroizing<String>,
}

/// The answer of a helper.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Answer {
    username: String,
    secret: Zeroizing<String>,
}

impl Credentials {
    /// Reads the credentials for these hosts from the configuration in `DOCKER_CONFIG`, else in
    /// `~/.docker`.
    pub async fn load(hosts: &[String], variable: impl Fn(&str) -> Option<OsString>) -> Self {
        let named = variable("DOCKER_CONFIG").filter(|path| !path.is_empty()).map(PathBuf::from);
        let home = || Some(PathBuf::from(variable("HOME")?).join(".docker"));
        let Some(directory) = named.or_else(home) else { return Self::default() };
        let path = directory.join("config.json");
        let config = read(&path).map_err(|why| format!("{}: {why}", path.display()));
        let mut all = BTreeMap::new();
        for host in hosts {
            let found = match &config {
                Ok(config) => config.find(host).await,
                Err(why) => Err(why.clone()),
            };
            if let Some(found) = found.transpose() {
                all.insert(host.clone(), found);
            }
        }
        Self(all)
    }

    /// The credential for a host.
    pub(crate) fn of(&self, host: &str) -> Option<&Result<Credential, String>> {
        self.0.get(host)
    }
}

/// The configuration in a file; an empty one if there is none.
fn read(path: &Path) -> Result<Config, String> {
    let file = match std::fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Config::default()),
        Err(error) => return Err(error.to_string()),
    };
    if !file.metadata().is_ok_and(|metadata| metadata.is_file()) {
        return Err("it is not a regular file".to_owned());
    }
    let mut text = Zeroizing::new(Vec::new());
    file.take(CONFIG_BYTES + 1).read_to_end(&mut text).map_err(|error| error.to_string())?;
    if text.len() as u64 > CONFIG_BYTES {
        return Err(format!("it is larger than {CONFIG_BYTES} bytes"));
    }
    // The text of the parser's error may contain a part of the file.
    serde_json::from_slice(&text).map_err(|error| {
        format!(
            "it is not Docker's configuration (line {}, column {})",
            error.line(),
            error.column()
        )
    })
}

impl Config {
    async fn find(&self, host: &str) -> Result<Option<Credential>, String> {
        let keys = Host::keys(host);
        let is_for_host = |key: &str| keys.iter().any(|known| known == key || known == name(key));
        let mut helpers = self.cred_helpers.iter();
        let helper = helpers.find(|(key, _)| is_for_host(key));
        if let Some((key, helper)) = helper {
            return ask(helper, key).await;
        }
        if let Some(store) = self.creds_store.as_ref().filter(|store| !store.is_empty()) {
            let key = if DOCKER_KEYS.contains(&host) { DOCKER_KEYS[0] } else { host };
            if let Some(found) = ask(store, key).await? {
                return Ok(Some(found));
            }
        }
        let mut entries = self.auths.iter();
        let entry = entries.find(|(key, entry)| is_for_host(key) && !entry.is_empty());
        entry.map(|(_, entry)| entry.credential()).transpose()
    }
}

/// The host of a key of the configuration, which may be a URL with a path.
fn name(key: &str) -> &str {
    let rest = key.split_once("://").map_or(key, |(_, rest)| rest);
    rest.split_once('/').map_or(rest, |(host, _)| host)
}

impl Entry {
    /// Whether it only names a host whose credentials are in a helper.
    fn is_empty(&self) -> bool {
        self.auth.is_empty() && self.identitytoken.is_empty() && self.username.is_empty()
    }

    fn credential(&self) -> Result<Credential, String> {
        if !self.identitytoken.is_empty() {
            return Ok(Credential::IdentityToken(self.identitytoken.clone()));
        }
        if self.auth.is_empty() {
            return Ok(Credential::Password {
                user: self.username.clone(),
                password: self.password.clone(),
            });
        }
        let invalid = || "`auth` is not the Base64 form of USER:PASSWORD".to_owned();
        let decoded = BASE64.decode(self.auth.trim().as_bytes()).map_err(|_| invalid())?;
        let decoded = Zeroizing::new(decoded);
        let text = std::str::from_utf8(&decoded).map_err(|_| invalid())?;
        let (user, password) = text.split_once(':').ok_or_else(invalid)?;
        let password = Zeroizing::new(password.trim_end_matches('\0').to_owned());
        Ok(Credential::Password { user: user.to_owned(), password })
    }
}

/// Asks a helper for the credential of a host. Neither its output nor its messages are part of an
/// error.
async fn ask(helper: &str, key: &str) -> Result<Option<Credential>, String> {
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if helper.is_empty() || !helper.bytes().all(is_name) {
        return Err(format!("{helper:?} is not the name of a credential helper"));
    }
    let program = format!("docker-credential-{helper}");
    let failed = |why: &dyn std::fmt::Display| format!("{program}: {why}");
    let mut command = tokio::process::Command::new(&program);
    command.arg("get").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.kill_on_drop(true).spawn().map_err(|error| failed(&error))?;
    let (mut input, mut output) = (child.stdin.take(), child.stdout.take());
    let mut answer = Zeroizing::new(Vec::new());
    let run = async {
        if let Some(mut input) = input.take() {
            // A helper that reads nothing may still answer.
            let _ = input.write_all(key.as_bytes()).await;
        }
        if let Some(output) = output.take() {
            output.take(ANSWER_BYTES + 1).read_to_end(&mut answer).await?;
        }
        child.wait().await
    };
    let status = match tokio::time::timeout(HELPER_TIMEOUT, run).await {
        Err(_) => return Err(failed(&format!("no answer after {} s", HELPER_TIMEOUT.as_secs()))),
        Ok(Err(error)) => return Err(failed(&error)),
        Ok(Ok(status)) => status,
    };
    if answer.len() as u64 > ANSWER_BYTES {
        return Err(failed(&format!("its answer is larger than {ANSWER_BYTES} bytes")));
    }
    if !status.success() {
        let is_none = String::from_utf8_lossy(&answer).trim().starts_with(NONE_STORED);
        return if is_none { Ok(None) } else { Err(failed(&status)) };
    }
    let Answer { username, secret } = serde_json::from_slice(&answer)
        .map_err(|_| failed(&"its answer is not a JSON object with Username and Secret"))?;
    Ok(Some(match username.as_str() {
        TOKEN_USER => Credential::IdentityToken(secret),
        _ => Credential::Password { user: username, password: secret },
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn load(config: &str, host: &str) -> Option<Result<Credential, String>> {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("config.json"), config).unwrap();
        let named = directory.path().as_os_str().to_owned();
        let variable = move |name: &str| (name == "DOCKER_CONFIG").then(|| named.clone());
        Credentials::load(&[host.to_owned()], variable).await.of(host).cloned()
    }

    fn password(user: &str, password: &str) -> Credential {
        Credential::Password {
            user: user.to_owned(),
            password: Zeroizing::new(password.to_owned()),
        }
    }

    #[tokio::test]
    async fn credentials_are_found_under_every_name_of_a_host() {
        let config = r#"{
            "auths": {
                "https://index.docker.io/v1/": {"auth": "dTpwOnE="},
                "https://a.example:5000/v2/": {"username": "x", "password": "y"},
                "b.example": {"auth": "", "identitytoken": "t"},
                "c.example": {}
            },
            "HttpHeaders": {}
        }"#;
        assert!(load(config, "docker.io").await.unwrap().unwrap() == password("u", "p:q"));
        assert!(load(config, "a.example:5000").await.unwrap().unwrap() == password("x", "y"));
        let token = load(config, "b.example").await.unwrap().unwrap();
        assert!(token == Credential::IdentityToken(Zeroizing::new("t".to_owned())));
        for host in ["c.example", "a.example", "a.example:5001", "example", "v2"] {
            assert!(load(config, host).await.is_none(), "{host}");
        }
    }

    #[tokio::test]
    async fn what_cannot_be_read_is_named_without_its_content() {
        for (config, part) in [
            (r#"{"auths": {"h": {"auth": "c2VjcmV0"}}}"#, "USER:PASSWORD"),
            (r#"{"auths": {"h": {"auth": "***"}}}"#, "USER:PASSWORD"),
            (r#"{"auths": "secret"}"#, "line 1"),
            ("secret", "line 1"),
            (r#"{"credsStore": "../x"}"#, "not the name"),
            (r#"{"credHelpers": {"h": "no-such-helper"}}"#, "docker-credential-no-such-helper"),
        ] {
            let Some(Err(why)) = load(config, "h").await else { panic!("{config}") };
            assert!(why.contains(part), "{config}: {why}");
            assert!(!why.contains("secret\"") && !why.contains("c2Vj"), "{config}: {why}");
        }
    }

    #[tokio::test]
    async fn without_a_file_there_are_no_credentials() {
        let variable = |name: &str| (name == "HOME").then(|| "/nonexistent".into());
        let credentials = Credentials::load(&["h".to_owned()], variable).await;
        assert!(credentials.of("h").is_none());
        assert_eq!(format!("{credentials:?}"), "[]");
    }
}
