// Agents: functions, objects with `generate`, and command-line programs. Programs have the names and
// options of `smithers-orchestrator`; the host's adapters define how each of them is called.
import { checkKeys } from "stockade:keys";
import { row } from "stockade:answers";
import { authorSchema } from "stockade:schemas";
import { SmithersError } from "stockade:smithers";

const invalid = (message) => new SmithersError("INVALID_INPUT", message);

const flag = (name) => (value) => (value === true ? [name] : []);
const word = (name) => (value) => [name, String(value)];
const each = (name) => (value) => [value].flat().flatMap((item) => [name, String(item)]);
const list = (name) => (value) => [name, [value].flat().join(",")];
const pairs = (name) => (value) => {
  if (Array.isArray(value)) return value.flatMap((item) => [name, String(item)]);
  return Object.entries(value).flatMap(([key, item]) => [name, `${key}=${typeof item === "string" ? item : JSON.stringify(item)}`]);
};
// An option that a command in a sandbox has in any case.
const always = (value, name) => {
  if (value === true) return [];
  throw invalid(`\`${name}\` can only be true: a command in a sandbox cannot ask a person`);
};
const none = () => [];
// How the program and its caller exchange text. Here an answer is always read as text.
const exchange = (...known) => (value, name) => {
  if (known.includes(value)) return [];
  throw invalid(`\`${name}\` must be one of ${known.join(", ")}`);
};

// The options that every program has.
const COMMON = {
  id: none,
  model: undefined,
  systemPrompt: undefined,
  instructions: undefined,
  env: undefined,
  timeoutMs: undefined,
  image: undefined,
  args: undefined,
  extraArgs: undefined,
  yolo: always,
  cwd: (value) => {
    if (value === process.cwd() || value === ".") return [];
    throw invalid(`\`cwd\` can only be process.cwd(): an agent works on the project, not in ${JSON.stringify(value)}`);
  },
};

// The options of each program, as arguments of its command line.
const PROGRAMS = {
  amp: { visibility: word("--visibility"), mcpConfig: word("--mcp-config"), settingsFile: word("--settings-file"), dangerouslyAllowAll: always },
  claude: {
    addDir: each("--add-dir"),
    agent: word("--agent"),
    allowDangerouslySkipPermissions: always,
    disableSlashCommands: flag("--disable-slash-commands"),
    jsonSchema: word("--json-schema"),
    noChrome: flag("--no-chrome"),
    noSessionPersistence: flag("--no-session-persistence"),
    outputFormat: exchange("text", "json", "stream-json"),
    pluginDir: each("--plugin-dir"),
    settingSources: word("--setting-sources"),
    agents: (value) => ["--agents", JSON.stringify(value)],
    allowedTools: list("--allowedTools"),
    disallowedTools: list("--disallowedTools"),
    tools: list("--tools"),
    appendSystemPrompt: word("--append-system-prompt"),
    betas: each("--betas"),
    dangerouslySkipPermissions: always,
    fallbackModel: word("--fallback-model"),
    maxBudgetUsd: word("--max-budget-usd"),
    maxTurns: word("--max-turns"),
    mcpConfig: each("--mcp-config"),
    permissionMode: word("--permission-mode"),
    settings: word("--settings"),
    strictMcpConfig: flag("--strict-mcp-config"),
    verbose: flag("--verbose"),
  },
  codex: {
    addDir: each("--add-dir"),
    config: pairs("--config"),
    dangerouslyBypassApprovalsAndSandbox: always,
    disable: each("--disable"),
    enable: each("--enable"),
    fullAuto: always,
    image: undefined,
    json: exchange(true, false),
    localProvider: word("--local-provider"),
    outputSchema: word("--output-schema"),
    oss: flag("--oss"),
    profile: word("--profile"),
    skipGitRepoCheck: always,
  },
  forge: { agent: word("--agent"), workflow: word("--workflow"), verbose: flag("--verbose"), provider: word("--provider") },
  gemini: {
    allowedMcpServerNames: each("--allowed-mcp-server-names"),
    allowedTools: each("--allowed-tools"),
    outputFormat: exchange("text", "json", "stream-json"),
    screenReader: flag("--screen-reader"),
    approvalMode: word("--approval-mode"),
    debug: flag("--debug"),
    extensions: each("--extensions"),
    includeDirectories: each("--include-directories"),
    sandbox: flag("--sandbox"),
  },
  kimi: {
    agent: word("--agent"),
    agentFile: word("--agent-file"),
    finalMessageOnly: always,
    debug: flag("--debug"),
    maxRetriesPerStep: word("--max-retries-per-step"),
    mcpConfig: each("--mcp-config"),
    outputFormat: exchange("text", "stream-json"),
    quiet: always,
    skillsDir: word("--skills-dir"),
    maxRalphIterations: word("--max-ralph-iterations"),
    maxStepsPerTurn: word("--max-steps-per-turn"),
    mcpConfigFile: each("--mcp-config-file"),
    thinking: (value) => [value ? "--thinking" : "--no-thinking"],
    verbose: flag("--verbose"),
  },
  opencode: { agentName: word("--agent"), variant: word("--variant") },
  pi: {
    appendSystemPrompt: word("--append-system-prompt"),
    mode: exchange("text", "json", "rpc"),
    models: list("--models"),
    noPromptTemplates: flag("--no-prompt-templates"),
    noSkills: flag("--no-skills"),
    noThemes: flag("--no-themes"),
    print: always,
    promptTemplate: each("--prompt-template"),
    theme: each("--theme"),
    verbose: flag("--verbose"),
    extension: each("--extension"),
    noExtensions: flag("--no-extensions"),
    noSession: flag("--no-session"),
    noTools: flag("--no-tools"),
    provider: word("--provider"),
    skill: each("--skill"),
    thinking: word("--thinking"),
    tools: list("--tools"),
  },
};

