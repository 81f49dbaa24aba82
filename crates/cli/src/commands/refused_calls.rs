//! The system calls that programs of a sandbox made and that were refused, as a line for users.

use stockade_jail::seccomp::{depends_on_arguments, is_tried};

/// How many names a line has at most.
const MAX_LISTED: usize = 12;

/// The line for these names; `None` if there is nothing to say. After a success nothing is said of
/// calls that many programs only try: they have worked without.
pub(crate) fn note<T: AsRef<str>>(names: &[T], succeeded: bool) -> Option<String> {
    let names = names.iter().map(AsRef::as_ref);
    // The names come from a table of Stockade, but in part through other processes.
    let is_name = |name: &&str| {
        name.len() <= 64 && name.bytes().all(|byte| byte == b'_' || byte.is_ascii_alphanumeric())
    };
    let names: Vec<_> = names.filter(is_name).collect();
    if names.is_empty() || (succeeded && names.iter().all(|name| is_tried(name))) {
        return None;
    }
    let told = |name: &&str| match depends_on_arguments(name) {
        true => format!("{name} (with its arguments)"),
        false => (*name).to_owned(),
    };
    let listed: Vec<_> = names.iter().take(MAX_LISTED).map(told).collect();
    let more = match names.len().saturating_sub(MAX_LISTED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    Some(format!(
        "note: programs made system calls that sandboxes refuse: {}{more}; `stockade explain SYSTEM_CALLS` says why",
        listed.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_names_each_call_once_and_is_bounded() {
        assert_eq!(note::<&str>(&[], false), None);
        let line = note(&["mount", "clone"], true).unwrap();
        assert!(line.contains(": mount, clone (with its arguments); "), "{line}");
        let many: Vec<_> = (0..40).map(|number| format!("call_{number}")).collect();
        let line = note(&many, false).unwrap();
        assert!(line.contains("call_11 and 28 more") && !line.contains("call_12"), "{line}");
    }

    #[test]
    fn what_programs_only_try_is_told_after_a_failure() {
        assert_eq!(note(&["io_uring_setup"], true), None);
        assert!(note(&["io_uring_setup"], false).is_some());
        let both = note(&["keyctl", "io_uring_setup"], true).unwrap();
        assert!(both.contains("keyctl, io_uring_setup"), "{both}");
    }

    #[test]
    fn nothing_but_names_is_printed() {
        assert_eq!(note(&["\u{1b}[2J", "a b", "mount\n"], false), None);
    }
}
