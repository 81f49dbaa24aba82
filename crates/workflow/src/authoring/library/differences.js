// What the host was told of the renderings of a run, so that it is told again only what is different. An
// element has a head, which is all of it but what is in it, and, where it is a group, a list of that.
import { GROUPS, placeOf } from "stockade:elements";

const { parse, stringify } = JSON;
const { getPrototypeOf, hasOwn, keys, prototype, setPrototypeOf } = Object;
const { isArray } = Array;

// Whether a value is told as `was`, which is from JSON. It is not where that is not seen at once.
const isTold = (value, was) => {
  if (typeof value !== "object" || value === null) return value === was && value !== undefined;
  if (typeof was !== "object" || was === null || isArray(value) !== isArray(was)) return false;
  if (isArray(value)) {
    if (value.length !== was.length) return false;
    for (let at = 0; at < was.length; at += 1) if (!isTold(value[at], was[at])) return false;
    return true;
  }
  if (getPrototypeOf(value) !== prototype) return false;
  const names = keys(value);
  return names.length === keys(was).length && names.every((name) => hasOwn(was, name) && isTold(value[name], was[name]));
};

const hasNames = (value, was) => {
  const names = keys(value);
  return names.length === keys(was).length && names.every((name) => hasOwn(was, name));
};

const isSamePlace = (one, other) =>
  one === other ||
  (one?.lineNumber === other?.lineNumber && one?.columnNumber === other?.columnNumber && one?.fileName === other?.fileName);

const isSameList = (one, other) => {
  if (one.length !== other.length) return false;
  for (let at = 0; at < one.length; at += 1) if (one[at] !== other[at]) return false;
  return true;
};

// What is told of an element. What JSON cannot say stays in the element, which is that of the last
// rendering that told the same.
export class Head {
  // The names of the attributes that are compared, what was told of each, and which are functions that
  // are called by their numbers.
  names;
  values;
  calls;

  constructor(kind, element) {
    this.kind = kind;
    this.isGroup = GROUPS.has(kind);
    this.element = element;
  }

  // `props` is what is told of the attributes; `isPlain` is whether what stands between the tags is told
  // as it is.
  tell(props, isPlain) {
    const { props: given, source } = this.element;
    this.handles = { output: given.output, schema: given.schema };
    this.isPlain = isPlain;
    this.text = stringify({ kind: this.kind, place: placeOf(source), props });
    return this;
  }

  // Makes ready to be compared, which most heads never are.
  learn() {
    const { props: given } = this.element;
    const { props: told } = parse(this.text);
    this.names = keys(given).filter((name) => !isInner(this, name));
    this.calls = this.names.map((name) => (name === "agent" || (name === "children" && this.kind === "task")) && told[name]?.$ === "function");
    this.values = this.names.map((name) => {
      // Handles of tables are told the same as long as they are the same, whatever is in them.
      if (!this.isGroup && hasOwn(this.handles, name)) return this.handles[name];
      return hasOwn(told, name) ? told[name] : undefined;
    });
  }
}

// What a group holds is told by itself; a branch holds what it chooses.
const isInner = ({ isGroup, kind }, name) => isGroup && (kind === "branch" ? name === "then" || name === "else" : name === "children");

const isLike = ({ isGroup, kind, isPlain }, name, value, was) => {
  if (isGroup) return isTold(value, was);
  switch (name) {
    case "children":
      if (kind !== "task") return isTold(value, was);
      return isPlain && was?.$ === "value" && isTold(value, was.value);
    case "deps":
      return value !== null && was !== undefined && hasNames(value, was);
    case "output":
    case "schema":
    case "agent":
    case "cache":
      // What they depend on may be something else now.
      return false;
    default:
      return isTold(value, was);
  }
};

// Whether the same would be told of an element. It may be where this says no. Most of the time of a
// rendering goes by here.
const isOf = (head, element) => {
  const before = head.element;
  const { source, props } = element;
  if (element.type !== before.type || (source !== before.source && !isSamePlace(source, before.source))) return false;
  if (head.names === undefined) head.learn();
  const { names, values, calls } = head;
  let at = 0;
  for (const name in props) {
    // Names in another order are not seen to be the same.
    if (name !== names[at]) {
      if (isInner(head, name)) continue;
      return false;
    }
    const value = props[name];
    const was = values[at];
    if (value === was ? value === undefined : typeof value === "function" ? !calls[at] : !isLike(head, name, value, was)) return false;
    at += 1;
  }
  return at === names.length;
};

