// The options of agents that are command-line programs, under the names of `smithers-orchestrator`, as
// arguments and variables of their commands. An option that a command in a sandbox cannot have is refused
// with the reason.
import { checkKeys } from "stockade:keys";
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
const none = () => [];
// An option that has one of these values, none of which changes anything here.
const only = (why, ...known) => (value, name) => {
  if (known.includes(value)) return [];
  throw invalid(`\`${name}\` can only be ${known.map((one) => JSON.stringify(one)).join(" or ")}: ${why}`);
};
// An option that a command in a sandbox has in any case.
const always = only("a command in a sandbox cannot ask a person", true);
// How the program and its caller exchange text. Here an answer is always read as text.
const exchange = (...known) => (value, name) => {
  if (known.includes(value)) return [];
  throw invalid(`\`${name}\` must be one of ${known.join(", ")}`);
};
// An option that is not supported here. `false` and an empty list request nothing.
const refused = (why) => (value, name) => {
  if (value === false || value?.length === 0) return [];
  throw invalid(`\`${name}\` is not supported: ${why}`);
};
const session = refused("each attempt starts a session of its own");
const operation = refused("it is no work for a task");
const screen = refused("a sandbox has no screen and no editor");
const directory = (value, name) => {
  if (value === process.cwd() || value === ".") return [];
  throw invalid(`\`${name}\` can only be process.cwd(): an agent works on the project, not in ${JSON.stringify(value)}`);
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
  cwd: directory,
  configDir: refused("a sandbox has no files of your home directory: pass a key with `apiKey` or `env`"),
  idleTimeoutMs: refused("use timeoutMs"),
  inheritEnv: only("a command in a sandbox has no variables but those of `env`", false),
  maxOutputBytes: undefined,
};

// The variable with the key of a program's account.
const KEYS = {
  antigravity: "GEMINI_API_KEY",
  claude: "ANTHROPIC_API_KEY",
  codex: "OPENAI_API_KEY",
  cursor: "CURSOR_API_KEY",
  gemini: "GEMINI_API_KEY",
};

