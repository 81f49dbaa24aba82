// Agents that are programs of the command line, as `smithers-orchestrator` names them. What each is
// called with is the host's to know, by its adapter.

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

// What the host is told of an agent that is a command; undefined for one that is a function.
export const described = (given) => {
  if (typeof given === "string") return { adapter: given };
  if (typeof given !== "object" || given === null || typeof given.generate === "function") return undefined;
  return given.command === undefined && given.adapter === undefined ? undefined : { ...given };
};
