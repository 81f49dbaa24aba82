//! The forms of published workflow files: prompts as elements and documents, lists of agents, loops without
//! a name, components, and the rows and scopes that they read.

use serde_json::{Value, json};
use stockade_api::{Decide, Run, RunStatus, Workflows as _};

use crate::world::World;

/// A workflow file with this head and body. `told` is an agent that answers with its prompt.
fn flow(head: &str, body: &str) -> String {
    format!(
        "/** @jsxImportSource smithers-orchestrator */\n\
         import * as all from \"smithers-orchestrator\";\n\
         import {{ createSmithers, Worktree, HumanTask, TryCatchFinally, Saga, ReviewLoop, Kanban, Panel, Poller, \
            DecisionTable, EscalationChain, ApprovalGate, createScorer }} from \"smithers-orchestrator\";\n\
         import {{ bash, read }} from \"smithers-orchestrator/tools\";\n\
         const {{ Workflow, Task, Sequence, Parallel, Loop, Ralph, Approval, smithers, outputs }} = \
            createSmithers({{ a: {{}}, b: {{}}, output: {{}} }});\n\
         const told = {{ generate: async ({{ prompt }}) => ({{ output: {{ prompt }} }}) }};\n\
         const gives = (value) => ({{ generate: async () => value }});\n\
         {head}\n\
         export default smithers((ctx) => (<Workflow name=\"w\">{body}</Workflow>));\n"
    )
}

async fn output(head: &str, body: &str) -> Value {
    let world = World::new().await;
    let run = world.run(&flow(head, body), json!({ "who": "you" })).await;
    assert_eq!(run.status, RunStatus::Finished, "{:?}", run.error);
    run.output.unwrap_or_default()
}

async fn fails(head: &str, body: &str) -> String {
    let world = World::new().await;
    let file = world.write("flow.tsx", &flow(head, body));
    let Err(problem) = world.up(&file, json!({})).await else { return "no error".to_owned() };
    format!("{}\n{}", problem.message, problem.cause.unwrap_or_default())
}

#[tokio::test]
async fn a_prompt_is_the_text_of_its_elements() {
    let head = "const Help = ({ who, children }) => <>Help {who} now.{children}</>;";
    let body = "<Task id=\"t\" output={outputs.output} agent={told}>\
                  <Help who={ctx.input.who}><rules level={1}>Be <b>kind</b>.</rules></Help></Task>";
    let prompt = json!({ "prompt": "Help you now.<rules level=\"1\">Be **kind**.</rules>" });
    assert_eq!(output(head, body).await, prompt);
    let inside = "<Task id=\"t\" output={outputs.output} agent={told}><Task id=\"u\" output=\"b\">{{}}</Task></Task>";
    let message = fails("", inside).await;
    assert!(
        message.contains("flow.tsx:") && message.contains("cannot be in a prompt"),
        "{message}"
    );
}

#[tokio::test]
async fn a_prompt_component_gets_an_example_of_the_answer() {
    let head = "const form = { type: \"object\", properties: { prompt: { type: \"string\", description: \"what to do\" }, \
          list: { type: \"array\", items: { enum: [\"low\", \"high\"] } }, n: { anyOf: [{ type: \"number\" }, { type: \"null\" }] } } };\n\
        const Ask = ({ schema }) => <>As {schema}</>;";
    let task = |more: &str| {
        format!(
            "<Task id=\"t\" output=\"output\" outputSchema={{form}} agent={{told}}><Ask {more}/></Task>"
        )
    };
    let example = json!({ "prompt": "what to do", "list": ["low"], "n": 0 });
    let prompt = output(head, &task("")).await["prompt"].as_str().unwrap_or_default().to_owned();
    let shown = prompt.strip_prefix("As ").and_then(|rest| rest.split("\n\n").next());
    assert_eq!(serde_json::from_str::<Value>(shown.unwrap()).unwrap(), example, "{prompt}");
    let prompt = output(head, &task("schema=\"mine\" ")).await["prompt"].to_string();
    assert!(prompt.starts_with("\"As mine"), "{prompt}");
}

