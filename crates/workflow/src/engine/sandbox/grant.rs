//! What a sandbox grants to nested sandboxes: never more than it has itself (documentation of
//! `<Sandbox>`, "Nested sandboxes"). Requests for more are rejected with an error that names the
//! attribute, and omitted attributes are inherited. Nothing is created here.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use stockade_api::Network;
use stockade_core::network::Policy;
use stockade_core::smithers_egress::Contract;
use stockade_core::{parse_bytes, parse_cpus};

use super::request::{self, contract};
use crate::engine::task_error::TaskError;
use crate::graph::{Sandbox, ToolLimits, Volume};

/// How many sandboxes may enclose another one.
pub(crate) const MAX_DEPTH: u32 = 3;

/// What a sandbox has, and grants to nested sandboxes.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Grant {
    /// Its runtime, or its provider.
    runtime: String,
    provider: Option<String>,
    image: Option<String>,
    workspace: Option<Value>,
    volumes: Vec<Volume>,
    memory_limit: Option<String>,
    cpu_limit: Option<String>,
    timeout: Option<Duration>,
    tools: ToolLimits,
    contract: Contract,
    /// The hosts that it may connect to.
    network: Option<Policy>,
    /// How many sandboxes enclose it.
    depth: u32,
    /// Whether it executes a command and lacks `allowNested`. The file has no inner element then, so a
    /// request can only be forged.
    is_closed: bool,
}

fn refused(message: impl Into<String>) -> TaskError {
    TaskError::new("INVALID_INPUT", message)
}

/// The error for a nested sandbox that is not allowed.
pub(crate) fn disabled(remedy: &str) -> TaskError {
    refused(format!("Nested <Sandbox> execution is disabled by default: {remedy}"))
}

fn exceeds_outer(what: &str) -> TaskError {
    refused(format!("a nested <Sandbox> cannot have more than the outer one: {what}"))
}

/// Maps the names of a runtime to a single name.
fn runtime(name: &str) -> &str {
    if name == "native" { request::DEFAULT_RUNTIME } else { name }
}

impl Grant {
    /// The grant of a sandbox that this many other sandboxes enclose.
    ///
    /// # Errors
    /// If the contract cannot be read.
    pub(crate) fn of(
        sandbox: &Sandbox,
        timeout: Option<Duration>,
        tools: ToolLimits,
        depth: u32,
    ) -> Result<Self, TaskError> {
        let contract = contract(sandbox)?;
        Ok(Self {
            network: requested_policy(sandbox, contract.as_ref())?,
            runtime: runtime(request::runtime(sandbox)).to_owned(),
            provider: sandbox.provider.clone(),
            image: sandbox.image.clone(),
            workspace: sandbox.workspace.clone().map(Value::Object),
            volumes: sandbox.volumes.clone(),
            memory_limit: sandbox.memory_limit.clone(),
            cpu_limit: sandbox.cpu_limit.clone(),
            timeout,
            tools,
            contract: contract.unwrap_or_default(),
            depth,
            is_closed: sandbox.command.is_some() && !sandbox.allow_nested,
        })
    }

    /// How many sandboxes enclose it.
    pub(crate) const fn depth(&self) -> u32 {
        self.depth
    }

