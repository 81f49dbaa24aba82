//! The rules as tables, and properties that hold for any policy and any host.

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn policy(default: &str, rules: &[&str]) -> Policy {
    let rule = |text: &&str| {
        let (action, rest) = text.split_once(' ').unwrap();
        let (target, ports) = rest.split_once(" at ").unwrap_or((rest, ""));
        let ports: Vec<u16> = ports.split_terminator(',').map(|p| p.parse().unwrap()).collect();
        json!({"action": action, "target": target, "ports": ports})
    };
    let default = default.parse().unwrap();
    Policy::from_values(default, rules.iter().map(rule).collect()).unwrap()
}

fn host(text: &str) -> Host {
    Host::parse(text).unwrap()
}

fn name(text: &str) -> Name {
    Name::parse(text).unwrap()
}

fn answer(result: Result<(), Refusal>) -> &'static str {
    result.map_or_else(|refusal| refusal.reason().as_str(), |()| "ok")
}

#[test]
fn a_name_has_one_form() {
    for (text, expected) in [
        ("Api.Example.COM.", "api.example.com"),
        ("bücher.example", "xn--bcher-kva.example"),
        ("ＥＸＡＭＰＬＥ．com", "example.com"),
        ("_srv._tcp.a-b.c1", "_srv._tcp.a-b.c1"),
        ("printer", "printer"),
        ("1.2.3.4.example", "1.2.3.4.example"),
        ("0x7f.com", "0x7f.com"),
    ] {
        assert_eq!(name(text).as_str(), expected);
        assert_eq!(name(expected).as_str(), expected, "the form is its own");
    }
}

#[test]
fn what_can_be_read_in_two_ways_is_no_name() {
    let long = format!("{}.com", "a".repeat(64));
    let longer = "a.".repeat(127) + "com";
    for text in [
        "",
        ".",
        "..",
        "a..b",
        ".a",
        "a..",
        "%65vil.com",
        "user@evil.com",
        "a b",
        "a\0.com",
        "a\nb.com",
        "a\u{7f}.com",
        "127.0.0.1",
        "127.1",
        "0x7f.1",
        "0177.0.0.1",
        "2130706433",
        "1.2.3.4.5",
        "a.0x",
        "a.0xAf",
        "a.1",
        "[::1]",
        "::1",
        "a:80",
        "a/b",
        "a\\b",
        "a?b",
        "a#b",
        "*.com",
        "a*.com",
        "http://a",
        "<a>",
        "１２７。０。０。１",
        "xn--a",
        "a\u{ad}..b",
        long.as_str(),
        longer.as_str(),
    ] {
        let error = Name::parse(text).unwrap_err();
        assert!(error.to_string().len() < 200, "{error}");
        assert!(!error.to_string().contains('\0'), "{error:?}");
    }
}

