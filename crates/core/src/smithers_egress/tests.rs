//! The example of an egress contract from Smithers, and invalid ones.

use serde_json::json;

use super::*;

fn example() -> Value {
    json!({
        "env": {"ANTHROPIC_API_KEY": "sk-proxy-anthropic"},
        "httpsProxy": "http://127.0.0.1:8080",
        "httpProxy": "http://127.0.0.1:8081",
        "noProxy": ["127.0.0.1", "localhost"],
        "caCertPem": "-----BEGIN CERTIFICATE-----",
        "secretBindings": {"sk-proxy-anthropic": "anthropic"},
        "vendor": {"token": "hidden"},
    })
}

#[test]
fn the_example_becomes_uniform_and_an_environment() {
    let contract = Contract::parse(&example()).unwrap();
    let mut uniform = example();
    uniform["noProxy"] = json!("127.0.0.1,localhost");
    uniform.as_object_mut().unwrap().remove("vendor");
    assert_eq!(serde_json::to_value(&contract).unwrap(), uniform);
    let environment = contract.environment();
    let expected = [
        ("ANTHROPIC_API_KEY", "sk-proxy-anthropic"),
        ("HTTPS_PROXY", "http://127.0.0.1:8080"),
        ("HTTP_PROXY", "http://127.0.0.1:8081"),
        ("NODE_EXTRA_CA_CERTS", "/workspace/.smithers/egress/ca.crt"),
        ("NO_PROXY", "127.0.0.1,localhost"),
    ];
    let found = environment.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    assert_eq!(found.collect::<Vec<_>>(), expected);
}

#[test]
fn a_proxy_on_the_loopback_is_the_machines() {
    let contract = Contract::parse(&example()).unwrap().on_this_machine();
    let environment = contract.environment();
    assert_eq!(environment["HTTPS_PROXY"], format!("http://{HOST_LOOPBACK}:8080"));
    assert_eq!(environment["NO_PROXY"], "127.0.0.1,localhost");
    assert_eq!(contract.machine_ports().into_iter().collect::<Vec<_>>(), [8080, 8081]);
    let (_, hosts) = contract.network_rules();
    let hosts: Vec<_> = hosts.iter().map(AllowedHost::to_string).collect();
    let proxies = ["host.stockade.internal:8081", "host.stockade.internal:8080"];
    assert_eq!(hosts, [&["0.0.0.0/0", "::/0"][..], &proxies].concat());
    for (proxy, expected, port) in [
        ("localhost:3128", "http://HERE:3128", Some(3128)),
        ("http://u:p@[::1]/", "http://u:p@HERE/", Some(80)),
        ("socks5://127.1.2.3", "socks5://HERE", Some(1080)),
        ("http://10.0.0.1:1", "http://10.0.0.1:1", None),
        ("http://localhost.example:1", "http://localhost.example:1", None),
    ] {
        let contract = Contract::parse(&json!({ "httpProxy": proxy })).unwrap().on_this_machine();
        let expected = expected.replace("HERE", HOST_LOOPBACK);
        assert_eq!(contract.http_proxy, Some(expected));
        assert_eq!(contract.machine_ports().into_iter().next(), port, "{proxy}");
    }
}

