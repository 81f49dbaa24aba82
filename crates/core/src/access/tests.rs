//! The rules as a whole, compared with an independent implementation of the same sentences.

use super::*;

fn rule(effect: Effect, level: Level, path: &str) -> Rule {
    Rule { effect, level, path: path.to_owned() }
}

fn rules(list: &[(Effect, Level, &str)]) -> Rules {
    Rules::new(list.iter().map(|(effect, level, path)| rule(*effect, *level, path)).collect())
        .unwrap()
}

use Effect::{Allow, Deny};
use Level::{Execute, Read, ReadWrite};

#[test]
fn levels_include_reading_and_not_each_other() {
    let included: Vec<_> = Level::ALL
        .iter()
        .map(|level| Level::ALL.iter().map(|other| level.includes(*other)).collect::<Vec<_>>())
        .collect();
    assert_eq!(included, [[true, false, false], [true, true, false], [true, false, true]]);
}

/// Each rule alone, together with an allow of everything: row is the denied level, column the
/// request.
#[test]
fn a_deny_blocks_what_includes_it() {
    for (denied, open) in [
        (Read, [false, false, false]),
        (ReadWrite, [true, false, true]),
        (Execute, [true, true, false]),
    ] {
        let rules = rules(&[(Allow, ReadWrite, "/"), (Allow, Execute, "/"), (Deny, denied, "/d")]);
        for (level, open) in Level::ALL.iter().zip(open) {
            assert_eq!(rules.allows(*level, b"/d/x").is_ok(), open, "{denied} {level}");
            assert!(rules.allows(*level, b"/dd").is_ok());
        }
    }
}

#[test]
fn all_small_sets_of_rules_agree_with_the_sentences() {
    let mut single = Vec::new();
    for effect in Effect::ALL {
        for level in Level::ALL {
            single.extend(["/", "/a", "/a/b"].map(|path| (*effect, *level, path)));
        }
    }
    let says = |list: &[(Effect, Level, &str)], level: Level, path: &str| {
        let holds = |top: &str| top == "/" || path == top || path.starts_with(&format!("{top}/"));
        let some = |effect, matches: &dyn Fn(Level) -> bool| {
            list.iter().any(|(e, l, top)| *e == effect && matches(*l) && holds(top))
        };
        let denied = some(Deny, &|denied| level == denied || denied == Read);
        let allowed = some(Allow, &|granted| level == granted || level == Read);
        list.is_empty() || (allowed && !denied)
    };
    for first in &single {
        for second in &single {
            let list = [*first, *second];
            for length in 0..=2 {
                let (list, checked) = (&list[..length], rules(&list[..length]));
                for level in Level::ALL {
                    for path in ["/", "/a", "/a/b", "/a/b/c", "/ab", "/c"] {
                        let allowed = checked.allows(*level, path.as_bytes()).is_ok();
                        assert_eq!(allowed, says(list, *level, path), "{list:?} {level} {path}");
                    }
                }
            }
        }
    }
}

#[test]
fn a_tree_is_refused_for_what_lies_in_it() {
    let rules = rules(&[
        (Allow, ReadWrite, "/w"),
        (Allow, Execute, "/w"),
        (Deny, Read, "/w/keep"),
        (Deny, ReadWrite, "/w/a/vendor"),
        (Deny, Execute, "/w/dl"),
    ]);
    let denied = |level, path: &str| Error::Denied { level, path: path.to_owned() };
    assert_eq!(rules.allows_tree(ReadWrite, b"/w"), Err(denied(ReadWrite, "/w/keep")));
    assert_eq!(rules.allows_tree(ReadWrite, b"/w/a"), Err(denied(ReadWrite, "/w/a/vendor")));
    assert_eq!(rules.allows_tree(Read, b"/w/a"), Ok(()));
    assert_eq!(rules.allows_tree(ReadWrite, b"/w/dl"), Ok(()));
    assert_eq!(rules.allows_tree(ReadWrite, b"/other"), Err(denied(ReadWrite, "/other")));
    assert_eq!(rules.denies_below(Read, b"/w"), Ok(Some("/w/keep")));
    assert_eq!(rules.denies_below(Read, b"/w/keep"), Ok(None), "only what is below");
    assert_eq!(rules.denies_below(Read, b"/w/kee"), Ok(None));
}

#[test]
fn a_move_takes_nothing_away_from_its_rule() {
    let rules = rules(&[
        (Allow, ReadWrite, "/w"),
        (Allow, Read, "/ro"),
        (Deny, Execute, "/w/in/dl"),
        (Deny, Read, "/w/x/secret"),
    ]);
    let path_denied = |from: &str, to: &str| match rules.allows_move(from.as_bytes(), to.as_bytes())
    {
        Err(Error::Denied { path, .. }) => path,
        other => format!("{other:?}"),
    };
    assert_eq!(rules.allows_move(b"/w/a", b"/w/b"), Ok(()));
    assert_eq!(path_denied("/ro/a", "/w/a"), "/ro/a");
    assert_eq!(path_denied("/w/a", "/ro/a"), "/ro/a");
    assert_eq!(path_denied("/w/in", "/w/out"), "/w/in/dl");
    assert_eq!(path_denied("/w/a", "/w/x"), "/w/x/secret");
    assert_eq!(path_denied("/w/x/secret/k", "/w/k"), "/w/x/secret/k");
}

