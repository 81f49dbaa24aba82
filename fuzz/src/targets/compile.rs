//! A file of a snippet, which may be anything: it is read, checked, and freed of its types.

use stockade_script::SourceFile;
use stockade_snippet::{Imports, check_file};

/// Words of the language, and what nests.
pub(super) const WORDS: &[&str] = &[
    "import { x } from \"./x.js\";\n",
    "import type { X } from \"./x.js\";\n",
    "import(\"./x.js\")",
    "import.meta",
    "export * from \"./x.js\";\n",
    "export default ",
    "declare const process: any;\n",
    "namespace N { export const x = 1 }\n",
    "enum E { A = 1, B = \"b\" }\n",
    "abstract class C<T> extends D implements I { #x = 1; static { } }\n",
    "constructor(private readonly x: number) {}",
    "function* g(this: any, ...rest: number[]) { yield* rest }\n",
    "async () => { await x }",
    "@decorator ",
    "as unknown as ",
    " satisfies ",
    "<T,>(x: T) => x",
    "{ [\"constructor\"]: F }",
    "globalThis[\"x\"]",
    "`${`${x}`}`",
    "/(?<name>a)\\k<name>/v",
    "label: for (;;) break label;\n",
    "using x = y;\n",
    "x?.y?.[z]!",
    "0x1_0n",
    "\"\\u{10ffff}\"",
    "\u{feff}",
    "\u{2028}",
    "({[",
    "]})",
    "((((((((",
    "))))))))",
    "!!!!!!!!",
    "a=>a=>a=>",
    "x:Array<Array<",
    "?x:",
    "/*",
    "*/",
    "//",
    "\n",
];

/// Deep nesting costs stack, of which a worker has less and may run out.
const STACK_BYTES: usize = 512 << 20;

/// Reads a file. What was accepted comes from places of the file; what was refused has its reasons
/// at such places.
pub(super) fn run(bytes: &[u8]) -> bool {
    let bytes = bytes.to_vec();
    let thread = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(move || read(&bytes));
    match thread.map(std::thread::JoinHandle::join) {
        Ok(Ok(accepted)) => accepted,
        Ok(Err(panic)) => std::panic::resume_unwind(panic),
        // Counts as refused; where it is always so, nothing is accepted.
        Err(_) => false,
    }
}

fn read(bytes: &[u8]) -> bool {
    let source = String::from_utf8_lossy(bytes).into_owned();
    let lines = source.lines().count() + 1;
    let file = SourceFile { path: "src/main.ts".to_owned(), source };
    match check_file(&file, &Imports::default()) {
        Ok(module) => {
            assert!(module.imports.iter().all(|import| (import.line as usize) <= lines));
            for line in (1..).take(module.code.lines().count() + 1) {
                let (line, column) = module.source_position(line, 1);
                assert!(line >= 1 && (line as usize) <= lines && column >= 1);
            }
            true
        }
        Err(faults) => {
            assert!(!faults.is_empty());
            for fault in faults {
                assert!(fault.line >= 1 && fault.column >= 1, "{fault}");
                assert!((fault.line as usize) <= lines, "{fault}");
            }
            false
        }
    }
}
