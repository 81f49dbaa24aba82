//! Whether one policy allows no more than another one. If in doubt, the answer is no.

use super::{Policy, Rule, Target, is_host_loopback};
use crate::access::Effect;
use crate::address::Class;

impl Policy {
    /// What another policy allows, or may allow, that this one does not: its first rule that
    /// exceeds this policy, or `*` for its default. `None` if it allows no more.
    pub fn first_excess_rule(&self, other: &Self) -> Option<String> {
        if !self.limits.covers(&other.limits) {
            return Some(format!("limits: {}", self.limits));
        }
        let denies = |rule: &&Rule| rule.action == Effect::Deny;
        if other.default == Effect::Allow && self.default == Effect::Deny
            || !self.rules.iter().filter(denies).all(|rule| other.rules.contains(rule))
        {
            return Some("*".to_owned());
        }
        let allows = |rule: &&Rule| rule.action == Effect::Allow;
        let beyond = other.rules.iter().filter(allows).find(|rule| !self.covers(rule));
        beyond.map(Rule::subject)
    }

    pub(super) fn covers(&self, rule: &Rule) -> bool {
        let is_host = matches!(&rule.target, Target::Exact(name) if is_host_loopback(name));
        let is_names = !matches!(rule.target, Target::Any | Target::Block(_));
        let denies_requests =
            || self.rules.iter().any(|own| own.action == Effect::Deny && !own.requests.is_all());
        if self.default == Effect::Allow
            && is_names
            && !rule.internal
            && !is_host
            && !denies_requests()
        {
            return true;
        }
        let is_at = |own: &Rule| {
            own.ports.is_empty()
                || !rule.ports.is_empty() && rule.ports.iter().all(|port| own.matches_port(*port))
        };
        let allows = |own: &&Rule| {
            own.action == Effect::Allow
                && is_at(own)
                && (own.internal || !rule.internal)
                && own.requests.covers(&rule.requests)
        };
        let mut allowing = self.rules.iter().filter(allows);
        allowing.any(|own| own.target == rule.target || !is_host && own.target.covers(&rule.target))
    }
}

