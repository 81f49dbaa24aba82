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

export class Head {
  #kind;
  #told;
  #count;
  // These are told the same as long as they are the same, whatever becomes of what is in them.
  #output;
  #schema;
  // Whether what stands between its tags is told as it is.
  #isPlain;

  // What JSON cannot say stays in the element, which is that of the last rendering that told the same.
  constructor(kind, element) {
    this.#kind = kind;
    this.isGroup = GROUPS.has(kind);
    this.element = element;
  }

  // `props` is what is told of the attributes.
  tell(props, isPlain) {
    const { props: given, source } = this.element;
    this.#output = given.output;
    this.#schema = given.schema;
    this.#isPlain = isPlain;
    this.text = stringify({ kind: this.#kind, place: placeOf(source), props });
    return this;
  }

  // Whether the same would be told of an element. It may be where this says no.
  isOf({ type, props, source }) {
    const before = this.element;
    if (type !== before.type || !isSamePlace(source, before.source)) return false;
    if (this.#told === undefined) {
      this.#told = setPrototypeOf(parse(this.text).props, null);
      this.#count = 0;
      for (const name in before.props) if (!this.#isInner(name)) this.#count += 1;
    }
    const told = this.#told;
    let count = 0;
    for (const name in props) {
      const value = props[name];
      const was = told[name];
      if (value === was) {
        if (value === undefined) return false;
      } else if (this.#isInner(name)) {
        continue;
      } else if (!(this.isGroup ? isTold(value, was) : this.#isLike(name, value, was))) {
        return false;
      }
      count += 1;
    }
    return count === this.#count;
  }

  // What a group holds is told by itself; a branch holds what it chooses.
  #isInner(name) {
    if (!this.isGroup) return false;
    return this.#kind === "branch" ? name === "then" || name === "else" : name === "children";
  }

  #isLike(name, value, was) {
    switch (name) {
      case "output":
        return value === this.#output;
      case "schema":
        return value === this.#schema;
      case "agent":
        return typeof value === "function" && was?.$ === "function";
      case "deps":
        return value !== null && was !== undefined && hasNames(value, was);
      case "cache":
        // What it depends on may be something else now.
        return false;
      case "children":
        if (this.#kind !== "task") return isTold(value, was);
        if (typeof value === "function") return was?.$ === "function";
        return this.#isPlain && was?.$ === "value" && isTold(value, was.value);
      default:
        return isTold(value, was);
    }
  }
}

// An element from one rendering to the next.
class Node {
  head;
  // What it holds, and what it does in the rendering under way.
  list = [];
  next = this.list;
  // The rendering that had it last, whatever came of that.
  seen;

  constructor(number) {
    this.number = number;
  }
}

// What the host was told last of a run.
export class Told {
  leaves = new Map();
  root;
  #last = 0;

  node() {
    this.#last += 1;
    return new Node(this.#last);
  }
}

// What is to be told of one rendering.
export class News {
  #told;
  #root;
  // The nodes with the head that they had, and their elements now.
  #kept = [];
  #elements = [];
  // Those that may have another one.
  #nodes = [];
  #heads = [];
  // The groups that hold something else.
  #groups = [];

  constructor(told) {
    this.#told = told;
  }

  // The node of an element that was there: one with an id is found by that, a group by its place among
  // those around. Two of one name are two.
  #known(isGroup, element, inPlace) {
    const node = isGroup ? inPlace : this.#told.leaves.get(element.props.id);
    return node !== undefined && node.seen !== this && node.head.element.type === element.type ? node : undefined;
  }

  // The node of an element that is told as before; undefined where that is not known.
  kept(isGroup, element, inPlace) {
    const node = this.#known(isGroup, element, inPlace);
    if (node === undefined || !node.head.isOf(element)) return undefined;
    node.seen = this;
    this.#kept.push(node);
    this.#elements.push(element);
    return node;
  }

  // That of another one, which may be the same in the end.
  other(head, inPlace) {
    const node = this.#known(head.isGroup, head.element, inPlace) ?? this.#told.node();
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
    for (let at = 0; at < this.#kept.length; at += 1) this.#kept[at].head.element = this.#elements[at];
    for (let at = 0; at < this.#nodes.length; at += 1) this.#nodes[at].head = this.#heads[at];
    const told = this.#told;
    if (this.#groups.length === 0 && told.root === this.#root) return;
    for (const group of this.#groups) group.list = group.next;
    told.root = this.#root;
    const leaves = [...this.#kept, ...this.#nodes].filter((node) => !node.head.isGroup);
    told.leaves = new Map(leaves.map((node) => [node.head.element.props.id, node]));
  }
}