#[test]
fn what_is_denied_outright_is_told_from_what_is_not_allowed() {
    let rules = rules(&[(Allow, Read, "/w"), (Deny, ReadWrite, "/w/a")]);
    for (level, path, denied) in [
        (ReadWrite, "/w/a/b", true),
        (Read, "/w/a", false),
        (ReadWrite, "/w", false),
        (Read, "/other", false),
    ] {
        assert_eq!(rules.denies(level, path.as_bytes()), Ok(denied), "{level} {path}");
    }
}

#[test]
fn processes_may_use_the_system_unless_a_rule_names_it() {
    let may =
        |rules: &Rules, level, path: &str| rules.allows_processes(level, path.as_bytes()).is_ok();
    let plain = rules(&[(Allow, ReadWrite, "/w"), (Allow, ReadWrite, "/usr/local/mine")]);
    assert!(may(&plain, Execute, "/usr/bin/env") && may(&plain, Read, "/etc/passwd"));
    assert!(!may(&plain, ReadWrite, "/usr/bin/env") && !may(&plain, Execute, "/usrx"));
    assert!(may(&plain, ReadWrite, "/w/a") && !may(&plain, Execute, "/w/a"));
    let named = rules(&[(Allow, Read, "/usr"), (Deny, Execute, "/bin/sh"), (Deny, Read, "/etc")]);
    assert!(!may(&named, Execute, "/usr/bin/env") && may(&named, Read, "/usr/bin/env"));
    assert!(!may(&named, Execute, "/bin/sh") && may(&named, Read, "/bin/sh"));
    assert!(may(&named, Execute, "/bin/ls") && !may(&named, Read, "/etc/passwd"));
    assert!(!may(&rules(&[(Deny, Execute, "/")]), Execute, "/bin/ls"));
    assert!(may(&Rules::default(), ReadWrite, "/anything"));
}

#[test]
fn bad_rules_are_refused_with_their_index() {
    let good = r#"{"effect":"allow","level":"read","path":"/w"}"#;
    for bad in [
        r#"{"effect":"permit","level":"read","path":"/w"}"#,
        r#"{"effect":"allow","level":"write","path":"/w"}"#,
        r#"{"effect":"allow","level":"read","path":""}"#,
        r#"{"effect":"allow","level":"read","path":"w"}"#,
        r#"{"effect":"allow","level":"read","path":"/w/../x"}"#,
        r#"{"effect":"allow","level":"read","path":"/w\u0000"}"#,
        r#"{"effect":"allow","level":"read","path":"/w","until":"noon"}"#,
        r#"{"effect":"allow","level":"read"}"#,
        r#"{"effect":"allow","level":"read","path":7}"#,
        "null",
        "[]",
    ] {
        let text = format!("[{good},{bad},{bad}]");
        assert_eq!(Rules::from_json(&text).unwrap_err().index, 1, "{bad}");
        let error = serde_json::from_str::<Rules>(&text).unwrap_err().to_string();
        assert!(error.starts_with("rule 1: "), "{error}");
    }
    for text in ["", "{}", "null", "7", "[1"] {
        assert!(Rules::from_json(text).is_err(), "{text}");
    }
    let many = vec![rule(Allow, Read, "/w"); MAX_RULES + 1];
    assert!(Rules::new(many[1..].to_vec()).is_ok());
    assert_eq!(Rules::new(many).unwrap_err().index, MAX_RULES);
}

#[test]
fn unreadable_stored_rules_deny_everything_and_are_not_stored_again() {
    for text in ["", "not JSON", "{}", r#"{"version":2}"#, "null", r#"[{"effect":"allow"}]"#] {
        let rules = Rules::from_stored(text);
        for level in Level::ALL {
            assert!(matches!(rules.allows(*level, b"/"), Err(Error::Unreadable(_))), "{text}");
        }
        assert!(!rules.is_empty());
        assert!(rules.denies_below(Read, b"/").is_err());
        assert!(serde_json::to_string(&rules).is_err());
    }
    assert!(Rules::from_stored("[]").is_empty());
}

#[test]
fn rules_come_back_from_json_in_normal_form() {
    let rules = rules(&[(Allow, ReadWrite, "//w/./x/"), (Deny, Read, "/")]);
    let text = serde_json::to_string(&rules).unwrap();
    assert_eq!(
        text,
        r#"[{"effect":"allow","level":"readwrite","path":"/w/x"},{"effect":"deny","level":"read","path":"/"}]"#
    );
    assert_eq!(serde_json::from_str::<Rules>(&text).unwrap(), rules);
    assert_eq!(serde_json::to_string(&Rules::default()).unwrap(), "[]");
}
