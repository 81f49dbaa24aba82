// Elements, the JSX runtime that creates them, and the components of workflows. An
// element is only stored here; its meaning is determined when a workflow is rendered.

export class Element {
  // `source` is its location in the source, as the JSX runtime receives it. `key` identifies it in a list.
  constructor(type, props, source, key) {
    this.type = type;
    this.props = props ?? {};
    this.source = source;
    this.key = key;
  }
}

export const Fragment = Symbol.for("stockade.fragment");

// The property with the host's name of the element that a component creates.
export const KIND = Symbol("kind");

export const placeOf = (source) =>
  source && { file: source.fileName, line: source.lineNumber, column: source.columnNumber };

export const jsx = (type, props, key, isStatic, source) => new Element(type, props, source, key);
export const jsxs = jsx;
export const jsxDEV = jsx;
export const createElement = (type, props, ...children) => {
  const all = children.length > 1 ? children : children[0];
  const { key, ...rest } = props ?? {};
  return new Element(type, all === undefined ? rest : { ...rest, children: all }, undefined, key);
};

const component = (kind) =>
  Object.assign((props) => new Element(`smithers:${kind}`, props), { [KIND]: kind });

export const Workflow = component("workflow");
export const Task = component("task");
export const Sequence = component("sequence");
export const Parallel = component("parallel");
export const MergeQueue = component("merge-queue");
export const Branch = component("branch");
export const Loop = component("loop");
export const Ralph = Loop;
export const Approval = component("approval");
export const Timer = component("timer");
export const Signal = component("signal");
export const WaitForEvent = component("wait-for-event");
export const Subflow = component("subflow");
export const Sandbox = component("sandbox");
export const HumanTask = component("human");
export const Worktree = component("worktree");
// The end of the run, and the start of another one with a state.
export const ContinueAsNew = component("continue-as-new");
// Elements with what is done after a failure in them, and in any case.
export const Boundary = component("boundary");
// A scope with budgets: what it contains is where it is.
export const Aspects = component("aspects");

// The nodes of FireFlow: operations on sandboxes with named ports.
export const SandboxCreateNode = component("SandboxCreateNode");
export const SandboxExecuteNode = component("SandboxExecuteNode");
export const SandboxExecuteStreamNode = component("SandboxExecuteStreamNode");
export const SandboxKillNode = component("SandboxKillNode");
export const SandboxPauseNode = component("SandboxPauseNode");
export const SandboxResumeNode = component("SandboxResumeNode");
export const SandboxRenewNode = component("SandboxRenewNode");
export const SandboxStatusNode = component("SandboxStatusNode");
export const SandboxSyncFromVFSNode = component("SandboxSyncFromVFSNode");
export const SandboxSyncToVFSNode = component("SandboxSyncToVFSNode");
export const SandboxWriteSecretFileNode = component("SandboxWriteSecretFileNode");
export const SandboxHttpRequestNode = component("SandboxHttpRequestNode");
export const SandboxHttpStreamNode = component("SandboxHttpStreamNode");
export const SandboxWebSocketNode = component("SandboxWebSocketNode");
export const SandboxStreamSplitterNode = component("SandboxStreamSplitterNode");

const PREFIX = "smithers:";

// The host's name of an element, also for `<smithers:task>`; undefined for other components.
export const kindOf = (type) => {
  if (typeof type === "function") return type[KIND];
  if (typeof type !== "string") return undefined;
  const kind = type.startsWith(PREFIX) ? type.slice(PREFIX.length) : type;
  return kind === "ralph" ? "loop" : kind;
};

// The elements that contain others. The children of all other elements are sent with them.
export const GROUPS = new Set(["workflow", "sequence", "parallel", "merge-queue", "loop", "branch", "worktree", "boundary"]);
