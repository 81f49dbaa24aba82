//! Orbiter's terminal tool: runs a shell line, unless the line runs a program of a list.

use async_trait::async_trait;
use serde_json::{Value, json};
use stockade_api::{CommandLine, Result};
use stockade_core::{Code, Problem};

use super::tokens::{base, tokenize};
use super::{Handler, ToolCall, built_in};

/// The default list of blocked programs.
const BLOCKED: [&str; 15] = [
    "rm", "rmdir", "dd", "mkfs", "fdisk", "shutdown", "reboot", "halt", "poweroff", "kill",
    "killall", "pkill", "sudo", "su", "chmod",
];

/// Programs that run another program, named in their arguments.
const WRAPPERS: [&str; 12] = [
    "env", "exec", "command", "nohup", "nice", "time", "timeout", "xargs", "sh", "bash", "eval",
    "setsid",
];

/// Runs lines with a shell, in the sandbox. The list protects an agent from mistakes; it is no
/// security boundary: a program has many names, and the boundary is the sandbox.
#[derive(Debug)]
pub struct TerminalTool {
    blocked: Vec<String>,
}

impl Default for TerminalTool {
    fn default() -> Self {
        Self::new(BLOCKED.map(str::to_owned).to_vec())
    }
}

impl TerminalTool {
    /// A tool that blocks these programs, and no others.
    pub const fn new(blocked: Vec<String>) -> Self {
        Self { blocked }
    }

    /// The blocked program that a line runs, if there is one.
    fn blocked<'a>(&'a self, line: &str) -> Option<&'a String> {
        let mut expected = false;
        for word in tokenize(line) {
            expected |= word.first;
            if !expected {
                continue;
            }
            let name = base(&word.text);
            let assigns = word.text.split_once('=').is_some_and(|(name, _)| {
                !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
            });
            if WRAPPERS.contains(&name) || assigns || name.starts_with('-') {
                continue;
            }
            // The argument of `sh -c` is a whole line in one word.
            let inner = word.text.contains(char::is_whitespace) || word.text.contains(';');
            let found = self.blocked.iter().find(|blocked| *blocked == name);
            let found = found.or_else(|| if inner { self.blocked(&word.text) } else { None });
            if found.is_some() {
                return found;
            }
            expected = false;
        }
        None
    }
}

#[async_trait]
impl Handler for TerminalTool {
    async fn call(&self, call: ToolCall) -> Result<Value> {
        let line = call.text("command")?.to_owned();
        if let Some(name) = self.blocked(&line) {
            let message = format!("the command `{name}` is blocked by sandbox policy");
            return Err(Problem::new(Code::AccessDenied, message));
        }
        let mut answer = built_in::run(&call, CommandLine::Shell(line)).await?;
        answer["platform"] = json!("linux");
        Ok(answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_blocked_program_is_found_behind_others() {
        let tool = TerminalTool::default();
        for line in [
            "rm -rf /",
            "/usr/bin/rm x",
            "ls; rm x",
            "env rm x",
            "X=1 rm x",
            "'rm' x",
            "(rm x)",
            "sh -c 'rm x'",
            "ls\nrm x",
            "\\rm x",
            "echo $(rm x)",
        ] {
            assert_eq!(tool.blocked(line).map(String::as_str), Some("rm"), "{line}");
        }
        for line in ["echo rm", "ls -l | wc", "git rm x", "echo 'a; b'", ""] {
            assert_eq!(tool.blocked(line), None, "{line}");
        }
    }
}
