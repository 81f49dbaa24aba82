//! Expressions with the web's objects and with words of a language, and what they are in Node.js.

use super::tests::lines;

/// Expressions, and the type and text of their values, or `THROW` and the name of the error.
const CASES: &[(&str, &str)] = &[
    (r##"typeof URL.prototype.toString"##, r##"string function"##),
    (r##"Object.prototype.toString.call(new URL("http://a"))"##, r##"string [object URL]"##),
    (
        r##"Object.prototype.toString.call(new URLSearchParams())"##,
        r##"string [object URLSearchParams]"##,
    ),
    (r##"Object.keys(new URL("http://a"))"##, r##"object "##),
    (
        r##"new URL("HTTP://User:Pass@EXAMPLE.com:80/a/../b?q=1#h").href"##,
        r##"string http://User:Pass@example.com/b?q=1#h"##,
    ),
    (r##"new URL("../x?y", "http://a/b/c/d").href"##, r##"string http://a/b/x?y"##),
    (r##"new URL("//x/y", "https://a").href"##, r##"string https://x/y"##),
    (r##"new URL("http://a:99999")"##, r##"THROW TypeError"##),
    (r##"new URL("")"##, r##"THROW TypeError"##),
    (r##"new URL()"##, r##"THROW TypeError"##),
    (r##"new URL("http://[::1]:3000/").host"##, r##"string [::1]:3000"##),
    (r##"new URL("http://exa mple.com")"##, r##"THROW TypeError"##),
    (r##"new URL("http://ex%41mple.com/%7Efoo").href"##, r##"string http://example.com/%7Efoo"##),
    (r##"new URL("javascript:alert(1)").pathname"##, r##"string alert(1)"##),
    (r##"new URL("data:text/plain,hi").origin"##, r##"string null"##),
    (r##"new URL("blob:https://example.com/c").origin"##, r##"string https://example.com"##),
    (r##"new URL("file:///C:/a/../b").href"##, r##"string file:///C:/b"##),
    (
        r##"new URL("http://é.example/ä?ö#ü").href"##,
        r##"string http://xn--9ca.example/%C3%A4?%C3%B6#%C3%BC"##,
    ),
    (r##"new URL("http://a/?a=b+c%20d").searchParams.get("a")"##, r##"string b c d"##),
    (r##"URL.canParse("nope")"##, r##"boolean false"##),
    (r##"URL.canParse("x", "http://a")"##, r##"boolean true"##),
    (
        r##"(() => { const u = new URL("http://a/"); u.port = "8080"; u.protocol = "https"; u.hash = "x"; u.search = "a=1"; u.pathname = "p q"; return u.href })()"##,
        r##"string https://a:8080/p%20q?a=1#x"##,
    ),
    (
        r##"(() => { const u = new URL("http://a/"); u.href = "nope"; return u.href })()"##,
        r##"THROW TypeError"##,
    ),
    (
        r##"(() => { const u = new URL("http://a/"); u.host = ""; return u.href })()"##,
        r##"string http://a/"##,
    ),
    (
        r##"(() => { const u = new URL("http://a/"); u.username = "me"; u.password = "p:w"; return u.href })()"##,
        r##"string http://me:p%3Aw@a/"##,
    ),
    (
        r##"(() => { const u = new URL("http://a/?x=1"); u.searchParams.append("y", "2 3"); return u.href })()"##,
        r##"string http://a/?x=1&y=2+3"##,
    ),
    (
        r##"(() => { const u = new URL("http://a/?x=1"); const p = u.searchParams; u.search = "z=9"; return p.toString() + (p === u.searchParams) })()"##,
        r##"string z=9true"##,
    ),
    (
        r##"(() => { const u = new URL("http://a/?x=1"); u.searchParams.delete("x"); return u.href })()"##,
        r##"string http://a/"##,
    ),
    (r##"JSON.stringify({ u: new URL("http://a") })"##, r##"string {"u":"http://a/"}"##),
    (r##"String(new URL("http://a"))"##, r##"string http://a/"##),
    (r##"new URL("http://a").toJSON()"##, r##"string http://a/"##),
    (r##""href" in URL.prototype"##, r##"boolean true"##),
    (r##"Object.getOwnPropertyDescriptor(URL.prototype, "href").enumerable"##, r##"boolean true"##),
    (
        r##"Object.getOwnPropertyDescriptor(URL.prototype, "origin").enumerable"##,
        r##"boolean true"##,
    ),
    (r##"URL.name"##, r##"string URL"##),
    (r##"URL.prototype.toString.name"##, r##"string toString"##),
    (r##"new URLSearchParams("?a=1&b=2&a=3").getAll("a").join()"##, r##"string 1,3"##),
    (r##"new URLSearchParams("a=1&a=2").get("a")"##, r##"string 1"##),
    (r##"new URLSearchParams("").get("a")"##, r##"object null"##),
    (r##"new URLSearchParams([["a", "1"], ["b", 2]]).toString()"##, r##"string a=1&b=2"##),
    (r##"new URLSearchParams([["a"]])"##, r##"THROW TypeError"##),
    (r##"new URLSearchParams([["a", "b", "c"]])"##, r##"THROW TypeError"##),
    (r##"new URLSearchParams(new Map([["a", "1"]])).toString()"##, r##"string a=1"##),
    (
        r##"new URLSearchParams({ a: 1, b: [1, 2], c: null }).toString()"##,
        r##"string a=1&b=1%2C2&c=null"##,
    ),
    (r##"new URLSearchParams(undefined).toString()"##, r##"string "##),
    (r##"new URLSearchParams(5).toString()"##, r##"string 5="##),
    (r##"new URLSearchParams(new URLSearchParams("a=1")).toString()"##, r##"string a=1"##),
    (r##"new URLSearchParams("a=%zz&b=+%2B&c").toString()"##, r##"string a=%25zz&b=+%2B&c="##),
    (r##"new URLSearchParams("a=1").append("b")"##, r##"THROW TypeError"##),
    (r##"new URLSearchParams("a=1").get()"##, r##"THROW TypeError"##),
    (r##"new URLSearchParams("a=1").set("b")"##, r##"THROW TypeError"##),
    (r##"new URLSearchParams("a=1").has()"##, r##"THROW TypeError"##),
    (r##"new URLSearchParams("a=1&a=2&b=3").delete("a", "1")"##, r##"undefined undefined"##),
    (
        r##"(() => { const p = new URLSearchParams("a=1&a=2&b=3"); p.delete("a", "1"); return p + "" })()"##,
        r##"string a=2&b=3"##,
    ),
    (
        r##"(() => { const p = new URLSearchParams("a=1&a=2&b=3"); p.set("a", 9); return p + "" })()"##,
        r##"string a=9&b=3"##,
    ),
    (
        r##"(() => { const p = new URLSearchParams("b=1&a=2&b=0"); p.sort(); return p + "" })()"##,
        r##"string a=2&b=1&b=0"##,
    ),
    (
        r##"(() => { const p = new URLSearchParams("a=1&b=2&c=3"); const seen = []; for (const [k] of p) { seen.push(k); p.delete(k) } return seen.join() + "|" + p })()"##,
        r##"string a,c|b=2"##,
    ),
    (
        r##"(() => { const p = new URLSearchParams("a=1"); let n = 0; for (const [k] of p) { if (n++ < 3) p.append("x" + n, 1) } return p + "" })()"##,
        r##"string a=1&x1=1&x2=1&x3=1"##,
    ),
    (r##"[...new URLSearchParams("a=1&b=2").keys()].join()"##, r##"string a,b"##),
    (r##"[...new URLSearchParams("a=1&b=2").values()].join()"##, r##"string 1,2"##),
    (r##"[...new URLSearchParams("a=1&b=2")].join("|")"##, r##"string a,1|b,2"##),
    (r##"new URLSearchParams("a=1").size"##, r##"number 1"##),
    (r##"new URLSearchParams("a=1").has("a", "2")"##, r##"boolean false"##),
    (
        r##"URLSearchParams.prototype[Symbol.iterator] === URLSearchParams.prototype.entries"##,
        r##"boolean true"##,
    ),
    (
        r##"Object.prototype.toString.call(new URLSearchParams("a=1").entries())"##,
        r##"string [object URLSearchParams Iterator]"##,
    ),
    (
        r##"(() => { const r = []; new URLSearchParams("a=1&b=2").forEach((v, k, p) => r.push(v + k + (p instanceof URLSearchParams))); return r.join() })()"##,
        r##"string 1atrue,2btrue"##,
    ),
    (r##"new URLSearchParams("a=1").forEach()"##, r##"THROW TypeError"##),
    (r##"Object.keys(new URLSearchParams("a=1"))"##, r##"object "##),
    (r##"JSON.stringify(new URLSearchParams("a=1"))"##, r##"string {}"##),
    (
        r##"new TextEncoder().encode("aé€😀").join()"##,
        r##"string 97,195,169,226,130,172,240,159,152,128"##,
    ),
    (r##"new TextEncoder().encode().length"##, r##"number 0"##),
    (r##"new TextEncoder().encode(undefined).length"##, r##"number 0"##),
    (r##"new TextEncoder().encode(null).join()"##, r##"string 110,117,108,108"##),
    (r##"Object.prototype.toString.call(new TextEncoder())"##, r##"string [object TextEncoder]"##),
    (r##"new TextEncoder().encoding"##, r##"string utf-8"##),
    (
        r##"JSON.stringify(new TextEncoder().encodeInto("a€b", new Uint8Array(3)))"##,
        r##"string {"read":1,"written":1}"##,
    ),
    (
        r##"JSON.stringify(new TextEncoder().encodeInto("😀", new Uint8Array(3)))"##,
        r##"string {"read":0,"written":0}"##,
    ),
    (r##"new TextEncoder("utf-16").encoding"##, r##"string utf-8"##),
    (r##"new TextDecoder().decode(new Uint8Array([0xef, 0xbb, 0xbf, 65]))"##, r##"string A"##),
    (
        r##"new TextDecoder("utf-8", { ignoreBOM: true }).decode(new Uint8Array([0xef, 0xbb, 0xbf, 65])).length"##,
        r##"number 2"##,
    ),
    (
        r##"new TextDecoder().decode(new Uint8Array([0xff, 65, 0xe2, 0x82])).split("").map(c => c.charCodeAt(0).toString(16)).join()"##,
        r##"string fffd,41,fffd"##,
    ),
    (
        r##"new TextDecoder("utf-8", { fatal: true }).decode(new Uint8Array([0xff]))"##,
        r##"THROW TypeError"##,
    ),
    (r##"new TextDecoder("UTF8").encoding"##, r##"string utf-8"##),
    (r##"new TextDecoder("  utf-8 ").encoding"##, r##"string utf-8"##),
    (r##"new TextDecoder("nope")"##, r##"THROW RangeError"##),
    (r##"new TextDecoder().decode()"##, r##"string "##),
    (r##"new TextDecoder().decode("text")"##, r##"THROW TypeError"##),
    (r##"new TextDecoder().decode(new Uint16Array([0x4141])).length"##, r##"number 2"##),
    (r##"new TextDecoder().decode(new ArrayBuffer(2)).length"##, r##"number 2"##),
    (r##"Object.prototype.toString.call(new TextDecoder())"##, r##"string [object TextDecoder]"##),
    (r##"new TextDecoder(undefined).encoding"##, r##"string utf-8"##),
    (r##"atob("aGk=")"##, r##"string hi"##),
    (r##"atob("aGk")"##, r##"string hi"##),
    (r##"atob(" a G k = ")"##, r##"string hi"##),
    (r##"atob("a")"##, r##"THROW InvalidCharacterError"##),
    (r##"atob("*")"##, r##"THROW InvalidCharacterError"##),
    (r##"btoa("hi")"##, r##"string aGk="##),
    (r##"btoa("é").length"##, r##"number 4"##),
    (r##"btoa("€")"##, r##"THROW InvalidCharacterError"##),
    (r##"btoa()"##, r##"THROW TypeError"##),
    (r##"atob()"##, r##"THROW TypeError"##),
    (r##"btoa(null)"##, r##"string bnVsbA=="##),
    (r##"atob(null).length"##, r##"number 3"##),
    (r##"btoa(123)"##, r##"string MTIz"##),
    (
        r##"(() => { try { btoa("€") } catch (e) { return e.name + e.code + (e instanceof DOMException) } })()"##,
        r##"string InvalidCharacterError5true"##,
    ),
    (
        r##"(() => { try { atob("*") } catch (e) { return e.name + e.code + (e instanceof DOMException) } })()"##,
        r##"string InvalidCharacterError5true"##,
    ),
    (r##"new DOMException("m", "AbortError").code"##, r##"number 20"##),
    (r##"new DOMException("m").name"##, r##"string Error"##),
    (r##"new DOMException().message === """##, r##"boolean true"##),
    (r##"new DOMException("m", "Foo").code"##, r##"number 0"##),
    (r##"new DOMException("m", "x") instanceof Error"##, r##"boolean true"##),
    (r##"String(new DOMException("m", "AbortError"))"##, r##"string AbortError: m"##),
    (r##"DOMException.ABORT_ERR"##, r##"number 20"##),
    (
        r##"Object.prototype.toString.call(new DOMException())"##,
        r##"string [object DOMException]"##,
    ),
    (r##"structuredClone({ a: [1, { b: 2 }] }).a[1].b"##, r##"number 2"##),
    (r##"structuredClone(new Date(0)).getTime()"##, r##"number 0"##),
    (r##"structuredClone(/a/gi).flags"##, r##"string gi"##),
    (r##"structuredClone(new Map([[1, { a: 1 }]])).get(1).a"##, r##"number 1"##),
    (r##"structuredClone(new Set([1, 2])).size"##, r##"number 2"##),
    (r##"structuredClone(() => 1)"##, r##"THROW DataCloneError"##),
    (r##"structuredClone(Symbol("x"))"##, r##"THROW DataCloneError"##),
    (r##"structuredClone({ f() {} })"##, r##"THROW DataCloneError"##),
    (r##"structuredClone()"##, r##"THROW TypeError"##),
    (r##"structuredClone(undefined)"##, r##"undefined undefined"##),
    (r##"structuredClone(null)"##, r##"object null"##),
    (r##"structuredClone(10n)"##, r##"bigint 10"##),
    (r##"structuredClone(new Error("x", { cause: 1 })).cause"##, r##"number 1"##),
    (r##"structuredClone(new TypeError("x")).name"##, r##"string TypeError"##),
    (r##"structuredClone(new TypeError("x")) instanceof TypeError"##, r##"boolean true"##),
    (
        r##"structuredClone(Object.assign(new Error("x"), { name: "Custom" })).name"##,
        r##"string Error"##,
    ),
    (
        r##"structuredClone(Object.assign(new Error("x"), { extra: 1 })).extra"##,
        r##"undefined undefined"##,
    ),
    (r##"structuredClone(new (class A { x = 1 })()).x"##, r##"number 1"##),
    (
        r##"Object.getPrototypeOf(structuredClone(new (class A { x = 1 })())) === Object.prototype"##,
        r##"boolean true"##,
    ),
    (r##"structuredClone([1, , 3]).hasOwnProperty(1)"##, r##"boolean false"##),
    (r##"structuredClone(Object.assign([1], { k: 2 })).k"##, r##"number 2"##),
    (
        r##"(() => { const a = {}; a.self = a; const b = structuredClone(a); return b.self === b })()"##,
        r##"boolean true"##,
    ),
    (
        r##"(() => { const x = {}; const c = structuredClone({ a: x, b: x }); return c.a === c.b })()"##,
        r##"boolean true"##,
    ),
    (r##"structuredClone(new Uint8Array([1, 2, 3])).join()"##, r##"string 1,2,3"##),
    (r##"structuredClone(new DataView(new ArrayBuffer(4), 1, 2)).byteLength"##, r##"number 2"##),
    (r##"structuredClone(Object(1)) instanceof Number"##, r##"boolean true"##),
    (r##"structuredClone(Object("s")).length"##, r##"number 1"##),
    (r##"structuredClone({ get a() { return 5 } }).a"##, r##"number 5"##),
    (r##"structuredClone({ [Symbol("k")]: 1, b: 2 }).b"##, r##"number 2"##),
    (r##"JSON.stringify(structuredClone({ __proto__: { z: 1 }, y: 2 }))"##, r##"string {"y":2}"##),
    (
        r##"structuredClone(Object.create(null, { a: { value: 1, enumerable: true } })).a"##,
        r##"number 1"##,
    ),
    (r##"structuredClone(Object.create({ inherited: 1 })).inherited"##, r##"undefined undefined"##),
    (
        r##"(() => { try { structuredClone(() => 1) } catch (e) { return e.name + e.code + (e instanceof DOMException) + (e instanceof Error) } })()"##,
        r##"string DataCloneError25truetrue"##,
    ),
    (
        r##"(() => { const b = new ArrayBuffer(8); const c = structuredClone(b, { transfer: [b] }); return b.byteLength + "," + c.byteLength })()"##,
        r##"string 0,8"##,
    ),
    (
        r##"(() => { const b = new ArrayBuffer(8); return structuredClone(b, { transfer: [b, b] }).byteLength })()"##,
        r##"THROW DataCloneError"##,
    ),
    (r##"structuredClone(JSON)"##, r##"object [object Object]"##),
    (r##"structuredClone(Object("s")) == "s""##, r##"boolean true"##),
    (r##"new Event("x").type"##, r##"string x"##),
    (r##"new Event()"##, r##"THROW TypeError"##),
    (r##"new Event("x").bubbles"##, r##"boolean false"##),
    (
        r##"new Event("x", { bubbles: true, cancelable: true, composed: true }).composed"##,
        r##"boolean true"##,
    ),
    (r##"new Event("x").defaultPrevented"##, r##"boolean false"##),
    (r##"new Event("x").isTrusted"##, r##"boolean false"##),
    (r##"new Event("x").eventPhase"##, r##"number 0"##),
    (r##"new Event("x").target"##, r##"object null"##),
    (r##"new Event("x").currentTarget"##, r##"object null"##),
    (r##"typeof new Event("x").stopPropagation"##, r##"string function"##),
    (r##"typeof new Event("x").stopImmediatePropagation"##, r##"string function"##),
    (r##"new Event("x").composedPath().length"##, r##"number 0"##),
    (r##"Object.prototype.toString.call(new Event("x"))"##, r##"string [object Event]"##),
    (r##"Event.NONE"##, r##"number 0"##),
    (r##"Event.AT_TARGET"##, r##"number 2"##),
    (r##"Object.keys(new Event("x")).join()"##, r##"string "##),
    (
        r##"(() => { const e = new Event("x", { cancelable: true }); e.preventDefault(); return e.defaultPrevented })()"##,
        r##"boolean true"##,
    ),
    (
        r##"(() => { const e = new Event("x"); e.preventDefault(); return e.defaultPrevented })()"##,
        r##"boolean false"##,
    ),
    (
        r##"(() => { const t = new EventTarget(); let s = ""; t.addEventListener("a", () => s += 1); t.addEventListener("a", { handleEvent() { s += 2 } }); t.dispatchEvent(new Event("a")); return s })()"##,
        r##"string 12"##,
    ),
    (
        r##"(() => { const t = new EventTarget(); let s = 0; const f = () => s++; t.addEventListener("a", f); t.addEventListener("a", f); t.addEventListener("a", f, { capture: true }); t.dispatchEvent(new Event("a")); return s })()"##,
        r##"number 2"##,
    ),
    (
        r##"(() => { const t = new EventTarget(); let s = 0; t.addEventListener("a", () => s++, { once: true }); t.dispatchEvent(new Event("a")); t.dispatchEvent(new Event("a")); return s })()"##,
        r##"number 1"##,
    ),
    (
        r##"(() => { const t = new EventTarget(); let s = 0; const c = new AbortController(); t.addEventListener("a", () => s++, { signal: c.signal }); c.abort(); t.dispatchEvent(new Event("a")); return s })()"##,
        r##"number 0"##,
    ),
    (
        r##"(() => { const t = new EventTarget(); let s = ""; t.addEventListener("a", (e) => { s += "1"; e.stopImmediatePropagation() }); t.addEventListener("a", () => s += "2"); t.dispatchEvent(new Event("a")); return s })()"##,
        r##"string 1"##,
    ),
    (
        r##"(() => { const t = new EventTarget(); let r; t.addEventListener("a", function (e) { r = [this === t, e.target === t, e.currentTarget === t, e.eventPhase].join() }); t.dispatchEvent(new Event("a")); return r })()"##,
        r##"string true,true,true,2"##,
    ),
    (
        r##"(() => { const t = new EventTarget(); const e = new Event("a"); t.addEventListener("a", () => {}); t.dispatchEvent(e); return [e.target === t, e.currentTarget, e.eventPhase].join() })()"##,
        r##"string true,,0"##,
    ),
    (r##"new EventTarget().dispatchEvent({ type: "x" })"##, r##"THROW TypeError"##),
    (r##"new EventTarget().dispatchEvent()"##, r##"THROW TypeError"##),
    (r##"new EventTarget().addEventListener("a")"##, r##"THROW TypeError"##),
    (r##"new EventTarget().addEventListener("a", null)"##, r##"undefined undefined"##),
    (r##"new EventTarget().addEventListener("a", 5)"##, r##"THROW TypeError"##),
    (
        r##"(() => { const t = new EventTarget(); t.addEventListener("a", (e) => e.preventDefault()); return t.dispatchEvent(new Event("a", { cancelable: true })) })()"##,
        r##"boolean false"##,
    ),
    (
        r##"(() => { const t = new EventTarget(); t.addEventListener("a", (e) => e.preventDefault(), { passive: true }); return t.dispatchEvent(new Event("a", { cancelable: true })) })()"##,
        r##"boolean true"##,
    ),
    (
        r##"(() => { const t = new EventTarget(); let s = ""; t.addEventListener("a", () => { s += 1; t.addEventListener("a", () => s += 2) }); t.dispatchEvent(new Event("a")); return s })()"##,
        r##"string 1"##,
    ),
    (
        r##"(() => { const t = new EventTarget(); let s = ""; const g = () => s += 2; t.addEventListener("a", () => { s += 1; t.removeEventListener("a", g) }); t.addEventListener("a", g); t.dispatchEvent(new Event("a")); return s })()"##,
        r##"string 1"##,
    ),
    (
        r##"(() => { class T extends EventTarget { go() { return this.dispatchEvent(new Event("x")) } } return new T().go() })()"##,
        r##"boolean true"##,
    ),
    (
        r##"(() => { class M extends Event { constructor(d) { super("m"); this.data = d } } const t = new EventTarget(); let r; t.addEventListener("m", (e) => r = e.data); t.dispatchEvent(new M(7)); return r })()"##,
        r##"number 7"##,
    ),
    (r##"Object.prototype.toString.call(new EventTarget())"##, r##"string [object EventTarget]"##),
    (r##"new AbortSignal()"##, r##"THROW TypeError"##),
    (r##"new AbortController().signal.aborted"##, r##"boolean false"##),
    (r##"Object.keys(new AbortController()).join()"##, r##"string "##),
    (
        r##"Object.prototype.toString.call(new AbortController())"##,
        r##"string [object AbortController]"##,
    ),
    (
        r##"Object.prototype.toString.call(new AbortController().signal)"##,
        r##"string [object AbortSignal]"##,
    ),
    (
        r##"(() => { const c = new AbortController(); c.abort(); return c.signal.reason.name + "|" + c.signal.reason.message + "|" + c.signal.reason.code })()"##,
        r##"string AbortError|This operation was aborted|20"##,
    ),
    (
        r##"(() => { const c = new AbortController(); c.abort("why"); return c.signal.reason })()"##,
        r##"string why"##,
    ),
    (
        r##"(() => { const c = new AbortController(); c.abort(undefined); return c.signal.reason.name })()"##,
        r##"string AbortError"##,
    ),
    (
        r##"(() => { const c = new AbortController(); c.abort(null); return c.signal.reason })()"##,
        r##"object null"##,
    ),
    (
        r##"(() => { const c = new AbortController(); let s = ""; c.signal.addEventListener("abort", () => s += 1); c.signal.onabort = () => s += 2; c.abort(); c.abort(); return s })()"##,
        r##"string 12"##,
    ),
    (
        r##"(() => { const c = new AbortController(); let s = ""; c.signal.onabort = () => s += 2; c.signal.addEventListener("abort", () => s += 1); c.abort(); return s })()"##,
        r##"string 21"##,
    ),
    (
        r##"(() => { const c = new AbortController(); c.signal = 5; return typeof c.signal })()"##,
        r##"THROW TypeError"##,
    ),
    (r##"AbortSignal.abort().aborted"##, r##"boolean true"##),
    (r##"AbortSignal.abort("x").reason"##, r##"string x"##),
    (
        r##"(() => { try { AbortSignal.abort("x").throwIfAborted() } catch (e) { return e } })()"##,
        r##"string x"##,
    ),
    (r##"AbortSignal.any([AbortSignal.abort("y")]).reason"##, r##"string y"##),
    (
        r##"(() => { const a = new AbortController(); const s = AbortSignal.any([a.signal, new AbortController().signal]); a.abort("z"); return s.reason })()"##,
        r##"string z"##,
    ),
    (r##"AbortSignal.any([])  .aborted"##, r##"boolean false"##),
    (r##"AbortSignal.any([1])"##, r##"THROW TypeError"##),
    (r##"AbortSignal.timeout(-1)"##, r##"THROW RangeError"##),
    (r##"AbortSignal.timeout()"##, r##"THROW TypeError"##),
    (r##"crypto.getRandomValues(new Uint8Array(4)).length"##, r##"number 4"##),
    (r##"crypto.getRandomValues(new Float32Array(4))"##, r##"THROW TypeMismatchError"##),
    (
        r##"(() => { try { crypto.getRandomValues(new Float32Array(4)) } catch (e) { return e.name } })()"##,
        r##"string TypeMismatchError"##,
    ),
    (
        r##"(() => { try { crypto.getRandomValues(new Uint8Array(65537)) } catch (e) { return e.name + e.code } })()"##,
        r##"string QuotaExceededError22"##,
    ),
    (r##"crypto.getRandomValues([1])"##, r##"THROW TypeMismatchError"##),
    (r##"crypto.getRandomValues()"##, r##"THROW TypeError"##),
    (r##"Object.prototype.toString.call(crypto)"##, r##"string [object Crypto]"##),
    (
        r##"[1234.5.toLocaleString("en-US"), (1e6).toLocaleString()].join("|")"##,
        r##"string 1,234.5|1,000,000"##,
    ),
    (r##"new Date(0).toLocaleDateString("en-US", { timeZone: "UTC" })"##, r##"string 1/1/1970"##),
    (r##"typeof structuredClone"##, r##"string function"##),
    (r##"typeof WeakRef"##, r##"string function"##),
    (r##"new WeakRef({ a: 1 }).deref().a"##, r##"number 1"##),
    (r##""ä".localeCompare("z", "de")"##, r##"number -1"##),
    (r##"["b", "a", "C"].sort((a, b) => a.localeCompare(b)).join()"##, r##"string a,b,C"##),
];

#[test]
fn objects_of_the_web_do_what_they_do_elsewhere() {
    // One realm for all: none changes what the others see.
    let each = |(expression, _): &(&str, &str)| {
        format!(
            "try {{ const value: any = await (async () => ({expression}))();\n\
             console.log(typeof value, String(value)); }}\n\
             catch (error: any) {{ console.log(\"THROW\", error instanceof Error ? error.name : typeof error); }}\n"
        )
    };
    let source: String = CASES.iter().map(each).collect();
    let lines = lines(&source);
    assert_eq!(lines.len(), CASES.len());
    for ((expression, expected), line) in CASES.iter().zip(&lines) {
        assert_eq!(*line, format!("log: {expected}"), "{expression}");
    }
}

#[test]
fn what_a_language_needs_is_refused_by_name() {
    for (expression, name) in [
        ("(1).toLocaleString(\"de\")", "the locale \"de\" of toLocaleString()"),
        (
            "(1).toLocaleString(\"en-US\", { style: \"currency\", currency: \"USD\" } as any)",
            "`style: currency` of toLocaleString()",
        ),
        (
            "new Date(0).toLocaleDateString(\"en-US\", { month: \"long\" })",
            "the option `month` of toLocaleDateString()",
        ),
        ("\"a\".localeCompare(\"b\", \"sv\")", "the locale \"sv\" of localeCompare()"),
        ("\"I\".toLocaleLowerCase(\"tr\")", "the locale \"tr\" of toLocaleLowerCase()"),
    ] {
        let source =
            format!("try {{ {expression}; }} catch (error: any) {{ console.log(error.message); }}");
        assert_eq!(lines(&source), [format!("log: {name} is not available in the sandbox")]);
    }
}

#[test]
fn the_console_counts_and_groups() {
    let lines = lines(
        "console.count(); console.count(\"a\"); console.count(); console.countReset(); console.count();\n\
         console.group(\"g\"); console.log(1); console.group(); console.warn(2); console.groupEnd(); console.groupEnd();\n\
         console.log(3); console.assert(false, \"no\", 1); console.assert(true); console.timeEnd(\"x\");\n\
         console.time(\"t\"); console.dir({ a: 1 }, { depth: 0 });",
    );
    let expected = [
        "log: default: 1",
        "log: a: 1",
        "log: default: 2",
        "log: default: 1",
        "log: g",
        "log:   1",
        "warn:     2",
        "log: 3",
        "error: Assertion failed: no 1",
        "warn: there is no time \"x\"",
        "log: {\"a\":1}",
    ];
    assert_eq!(lines, expected);
}
