//! The command line of an agent. Adapters specify how known agents are called, how they get the prompt,
//! and where their answer is. Built-in adapters are in `adapters.json`; those of the user take
//! precedence.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;
use stockade_api::CommandLine;
use stockade_core::{Code, Problem};

use crate::authoring::TokenUsage;
use crate::graph::{Command, Program, nearest};

/// The largest file of adapters, in bytes.
const MAX_BYTES: u64 = 1 << 20;
/// The variable that holds a prompt that is passed as an argument until the command starts: arguments
/// are recorded, the command's own environment is not.
const PROMPT: &str = "STOCKADE_PROMPT";

/// How to use an agent that is a command-line program.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Adapter {
    /// The program and its arguments. `{model}` is replaced by the arguments that select a model,
    /// `{args}` by the author's own arguments, and `{prompt}`, also within a word, by the prompt. If no
    /// word contains `{prompt}`, the prompt is written to the standard input.
    command: Vec<String>,
    /// The arguments before the name of a model. If absent, no model can be chosen.
    #[serde(default)]
    model: Option<Vec<String>>,
    /// Where the answer is in the JSON output, as a JSON pointer (RFC 6901). If absent, the answer is
    /// the whole output.
    #[serde(default)]
    answer: Option<String>,
    /// Where the JSON output tells how many tokens were used. If absent, the number is not known.
    #[serde(default)]
    tokens: Option<TokenPointers>,
    /// Whether it needs a network.
    #[serde(default)]
    network: bool,
}

/// Where JSON tells how many tokens were used, as JSON pointers whose numbers are added.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct TokenPointers {
    input: Vec<String>,
    output: Vec<String>,
}

/// The command of an agent, before the prompt is added.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct AgentCommand {
    command_line: CommandLine,
    answer: Option<String>,
    tokens: Option<TokenPointers>,
    /// Whether it needs a network.
    pub(crate) network: bool,
}

/// The command of an agent. Uses the adapters of the user's file, if there is one.
///
/// # Errors
/// [`Code::InvalidInput`] for an adapter that does not exist or does not support a requested option,
/// and for an invalid file of adapters.
pub(crate) fn resolve(agent: &Command, file: Option<&Path>) -> Result<AgentCommand, Problem> {
    let name = match &agent.program {
        Program::Line(line) => return from_line(agent, line),
        Program::Adapter(name) => name,
    };
    let mut adapters = built_in()?;
    if let Some(file) = file {
        adapters.extend(read_user_adapters(file)?);
    }
    let Some(adapter) = adapters.get(name) else {
        let known = adapters.keys().map(String::as_str);
        let hint = match nearest(name, known.clone()) {
            Some(meant) => format!("did you mean \"{meant}\"?"),
            None => format!("there are {}", known.collect::<Vec<_>>().join(", ")),
        };
        let problem = invalid(format!("there is no adapter {name:?}: {hint}"));
        return Err(match file {
            Some(file) => problem.remedied_by(format!("describe it in {}", file.display())),
            None => problem,
        });
    };
    let model = match (&agent.model, &adapter.model) {
        (None, _) => Vec::new(),
        (Some(model), Some(flags)) => [flags.as_slice(), std::slice::from_ref(model)].concat(),
        (Some(_), None) => {
            return Err(invalid(format!("{name:?} does not support the choice of a model")));
        }
    };
    let mut words = Vec::new();
    for word in &adapter.command {
        match word.as_str() {
            "{model}" => words.extend(model.iter().cloned()),
            "{args}" => words.extend(agent.arguments.iter().cloned()),
            _ => words.push(word.clone()),
        }
    }
    Ok(AgentCommand {
        command_line: CommandLine::Program(words),
        answer: adapter.answer.clone(),
        tokens: adapter.tokens.clone(),
        network: adapter.network || agent.network,
    })
}

