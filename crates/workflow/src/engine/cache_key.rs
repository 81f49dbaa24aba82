//! The keys under which the outputs of tasks are stored for other runs of the same owner. A key covers
//! everything that the output depends on: if any of it changes, the key changes.

use serde_json::{Value as Json, json};

use super::commands::AgentCommand;
use crate::graph::{Cache, Depends, Prompt, Scope, Task, Work};
use crate::journal::Journal;

/// The values from which the key of a task's output is made, in addition to the task.
#[derive(Debug, Clone)]
pub(crate) struct KeyContext<'a> {
    /// The id of the run.
    pub(crate) run: &'a str,
    /// The file of its workflow, and the workflow's name.
    pub(crate) workflow: (&'a str, &'a str),
    /// The hash of the code of the workflow.
    pub(crate) program: &'a str,
    /// The `process.env` of the code, as JSON.
    pub(crate) environment: &'a str,
    /// The agent of the task, if it is a command.
    pub(crate) command: Option<AgentCommand>,
    /// The state of the project, for tasks that see it.
    pub(crate) project: Option<&'a str>,
    /// The input of the run, and its outputs so far.
    pub(crate) journal: &'a Journal,
}

impl KeyContext<'_> {
    /// The key of a task's output, or the reason why it has none.
    pub(crate) fn key(&self, task: &Task, cache: &Cache) -> Result<String, String> {
        let scope = match cache.scope {
            Scope::Run => json!(["run", self.run]),
            Scope::Workflow => json!(["workflow", self.workflow.0, self.workflow.1]),
            Scope::Global => json!(["global"]),
        };
        let schema = task.output.as_ref().and_then(|output| output.schema.as_ref());
        let mut question =
            json!([scope, self.work(task), schema, cache.name, self.inputs(task, &cache.depends)?]);
        if let Some(parts) = question.as_array_mut().filter(|_| !task.fallbacks.is_empty()) {
            // Values of variables are not printed.
            parts.push(format!("{:?}", task.fallbacks).into());
        }
        Ok(blake3::hash(question.to_string().as_bytes()).to_hex().to_string())
    }

    /// The work of the task. A function is identified by the program and the task.
    fn work(&self, task: &Task) -> Json {
        let (kind, program, id) = (task.work.kind(), self.program, task.id.as_str());
        match &task.work {
            Work::Static(value) => json!([kind, value]),
            Work::Compute { .. } => json!([kind, program, id]),
            Work::Agent { prompt, .. } => json!([kind, program, id, prompt.text()]),
            Work::Command { agent, prompt } => {
                let environment = json!(agent.environment.0).to_string();
                let environment = blake3::hash(environment.as_bytes()).to_hex().to_string();
                let command = self.command.as_ref().map(AgentCommand::identity);
                // A prompt that a function makes is identified by the function.
                let function_key = prompt.text().is_none().then_some([program, id]);
                json!([kind, command, agent.image, environment, prompt.text(), function_key])
            }
            Work::Subflow { input, .. } => json!([kind, program, id, input]),
            Work::Sandbox(sandbox) => {
                json!([kind, program, id, sandbox.input, sandbox.provider, sandbox.config])
            }
            Work::Node(node) => json!([kind, program, id, node.name, node.inputs]),
            // They have no key.
            Work::Approval(_) | Work::Timer(_) | Work::Event(_) | Work::Continue(_) => {
                json!([kind, program, id])
            }
        }
    }

    /// What the work depends on.
    fn inputs(&self, task: &Task, depends: &Depends) -> Result<Json, String> {
        match depends {
            _ if matches!(task.work, Work::Static(_)) => Ok(Json::Null),
            // The prompt is its only input.
            Depends::Everything
                if matches!(&task.work, Work::Command { prompt: Prompt::Text(_), .. }) =>
            {
                Ok(json!(self.project))
            }
            Depends::Unknown(why) => Err(why.clone()),
            Depends::Only(value) => Ok(json!([value, self.named(&task.work)])),
            Depends::Everything => {
                let Journal { input, rows, iterations, .. } = self.journal;
                let mut rows: Vec<String> = rows.iter().map(Json::to_string).collect();
                // Tasks that run in parallel finish in any order.
                rows.sort_unstable();
                let project = self.project.filter(|_| sees_project(&task.work));
                Ok(match project {
                    Some(project) => json!([input, self.environment, iterations, rows, project]),
                    None => json!([input, self.environment, iterations, rows]),
                })
            }
        }
    }

    /// The inputs of a function.
    fn named(&self, work: &Work) -> Json {
        let names = work.inputs().into_iter().flatten();
        let last = |node: &String| {
            let rows: Vec<&Json> = self.journal.rows_of(node).collect();
            rows.last().map(|row| row["value"].clone())
        };
        names.map(|(name, node)| json!([name, last(node)])).collect()
    }
}

