// The text of prompts. A prompt is a string, or elements: components, fragments, and tags, of which those
// of HTML become Markdown; other tags stay as they are, since prompts often have them as sections.
import { Element, Fragment, kindOf } from "stockade:elements";
import { SmithersError } from "stockade:smithers";

const INLINE = {
  a: (inner, { href }) => (href === undefined ? inner : `[${inner}](${href})`),
  b: (inner) => `**${inner}**`,
  strong: (inner) => `**${inner}**`,
  i: (inner) => `_${inner}_`,
  em: (inner) => `_${inner}_`,
  code: (inner) => `\`${inner}\``,
  br: () => "\n",
  span: (inner) => inner,
};
const FENCE = "```";
const BLOCKS = {
  h1: (inner) => `# ${inner}`,
  h2: (inner) => `## ${inner}`,
  h3: (inner) => `### ${inner}`,
  h4: (inner) => `#### ${inner}`,
  h5: (inner) => `##### ${inner}`,
  h6: (inner) => `###### ${inner}`,
  p: (inner) => inner,
  div: (inner) => inner,
  section: (inner) => inner,
  article: (inner) => inner,
  main: (inner) => inner,
  header: (inner) => inner,
  footer: (inner) => inner,
  ul: (inner) => inner,
  ol: (inner) => inner,
  li: (inner) => `- ${inner}`,
  hr: () => "---",
  blockquote: (inner) => inner.replace(/^/gm, "> "),
  pre: (inner) => `${FENCE}\n${inner.replace(/^`|`$/g, "")}\n${FENCE}`,
};

const attributes = (props) =>
  Object.entries(props)
    .filter(([name, value]) => name !== "children" && ["string", "number", "boolean"].includes(typeof value))
    .map(([name, value]) => ` ${name}="${value}"`)
    .join("");

const ofTag = (type, props) => {
  const inner = text(props.children);
  if (Object.hasOwn(INLINE, type)) return INLINE[type](inner, props);
  if (Object.hasOwn(BLOCKS, type)) return `${BLOCKS[type](inner.trim())}\n${type === "li" ? "" : "\n"}`;
  const written = attributes(props);
  return inner === "" ? `<${type}${written} />` : `<${type}${written}>${inner}</${type}>`;
};

const ofElement = ({ type, props }) => {
  if (type === Fragment) return text(props.children);
  const kind = kindOf(type);
  if (typeof type === "function" && kind === undefined) return text(type(props));
  if (typeof type === "string" && !type.startsWith("smithers:")) return ofTag(type, props);
  throw Object.assign(new SmithersError("INVALID_INPUT", `<${kind ?? String(type)}> cannot be in a prompt`), { isMisplaced: true });
};

// The text of the content between the tags of a prompt.
export const text = (content) => {
  if (content === undefined || content === null || typeof content === "boolean") return "";
  if (Array.isArray(content)) return content.map(text).join("");
  if (content instanceof Element) return ofElement(content);
  return typeof content === "object" ? JSON.stringify(content) : String(content);
};

export const hasElement = (content) => content instanceof Element || (Array.isArray(content) && content.some(hasElement));