// The options of each program, as arguments of its command line.
const PROGRAMS = {
  amp: {
    visibility: word("--visibility"),
    mcpConfig: word("--mcp-config"),
    settingsFile: word("--settings-file"),
    logLevel: word("--log-level"),
    logFile: word("--log-file"),
    ide: screen,
    jetbrains: screen,
    resume: session,
    dangerouslyAllowAll: always,
  },
  antigravity: {
    allowedMcpServerNames: each("--allowed-mcp-server-names"),
    allowedTools: each("--allowed-tools"),
    dangerouslySkipPermissions: always,
    includeDirectories: each("--add-dir"),
    sandbox: flag("--sandbox"),
    binary: refused("describe another program as an adapter"),
    geminiDir: refused("a sandbox has no files of your home directory: pass a key with `apiKey` or `env`"),
    continue: session,
    conversation: session,
    resume: session,
  },
  claude: {
    addDir: each("--add-dir"),
    agent: word("--agent"),
    agents: (value) => ["--agents", typeof value === "string" ? value : JSON.stringify(value)],
    allowDangerouslySkipPermissions: always,
    allowedTools: list("--allowedTools"),
    appendSystemPrompt: word("--append-system-prompt"),
    betas: each("--betas"),
    chrome: screen,
    continue: session,
    dangerouslySkipPermissions: always,
    debug: (value) => (typeof value === "string" ? ["--debug", value] : flag("--debug")(value)),
    debugFile: word("--debug-file"),
    disableSlashCommands: flag("--disable-slash-commands"),
    disallowedTools: list("--disallowedTools"),
    fallbackModel: word("--fallback-model"),
    file: each("--file"),
    forkSession: session,
    fromPr: session,
    ide: screen,
    includePartialMessages: only("only the answer is read", false),
    inputFormat: exchange("text"),
    jsonSchema: word("--json-schema"),
    maxBudgetUsd: word("--max-budget-usd"),
    maxTurns: word("--max-turns"),
    mcpConfig: each("--mcp-config"),
    mcpDebug: flag("--mcp-debug"),
    noChrome: flag("--no-chrome"),
    noSessionPersistence: flag("--no-session-persistence"),
    outputFormat: exchange("text", "json", "stream-json"),
    permissionMode: word("--permission-mode"),
    pluginDir: each("--plugin-dir"),
    replayUserMessages: only("only the answer is read", false),
    resume: session,
    sessionId: session,
    settingSources: word("--setting-sources"),
    settings: word("--settings"),
    strictMcpConfig: flag("--strict-mcp-config"),
    tools: list("--tools"),
    verbose: flag("--verbose"),
  },
  codex: {
    addDir: each("--add-dir"),
    cd: directory,
    color: word("--color"),
    config: pairs("--config"),
    dangerouslyBypassApprovalsAndSandbox: always,
    disable: each("--disable"),
    enable: each("--enable"),
    // `codex exec` never asks for an approval.
    fullAuto: exchange(true, false),
    image: undefined,
    json: exchange(true, false),
    localProvider: word("--local-provider"),
    // The schema is in the prompt of every agent, and its answer is checked.
    nativeStructuredOutput: exchange(true, false),
    oss: flag("--oss"),
    outputLastMessage: refused("the answer is the output of the task"),
    outputSchema: word("--output-schema"),
    profile: word("--profile"),
    // The sandbox around it confines it to the project, and its changes wait for a decision. "read-only" is another adapter.
    sandbox: exchange("read-only", "workspace-write", "danger-full-access"),
    skipGitRepoCheck: always,
  },
  cursor: {
    approveMcps: flag("--approve-mcps"),
    autoReview: flag("--auto-review"),
    continueSession: session,
    force: always,
    header: each("--header"),
    mode: word("--mode"),
    plan: (value) => (value === true ? ["--mode", "plan"] : []),
    pluginDir: each("--plugin-dir"),
    resume: session,
    sandbox: word("--sandbox"),
    skipWorktreeSetup: only("there is no worktree to set up", true),
    streamPartialOutput: only("only the answer is read", false),
    trust: always,
    workspace: directory,
    worktree: refused("use <Worktree>"),
    worktreeBase: refused("use <Worktree>"),
  },
  forge: {
    agent: word("--agent"),
    conversation: session,
    conversationId: session,
    directory,
    event: word("--event"),
    provider: word("--provider"),
    restricted: flag("--restricted"),
    sandbox: refused("use <Worktree>"),
    verbose: flag("--verbose"),
    workflow: word("--workflow"),
  },
  gemini: {
    allowedMcpServerNames: each("--allowed-mcp-server-names"),
    allowedTools: each("--allowed-tools"),
    approvalMode: word("--approval-mode"),
    debug: flag("--debug"),
    deleteSession: operation,
    experimentalAcp: refused("an answer is read from the output"),
    extensions: each("--extensions"),
    includeDirectories: each("--include-directories"),
    listExtensions: operation,
    listSessions: operation,
    outputFormat: exchange("text", "json", "stream-json"),
    resume: session,
    sandbox: flag("--sandbox"),
    screenReader: flag("--screen-reader"),
  },
  hermes: { continueSession: session, provider: word("--provider") },
  kimi: {
    agent: word("--agent"),
    agentFile: word("--agent-file"),
    continue: session,
    debug: flag("--debug"),
    finalMessageOnly: always,
    maxRalphIterations: word("--max-ralph-iterations"),
    maxRetriesPerStep: word("--max-retries-per-step"),
    maxStepsPerTurn: word("--max-steps-per-turn"),
    mcpConfig: each("--mcp-config"),
    mcpConfigFile: each("--mcp-config-file"),
    outputFormat: exchange("text", "stream-json"),
    quiet: always,
    session,
    skillsDir: word("--skills-dir"),
    thinking: (value) => [value ? "--thinking" : "--no-thinking"],
    verbose: flag("--verbose"),
    workDir: directory,
  },
  omp: {
    appendSystemPrompt: word("--append-system-prompt"),
    approvalMode: word("--approval-mode"),
    autoApprove: always,
    continueSession: session,
    extensions: each("--extension"),
    hideThinking: flag("--hide-thinking"),
    hooks: each("--hook"),
    maxTime: word("--max-time"),
    mode: exchange("text", "json", "rpc"),
    noExtensions: flag("--no-extensions"),
    noSession: flag("--no-session"),
    noSkills: flag("--no-skills"),
    noTools: flag("--no-tools"),
    print: always,
    printThoughts: only("only the answer is read", false),
    provider: word("--provider"),
    resume: session,
    sessionDir: session,
    skills: list("--skills"),
    thinking: word("--thinking"),
    tools: list("--tools"),
  },
  openclaw: {
    agent: word("--agent"),
    continueSession: session,
    json: exchange(true, false),
    session,
    sessionId: session,
    workspace: directory,
  },
  opencode: {
    agentName: word("--agent"),
    attachFiles: each("--file"),
    continueSession: session,
    sessionId: session,
    variant: word("--variant"),
  },
  pi: {
    appendSystemPrompt: word("--append-system-prompt"),
    continue: session,
    export: operation,
    extension: each("--extension"),
    files: (value) => [value].flat().map((file) => `@${file}`),
    listModels: operation,
    mode: exchange("text", "json", "rpc"),
    models: list("--models"),
    noExtensions: flag("--no-extensions"),
    noPromptTemplates: flag("--no-prompt-templates"),
    noSession: flag("--no-session"),
    noSkills: flag("--no-skills"),
    noThemes: flag("--no-themes"),
    noTools: flag("--no-tools"),
    onExtensionUiRequest: screen,
    print: always,
    promptTemplate: each("--prompt-template"),
    provider: word("--provider"),
    resume: session,
    session,
    sessionDir: session,
    skill: each("--skill"),
    theme: each("--theme"),
    thinking: word("--thinking"),
    tools: list("--tools"),
    verbose: flag("--verbose"),
  },
  pool: { agentName: word("-a"), continue: session, resume: session, resumeSession: session, sandbox: word("--sandbox") },
  vibe: {
    agent: word("--agent"),
    continueSession: session,
    enabledTools: each("--enabled-tools"),
    maxPrice: word("--max-price"),
    maxTokens: word("--max-tokens"),
    maxTurns: word("--max-turns"),
    sessionId: session,
  },
};

// What the host needs of the options of a program: the adapter, its arguments, and its environment.
export const settingsOf = (adapter, name, options) => {
  const known = { ...COMMON, ...PROGRAMS[adapter] };
  const key = KEYS[adapter];
  checkKeys(`new ${name}()`, options, [...Object.keys(known), ...(key === undefined ? [] : ["apiKey"])]);
  const { model, systemPrompt, instructions, timeoutMs, maxOutputBytes, image, apiKey, args = [], extraArgs = [] } = options;
  const given = Object.entries(options).filter(([option, value]) => value !== undefined && known[option] !== undefined);
  const all = [...given.flatMap(([option, value]) => known[option](value, option)), ...args, ...extraArgs];
  const system = [systemPrompt, instructions].filter((text) => text !== undefined).join("\n\n");
  const env = apiKey === undefined ? options.env : { [key]: apiKey, ...options.env };
  const isReader = adapter === "codex" && options.sandbox === "read-only";
  const settings = { adapter: isReader ? "codex-read-only" : adapter, model, env, timeoutMs, maxOutputBytes, image, systemPrompt: system === "" ? undefined : system, args: all.length === 0 ? undefined : all };
  return Object.fromEntries(Object.entries(settings).filter(([, value]) => value !== undefined));
};
