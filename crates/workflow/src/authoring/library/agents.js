// Agents that are command-line programs, under the names of `smithers-orchestrator`.
// The host's adapters define how each of them is called.

const cli = (adapter) =>
  class {
    constructor(options = {}) {
      const { extraArgs, ...rest } = options;
      Object.assign(this, { adapter }, rest, extraArgs === undefined ? {} : { args: extraArgs });
    }
  };

export const AmpAgent = cli("amp");
export const ClaudeCodeAgent = cli("claude");
export const CodexAgent = cli("codex");
export const ForgeAgent = cli("forge");
export const GeminiAgent = cli("gemini");
export const KimiAgent = cli("kimi");
export const OpenCodeAgent = cli("opencode");
export const PiAgent = cli("pi");

// The description of an agent that is a command, for the host; undefined for an agent that is a function.
export const described = (given) => {
  if (typeof given === "string") return { adapter: given };
  if (typeof given !== "object" || given === null || typeof given.generate === "function") return undefined;
  return given.command === undefined && given.adapter === undefined ? undefined : { ...given };
};
