// Agents that are models over HTTP. The host sends their requests, to servers that the user has bound a secret to.
import { tell, textOf } from "stockade:host";
import { checkKeys } from "stockade:keys";
import { accepted, jsonSchema } from "stockade:schemas";
import { SmithersError } from "stockade:smithers";

const failure = (code, message) => new SmithersError(code, message);

// How often an agent asks its model for one answer.
const MAX_STEPS = 20;
// A model has to be told how much it may write.
const MAX_OUTPUT_TOKENS = 4096;
// How much of a refusal is in a message, in characters.
const REFUSAL = 500;

// The requests without an answer, by their numbers.
const waiting = new Map();
let last = 0;

// A function that sends requests for a call; it may be called while the call runs.
export const connection = (call, signal) => (request) => {
  signal.throwIfAborted();
  last += 1;
  const ask = last;
  const { promise, resolve, reject } = Promise.withResolvers();
  waiting.set(ask, { resolve, reject });
  const abandon = () => {
    waiting.delete(ask);
    reject(signal.reason);
  };
  signal.addEventListener("abort", abandon);
  tell(call, "model", textOf({ ask, request }));
  return promise.finally(() => signal.removeEventListener("abort", abandon));
};
export const modelAnswered = ({ ask, answer, failure: why }) => {
  const request = waiting.get(ask);
  waiting.delete(ask);
  if (why === undefined) request?.resolve(answer);
  else request?.reject(failure(why.code, why.message));
};

// What a request to an agent has beside its prompt: the function that sends requests to models.
export const CONNECTION = Symbol("connection");
// Why a task cannot use an agent or a tool.
export const UNSUPPORTED = Symbol("unsupported");

const sent = (values) => Object.fromEntries(Object.entries(values).filter(([, value]) => value !== undefined));
const inputSchema = ({ inputSchema: schema, schema: other, parameters }) => schema ?? other ?? parameters;
const described = (tools, form) => {
  const all = Object.entries(tools ?? {}).map(([name, tool]) => form(name, tool.description, jsonSchema(inputSchema(tool) ?? { type: "object" })));
  return all.length === 0 ? undefined : all;
};
const json = (text) => {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
};
const texts = (parts, kind) => (Array.isArray(parts) ? parts : []).filter((part) => part?.type === kind).map(({ text }) => text).join("");

