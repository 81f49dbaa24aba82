//! What browsers use: the host names of ports, the public URL of the server, and logins; from flags, the
//! environment and a file.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;
use stockade_api::PortSite;
use stockade_core::{Code, OwnerId, Problem};
use stockade_server::web::{LoginOptions, Options, OwnerClaim};
use url::{Host, Url};

/// The domain of ports on this machine: browsers connect to each name below it without asking another
/// host, and share no cookies between two of them.
const LOCAL_DOMAIN: &str = "localhost";
/// The longest domain that leaves room for the names of ports.
const DOMAIN_BYTES: usize = 180;

/// The table `login` of the configuration.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct LoginFile {
    issuer: String,
    client_id: String,
    client_secret_file: Option<PathBuf>,
    #[serde(default)]
    owner_claim: Claim,
    #[serde(default)]
    owners: BTreeMap<String, String>,
    ca_file: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
enum Claim {
    #[default]
    #[serde(rename = "sub")]
    Subject,
    #[serde(rename = "email")]
    Email,
}

/// The options.
#[derive(Debug, Clone)]
pub(crate) struct WebOptions {
    domain: String,
    public: Option<Url>,
    login: Option<LoginFile>,
}

impl WebOptions {
    /// The options, each of which may be absent.
    ///
    /// # Errors
    /// [`Code::InvalidInput`] for an invalid value.
    pub(crate) fn new(
        domain: Option<String>,
        public: Option<String>,
        login: Option<LoginFile>,
    ) -> Result<Self, Problem> {
        let domain = domain.unwrap_or_else(|| LOCAL_DOMAIN.to_owned()).to_ascii_lowercase();
        let is_name = |name: &str| {
            !name.is_empty()
                && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        };
        let is_number = domain.split('.').next_back().is_some_and(|it| it.parse::<u32>().is_ok());
        if domain.len() > DOMAIN_BYTES || !domain.split('.').all(is_name) || is_number {
            let message = format!("{domain:?} is no domain");
            return Err(Problem::new(Code::InvalidInput, message)
                .remedied_by("stockade serve --sandbox-domain sandboxes.example"));
        }
        Ok(Self { domain, public: public.as_deref().map(public_url).transpose()?, login })
    }

    /// The host name of the public URL.
    pub(crate) fn public_name(&self) -> Option<String> {
        self.public.as_ref().and_then(Url::host_str).map(str::to_owned)
    }

    /// The options of a listener.
    ///
    /// # Errors
    /// [`Code::InvalidInput`] if pages of sandboxes would share cookies with the server, or browsers
    /// would not accept the cookies.
    pub(crate) fn options(
        &self,
        scheme: &str,
        port: u16,
        names: &[String],
    ) -> Result<Options, Problem> {
        let (scheme, port) = match &self.public {
            Some(url) => (url.scheme().to_owned(), url.port()),
            None => (scheme.to_owned(), Some(port)),
        };
        let is_default =
            matches!((scheme.as_str(), port), ("http", Some(80)) | ("https", Some(443)));
        let port = port.filter(|_| !is_default);
        let domain = &self.domain;
        let below = format!(".{domain}");
        for name in names.iter().map(|name| name.to_lowercase()) {
            if name.ends_with(&below) || (name == *domain && domain != LOCAL_DOMAIN) {
                let message =
                    format!("{name} lies in the domain of the ports of sandboxes, {domain}");
                return Err(Problem::new(Code::InvalidInput, message)
                    .because("a page in a sandbox could set cookies for this server")
                    .remedied_by("use another domain: stockade serve --sandbox-domain NAME"));
            }
        }
        if domain != LOCAL_DOMAIN && scheme != "https" {
            let message = format!("browsers keep no session with {domain} without TLS");
            return Err(Problem::new(Code::InvalidInput, message)
                .remedied_by("stockade serve --tls-cert FILE --tls-key FILE"));
        }
        let public_origin = match &self.public {
            Some(url) => url.origin().ascii_serialization(),
            None => {
                let port = port.map(|port| format!(":{port}")).unwrap_or_default();
                format!("{scheme}://localhost{port}")
            }
        };
        let login = self.login.clone().map(login).transpose()?;
        let site = PortSite { scheme, domain: domain.clone(), port };
        Ok(Options { site, public_origin, login })
    }
}

fn public_url(text: &str) -> Result<Url, Problem> {
    let url = Url::parse(text).ok().filter(|url| {
        matches!(url.scheme(), "http" | "https")
            && matches!(url.host(), Some(Host::Domain(_) | Host::Ipv4(_) | Host::Ipv6(_)))
            && url.path() == "/"
            && url.query().is_none()
            && url.fragment().is_none()
            && url.username().is_empty()
            && url.password().is_none()
    });
    url.ok_or_else(|| {
        let message = format!("{text:?} is no URL with a scheme and a host alone");
        Problem::new(Code::InvalidInput, message)
            .remedied_by("stockade serve --public-url https://stockade.example")
    })
}

fn login(file: LoginFile) -> Result<LoginOptions, Problem> {
    let LoginFile { issuer, client_id, client_secret_file, owner_claim, owners, ca_file } = file;
    let client_secret = client_secret_file
        .map(|path| {
            let secret = std::fs::read_to_string(&path).map_err(|error| {
                let message = format!("the client secret {} cannot be read", path.display());
                Problem::new(Code::InvalidInput, message).because(error.to_string())
            })?;
            Ok::<_, Problem>(secret.trim().to_owned())
        })
        .transpose()?;
    let owner_claim = match owner_claim {
        Claim::Subject => OwnerClaim::Subject,
        Claim::Email => OwnerClaim::Email,
    };
    let owner = |(user, owner): (String, String)| {
        let owner = OwnerId::new(owner)
            .map_err(|error| Problem::new(Code::InvalidInput, format!("an owner: {error}")))?;
        Ok((user, owner))
    };
    let owners = owners.into_iter().map(owner).collect::<Result<_, Problem>>()?;
    Ok(LoginOptions { issuer, client_id, client_secret, owner_claim, owners, ca_file })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(domain: &str, public: Option<&str>, names: &[&str]) -> Result<Options, Problem> {
        let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        let web = WebOptions::new(Some(domain.to_owned()), public.map(str::to_owned), None)?;
        web.options("http", 8080, &names)
    }

    #[test]
    fn ports_have_a_domain_of_their_own() {
        let local = options("localhost", None, &["box.example"]).unwrap();
        assert_eq!(local.public_origin, "http://localhost:8080");
        assert_eq!((local.site.domain.as_str(), local.site.port), ("localhost", Some(8080)));
        let public = options("boxes.example", Some("https://box.example"), &["box.example"]);
        let public = public.unwrap();
        assert_eq!(public.public_origin, "https://box.example");
        assert_eq!((public.site.scheme.as_str(), public.site.port), ("https", None));
        for (domain, public, names) in [
            ("example", Some("https://box.example"), &["box.example"][..]),
            ("box.example", Some("https://box.example"), &["box.example"]),
            ("localhost", None, &["a.localhost"]),
            ("boxes.example", None, &[]),
            ("boxes.example", Some("https://a.example/path"), &[]),
            ("", None, &[]),
            ("127.0.0.1", None, &[]),
            ("a..b", None, &[]),
            ("*.example", None, &[]),
        ] {
            assert!(options(domain, public, names).is_err(), "{domain} {public:?} {names:?}");
        }
    }
}