#[test]
fn a_target_is_a_name_what_is_below_it_or_a_block() {
    for (text, expected) in [
        ("Example.com.", "example.com"),
        ("*.Example.com", "*.example.com"),
        ("*", "*"),
        ("10.0.0.0/8", "10.0.0.0/8"),
        ("10.0.0.1", "10.0.0.1"),
        ("10.0.0.1/32", "10.0.0.1"),
        ("0.0.0.0/0", "0.0.0.0/0"),
        ("::/0", "::/0"),
        ("[2606:4700::1111]", "2606:4700::1111"),
        ("::ffff:10.0.0.0/104", "10.0.0.0/8"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
    ] {
        let target: Target = text.parse().unwrap();
        assert_eq!(target.to_string(), expected);
        assert_eq!(expected.parse(), Ok(target));
    }
    for text in [
        "",
        "*.",
        "*.*.com",
        "a.*.com",
        "*com",
        "10.0.0.1/8",
        "10.0.0.0/33",
        "10.0.0.0/",
        "10.0.0.0/+8",
        "10.0.0.0/8/8",
        "/8",
        "::1/129",
        "fe80::1%eth0",
        "10.0.0.0/08x",
        "010.0.0.1",
        "a/24",
        "example.com:443",
    ] {
        assert!(text.parse::<Target>().is_err(), "{text}");
    }
}

#[test]
fn names_are_decided() {
    let open =
        policy("allow", &["deny evil.example", "deny *.ads.example", "deny mail.example at 25"]);
    let closed = policy(
        "deny",
        &["allow api.example at 443,8443", "allow *.pkg.example", "deny bad.pkg.example"],
    );
    for (policy, host_text, port, expected) in [
        (&open, "good.example", 80, "ok"),
        (&open, "evil.example", 80, "denied"),
        (&open, "sub.evil.example", 80, "ok"),
        (&open, "x.ads.example", 80, "denied"),
        (&open, "x.y.ads.example", 80, "denied"),
        (&open, "ads.example", 80, "ok"),
        (&open, "xads.example", 80, "ok"),
        (&open, "mail.example", 25, "denied"),
        (&open, "mail.example", 443, "ok"),
        (&open, "93.184.216.34", 443, "address-not-allowed"),
        (&closed, "api.example", 443, "ok"),
        (&closed, "API.example.", 8443, "ok"),
        (&closed, "api.example", 80, "port-not-allowed"),
        (&closed, "www.api.example", 443, "not-allowed"),
        (&closed, "pkg.example", 443, "not-allowed"),
        (&closed, "a.pkg.example", 1, "ok"),
        (&closed, "bad.pkg.example", 443, "denied"),
        (&closed, "example", 443, "not-allowed"),
    ] {
        assert_eq!(answer(policy.check(&host(host_text), port)), expected, "{host_text}:{port}");
    }
    for (policy, text, expected) in [
        (&open, "mail.example", "ok"),
        (&open, "evil.example", "denied"),
        (&closed, "api.example", "ok"),
        (&closed, "other.example", "not-allowed"),
        (&Policy::default(), "api.example", "not-allowed"),
    ] {
        assert_eq!(answer(policy.check_lookup(&name(text))), expected, "{text}");
    }
}

#[test]
fn addresses_are_decided() {
    let rules = policy(
        "deny",
        &[
            "allow 93.184.216.0/24 at 443",
            "allow 10.1.0.0/16",
            "allow 169.254.0.0/16",
            "allow 2606:4700::/32",
            "deny 10.1.2.0/24",
            "deny 93.184.216.66",
        ],
    );
    let everywhere = policy("allow", &["allow 0.0.0.0/0", "allow ::/0", "allow 127.0.0.1 at 9"]);
    for (policy, address, port, expected) in [
        (&rules, "93.184.216.34", 443, "ok"),
        (&rules, "::ffff:93.184.216.34", 443, "ok"),
        (&rules, "93.184.216.34", 80, "port-not-allowed"),
        (&rules, "93.184.216.66", 443, "denied"),
        (&rules, "64:ff9b::5db8:d842", 443, "denied"),
        (&rules, "2002:5db8:d842::1", 443, "denied"),
        (&rules, "64:ff9b::5db8:d822", 443, "address-not-allowed"),
        (&rules, "10.1.3.4", 22, "ok"),
        (&rules, "10.1.2.4", 22, "denied"),
        (&rules, "10.2.0.1", 22, "address-not-allowed"),
        (&rules, "169.254.1.1", 80, "ok"),
        (&rules, "169.254.169.254", 80, "internal-address"),
        (&rules, "2606:4700::1111", 853, "ok"),
        (&everywhere, "1.1.1.1", 53, "ok"),
        (&everywhere, "2606:4700::1111", 53, "ok"),
        (&everywhere, "127.0.0.1", 9, "ok"),
        (&everywhere, "127.0.0.1", 80, "port-not-allowed"),
        (&everywhere, "127.0.0.2", 9, "internal-address"),
        (&everywhere, "10.0.0.1", 80, "internal-address"),
        (&everywhere, "fd00:ec2::254", 80, "internal-address"),
        (&everywhere, "0.0.0.0", 80, "internal-address"),
        (&everywhere, "255.255.255.255", 80, "internal-address"),
        (&everywhere, "198.18.0.1", 80, "internal-address"),
        (&everywhere, "64:ff9b::7f00:1", 80, "internal-address"),
    ] {
        assert_eq!(answer(policy.check(&host(address), port)), expected, "{address}:{port}");
    }
}

#[test]
fn where_a_name_leads_is_decided_again() {
    let rules = policy(
        "deny",
        &[
            "allow *.example",
            "allow 192.168.0.0/16 at 443",
            "deny 93.184.216.66",
            "deny 8.8.8.8 at 53",
        ],
    );
    for (port, addresses, expected) in [
        (Some(443), "93.184.216.34", "ok"),
        (Some(443), "93.184.216.34 2606:4700::1111", "ok"),
        (Some(443), "93.184.216.34 10.0.0.1", "internal-address"),
        (Some(443), "93.184.216.34 93.184.216.66", "denied"),
        (Some(443), "192.168.0.1", "ok"),
        (Some(80), "192.168.0.1", "internal-address"),
        (None, "192.168.0.1", "ok"),
        (None, "8.8.8.8", "ok"),
        (Some(53), "8.8.8.8", "denied"),
        (Some(443), "::ffff:169.254.169.254", "internal-address"),
        (Some(443), "198.18.0.7", "internal-address"),
        (Some(443), "", "ok"),
    ] {
        let addresses: Vec<IpAddr> =
            addresses.split_whitespace().map(|text| text.parse().unwrap()).collect();
        let answered = answer(rules.check_resolved(&name("a.example"), port, &addresses));
        assert_eq!(answered, expected, "{port:?} {addresses:?}");
    }
}

#[test]
fn one_address_is_named_by_a_rule_for_it_alone() {
    let rules = policy("deny", &["allow 127.0.0.0/8", "allow 203.0.113.7 at 80"]);
    let address = |text: &str| text.parse().unwrap();
    assert!(rules.allows_exactly(address("203.0.113.7"), 80));
    assert!(!rules.allows_exactly(address("203.0.113.7"), 81));
    assert!(!rules.allows_exactly(address("127.0.0.1"), 80));
}

#[test]
fn a_policy_is_read_and_written_as_json() {
    let text = json!({"default": "deny", "rules": [
        {"action": "allow", "target": "*.example.com", "ports": [443]},
        {"action": "deny", "target": "10.0.0.0/8"}
    ]});
    let policy: Policy = serde_json::from_value(text.clone()).unwrap();
    assert_eq!(serde_json::to_value(&policy).unwrap(), text);
    assert_eq!(
        serde_json::from_value::<Policy>(json!({"default": "deny"})).unwrap(),
        Policy::default()
    );
    let rules = |rules| json!({"default": "deny", "rules": rules});
    let good = json!({"action": "deny", "target": "a.b"});
    for (bad, index) in [
        (json!([good, {"action": "deny", "target": "a..b"}]), 1),
        (json!([{"action": "deny", "target": "a.b", "ports": [0]}]), 0),
        (json!([{"action": "deny", "target": "a.b", "ports": [65536]}]), 0),
        (json!([{"action": "maybe", "target": "a.b"}]), 0),
        (json!([good, good, {"action": "deny", "target": "a.b", "scheme": "x"}]), 2),
        (json!([{"action": "deny", "target": "a.b", "ports": vec![1; MAX_PORTS + 1]}]), 0),
        (json!(vec![good; MAX_RULES + 1]), MAX_RULES),
    ] {
        let error = serde_json::from_value::<Policy>(rules(bad)).unwrap_err().to_string();
        assert!(error.starts_with(&format!("network rule {index}: ")), "{error}");
    }
    for bad in [json!({}), json!({"default": "deny", "egress": []}), json!([])] {
        assert!(serde_json::from_value::<Policy>(bad).is_err());
    }
}

#[test]
fn a_refusal_tells_what_to_do() {
    let refusal = policy("deny", &[]).check(&host("a.example"), 443).unwrap_err();
    let problem = refusal.problem();
    assert_eq!(problem.code, Code::EgressDenied);
    assert_eq!(problem.cause.as_deref(), Some("not-allowed"));
    assert_eq!(problem.message, "the sandbox's network policy does not allow a.example");
    assert!(problem.remediation.is_some() && !problem.retryable);
    let host_header = "evil\u{1b}[2J.example\r\nX: y".to_owned() + &"z".repeat(500);
    let refusal = Refusal::mismatch(&host("a.example"), Evidence::HostHeader, &host_header);
    let text = refusal.to_string();
    assert!(text.len() < 300 && !text.chars().any(char::is_control), "{text}");
}

fn any_name() -> impl Strategy<Value = String> {
    "[a-c]{1,2}(\\.[a-c]{1,2}){0,3}"
}

fn any_address() -> impl Strategy<Value = IpAddr> {
    prop_oneof![
        any::<u32>().prop_map(|bits| IpAddr::V4(bits.into())),
        any::<u128>().prop_map(|bits| IpAddr::V6(bits.into())),
        any::<u32>().prop_map(|bits| IpAddr::V6((0x64_ff9b_u128 << 96 | u128::from(bits)).into())),
    ]
}

fn any_rule() -> impl Strategy<Value = Rule> {
    let target = prop_oneof![
        any_name().prop_map(|text| Target::Exact(name(&text))),
        any_name().prop_map(|text| Target::Subdomains(name(&text))),
        any_address().prop_map(|address| Target::Block(Block::from_address(address))),
        Just("10.0.0.0/8".parse().unwrap()),
        Just("0.0.0.0/0".parse().unwrap()),
        Just("::/0".parse().unwrap()),
    ];
    let action = prop_oneof![Just(Effect::Allow), Just(Effect::Deny)];
    let ports = prop::collection::vec(1_u16..5, 0..3);
    (action, target, ports).prop_map(|(action, target, ports)| Rule {
        action,
        target,
        ports,
        internal: false,
        requests: Requests::default(),
    })
}

proptest! {
    #[test]
    fn the_order_of_rules_never_matters(
        rules in prop::collection::vec(any_rule(), 0..8),
        text in any_name(), address in any_address(), port in 1_u16..5,
    ) {
        let forward = Policy::new(Effect::Deny, rules.clone()).unwrap();
        let backward = Policy::new(Effect::Deny, rules.into_iter().rev().collect()).unwrap();
        for host in [host(&text), Host::Address(address)] {
            prop_assert_eq!(answer(forward.check(&host, port)), answer(backward.check(&host, port)));
        }
        let resolved = |policy: &Policy| answer(policy.check_resolved(&name(&text), Some(port), &[address]));
        prop_assert_eq!(resolved(&forward), resolved(&backward));
    }

    #[test]
    fn a_deny_beats_everything(
        rules in prop::collection::vec(any_rule(), 0..8), text in any_name(), port in 1_u16..5,
    ) {
        let deny = Rule { action: Effect::Deny, target: Target::Exact(name(&text)), ports: vec![], internal: false, requests: Requests::default() };
        let rules = rules.into_iter().chain([deny]).collect();
        let policy = Policy::new(Effect::Allow, rules).unwrap();
        prop_assert_eq!(answer(policy.check(&host(&text), port)), "denied");
        prop_assert_eq!(answer(policy.check_lookup(&name(&text))), "denied");
    }

    #[test]
    fn no_name_leads_to_an_internal_address_without_a_rule_for_it(
        address in any_address(), port in 1_u16..5,
    ) {
        let policy = policy("allow", &["allow 0.0.0.0/0", "allow ::/0", "allow *.example"]);
        let answered = policy.check_resolved(&name("a.example"), Some(port), &[address]);
        prop_assert_eq!(answered.is_ok(), classify(address).is_public());
        let literal = policy.check(&Host::Address(address.to_canonical()), port);
        prop_assert_eq!(literal.is_ok(), classify(address).is_public());
    }

    #[test]
    fn any_text_is_read_without_panic_and_what_is_read_is_canonical(text in "\\PC{0,40}") {
        if let Ok(read) = Host::parse(&text) {
            prop_assert_eq!(Host::parse(&read.to_string()), Ok(read));
        }
        if let Ok(target) = text.parse::<Target>() {
            prop_assert_eq!(target.to_string().parse(), Ok(target));
        }
    }

    #[test]
    fn a_block_holds_what_begins_like_it(bits in any::<u32>(), prefix in 0_u8..=32, other in any::<u32>()) {
        let mask = u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0);
        let first: std::net::Ipv4Addr = (bits & mask).into();
        let block: Block = format!("{first}/{prefix}").parse().unwrap();
        let inside: std::net::Ipv4Addr = ((bits & mask) | (other & !mask)).into();
        prop_assert!(block.contains_address(inside.into()));
        let outside: std::net::Ipv4Addr = other.into();
        prop_assert_eq!(block.contains_address(outside.into()), other & mask == bits & mask);
    }
}

