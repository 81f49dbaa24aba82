//! The list of what a program is made of, as CycloneDX 1.5 has it.

use std::collections::BTreeSet;

use serde::Serialize;
use serde_json::json;

use super::VERSION;
use super::graph::{Closure, Graph};
use super::packages::Package;
use super::source::Source;
use super::sums::sha256;

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Bom {
    bom_format: &'static str,
    spec_version: &'static str,
    serial_number: String,
    version: u32,
    metadata: Metadata,
    components: Vec<Component>,
    dependencies: Vec<Dependency>,
}

#[derive(Debug, Serialize)]
struct Metadata {
    timestamp: String,
    component: Component,
}

#[derive(Debug, Serialize)]
struct Component {
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(rename = "bom-ref")]
    reference: String,
    name: String,
    version: String,
    /// Whether it is in the program.
    scope: &'static str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    hashes: Vec<Hash>,
    licenses: [License; 1],
    #[serde(skip_serializing_if = "Option::is_none")]
    purl: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    properties: Vec<Property>,
}

#[derive(Debug, Serialize)]
struct Hash {
    alg: &'static str,
    content: String,
}

#[derive(Debug, Serialize)]
struct License {
    expression: String,
}

#[derive(Debug, Serialize)]
struct Property {
    name: &'static str,
    value: String,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Dependency {
    #[serde(rename = "ref")]
    reference: String,
    depends_on: Vec<String>,
}

/// The list of one program as JSON. It is the same for the same sources.
pub(super) fn of(
    program: &str,
    graph: &Graph,
    closure: &Closure,
    source: &Source,
) -> anyhow::Result<String> {
    let all: BTreeSet<_> = closure.linked.union(&closure.build_only).collect();
    let mut components = Vec::new();
    let mut dependencies = Vec::new();
    for id in &all {
        let package = graph.package(id)?;
        let uses = graph.uses(id).into_iter().map(str::to_owned);
        let uses = uses.filter(|used| all.contains(used));
        let uses = uses.map(|used| graph.package(&used).map(reference));
        let depends_on = uses.collect::<anyhow::Result<Vec<_>>>()?;
        dependencies.push(Dependency { reference: reference(package), depends_on });
        if **id != closure.root {
            let is_linked = closure.linked.contains(*id);
            components.push(component(package, if is_linked { "required" } else { "excluded" })?);
        }
    }
    let root = Component {
        kind: "application",
        name: program.to_owned(),
        properties: vec![Property { name: "stockade:commit", value: source.commit.clone() }],
        ..component(graph.package(&closure.root)?, "required")?
    };
    // Named by its content, so that the same sources give the same name.
    let content = json!({"root": root, "components": components, "dependencies": dependencies});
    let bom = Bom {
        bom_format: "CycloneDX",
        spec_version: "1.5",
        serial_number: serial_number(&sha256(content.to_string().as_bytes())),
        version: 1,
        metadata: Metadata { timestamp: source.timestamp()?, component: root },
        components,
        dependencies,
    };
    Ok(format!("{}\n", serde_json::to_string_pretty(&bom)?))
}

fn component(package: &Package, scope: &'static str) -> anyhow::Result<Component> {
    let Package { name, version, checksum, .. } = package;
    let hash = |content: &String| Hash { alg: "SHA-256", content: content.clone() };
    let is_ours = package.is_of_workspace();
    Ok(Component {
        kind: "library",
        reference: reference(package),
        name: name.clone(),
        version: if is_ours { VERSION.to_owned() } else { version.clone() },
        scope,
        hashes: checksum.iter().map(hash).collect(),
        licenses: [License { expression: package.expression()? }],
        purl: (!is_ours).then(|| format!("pkg:cargo/{name}@{version}")),
        properties: Vec::new(),
    })
}

fn reference(package: &Package) -> String {
    format!("{}@{}", package.name, package.version)
}

/// A UUID of version 8, which is free in its content.
fn serial_number(hash: &str) -> String {
    let part = |range: std::ops::Range<usize>| hash.get(range).unwrap_or_default();
    let (first, second, third) = (part(0..8), part(8..12), part(12..15));
    format!("urn:uuid:{first}-{second}-8{third}-8{}-{}", part(15..18), part(18..30))
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::dist::graph::tests::of_this_workspace;

    fn sbom(program: &str, package: &str) -> Value {
        let (graph, all) = of_this_workspace();
        let closure = graph.closure(package, &all).unwrap();
        let source = Source { commit: "c0ffee".to_owned(), time: 1_700_000_000 };
        let made = of(program, &graph, &closure, &source).unwrap();
        assert_eq!(made, of(program, &graph, &closure, &source).unwrap());
        serde_json::from_str(&made).unwrap()
    }

    fn scopes<'s>(sbom: &'s Value, name: &str) -> Vec<&'s str> {
        let components = sbom["components"].as_array().unwrap().iter();
        let named = components.filter(|component| component["name"] == name);
        named.map(|component| component["scope"].as_str().unwrap()).collect()
    }

    #[test]
    fn what_is_linked_differs_from_what_only_builds() {
        let server = sbom("stockade-server", "stockade-host");
        assert_eq!(scopes(&server, "rusqlite"), ["required"]);
        assert_eq!(scopes(&server, "serde_derive"), ["excluded"]);
        let front = sbom("stockade", "stockade-cli");
        assert_eq!(scopes(&front, "rusqlite"), [""; 0]);
        assert_eq!(scopes(&front, "rquickjs"), [""; 0]);
        assert_eq!(scopes(&front, "clap"), ["required"]);
    }

    #[test]
    fn each_reference_leads_somewhere_and_each_package_has_a_hash() {
        let front = sbom("stockade", "stockade-cli");
        assert_eq!(front["specVersion"], "1.5");
        assert_eq!(front["serialNumber"].as_str().unwrap().len(), "urn:uuid:".len() + 36);
        let root = &front["metadata"]["component"];
        assert_eq!((&root["name"], &root["type"]), (&"stockade".into(), &"application".into()));
        let mut known = BTreeSet::from([root["bom-ref"].as_str().unwrap()]);
        for component in front["components"].as_array().unwrap() {
            assert!(known.insert(component["bom-ref"].as_str().unwrap()), "{component}");
            let is_from_outside = component.get("purl").is_some();
            assert_eq!(component.get("hashes").is_some(), is_from_outside, "{component}");
            assert!(!component["licenses"][0]["expression"].as_str().unwrap().contains('/'));
        }
        for dependency in front["dependencies"].as_array().unwrap() {
            let used = dependency["dependsOn"].as_array().unwrap().iter();
            for reference in used.chain([&dependency["ref"]]) {
                assert!(known.contains(reference.as_str().unwrap()), "{reference}");
            }
        }
    }
}
