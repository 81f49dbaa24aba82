// The answers of agents: the JSON in them, also between other text.
import { SmithersError } from "stockade:smithers";
import { accepted, isParsed } from "stockade:schemas";

// How many characters are read at most while JSON is searched.
const MAX_STEPS = 8_000_000;
const CLOSING = { "{": "}", "[": "]" };

const json = (text) => {
  try {
    return { value: JSON.parse(text) };
  } catch {
    return undefined;
  }
};

// The end of the object or list that begins here.
const endOf = (text, start, steps) => {
  const open = [];
  let isQuoted = false;
  for (let at = start; at < text.length; at += 1) {
    if ((steps.left -= 1) < 0) return undefined;
    const character = text[at];
    if (isQuoted) {
      if (character === "\\") at += 1;
      else if (character === '"') isQuoted = false;
    } else if (character === '"') isQuoted = true;
    else if (character === "{" || character === "[") open.push(CLOSING[character]);
    else if (character === "}" || character === "]") {
      if (open.pop() !== character) return undefined;
      if (open.length === 0) return at + 1;
    }
  }
  return undefined;
};

// The objects and lists in a text, in order.
const within = (text) => {
  const found = [];
  const steps = { left: MAX_STEPS };
  for (let at = 0; at < text.length; at += 1) {
    if (text[at] !== "{" && text[at] !== "[") continue;
    const end = endOf(text, at, steps);
    const part = end === undefined ? undefined : json(text.slice(at, end));
    if (part === undefined) continue;
    found.push(part.value);
    at = end - 1;
  }
  return found;
};

const FENCED = /```[\w-]*[^\n]*\n([\s\S]*?)\n\s*```/g;

// What an answer may mean, the most likely first.
const candidates = (text) => {
  const whole = json(text);
  if (whole !== undefined) return [whole.value];
  const fenced = [...text.matchAll(FENCED)].map(([, inner]) => json(inner)).filter((found) => found !== undefined);
  const objects = within(text);
  const isMap = (value) => !Array.isArray(value);
  const listed = [...objects.filter((value) => !isMap(value)), ...objects.filter(isMap)];
  return [...fenced.map(({ value }) => value).reverse(), ...listed.reverse()];
};

// The value in a text that is most likely meant; undefined if there is none.
export const objectIn = (text) => candidates(text)[0];

// A part of an answer; undefined if it has no such part.
export const field = (answer, name) => {
  try {
    return answer?.[name];
  } catch {
    // The libraries of models throw for a part that an answer does not have.
    return undefined;
  }
};

// The answer of an agent as the author's schema makes it: what it gives as a value, or the JSON in its text.
export const row = async (target, answer) => {
  const isMap = typeof answer === "object" && answer !== null;
  const found = (isMap ? (field(answer, "object") ?? field(answer, "output") ?? field(answer, "text")) : undefined) ?? answer;
  if (typeof found !== "string") return accepted(target, found, "INVALID_OUTPUT");
  const options = candidates(found);
  let failure;
  for (const option of options) {
    try {
      return await accepted(target, option, "INVALID_OUTPUT");
    } catch (error) {
      failure ??= error;
    }
  }
  if (failure !== undefined) throw failure;
  if (isParsed(target)) {
    // The schema may be that of a text.
    const whole = await accepted(target, found, "INVALID_OUTPUT").catch(() => undefined);
    if (whole !== undefined) return whole;
  }
  throw new SmithersError("INVALID_OUTPUT", `the agent did not return JSON, but ${JSON.stringify(found.slice(0, 200))}`);
};
