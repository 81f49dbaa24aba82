// Providers that are built from a remote session, which has files and executes a command.
// All of them pass the input of the command and find its result in the same way.
import { checkKeys } from "stockade:keys";
import { SmithersError } from "stockade:smithers";

export const SANDBOX_PROVIDER_REQUEST_ENV = "SMITHERS_SANDBOX_REQUEST_PATH";
export const SANDBOX_PROVIDER_RESULT_ENV = "SMITHERS_SANDBOX_RESULT_PATH";

const REDACTED = "[redacted]";
const SECRET = /token|secret|key|password|passwd|credential|authorization/i;
const SHOWN_CHARACTERS = 500;
const CA_FILE = ".smithers/egress/ca.crt";

const invalid = (message) => new SmithersError("INVALID_INPUT", message);
const failed = (message, details) => new SmithersError("SANDBOX_EXECUTION_FAILED", message, details);

const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);

// The same value without the parts whose names indicate secrets.
export const redactSandboxProviderValue = (value, around = []) => {
  if (typeof value !== "object" || value === null) return value;
  if (around.includes(value)) return "[Circular]";
  const within = [...around, value];
  if (Array.isArray(value)) return value.map((item) => redactSandboxProviderValue(item, within));
  return Object.fromEntries(Object.entries(value).map(([name, item]) => [name, SECRET.test(name) ? REDACTED : redactSandboxProviderValue(item, within)]));
};

// The network configuration of a sandbox, without parts that may be secret.
const redactedEgress = (egress) => {
  if (!isObject(egress)) return undefined;
  const { env, caCertPath, secretBindings, ...rest } = egress;
  const redacted = Object.fromEntries(Object.entries(rest).filter(([, value]) => value !== undefined).map(([name]) => [name, REDACTED]));
  if (isObject(env)) redacted.env = Object.fromEntries(Object.keys(env).map((name) => [name, REDACTED]));
  if (caCertPath !== undefined) redacted.caCertPath = caCertPath;
  if (isObject(secretBindings)) redacted.secretBindings = Object.fromEntries(Object.keys(secretBindings).map((_, at) => [`binding_${at + 1}`, REDACTED]));
  return redacted;
};

// The variables with which a command connects to the network (upstream's names).
const egressEnvironment = (egress, workdir) => {
  if (!isObject(egress)) return {};
  const { env, httpProxy, httpsProxy, noProxy, caCertPem, caCertPath } = egress;
  const authority = caCertPath ?? (caCertPem === undefined ? undefined : absolute(workdir, CA_FILE));
  const all = {
    ...env,
    HTTP_PROXY: httpProxy,
    HTTPS_PROXY: httpsProxy,
    NO_PROXY: Array.isArray(noProxy) ? noProxy.join(",") : noProxy,
    NODE_EXTRA_CA_CERTS: authority,
  };
  return Object.fromEntries(Object.entries(all).filter(([, value]) => value !== undefined));
};

const absolute = (workdir, path) => (path.startsWith("/") ? path : `${workdir.replace(/\/+$/, "")}/${path}`);

// The values that must not be in a message: those whose names indicate secrets, and the network configuration.
const secretsOf = (environment = {}, egress) => {
  const named = Object.entries(environment).filter(([name]) => SECRET.test(name)).map(([, value]) => value);
  const bound = isObject(egress?.secretBindings) ? Object.entries(egress.secretBindings).flat() : [];
  const all = [...named, ...bound, ...Object.values(egress?.env ?? {}), egress?.httpProxy, egress?.httpsProxy, egress?.caCertPem];
  const texts = all.filter((value) => typeof value === "string" && value !== "");
  // The longest come first: one may be part of another.
  return texts.sort((one, other) => other.length - one.length);
};
const scrubbed = (text, secrets) => secrets.reduce((left, secret) => left.replaceAll(secret, REDACTED), text);

const cut = (text, longest) => (text.length > longest ? `${text.slice(0, longest)}… [truncated ${text.length - longest} chars]` : text);

// Parses the result of a command; missing ids are replaced by that of the session.
export const parseSandboxProviderResult = (raw, remoteId, { provider, resultPath, secrets = [] } = {}) => {
  const details = { provider, remoteId };
  const text = String(raw ?? "").trim();
  if (text === "") {
    throw failed(`Sandbox produced no result JSON: the command must write it to ${resultPath ?? "the result path"} (${SANDBOX_PROVIDER_RESULT_ENV}), or print it.`, details);
  }
  let result;
  try {
    result = JSON.parse(text);
  } catch (error) {
    throw failed(`Sandbox produced invalid result JSON: ${error.message}. Raw output: ${scrubbed(text, secrets).slice(0, SHOWN_CHARACTERS)}`, details);
  }
  if (!isObject(result)) throw failed("Sandbox result JSON must be an object.", details);
  if ("bundlePath" in result && "status" in result) throw failed("Sandbox result JSON must include either bundlePath or status, not both.", details);
  return {
    ...result,
    remoteRunId: result.remoteRunId ?? result.runId ?? remoteId,
    workspaceId: result.workspaceId ?? remoteId,
    containerId: result.containerId ?? remoteId,
  };
};