impl Target {
    /// Whether a rule about this target applies to everything that a rule about another target
    /// applies to.
    fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Any, Self::Any | Self::Exact(_) | Self::Subdomains(_)) => true,
            (Self::Exact(own), Self::Exact(name)) => own == name,
            (Self::Subdomains(parent), Self::Exact(name)) => name.is_below(parent),
            (Self::Subdomains(parent), Self::Subdomains(name)) => {
                name == parent || name.is_below(parent)
            }
            // A block allows non-public addresses only if it lies within their class, and addresses
            // of this machine only if it is exactly that address.
            (Self::Block(own), Self::Block(block)) => {
                own == block
                    || own.contains(block) && block.is_in_class(Class::Public) && !block.is_single()
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::network::Host;

    fn policy(default: &str, targets: &[&str]) -> Policy {
        let rule = |target: &&str| {
            let (target, port) = match target.rsplit_once(" at ") {
                Some((target, port)) => (target, vec![port.parse::<u16>().unwrap()]),
                None => (*target, Vec::new()),
            };
            let (action, target) = match target.strip_prefix("not ") {
                Some(target) => ("deny", target),
                None => ("allow", target),
            };
            json!({ "action": action, "target": target, "ports": port })
        };
        let rules: Vec<_> = targets.iter().map(rule).collect();
        serde_json::from_value(json!({ "default": default, "rules": rules })).unwrap()
    }

    #[test]
    fn who_is_within_another_lets_through_no_more() {
        let names = ["api.example", "*.hub.example", "web.example at 443", "10.0.0.0/8"];
        let outer = policy("deny", &names);
        let public = policy("allow", &["0.0.0.0/0", "::/0"]);
        // The other policy, the rule of it that exceeds the names, and the one that exceeds all
        // public addresses.
        for (asked, by_names, by_public) in [
            (policy("deny", &[]), None, None),
            (policy("deny", &names), None, Some("10.0.0.0/8")),
            (policy("deny", &["api.example at 443"]), None, None),
            (policy("deny", &["web.example"]), Some("web.example"), None),
            (policy("deny", &["web.example at 80"]), Some("web.example"), None),
            (policy("deny", &["a.hub.example", "*.a.hub.example"]), None, None),
            (policy("deny", &["hub.example"]), Some("hub.example"), None),
            (policy("deny", &["*.example"]), Some("*.example"), None),
            (policy("deny", &["*.api.example"]), Some("*.api.example"), None),
            (policy("deny", &["10.1.2.3"]), Some("10.1.2.3"), Some("10.1.2.3")),
            (policy("deny", &["9.9.9.9"]), Some("9.9.9.9"), Some("9.9.9.9")),
            (policy("deny", &["9.9.9.0/24"]), Some("9.9.9.0/24"), None),
            (policy("deny", &["127.0.0.1"]), Some("127.0.0.1"), Some("127.0.0.1")),
            (policy("deny", &["2606:4700::/32"]), Some("2606:4700::/32"), None),
            (policy("deny", &["0.0.0.0/0"]), Some("0.0.0.0/0"), None),
            (policy("deny", &["*"]), Some("*"), Some("*")),
            (
                policy("deny", &["host.stockade.internal at 80"]),
                Some("host.stockade.internal"),
                Some("host.stockade.internal"),
            ),
            (policy("allow", &[]), Some("*"), None),
            (policy("allow", &["not api.example"]), Some("*"), None),
        ] {
            assert_eq!(outer.first_excess_rule(&asked).as_deref(), by_names, "{asked:?}");
            assert_eq!(public.first_excess_rule(&asked).as_deref(), by_public, "{asked:?}");
            assert_eq!(asked.first_excess_rule(&asked), None, "{asked:?}");
        }
        let denying = policy("allow", &["not api.example"]);
        assert_eq!(
            denying.first_excess_rule(&policy("deny", &["web.example"])).as_deref(),
            Some("*")
        );
        assert_eq!(
            denying.first_excess_rule(&policy("deny", &["not api.example", "web.example"])),
            None
        );
    }

    const TARGETS: &[&str] = &[
        "api.example",
        "a.hub.example",
        "*.hub.example",
        "*.example",
        "10.1.2.3",
        "10.0.0.0/8",
        "0.0.0.0/0",
        "::/0",
        "9.9.9.9",
        "9.9.9.0/24",
        "168.0.0.0/6",
        "169.254.169.254",
        "127.0.0.0/8",
        "2606:4700::/32",
        "2606:4700::1",
    ];
    const NAMES: &[&str] = &["api.example", "a.hub.example", "x.a.hub.example", "other.example"];
    const ADDRESSES: &[&str] = &[
        "10.1.2.3",
        "10.9.9.9",
        "9.9.9.9",
        "9.9.9.8",
        "168.1.1.1",
        "169.254.169.254",
        "127.0.0.1",
        "2606:4700::1",
        "2606:4700::2",
        "::ffff:10.1.2.3",
        "64:ff9b::a01:203",
    ];

    fn any_policy() -> impl Strategy<Value = Policy> {
        let rule = (prop::bool::weighted(0.2), prop::sample::select(TARGETS), 0..3_usize);
        let rules = prop::collection::vec(rule, 0..4);
        (any::<bool>(), rules).prop_map(|(is_open, rules)| {
            let rule = |(denies, target, port): (bool, &str, usize)| {
                let ports = [vec![], vec![80], vec![80, 443]][port].clone();
                let action = if denies { "deny" } else { "allow" };
                json!({ "action": action, "target": target, "ports": ports })
            };
            let rules: Vec<_> = rules.into_iter().map(rule).collect();
            let default = if is_open { "allow" } else { "deny" };
            serde_json::from_value(json!({ "default": default, "rules": rules })).unwrap()
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4_000))]

        #[test]
        fn what_is_not_beyond_a_policy_is_let_through_by_it(outer in any_policy(), inner in any_policy()) {
            if outer.first_excess_rule(&inner).is_some() {
                return Ok(());
            }
            for port in [80, 443, 22] {
                for address in ADDRESSES.iter().map(|text| text.parse().unwrap()) {
                    let host = Host::Address(address);
                    if inner.check(&host, port).is_ok() {
                        prop_assert!(outer.check(&host, port).is_ok(), "{host} {port}");
                    }
                    if inner.allows_exactly(address, port) {
                        prop_assert!(outer.allows_exactly(address, port), "exactly {host} {port}");
                    }
                    for text in NAMES {
                        let Ok(Host::Name(name)) = Host::parse(text) else { unreachable!() };
                        let lets = |policy: &Policy| {
                            policy.check(&Host::Name(name.clone()), port).is_ok()
                                && policy.check_resolved(&name, Some(port), &[address]).is_ok()
                        };
                        if lets(&inner) {
                            prop_assert!(lets(&outer), "{name} at {address} {port}");
                        }
                    }
                }
            }
        }
    }
}
