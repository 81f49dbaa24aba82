//! Orbiter's shell tool: programs of a list, without a shell.

use std::collections::BTreeMap;

use async_trait::async_trait;
use serde_json::Value;
use stockade_api::{CommandLine, Result};
use stockade_core::{Code, Problem};

use super::tokens::{Token, tokenize};
use super::{Handler, ToolCall, built_in};

/// The default list of allowed programs.
const ALLOWED: [&str; 10] =
    ["ls", "cat", "grep", "find", "echo", "wc", "sort", "head", "tail", "diff"];

/// The search path for allowed programs, whatever the sandbox's own `PATH` is.
const PATH: &str = "/usr/bin:/bin";

/// Options of allowed programs that run other programs, or remove and write files.
const REFUSED: [(&str, &[&str]); 2] = [
    ("find", &["-exec", "-execdir", "-ok", "-okdir", "-delete", "-fls", "-fprint", "-fprintf"]),
    ("sort", &["--compress-program", "-o", "--output"]),
];

/// How much of an output is returned, in characters.
const CHARACTERS: usize = 10_000;

/// Runs programs of a list, in the sandbox.
#[derive(Debug)]
pub struct AllowlistTool {
    allowed: Vec<String>,
}

impl Default for AllowlistTool {
    fn default() -> Self {
        Self::new(ALLOWED.map(str::to_owned).to_vec())
    }
}

impl AllowlistTool {
    /// A tool that runs these programs, listed by name.
    pub const fn new(allowed: Vec<String>) -> Self {
        Self { allowed }
    }

    /// The words of a line, if it runs one program of the list.
    fn check(&self, line: &str) -> Result<Vec<String>> {
        let refused = |message: String| {
            Problem::new(Code::AccessDenied, message)
                .remedied_by(format!("use one of: {}", self.allowed.join(", ")))
        };
        let words = tokenize(line);
        if words.iter().skip(1).any(|word| word.first) {
            return Err(refused(
                "a line must be one program with arguments: no shell interprets it".to_owned(),
            ));
        }
        let words: Vec<_> = words.into_iter().map(|Token { text, .. }| text).collect();
        let Some(program) = words.first() else {
            return Err(Problem::new(Code::InvalidInput, "the command is empty"));
        };
        let name = ["/usr/bin/", "/bin/"].iter().find_map(|place| program.strip_prefix(place));
        let name = name.unwrap_or(program);
        if !self.allowed.iter().any(|allowed| allowed == name) {
            return Err(refused(format!("the program {program:?} is not allowed")));
        }
        let options = REFUSED.iter().filter(|(program, _)| *program == name);
        let refuses = |word: &String| {
            let option = word.split('=').next().unwrap_or(word);
            options.clone().any(|(_, options)| options.contains(&option))
        };
        if let Some(option) = words.iter().find(|word| refuses(word)) {
            return Err(refused(format!("the option {option} of {name} is not allowed")));
        }
        Ok(words)
    }
}

#[async_trait]
impl Handler for AllowlistTool {
    async fn call(&self, call: ToolCall) -> Result<Value> {
        let words = self.check(call.text("command")?)?;
        let path = BTreeMap::from([("PATH".to_owned(), PATH.to_owned())]);
        let line = CommandLine::Program(words);
        let mut answer = built_in::run_with(&call, line, path).await?;
        for stream in ["stdout", "stderr"] {
            if let Some(text) = answer[stream].as_str()
                && let Some((end, _)) = text.char_indices().nth(CHARACTERS)
            {
                answer[stream] = text[..end].into();
                answer["truncated"] = true.into();
            }
        }
        Ok(answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_programs_of_the_list_are_run() {
        let tool = AllowlistTool::default();
        for line in ["ls -l", "/usr/bin/ls", "grep 'a b' f", "find . -name x", "echo \\;"] {
            assert!(tool.check(line).is_ok(), "{line}");
        }
        for line in [
            "rm x",
            "/tmp/x/ls",
            "./ls",
            "ls; rm x",
            "ls | sh",
            "echo $(id)",
            "find . -exec sh",
            "sort --compress-program=sh f",
            "",
        ] {
            assert!(tool.check(line).is_err(), "{line}");
        }
    }
}