#[test]
fn what_is_named_is_reached_and_the_proxies() {
    let reach = |contract: &Value| {
        let (default, hosts) = Contract::parse(contract).unwrap().network_rules();
        (default, hosts.iter().map(AllowedHost::to_string).collect::<Vec<_>>())
    };
    let all = |more: &[&'static str]| [&["0.0.0.0/0", "::/0"], more].concat();
    for (contract, default, rules) in [
        (json!({}), Effect::Allow, all(&[])),
        // A proxy on the loopback is inside the sandbox.
        (example(), Effect::Allow, all(&[])),
        (json!({"httpProxy": "http://10.1.2.3"}), Effect::Allow, all(&["10.1.2.3:80"])),
        (json!({"httpProxy": "http://169.254.169.254"}), Effect::Allow, all(&[])),
        (
            json!({"httpsProxy": "http://u:p@proxy.example:3128/x"}),
            Effect::Allow,
            all(&["proxy.example:3128"]),
        ),
        (
            json!({"httpsProxy": "socks5://proxy.example"}),
            Effect::Allow,
            all(&["proxy.example:1080"]),
        ),
        (json!({"httpsProxy": "proxy.example:3128"}), Effect::Allow, all(&["proxy.example:3128"])),
        (json!({"httpsProxy": "http://"}), Effect::Allow, all(&[])),
        (json!({"allowHosts": []}), Effect::Deny, vec![]),
        (
            json!({"allowHosts": ["*.example:443", "10.0.0.0/8"], "httpProxy": "http://p.example"}),
            Effect::Deny,
            vec!["*.example:443", "10.0.0.0/8", "p.example:80"],
        ),
    ] {
        let rules = rules.into_iter().map(str::to_owned).collect();
        assert_eq!(reach(&contract), (default, rules), "{contract}");
    }
    for hosts in
        [json!("a.example"), json!([1]), json!(["localhost:80"]), json!(["http://a.example"])]
    {
        let refused = Contract::parse(&json!({ "allowHosts": hosts })).unwrap_err();
        assert!(refused.to_string().contains("allowHosts"), "{refused}");
    }
    let stored = redacted(&json!({ "allowHosts": ["a.example"] }));
    assert_eq!(stored, json!({ "allowHosts": ["a.example"] }));
    let stored = redacted(&json!({ "allowHosts": [{ "token": "hidden" }] }));
    assert_eq!(stored, json!({ "allowHosts": REDACTED }));
}

#[test]
fn an_authority_that_is_inside_is_named_by_its_path() {
    let contract = Contract::parse(&json!({"caCertPath": "/etc/ca.pem"})).unwrap();
    assert_eq!(contract.environment()["NODE_EXTRA_CA_CERTS"], "/etc/ca.pem");
    let both = json!({"caCertPath": "/etc/ca.pem", "caCertPem": "x"});
    assert_eq!(Contract::parse(&both), Err(Error::TwoAuthorities));
}

#[test]
fn what_is_absent_is_nothing() {
    let nothing = json!({"env": null, "httpProxy": null, "noProxy": null, "secretBindings": null});
    assert_eq!(Contract::parse(&nothing).unwrap(), Contract::default());
    assert!(Contract::default().environment().is_empty());
}

#[test]
fn what_is_no_contract_is_refused_by_its_field() {
    let long = "x".repeat(VALUE_BYTES + 1);
    for (raw, field) in [
        (json!({"env": []}), "env"),
        (json!({"env": {"A": 1}}), "env (one of it)"),
        (json!({"env": {"1A": "x"}}), "env (one of it)"),
        (json!({"env": {"A=B": "x"}}), "env (one of it)"),
        (json!({"env": {"": "x"}}), "env (one of it)"),
        (json!({"env": {"A": "x\0"}}), "env (one of it)"),
        (json!({"env": {"A": long}}), "env (one of it)"),
        (json!({"env": {"A".repeat(513): "x"}}), "env (one of it)"),
        (json!({"httpProxy": 1}), "httpProxy"),
        (json!({"httpsProxy": "a\0"}), "httpsProxy"),
        (json!({"noProxy": [1]}), "noProxy"),
        (json!({"noProxy": ["a,b"]}), "noProxy"),
        (json!({"noProxy": {}}), "noProxy"),
        (json!({"caCertPem": long}), "caCertPem"),
        (json!({"secretBindings": {"": "x"}}), "secretBindings (one of it)"),
        (json!({"secretBindings": {"x": null}}), "secretBindings (one of it)"),
    ] {
        match Contract::parse(&raw) {
            Err(Error::Field { field: found, .. }) => assert_eq!(found, field),
            other => panic!("{field}: {other:?}"),
        }
    }
    assert_eq!(Contract::parse(&json!("x")), Err(Error::NotAnObject));
}

#[test]
fn nothing_secret_is_stored() {
    let stored = redacted(&example());
    assert_eq!(
        stored,
        json!({
            "env": {"ANTHROPIC_API_KEY": REDACTED},
            "httpsProxy": REDACTED,
            "httpProxy": REDACTED,
            "noProxy": REDACTED,
            "caCertPem": REDACTED,
            "secretBindings": {"binding_1": REDACTED},
            "vendor": REDACTED,
        })
    );
    assert_eq!(redacted(&json!("sk-secret")), json!(REDACTED));
    assert_eq!(redacted(&json!({"env": "sk-secret"})), json!({"env": REDACTED}));
    let path = json!({"caCertPath": "/etc/ca.pem"});
    assert_eq!(redacted(&path), path);
}