#[tokio::test]
async fn a_table_of_drizzle_is_an_output() {
    let head = "const column = (dataType, more = {}) => ({ dataType, notNull: true, hasDefault: false, ...more });\n\
        const audit = { [Symbol.for(\"drizzle:Name\")]: \"audit\", [Symbol.for(\"drizzle:Columns\")]: {\n\
          runId: column(\"string\"), nodeId: column(\"string\"), status: column(\"string\", { enumValues: [\"ok\", \"bad\"] }),\n\
          count: column(\"number\", { notNull: false }) } };";
    let task = |value: &str| {
        format!(
            "<Sequence><Task id=\"t\" retries={{0}} output={{audit}}>{{() => ({value})}}</Task>\
                 <Task id=\"end\" output=\"output\">{{() => ctx.outputs(\"audit\")[0]}}</Task></Sequence>"
        )
    };
    assert_eq!(
        output(head, &task("{ status: \"ok\", count: 2 }")).await,
        json!({ "status": "ok", "count": 2 })
    );
    let world = World::new().await;
    let run = world.run(&flow(head, &task("{ status: \"other\" }")), json!({})).await;
    assert_eq!(run.error.unwrap()["code"], "INVALID_OUTPUT");
}

#[tokio::test]
async fn documents_are_prompts() {
    let world = World::new().await;
    world.write("prompts/job.mdx", "---\ntitle: Job\n---\n# {frontmatter.title}\n\nHelp {props.who}.\n\n```ts\nconst a = {};\n```\n");
    world.write("prompts/plain.md", "Say {props.what} { }.\n");
    let head = "import Job, { frontmatter } from \"./prompts/job.mdx\";\nimport Plain from \"./prompts/plain.md\";";
    let body = "<Task id=\"t\" output={outputs.output} agent={told}>\
                  <Job who=\"you\" /><Plain what={frontmatter.title} /></Task>";
    let run = world.run(&flow(head, body), json!({})).await;
    let prompt = "# Job\n\nHelp you.\n\n```ts\nconst a = {};\n```\nSay Job { }.\n";
    assert_eq!(run.output, Some(json!({ "prompt": prompt })), "{:?}", run.error);
    world.write("prompts/job.mdx", "one\n\n{props.\n");
    let file = world.write("flow.tsx", &flow(head, body));
    let problem = world.up(&file, json!({})).await.unwrap_err();
    assert!(problem.cause.unwrap_or_default().contains("prompts/job.mdx:3"), "no place");
}

#[tokio::test]
async fn attempts_use_one_agent_after_the_other() {
    let head = "const broken = { generate: async () => { throw new Error(\"no\"); } };\n\
                const retry = { retries: 3, retryPolicy: { backoff: \"fixed\", initialDelayMs: 1 } };";
    let body = "<Task id=\"t\" {...retry} output={outputs.output} agent={[broken, broken]} fallbackAgent={gives('{\"x\": 1}')}>hi</Task>";
    assert_eq!(output(head, body).await, json!({ "x": 1 }));
}

#[tokio::test]
async fn json_is_found_in_prose() {
    for text in [
        "Here: {\\\"x\\\": 1} done.",
        "First {\\\"x\\\": 0}. Then:\\n```json\\n{\\\"x\\\": 1}\\n```\\nDone.",
    ] {
        let body = format!(
            "<Task id=\"t\" output={{outputs.output}} agent={{gives(\"{text}\")}}>hi</Task>"
        );
        assert_eq!(output("", &body).await, json!({ "x": 1 }), "{text}");
    }
}

#[tokio::test]
async fn loops_need_no_name() {
    let body = "<Sequence>\
        <Loop until={ctx.outputs(outputs.a).length >= 2} maxIterations={4}><Task id=\"i\" output={outputs.a}>{() => ({ n: 1 })}</Task></Loop>\
        <Ralph until={ctx.outputs(outputs.b).length >= 3} maxIterations={4}><Task id=\"j\" output={outputs.b}>{() => ({ n: 1 })}</Task></Ralph>\
        <Task id=\"end\" output=\"output\">{() => ({ a: ctx.outputs(\"a\").length, b: ctx.outputs(\"b\").length })}</Task></Sequence>";
    assert_eq!(output("", body).await, json!({ "a": 2, "b": 3 }));
}

#[tokio::test]
async fn an_inner_loop_begins_again_in_each_round() {
    let body = "<Loop id=\"outer\" until={ctx.iterationCount(\"output\", \"o\") >= 2} maxIterations={3}><Sequence>\
          <Loop id=\"inner\" until={(ctx.latest(outputs.a, \"i\")?.n ?? 0) >= 2} maxIterations={6}>\
            <Task id=\"i\" output={outputs.a}>{() => ({ n: (ctx.latest(outputs.a, \"i\")?.n ?? 0) + 1 })}</Task></Loop>\
          <Task id=\"o\" output=\"output\" needs={{ last: \"i\" }}>{({ last }) => ({ \
             seen: ctx.latest(outputs.a, \"i\").n, last: last.n, count: ctx.iterationCount(outputs.a, \"i\"), \
             key: ctx.output(outputs.a, { nodeId: \"i\" }).n })}</Task></Sequence></Loop>";
    let row = json!({ "seen": 2, "last": 2, "count": 2, "key": 2 });
    assert_eq!(output("", body).await, json!([row, row]));
}

