//! The commands of a `devcontainer.json` that run after a sandbox was created, as one script of a shell
//! inside.

use serde_json::Value;

use crate::shell::shell_word;

/// The commands, in the order in which they run. `initializeCommand` would run on the host and is
/// refused.
pub(super) const COMMANDS: [&str; 5] = [
    "onCreateCommand",
    "updateContentCommand",
    "postCreateCommand",
    "postStartCommand",
    "postAttachCommand",
];

/// One command in its three forms: a text for a shell, a list of words, or several of both by name, which
/// run at the same time.
///
/// # Errors
/// Why the form is invalid.
pub(super) fn script(name: &str, value: &Value) -> Result<String, String> {
    let parts = match value {
        Value::Object(commands) => {
            let mut lines = String::new();
            for (part, command) in commands {
                let line = words(&format!("{name}.{part}"), command)?;
                lines += &format!("( {line} ) & pids=\"$pids $!\"\n");
            }
            format!("pids=\n{lines}for pid in $pids; do wait \"$pid\" || failed=$?; done\n")
        }
        command => format!("( {} ) || failed=$?\n", words(name, command)?),
    };
    let message = shell_word(&format!("stockade: {name} failed"));
    Ok(format!(
        "failed=0\n{parts}[ \"$failed\" = 0 ] || {{ echo {message} >&2; exit \"$failed\"; }}\n"
    ))
}

/// The words of one command, quoted for a shell.
fn words(name: &str, command: &Value) -> Result<String, String> {
    match command {
        Value::String(text) => Ok(format!("exec /bin/sh -c {}", shell_word(text))),
        Value::Array(list) if !list.is_empty() => {
            let texts: Option<Vec<_>> = list.iter().map(Value::as_str).collect();
            let texts = texts.ok_or_else(|| format!("{name} is not a list of texts"))?;
            Ok(format!("exec {}", texts.into_iter().map(shell_word).collect::<Vec<_>>().join(" ")))
        }
        _ => Err(format!("{name} is neither a text nor a list of texts")),
    }
}

/// The script of several commands. Their output is standard error, and they have no input.
pub(super) fn whole(scripts: &[String]) -> String {
    let all: String = scripts.iter().map(String::as_str).collect();
    format!("{{\n{all}}} >&2 </dev/null\n")
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use serde_json::json;

    use super::*;

    fn run(commands: &[(&str, Value)]) -> (Option<i32>, String, String) {
        let scripts: Result<Vec<_>, _> =
            commands.iter().map(|(name, value)| script(name, value)).collect();
        let text = whole(&scripts.unwrap()) + "echo end\n";
        let output = Command::new("/bin/sh").args(["-c", &text]).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    }

    #[test]
    fn each_form_runs_and_says_nothing_on_standard_output() {
        let (code, stdout, stderr) = run(&[
            ("onCreateCommand", json!("echo one; echo \"$((1 + 1))\"")),
            ("postCreateCommand", json!(["echo", "three  $HOME", "it's"])),
            ("postStartCommand", json!({ "a": "echo four", "b": ["echo", "five"] })),
        ]);
        assert_eq!((code, stdout.as_str()), (Some(0), "end\n"));
        assert!(stderr.starts_with("one\n2\nthree  $HOME it's\n"), "{stderr}");
        assert!(stderr.contains("four\n") && stderr.contains("five\n"), "{stderr}");
    }

    #[test]
    fn the_first_that_fails_is_the_last_that_runs() {
        for failing in [json!("exit 7"), json!({ "a": "exit 7", "b": "true" })] {
            let (code, stdout, stderr) =
                run(&[("postCreateCommand", failing), ("postStartCommand", json!("echo more"))]);
            assert_eq!((code, stdout.as_str()), (Some(7), ""));
            assert_eq!(stderr, "stockade: postCreateCommand failed\n");
        }
    }

    #[test]
    fn other_forms_are_refused() {
        for bad in [json!(1), json!([]), json!(["a", 1]), json!({ "a": { "b": "c" } }), json!(null)]
        {
            assert!(script("postCreateCommand", &bad).is_err(), "{bad}");
        }
    }
}