fn from_line(agent: &Command, line: &CommandLine) -> Result<AgentCommand, Problem> {
    if agent.model.is_some() {
        return Err(invalid("an agent with a `command` must set its model in the command"));
    }
    let words = match line {
        CommandLine::Shell(_) if !agent.arguments.is_empty() => {
            return Err(invalid(
                "an agent whose `command` is a shell command line cannot have `args`",
            ));
        }
        CommandLine::Shell(line) => CommandLine::Shell(line.clone()),
        CommandLine::Program(words) => {
            CommandLine::Program([words.as_slice(), &agent.arguments].concat())
        }
        CommandLine::Words(_) => {
            return Err(invalid("the words of a `command` must be UTF-8 text"));
        }
    };
    Ok(AgentCommand { command_line: words, answer: None, tokens: None, network: agent.network })
}

impl AgentCommand {
    /// A value that differs from the identity of any other command.
    pub(crate) fn identity(&self) -> Value {
        serde_json::json!([self.command_line, self.answer])
    }

    /// The command line for a prompt, its standard input, and a variable for its environment.
    pub(crate) fn with_prompt(
        &self,
        prompt: &str,
    ) -> (CommandLine, Vec<u8>, Option<(String, String)>) {
        match &self.command_line {
            CommandLine::Program(words) if words.iter().any(|word| word.contains("{prompt}")) => {
                let script = script(words);
                let variable = Some((PROMPT.to_owned(), prompt.to_owned()));
                (CommandLine::Shell(script), Vec::new(), variable)
            }
            words => (words.clone(), prompt.as_bytes().to_vec(), None),
        }
    }

    /// Whether its output tells how many tokens were used.
    pub(crate) const fn tells_tokens(&self) -> bool {
        self.tokens.is_some()
    }

    /// The tokens that its output says were used.
    pub(crate) fn usage(&self, output: &str) -> Option<TokenUsage> {
        let pointers = self.tokens.as_ref()?;
        let value: Value = serde_json::from_str(output).ok()?;
        let sum = |pointers: &[String]| {
            let mut numbers =
                pointers.iter().filter_map(|at| value.pointer(at)?.as_u64()).peekable();
            numbers.peek().is_some().then(|| numbers.fold(0, u64::saturating_add))
        };
        let (input, output) = (sum(&pointers.input), sum(&pointers.output));
        (input.is_some() || output.is_some()).then(|| TokenUsage {
            input_tokens: input.unwrap_or_default(),
            output_tokens: output.unwrap_or_default(),
        })
    }

    /// The answer in its output.
    pub(crate) fn answer(&self, output: &str) -> Result<String, String> {
        let Some(pointer) = &self.answer else { return Ok(output.to_owned()) };
        let value: Value = serde_json::from_str(output)
            .map_err(|error| format!("the output of the agent is not JSON: {error}"))?;
        match value.pointer(pointer) {
            Some(Value::String(text)) => Ok(text.clone()),
            Some(other) => Ok(other.to_string()),
            None => Err(format!("the JSON that the agent wrote has no {pointer}")),
        }
    }
}

/// A shell command line that runs words with the prompt in them.
fn script(words: &[String]) -> String {
    let quoted = |text: &str| format!("'{}'", text.replace('\'', "'\\''"));
    let word = |word: &String| {
        let parts: Vec<_> = word.split("{prompt}").map(quoted).collect();
        parts.join("\"$p\"")
    };
    let words: Vec<_> = words.iter().map(word).collect();
    format!("p=${PROMPT}; unset {PROMPT}; exec {}", words.join(" "))
}

fn built_in() -> Result<BTreeMap<String, Adapter>, Problem> {
    serde_json::from_str(include_str!("adapters.json"))
        .map_err(|error| Problem::new(Code::Io, error.to_string()))
}

