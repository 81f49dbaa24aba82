//! Real packages of npm as library sets. `cargo xtask ci` installs them.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking, as tests do")]

use std::path::{Path, PathBuf};

use stockade_snippet::library::{Selection, load_installed};
use stockade_snippet::{Imports, Input, Transcript, execute};

/// The directory of packages; if it does not exist, records a skip and returns `None`.
fn node_modules() -> Option<PathBuf> {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("packages/npm/node_modules");
    if directory.join("zod/package.json").exists() {
        return Some(directory);
    }
    stockade_test_support::skipped("zod is not installed: cargo xtask ci installs it");
    None
}

fn run(directory: &Path, source: &str) -> Transcript {
    let imports = Imports { packages: vec!["zod".to_owned()], ..Imports::default() };
    let input = Input { source: Some(source.to_owned()), ..Input::default() };
    let library = load_installed(directory, &imports, Selection::All).unwrap();
    execute(input, &imports, &library)
}

#[test]
fn zod_validates_in_a_snippet() {
    let Some(directory) = node_modules() else { return };
    let source = "import { z } from \"zod\";\n\
        const User = z.object({ name: z.string().min(2), age: z.number().int(), \
          mail: z.email(), tags: z.array(z.enum([\"a\", \"b\"])).default([]) });\n\
        type User = z.infer<typeof User>;\n\
        const good: User = User.parse({ name: \"Ann\", age: 4, mail: \"ann@example.com\" });\n\
        console.log(good);\n\
        const bad = User.safeParse({ name: \"A\", age: 1.5, mail: \"no\", tags: [\"c\"] });\n\
        console.log(bad.success, bad.error?.issues.map((issue) => issue.path.join(\".\")).join());\n\
        console.log(Object.keys(z.toJSONSchema(User).properties ?? {}).join());\n\
        console.log(await z.string().transform(async (s) => s.length).parseAsync(\"four\"));";
    let transcript = run(&directory, source);
    assert_eq!(transcript.errors, [""; 0]);
    assert_eq!(
        transcript.logs,
        [
            "[log] {\"name\":\"Ann\",\"age\":4,\"mail\":\"ann@example.com\",\"tags\":[]}",
            "[log] false name,age,mail,tags.0",
            "[log] name,age,mail,tags",
            "[log] 4",
        ]
    );
    let [zod] = transcript.libraries.as_slice() else { panic!("{:?}", transcript.libraries) };
    assert_eq!((zod.name.as_str(), zod.version.as_deref()), ("zod", Some("4.6.7")));
}

#[test]
fn what_zod_exports_beside_itself_can_be_imported() {
    let Some(directory) = node_modules() else { return };
    let source = "import z from \"zod\"; import * as mini from \"zod/mini\";\n\
        import * as core from \"zod/v4/core\"; import { z as three } from \"zod/v3\";\n\
        console.log(z.string().parse(\"a\"), mini.string().parse(\"b\"), typeof core.parse);\n\
        try { three.string().parse(1); } catch (error) { console.log((error as Error).name); }";
    let transcript = run(&directory, source);
    assert_eq!(transcript.errors, [""; 0]);
    assert_eq!(transcript.logs, ["[log] a b function", "[log] ZodError"]);
    let hidden = run(&directory, "import \"zod/index.js\";");
    assert!(hidden.errors[0].contains("the library set has only zod,"), "{hidden:?}");
}
