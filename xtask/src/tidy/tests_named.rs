//! Finds the tests of a source by their names: functions marked `#[test]`, those that the macros of
//! the end-to-end tests generate, for each kind of user, from their lists, and the cases of the
//! suite that every runtime must pass.

use super::rust_text::code_only;

/// The macros that generate tests, each with the character that ends an item in its list.
const MACROS: &[(&str, char)] = &[
    ("as_root_and_as_user!", ','),
    ("attacks!", ','),
    ("calls_are_refused!", ';'),
    ("faults!", ','),
];

/// The macro to which the suite's macro passes its list.
const SUITE: &str = "$($then)+!";

/// The names of all tests in a source.
pub(super) fn tests(source: &str) -> Vec<String> {
    let code = code_only(source);
    let mut names: Vec<String> = marked(&code).collect();
    for (name, end) in MACROS {
        for rest in code.split(name).skip(1) {
            names.extend(list(rest).split(*end).filter_map(item_name));
        }
    }
    names.extend(cases(&code));
    names
}

/// The cases in the suite's list, as `GROUP::NAME`: groups such as `name { case [needs]; … }`.
fn cases(code: &str) -> Vec<String> {
    let lists = code.split(SUITE).skip(1).map(list);
    let groups = lists.flat_map(|list| list.split('}')).filter_map(|group| group.split_once('{'));
    let cases = groups.flat_map(|(before, items)| {
        let group = before.split_whitespace().next_back().unwrap_or_default();
        let names = items.split(';').filter_map(|item| item_name(item.rsplit_once('[')?.0));
        names.map(move |name| format!("{group}::{name}"))
    });
    cases.collect()
}

/// Whether a source has a test of that name.
pub(super) fn has_test(source: &str, name: &str) -> bool {
    tests(source).iter().any(|test| test == name)
}

fn marked(code: &str) -> impl Iterator<Item = String> {
    code.split("#[test]").skip(1).filter_map(|rest| {
        let (_, rest) = rest.split_once("fn ")?;
        rest.split('(').next().map(str::to_owned)
    })
}

/// The content of the next pair of brackets.
fn list(code: &str) -> &str {
    let mut depth = 0_usize;
    for (at, c) in code.char_indices() {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' if depth == 1 => return code[..at].trim_start().get(1..).unwrap_or(""),
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    ""
}

/// The name that an item such as `name`, `#[attribute] name` or `name: what to do` gives.
fn item_name(item: &str) -> Option<String> {
    let name = item.split(':').next()?.rsplit(']').next()?.trim();
    let is_name = !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || c == '_');
    is_name.then(|| name.to_owned())
}

#[cfg(test)]
mod checks {
    use super::{has_test, tests};

    #[test]
    fn tests_are_found_by_mark_and_by_list() {
        let source = "
            macro_rules! calls_are_refused { ($($name:ident),+) => {
                as_root_and_as_user![$($name),+];
            } }
            as_root_and_as_user! { listed, #[ignore = \"slow\"] slow }
            calls_are_refused! {
                bpf: Root [\"bpf\"]; // CVE, of all things
                mount: Anyone { all }[\"mount\", \"umount2\"];
            }
            fn listed(world: &World) {}
            fn slow(world: &World) {}
            #[test]
            #[cfg(all())]
            fn marked() {}
            fn helper() {}
            // #[test]
            fn commented() {}
        ";
        assert_eq!(tests(source), ["marked", "listed", "slow", "bpf", "mount"]);
        assert!(has_test(source, "slow") && !has_test(source, "slo"));
    }

    #[test]
    fn the_cases_of_the_suite_are_found_with_their_groups() {
        let source = "
            macro_rules! the_list { (($($then:tt)+) $context:tt) => {
                $($then)+! { $context
                    one {
                        first [];
                        #[ignore = \"slow: it takes long\"]
                        second [Shell, Can(Users)];
                    }
                    other { first [Shell]; } // last [];
                }
            }; }
        ";
        assert_eq!(tests(source), ["one::first", "one::second", "other::first"]);
    }
}
