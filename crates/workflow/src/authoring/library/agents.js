// Agents: functions, objects with `generate`, models, and command-line programs. Programs have the names and
// options of `smithers-orchestrator`; the host's adapters define how each of them is called.
import { field, row } from "stockade:answers";
import { CONNECTION, UNSUPPORTED } from "stockade:models";
import { settingsOf } from "stockade:programs";
import { authorSchema } from "stockade:schemas";
import { SmithersError } from "stockade:smithers";

const invalid = (message) => new SmithersError("INVALID_INPUT", message);

const cli = (adapter, name) =>
  class {
    // A file that only makes an agent loads, whatever its options are; a task refuses invalid ones.
    constructor(options = {}) {
      try {
        Object.assign(this, settingsOf(adapter, name, options));
      } catch (error) {
        if (!(error instanceof SmithersError)) throw error;
        Object.defineProperty(this, UNSUPPORTED, { value: error.message });
      }
      Object.defineProperty(this, "id", { value: options.id ?? name });
    }
  };

export const AmpAgent = cli("amp", "AmpAgent");
export const AntigravityAgent = cli("antigravity", "AntigravityAgent");
export const ClaudeCodeAgent = cli("claude", "ClaudeCodeAgent");
export const CodexAgent = cli("codex", "CodexAgent");
export const CursorAgent = cli("cursor", "CursorAgent");
export const ForgeAgent = cli("forge", "ForgeAgent");
export const GeminiAgent = cli("gemini", "GeminiAgent");
export const HermesCliAgent = cli("hermes", "HermesCliAgent");
export const KimiAgent = cli("kimi", "KimiAgent");
export const OmpAgent = cli("omp", "OmpAgent");
export const OpenClawAgent = cli("openclaw", "OpenClawAgent");
export const OpenCodeAgent = cli("opencode", "OpenCodeAgent");
export const PiAgent = cli("pi", "PiAgent");
export const PoolAgent = cli("pool", "PoolAgent");
export const VibeAgent = cli("vibe", "VibeAgent");

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
  claude: (tools) => (tools.length === 0 ? ["--tools", ""] : ["--allowedTools", tools.join(",")]),
  gemini: (tools) => tools.flatMap((tool) => ["--allowed-tools", tool]),
  pi: (tools) => (tools.length === 0 ? ["--no-tools"] : ["--tools", tools.join(",")]),
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

// The tokens that an answer says were used; undefined if it does not say.
const used = (answer) => {
  const usage = field(answer, "totalUsage") ?? field(answer, "usage");
  const count = (...names) => names.map((name) => usage?.[name]).find((value) => Number.isFinite(value) && value >= 0 && value <= Number.MAX_SAFE_INTEGER);
  const [inputTokens, outputTokens] = [count("inputTokens", "promptTokens"), count("outputTokens", "completionTokens")];
  if (inputTokens === undefined && outputTokens === undefined) return undefined;
  return { inputTokens: Math.ceil(inputTokens ?? 0), outputTokens: Math.ceil(outputTokens ?? 0) };
};

// A function that asks an agent, and makes a row of its answer. `demand` is what the answer must be; `spent`
// is called with the tokens that were used, and `connect` with requests to models.
export const asking = (given, target) => async (prompt, demand, signal, heartbeat, spent, connect) => {
  const request = { prompt: prompt + demand, signal, abortSignal: signal, heartbeat, outputSchema: authorSchema(target), [CONNECTION]: connect };
  const answer = await callOf(given)(request);
  const usage = used(answer);
  if (usage !== undefined) spent?.(usage);
  return row(target, answer);
};

// The agents of a task, in the order in which its attempts use them.
export const agentsOf = ({ agent, fallbackAgent }) => {
  const all = Array.isArray(agent) ? agent : agent === undefined ? [] : [agent];
  return fallbackAgent === undefined ? all : [...all, ...[fallbackAgent].flat()];
};