#[tokio::test]
async fn rows_know_their_task_and_json_does_not() {
    let body = "<Sequence><Task id=\"i\" output={outputs.a}>{() => ({ n: 1 })}</Task>\
        <Task id=\"end\" output=\"output\">{() => { const [row] = ctx.outputs(outputs.a); \
           return { id: row.nodeId, round: row.iteration, text: JSON.stringify(row), list: ctx.latestArray(\"[1, 2]\") }; }}</Task></Sequence>";
    let expected = json!({ "id": "i", "round": 0, "text": "{\"n\":1}", "list": [1, 2] });
    assert_eq!(output("", body).await, expected);
}

#[tokio::test]
async fn failures_have_reactions() {
    let boundary = |more: &str| {
        format!(
            "<Sequence><TryCatchFinally {more} \
               try={{<Sequence><Task id=\"x\" retries={{0}} output={{outputs.a}}>{{() => {{ throw Object.assign(new Error(\"no\"), {{ code: \"E_ONE\" }}); }}}}</Task>\
                    <Task id=\"never\" output={{outputs.a}}>{{() => ({{ n: 1 }})}}</Task></Sequence>}} \
               catch={{(error) => <Task id=\"c\" output={{outputs.b}}>{{() => ({{ code: error.code }})}}</Task>}} \
               finally={{<Task id=\"f\" output={{outputs.b}}>{{() => ({{ last: true }})}}</Task>}} />\
             <Task id=\"end\" output=\"output\">{{() => ({{ a: ctx.outputs(\"a\").length, b: ctx.outputs(\"b\") }})}}</Task></Sequence>"
        )
    };
    let expected = json!({ "a": 0, "b": [{ "code": "E_ONE" }, { "last": true }] });
    assert_eq!(output("", &boundary("")).await, expected);
    assert_eq!(output("", &boundary("catchErrors={[\"E_ONE\"]}")).await, expected);
    let world = World::new().await;
    let run = world.run(&flow("", &boundary("catchErrors={[\"E_TWO\"]}")), json!({})).await;
    let tasks: Vec<String> = world.tasks(&run).await.into_iter().map(|task| task.id).collect();
    assert_eq!((run.status, tasks), (RunStatus::Failed, vec!["x".to_owned(), "f".to_owned()]));
    assert_eq!(run.error.unwrap()["code"], "E_ONE");
}

#[tokio::test]
async fn a_saga_undoes_what_was_done() {
    let body = "<Sequence><Saga id=\"s\"><Saga.Step id=\"one\" compensation={<Task id=\"undo-one\" output={outputs.b}>{() => ({ undone: 1 })}</Task>}>\
           <Task id=\"one\" output={outputs.a}>{() => ({ n: 1 })}</Task></Saga.Step>\
         <Saga.Step id=\"two\" compensation={<Task id=\"undo-two\" output={outputs.b}>{() => ({ undone: 2 })}</Task>}>\
           <Task id=\"two\" output={outputs.a}>{() => ({ n: 2 })}</Task></Saga.Step>\
         <Saga.Step id=\"three\" compensation={<Task id=\"undo-three\" output={outputs.b}>{() => ({ undone: 3 })}</Task>}>\
           <Task id=\"three\" retries={0} output={outputs.a}>{() => { throw new Error(\"no\"); }}</Task></Saga.Step></Saga>\
         <Task id=\"end\" output=\"output\">{() => ctx.outputs(\"b\").map((row) => row.undone)}</Task></Sequence>";
    assert_eq!(output("", body).await, json!([2, 1]));
}

async fn decide(world: &World, run: &Run, task: &str, note: Option<&str>) {
    let (id, task, note) = (run.id.clone(), task.to_owned(), note.map(str::to_owned));
    let decision =
        Decide { id, task, approved: true, note, only: Vec::new(), allow_executed: false };
    world.workflows.decide(&world.caller, decision).await.unwrap();
}

