//! A record as an event of the Open Cybersecurity Schema Framework: API Activity (class 6003) of
//! version 1.3.

use serde_json::{Map, Value, json};

use crate::entry::{Decision, Entry};
use crate::line::Record;

const VERSION: &str = "1.3.0";
const CATEGORY: u64 = 6;
const CLASS: u64 = 6003;

/// What an operation does to its object, by the first words of its name: create 1, read 2, update 3,
/// delete 4, other 99.
fn activity(operation: &str) -> (u64, &'static str) {
    let name = operation.rsplit('.').next().unwrap_or(operation);
    let has = |starts: &[&str]| starts.iter().any(|start| name.starts_with(start));
    if has(&["create", "restore", "snapshot", "make", "pull", "import", "propose", "collect", "up"])
    {
        (1, "Create")
    } else if has(&["kill", "remove", "reject", "revoke", "delete", "rm", "prune"]) {
        (4, "Delete")
    } else if has(&["read", "get", "list", "show"]) {
        (2, "Read")
    } else if has(&[
        "write", "change", "set", "apply", "move", "replace", "renew", "start", "stop", "pause",
        "resume", "send", "undo", "trust",
    ]) {
        (3, "Update")
    } else {
        (99, "Other")
    }
}

/// The record as an event.
pub fn api_activity(record: &Record) -> Value {
    let Entry { id, time, operation, phase, decision, actor, details, reason } = &record.entry;
    let (activity_id, activity_name) = activity(operation);
    let (status_id, status) = match decision {
        Decision::Requested => (0, "Unknown"),
        Decision::Allowed => (1, "Success"),
        Decision::Refused | Decision::Failed => (2, "Failure"),
    };
    let (action_id, action) = match decision {
        Decision::Refused => (2, "Denied"),
        Decision::Requested => (0, "Unknown"),
        Decision::Allowed | Decision::Failed => (1, "Allowed"),
    };
    let (severity_id, severity) = match decision {
        Decision::Refused => (3, "Medium"),
        Decision::Failed => (2, "Low"),
        Decision::Requested | Decision::Allowed => (1, "Informational"),
    };
    let resources: Vec<_> = details
        .iter()
        .filter_map(|(kind, value)| Some(json!({ "type": kind, "name": value.as_str()? })))
        .collect();
    let mut user = Map::new();
    if let Some(owner) = &actor.owner {
        user.insert("name".to_owned(), json!(owner));
    }
    if let Some(uid) = actor.uid {
        user.insert("uid".to_owned(), json!(uid.to_string()));
    }
    if let Some(key) = &actor.key_id {
        user.insert("credential_uid".to_owned(), json!(key));
    }
    let address = actor.address.as_deref().and_then(|text| text.parse().ok());
    let endpoint = address.map_or_else(
        || json!({ "name": "localhost" }),
        |address: std::net::SocketAddr| json!({ "ip": address.ip(), "port": address.port() }),
    );
    let mut event = json!({
        "category_uid": CATEGORY,
        "category_name": "Application Activity",
        "class_uid": CLASS,
        "class_name": "API Activity",
        "type_uid": CLASS * 100 + activity_id,
        "type_name": format!("API Activity: {activity_name}"),
        "activity_id": activity_id,
        "activity_name": activity_name,
        "time": time.as_ms(),
        "severity_id": severity_id,
        "severity": severity,
        "status_id": status_id,
        "status": status,
        "action_id": action_id,
        "action": action,
        "actor": { "user": user },
        "api": {
            "operation": operation,
            "service": { "name": "stockade" },
            "request": { "uid": actor.request_id.as_ref().unwrap_or(id) },
        },
        "resources": resources,
        "src_endpoint": endpoint,
        "metadata": {
            "version": VERSION,
            "uid": id,
            "sequence": record.seq,
            "profiles": ["security_control"],
            "product": { "name": "Stockade", "vendor_name": "Stockade", "version": env!("CARGO_PKG_VERSION") },
        },
        "unmapped": {
            "chain": record.chain,
            "hash": record.hash,
            "phase": phase,
            "decision": decision,
            "door": actor.door,
            "details": details,
        },
    });
    if let Some(reason) = reason {
        event["status_code"] = json!(reason.code);
        event["status_detail"] = json!(reason.message);
    }
    event
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::{Actor, Reason};
    use stockade_core::Door;

    #[test]
    fn a_refusal_is_a_failed_and_denied_activity() {
        let reason = Reason { code: "FORBIDDEN".to_owned(), message: "no".to_owned() };
        let entry = Entry::new("kill", Actor::this_user(Door::Http)).with("sandboxId", "box");
        let entry = entry.ended(Decision::Refused, Some(reason));
        let record = Record { chain: "c".to_owned(), seq: 7, hash: "h".to_owned(), entry };
        let event = api_activity(&record);
        assert_eq!(event["type_uid"], 600_304);
        assert_eq!(event["status_id"], 2);
        assert_eq!(event["action_id"], 2);
        assert_eq!(event["status_code"], "FORBIDDEN");
        assert_eq!(event["metadata"]["sequence"], 7);
        // The attributes that the class requires.
        for name in [
            "actor",
            "api",
            "src_endpoint",
            "activity_id",
            "category_uid",
            "class_uid",
            "metadata",
            "severity_id",
            "time",
            "type_uid",
        ] {
            assert!(!event[name].is_null(), "{name}");
        }
    }
}
