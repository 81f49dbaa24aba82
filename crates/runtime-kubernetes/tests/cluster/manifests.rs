//! The manifests and the chart in `deploy/kubernetes`: they agree, and every object in them passes the schemas. Where
//! `helm` is installed, it renders the same.

mod yaml;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value;
use stockade_test_support::skipped;

use crate::double::check_object;

const TEMPLATES: [&str; 3] = ["rights.yaml", "network.yaml", "server.yaml"];

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/kubernetes")
}

fn read(path: &str) -> String {
    std::fs::read_to_string(directory().join(path)).unwrap()
}

/// The templates of the chart with its values, as Helm renders the few expressions in them.
fn rendered() -> Vec<Value> {
    let values = yaml::documents(&read("chart/values.yaml")).remove(0);
    let mut variables: BTreeMap<String, String> =
        [(".Release.Namespace".to_owned(), "stockade".to_owned())].into();
    for (name, value) in values.as_object().unwrap() {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        variables.insert(format!(".Values.{name}"), text);
    }
    let mut objects = Vec::new();
    for template in TEMPLATES {
        let mut text = read(&format!("chart/templates/{template}"));
        for (name, value) in &variables {
            text = text.replace(&format!("{{{{ {name} }}}}"), value);
        }
        assert!(!text.contains("{{"), "{template} has an expression without a value");
        objects.extend(yaml::documents(&text));
    }
    objects
}

#[test]
fn the_chart_gives_the_manifests() {
    let mut manifests = yaml::documents(&read("stockade.yaml"));
    assert_eq!(manifests.remove(0)["kind"], "Namespace");
    assert_eq!(manifests, rendered());
}

#[test]
fn every_object_passes_its_schema() {
    let manifests = yaml::documents(&read("stockade.yaml"));
    assert_eq!(manifests.len(), 8);
    for object in &manifests {
        let kind = format!("{}s", object["kind"].as_str().unwrap().to_lowercase());
        let kind = kind.replace("policys", "policies");
        check_object(&kind, object).unwrap_or_else(|reason| panic!("{kind}: {reason}"));
    }
}

#[test]
fn the_server_may_do_no_more_than_it_does() {
    let manifests = yaml::documents(&read("stockade.yaml"));
    let role = manifests.iter().find(|object| object["kind"] == "ClusterRole").unwrap();
    for rule in role["rules"].as_array().unwrap() {
        let text = rule.to_string();
        for never in ["*", "secrets", "nodes", "roles", "serviceaccounts", "\"update\""] {
            assert!(!text.contains(never), "{text}");
        }
    }
    let deployment = manifests.iter().find(|object| object["kind"] == "Deployment").unwrap();
    let spec = &deployment["spec"]["template"]["spec"];
    let rights = &spec["containers"][0]["securityContext"];
    assert_eq!(rights["allowPrivilegeEscalation"], false);
    assert_eq!(rights["readOnlyRootFilesystem"], true);
    assert_eq!(rights["capabilities"]["drop"][0], "ALL");
}

#[test]
fn helm_renders_the_same() {
    let chart = directory().join("chart");
    let mut helm = std::process::Command::new("helm");
    let output = helm.args(["template", "stockade", "--namespace", "stockade"]).arg(chart).output();
    let Ok(output) = output else { return skipped("the program helm is not installed") };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let by_kind = |mut objects: Vec<Value>| {
        objects.sort_by_key(|object| object["kind"].to_string());
        objects
    };
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(by_kind(yaml::documents(&text)), by_kind(rendered()));
}