#[tokio::test]
async fn a_person_answers_with_json_and_may_try_again() {
    let world = World::new().await;
    let body = "<HumanTask id=\"h\" output={outputs.output} prompt={<>What is <b>x</b>?</>} />";
    let run = world.run(&flow("", body), json!({})).await;
    assert_eq!(run.status, RunStatus::Waiting, "{run:?}");
    decide(&world, &run, "h", Some("no JSON")).await;
    world.until(&run, |tasks| tasks[0][2] == "waiting-approval").await;
    let refused = |events: &[Value]| events.iter().any(|event| event["type"] == "AnswerRefused");
    while !refused(&world.events(&run).await) {
        tokio::task::yield_now().await;
    }
    decide(&world, &run, "h", Some("{\"x\": 1}")).await;
    assert_eq!(world.ended(&run.id).await.output, Some(json!({ "x": 1 })));
}

#[tokio::test]
async fn what_waits_for_nobody_else_does_not_stop_the_rest() {
    let world = World::new().await;
    let body = "<Sequence><Approval id=\"ask\" async output={outputs.b} request={{ title: \"Go?\" }} />\
        <Task id=\"next\" output=\"output\">{() => ({ n: 1 })}</Task></Sequence>";
    let run = world.run(&flow("", body), json!({})).await;
    assert_eq!(run.status, RunStatus::Waiting, "{run:?}");
    let done = world.event_kinds(&run).await;
    assert!(done.iter().any(|task| task[0] == "next" && task[2] == "finished"), "{done:?}");
    decide(&world, &run, "ask", None).await;
    assert_eq!(world.ended(&run.id).await.status, RunStatus::Finished);
}

#[tokio::test]
async fn components_consist_of_tasks() {
    let review = "<Sequence><ReviewLoop id=\"r\" produceOutput={outputs.a} reviewOutput={outputs.b} maxIterations={4} \
            producer={{ generate: async ({ prompt }) => ({ again: prompt.includes(\"last review\") }) }} \
            reviewer={{ generate: async ({ prompt }) => ({ approved: prompt.includes('\"again\": true') }) }}>Write it.</ReviewLoop>\
         <Task id=\"end\" output=\"output\">{() => ({ rounds: ctx.outputs(\"b\").length })}</Task></Sequence>";
    assert_eq!(output("", review).await, json!({ "rounds": 2 }));
    let board = "<Sequence><Kanban id=\"k\" useTickets={() => [{ id: \"one\" }, { id: \"two\" }]} until={ctx.outputs(outputs.a).length >= 4} \
            columns={[{ name: \"do\", agent: gives({ n: 1 }), output: outputs.a }, { name: \"check\", agent: gives({ n: 2 }), output: outputs.a }]} />\
         <Task id=\"end\" output=\"output\">{() => ({ done: ctx.outputs(\"a\").length })}</Task></Sequence>";
    assert_eq!(output("", board).await, json!({ "done": 4 }));
    let panel = "<Panel id=\"p\" panelists={[gives({ v: 1 }), gives({ v: 2 })]} moderator={told} panelistOutput={outputs.a} moderatorOutput={outputs.output}>Vote.</Panel>";
    let prompt = output("", panel).await["prompt"].to_string();
    assert!(prompt.contains("\\\"v\\\": 1") && prompt.contains("\\\"v\\\": 2"), "{prompt}");
    let table = "<DecisionTable rules={[{ when: false, then: <Task id=\"x\" output=\"output\">{{ n: 1 }}</Task> }]} \
            default={<Task id=\"y\" output=\"output\">{{ n: 2 }}</Task>} />";
    assert_eq!(output("", table).await, json!({ "n": 2 }));
    let gate =
        "<ApprovalGate id=\"g\" when={false} output={outputs.output} request={{ title: \"x\" }} />";
    assert_eq!(output("", gate).await["approved"], true);
}

#[tokio::test]
async fn a_run_continues_as_a_new_one_with_a_state() {
    let world = World::new().await;
    let source = "import { createSmithers, ContinueAsNew, continueAsNew } from \"smithers-orchestrator\";\n\
        const { Workflow, Task, smithers, outputs } = createSmithers({\n\
          input: { type: \"object\", properties: { last: { type: \"number\" } }, additionalProperties: false }, output: {} });\n\
        export default smithers((ctx) => {\n\
          const count = ctx.input.__smithersContinuation?.payload?.count ?? 0;\n\
          return <Workflow name=\"w\">\n\
            <Task id=\"t\" output={outputs.output}>{() => ({ count, rows: ctx.outputs(outputs.output).length })}</Task>\n\
            {count === 0 && <ContinueAsNew state={{ count: 1 }} />}\n\
            {count > 0 && count < ctx.input.last && continueAsNew({ count: count + 1 })}\n\
            <Task id=\"after\" output={outputs.output}>{() => ({ end: count })}</Task></Workflow>; });\n";
    let file = world.write("flow.tsx", source);
    let run = world.up(&file, json!({ "last": 2 })).await.unwrap();
    let first = world.ended(&run.id).await;
    let tasks: Vec<String> = world.tasks(&first).await.into_iter().map(|task| task.id).collect();
    assert_eq!((first.status, tasks), (RunStatus::Finished, vec!["t".to_owned()]), "{first:?}");
    let third = format!("{}.3", run.id);
    assert_eq!(first.output, Some(json!({ "continuedAs": format!("{}.2", run.id) })));
    world.ended(&format!("{}.2", run.id)).await;
    let last = world.ended(&third).await;
    assert_eq!(last.output, Some(json!([{ "count": 2, "rows": 0 }, { "end": 2 }])), "{last:?}");
    assert_eq!((last.input["last"].as_u64(), &last.program), (Some(2), &first.program));
    let events = world.events(&last).await;
    assert_eq!(events[0]["continuedFrom"], format!("{}.2", run.id));
}