// An element from one rendering to the next.
class Node {
  // What was told of it, of what element in the rendering under way, and which rendering that is.
  head;
  element;
  seen;
  // What it holds, and what in the rendering under way.
  list = [];
  next = this.list;

  constructor(number, { kind, isGroup }) {
    this.number = number;
    this.kind = kind;
    this.isGroup = isGroup;
  }
}

// The rendering of a run that was sent to the host last.
export class LastRendering {
  root;
  leaves = new Map();
  #last = 0;

  node(head) {
    this.#last += 1;
    return new Node(this.#last, head);
  }
}

// What one rendering sends to the host.
export class Differences {
  #told;
  #root;
  // The nodes of which the same is told, and those of which it may not be, with what is.
  #kept = [];
  #nodes = [];
  #heads = [];
  // The groups that hold something else.
  #groups = [];

  constructor(told) {
    this.#told = told;
  }

  // The node of an element that was there before: a group by its place among those around, another one
  // by its id. Two of one name are two.
  #known(element, inPlace) {
    const { type, props } = element;
    let node = inPlace;
    let head = node?.head;
    if (head?.element.type !== type || (!node.isGroup && head.element.props.id !== props.id)) {
      node = this.#told.leaves.get(props.id);
      if (node?.head.element.type !== type) return undefined;
    }
    return node.seen === this ? undefined : node;
  }

  // The node of an element of which the same is told as before; undefined where that is not known.
  kept(element, inPlace) {
    let node = inPlace;
    if (node === undefined || node.seen === this || !isOf(node.head, element)) {
      node = this.#known(element, inPlace);
      if (node === undefined || node === inPlace || !isOf(node.head, element)) return undefined;
    }
    node.seen = this;
    node.element = element;
    this.#kept.push(node);
    return node;
  }

  // That of another one, of which the same may be told in the end.
  other(head, inPlace) {
    const node = this.#known(head.element, inPlace) ?? this.#told.node(head);
    node.seen = this;
    this.#nodes.push(node);
    this.#heads.push(head);
    return node;
  }

  holds(group, list) {
    group.next = list;
    if (!isSameList(group.list, list)) this.#groups.push(group);
  }

  ends(root) {
    this.#root = root;
  }

  // As JSON: what is different, or all where the host has nothing.
  text(isKnown) {
    const isOther = (at) => this.#nodes[at].head?.text !== this.#heads[at].text;
    const isWhole = !isKnown || this.#root !== this.#told.root || this.#nodes.some((node, at) => node === this.#root && isOther(at));
    const heads = [];
    this.#nodes.forEach((node, at) => {
      if (isWhole || isOther(at)) heads.push(`[${node.number},${this.#heads[at].text}]`);
    });
    if (isWhole) for (const node of this.#kept) heads.push(`[${node.number},${node.head.text}]`);
    const groups = isWhole ? [...this.#kept, ...this.#nodes].filter((node) => node.next.length > 0) : this.#groups;
    const lists = groups.map((group) => `[${group.number},[${group.next.map((node) => node.number)}]]`);
    return `{"isWhole":${isWhole},"root":${this.#root.number},"heads":[${heads}],"lists":[${lists}]}`;
  }

  // The rendering has come to its end: the next is told from here.
  keep() {
    for (const node of this.#kept) node.head.element = node.element;
    this.#nodes.forEach((node, at) => (node.head = this.#heads[at]));
    const told = this.#told;
    if (this.#groups.length === 0 && told.root === this.#root) return;
    for (const group of this.#groups) group.list = group.next;
    told.root = this.#root;
    const leaves = [...this.#kept, ...this.#nodes].filter((node) => !node.isGroup);
    told.leaves = new Map(leaves.map((node) => [node.head.element.props.id, node]));
  }
}