fn policy_of(rules: serde_json::Value) -> Policy {
    serde_json::from_value(json!({ "default": "deny", "rules": rules })).unwrap()
}

#[test]
fn an_internal_rule_opens_a_private_network_for_its_names_alone() {
    let policy = policy_of(json!([
        { "action": "allow", "target": "mirror.example", "ports": [443], "internal": true },
        { "action": "allow", "target": "*.corp.example", "internal": true },
        { "action": "allow", "target": "other.example" },
    ]));
    let resolved = |host: &str, port, addresses: &[&str]| {
        let addresses: Vec<IpAddr> = addresses.iter().map(|text| text.parse().unwrap()).collect();
        policy.check_resolved(&name(host), port, &addresses).map_err(|refusal| refusal.allow())
    };
    for (host, port, address) in [
        ("mirror.example", Some(443), "10.0.0.5"),
        ("mirror.example", None, "192.168.1.1"),
        ("mirror.example", Some(443), "fd00::5"),
        ("mirror.example", Some(443), "::ffff:10.0.0.5"),
        ("a.corp.example", Some(80), "100.64.0.1"),
        ("mirror.example", Some(443), "93.184.216.34"),
    ] {
        assert_eq!(resolved(host, port, &[address]), Ok(()), "{host} {address}");
    }
    for (host, port, address, allow) in [
        ("mirror.example", Some(80), "10.0.0.5", Some("--allow-internal mirror.example:80")),
        ("other.example", Some(443), "10.0.0.5", Some("--allow-internal other.example:443")),
        ("other.example", None, "10.0.0.5", Some("--allow-internal other.example")),
        ("corp.example", Some(80), "100.64.0.1", Some("--allow-internal corp.example:80")),
        // These need a rule for the address.
        ("mirror.example", Some(443), "169.254.169.254", None),
        ("mirror.example", Some(443), "100.100.100.200", None),
        ("mirror.example", Some(443), "fd00:ec2::254", None),
        ("mirror.example", Some(443), "169.254.1.1", None),
        ("mirror.example", Some(443), "127.0.0.1", None),
        ("mirror.example", Some(443), "::1", None),
        ("mirror.example", Some(443), "0.0.0.0", None),
        ("mirror.example", Some(443), "224.0.0.1", None),
    ] {
        let expected = Err(allow.map(str::to_owned));
        assert_eq!(resolved(host, port, &[address]), expected, "{host} {address}");
    }
    // One address that is not allowed is enough.
    assert!(resolved("mirror.example", Some(443), &["10.0.0.5", "127.0.0.1"]).is_err());
    // The address itself is opened to no one.
    assert!(policy.check(&Host::parse("10.0.0.5").unwrap(), 443).is_err());
    for rule in [
        json!({ "action": "deny", "target": "a.example", "internal": true }),
        json!({ "action": "allow", "target": "10.0.0.0/8", "internal": true }),
        json!({ "action": "allow", "target": "*", "internal": true }),
        json!({ "action": "allow", "target": HOST_LOOPBACK, "ports": [80], "internal": true }),
    ] {
        let policy = json!({ "default": "deny", "rules": [rule] });
        assert!(serde_json::from_value::<Policy>(policy.clone()).is_err(), "{policy}");
    }
}

