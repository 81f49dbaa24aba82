//! The edge: how a failure is shown, and with which exit code the process ends.

use stockade_core::{Code, Problem};
pub(crate) use stockade_service::bundles::problem::{of_apply, of_store, short};

/// A failure on its way out.
#[derive(Debug)]
pub(crate) struct Failure {
    problem: Problem,
    exit_code: u8,
}

impl Failure {
    /// The exit code that the process ends with.
    pub(crate) fn exit_code(&self) -> u8 {
        self.exit_code
    }

    /// All that is known of it.
    pub(crate) fn problem(&self) -> &Problem {
        &self.problem
    }

    /// What went wrong.
    pub(crate) fn code(&self) -> Code {
        self.problem.code
    }

    /// The same failure as one of Stockade's own beside a command's exit codes: 125.
    #[must_use]
    pub(crate) fn of_run(mut self) -> Self {
        self.exit_code = 125;
        self
    }

    /// The same failure as one of a workflow command, whose exit codes tell how a run ended: 4 for
    /// what cannot be started as it was asked for.
    #[must_use]
    pub(crate) fn of_workflow(mut self) -> Self {
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

    /// Prints the problem: to stderr for people, as JSON to stdout where that was asked for.
    #[expect(clippy::print_stdout, clippy::print_stderr, reason = "the edge of the program")]
    pub(crate) fn present(&self, json: bool) {
        let Problem { code, message, cause, remediation, .. } = &self.problem;
        if json {
            let answer = serde_json::json!({ "error": self.problem });
            println!("{}", crate::json::text(&answer));
        }
        eprintln!("stockade: {message} [{code}]");
        if let Some(cause) = cause {
            eprintln!("  cause: {cause}");
        }
        if let Some(remediation) = remediation {
            eprintln!("  hint: {remediation}");
        }
    }
}

impl From<Problem> for Failure {
    fn from(problem: Problem) -> Self {
        let exit_code = problem.code.exit_code();
        Self { problem, exit_code }
    }
}

/// A problem with an error as its cause, down to the root of it.
pub(crate) fn caused(code: Code, error: &dyn std::error::Error) -> Problem {
    let mut causes = Vec::new();
    let mut next = error.source();
    while let Some(cause) = next {
        causes.push(cause.to_string());
        next = cause.source();
    }
    let problem = Problem::new(code, error.to_string());
    if causes.is_empty() { problem } else { problem.because(causes.join(": ")) }
}
