//! The system call filter of a container in the engine's form, made from the same rules as the one
//! that init puts on itself and on every command.
//!
//! The engine's filter decides by the call alone. What depends on an argument, init's own filter
//! decides; both are in force, and the stricter one wins.

use serde_json::json;
use stockade_jail::seccomp::{possible, refused};

/// The profile, as the text that the engine takes.
pub(crate) fn profile() -> String {
    let mut by_errno = std::collections::BTreeMap::<i32, Vec<&str>>::new();
    for (name, errno) in refused() {
        by_errno.entry(errno).or_default().push(name);
    }
    let possible: Vec<_> = possible().collect();
    let allowed = json!({"names": possible, "action": "SCMP_ACT_ALLOW"});
    let refused = by_errno.into_iter().map(
        |(errno, names)| json!({"names": names, "action": "SCMP_ACT_ERRNO", "errnoRet": errno}),
    );
    let calls: Vec<_> = std::iter::once(allowed).chain(refused).collect();
    json!({
        "defaultAction": "SCMP_ACT_ERRNO",
        "defaultErrnoRet": 38,
        "architectures": ["SCMP_ARCH_X86_64"],
        "syscalls": calls,
    })
    .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_has_one_rule_and_what_a_command_may_not_do_is_refused() {
        let profile: serde_json::Value = serde_json::from_str(&profile()).unwrap();
        let calls = profile["syscalls"].as_array().unwrap();
        let names = |of: &serde_json::Value| -> Vec<String> {
            serde_json::from_value(of["names"].clone()).unwrap()
        };
        let mut all: Vec<String> = calls.iter().flat_map(names).collect();
        let count = all.len();
        all.sort();
        all.dedup();
        assert_eq!((all.len(), count), (383, 383));
        let action = |call: &str| {
            let rule = calls.iter().find(|rule| names(rule).iter().any(|name| name == call));
            let rule = rule.unwrap();
            (rule["action"].as_str().unwrap().to_owned(), rule["errnoRet"].as_i64())
        };
        let errno = |errno| ("SCMP_ACT_ERRNO".to_owned(), Some(errno));
        assert_eq!(action("read"), ("SCMP_ACT_ALLOW".to_owned(), None));
        assert_eq!(action("mount"), errno(1));
        assert_eq!(action("clone3"), errno(38));
        assert_eq!(action("name_to_handle_at"), errno(95));
    }
}