// The interfaces of models. `first` is the conversation with a prompt, `body` the request, `read` what a response means,
// `next` the conversation after a response and the results of the tools that it calls.
const MESSAGES = {
  path: "/messages",
  scheme: "anthropic",
  first: (prompt) => [{ role: "user", content: prompt }],
  body: (options, messages) =>
    sent({
      model: options.model,
      max_tokens: options.maxOutputTokens ?? MAX_OUTPUT_TOKENS,
      system: options.instructions,
      messages,
      tools: described(options.tools, (name, description, input_schema) => sent({ name, description, input_schema })),
      temperature: options.temperature,
      top_p: options.topP,
      top_k: options.topK,
      stop_sequences: options.stopSequences,
    }),
  read: ({ content, usage }) => ({
    text: texts(content, "text"),
    calls: (content ?? []).filter((part) => part?.type === "tool_use").map(({ id, name, input }) => ({ id, name, input })),
    used: [usage?.input_tokens, usage?.output_tokens],
  }),
  next: (messages, { content }, results) => [
    ...messages,
    { role: "assistant", content },
    { role: "user", content: results.map(({ id, text, isError }) => sent({ type: "tool_result", tool_use_id: id, content: text, is_error: isError || undefined })) },
  ],
};
const RESPONSES = {
  path: "/responses",
  scheme: "bearer",
  first: (prompt) => [{ role: "user", content: prompt }],
  body: (options, input) =>
    sent({
      model: options.model,
      instructions: options.instructions,
      input,
      tools: described(options.tools, (name, description, parameters) => sent({ type: "function", name, description, parameters, strict: false })),
      max_output_tokens: options.maxOutputTokens,
      temperature: options.temperature,
      top_p: options.topP,
    }),
  read: ({ output, usage }) => ({
    text: (output ?? []).filter((item) => item?.type === "message").map((item) => texts(item.content, "output_text")).join(""),
    calls: (output ?? []).filter((item) => item?.type === "function_call").map((item) => ({ id: item.call_id, name: item.name, input: json(item.arguments) })),
    used: [usage?.input_tokens, usage?.output_tokens],
  }),
  next: (input, { output }, results) => [...input, ...output, ...results.map(({ id, text }) => ({ type: "function_call_output", call_id: id, output: text }))],
};
const CHAT = {
  path: "/chat/completions",
  scheme: "bearer",
  first: (prompt, { instructions }) => [...(instructions === undefined ? [] : [{ role: "system", content: instructions }]), { role: "user", content: prompt }],
  body: (options, messages) =>
    sent({
      model: options.model,
      messages,
      tools: described(options.tools, (name, description, parameters) => ({ type: "function", function: sent({ name, description, parameters }) })),
      max_tokens: options.maxOutputTokens,
      temperature: options.temperature,
      top_p: options.topP,
      presence_penalty: options.presencePenalty,
      frequency_penalty: options.frequencyPenalty,
      stop: options.stopSequences,
      seed: options.seed,
    }),
  read: ({ choices, usage }) => {
    const message = choices?.[0]?.message;
    return {
      text: message?.content ?? "",
      calls: (message?.tool_calls ?? []).map((call) => ({ id: call.id, name: call.function?.name, input: json(call.function?.arguments) })),
      used: [usage?.prompt_tokens, usage?.completion_tokens],
    };
  },
  next: (messages, { choices }, results) => [...messages, choices[0].message, ...results.map(({ id, text }) => ({ role: "tool", tool_call_id: id, content: text }))],
};

// The options that each interface has no field for.
const LACKS = { [MESSAGES.path]: ["presencePenalty", "frequencyPenalty", "seed"], [RESPONSES.path]: ["topK", "presencePenalty", "frequencyPenalty", "stopSequences", "seed"], [CHAT.path]: ["topK"] };
const OPTIONS = ["id", "model", "instructions", "system", "tools", "maxOutputTokens", "temperature", "topP", "topK", "presencePenalty", "frequencyPenalty", "stopSequences", "seed"];

// Calls a tool, and makes the text of its result.
const called = async (tools, { id, name, input }, signal) => {
  try {
    const tool = tools?.[name];
    if (tool === undefined) throw failure("INVALID_INPUT", `there is no tool ${name}`);
    const schema = inputSchema(tool);
    const value = schema === undefined ? input : await accepted(schema, input, "INVALID_INPUT");
    const result = await tool.execute(value, { toolCallId: id, abortSignal: signal });
    return { id, text: typeof result === "string" ? result : (textOf(result) ?? "null"), isError: false };
  } catch (error) {
    signal?.throwIfAborted();
    return { id, text: `error: ${error?.message ?? error}`, isError: true };
  }
};

// Why a model is not usable with these options; undefined if it is.
const why = (name, api, options) => {
  const { model, tools } = options;
  if (typeof model !== "string") return `the \`model\` of ${name} must be the name of a model: one of the package "ai" needs an engine on Node.js, which is planned`;
  if (options.instructions !== undefined && typeof options.instructions !== "string") return `\`instructions\` of ${name} must be a text`;
  if (options.apiKey !== undefined) return `${name} has no \`apiKey\` in a file: \`stockade up --secret NAME@HOST\` gives the key to the host only`;
  const lacking = LACKS[api.path].find((option) => options[option] !== undefined);
  if (lacking !== undefined) return `${name} has no \`${lacking}\`: ${api.path} has no such field`;
  for (const [tool, given] of Object.entries(tools ?? {})) {
    if (given?.[UNSUPPORTED] !== undefined) return `the tool \`${tool}\` ${given[UNSUPPORTED]}`;
    if (typeof given?.execute !== "function") return `the tool \`${tool}\` of ${name} has no \`execute\``;
  }
  return undefined;
};