const cli = (adapter, name) =>
  class {
    constructor(options = {}) {
      const known = { ...COMMON, ...PROGRAMS[adapter] };
      checkKeys(`new ${name}()`, options, Object.keys(known));
      const { id, model, systemPrompt, instructions, env, timeoutMs, image, args = [], extraArgs = [] } = options;
      const given = Object.entries(options).filter(([key, value]) => value !== undefined && known[key] !== undefined);
      const all = [...given.flatMap(([key, value]) => known[key](value, key)), ...args, ...extraArgs];
      const system = [systemPrompt, instructions].filter((text) => text !== undefined).join("\n\n");
      const settings = { adapter, model, env, timeoutMs, image, systemPrompt: system === "" ? undefined : system, args: all.length === 0 ? undefined : all };
      Object.assign(this, Object.fromEntries(Object.entries(settings).filter(([, value]) => value !== undefined)));
      Object.defineProperty(this, "id", { value: id ?? name });
    }
  };

export const AmpAgent = cli("amp", "AmpAgent");
export const ClaudeCodeAgent = cli("claude", "ClaudeCodeAgent");
export const CodexAgent = cli("codex", "CodexAgent");
export const ForgeAgent = cli("forge", "ForgeAgent");
export const GeminiAgent = cli("gemini", "GeminiAgent");
export const KimiAgent = cli("kimi", "KimiAgent");
export const OpenCodeAgent = cli("opencode", "OpenCodeAgent");
export const PiAgent = cli("pi", "PiAgent");

const UNSUPPORTED = Symbol("unsupported");

// An agent that needs the network of the host. Its file loads; a task cannot use it.
const remote = (name) =>
  class {
    get [UNSUPPORTED]() {
      return `${name} calls a model over the network from the workflow's own process, which has no network: an engine on Node.js is planned; use an agent that is a command, such as ClaudeCodeAgent`;
    }
  };

export const AnthropicAgent = remote("AnthropicAgent");
export const OpenAIAgent = remote("OpenAIAgent");
export const HermesAgent = remote("HermesAgent");

// Why a task cannot use an agent; undefined if it can.
export const unsupported = (given) => (typeof given === "object" && given !== null ? given[UNSUPPORTED] : undefined);

// The description of an agent that is a command, for the host; undefined for an agent that is a function.
export const described = (given) => {
  if (typeof given === "string") return { adapter: given };
  if (typeof given !== "object" || given === null || typeof given.generate === "function") return undefined;
  return given.command === undefined && given.adapter === undefined ? undefined : { ...given };
};

// The arguments with which a program gets only the tools that a task allows.
const ALLOWED = {
  claude: (tools) => (tools.length === 0 ? ["--tools", ""] : list("--allowedTools")(tools)),
  gemini: each("--allowed-tools"),
  pi: (tools) => (tools.length === 0 ? ["--no-tools"] : list("--tools")(tools)),
};

// An agent that is a command, with only these tools.
export const withTools = (command, tools) => {
  if (tools === undefined) return command;
  const allowed = ALLOWED[command?.adapter];
  if (allowed === undefined) throw invalid("`allowTools` is for ClaudeCodeAgent, GeminiAgent and PiAgent");
  if (!Array.isArray(tools)) throw invalid("`allowTools` is a list of names of tools");
  if (tools.length === 0 && command.adapter === "gemini") throw invalid("`allowTools` cannot be empty for GeminiAgent: it has no option for that");
  return { ...command, args: [...(command.args ?? []), ...allowed(tools)] };
};

const callOf = (given) => {
  if (typeof given === "function") return given;
  return typeof given?.generate === "function" ? (request) => given.generate(request) : undefined;
};

export const isFunction = (given) => callOf(given) !== undefined;

// A function that asks an agent, and makes a row of its answer. `demand` is what the answer must be.
export const asking = (given, target) => async (prompt, demand, signal, heartbeat) => {
  const request = { prompt: prompt + demand, signal, abortSignal: signal, heartbeat, outputSchema: authorSchema(target) };
  return row(target, await callOf(given)(request));
};

// The agents of a task, in the order in which its attempts use them.
export const agentsOf = ({ agent, fallbackAgent }) => {
  const all = Array.isArray(agent) ? agent : agent === undefined ? [] : [agent];
  return fallbackAgent === undefined ? all : [...all, ...[fallbackAgent].flat()];
};
