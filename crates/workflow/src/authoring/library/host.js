// The way to the host, taken before anything of the author's runs.
const say = globalThis["stockade.say"];
delete globalThis["stockade.say"];

const { stringify } = JSON;
const later = setTimeout;
const now = Date.now;
const encoder = new TextEncoder();

export { later, now };

const wellFormed = (_, value) => (typeof value === "string" ? value.toWellFormed() : value);

// A value as JSON; undefined for what JSON has no word for.
export const textOf = (value) => stringify(value, wellFormed);

// Whether a text has more bytes than that.
export const isLonger = (text, bytes) =>
  text.length > bytes || (text.length * 3 > bytes && encoder.encode(text).length > bytes);

// Says something to whoever waits for a call; `text` is JSON.
export const tell = (call, word, text) => say(`{"call":${call},"word":{"${word}":${text}}}`);
