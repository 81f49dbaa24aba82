//! The names that are refused, and the free ones that a snippet may know. A realm has no more than
//! the latter, whatever the validator says.

/// Refused wherever they are free, and as properties of anything.
const DENIED: &[&str] = &[
    "process",
    "require",
    "module",
    "__dirname",
    "__filename",
    "fetch",
    "XMLHttpRequest",
    "WebSocket",
    "eval",
    "Function",
    "Buffer",
    "setImmediate",
    "queueMicrotask",
    "setTimeout",
    "setInterval",
    "clearTimeout",
    "clearInterval",
];

/// The functions of `Reflect` and `Object` that take the name of what they reach.
pub(super) const REFLECTION: &[&str] = &[
    "get",
    "has",
    "getOwnPropertyDescriptor",
    "getOwnPropertyDescriptors",
    "ownKeys",
    "getPrototypeOf",
];

/// Of the language, without what evaluates text; then of the web, as far as the realm has it.
const ALLOWED: &[&str] = &[
    "AggregateError",
    "Array",
    "ArrayBuffer",
    "Atomics",
    "BigInt",
    "BigInt64Array",
    "BigUint64Array",
    "Boolean",
    "DataView",
    "Date",
    "Error",
    "EvalError",
    "FinalizationRegistry",
    "Float16Array",
    "Float32Array",
    "Float64Array",
    "Infinity",
    "Int16Array",
    "Int32Array",
    "Int8Array",
    "Iterator",
    "JSON",
    "Map",
    "Math",
    "NaN",
    "Number",
    "Object",
    "Promise",
    "Proxy",
    "RangeError",
    "ReferenceError",
    "Reflect",
    "RegExp",
    "Set",
    "String",
    "Symbol",
    "SyntaxError",
    "TypeError",
    "URIError",
    "Uint16Array",
    "Uint32Array",
    "Uint8Array",
    "Uint8ClampedArray",
    "WeakMap",
    "WeakRef",
    "WeakSet",
    "arguments",
    "decodeURI",
    "decodeURIComponent",
    "encodeURI",
    "encodeURIComponent",
    "globalThis",
    "isFinite",
    "isNaN",
    "parseFloat",
    "parseInt",
    "undefined",
    "AbortController",
    "AbortSignal",
    "DOMException",
    "Event",
    "EventTarget",
    "TextDecoder",
    "TextEncoder",
    "URL",
    "URLSearchParams",
    "atob",
    "btoa",
    "console",
    "crypto",
    "performance",
    "structuredClone",
];

pub(super) fn is_denied(name: &str) -> bool {
    DENIED.contains(&name)
}

pub(super) fn is_allowed(name: &str) -> bool {
    ALLOWED.contains(&name)
}

/// Whether reaching for this name in a value can only be meant to get out of the rules.
pub(super) fn is_smuggled(name: &str) -> bool {
    name == "constructor" || is_denied(name)
}