    /// A nested sandbox with its inherited attributes, and its time limit.
    ///
    /// # Errors
    /// `INVALID_INPUT` if it requests more than is granted.
    pub(crate) fn narrowed(
        &self,
        mut requested: Sandbox,
        timeout: Option<Duration>,
    ) -> Result<(Sandbox, Option<Duration>), TaskError> {
        if !requested.allow_nested {
            return Err(disabled("it must set allowNested"));
        }
        if self.is_closed {
            return Err(disabled("set allowNested on the <Sandbox> whose command requests it"));
        }
        if self.depth >= MAX_DEPTH {
            let enclosing = self.depth + 1;
            return Err(exceeds_outer(&format!(
                "it is nested {enclosing} levels deep, and the maximum is {MAX_DEPTH}"
            )));
        }
        self.narrow_network(&mut requested)?;
        self.narrow_runtime(&mut requested)?;
        for volume in &requested.volumes {
            // A writable volume may contain links that were made in the sandbox.
            let is_within = |own: &&Volume| {
                let (own_host, host) = (Path::new(&own.host), Path::new(&volume.host));
                !own.is_read_only && host != own_host && host.starts_with(own_host)
            };
            let is_there = |own: &&Volume| {
                own.host == volume.host && (volume.is_read_only || !own.is_read_only)
            };
            let is_safe = !self.volumes.iter().any(|own| is_within(&own));
            if !is_safe || !self.volumes.iter().any(|own| is_there(&own)) {
                let message =
                    format!("the volume {}, which the outer sandbox does not have", volume.host);
                return Err(exceeds_outer(&message));
            }
        }
        if !requested.ports.is_empty() {
            return Err(exceeds_outer("ports of the host"));
        }
        self.narrow_contract(&requested)?;
        requested.tools = self.tools.narrowed(requested.tools);
        let memory = |text: &str| parse_bytes(text).map_err(|error| error.to_string());
        requested.memory_limit =
            narrower("memoryLimit", requested.memory_limit, self.memory_limit.as_deref(), memory)?;
        let cpus = |text: &str| parse_cpus(text).map_err(|error| error.to_string());
        requested.cpu_limit =
            narrower("cpuLimit", requested.cpu_limit, self.cpu_limit.as_deref(), cpus)?;
        let timeout = match (timeout, self.timeout) {
            (Some(requested), Some(own)) if requested > own => {
                let (requested, own) = (requested.as_millis(), own.as_millis());
                return Err(exceeds_outer(&format!("timeoutMs {requested}, maximum {own}")));
            }
            (requested, own) => requested.or(own),
        };
        Ok((requested, timeout))
    }

    fn narrow_runtime(&self, requested: &mut Sandbox) -> Result<(), TaskError> {
        if requested.provider != self.provider && requested.provider.is_some() {
            return Err(exceeds_outer("a provider that the outer sandbox does not have"));
        }
        match &requested.runtime {
            // The runtime of this host is narrower than any provider.
            Some(named)
                if self.provider.is_some() && runtime(named) == request::DEFAULT_RUNTIME => {}
            Some(named) if runtime(named) != self.runtime => {
                let (own, named) = (&self.runtime, named.clone());
                return Err(exceeds_outer(&format!(
                    "the runtime `{named}`, but the outer sandbox has `{own}`"
                )));
            }
            None if requested.provider.is_none() && self.provider.is_none() => {
                requested.runtime = Some(self.runtime.clone());
            }
            _ => {}
        }
        if let Some(named) = &requested.fallback_runtime
            && runtime(named) != self.runtime
        {
            let (own, named) = (&self.runtime, named.clone());
            return Err(exceeds_outer(&format!(
                "the fallback runtime `{named}`, but the outer sandbox has `{own}`"
            )));
        }
        if requested.image.is_some() && requested.image != self.image {
            return Err(exceeds_outer("an image that the outer sandbox does not have"));
        }
        let workspace = requested.workspace.clone().map(Value::Object);
        if workspace.is_some() && workspace != self.workspace {
            return Err(exceeds_outer("a workspace that the outer sandbox does not have"));
        }
        Ok(())
    }

