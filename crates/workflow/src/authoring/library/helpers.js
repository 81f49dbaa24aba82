// Functions and values that upstream's files import beside the elements.
import { ContinueAsNew, Element } from "stockade:elements";
import { UNSUPPORTED } from "stockade:models";
import { SmithersError } from "stockade:smithers";

const text = { type: ["string", "null"] };
const schema = (properties, required) => ({ type: "object", properties, required });

// The decisions of <Approval>, as JSON Schema.
export const approvalDecisionSchema = schema({ approved: { type: "boolean" }, note: text, decidedBy: text, decidedAt: text }, ["approved"]);
export const approvalSelectionSchema = schema({ selected: { type: "string" }, notes: text }, ["selected"]);
export const approvalRankingSchema = schema({ ranked: { type: "array", items: { type: "string" } }, notes: text }, ["ranked"]);

const absent = (what, why) => {
  throw new SmithersError("UNSUPPORTED", `${what} is not supported: ${why}`);
};

// Tools are for agents that are models. Those of an author are called in the workflow's own process; the ones that work
// on files can be imported and listed there, but not be called.
export const defineTool = (definition) => {
  if (typeof definition?.execute !== "function") throw new SmithersError("INVALID_INPUT", "defineTool() requires an object with `execute`");
  return { ...definition };
};
const tool = (name, description) => ({
  name,
  description,
  [UNSUPPORTED]: "works on files and programs, which the process of a workflow file does not have: use an agent that is a command, such as ClaudeCodeAgent",
  execute: () => absent(`the tool ${name}`, "the process of a workflow file has no files and no programs; use <Sandbox command=…> or an agent that is a command"),
});
export const read = tool("read", "reads a file");
export const write = tool("write", "writes a file");
export const edit = tool("edit", "changes a file");
export const grep = tool("grep", "searches files");
export const bash = tool("bash", "runs a command");
export const tools = { read, write, edit, grep, bash };
export const readFileTool = read.execute;
export const writeFileTool = write.execute;
export const editFileTool = edit.execute;
export const grepTool = grep.execute;
export const bashTool = bash.execute;

// Prompts in .md and .mdx files are imported without a plugin.
export const mdxPlugin = () => {};

export const runWorkflow = () => absent("runWorkflow()", "runs are started by `stockade up`; use <Subflow> for a workflow in another one");
export const executeChildWorkflow = () => absent("executeChildWorkflow()", "use <Subflow>, or the function of this name in the request of a provider");
export const continueAsNew = (state) => new Element(ContinueAsNew, state === undefined ? {} : { state });
export const usePatched = () => absent("usePatched()", "`stockade resume --accept-workflow-change` continues a run with changed code");