#[test]
fn the_loopback_of_the_host_needs_a_rule_that_names_it_and_its_ports() {
    let host = || Host::parse(HOST_LOOPBACK).unwrap();
    let loopback = ["127.0.0.1".parse().unwrap(), "::1".parse().unwrap()];
    let own = policy_of(json!([{ "action": "allow", "target": HOST_LOOPBACK, "ports": [9801] }]));
    assert_eq!(own.check(&host(), 9801), Ok(()));
    assert_eq!(own.check_lookup(&name(HOST_LOOPBACK)), Ok(()));
    assert_eq!(own.check_resolved(&name(HOST_LOOPBACK), Some(9801), &loopback), Ok(()));
    assert!(own.check(&host(), 9802).is_err());
    assert!(own.check_resolved(&name(HOST_LOOPBACK), Some(9802), &loopback).is_err());
    let elsewhere = ["10.0.0.5".parse().unwrap()];
    assert!(own.check_resolved(&name(HOST_LOOPBACK), Some(9801), &elsewhere).is_err());
    for wide in [
        json!({ "default": "allow" }),
        json!({ "default": "deny", "rules": [{ "action": "allow", "target": "*" }] }),
        json!({ "default": "deny", "rules": [{ "action": "allow", "target": "*.internal" }] }),
        json!({ "default": "deny", "rules": [{ "action": "allow", "target": "*.stockade.internal" }] }),
    ] {
        let policy: Policy = serde_json::from_value(wide.clone()).unwrap();
        assert!(policy.check(&host(), 9801).is_err(), "{wide}");
    }
    let all_ports =
        json!({ "default": "deny", "rules": [{ "action": "allow", "target": HOST_LOOPBACK }] });
    assert!(serde_json::from_value::<Policy>(all_ports).is_err());
}

#[test]
fn an_asterisk_is_every_public_host() {
    let all = policy_of(json!([{ "action": "allow", "target": "*", "ports": [443] }]));
    let check = |host: &str, port| all.check(&Host::parse(host).unwrap(), port).is_ok();
    assert!(check("a.example", 443) && check("93.184.216.34", 443) && check("2606:2800::1", 443));
    assert!(!check("a.example", 80) && !check("93.184.216.34", 80));
    for address in ["10.0.0.5", "127.0.0.1", "169.254.169.254", "::1", "fd00::1"] {
        assert!(!check(address, 443), "{address}");
        let address = address.parse().unwrap();
        assert!(
            all.check_resolved(&name("a.example"), Some(443), &[address]).is_err(),
            "{address}"
        );
    }
    let without = policy_of(json!([
        { "action": "allow", "target": "*" },
        { "action": "deny", "target": "b.example" },
    ]));
    assert!(without.check(&Host::parse("b.example").unwrap(), 443).is_err());
}