    /// Narrows the hosts that it may connect to. If it names none, it inherits them.
    fn narrow_network(&self, requested: &mut Sandbox) -> Result<(), TaskError> {
        if !requested.allow_network {
            return Ok(());
        }
        let Some(own) = &self.network else {
            return Err(exceeds_outer("allowNetwork, which the outer sandbox does not have"));
        };
        let names_hosts =
            contract(requested)?.is_some_and(|requested| requested.allow_hosts.is_some());
        if let (false, Some(hosts)) = (names_hosts, &self.contract.allow_hosts) {
            let mut egress = requested.egress.take().unwrap_or_else(|| json!({}));
            egress["allowHosts"] = json!(hosts);
            requested.config.insert("egress".to_owned(), egress.clone());
            requested.egress = Some(egress);
        }
        let requested_network = requested_policy(requested, contract(requested)?.as_ref())?;
        let limits = requested_network.as_ref().map(|network| network.limits());
        if limits.is_some_and(|limits| !own.limits().covers(&limits)) {
            return Err(exceeds_outer(&format!(
                "traffic without the limits of the outer sandbox ({})",
                own.limits()
            )));
        }
        match requested_network
            .and_then(|requested_network| own.first_excess_rule(&requested_network))
        {
            None => Ok(()),
            Some(host) => Err(exceeds_outer(&format!(
                "the host {host}, which the outer sandbox may not connect to"
            ))),
        }
    }

    /// Checks the proxies and the secrets of the contract: only those of the enclosing sandbox are
    /// allowed.
    fn narrow_contract(&self, requested: &Sandbox) -> Result<(), TaskError> {
        let Some(requested) = contract(requested)? else { return Ok(()) };
        let is_other = |requested: &Option<String>, own: &Option<String>| {
            requested.is_some() && requested != own
        };
        if is_other(&requested.http_proxy, &self.contract.http_proxy)
            || is_other(&requested.https_proxy, &self.contract.https_proxy)
        {
            return Err(exceeds_outer("a proxy that the outer sandbox does not have"));
        }
        let has = |own: &BTreeMap<String, String>, (name, secret): (&String, &String)| {
            own.get(name) == Some(secret)
        };
        if !requested
            .secret_bindings
            .iter()
            .all(|binding| has(&self.contract.secret_bindings, binding))
        {
            return Err(exceeds_outer("a secret that the outer sandbox does not have"));
        }
        Ok(())
    }
}

/// The hosts that a sandbox may connect to according to its configuration.
fn requested_policy(
    sandbox: &Sandbox,
    contract: Option<&Contract>,
) -> Result<Option<Policy>, TaskError> {
    let network = request::network(sandbox, contract)?;
    let policy = network.as_ref().map(Network::policy).transpose();
    policy.map_err(|problem| refused(problem.message))
}