#[tokio::test]
async fn what_is_not_there_is_refused_by_its_name() {
    for (body, why) in [
        ("<all.Memory />", "<Memory> is not supported"),
        (
            "<Task id=\"t\" output=\"a\" agent={new all.AnthropicAgent({})}>hi</Task>",
            "the `model` of AnthropicAgent must be the name of a model",
        ),
        (
            "<Task id=\"t\" output=\"a\" agent={told} memory={{}}>hi</Task>",
            "`memory` is not supported",
        ),
        (
            "<Task id=\"t\" output=\"a\" agent={told} allowTools={[]}>hi</Task>",
            "`allowTools` is for ClaudeCodeAgent",
        ),
        (
            "<Task id=\"t\" output=\"a\" depsOptional={{}}>{{}}</Task>",
            "`depsOptional` is not supported",
        ),
        ("<Task id=\"t\" output=\"a\" priority={1}>{{}}</Task>", "`priority` is not supported"),
        (
            "<Task id=\"t\" output=\"a\" failurePolicy=\"halt\">{{}}</Task>",
            "`failurePolicy` is not supported",
        ),
        (
            "<Task id=\"t\" output=\"a\" maxSchemaRetries={2}>{{}}</Task>",
            "`maxSchemaRetries` is not supported",
        ),
        ("<Loop until={false} continueAsNewEvery={3} />", "`continueAsNewEvery` is not supported"),
        ("<Worktree path=\"w\" baseBranch={1} />", "`baseBranch`"),
        ("<ReviewLoop id=\"r\" />", "<ReviewLoop> needs `producer`"),
        ("<Kanban columns={[]} useTicket={() => []} />", "did you mean `useTickets`"),
        (
            "<Task id=\"t\" output=\"a\" agent={new all.KimiAgent({ thinkin: true })}>hi</Task>",
            "did you mean `thinking`",
        ),
        (
            "<Task id=\"t\" output=\"a\" agent={new all.PiAgent({ print: true, tools: [\"read\"], mode: \"tty\" })}>hi</Task>",
            "`mode` must be one of text, json, rpc",
        ),
        ("<all.Monitor />", "<Monitor> is not supported"),
        // The objects in attributes have no keys that are not known either.
        (
            "<all.CheckSuite id=\"c\" verdictOutput=\"a\" checks={[{ id: \"x\", agent: told, timeout: 1 }]} />",
            "a check of <CheckSuite> has no `timeout` — did you mean `timeoutMs`",
        ),
        (
            "<all.DecisionTable rules={[{ when: true, than: <Task id=\"t\" output=\"a\">{{}}</Task> }]} />",
            "did you mean `then`",
        ),
        (
            "<all.Saga steps={[{ id: \"s\", action: <Task id=\"t\" output=\"a\">{{}}</Task>, compensate: null }]} />",
            "did you mean `compensation`",
        ),
        (
            "<all.GatherAndSynthesize sources={{ s: { agnt: told } }} synthesizer={told} gatherOutput=\"a\" synthesisOutput=\"b\" />",
            "did you mean `agent`",
        ),
        ("<all.Absent />", "undefined is not an element"),
        ("<all.Branch if={true} then={<all.Absent />} />", "undefined is not an element"),
    ] {
        let message = fails("", body).await;
        assert!(message.contains(why), "{body}: {message}");
        // The options of an agent are read before there is an element.
        assert!(message.contains("flow.tsx:") || body.contains("new all."), "{message}");
    }
    let message = fails("import x from \"smithers-orchestrator/daytona\"; x();", "").await;
    assert!(message.contains("flow.tsx:") && message.contains("an engine on Node.js"), "{message}");
}
