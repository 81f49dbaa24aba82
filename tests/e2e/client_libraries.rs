//! The client libraries of `sdk/`, if `cargo xtask ci` has installed what they need: their own tests with the
//! built programs, their types, what is built from them, and the examples of their pages.

use std::path::{Path, PathBuf};

use crate::call::{Call, Outcome};
use crate::harness::{Identity, World, skip, tests_run_as_root};
use crate::served::{Server, key};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn installed(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("packages").join(name)
}

/// The packages are installed for the user of the tests.
fn world() -> World {
    stockade_test_support::require_nextest();
    World::new(if tests_run_as_root() { Identity::Root } else { Identity::User })
}

/// The Python with the packages of `tests/packages/sdk.txt`; `None` if they are not installed, which is reported.
fn python(test: &str) -> Option<PathBuf> {
    let program = installed("sdk/bin/python");
    if program.exists() {
        return Some(program);
    }
    skip(
        &format!("client_libraries::{test}"),
        "httpx is not installed: cargo xtask ci installs it",
    );
    None
}

/// The compiler of TypeScript; `None` if it or Node is not installed, which is reported.
fn compiler(test: &str) -> Option<PathBuf> {
    let program = installed("npm/node_modules/typescript/bin/tsc");
    let reason = if !installed("npm/node_modules/@types/node").exists() {
        "typescript is not installed: cargo xtask ci installs it"
    } else if !node().exists() {
        "Node is not installed: apt-get install nodejs"
    } else {
        return Some(program);
    };
    skip(&format!("client_libraries::{test}"), reason);
    None
}

fn node() -> PathBuf {
    let places = ["/usr/local/bin/node", "/usr/bin/node"].map(PathBuf::from);
    places.into_iter().find(|path| path.exists()).unwrap_or_default()
}

/// Runs Python with the sources of the package and a search path with `stockade`.
fn run_python(world: &World, program: &Path, words: &[&str]) -> Outcome {
    python_call(world, program, words).finish()
}

