//! The names that are refused, and the free names that are allowed. A realm has only the latter,
//! whatever the validator does.

/// Refused as free names, and as properties of any value.
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

/// The functions of `Reflect` and `Object` with a property name as an argument.
pub(super) const REFLECTION: &[&str] = &[
    "get",
    "has",
    "getOwnPropertyDescriptor",
    "getOwnPropertyDescriptors",
    "ownKeys",
    "getPrototypeOf",
];

/// Names of the language, except those that evaluate text; then of the web APIs that the realm has.
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

/// Whether access to a property of this name can only be an attempt to bypass the rules.
pub(super) fn is_escape(name: &str) -> bool {
    name == "constructor" || is_denied(name)
}
