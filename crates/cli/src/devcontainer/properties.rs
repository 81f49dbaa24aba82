//! The properties of a `devcontainer.json`: each is honoured, ignored by name, or refused with the reason.

/// What becomes of a property.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Support {
    /// It has an effect.
    Honoured,
    /// It is for editors, or says what is the case anyway.
    Ignored,
    /// It is refused, unless its value is the one that asks for nothing.
    Refused(&'static str),
}

use Support::{Honoured, Ignored, Refused};

const BUILD: &str = "images are not built; build it with another tool, and name it with `image`";
const COMPOSE: &str = "a sandbox is one container; start the other services beside it";
const PRIVILEGES: &str = "a sandbox has no privileges, and none can be added";

/// Every property of the specification (containers.dev, "Dev Container metadata reference"), and older
/// ones of editors.
pub(super) const PROPERTIES: [(&str, Support); 49] = [
    ("$schema", Ignored),
    ("name", Ignored),
    ("customizations", Ignored),
    ("settings", Ignored),
    ("extensions", Ignored),
    ("devPort", Ignored),
    ("portsAttributes", Ignored),
    ("otherPortsAttributes", Ignored),
    ("secrets", Ignored),
    ("waitFor", Ignored),
    ("shutdownAction", Ignored),
    ("updateRemoteUserUID", Ignored),
    ("init", Ignored),
    ("image", Honoured),
    ("mounts", Honoured),
    ("workspaceMount", Honoured),
    ("workspaceFolder", Honoured),
    ("containerEnv", Honoured),
    ("remoteEnv", Honoured),
    ("containerUser", Honoured),
    ("remoteUser", Honoured),
    ("forwardPorts", Honoured),
    ("runArgs", Honoured),
    ("hostRequirements", Honoured),
    ("onCreateCommand", Honoured),
    ("updateContentCommand", Honoured),
    ("postCreateCommand", Honoured),
    ("postStartCommand", Honoured),
    ("postAttachCommand", Honoured),
    ("initializeCommand", Refused("it would run on the host, outside of every sandbox")),
    ("build", Refused(BUILD)),
    ("dockerFile", Refused(BUILD)),
    ("dockerfile", Refused(BUILD)),
    ("context", Refused(BUILD)),
    ("features", Refused(BUILD)),
    ("overrideFeatureInstallOrder", Refused(BUILD)),
    ("dockerComposeFile", Refused(COMPOSE)),
    ("service", Refused(COMPOSE)),
    ("runServices", Refused(COMPOSE)),
    ("privileged", Refused(PRIVILEGES)),
    ("capAdd", Refused(PRIVILEGES)),
    ("securityOpt", Refused(PRIVILEGES)),
    ("appPort", Refused("it opens ports of the host for other machines; use `forwardPorts`")),
    ("overrideCommand", Refused("the command of the image is not started in a sandbox")),
    ("userEnvProbe", Refused("no shell is started to read variables; set them in `remoteEnv`")),
    ("capDrop", Refused("every capability is dropped already")),
    ("extends", Refused("other files are not read")),
    ("workspaceTrust", Refused("`stockade trust --devcontainer` decides")),
    ("containerName", Refused("`stockade create --id` names a sandbox")),
];

/// Whether a value of a refused property asks for nothing.
pub(super) fn asks_for_nothing(name: &str, value: &serde_json::Value) -> bool {
    use serde_json::Value;
    match (name, value) {
        (_, Value::Null) => true,
        ("overrideCommand", value) => value == &Value::Bool(true),
        ("userEnvProbe", value) => value == "none",
        (_, Value::Bool(is_on)) => !is_on,
        (_, Value::Array(list)) => list.is_empty(),
        (_, Value::Object(object)) => object.is_empty(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_property_is_listed_once() {
        for (number, (name, _)) in PROPERTIES.iter().enumerate() {
            assert!(PROPERTIES[number + 1..].iter().all(|(other, _)| other != name), "{name}");
        }
    }

    #[test]
    fn only_what_asks_for_nothing_is_not_refused() {
        for (name, value) in [
            ("privileged", json!(false)),
            ("capAdd", json!([])),
            ("features", json!({})),
            ("overrideCommand", json!(true)),
            ("userEnvProbe", json!("none")),
        ] {
            assert!(asks_for_nothing(name, &value), "{name}");
        }
        for (name, value) in [
            ("privileged", json!(true)),
            ("privileged", json!("true")),
            ("capAdd", json!(["SYS_PTRACE"])),
            ("overrideCommand", json!(false)),
            ("userEnvProbe", json!("loginShell")),
        ] {
            assert!(!asks_for_nothing(name, &value), "{name}");
        }
    }
}
