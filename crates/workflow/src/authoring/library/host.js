// The connection to the host, which is taken before any code of the author runs.
const say = globalThis["stockade.say"];
delete globalThis["stockade.say"];

const { stringify } = JSON;
const later = setTimeout;
const now = Date.now;
const encoder = new TextEncoder();

export { later, now };

const wellFormed = (_, value) => (typeof value === "string" ? value.toWellFormed() : value);

// A value as JSON; undefined for a value that JSON cannot express.
export const textOf = (value) => stringify(value, wellFormed);

// Whether a text has more than this number of bytes.
export const isLonger = (text, bytes) =>
  text.length > bytes || (text.length * 3 > bytes && encoder.encode(text).length > bytes);

// Sends a message to the waiter for a call; `text` is JSON.
export const tell = (call, word, text) => say(`{"call":${call},"word":{"${word}":${text}}}`);
