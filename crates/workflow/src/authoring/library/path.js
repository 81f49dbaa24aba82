// `node:path`: names of files as text, which need no access to files. Only the form of POSIX.

const text = (value, name) => {
  if (typeof value !== "string") throw new TypeError(`The "${name}" argument must be of type string. Received ${value === null ? "null" : typeof value}`);
  return value;
};

export const sep = "/";
export const delimiter = ":";

export const isAbsolute = (path) => text(path, "path").startsWith("/");

// The parts of a path without `.` and without `..` where these can be removed.
const parts = (path, absolute) => {
  const kept = [];
  for (const part of path.split("/")) {
    if (part === "" || part === ".") continue;
    if (part !== "..") kept.push(part);
    else if (kept.length > 0 && kept.at(-1) !== "..") kept.pop();
    else if (!absolute) kept.push("..");
  }
  return kept;
};

export const normalize = (path) => {
  if (text(path, "path") === "") return ".";
  const absolute = isAbsolute(path);
  const kept = parts(path, absolute).join("/");
  const end = path.endsWith("/") && kept !== "" ? "/" : "";
  const whole = `${absolute ? "/" : ""}${kept}${end}`;
  if (whole !== "") return whole;
  return path.endsWith("/") ? "./" : ".";
};

export const join = (...paths) => {
  const joined = paths.filter((path) => text(path, "path") !== "").join("/");
  return joined === "" ? "." : normalize(joined);
};

export const resolve = (...paths) => {
  let whole = "";
  for (const path of paths.reverse()) {
    if (text(path, "path") === "") continue;
    whole = whole === "" ? path : `${path}/${whole}`;
    if (isAbsolute(path)) break;
  }
  if (!isAbsolute(whole)) whole = `${process.cwd()}/${whole}`;
  return `/${parts(whole, true).join("/")}`;
};

const trimmed = (path) => (path.length > 1 ? path.replace(/\/+$/, "") || "/" : path);

export const dirname = (path) => {
  const whole = trimmed(text(path, "path"));
  const at = whole.lastIndexOf("/");
  if (at < 0) return ".";
  return at === 0 ? "/" : whole.slice(0, at);
};

export const basename = (path, suffix = "") => {
  if (suffix !== "" && suffix === path) return "";
  const name = text(path, "path").replace(/\/+$/, "").split("/").at(-1);
  return suffix !== name && name.endsWith(text(suffix, "suffix")) ? name.slice(0, name.length - suffix.length) : name;
};

export const extname = (path) => {
  const name = basename(path);
  const at = name.lastIndexOf(".");
  return at <= 0 || name === ".." ? "" : name.slice(at);
};

export const relative = (from, to) => {
  const [one, other] = [resolve(text(from, "from")), resolve(text(to, "to"))].map((path) => parts(path, true));
  let same = 0;
  while (same < one.length && same < other.length && one[same] === other[same]) same += 1;
  return [...one.slice(same).map(() => ".."), ...other.slice(same)].join("/");
};

export const parse = (path) => {
  const base = basename(path);
  const ext = extname(path);
  const root = isAbsolute(path) ? "/" : "";
  const dir = path.includes("/") ? dirname(path) : "";
  return { root, dir: dir === "." && !path.startsWith("./") ? "" : dir, base, ext, name: ext === "" ? base : base.slice(0, -ext.length) };
};

export const format = ({ dir, root = "", base, name = "", ext = "" }) => {
  const file = base ?? `${name}${ext === "" || ext.startsWith(".") ? ext : `.${ext}`}`;
  if (dir === undefined || dir === "") return `${root}${file}`;
  return dir === root ? `${dir}${file}` : `${dir}/${file}`;
};

export const toNamespacedPath = (path) => path;

export const posix = { sep, delimiter, isAbsolute, normalize, join, resolve, dirname, basename, extname, relative, parse, format, toNamespacedPath };
posix.posix = posix;
export default posix;