fn read_user_adapters(file: &Path) -> Result<BTreeMap<String, Adapter>, Problem> {
    let wrong = |why: String| {
        invalid(format!("{} does not describe adapters", file.display())).because(why)
    };
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
    let flags = i32::try_from(flags.bits()).unwrap_or_default();
    let opened = std::fs::OpenOptions::new().read(true).custom_flags(flags).open(file);
    let opened = match opened {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        opened => opened.map_err(|error| wrong(error.to_string()))?,
    };
    match opened.metadata() {
        Ok(found) if found.len() > MAX_BYTES => {
            return Err(wrong(format!("it is larger than {MAX_BYTES} bytes")));
        }
        Ok(found) if !found.is_file() => return Err(wrong("it is not a regular file".to_owned())),
        _ => {}
    }
    let text = std::io::read_to_string(opened.take(MAX_BYTES + 1))
        .map_err(|error| wrong(error.to_string()))?;
    let adapters: BTreeMap<String, Adapter> =
        serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
    match adapters.iter().find(|(_, adapter)| adapter.command.is_empty()) {
        Some((name, _)) => Err(wrong(format!("the command of {name:?} has no program"))),
        None => Ok(adapters),
    }
}

fn invalid(message: impl Into<String>) -> Problem {
    Problem::new(Code::InvalidInput, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agent(program: Program) -> Command {
        Command { program, ..Command::adapter("") }
    }

    fn adapter(name: &str) -> Command {
        agent(Program::Adapter(name.to_owned()))
    }

    #[test]
    fn adapters_say_what_is_called() {
        for (name, adapter) in built_in().unwrap() {
            assert!(adapter.network && !adapter.command.is_empty(), "{name}");
        }
        let claude = Command {
            model: Some("opus".to_owned()),
            arguments: vec!["--verbose".to_owned()],
            ..adapter("claude")
        };
        let ready = super::resolve(&claude, None).unwrap();
        let CommandLine::Program(words) = &ready.command_line else { panic!("{ready:?}") };
        assert_eq!(words[words.len() - 3..], ["--model", "opus", "--verbose"]);
        assert_eq!(ready.answer("{\"result\": \"{}\"}").unwrap(), "{}");
        assert!(ready.answer("{}").unwrap_err().contains("/result"));
        let told = "{\"usage\": {\"input_tokens\": 2, \"cache_read_input_tokens\": 3, \"output_tokens\": 4}}";
        let used = TokenUsage { input_tokens: 5, output_tokens: 4 };
        assert_eq!((ready.usage(told), ready.usage("{}")), (Some(used), None));
        let message = super::resolve(&adapter("clade"), None).unwrap_err().message;
        assert!(message.contains("did you mean \"claude\"?"), "{message}");
        let amp = Command { model: Some("m".to_owned()), ..adapter("amp") };
        assert!(super::resolve(&amp, None).unwrap_err().message.contains("the choice of a model"));
    }

    #[test]
    fn a_prompt_in_an_argument_is_in_no_argument() {
        let ready = super::resolve(&adapter("opencode"), None).unwrap();
        let (line, input, variable) = ready.with_prompt("secret's");
        assert_eq!(
            line,
            CommandLine::Shell(
                "p=$STOCKADE_PROMPT; unset STOCKADE_PROMPT; exec 'opencode' 'run' ''\"$p\"''"
                    .to_owned()
            )
        );
        assert!(input.is_empty());
        assert_eq!(variable, Some(("STOCKADE_PROMPT".to_owned(), "secret's".to_owned())));
    }

    #[test]
    fn a_file_of_the_users_comes_first() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("agents.json");
        assert!(super::resolve(&adapter("mine"), Some(&file)).unwrap_err().remediation.is_some());
        std::fs::write(&file, "{\"mine\": {\"command\": [\"cat\"]}}").unwrap();
        assert!(!super::resolve(&adapter("mine"), Some(&file)).unwrap().network);
        for (text, message) in [
            ("{\"mine\": {\"command\": []}}", "has no program"),
            ("{\"mine\": {\"comand\": []}}", "comand"),
            ("{", "EOF"),
        ] {
            std::fs::write(&file, text).unwrap();
            let problem = super::resolve(&adapter("mine"), Some(&file)).unwrap_err();
            assert!(problem.cause.unwrap().contains(message), "{text}");
        }
    }
}
