//! What the controllers of a cluster do when objects are created and deleted.

use std::sync::Arc;

use serde_json::{Value, json};

use super::kubelet;
use super::store::{Key, Store};

fn key(kind: &str, namespace: &str, name: &str) -> Key {
    (kind.to_owned(), namespace.to_owned(), name.to_owned())
}

/// Follows up on a new object.
pub(crate) fn created(store: &Arc<Store>, at: &Key, object: &Value) {
    match at.0.as_str() {
        "pods" => {
            let (store, at, object) = (Arc::clone(store), at.clone(), object.clone());
            tokio::spawn(async move { kubelet::start(&store, &at, &object).await });
        }
        "sandboxes" => make_pod(store, at, &object["spec"]["podTemplate"]),
        "sandboxwarmpools" => {
            for _ in 0..object["spec"]["replicas"].as_u64().unwrap() {
                add_unused(store, &at.1, &at.2);
            }
        }
        "sandboxclaims" => adopt(store, at, object),
        _ => {}
    }
}

/// Follows up on a deleted object, before it is gone.
pub(crate) async fn deleted(store: &Arc<Store>, at: &Key) {
    match at.0.as_str() {
        "pods" => kubelet::stop(store, at).await,
        "sandboxes" => {
            let pod = key("pods", &at.1, &at.2);
            kubelet::stop(store, &pod).await;
            store.remove(&pod);
        }
        "sandboxclaims" => {
            let claim = store.get(at).unwrap_or_default();
            if let Some(name) = claim["status"]["sandbox"]["name"].as_str() {
                let sandbox = key("sandboxes", &at.1, name);
                Box::pin(deleted(store, &sandbox)).await;
                store.remove(&sandbox);
            }
        }
        _ => {}
    }
}

fn make_pod(store: &Arc<Store>, sandbox: &Key, template: &Value) {
    let mut metadata = template["metadata"].clone();
    metadata["name"] = json!(sandbox.2);
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"],
    });
    super::schemas::check("pods", &pod).unwrap();
    let at = key("pods", &sandbox.1, &sandbox.2);
    if let Some(pod) = store.add(&at, pod) {
        created(store, &at, &pod);
    }
}

fn add_unused(store: &Arc<Store>, namespace: &str, pool: &str) {
    let pool_object = store.get(&key("sandboxwarmpools", namespace, pool)).unwrap();
    let template = pool_object["spec"]["sandboxTemplateRef"]["name"].as_str().unwrap();
    let template = store.get(&key("sandboxtemplates", namespace, template)).unwrap();
    let name = format!("{pool}-{}", store.version());
    let sandbox = json!({
        "apiVersion": "agents.x-k8s.io/v1beta1", "kind": "Sandbox",
        "metadata": { "name": name, "labels": { "agents.x-k8s.io/warm-pool-sandbox": pool } },
        "spec": { "podTemplate": template["spec"]["podTemplate"] },
    });
    let at = key("sandboxes", namespace, &name);
    if let Some(sandbox) = store.add(&at, sandbox) {
        created(store, &at, &sandbox);
    }
}

/// Gives an unused sandbox to a claim, and makes another one.
fn adopt(store: &Arc<Store>, at: &Key, claim: &Value) {
    let pool = claim["spec"]["warmPoolRef"]["name"].as_str().unwrap();
    let unused = store
        .list("sandboxes", Some(&at.1))
        .into_iter()
        .find(|sandbox| sandbox["metadata"]["labels"]["agents.x-k8s.io/warm-pool-sandbox"] == pool);
    let name = unused.unwrap()["metadata"]["name"].as_str().unwrap().to_owned();
    store.change(&key("sandboxes", &at.1, &name), |sandbox| {
        sandbox["metadata"]["labels"] = json!({});
    });
    let own = &claim["spec"]["additionalPodMetadata"];
    store.change(&key("pods", &at.1, &name), |pod| {
        for kind in ["labels", "annotations"] {
            for (name, value) in own[kind].as_object().unwrap() {
                pod["metadata"][kind][name.as_str()] = value.clone();
            }
        }
    });
    store.change(at, |claim| claim["status"]["sandbox"]["name"] = json!(name));
    add_unused(store, &at.1, pool);
}
