// Numbers, dates and comparisons of texts in the words of a language. The realm has English alone: what it cannot do
// is refused by its name. A function without arguments.
() => {
  "use strict";
  const define = (prototype, name, value) => {
    Object.defineProperty(value, "name", { value: name });
    Object.defineProperty(prototype, name, { value, writable: true, configurable: true });
  };
  const text = String;
  const refuse = (what) => {
    throw new RangeError(`${what} is not available in the sandbox`);
  };
  // Languages whose order of letters is that of English.
  const LIKE_ENGLISH = /^(en|de|fr|it|nl|pt|id|ms)(-|$)/;
  const localesOf = (given) => (given === undefined ? [] : typeof given === "string" ? [given] : Array.from(given, text));
  const checkLocale = (name, given, known) => {
    const first = localesOf(given)[0];
    if (first !== undefined && !known.test(first)) refuse(`the locale "${first}" of ${name}()`);
  };
  const checkOptions = (name, options, known) => {
    for (const key of Object.keys(options ?? {})) {
      const allowed = known[key];
      const value = options[key];
      if (value === undefined) continue;
      if (allowed === undefined) refuse(`the option \`${key}\` of ${name}()`);
      if (allowed !== true && !allowed.includes(value)) refuse(`\`${key}: ${text(value)}\` of ${name}()`);
    }
    return options ?? {};
  };
  const AMERICAN = /^en(-US)?$/;

  const grouped = (digits) => digits.replace(/\B(?=(\d{3})+$)/g, ",");
  const NUMBER = { minimumFractionDigits: true, maximumFractionDigits: true, useGrouping: [true, false], style: ["decimal", "percent"] };
  const digitsOf = (name, value, fallback) => {
    if (value === undefined) return fallback;
    if (!(value >= 0 && value <= 100)) throw new RangeError(`${name} is out of range`);
    return Math.floor(value);
  };
  // The digits of a number before and behind the point, moved by some places.
  const decimal = (value, shift) => {
    const [digits, exponent = "0"] = text(value).split("e");
    const [whole, part = ""] = digits.split(".");
    const point = whole.length + Number(exponent) + shift;
    const all = (whole + part).padStart(whole.length + part.length + Math.max(0, -point), "0");
    const at = Math.max(0, point);
    return [all.slice(0, at).padEnd(at, "0"), all.slice(at)];
  };
  // So many digits behind the point, halves away from zero.
  const rounded = ([before, after], least, most) => {
    let digits = before + after.slice(0, most).padEnd(most, "0");
    if (after[most] >= "5") digits = text(BigInt(digits) + 1n).padStart(digits.length, "0");
    const whole = digits.slice(0, digits.length - most).replace(/^0+(?=\d)/, "") || "0";
    return [whole, digits.slice(digits.length - most).replace(/0+$/, "").padEnd(least, "0")];
  };
  const numberText = (value, options) => {
    const isPercent = options.style === "percent";
    const least = digitsOf("minimumFractionDigits", options.minimumFractionDigits, 0);
    const most = digitsOf("maximumFractionDigits", options.maximumFractionDigits, Math.max(least, isPercent ? 0 : 3));
    if (least > most) throw new RangeError("minimumFractionDigits is more than maximumFractionDigits");
    const end = isPercent ? "%" : "";
    if (Number.isNaN(value)) return `NaN${end}`;
    const sign = value < 0 || Object.is(value, -0) ? "-" : "";
    if (value === Infinity || value === -Infinity) return `${sign}∞${end}`;
    const [before, after] = rounded(decimal(value < 0 ? -value : value, isPercent ? 2 : 0), least, most);
    return sign + (options.useGrouping === false ? before : grouped(before)) + (after === "" ? "" : `.${after}`) + end;
  };
  for (const prototype of [Number.prototype, BigInt.prototype]) {
    const { valueOf } = prototype;
    define(prototype, "toLocaleString", function (locales = undefined, options = undefined) {
      checkLocale("toLocaleString", locales, AMERICAN);
      return numberText(valueOf.call(this), checkOptions("toLocaleString", options, NUMBER));
    });
  }

  // The realm's time is UTC, whose name is the only one.
  const DATE = { timeZone: ["UTC"] };
  const two = (number) => text(number).padStart(2, "0");
  const dateText = (date) => `${date.getMonth() + 1}/${date.getDate()}/${date.getFullYear()}`;
  const timeText = (date) => `${date.getHours() % 12 || 12}:${two(date.getMinutes())}:${two(date.getSeconds())} ${date.getHours() < 12 ? "AM" : "PM"}`;
  const dates = {
    toLocaleDateString: dateText,
    toLocaleTimeString: timeText,
    toLocaleString: (date) => `${dateText(date)}, ${timeText(date)}`,
  };
  for (const [name, write] of Object.entries(dates)) {
    const { getTime } = Date.prototype;
    define(Date.prototype, name, function (locales = undefined, options = undefined) {
      const time = getTime.call(this);
      checkLocale(name, locales, AMERICAN);
      checkOptions(name, options, DATE);
      return Number.isNaN(time) ? "Invalid Date" : write(new Date(time));
    });
  }

  // The order of what is no letter, before digits and letters.
  const MARKS = "_-,;:!?.'\"()[]{}@*/\\&#%`^+<=>|~";
  const LETTERS = { ß: "ss", æ: "ae", œ: "oe", ø: "o", đ: "d", ł: "l", ı: "i" };
  // A mark for such a letter, which makes it differ from those that it is like.
  const LIGATURE = "\u0338";
  const SPACES = "\t\n\v\f\r \u00a0";
  const ACCENT = /\p{M}/u;
  const CURRENCY = /\p{Sc}/u;
  const SYMBOL = /[\p{P}\p{S}]/u;
  const AFTER_SYMBOLS = 2_000_000;
  const rank = (unit) => {
    const space = SPACES.indexOf(unit);
    if (space >= 0) return space;
    const mark = MARKS.indexOf(unit);
    if (mark >= 0) return 100 + mark;
    if (CURRENCY.test(unit)) return AFTER_SYMBOLS;
    return unit.codePointAt(0) + (SYMBOL.test(unit) ? 1000 : AFTER_SYMBOLS);
  };
  // What decides first, second and third: the letters, their accents, and whether they are capitals.
  const keysOf = (value, isNumeric) => {
    const keys = { letters: [], accents: [], cases: [] };
    const folded = value.normalize("NFD").replace(/[ßæœøđłıÆŒØĐŁ]/g, (letter) => {
      const lower = letter.toLowerCase();
      return (letter === lower ? LETTERS[lower] : LETTERS[lower].toUpperCase()) + LIGATURE;
    });
    for (const part of isNumeric ? folded.match(/\d+|[^]/gu) ?? [] : folded) {
      if (ACCENT.test(part)) {
        keys.accents.push((keys.accents.pop() ?? "") + part);
        continue;
      }
      const lower = part.toLowerCase();
      const isNumber = isNumeric && /^\d/.test(part);
      keys.letters.push(isNumber ? rank("0") : rank(lower), isNumber ? Number(part) : 0);
      keys.accents.push("");
      keys.cases.push(part === lower ? 0 : 1);
    }
    return keys;
  };
  const order = (a, b) => {
    for (let at = 0; at < Math.max(a.length, b.length); at += 1) {
      if (a[at] === b[at]) continue;
      return a[at] === undefined || (b[at] !== undefined && a[at] < b[at]) ? -1 : 1;
    }
    return 0;
  };
  const COMPARISON = { sensitivity: ["base", "accent", "case", "variant"], numeric: [true, false], usage: ["sort", "search"], caseFirst: ["false"] };
  const LEVELS = { base: [], accent: ["accents"], case: ["cases"], variant: ["accents", "cases"] };
  define(String.prototype, "localeCompare", function (other, locales = undefined, options = undefined) {
    if (this === null || this === undefined) throw new TypeError("localeCompare needs a text");
    checkLocale("localeCompare", locales, LIKE_ENGLISH);
    const { sensitivity = "variant", numeric = false } = checkOptions("localeCompare", options, COMPARISON);
    const [a, b] = [keysOf(text(this), numeric), keysOf(text(other), numeric)];
    let result = order(a.letters, b.letters);
    for (const level of LEVELS[sensitivity]) result ||= order(a[level], b[level]);
    return result;
  });
  for (const name of ["toLocaleUpperCase", "toLocaleLowerCase"]) {
    const convert = String.prototype[name];
    define(String.prototype, name, function (locales = undefined) {
      const first = localesOf(locales)[0];
      if (first !== undefined && /^(tr|az|lt|el)(-|$)/.test(first)) refuse(`the locale "${first}" of ${name}()`);
      return convert.call(this);
    });
  }
}
