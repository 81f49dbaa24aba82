//! Which crate of the workspace may depend on which. ARCHITECTURE.md draws the same arrows.

use serde_json::Value;

use super::Finding;

/// A crate that the tests of every crate may use, only as a dev-dependency.
const TEST_SUPPORT: &str = "stockade-test-support";

/// Each crate with the workspace crates that it may use, in any kind of dependency.
const ALLOWED_DEPENDENCIES: &[(&str, &[&str])] = &[
    ("stockade-core", &[]),
    ("stockade-api", &["stockade-core"]),
    ("stockade-audit", &["stockade-core"]),
    ("stockade-client", &["stockade-core", "stockade-api"]),
    (
        "stockade-server",
        &[
            "stockade-core",
            "stockade-api",
            "stockade-forward",
            "stockade-script",
            "stockade-snippet",
        ],
    ),
    (
        "stockade-service",
        &[
            "stockade-core",
            "stockade-api",
            "stockade-audit",
            "stockade-bundle",
            "stockade-durable",
            "stockade-egress",
            "stockade-egress-control",
            "stockade-forward",
            "stockade-review",
            "stockade-runtime",
            "stockade-ssh-agent",
            "stockade-vault",
            "stockade-volume",
        ],
    ),
    ("stockade-vault", &["stockade-core"]),
    ("stockade-ssh-agent", &["stockade-core"]),
    ("stockade-forward", &[]),
    ("stockade-jail", &[]),
    ("stockade-bundle", &["stockade-core"]),
    ("stockade-image", &["stockade-core", "stockade-bundle"]),
    ("stockade-review", &["stockade-core", "stockade-api", "stockade-bundle"]),
    ("stockade-durable", &[]),
    ("stockade-egress", &["stockade-core", "stockade-egress-control"]),
    ("stockade-egress-control", &["stockade-core"]),
    ("stockade-network-stub", &["stockade-core"]),
    ("stockade-registry", &["stockade-core", "stockade-image", "stockade-registry-control"]),
    ("stockade-registry-control", &["stockade-core", "stockade-image"]),
    ("stockade-script", &["stockade-core", "stockade-jail"]),
    ("stockade-snippet", &["stockade-core", "stockade-script"]),
    ("stockade-volume", &["stockade-core", "stockade-bundle"]),
    ("stockade-backup", &["stockade-core", "stockade-bundle"]),
    (
        "stockade-plan",
        &["stockade-core", "stockade-jail", "stockade-bundle", "stockade-image", "stockade-volume"],
    ),
    // Its suite for backends is library code, and records skips as tests do.
    ("stockade-runtime", &["stockade-core", "stockade-bundle", TEST_SUPPORT]),
    (
        "stockade-runtime-native",
        &[
            "stockade-core",
            "stockade-jail",
            "stockade-bundle",
            "stockade-image",
            "stockade-plan",
            "stockade-runtime",
        ],
    ),
    ("stockade-runtime-bwrap", &["stockade-core", "stockade-runtime", "stockade-runtime-native"]),
    (
        "stockade-runtime-opensandbox",
        &["stockade-core", "stockade-runtime", "stockade-runtime-remote"],
    ),
    ("stockade-runtime-remote", &["stockade-core", "stockade-bundle", "stockade-runtime"]),
    (
        "stockade-runtime-codeplane",
        &["stockade-core", "stockade-runtime", "stockade-runtime-remote"],
    ),
    ("stockade-init", &["stockade-jail"]),
    (
        "stockade-pod",
        &["stockade-core", "stockade-jail", "stockade-runtime", "stockade-runtime-native"],
    ),
    (
        "stockade-runtime-kubernetes",
        &[
            "stockade-core",
            "stockade-pod",
            "stockade-runtime",
            "stockade-runtime-native",
            "stockade-runtime-remote",
        ],
    ),
    (
        "stockade-runtime-docker",
        &[
            "stockade-core",
            "stockade-jail",
            "stockade-bundle",
            "stockade-plan",
            "stockade-runtime",
            "stockade-runtime-native",
        ],
    ),
    (
        "stockade-workflow",
        &[
            "stockade-core",
            "stockade-api",
            "stockade-bundle",
            "stockade-durable",
            "stockade-script",
            "stockade-service",
            "stockade-snippet",
        ],
    ),
    (
        "stockade-cli",
        &[
            // `service` only in tests: `stockade_dependencies` checks what is linked into the program.
            "stockade-api",
            "stockade-audit",
            "stockade-bundle",
            "stockade-client",
            "stockade-core",
            "stockade-egress-control",
            "stockade-forward",
            "stockade-image",
            "stockade-jail",
            "stockade-network-stub",
            "stockade-ssh-agent",
            "stockade-plan",
            "stockade-pod",
            "stockade-registry-control",
            "stockade-review",
            "stockade-runtime",
            "stockade-runtime-native",
            "stockade-service",
            "stockade-volume",
        ],
    ),
    (
        "stockade-host",
        &[
            "stockade-api",
            "stockade-audit",
            "stockade-backup",
            "stockade-bundle",
            "stockade-cli",
            "stockade-client",
            "stockade-core",
            "stockade-durable",
            "stockade-egress",
            "stockade-egress-control",
            "stockade-image",
            "stockade-jail",
            "stockade-plan",
            "stockade-registry",
            "stockade-registry-control",
            "stockade-runtime",
            "stockade-runtime-bwrap",
            "stockade-runtime-codeplane",
            "stockade-runtime-docker",
            "stockade-runtime-kubernetes",
            "stockade-runtime-native",
            "stockade-runtime-opensandbox",
            "stockade-script",
            "stockade-server",
            "stockade-service",
            "stockade-snippet",
            "stockade-vault",
            "stockade-workflow",
        ],
    ),
    (
        "stockade-fuzz",
        &[
            "stockade-core",
            "stockade-jail",
            "stockade-bundle",
            "stockade-egress",
            "stockade-image",
            "stockade-runtime",
            "stockade-script",
            "stockade-snippet",
        ],
    ),
    ("stockade-measure", &[]),
    // Tests from outside call no code of the product.
    ("stockade-e2e", &[]),
    (
        "stockade-runtime-tests",
        &[
            "stockade-api",
            "stockade-bundle",
            "stockade-core",
            "stockade-durable",
            "stockade-egress-control",
            "stockade-egress",
            "stockade-jail",
            "stockade-runtime",
            "stockade-runtime-bwrap",
            "stockade-runtime-codeplane",
            "stockade-runtime-docker",
            "stockade-runtime-native",
            "stockade-runtime-opensandbox",
            "stockade-runtime-remote",
            "stockade-service",
        ],
    ),
    (
        "stockade-test-programs",
        &[
            "stockade-api",
            "stockade-client",
            "stockade-core",
            "stockade-durable",
            "stockade-egress",
            "stockade-measure",
            "stockade-runtime",
            "stockade-runtime-native",
            "stockade-script",
            "stockade-service",
            "stockade-snippet",
            "stockade-workflow",
        ],
    ),
    (TEST_SUPPORT, &[]),
    // Verifies the programs that it ships as tests do.
    ("xtask", &["stockade-measure", TEST_SUPPORT]),
];

