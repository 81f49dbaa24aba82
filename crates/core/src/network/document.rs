//! A network policy as people write it: a default, presets, and rules that allow and deny. Only its
//! form is here; the program that reads the file knows its syntax.

use serde::{Deserialize, Serialize};

use super::request_match::{PathPattern, Requests};
use super::{InvalidLimits, InvalidRule, Policy, Rule, Target, TrafficLimits};
use crate::access::Effect;
use crate::error::Problem;
use crate::names::names;

names! {
    /// A set of rules with a name.
    pub enum Preset: "preset" {
        /// The registries of package managers.
        PackageRegistries = "package-registries",
        /// The hosts of source code, for reading.
        CodeHostsReadOnly = "code-hosts-read-only",
        /// The interfaces of language models.
        ModelProviders = "model-providers",
    }
}

/// The hosts of [`Preset::PackageRegistries`].
const REGISTRIES: &[&str] = &[
    "registry.npmjs.org",
    "registry.yarnpkg.com",
    "jsr.io",
    "npm.jsr.io",
    "pypi.org",
    "files.pythonhosted.org",
    "crates.io",
    "index.crates.io",
    "static.crates.io",
    "static.rust-lang.org",
    "proxy.golang.org",
    "sum.golang.org",
    "rubygems.org",
    "index.rubygems.org",
    "repo.maven.apache.org",
    "repo1.maven.org",
    "plugins.gradle.org",
    "api.nuget.org",
    "packagist.org",
    "repo.packagist.org",
    "hex.pm",
    "repo.hex.pm",
    "deb.debian.org",
    "security.debian.org",
    "archive.ubuntu.com",
    "security.ubuntu.com",
    "dl-cdn.alpinelinux.org",
];

/// The hosts of [`Preset::CodeHostsReadOnly`].
const CODE_HOSTS: &[&str] = &[
    "github.com",
    "api.github.com",
    "codeload.github.com",
    "raw.githubusercontent.com",
    "objects.githubusercontent.com",
    "release-assets.githubusercontent.com",
    "gitlab.com",
    "bitbucket.org",
    "codeberg.org",
];

/// The hosts of [`Preset::ModelProviders`].
const MODEL_PROVIDERS: &[&str] = &[
    "api.openai.com",
    "api.anthropic.com",
    "generativelanguage.googleapis.com",
    "api.mistral.ai",
    "api.groq.com",
    "api.deepseek.com",
    "api.x.ai",
    "api.cohere.com",
    "api.together.xyz",
    "api.moonshot.ai",
    "openrouter.ai",
];

/// The port of HTTPS.
const HTTPS: u16 = 443;
/// That of HTTP, which package managers of distributions use.
const HTTP: u16 = 80;

impl Preset {
    /// Its rules.
    pub fn rules(self) -> Vec<Rule> {
        let (hosts, ports, requests) = match self {
            Self::PackageRegistries => (REGISTRIES, vec![HTTPS, HTTP], Requests::default()),
            Self::CodeHostsReadOnly => (CODE_HOSTS, vec![HTTPS], Requests::reading()),
            Self::ModelProviders => (MODEL_PROVIDERS, vec![HTTPS], Requests::default()),
        };
        let rule = |host: &&str| {
            let target: Target = host.parse().ok()?;
            let (ports, requests) = (ports.clone(), requests.clone());
            Some(Rule { ports, requests, ..Rule::new(Effect::Allow, target) })
        };
        hosts.iter().filter_map(rule).collect()
    }
}

/// A rule, as people write it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DocumentRule {
    /// A name, `*.NAME`, an address, a block of addresses, or `*`.
    pub host: Target,
    /// The ports; all when absent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<u16>,
    /// The methods of requests; all when absent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub methods: Vec<String>,
    /// The paths of requests: literals, or prefixes that end with `/*`; all when absent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<PathPattern>,
    /// Whether git may also fetch from it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub git_fetch: bool,
    /// Whether the name may lead to a private network.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub internal: bool,
}

impl DocumentRule {
    fn rule(self, action: Effect) -> Rule {
        let Self { host: target, ports, methods, paths, git_fetch, internal } = self;
        let requests = Requests { methods, paths, git_fetch };
        Rule { action, target, ports, internal, requests }
    }
}

impl From<Rule> for DocumentRule {
    fn from(rule: Rule) -> Self {
        let Rule { target: host, ports, internal, requests, .. } = rule;
        let Requests { methods, paths, git_fetch } = requests;
        Self { host, ports, methods, paths, git_fetch, internal }
    }
}

