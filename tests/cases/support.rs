//! Runs cases of `tests/cases/*.json`. The list `drivers.json` gives each case to one test, or says
//! why it waits; `cargo xtask tidy` sees to it that the list is whole and that the tests exist.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value;

/// One case, as its file has it.
#[derive(Debug, Clone, serde::Deserialize)]
pub(crate) struct Case {
    /// What it is called, once in its file.
    pub(crate) name: String,
    /// The state before; null where the file has another shape.
    #[serde(default)]
    pub(crate) given: Value,
    /// The operation; null where the file has another shape.
    #[serde(default)]
    pub(crate) when: Value,
    /// The answer.
    #[serde(default, alias = "expected")]
    pub(crate) expect: Value,
    /// Every other field.
    #[serde(flatten)]
    pub(crate) rest: serde_json::Map<String, Value>,
    /// What the expectation rests on.
    pub(crate) basis: String,
}

/// Runs the cases of a file that the list gives to a test, `FILE::TEST`, and fails with every one
/// that fails. A driver that does not know a case answers with [`no_driver`].
pub(crate) fn drive(test: &str, file: &str, driver: impl Fn(&Case) -> Result<(), String>) {
    let list = drivers().remove(file).unwrap_or_default();
    let cases: Vec<Case> = serde_json::from_str(&read(file)).unwrap();
    let given = |case: &&Case| list.get(&case.name).is_some_and(|driver| driver == test);
    let mine: Vec<_> = cases.iter().filter(given).collect();
    assert!(!mine.is_empty(), "the list of drivers gives no case of {file} to {test}");
    let failure = |case: &&Case| {
        let why = driver(case).err()?;
        let Case { name, given, when, expect, basis, rest } = case;
        let rest = Value::Object(rest.clone());
        let shape = format!("given {given}, when {when}, expect {expect}, {rest}");
        Some(format!("{name}: {why}\n  ({basis}: {shape})"))
    };
    let failures: Vec<_> = mine.iter().filter_map(failure).collect();
    let (failed, all) = (failures.len(), mine.len());
    assert!(failures.is_empty(), "{failed} of {all} cases fail:\n{}", failures.join("\n"));
}

/// The answer of a driver to a case that it does not know.
pub(crate) fn no_driver() -> Result<(), String> {
    Err("has no driver".to_owned())
}

/// Compares what was expected with what came.
pub(crate) fn same<T: PartialEq + std::fmt::Debug>(expected: T, actual: T) -> Result<(), String> {
    if expected == actual { Ok(()) } else { Err(format!("expected {expected:?}, got {actual:?}")) }
}

/// Each file with its cases, and what each is given to.
pub(crate) fn drivers() -> BTreeMap<String, BTreeMap<String, String>> {
    serde_json::from_str(&read("drivers.json")).unwrap()
}

fn read(file: &str) -> String {
    let path = folder().join(file);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/cases")
}