fn python_call(world: &World, program: &Path, words: &[&str]) -> Call {
    world
        .on_host(program, words)
        .env("PATH", format!("{}:/usr/local/bin:/usr/bin:/bin", world.path("bin").display()))
        .env("PYTHONPATH", root().join("sdk/python/src"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("STOCKADE_TEST_PROGRAM", world.binary())
        .deadline(110)
}

/// Runs tests of the Python package by their names; none of them may be skipped.
fn python_tests(test: &str, names: &[&str]) {
    let Some(program) = python(test) else { return };
    let world = world();
    let directory = root().join("sdk/python");
    let start = format!(
        "import sys, unittest; sys.path.insert(0, {directory:?}); unittest.main(module=None)"
    );
    let mut words = vec!["-W", "error::ResourceWarning", "-c", start.as_str()];
    words.extend(names);
    let outcome = run_python(&world, &program, &words);
    outcome.succeeds();
    assert!(outcome.stderr.contains("\nOK\n"), "{outcome}");
}

#[test]
fn python_without_a_server() {
    let names = ["tests.test_models", "tests.test_locate", "tests.test_orbiter_rows"];
    python_tests("python_without_a_server", &names);
}

#[test]
fn python_with_a_server() {
    python_tests("python_with_a_server", &["tests.test_sandbox", "tests.test_async"]);
}

#[test]
fn orbiters_sandbox() {
    python_tests("orbiters_sandbox", &["tests.test_orbiter"]);
}

/// Both libraries reach a server at a URL with a key, as the variables name it.
#[test]
fn servers_elsewhere() {
    let (Some(program), Some(compiler)) =
        (python("servers_elsewhere"), compiler("servers_elsewhere"))
    else {
        return;
    };
    let world = world();
    let server = Server::start(&world, &[]);
    let (key, _) = key(&world, &["--owner", "me"]);
    let named = |call: Call| {
        let url = format!("http://{}", server.host());
        call.env("STOCKADE_SERVER", url).env("STOCKADE_API_KEY", &key).finish()
    };
    let directory = root().join("sdk/python");
    let tests = directory.to_str().unwrap();
    let words = ["-m", "unittest", "discover", "-t", tests, "-s", tests, "-p", "test_elsewhere.py"];
    let outcome = named(python_call(&world, &program, &words));
    outcome.succeeds();
    assert!(outcome.stderr.ends_with("\nOK\n"), "{outcome}");
    let package = built(&world, &compiler);
    let tests = root().join("sdk/typescript/test/elsewhere.test.mjs");
    let call = world.on_host(&node(), &["--test".as_ref(), tests.as_os_str()]);
    named(call.env("STOCKADE_TEST_PACKAGE", &package)).succeeds();
}

#[test]
fn the_types_of_the_python_package_are_strict() {
    let Some(program) = python("the_types_of_the_python_package_are_strict") else { return };
    let world = world();
    let cache = installed("sdk/mypy-cache");
    let cache = cache.to_str().unwrap();
    let words = ["-m", "mypy", "--cache-dir", cache];
    let directory = root().join("sdk/python");
    let outcome = world.on_host(&program, &words).current_dir(&directory).deadline(110).finish();
    outcome.succeeds();
}

/// The wheel and the source archive are built and have what they should have; the installed wheel works.
#[test]
fn the_python_package_is_built() {
    let Some(program) = python("the_python_package_is_built") else { return };
    let world = world();
    let copy = world.outside().join("python");
    copy_tree(&root().join("sdk/python"), &copy);
    let copied = copy.to_str().unwrap();
    run_python(&world, &program, &["-m", "build", "--no-isolation", copied]).succeeds();
    let wheel = copy.join("dist/stockade-0.1.0-py3-none-any.whl");
    let target = world.outside().join("installed");
    let (wheel, place) = (wheel.to_str().unwrap(), target.to_str().unwrap());
    let install =
        ["-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", place, wheel];
    run_python(&world, &program, &install).succeeds();
    assert!(target.join("stockade/py.typed").exists());
    assert!(!target.join("tests").exists());
    let sources = copy.join("dist/stockade-0.1.0.tar.gz");
    let listed =
        world.on_host(&program, &["-m", "tarfile", "-l", sources.to_str().unwrap()]).finish();
    for file in ["src/stockade/_sync/sandbox.py", "tests/test_sandbox.py", "README.md"] {
        assert!(listed.stdout.contains(&format!("stockade-0.1.0/{file}")), "{file}: {listed}");
    }
    let script = "import stockade; print(stockade.__file__, stockade.__version__)";
    let used = world.on_host(&program, &["-c", script]).env("PYTHONPATH", &target).finish();
    assert!(used.stdout.starts_with(place) && used.stdout.ends_with(" 0.1.0\n"), "{used}");
}

fn copy_tree(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        if !path.is_dir() {
            std::fs::copy(&path, &target).unwrap();
        } else if entry.file_name() != "__pycache__" {
            copy_tree(&path, &target);
        }
    }
}

/// Builds the package for TypeScript.
fn built(world: &World, compiler: &Path) -> PathBuf {
    let directory = world.outside().join("typescript");
    let project = root().join("sdk/typescript/tsconfig.build.json");
    let types = installed("npm/node_modules/@types");
    let words = [
        compiler.as_os_str(),
        "--project".as_ref(),
        project.as_os_str(),
        "--outDir".as_ref(),
        directory.as_os_str(),
        "--typeRoots".as_ref(),
        types.as_os_str(),
    ];
    world.on_host(&node(), &words).finish().succeeds();
    directory
}

#[test]
fn typescript_with_a_server() {
    let Some(compiler) = compiler("typescript_with_a_server") else { return };
    let world = world();
    let package = built(&world, &compiler);
    assert!(package.join("index.d.ts").exists() && package.join("fireflow/nodes.d.ts").exists());
    let tests = root().join("sdk/typescript/test/sandbox.test.mjs");
    let words = ["--test".as_ref(), "--test-reporter=tap".as_ref(), tests.as_os_str()];
    let outcome = world
        .on_host(&node(), &words)
        .env("STOCKADE_TEST_PACKAGE", &package)
        .env("STOCKADE_TEST_PROGRAM", world.binary())
        .deadline(110)
        .finish();
    outcome.succeeds();
    assert!(outcome.stdout.contains("# skipped 0\n"), "{outcome}");
}

/// The blocks of a document in this language.
fn blocks(document: &str, language: &str) -> Vec<String> {
    let text = std::fs::read_to_string(root().join(document)).unwrap();
    let start = format!("```{language}\n");
    let mut found = Vec::new();
    for block in text.split(start.as_str()).skip(1) {
        found.push(block.split_once("```").unwrap().0.to_owned());
    }
    assert!(!found.is_empty(), "{document} has no example in {language}");
    found
}

/// What the comments `# prints …` or `// prints …` of an example announce.
fn announced(example: &str) -> String {
    let lines =
        example.lines().filter_map(|line| line.split_once(" prints ").map(|(_, text)| text));
    lines.map(|line| format!("{line}\n")).collect()
}

#[test]
fn the_examples_for_python_print_what_they_say() {
    let Some(program) = python("the_examples_for_python_print_what_they_say") else { return };
    let world = world();
    for document in ["docs/clients/python.md", "sdk/python/README.md"] {
        for example in blocks(document, "python") {
            let outcome = run_python(&world, &program, &["-c", &example]);
            outcome.succeeds();
            assert_eq!(outcome.stdout, announced(&example), "{document}: {outcome}");
        }
    }
}

#[test]
fn the_examples_for_typescript_print_what_they_say() {
    let Some(compiler) = compiler("the_examples_for_typescript_print_what_they_say") else {
        return;
    };
    let world = world();
    let package = built(&world, &compiler);
    // Where Node finds the package by its name.
    let place = world.project.join("node_modules/stockade");
    std::fs::create_dir_all(&place).unwrap();
    std::fs::copy(root().join("sdk/typescript/package.json"), place.join("package.json")).unwrap();
    std::os::unix::fs::symlink(&package, place.join("dist")).unwrap();
    for document in ["docs/clients/typescript.md", "sdk/typescript/README.md"] {
        for example in blocks(document, "js") {
            let file = world.write("example.mjs", &example);
            let outcome = world
                .on_host(&node(), &[file])
                .env(
                    "PATH",
                    format!("{}:/usr/local/bin:/usr/bin:/bin", world.path("bin").display()),
                )
                .finish();
            outcome.succeeds();
            assert_eq!(outcome.stdout, announced(&example), "{document}: {outcome}");
        }
    }
}
