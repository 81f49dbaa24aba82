//! The imports of a plain JavaScript file. The file is not changed: libraries run as they were
//! written.

use oxc_allocator::Allocator;
use oxc_parser::Parser;
use oxc_semantic::SemanticBuilder;
use oxc_span::SourceType;
use oxc_syntax::module_record::{DynamicImport, ExportExportName};

use crate::position::line_and_column;
use crate::source::{Fault, SourceFile};

/// The imports and exports of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Survey {
    /// Whether it has an import or export, which makes it a module in any case.
    pub is_module: bool,
    /// Its static imports and re-exports, each once.
    pub imports: Vec<String>,
    /// Its dynamic imports with a plain text; each once.
    pub lazy: Vec<String>,
    /// Whether it has a default export.
    pub has_default: bool,
    /// The names that it exports, except for those of an `export *`.
    pub exports: Vec<String>,
    /// Whether it has an `export *`.
    pub reexports_all: bool,
}

/// Parses a JavaScript file, whatever its extension.
///
/// # Errors
/// The first syntax error.
pub fn survey(file: &SourceFile) -> Result<Survey, Fault> {
    let source = file.source.as_str();
    let allocator = Allocator::default();
    let parsed = Parser::new(&allocator, source, SourceType::mjs()).parse();
    if let Some(diagnostic) = parsed.diagnostics.into_iter().next() {
        let offset = diagnostic.labels.first().map_or(0, |label| label.offset());
        let (line, column) = line_and_column(source, offset);
        let message = diagnostic.message.to_string();
        return Err(Fault { path: file.path.clone(), line, column, message });
    }
    let record = parsed.module_record;
    let mut imports: Vec<String> =
        record.requested_modules.keys().map(ToString::to_string).collect();
    imports.sort();
    let mut lazy: Vec<String> = record
        .dynamic_imports
        .iter()
        .filter_map(|import| literal_specifier(source, import))
        .collect();
    lazy.sort();
    lazy.dedup();
    let entries = || record.local_export_entries.iter().chain(&record.indirect_export_entries);
    let has_default = entries().any(|export| is_default(&export.export_name));
    let passes_on = !record.star_export_entries.is_empty();
    let name = |name: &ExportExportName<'_>| match name {
        ExportExportName::Name(name) => Some(name.name.to_string()),
        ExportExportName::Default(_) => Some("default".to_owned()),
        ExportExportName::Null => None,
    };
    let exports = entries().filter_map(|export| name(&export.export_name)).collect();
    Ok(Survey {
        is_module: record.has_module_syntax,
        imports,
        lazy,
        has_default,
        exports,
        reexports_all: passes_on,
    })
}

/// Whether a JavaScript file uses a name that it does not declare. False for a file with syntax
/// errors.
pub fn uses_free_name(file: &SourceFile, name: &str) -> bool {
    let allocator = Allocator::default();
    let parsed = Parser::new(&allocator, &file.source, SourceType::mjs()).parse();
    let semantic = SemanticBuilder::new().build(&parsed.program).semantic;
    semantic.scoping().root_unresolved_references().keys().any(|free| free.as_str() == name)
}

fn is_default(name: &ExportExportName<'_>) -> bool {
    match name {
        ExportExportName::Default(_) => true,
        ExportExportName::Name(name) => name.name == "default",
        ExportExportName::Null => false,
    }
}

/// The module of an `import()`, if it is a literal.
pub(crate) fn literal_specifier(source: &str, import: &DynamicImport) -> Option<String> {
    let span = import.module_request;
    plain_text(source.get(span.start as usize..span.end as usize)?)
}

/// The text of a literal without escapes.
fn plain_text(literal: &str) -> Option<String> {
    let quote = literal.chars().next().filter(|quote| matches!(quote, '"' | '\'' | '`'))?;
    let text = literal.strip_prefix(quote)?.strip_suffix(quote)?;
    let is_plain = !text.contains(['\\', '$', quote]);
    is_plain.then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn survey_source(source: &str) -> Result<Survey, Fault> {
        survey(&SourceFile { path: "a.js".to_owned(), source: source.to_owned() })
    }

    #[test]
    fn every_import_is_found_once() {
        let found = survey_source(
            "import a from \"./a.js\"; import { b } from './b.js'; import \"./a.js\";\n\
                        export * from \"c\"; export { d } from \"d/e\";\n\
                        const f = () => import(`./f.js`); import(\"./f\" + 1); import('g\\x20');",
        )
        .unwrap();
        assert_eq!(found.imports, ["./a.js", "./b.js", "c", "d/e"]);
        assert_eq!(found.lazy, ["./f.js"]);
        assert!(found.is_module);
    }

    #[test]
    fn a_default_is_known_by_all_its_forms() {
        for source in [
            "export default 1;",
            "const a = 1; export { a as default };",
            "export { default } from \"a\";",
            "export { a as default } from \"a\";",
            "export * as default from \"a\";",
        ] {
            assert!(survey_source(source).unwrap().has_default, "{source}");
        }
        for source in ["export const a = 1;", "export * from \"a\";", "import a from \"a\";"] {
            assert!(!survey_source(source).unwrap().has_default, "{source}");
        }
    }

    #[test]
    fn a_free_name_is_one_that_is_declared_nowhere_above() {
        let uses = |source: &str| {
            uses_free_name(
                &SourceFile { path: "a.js".to_owned(), source: source.to_owned() },
                "process",
            )
        };
        assert!(uses("if (process.env.NODE_ENV) f();"));
        assert!(uses("typeof process; function f(process) { process; }"));
        for source in [
            "const process = {}; process.env;",
            "import process from \"process\"; process.env;",
            "function f(process) { process.env; }",
            "// process.env",
            "a.process; \"process.env\"",
        ] {
            assert!(!uses(source), "{source}");
        }
    }

    #[test]
    fn a_script_is_no_module() {
        assert!(!survey_source("module.exports = require(\"a\");").unwrap().is_module);
        assert!(survey_source("export {};").unwrap().is_module);
        let fault = survey_source("let a = 1;\nlet = ;").unwrap_err();
        assert_eq!((fault.path.as_str(), fault.line), ("a.js", 2));
    }
}
