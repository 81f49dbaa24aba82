//! The environment variables that `--env` and `--env-file` set, in the same way for every command.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io::Read as _;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::Path;

use stockade_core::{Bytes, Code, Problem};

use crate::args::sandbox_flags::VariableFlags;

/// The largest file of variables.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// The variables that the flags set; `--env` replaces what a file sets, and the last value of a name
/// wins.
///
/// # Errors
/// [`Code::InvalidInput`] for an invalid assignment, or a file that cannot be read.
pub(crate) fn read(flags: &VariableFlags) -> Result<BTreeMap<String, Bytes>, Problem> {
    read_from(flags, |name| std::env::var_os(name))
}

/// The same with the variables of the caller that `own` returns.
fn read_from(
    flags: &VariableFlags,
    own: impl Fn(&OsStr) -> Option<OsString>,
) -> Result<BTreeMap<String, Bytes>, Problem> {
    let mut variables = BTreeMap::new();
    for assignment in &flags.profile {
        set(&mut variables, assignment.as_bytes(), &own).map_err(|what| {
            Problem::new(Code::InvalidInput, format!("a variable of the profile {what}"))
        })?;
    }
    for file in &flags.env_file {
        for (number, line) in lines(file)?.iter().enumerate() {
            let number = number + 1;
            let invalid = |what: &str| {
                let message = format!("line {number} of {} {what}", file.display());
                // The line may contain a secret, so it is not shown.
                Problem::new(Code::InvalidInput, message)
                    .because("each line is NAME=VALUE, NAME, or a comment that starts with `#`")
            };
            let line = line.trim_ascii_start();
            if line.is_empty() || line.starts_with(b"#") {
                continue;
            }
            let name = line.split(|byte| *byte == b'=').next().unwrap_or_default();
            // Such as `export NAME=VALUE`, which is for a shell.
            if name.iter().any(u8::is_ascii_whitespace) {
                return Err(invalid("has a name with white space"));
            }
            set(&mut variables, line, &own).map_err(invalid)?;
        }
    }
    for assignment in &flags.env {
        set(&mut variables, assignment.as_bytes(), &own).map_err(|what| {
            // Only the name: the value may be a secret.
            let name = assignment.as_bytes().split(|byte| *byte == b'=').next().unwrap_or_default();
            let message = format!("`--env {}` {what}", String::from_utf8_lossy(name));
            Problem::new(Code::InvalidInput, message)
                .because("expected NAME=VALUE, or NAME to pass on this program's own value")
        })?;
    }
    Ok(variables)
}

/// Adds the variable of `NAME=VALUE`, or of `NAME` if the caller has it.
fn set(
    variables: &mut BTreeMap<String, Bytes>,
    assignment: &[u8],
    own: &impl Fn(&OsStr) -> Option<OsString>,
) -> Result<(), &'static str> {
    let mut parts = assignment.splitn(2, |byte| *byte == b'=');
    let name = parts.next().unwrap_or_default();
    let value = parts.next();
    if name.is_empty() {
        return Err("has no name");
    }
    if assignment.contains(&0) {
        return Err("contains a NUL byte");
    }
    let name = std::str::from_utf8(name).map_err(|_| "has a name that is not UTF-8")?;
    let value = match value {
        Some(value) => Some(value.to_vec()),
        None => own(OsStr::new(name)).map(OsString::into_vec),
    };
    // As in the container engines, a variable that the caller does not have is not set.
    if let Some(value) = value {
        variables.insert(name.to_owned(), value.into());
    }
    Ok(())
}