/// Whether a work can see the files of the project.
pub(crate) const fn sees_project(work: &Work) -> bool {
    matches!(work, Work::Command { .. } | Work::Sandbox(_))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::Function;

    fn compute(id: &str) -> Task {
        Task::compute(id, Function(1)).into_table("r", Some(json!({"type": "object"})))
    }

    #[test]
    fn a_key_changes_with_all_that_an_answer_depends_on() {
        let mut journal = Journal::new("one", json!({"n": 1}));
        journal.rows.push(json!({"table": "a", "node": "x", "iteration": 0, "value": 1}));
        journal.rows.push(json!({"table": "a", "node": "y", "iteration": 0, "value": 2}));
        let context = KeyContext {
            run: "one",
            workflow: ("/w.tsx", "w"),
            program: "p",
            environment: "{}",
            command: None,
            project: None,
            journal: &journal,
        };
        let (task, cache) = (compute("t"), Cache::default());
        let first = context.key(&task, &cache).unwrap();
        // The number in the rendering, the run id and the order do not affect the key.
        let same =
            Task { work: Work::Compute { function: Function(7), inputs: None }, ..task.clone() };
        assert_eq!(context.key(&same, &cache).unwrap(), first);
        let mut turned = Journal::new("two", json!({"n": 1}));
        turned.rows = journal.rows.iter().rev().cloned().collect();
        let other = KeyContext { run: "two", journal: &turned, ..context.clone() };
        assert_eq!(other.key(&task, &cache).unwrap(), first);

        let by = |depends| Cache { depends, ..Cache::default() };
        let named = Cache { name: json!(["k", null]), ..Cache::default() };
        let scoped = |scope| Cache { scope, ..Cache::default() };
        let mut more = turned;
        more.rows.pop();
        let changed_keys = [
            context.key(&task, &named),
            context.key(&task, &scoped(Scope::Run)),
            context.key(&task, &scoped(Scope::Global)),
            context.key(&task, &by(Depends::Only(json!(1)))),
            context.key(&task, &by(Depends::Only(json!(2)))),
            context.key(&compute("u"), &cache),
            context.key(&Task { output: None, ..task.clone() }, &cache),
            KeyContext { program: "q", ..context.clone() }.key(&task, &cache),
            KeyContext { environment: "{\"A\":\"b\"}", ..context.clone() }.key(&task, &cache),
            KeyContext { workflow: ("/v.tsx", "w"), ..context.clone() }.key(&task, &cache),
            KeyContext { workflow: ("/w.tsx", "v"), ..context.clone() }.key(&task, &cache),
            KeyContext { journal: &more, ..context.clone() }.key(&task, &cache),
            KeyContext { run: "two", ..context.clone() }.key(&task, &scoped(Scope::Run)),
        ];
        let mut keys: Vec<String> = changed_keys.into_iter().map(Result::unwrap).collect();
        keys.push(first);
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len(), 14);
        let unknown = by(Depends::Unknown("no".to_owned()));
        assert_eq!(context.key(&task, &unknown), Err("no".to_owned()));
    }

    #[test]
    fn what_is_said_to_matter_alone_matters_with_what_is_named() {
        let by = Cache { depends: Depends::Only(json!(1)), ..Cache::default() };
        let inputs = Some([("x".to_owned(), "a".to_owned())].into());
        let task = Task { work: Work::Compute { function: Function(0), inputs }, ..compute("t") };
        let key = |node: &str, value: i64| {
            let mut journal = Journal::new("r", json!(null));
            journal.rows.push(json!({"table": "t", "node": node, "iteration": 0, "value": value}));
            let workflow = ("f", "w");
            let (program, environment, command) = ("p", "{}", None);
            let context = KeyContext {
                run: "r",
                workflow,
                program,
                environment,
                command,
                project: None,
                journal: &journal,
            };
            context.key(&task, &by).unwrap()
        };
        assert_eq!(key("other", 1), key("other", 2));
        assert_ne!(key("a", 1), key("a", 2));
    }
}