/// Why a document is no policy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidDocument {
    /// A rule is invalid; its index is that in [`PolicyDocument::rules`].
    #[error(transparent)]
    Rule(#[from] InvalidRule),
    /// The limits are invalid.
    #[error(transparent)]
    Limits(#[from] InvalidLimits),
}

impl From<InvalidDocument> for Problem {
    fn from(invalid: InvalidDocument) -> Self {
        match invalid {
            InvalidDocument::Rule(rule) => rule.into(),
            InvalidDocument::Limits(limits) => limits.into(),
        }
    }
}

/// A policy, as people write it. Any rule that denies beats all that allow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PolicyDocument {
    /// The effect for other names: `deny`, or `allow` for all with public addresses.
    pub default: Effect,
    /// Sets of rules.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub presets: Vec<Preset>,
    /// What is allowed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allow: Vec<DocumentRule>,
    /// What is denied.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub deny: Vec<DocumentRule>,
    /// How much traffic there may be.
    #[serde(skip_serializing_if = "TrafficLimits::is_none")]
    pub limits: TrafficLimits,
}

impl Default for PolicyDocument {
    fn default() -> Self {
        let (presets, allow, deny) = (Vec::new(), Vec::new(), Vec::new());
        Self { default: Effect::Deny, presets, allow, deny, limits: TrafficLimits::default() }
    }
}

impl PolicyDocument {
    /// The document with one preset.
    pub fn of_preset(preset: Preset) -> Self {
        Self { presets: vec![preset], ..Self::default() }
    }

    /// Its rules: first those of its presets.
    pub fn rules(&self) -> Vec<Rule> {
        let presets = self.presets.iter().flat_map(|preset| preset.rules());
        let allow = self.allow.iter().cloned().map(|rule| rule.rule(Effect::Allow));
        let deny = self.deny.iter().cloned().map(|rule| rule.rule(Effect::Deny));
        presets.chain(allow).chain(deny).collect()
    }

    /// The same as a policy.
    ///
    /// # Errors
    /// [`InvalidDocument`].
    pub fn policy(&self) -> Result<Policy, InvalidDocument> {
        Ok(Policy::new(self.default, self.rules())?.with_limits(self.limits)?)
    }
}

impl From<&Policy> for PolicyDocument {
    fn from(policy: &Policy) -> Self {
        let of = |action: Effect| {
            let rules = policy.rules().iter().filter(move |rule| rule.action == action);
            rules.cloned().map(DocumentRule::from).collect()
        };
        let default = policy.default_effect();
        let (allow, deny) = (of(Effect::Allow), of(Effect::Deny));
        Self { default, presets: Vec::new(), allow, deny, limits: policy.limits() }
    }
}

/// What of one policy another one may not allow: each rule that exceeds it, in words. An empty list
/// means that the other one allows no more. If in doubt, a rule is listed.
pub fn excess(of: &Policy, over: &Policy) -> Vec<String> {
    let mut found = Vec::new();
    if !over.limits().covers(&of.limits()) {
        found.push(match of.limits() {
            limits if limits.is_none() => "traffic without a limit".to_owned(),
            limits => format!("traffic: {limits}"),
        });
    }
    if of.default_effect() == Effect::Allow && over.default_effect() == Effect::Deny {
        found.push("every name with a public address".to_owned());
    }
    let denied = |policy: &Policy| -> Vec<Rule> {
        let rules = policy.rules().iter().filter(|rule| rule.action == Effect::Deny);
        rules.cloned().collect()
    };
    let kept = denied(of);
    // What only one of them denies is allowed by the other one, if that allows any of it.
    for rule in denied(over).iter().filter(|rule| !kept.iter().any(|own| own.denies_all_of(rule))) {
        let may_allow = of.default_effect() == Effect::Allow
            || of.rules().iter().any(|own| own.action == Effect::Allow && own.may_share(rule));
        if may_allow {
            found.push(format!("{}, which the other policy denies", described(rule)));
        }
    }
    let allowing = of.rules().iter().filter(|rule| rule.action == Effect::Allow);
    found.extend(allowing.filter(|rule| !over.covers(rule)).map(described));
    found
}

