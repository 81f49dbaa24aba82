//! Git itself decides what a configuration file says.

use std::process::Command;

use super::*;

const CASES: [&str; 45] = [
    "[core]\n\tignorecase = \\true\n",
    "[core]\r\n\tignorecase = tr\\\r\nue\r\n",
    "[core]\n\t9 = 1\n\tignorecase = true\n",
    "",
    "[core]\n\tignorecase = true\n",
    "[core]\n\tignorecase = false\n",
    "[CORE] IgnoreCase=Yes # words",
    "[core]\n\tignorecase\n",
    "[core]\n\tignorecase ; alone\n",
    "[core]\n\tignorecase =\n",
    "[core]\r\n\tignorecase = on\r\n",
    "[core]\n\tignorecase = 1\n[core]\n\tignorecase = 0\n",
    "[core]\n\tignorecase = 2k\n",
    "[core \"x\"]\n\tignorecase = true\n",
    "[core \"]\"]\n\tignorecase = true\n[core]\n\tignorecase = true\n",
    "[cor]\n\tignorecase = true\n",
    "[core]\n\tbare = false\n\tignorecase = \"true\"\n",
    "[core]\n\tignorecase = tr\\\nue\n",
    "[core]\n\tignorecase = tr\"u\"e   \n",
    "[core]\n\tignorecase = \"true \"\n",
    "# [core]\n; ignorecase = true\n",
    "[core]\n# ignorecase = true\n",
    "[core]\n\tignorecase = true # \\\n\tignorecase = false\n",
    "[user]\n\tname = \"[core] ignorecase = true\"\n",
    "[user]\n\tname = a\\\n[core]\n\tignorecase = true\n",
    "[core]\n\tignorecase = -1\n",
    "\u{feff}[core]\n\tignorecase = true",
    "[core]\n\tignorecase = off\n\tignorecase = TRUE\n",
    "[core]ignorecase=true",
    "[core]\n\thooksPath = tools/git\n",
    "[core]\n\thooksPath = \"tools/g it\" ; words\n",
    "[core]\n\thooksPath = tools\\\\git\n",
    "[core]\n\thooksPath = \\\n  tools/git\n",
    "[core]\n\thooksPath = a \\\n  b\n",
    "[core]\n\thooksPath = a \"\"  \n",
    "[core]\n\thooksPath = a\\tb\\nc\n",
    "[Diff \"A b\\\"c\\\\d\\e\"] TextConv = x y\n",
    "[diff.OldForm]\n\tcommand = x\n",
    "[diff  \"two blanks\"]\ncommand=x\n",
    "[diff\t\"tab\"]\ncommand=x\n",
    "[diff \"x\" ]\ncommand=x\n",
    "[diff x]\ncommand=x\n",
    "[alias]\n\tst = !sh -c 'x; y'\n",
    "[alias]\n\tst = \"!sh -c 'x; y # z'\"\n",
    "x = 1\n[core]\n\tignorecase = true\n",
];

/// What `git config` prints for a file, or `None` where git is not installed.
fn of_git(content: &str, arguments: &[&str]) -> Option<Vec<u8>> {
    let scratch = tempfile::tempdir().unwrap();
    std::fs::write(scratch.path().join("config"), content).unwrap();
    let output = Command::new("git")
        .args(["config", "--file", "config"])
        .args(arguments)
        .current_dir(scratch.path())
        .output();
    let Ok(output) = output else {
        crate::testing::skipped("git is not installed");
        return None;
    };
    Some(if output.status.success() { output.stdout } else { Vec::new() })
}

#[test]
fn switches_are_read_as_git_reads_them() {
    for case in CASES {
        let Some(printed) = of_git(case, &["--bool", "core.ignorecase"]) else { return };
        let is_set_in_git = printed == b"true\n";
        assert_eq!(is_set(case.as_bytes(), b"core", b"ignorecase"), is_set_in_git, "{case:?}");
    }
}

#[test]
fn variables_are_read_as_git_reads_them() {
    for case in CASES {
        let Some(printed) = of_git(case, &["--list", "-z"]) else { return };
        if printed.is_empty() {
            // Git refuses the whole file.
            continue;
        }
        let mut ours = Vec::new();
        for Variable { section, subsection, name, value } in parse(case.as_bytes()) {
            ours.extend(section);
            if let Some(subsection) = subsection {
                ours.push(b'.');
                ours.extend(subsection);
            }
            if !ours.is_empty() && ours.last() != Some(&0) {
                ours.push(b'.');
            }
            ours.extend(name);
            if let Some(value) = value {
                ours.push(b'\n');
                ours.extend(value);
            }
            ours.push(0);
        }
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert_eq!(text(&ours), text(&printed), "{case:?}");
    }
}

#[test]
fn damage_never_panics() {
    let mut random = crate::testing::Random::new(3);
    for _ in 0..20_000 {
        let mut case = CASES[random.below(CASES.len())].as_bytes().to_vec();
        for _ in 0..random.below(4) {
            if !case.is_empty() {
                let at = random.below(case.len());
                case[at] = b"[]\"\\=#;\n a"[random.below(10)];
            }
        }
        case.truncate(random.below(case.len() + 1));
        let _ = parse(&case);
    }
}