/// The smaller of two limits, which are texts; `None` means no limit.
fn narrower(
    name: &str,
    requested: Option<String>,
    own: Option<&str>,
    read: impl Fn(&str) -> Result<u64, String>,
) -> Result<Option<String>, TaskError> {
    let number =
        |text: &str| read(text).map_err(|error| refused(format!("`{name}` {text:?}: {error}")));
    let (Some(requested), Some(own)) = (&requested, own) else {
        return Ok(requested.or_else(|| own.map(str::to_owned)));
    };
    if number(requested)? > number(own)? {
        return Err(exceeds_outer(&format!("{name} {requested}, maximum {own}")));
    }
    Ok(Some(requested.clone()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn sandbox(config: Value) -> Sandbox {
        let Value::Object(config) = config else { panic!("a configuration is an object") };
        Sandbox::of_config(config, Value::Null).unwrap()
    }

    fn outer(config: Value) -> Grant {
        let config = sandbox(config);
        Grant::of(&config, Some(Duration::from_secs(60)), config.tools, 0).unwrap()
    }

    /// The error for a nested sandbox with this configuration, if it is rejected.
    fn refusal(grant: &Grant, mut config: Value, timeout: Option<u64>) -> Option<String> {
        config["allowNested"] = true.into();
        let narrowed = grant.narrowed(sandbox(config), timeout.map(Duration::from_secs));
        narrowed.err().map(|error| {
            assert_eq!((error.code.as_str(), error.is_retryable), ("INVALID_INPUT", false));
            error.message
        })
    }

    #[test]
    fn nobody_gets_more_than_there_is_around() {
        let bare = outer(json!({ "allowNested": true }));
        let rich = outer(json!({
            "allowNested": true, "allowNetwork": true, "memoryLimit": "1g", "cpuLimit": "2",
            "image": "a", "volumes": [
                { "host": "/data", "container": "/d", "readonly": false },
                { "host": "/books", "container": "/b" },
                { "host": "/data/part", "container": "/p" },
            ],
            "egress": { "httpsProxy": "http://p:1", "secretBindings": { "sk": "anthropic" } },
        }));
        let volume = |host: &str, readonly: bool| json!({ "volumes": [{ "host": host, "container": "/v", "readonly": readonly }] });
        let reaches =
            |host: &str| json!({ "allowNetwork": true, "egress": { "allowHosts": [host] } });
        let bound =
            |name: &str, secret: &str| json!({ "egress": { "secretBindings": { name: secret } } });
        // The request, and a part of the error if it is rejected: by the bare grant, and by the rich
        // grant.
        let cases = [
            (json!({}), None, None, None),
            (json!({ "allowNetwork": true }), None, Some("allowNetwork"), None),
            // A proxy of the host's loopback that the user has not allowed for the outer one.
            (
                json!({ "allowNetwork": true, "egress": { "httpProxy": "http://127.0.0.1:8080" } }),
                None,
                Some("allowNetwork"),
                Some("the outer sandbox"),
            ),
            (json!({ "runtime": "native" }), None, None, None),
            (json!({ "runtime": "bubblewrap" }), None, None, None),
            (json!({ "runtime": "docker" }), None, Some("`docker`"), Some("`docker`")),
            (json!({ "image": "a" }), None, Some("image"), None),
            (json!({ "image": "b" }), None, Some("image"), Some("image")),
            (json!({ "memoryLimit": "1g" }), None, None, None),
            (json!({ "memoryLimit": "1025m" }), None, None, Some("memoryLimit 1025m, maximum 1g")),
            (json!({ "memoryLimit": "much" }), None, None, Some("`memoryLimit` \"much\"")),
            (json!({ "cpuLimit": "1.5" }), None, None, None),
            (json!({ "cpuLimit": "2.5" }), None, None, Some("cpuLimit 2.5")),
            (json!({}), Some(60), None, None),
            (json!({}), Some(61), Some("timeoutMs 61000"), Some("timeoutMs 61000")),
            (volume("/data", false), None, Some("/data"), None),
            (volume("/books", true), None, Some("/books"), None),
            (volume("/books", false), None, Some("/books"), Some("/books")),
            // A link below a volume may point anywhere: only named volumes are granted.
            (volume("/data/link", true), None, Some("/data/link"), Some("/data/link")),
            (volume("/data/part", true), None, Some("/data/part"), Some("/data/part")),
            (volume("/data/../etc", true), None, Some("etc"), Some("etc")),
            (
                json!({ "ports": [{ "host": 1, "container": 1 }] }),
                None,
                Some("ports"),
                Some("ports"),
            ),
            (json!({ "workspace": { "name": "w" } }), None, Some("workspace"), Some("workspace")),
            (json!({ "egress": { "httpsProxy": "http://p:1" } }), None, Some("proxy"), None),
            (
                json!({ "egress": { "httpProxy": "http://p:1" } }),
                None,
                Some("proxy"),
                Some("proxy"),
            ),
            (bound("sk", "anthropic"), None, Some("secret"), None),
            (bound("sk", "github"), None, Some("secret"), Some("secret")),
            (bound("other", "anthropic"), None, Some("secret"), Some("secret")),
            (json!({ "egress": { "env": { "A": "b" } } }), None, None, None),
            (reaches("a.example"), None, Some("allowNetwork"), None),
            (reaches("10.1.2.3"), None, Some("allowNetwork"), Some("the host 10.1.2.3")),
        ];
        for (config, timeout, by_bare, by_rich) in cases {
            for (grant, expected) in [(&bare, by_bare), (&rich, by_rich)] {
                let found = refusal(grant, config.clone(), timeout);
                let is_so = match (&found, expected) {
                    (Some(found), Some(expected)) => found.contains(expected),
                    (found, expected) => found.is_none() && expected.is_none(),
                };
                assert!(is_so, "{config}: {found:?}, not {expected:?}");
            }
        }
    }

    #[test]
    fn who_does_not_say_whom_reaches_whom_the_outer_one_does() {
        let hosts = json!({ "allowHosts": ["a.example", "*.b.example:443"] });
        let grant = outer(json!({ "allowNested": true, "allowNetwork": true, "egress": hosts }));
        let requested = json!({ "allowNested": true, "allowNetwork": true });
        let (narrowed, _) = grant.narrowed(sandbox(requested.clone()), None).unwrap();
        assert_eq!(narrowed.egress.as_ref(), Some(&hosts));
        assert_eq!(narrowed.config["egress"], hosts);
        let mut with_more = requested;
        with_more["egress"] = json!({ "env": { "A": "b" } });
        let (narrowed, _) = grant.narrowed(sandbox(with_more), None).unwrap();
        let merged = json!({ "env": { "A": "b" }, "allowHosts": hosts["allowHosts"] });
        assert_eq!(narrowed.egress, Some(merged));
        for (host, is_good) in [
            ("a.example:80", true),
            ("x.b.example:443", true),
            ("c.example", false),
            ("x.b.example", false),
        ] {
            let config = json!({ "allowNetwork": true, "egress": { "allowHosts": [host] } });
            assert_eq!(refusal(&grant, config, None).is_none(), is_good, "{host}");
        }
        let without = json!({ "egress": { "allowHosts": ["a.example"] } });
        assert_eq!(refusal(&grant, without, None), None);
    }

    #[test]
    fn who_does_not_say_gets_what_is_around() {
        let tools = |bytes, ms| ToolLimits {
            output_bytes: Some(bytes),
            timeout: Some(Duration::from_millis(ms)),
        };
        let enclosing =
            sandbox(json!({ "allowNested": true, "memoryLimit": "1g", "cpuLimit": "2" }));
        let longest = Some(Duration::from_secs(60));
        let grant = Grant::of(&enclosing, longest, tools(100, 1_000), 0).unwrap();
        let requested = sandbox(json!({ "allowNested": true, "cpuLimit": "1" }));
        let requested = Sandbox { tools: tools(200, 500), ..requested };
        let (narrowed, timeout) = grant.narrowed(requested, None).unwrap();
        assert_eq!(narrowed.memory_limit.as_deref(), Some("1g"));
        assert_eq!(narrowed.cpu_limit.as_deref(), Some("1"));
        assert_eq!(narrowed.runtime.as_deref(), Some("bubblewrap"));
        assert_eq!(timeout, Some(Duration::from_secs(60)));
        assert_eq!(narrowed.tools, tools(100, 500));
    }

    #[test]
    fn it_is_off_by_default_and_has_an_end() {
        let grant = outer(json!({ "allowNested": true }));
        let refused = grant.narrowed(sandbox(json!({})), None).unwrap_err();
        assert!(refused.message.contains("disabled by default"), "{}", refused.message);
        let config = json!({ "allowNested": true });
        let mut command = sandbox(json!({}));
        command.command = Some("true".to_owned());
        let command = Grant::of(&command, None, ToolLimits::default(), 0).unwrap();
        let refused = command.narrowed(sandbox(config.clone()), None).unwrap_err();
        assert!(refused.message.contains("disabled by default"), "{}", refused.message);
        for depth in 0..=MAX_DEPTH {
            let grant = Grant::of(&sandbox(config.clone()), None, ToolLimits::default(), depth);
            let grant = grant.unwrap();
            let narrowed = grant.narrowed(sandbox(config.clone()), None);
            assert_eq!(narrowed.is_ok(), depth < MAX_DEPTH, "{depth}");
        }
    }
}
