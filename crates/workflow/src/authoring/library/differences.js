// The last rendering of a run that was sent to the host, so that only differences are sent again.
// The head of an element is everything except its child elements; a group also has a list of these.
import { GROUPS, placeOf } from "stockade:elements";

const { parse, stringify } = JSON;
const { getPrototypeOf, hasOwn, keys, prototype, setPrototypeOf } = Object;
const { isArray } = Array;

// Whether a value is sent as `was`, which was parsed from JSON. False if their equality is not obvious.
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

// The part of an element that is sent. Values that JSON cannot express stay in
// the element, which is that of the last rendering with the same head.
export class Head {
  // The names of the attributes that are compared, the sent value of each, and
  // which of them are functions that are called by their numbers.
  names;
  values;
  calls;

  constructor(kind, element) {
    this.kind = kind;
    this.isGroup = GROUPS.has(kind);
    this.element = element;
  }

  // `props` are the attributes as they are sent; `isPlain` is whether the
  // content between the tags is sent unchanged.
  tell(props, isPlain) {
    const { props: given, source } = this.element;
    this.handles = { output: given.output, schema: given.schema };
    this.isPlain = isPlain;
    this.text = stringify({ kind: this.kind, place: placeOf(source), props });
    return this;
  }

  // Prepares the head for comparisons, which most heads never need.
  learn() {
    const { props: given } = this.element;
    const { props: sent } = parse(this.text);
    this.names = keys(given).filter((name) => !isInner(this, name));
    this.calls = this.names.map((name) => (name === "agent" || (name === "children" && this.kind === "task")) && sent[name]?.$ === "function");
    this.values = this.names.map((name) => {
      // Table handles are sent the same way as long as they are identical, whatever their content.
      if (!this.isGroup && hasOwn(this.handles, name)) return this.handles[name];
      return hasOwn(sent, name) ? sent[name] : undefined;
    });
  }
}

// The children of a group are sent separately; a branch contains the children that it selects.
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
      // The values that they depend on may have changed.
      return false;
    default:
      return isTold(value, was);
  }
};

// Whether the same head would be sent for an element. May return false although
// it would. Most of the time of a rendering is spent here.
const isOf = (head, element) => {
  const before = head.element;
  const { source, props } = element;
  if (element.type !== before.type || (source !== before.source && !isSamePlace(source, before.source))) return false;
  if (head.names === undefined) head.learn();
  const { names, values, calls } = head;
  let at = 0;
  for (const name in props) {
    // Names in another order are treated as different.
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

// An element, from one rendering to the next.
class Node {
  // Its head that was sent, its element in the current rendering, and the last rendering that has it.
  head;
  element;
  seen;
  // Its children that were sent, and its children in the current rendering.
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

// The data that one rendering sends to the host.
export class Differences {
  #sent;
  #root;
  // The nodes whose heads are unchanged, and those whose heads may have changed, with their heads.
  #kept = [];
  #nodes = [];
  #heads = [];
  // The groups whose children changed.
  #groups = [];

  constructor(sent) {
    this.#sent = sent;
  }

  // The node of an element that existed before: a group is found by its position among its
  // siblings, other elements by their ids. Two elements with the same name have different nodes.
  #known(element, inPlace) {
    const { type, props } = element;
    let node = inPlace;
    const head = node?.head;
    // The type of what was not imported is undefined.
    if (head === undefined || head.element.type !== type || (!node.isGroup && head.element.props.id !== props.id)) {
      node = this.#sent.leaves.get(props.id);
      if (node === undefined || node.head.element.type !== type) return undefined;
    }
    return node.seen === this ? undefined : node;
  }

  // The node of an element whose head is unchanged; undefined if that is not known.
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

  // The node of another element, whose head may still prove to be unchanged.
  other(head, inPlace) {
    const node = this.#known(head.element, inPlace) ?? this.#sent.node(head);
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

  // As JSON: the differences, or the whole rendering if the host has none.
  text(isKnown) {
    const isOther = (at) => this.#nodes[at].head?.text !== this.#heads[at].text;
    const isWhole = !isKnown || this.#root !== this.#sent.root || this.#nodes.some((node, at) => node === this.#root && isOther(at));
    const heads = [];
    this.#nodes.forEach((node, at) => {
      if (isWhole || isOther(at)) heads.push(`[${node.number},${this.#heads[at].text}]`);
    });
    if (isWhole) for (const node of this.#kept) heads.push(`[${node.number},${node.head.text}]`);
    const groups = isWhole ? [...this.#kept, ...this.#nodes].filter((node) => node.next.length > 0) : this.#groups;
    const lists = groups.map((group) => `[${group.number},[${group.next.map((node) => node.number)}]]`);
    return `{"isWhole":${isWhole},"root":${this.#root.number},"heads":[${heads}],"lists":[${lists}]}`;
  }

  // The rendering is complete: the next one is compared with it.
  keep() {
    for (const node of this.#kept) node.head.element = node.element;
    this.#nodes.forEach((node, at) => (node.head = this.#heads[at]));
    const sent = this.#sent;
    if (this.#groups.length === 0 && sent.root === this.#root) return;
    for (const group of this.#groups) group.list = group.next;
    sent.root = this.#root;
    const leaves = [...this.#kept, ...this.#nodes].filter((node) => !node.isGroup);
    sent.leaves = new Map(leaves.map((node) => [node.head.element.props.id, node]));
  }
}
