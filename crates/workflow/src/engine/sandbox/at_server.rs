//! The sandboxes of a run that has named a server elsewhere: a `<Sandbox>` or a node that names no runtime
//! is created there. What names something of this machine is refused before the run starts.

use std::collections::BTreeMap;

use serde_json::Value;
use stockade_core::runtime::RuntimeName;

use crate::engine::run_servers;
use crate::engine::task_error::TaskError;
use crate::graph::{PortNode, Sandbox};

/// The runtime of servers elsewhere.
pub(super) const RUNTIME: RuntimeName = RuntimeName::OpenSandbox;

/// The sandbox as it is created at the server of the run; `None` if the run has none, or a provider
/// executes the sandbox.
///
/// # Errors
/// `INVALID_INPUT` for what names something of this machine.
pub(super) fn place(
    sandbox: &Sandbox,
    environment: &BTreeMap<String, String>,
) -> Result<Option<Sandbox>, TaskError> {
    let Some(url) = run_servers::of(environment) else { return Ok(None) };
    if sandbox.provider.is_some() {
        return Ok(None);
    }
    let refused = |what: String| Err(TaskError::new("INVALID_INPUT", what + &remedy(url)));
    for name in [&sandbox.runtime, &sandbox.fallback_runtime].into_iter().flatten() {
        if is_of_this_machine(name) {
            return refused(format!("the runtime `{name}` is one of this machine"));
        }
    }
    if sandbox.runtime.as_ref().is_some_and(|name| RuntimeName::select(name) != Ok(RUNTIME)) {
        return Ok(Some(sandbox.clone()));
    }
    if let Some(volume) = sandbox.volumes.first() {
        return refused(format!("the volume {} is one of this machine", volume.host));
    }
    let of_here = |image: &&String| image.starts_with('/') || image.starts_with("snapshot:");
    if let Some(image) = sandbox.image.as_ref().filter(of_here) {
        return refused(format!("the image {image} is one of this machine"));
    }
    let runtime = Some(RUNTIME.as_str().to_owned());
    Ok(Some(Sandbox { runtime, ..sandbox.clone() }))
}

/// Why a node can never be executed in a run with this environment; `None` if it can.
pub(in crate::engine) fn impossible_node(
    node: &PortNode,
    environment: &BTreeMap<String, String>,
) -> Option<String> {
    let url = run_servers::of(environment)?;
    let runtime = node.inputs.get("runtime").and_then(Value::as_str)?;
    is_of_this_machine(runtime)
        .then(|| format!("the runtime `{runtime}` is one of this machine{}", remedy(url)))
}

/// What follows the reason of a refusal.
pub(super) fn remedy(url: &str) -> String {
    format!(
        " — the sandboxes of this run are on {url}: remove it, or run it on this machine, with `--server local`"
    )
}

fn is_of_this_machine(name: &str) -> bool {
    let own = [RuntimeName::Native, RuntimeName::Bwrap, RuntimeName::Docker];
    RuntimeName::select(name).is_ok_and(|runtime| own.contains(&runtime))
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use stockade_api::variables::SERVER;

    use super::*;

    fn placed(config: Value) -> Result<Option<Option<String>>, String> {
        let environment = BTreeMap::from([(SERVER.to_owned(), "http://a.example".to_owned())]);
        let Value::Object(config) = config else { panic!("a configuration is an object") };
        let sandbox = Sandbox::of_config(config, Value::Null).unwrap();
        assert_eq!(place(&sandbox, &BTreeMap::new()), Ok(None));
        let placed = place(&sandbox, &environment);
        placed.map(|it| it.map(|it| it.runtime)).map_err(|error| error.message)
    }

    #[test]
    fn what_names_no_runtime_is_placed_at_the_server() {
        let there = || Ok(Some(Some("opensandbox".to_owned())));
        assert_eq!(placed(json!({})), there());
        assert_eq!(placed(json!({ "runtime": "opensandbox", "image": "node:20" })), there());
        let other = placed(json!({ "runtime": "codeplane" }));
        assert_eq!(other, Ok(Some(Some("codeplane".to_owned()))));
    }

    #[test]
    fn what_names_something_of_this_machine_is_refused_with_a_remedy() {
        let volume = |host: &str| json!({ "volumes": [{ "host": host, "container": "/v" }] });
        for (config, word) in [
            (json!({ "runtime": "bubblewrap" }), "`bubblewrap`"),
            (json!({ "runtime": "native" }), "`native`"),
            (json!({ "runtime": "docker", "image": "a" }), "`docker`"),
            (json!({ "runtime": "opensandbox", "fallbackRuntime": "bwrap" }), "`bwrap`"),
            (volume("/data"), "/data"),
            (volume("named"), "named"),
            (json!({ "image": "/srv/root.tar" }), "/srv/root.tar"),
            (json!({ "image": "snapshot:s1" }), "snapshot:s1"),
        ] {
            let refused = placed(config.clone()).unwrap_err();
            let has = |text: &str| refused.contains(text);
            assert!(has(word) && has("http://a.example") && has("--server local"), "{refused}");
        }
    }
}
