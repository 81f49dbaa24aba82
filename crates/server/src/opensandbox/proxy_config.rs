//! Which ports of a sandbox may be reached, in the extensions of the request that creates it: FireFlow's
//! `SandboxProxyConfig`.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use stockade_api::Proxy;

use super::request::port_number;
use crate::failure::{Failure, invalid};

/// The port for a host name without one.
const DEFAULT_PORT: &str = "stockade.defaultPort";
/// The reachable ports: numbers, or a text with commas between them.
const EXPOSED_PORTS: &str = "stockade.exposedPorts";
/// The extensions.
pub(super) const NAMES: [&str; 2] = [DEFAULT_PORT, EXPOSED_PORTS];

/// The reachable ports; every port of the owner when absent. The default port is one of them.
pub(super) fn proxy(
    extensions: Option<&BTreeMap<String, Value>>,
) -> Result<Option<Proxy>, Failure> {
    let value = |name: &str| extensions.and_then(|extensions| extensions.get(name));
    let (default, exposed) = (value(DEFAULT_PORT), value(EXPOSED_PORTS));
    if default.is_none() && exposed.is_none() {
        return Ok(None);
    }
    let default_port = default.map(port).transpose()?;
    let mut exposed_ports = match exposed {
        None => BTreeSet::new(),
        Some(Value::Array(ports)) => ports.iter().map(port).collect::<Result<_, _>>()?,
        Some(Value::String(text)) => {
            text.split(',').map(|text| port_number(text.trim())).collect::<Result<_, _>>()?
        }
        Some(one) => BTreeSet::from([port(one)?]),
    };
    exposed_ports.extend(default_port);
    Ok(Some(Proxy { default_port, exposed_ports }))
}

fn port(value: &Value) -> Result<u16, Failure> {
    match value {
        Value::String(text) => port_number(text),
        Value::Number(number) => port_number(&number.to_string()),
        other => Err(invalid(format!("{other} is not a port"))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_ports_are_numbers_or_text() {
        let read = |value: Value| {
            let extensions = serde_json::from_value(value).unwrap();
            proxy(Some(&extensions)).map(|proxy| {
                proxy.map(|it| (it.default_port, it.exposed_ports.into_iter().collect::<Vec<_>>()))
            })
        };
        assert_eq!(read(json!({})).unwrap(), None);
        assert_eq!(
            read(json!({ "stockade.defaultPort": "3000" })).unwrap(),
            Some((Some(3000), vec![3000]))
        );
        for exposed in [json!("80, 8080"), json!([80, "8080"])] {
            let read = read(json!({ "stockade.exposedPorts": exposed })).unwrap();
            assert_eq!(read, Some((None, vec![80, 8080])));
        }
        for bad in [json!("80,"), json!([0]), json!({}), json!(1.5), json!(true)] {
            assert!(read(json!({ "stockade.exposedPorts": bad })).is_err());
        }
    }
}