/// The lines of a file, without line ends and a byte order mark.
fn lines(file: &Path) -> Result<Vec<Vec<u8>>, Problem> {
    let failed = |why: String| {
        let message = format!("cannot read the variables in {}", file.display());
        Problem::new(Code::InvalidInput, message).because(why)
    };
    let mut content = Vec::new();
    let opened = std::fs::File::open(file).map_err(|error| failed(error.to_string()))?;
    opened
        .take(MAX_FILE_BYTES + 1)
        .read_to_end(&mut content)
        .map_err(|error| failed(error.to_string()))?;
    if content.len() as u64 > MAX_FILE_BYTES {
        return Err(failed(format!("it is larger than {MAX_FILE_BYTES} bytes")));
    }
    let content = content.strip_prefix("\u{feff}".as_bytes()).unwrap_or(&content);
    let line = |line: &[u8]| line.strip_suffix(b"\r").unwrap_or(line).to_vec();
    Ok(content.split(|byte| *byte == b'\n').map(line).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_flags(env: &[&[u8]], file: Option<&[u8]>) -> Result<Vec<(String, Vec<u8>)>, Problem> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("variables");
        std::fs::write(&path, file.unwrap_or_default()).unwrap();
        let flags = VariableFlags {
            env: env.iter().map(|word| OsStr::from_bytes(word).to_owned()).collect(),
            env_file: file.map(|_| path).into_iter().collect(),
            profile: vec!["A=profile".into(), "P=profile".into()],
        };
        let own = |name: &OsStr| match name.to_str() {
            Some("MINE") => Some("passed on".into()),
            Some("BYTES") => Some(OsString::from_vec(vec![0xff])),
            _ => None,
        };
        let read = read_from(&flags, own)?;
        Ok(read.into_iter().map(|(name, value)| (name, value.0)).collect())
    }

    fn pairs(expected: &[(&str, &[u8])]) -> Vec<(String, Vec<u8>)> {
        expected.iter().map(|(name, value)| ((*name).to_owned(), value.to_vec())).collect()
    }

    #[test]
    fn a_variable_is_set_or_passed_on() {
        let read = read_flags(&[b"A=b=c", b"EMPTY=", b"MINE", b"BYTES", b"OTHER", b"V=\xfe"], None);
        let expected: [(&str, &[u8]); 6] = [
            ("A", b"b=c"),
            ("BYTES", b"\xff"),
            ("EMPTY", b""),
            ("MINE", b"passed on"),
            ("P", b"profile"),
            ("V", b"\xfe"),
        ];
        assert_eq!(read.unwrap(), pairs(&expected));
    }

    #[test]
    fn a_file_lists_variables_and_flags_replace_them() {
        let file =
            b"\xef\xbb\xbf# a comment\n\nA=file\r\nB=\"as it is\" # too\n  C= x \nMINE\nNOT_SET\n";
        let read = read_flags(&[b"A=flag"], Some(file)).unwrap();
        let expected: [(&str, &[u8]); 5] = [
            ("A", b"flag"),
            ("B", b"\"as it is\" # too"),
            ("C", b" x "),
            ("MINE", b"passed on"),
            ("P", b"profile"),
        ];
        assert_eq!(read, pairs(&expected));
    }

    #[test]
    fn an_invalid_line_is_named_without_its_content() {
        let refused = |read: Result<_, Problem>| {
            let problem = read.map(|_: Vec<_>| ()).unwrap_err();
            assert_eq!(problem.code, Code::InvalidInput);
            assert!(!format!("{problem:?}").contains("secret"), "{problem:?}");
        };
        for bad in [&b"=secret"[..], b"\xff=secret", b"A=secret\0"] {
            refused(read_flags(&[bad], None));
        }
        for bad in
            [&b"=secret"[..], b"A B=secret", b"export A=secret", b"\xff=secret", b"A=secret\0"]
        {
            refused(read_flags(&[], Some(&[b"OK=1\n".as_slice(), bad].concat())));
        }
        let long = vec![b'#'; 1 << 21];
        assert!(read_flags(&[], Some(&long)).is_err());
        let missing =
            VariableFlags { env_file: vec!["/nowhere".into()], ..VariableFlags::default() };
        assert!(read(&missing).is_err());
    }
}
