//! The presentation of failures: their text, and the exit code of the process.

use stockade_core::printable::escape_with;
use stockade_core::{Code, Problem};
pub use stockade_review::problem::{apply_problem, short_id, store_problem};

pub use crate::error_form::Form;
use crate::output;

/// A failure that ends the command.
#[derive(Debug)]
pub struct Failure {
    problem: Problem,
    exit_code: u8,
    /// Whether nothing is printed about it.
    quiet: bool,
    /// Whether the JSON answer, which has been printed, includes it.
    is_answered: bool,
}

/// The exit code of a program that wrote to a pipe without a reader: 128 and SIGPIPE.
const BROKEN_PIPE_EXIT_CODE: u8 = 141;

/// What to do inside a sandbox. Agents that create sandboxes of their own have such a setting, too.
const INSIDE_REMEDY: &str = "run the command itself, without `stockade run --`: it is isolated by the outer sandbox; switch off the sandbox setting of an agent in the same way";

impl Failure {
    /// The failure to write to a standard stream, which is an error of Stockade: 125. If the pipe
    /// has no reader, nothing is printed, and only the exit code reports it.
    pub fn from_write_error(error: &std::io::Error) -> Self {
        let quiet = error.kind() == std::io::ErrorKind::BrokenPipe;
        let exit_code = if quiet { BROKEN_PIPE_EXIT_CODE } else { 125 };
        let problem = output::output_problem(error);
        Self { problem, exit_code, quiet, is_answered: false }
    }

    /// The problem with all its details.
    pub fn problem(&self) -> &Problem {
        &self.problem
    }

    /// The error code.
    pub fn code(&self) -> Code {
        self.problem.code
    }

    /// The same failure with the exit code for Stockade's own errors beside those of a command:
    /// 125.
    #[must_use]
    pub fn for_run(mut self) -> Self {
        if !self.quiet {
            self.exit_code = 125;
        }
        self
    }

    /// The same failure for a workflow command, whose exit codes report how a run ended: 4 if a
    /// run cannot be started as requested.
    #[must_use]
    pub fn for_workflow(mut self) -> Self {
        let refused = [
            Code::InvalidInput,
            Code::Conflict,
            Code::NotFound,
            Code::InvalidState,
            Code::Unsupported,
        ];
        if refused.contains(&self.problem.code) {
            self.exit_code = 4;
        }
        self
    }

    /// The same failure, with the reason if it is that this program runs inside a sandbox itself.
    #[must_use]
    pub fn inside_sandbox(mut self) -> Self {
        let may_follow =
            matches!(self.problem.code, Code::Io | Code::LaunchFailed | Code::WallUnavailable);
        if !may_follow || self.quiet || !stockade_jail::confined::is_already_confined() {
            return self;
        }
        let Problem { message, cause, .. } = &self.problem;
        let cause = cause.iter().fold(message.clone(), |all, cause| format!("{all}: {cause}"));
        self.problem.message =
            "this program runs inside a sandbox already, which cannot contain another one".into();
        self.problem.cause = Some(cause);
        self.problem.remediation = Some(INSIDE_REMEDY.to_owned());
        self
    }

    /// Ends a command that does several things: `failed` has the failures, each with the name of what
    /// it is about. With an answer, one JSON document is printed with what was done, the failures, and
    /// the first of them as the `error`. All failures are printed as text; the exit code is that of
    /// the first one.
    ///
    /// # Errors
    /// The last failure, if there is one.
    pub fn report(
        mut failed: Vec<(String, Self)>,
        answer: Option<serde_json::Value>,
    ) -> Result<u8, Self> {
        let is_json = answer.is_some();
        if let Some(mut answer) = answer {
            let one = |(name, failure): &(String, Self)| serde_json::json!({ "id": name, "error": failure.problem });
            answer["failed"] = failed.iter().map(one).collect();
            if let Some((_, first)) = failed.first() {
                answer["error"] = serde_json::json!(first.problem);
            }
            output::print_json(&answer)?;
        }
        let Some((_, last)) = failed.pop() else { return Ok(0) };
        let first_code = failed.first().map(|(_, failure)| failure.exit_code);
        for (_, failure) in &failed {
            print_problem(&failure.problem);
        }
        let exit_code = first_code.unwrap_or(last.exit_code);
        Err(Self { exit_code, is_answered: is_json, ..last })
    }

    /// Prints the problem: to stderr as text, and to stdout as JSON if that was requested.
    /// Returns the exit code of the process.
    pub fn present(&self, form: Form) -> u8 {
        if self.quiet {
            return self.exit_code;
        }
        let mut exit_code = self.exit_code;
        let answer = serde_json::json!({ "error": self.problem });
        let written = match form {
            Form::Json if !self.is_answered => output::print_json(&answer),
            Form::JsonLines if !self.is_answered => {
                output::print(&format!("{}\n", crate::json::escape_controls(answer.to_string())))
            }
            _ => Ok(()),
        };
        if let Err(unwritten) = written {
            print_problem(&unwritten);
            exit_code = unwritten.code.exit_code();
        }
        print_problem(&self.problem);
        exit_code
    }
}

/// Prints a problem as text.
pub fn print_problem(problem: &Problem) {
    let Problem { code, message, cause, remediation, .. } = problem;
    eprint_line!("stockade: {} [{code}]", escaped(message));
    if let Some(cause) = cause {
        eprint_line!("  cause: {}", escaped(cause));
    }
    if let Some(remediation) = remediation {
        eprint_line!("  hint: {}", escaped(remediation));
    }
}

/// Escapes control characters in a text that may contain untrusted parts, such as the name of a
/// file. Lines after the first are indented, so that none can be mistaken for one of Stockade's
/// own.
fn escaped(text: &str) -> String {
    let escaped = escape_with(text, |escaped, c| match c {
        '\n' => escaped.push_str("\n    "),
        '\t' => escaped.push('\t'),
        c => escaped.extend(c.escape_unicode()),
    });
    escaped.into_owned()
}

impl From<Problem> for Failure {
    fn from(problem: Problem) -> Self {
        let exit_code = problem.code.exit_code();
        Self { problem, exit_code, quiet: false, is_answered: false }
    }
}

/// A problem whose causes are those of an error, down to the root cause.
pub fn caused(code: Code, error: &dyn std::error::Error) -> Problem {
    Problem::caused(code, error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_a_text_steers_a_terminal_or_passes_for_another_line() {
        let text = escaped("a\u{1b}[31mb\u{7}c\rd\u{9b}e\tf\nstockade: all is well");
        assert_eq!(text, "a\\u{1b}[31mb\\u{7}c\\u{d}d\\u{9b}e\tf\n    stockade: all is well");
        assert_eq!(escaped("plain – é"), "plain – é");
    }
}