// An agent class. A file that only makes such an agent loads, whatever its options are; a task refuses invalid ones.
const model = (name, { secret, base, variable, api: standard, extra = [], defaults = {} }) =>
  class {
    #options;
    #api;

    constructor(options = {}) {
      const { system, api, nativeStructuredOutput, ...rest } = options;
      // The schema is in the prompt of every agent, and its answer is checked.
      this.#options = sent({ ...defaults, ...rest, instructions: rest.instructions ?? system });
      this.#api = api === undefined ? standard : { chat: CHAT, responses: RESPONSES }[api];
      this.id = options.id ?? name;
    }

    get [UNSUPPORTED]() {
      try {
        checkKeys(`new ${name}()`, this.#options, [...OPTIONS, "apiKey", ...extra]);
      } catch (error) {
        return error.message;
      }
      if (this.#api === undefined) return `\`api\` of ${name} must be "chat" or "responses"`;
      if (this.#url === undefined) return `${name} needs \`baseURL\`, or the variable ${variable} (\`stockade up --env\`)`;
      return why(name, this.#api, this.#options);
    }

    get #url() {
      const url = this.#options.baseURL ?? process.env[variable] ?? base;
      return url === undefined ? undefined : `${url.replace(/\/+$/, "")}${this.#api.path}`;
    }

    async generate(request = {}) {
      const connect = request[CONNECTION];
      if (connect === undefined) throw failure("AGENT_CONFIG_INVALID", `${name} can be asked only as the \`agent\` of a task`);
      const unusable = this[UNSUPPORTED];
      if (unusable !== undefined) throw failure("AGENT_CONFIG_INVALID", unusable);
      const [options, api, usage] = [this.#options, this.#api, { inputTokens: 0, outputTokens: 0 }];
      let conversation = api.first(request.prompt, options);
      for (let step = 0; step < MAX_STEPS; step += 1) {
        const body = textOf(api.body(options, conversation));
        const { status, body: text } = await connect({ secret, url: this.#url, scheme: api.scheme, body });
        const response = json(text);
        if (status < 200 || status > 299 || response === undefined || response === null) {
          const isFinal = status >= 400 && status < 500 && status !== 408 && status !== 409 && status !== 429;
          const told = response?.error?.message ?? text.slice(0, REFUSAL);
          throw failure(isFinal ? "AGENT_CONFIG_INVALID" : "AGENT_REQUEST_FAILED", `${name} got the answer ${status}: ${told}`);
        }
        const { text: answer, calls, used } = api.read(response);
        usage.inputTokens += used[0] ?? 0;
        usage.outputTokens += used[1] ?? 0;
        if (calls.length === 0) return { text: answer, usage };
        const results = [];
        for (const call of calls) results.push(await called(options.tools, call, request.abortSignal));
        conversation = api.next(conversation, response, results);
      }
      throw failure("AGENT_REQUEST_FAILED", `${name} has called tools ${MAX_STEPS} times without an answer`);
    }
  };

export const AnthropicAgent = model("AnthropicAgent", { secret: "ANTHROPIC_API_KEY", base: "https://api.anthropic.com/v1", variable: "ANTHROPIC_BASE_URL", api: MESSAGES });
export const OpenAIAgent = model("OpenAIAgent", { secret: "OPENAI_API_KEY", base: "https://api.openai.com/v1", variable: "OPENAI_BASE_URL", api: RESPONSES, extra: ["baseURL"] });
export const HermesAgent = model("HermesAgent", { secret: "HERMES_API_KEY", variable: "HERMES_BASE_URL", api: CHAT, extra: ["baseURL"], defaults: { model: "hermes" } });