/// Checks the workspace in the output of `cargo metadata --no-deps`.
pub(super) fn check(metadata: &Value) -> Vec<Finding> {
    let mut findings = Vec::new();
    let packages = metadata["packages"].as_array().map(Vec::as_slice).unwrap_or_default();
    if packages.is_empty() {
        findings.push("Cargo.toml: the workspace has no packages".to_owned());
    }
    for package in packages {
        let name = package["name"].as_str().unwrap_or_default();
        let Some((_, allowed)) = ALLOWED_DEPENDENCIES.iter().find(|(known, _)| *known == name)
        else {
            findings.push(format!("{name}: not in the table of xtask/src/tidy/arrows.rs"));
            continue;
        };
        let dependencies = package["dependencies"].as_array().map(Vec::as_slice);
        for dependency in dependencies.unwrap_or_default() {
            let used = dependency["name"].as_str().unwrap_or_default();
            if used == TEST_SUPPORT && dependency["kind"] == "dev" {
                continue;
            }
            if !dependency["path"].is_null() && !allowed.contains(&used) {
                findings.push(format!("{name}: may not use {used}"));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn package(name: &str, uses: &[&str]) -> Value {
        let dependencies: Vec<_> =
            uses.iter().map(|name| json!({"name": name, "path": "/p"})).collect();
        json!({"name": name, "dependencies": dependencies})
    }

    #[test]
    fn arrows_point_down_only() {
        let right = json!({"packages": [
            package("stockade-core", &[]),
            package("stockade-bundle", &["stockade-core"]),
            {"name": "xtask", "dependencies": [{"name": "anyhow", "path": null}]},
        ]});
        assert_eq!(check(&right), Vec::<String>::new());

        let wrong = json!({"packages": [
            package("stockade-jail", &["stockade-core"]),
            package("stockade-new", &[]),
        ]});
        assert_eq!(
            check(&wrong),
            [
                "stockade-jail: may not use stockade-core",
                "stockade-new: not in the table of xtask/src/tidy/arrows.rs"
            ]
        );
        assert!(!check(&json!({})).is_empty());
    }

    #[test]
    fn only_tests_use_what_tests_share() {
        let jail = |kind: Option<&str>| {
            let support = json!({"name": TEST_SUPPORT, "path": "/p", "kind": kind});
            json!({"packages": [{"name": "stockade-jail", "dependencies": [support]}]})
        };
        assert_eq!(check(&jail(Some("dev"))), Vec::<String>::new());
        assert_eq!(check(&jail(None)), ["stockade-jail: may not use stockade-test-support"]);
    }
}