// Writes the parts of the request that the command may see.
export const writeSandboxProviderRequestFile = async (session, path, request) => {
  const { runId, sandboxId, input, config, allowNetwork, maxOutputBytes, egress } = request;
  const visible = { runId, sandboxId, input, config, allowNetwork, maxOutputBytes, egress: redactedEgress(egress) };
  await session.writeFile(path, JSON.stringify(visible, null, 2));
  return visible;
};

// Uploads the CA certificate of the egress proxy to the session; returns its path, or null.
export const uploadEgressCaToSession = async (session, egress, workdir) => {
  if (typeof egress?.caCertPem !== "string") return null;
  const path = absolute(workdir, CA_FILE);
  await session.writeFile(path, egress.caCertPem);
  return path;
};

export const createCommandSandboxProvider = (options) => {
  const id = typeof options?.id === "string" ? options.id.trim() : "";
  if (id === "") throw invalid("Command sandbox provider requires a non-empty id.");
  checkKeys("createCommandSandboxProvider()", options, ["id", "createSession", "command", "workdir", "requestFile", "resultFile", "env", "cleanup"]);
  const {
    createSession,
    command = "node /workspace/run-smithers-sandbox.js",
    workdir = "/workspace",
    requestFile = ".smithers/sandbox-request.json",
    resultFile = ".smithers/sandbox-result.json",
    env = {},
    cleanup = "destroy",
  } = options;
  if (typeof createSession !== "function") throw invalid("Command sandbox provider requires a createSession function.");
  if (typeof command !== "string" || command.trim() === "") throw invalid("Command sandbox provider command must not be empty.");
  if (cleanup !== "destroy" && cleanup !== "keep") throw invalid('Command sandbox provider cleanup must be "destroy" or "keep".');
  const requestPath = absolute(workdir, requestFile);
  const resultPath = absolute(workdir, resultFile);
  const sessions = new Map();
  const nameOf = ({ runId, sandboxId }) => `${runId}:${sandboxId}`;

  const run = async (request) => {
    const secrets = secretsOf(env, request.egress);
    const scrubbedError = (error) => failed(scrubbed(String(error?.message ?? error), secrets), { provider: id });
    const tried = async (work) => {
      try {
        return await work();
      } catch (error) {
        throw scrubbedError(error);
      }
    };
    const session = await tried(() => createSession(request));
    const { remoteId } = session;
    sessions.set(nameOf(request), session);
    const beat = (stage) => request.heartbeat({ sandboxId: request.sandboxId, stage: `${id}-${stage}`, remoteId });
    beat("session-created");
    await tried(async () => {
      await writeSandboxProviderRequestFile(session, requestPath, request);
      await uploadEgressCaToSession(session, request.egress, workdir);
    });
    beat("request-shipped");
    const environment = {
      ...env,
      ...egressEnvironment(request.egress, workdir),
      [SANDBOX_PROVIDER_REQUEST_ENV]: requestPath,
      [SANDBOX_PROVIDER_RESULT_ENV]: resultPath,
    };
    const ended = await tried(() => session.exec(command.trim(), { cwd: workdir, env: environment, timeoutMs: request.toolTimeoutMs, signal: request.signal }));
    const printed = String(ended?.stdout ?? "").trim();
    const exitCode = Number(ended?.exitCode ?? 0);
    // JSON on the standard output is the result, whatever the exit code is.
    const isPrinted = printed.startsWith("{");
    if (exitCode !== 0 && !isPrinted) {
      const said = cut(scrubbed(String(ended?.stderr || printed), secrets), request.maxOutputBytes);
      throw failed(`Sandbox command "${scrubbed(command.trim(), secrets)}" exited with code ${exitCode}: ${said}`, { provider: id, remoteId, exitCode });
    }
    const raw = isPrinted ? printed : await tried(() => session.readFile(resultPath));
    beat("result-read");
    return parseSandboxProviderResult(raw, remoteId, { provider: id, resultPath, secrets });
  };

  return {
    id,
    run,
    async cleanup(request) {
      const session = sessions.get(nameOf(request));
      sessions.delete(nameOf(request));
      if (cleanup === "destroy") await session?.destroy?.();
    },
  };
};
