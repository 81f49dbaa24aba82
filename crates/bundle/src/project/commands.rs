//! The paths that a command for a shell can mean. The command is not executed, so more paths are
//! returned than it means.

/// The most paths of one command.
const MAX_PATHS: usize = 1000;

/// The words of a command that can be paths, each with the ends of words such as `NAME=PATH`, below
/// the directories that the command changes to, and as a module of Python.
pub(super) fn paths(command: &[u8]) -> Vec<Vec<u8>> {
    let words = words(command);
    let mut paths: Vec<Vec<u8>> = Vec::new();
    let mut directories: Vec<Vec<u8>> = Vec::new();
    for (at, word) in words.iter().enumerate() {
        let before = at.checked_sub(1).and_then(|before| words.get(before)).map(Vec::as_slice);
        let mut means = ends(word);
        if before == Some(b"-m")
            && word.iter().all(|b| b.is_ascii_alphanumeric() || b"._".contains(b))
        {
            let module: Vec<u8> = word.iter().map(|b| if *b == b'.' { b'/' } else { *b }).collect();
            means.push([&module, &b".py"[..]].concat());
            means.push(module);
        }
        // `sh -c 'a command'` and its like.
        if word.iter().any(|b| b" \t\n;|&".contains(b)) && word.len() < command.len() {
            means.extend(self::paths(word));
        }
        for mean in means {
            for directory in &directories {
                paths.push([directory, &b"/"[..], &mean].concat());
            }
            paths.push(mean);
        }
        if matches!(
            before,
            Some(b"cd" | b"-C" | b"pushd" | b"--prefix" | b"--directory" | b"--cwd")
        ) {
            directories.push(word.clone());
        }
        if paths.len() > MAX_PATHS {
            paths.truncate(MAX_PATHS);
            break;
        }
    }
    paths
}

/// A word, and the parts of it that can be paths.
fn ends(word: &[u8]) -> Vec<Vec<u8>> {
    let mut ends = vec![word.to_vec()];
    for (at, byte) in word.iter().enumerate() {
        if b"=:,@".contains(byte) {
            ends.push(word[at + 1..].to_vec());
        }
    }
    ends.extend(word.split(|byte| b"=:,".contains(byte)).map(<[u8]>::to_vec));
    // A variable is followed by a path below its value.
    if word.contains(&b'$')
        && let Some(slash) = word.iter().position(|byte| *byte == b'/')
    {
        ends.push(word[slash..].to_vec());
    }
    if let [b'-', _, rest @ ..] = word {
        // An option with its value, such as `-f` and `-I`.
        ends.push(rest.to_vec());
    }
    ends.retain(|end| !end.is_empty());
    ends.sort();
    ends.dedup();
    ends
}

/// Splits a command as a shell does, without expansions; operators separate words.
fn words(command: &[u8]) -> Vec<Vec<u8>> {
    let mut words = Vec::new();
    let mut word: Option<Vec<u8>> = None;
    let mut quote = None;
    let mut bytes = command.iter();
    while let Some(byte) = bytes.next() {
        match (quote, byte) {
            (Some(open), close) if open == *close => quote = None,
            (None, b'\'' | b'"') => {
                quote = Some(*byte);
                word.get_or_insert_default();
            }
            (None | Some(b'"'), b'\\') => {
                if let Some(escaped) = bytes.next()
                    && *escaped != b'\n'
                {
                    word.get_or_insert_default().push(*escaped);
                }
            }
            (
                None,
                b' ' | b'\t' | b'\n' | b'\r' | b';' | b'&' | b'|' | b'(' | b')' | b'<' | b'>'
                | b'`' | b'{' | b'}',
            )
            | (Some(b'"'), b'`' | b'(' | b')') => words.extend(word.take()),
            (_, other) => word.get_or_insert_default().push(*other),
        }
    }
    words.extend(word);
    words.retain(|word| !word.is_empty());
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_to_name_a_file_is_found() {
        for command in [
            "tools/x",
            "./tools/x",
            "sh tools/x",
            "sh -c 'exec tools/x --y'",
            "\"tools/x\" a",
            "tools\\/x",
            "A=b tools/x",
            "A=tools/x b",
            "true&&tools/x",
            "cat|tools/x",
            "a;tools/x",
            "(tools/x)",
            "{ tools/x; }",
            "`tools/x`",
            "f() { tools/x \"$1\"; }; f",
            "p --config=tools/x",
            "p -ftools/x",
            "PATH=a:tools/x:b q",
            "cd tools && x",
            "make -C tools x",
            "a >tools/x",
            "python3 -m tools.x",
            "sh -c \"sh -c 'tools/x'\"",
        ] {
            let paths = paths(command.as_bytes());
            let is_it = |path: &Vec<u8>| {
                let path = path.strip_prefix(b"./").unwrap_or(path);
                path == b"tools/x" || path == b"tools/x.py"
            };
            assert!(paths.iter().any(is_it), "{command}");
        }
        for command in [
            "$PWD/tools/x",
            "\"$PWD/tools/x\"",
            "${PWD}/tools/x",
            "$(git rev-parse --show-toplevel)/tools/x",
            "\"$(git rev-parse --show-toplevel)/tools/x\"",
            "`pwd`/tools/x",
        ] {
            let paths = paths(command.as_bytes());
            assert!(paths.iter().any(|path| path == b"/tools/x"), "{command}: {paths:?}");
        }
    }

    #[test]
    fn odd_commands_end() {
        for command in ["", "'", "\"", "\\", "a\\", "'''", "\"$(\"", &"a b;".repeat(10_000)] {
            assert!(paths(command.as_bytes()).len() <= MAX_PATHS);
        }
    }
}
