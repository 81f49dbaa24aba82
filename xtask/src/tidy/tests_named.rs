//! Finds a test by its name: a function marked `#[test]`, or one that is listed in
//! `as_root_and_as_user!`, from which one test is made for each kind of user.

use super::rust_text::code_only;

/// Whether a source has a test of that name.
pub(super) fn has_test(source: &str, name: &str) -> bool {
    let code = code_only(source);
    code.contains(&format!("fn {name}(")) && (is_marked(&code, name) || is_listed(&code, name))
}

fn is_marked(code: &str, name: &str) -> bool {
    let mut marked = false;
    for line in code.lines().map(str::trim) {
        if line.starts_with("#[test]") {
            marked = true;
        } else if line.contains("fn ") {
            if marked && line.contains(&format!("fn {name}(")) {
                return true;
            }
            marked = false;
        }
    }
    false
}

fn is_listed(code: &str, name: &str) -> bool {
    code.split("as_root_and_as_user!").skip(1).any(|rest| {
        let rest = rest.trim_start();
        let list = rest.split([')', '}']).next().unwrap_or_default();
        rest.starts_with(['(', '{'])
            && list[1..].split(',').any(|item| item.split_whitespace().last() == Some(name))
    })
}

#[cfg(test)]
mod tests {
    use super::has_test;

    #[test]
    fn marked_and_listed_functions_are_tests() {
        let source = "
            as_root_and_as_user! { listed, #[ignore = \"slow\"] slow, missing }
            fn listed(world: &World) {}
            fn slow(world: &World) {}
            #[test]
            fn marked() {}
            fn helper() {}
            // #[test]
            fn commented() {}
        ";
        for (name, expected) in [
            ("listed", true),
            ("slow", true),
            ("marked", true),
            ("missing", false),
            ("helper", false),
            ("commented", false),
            ("mark", false),
        ] {
            assert_eq!(has_test(source, name), expected, "{name}");
        }
    }
}