/// A rule in words.
fn described(rule: &Rule) -> String {
    let ports: Vec<_> = rule.ports.iter().map(ToString::to_string).collect();
    let mut text = rule.subject();
    if !ports.is_empty() {
        text = format!("{text}, port {}", ports.join(", "));
    }
    if rule.internal {
        text.push_str(", also in a private network");
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::network::{Host, Name};

    fn document(value: serde_json::Value) -> PolicyDocument {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn presets_have_valid_rules() {
        for preset in Preset::ALL {
            let policy = PolicyDocument::of_preset(*preset).policy().unwrap();
            assert!(!policy.rules().is_empty(), "{preset}");
            assert_eq!(policy.default_effect(), Effect::Deny);
        }
        let code = PolicyDocument::of_preset(Preset::CodeHostsReadOnly).policy().unwrap();
        let github = Name::parse("github.com").unwrap();
        for (method, target, is_allowed) in [
            ("GET", "/a/b.git/info/refs?service=git-upload-pack", true),
            ("POST", "/a/b.git/git-upload-pack", true),
            ("POST", "/a/b.git/git-receive-pack", false),
            ("PUT", "/a/b", false),
        ] {
            let checked = code.check_request(&github, 443, (method, target));
            assert_eq!(checked.is_ok(), is_allowed, "{method} {target}");
        }
        assert!(code.check(&Host::Name(github), 22).is_err());
    }

    #[test]
    fn a_document_is_read_exactly() {
        let whole = json!({
            "default": "deny",
            "presets": ["model-providers"],
            "allow": [{"host": "api.example", "ports": [443], "methods": ["GET"], "paths": ["/v1/*"]}],
            "deny": [{"host": "api.example", "paths": ["/v1/admin/*"]}],
            "limits": {"connections": 8, "bytes": 1_000_000, "bandwidth": 100_000},
        });
        let own = document(whole.clone());
        assert_eq!(serde_json::to_value(&own).unwrap(), whole);
        let policy = own.policy().unwrap();
        let name = Name::parse("api.example").unwrap();
        for (method, target, is_allowed) in [
            ("GET", "/v1/x", true),
            ("POST", "/v1/x", false),
            ("GET", "/v1/admin/x", false),
            ("GET", "/v1/Admin/x", false),
            ("GET", "/v1/ADMIN", false),
            ("get", "/v1/x", false),
            ("GET", "/v1/%61dmin/x", false),
            ("GET", "/v1/x/../admin/x", false),
            ("GET", "/v2", false),
        ] {
            let checked = policy.check_request(&name, 443, (method, target));
            assert_eq!(checked.is_ok(), is_allowed, "{method} {target}");
        }
        for bad in [
            json!({"allow": [{"host": "a.example", "path": "/"}]}),
            json!({"allowed": []}),
            json!({"presets": ["everything"]}),
            json!({"allow": [{"host": "a.example", "paths": ["/a*"]}]}),
        ] {
            assert!(serde_json::from_value::<PolicyDocument>(bad.clone()).is_err(), "{bad}");
        }
        for bad in [
            json!({"allow": [{"host": "10.0.0.0/8", "paths": ["/"]}]}),
            json!({"allow": [{"host": "*", "methods": ["GET"]}]}),
            json!({"allow": [{"host": "a.example", "methods": ["get"]}]}),
            json!({"limits": {"bandwidth": 1}}),
        ] {
            assert!(document(bad.clone()).policy().is_err(), "{bad}");
        }
    }

    #[test]
    fn the_excess_of_a_policy_is_what_only_it_allows() {
        let policy = |value| document(value).policy().unwrap();
        let small = policy(json!({"allow": [
            {"host": "api.example", "methods": ["GET"], "paths": ["/v1/*"]}
        ]}));
        let large = policy(json!({"allow": [{"host": "api.example"}, {"host": "b.example"}]}));
        assert_eq!(excess(&small, &large), Vec::<String>::new());
        assert_eq!(excess(&large, &small), ["api.example", "b.example"]);
        let denying = policy(json!({
            "allow": [{"host": "api.example"}], "deny": [{"host": "api.example", "ports": [22]}],
        }));
        let all = policy(json!({"allow": [{"host": "api.example"}]}));
        assert_eq!(excess(&denying, &all), Vec::<String>::new());
        assert_eq!(excess(&all, &denying).len(), 1);
        let limited = policy(json!({
            "allow": [{"host": "api.example"}], "limits": {"connections": 4},
        }));
        assert_eq!(excess(&limited, &all), Vec::<String>::new());
        assert_eq!(excess(&all, &limited), ["traffic without a limit"]);
        let open = policy(json!({"default": "allow"}));
        assert_eq!(excess(&open, &small), ["every name with a public address"]);
        assert_eq!(excess(&small, &small), Vec::<String>::new());
    }
}
