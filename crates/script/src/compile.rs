//! Compiles a source file of the user to a module for the engine: parsing, checks, inspection, and
//! removal of types. Deep nesting costs stack: compile on a thread, or in a process, that may fail.

use std::path::Path;

use oxc_allocator::Allocator;
use oxc_ast::ast::{ImportDeclarationSpecifier, Program, Statement};
use oxc_codegen::{Codegen, CodegenOptions, CommentOptions};
use oxc_diagnostics::OxcDiagnostic;
use oxc_parser::Parser;
use oxc_semantic::{Scoping, SemanticBuilder};
use oxc_span::SourceType;
use oxc_syntax::module_record::{DynamicImport, ModuleRecord};
use oxc_transformer::{JsxRuntime, TransformOptions, Transformer};

use crate::position::{SourceMap, line_and_column};
use crate::source::{Fault, SourceFile};
use crate::source_locations;
use crate::survey::literal_specifier;

/// A problem that an inspector found in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The position, in bytes from the start of the file.
    pub offset: u32,
    /// What is wrong.
    pub message: String,
}

/// Decides which code a module may contain. The findings of both inspections are reported in the
/// order of their positions.
pub trait Inspector {
    /// Inspects the file as it was written, with its types.
    fn inspect_source(&mut self, program: &Program<'_>, findings: &mut Vec<Finding>);

    /// Inspects the code that will run, in which no type can make a name look declared. Positions
    /// are still those of the file.
    fn inspect_transformed(
        &mut self,
        program: &Program<'_>,
        scoping: &Scoping,
        findings: &mut Vec<Finding>,
    );
}

/// Accepts every module.
#[derive(Debug, Clone, Copy, Default)]
pub struct Lenient;

impl Inspector for Lenient {
    fn inspect_source(&mut self, _: &Program<'_>, _: &mut Vec<Finding>) {}
    fn inspect_transformed(&mut self, _: &Program<'_>, _: &Scoping, _: &mut Vec<Finding>) {}
}

/// A module that the engine can run.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Module {
    /// The name of its source file.
    pub path: String,
    /// JavaScript.
    pub code: String,
    /// Its static imports and re-exports, in order.
    pub imports: Vec<Import>,
    /// Its dynamic imports, in order.
    pub lazy: Vec<LazyImport>,
    map: SourceMap,
}

/// A static import that remains after the removal of types.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Import {
    /// The imported module.
    pub specifier: String,
    /// The imported names that are used, if they are named.
    pub names: Vec<String>,
    /// The line of the import, from 1.
    pub line: u32,
    /// Its column, from 1.
    pub column: u32,
}

/// A dynamic import, `import()`.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct LazyImport {
    /// The imported module, if it is a literal; `None` if it is computed at run time.
    pub specifier: Option<String>,
    /// The line of the import, from 1.
    pub line: u32,
    /// Its column, from 1.
    pub column: u32,
}

impl Module {
    /// A JavaScript module that needs no checks: one of ours, or of a library.
    pub fn plain(path: &str, code: String) -> Self {
        let (imports, lazy) = (Vec::new(), Vec::new());
        Self { path: path.to_owned(), code, imports, lazy, map: SourceMap::default() }
    }

    /// Maps a position in the generated code to the user's source; lines and columns count from 1.
    pub fn source_position(&self, line: u32, column: u32) -> (u32, u32) {
        self.map.source_position(line, column)
    }
}

/// Compiles a file: TypeScript unless its name ends in `.js`, `.mjs`, `.jsx` or `.tsx`.
///
/// # Errors
/// All problems of the file with their positions: syntax, early errors of the language, and the
/// findings of the inspector.
pub fn compile(file: &SourceFile, inspector: &mut dyn Inspector) -> Result<Module, Vec<Fault>> {
    compile_with(file, inspector, &TransformOptions::default())
}

/// The same for a file with JSX elements, which a library of that name creates, unless the file
/// itself names another (`@jsxImportSource`). Elements know their source positions:
/// `NAME/jsx-dev-runtime` is imported.
///
/// # Errors
/// As [`compile`].
pub fn compile_elements(
    file: &SourceFile,
    library: &str,
    inspector: &mut dyn Inspector,
) -> Result<Module, Vec<Fault>> {
    let mut options = TransformOptions::default();
    options.jsx.development = true;
    options.jsx.import_source = Some(library.to_owned());
    compile_with(file, inspector, &options)
}

fn compile_with(
    file: &SourceFile,
    inspector: &mut dyn Inspector,
    options: &TransformOptions,
) -> Result<Module, Vec<Fault>> {
    let source = file.source.as_str();
    if let Some(at) = source.find('\0') {
        let offset = u32::try_from(at).unwrap_or(u32::MAX);
        let message = "the character U+0000 cannot be in a file: write \\0 in texts".to_owned();
        return Err(vec![fault(file, offset, message)]);
    }
    let allocator = Allocator::default();
    let parsed = Parser::new(&allocator, source, source_type(&file.path)).parse();
    faults(file, parsed.diagnostics)?;
    let lazy = lazy_imports(source, &parsed.module_record);
    let mut program = parsed.program;

    // The transformer adds its own scopes and symbols.
    let semantic =
        SemanticBuilder::new().with_excess_capacity(2.0).with_enum_eval(true).build(&program);
    faults(file, semantic.diagnostics)?;
    let mut findings = Vec::new();
    inspector.inspect_source(&program, &mut findings);

    let scoping = semantic.semantic.into_scoping();
    let mut options = options.clone();
    if !options.jsx.development && names_factory(source, &program) {
        options.jsx.runtime = JsxRuntime::Classic;
    }
    let options = &options;
    let transformed = Transformer::new(&allocator, Path::new(&file.path), options)
        .build_with_scoping(scoping, &mut program);
    faults(file, transformed.diagnostics)?;
    let places = if options.jsx.development {
        source_locations::hoist_locations(&mut program, &allocator, source)
    } else {
        String::new()
    };

    let scoping = SemanticBuilder::new().build(&program).semantic.into_scoping();
    inspector.inspect_transformed(&program, &scoping, &mut findings);
    if !findings.is_empty() {
        findings.sort_by_key(|finding| finding.offset);
        let fault = |Finding { offset, message }| fault(file, offset, message);
        return Err(findings.into_iter().map(fault).collect());
    }

    let imports = imports(source, &program);
    let options = CodegenOptions {
        source_map_path: Some(Path::new(&file.path).to_owned()),
        comments: CommentOptions::disabled(),
        ..CodegenOptions::default()
    };
    let generated = Codegen::new().with_options(options).build(&program);
    let map = SourceMap::of(&generated);
    let code = generated.code + &places;
    Ok(Module { path: file.path.clone(), code, imports, lazy, map })
}

/// Whether a comment names the function that makes elements: `/** @jsx NAME */`.
fn names_factory(source: &str, program: &Program<'_>) -> bool {
    program.comments.iter().any(|comment| {
        let text = comment.span.source_text(source);
        let after = text.split_once("@jsx").map(|(_, after)| after);
        after.is_some_and(|after| after.starts_with(char::is_whitespace))
    })
}

fn source_type(path: &str) -> SourceType {
    let javascript = [".js", ".mjs", ".jsx", ".tsx"].iter().any(|ending| path.ends_with(ending));
    let known = if javascript { SourceType::from_path(path).ok() } else { None };
    known.unwrap_or_else(SourceType::ts).with_module(true)
}

fn imports(source: &str, program: &Program<'_>) -> Vec<Import> {
    let import = |statement: &Statement<'_>| {
        let (specifier, span, names) = match statement {
            Statement::ImportDeclaration(import) => {
                let named = import.specifiers.iter().flatten();
                (&import.source, import.span, named.filter_map(imported_name).collect())
            }
            Statement::ExportFromDeclaration(export) => {
                let named = export.specifiers.iter().map(|it| it.local.name().to_string());
                (&export.source, export.span, named.collect())
            }
            Statement::ExportAllDeclaration(export) => (&export.source, export.span, Vec::new()),
            _ => return None,
        };
        let (line, column) = line_and_column(source, span.start);
        Some(Import { specifier: specifier.value.to_string(), names, line, column })
    };
    program.body.iter().filter_map(import).collect()
}

fn imported_name(specifier: &ImportDeclarationSpecifier<'_>) -> Option<String> {
    match specifier {
        ImportDeclarationSpecifier::ImportSpecifier(named) => {
            Some(named.imported.name().to_string())
        }
        ImportDeclarationSpecifier::ImportDefaultSpecifier(_) => Some("default".to_owned()),
        ImportDeclarationSpecifier::ImportNamespaceSpecifier(_) => None,
    }
}

fn lazy_imports(source: &str, record: &ModuleRecord<'_>) -> Vec<LazyImport> {
    let mut found: Vec<&DynamicImport> = record.dynamic_imports.iter().collect();
    found.sort_by_key(|import| import.span.start);
    let lazy = |import: &DynamicImport| {
        let (line, column) = line_and_column(source, import.span.start);
        LazyImport { specifier: literal_specifier(source, import), line, column }
    };
    found.into_iter().map(lazy).collect()
}

fn faults(
    file: &SourceFile,
    diagnostics: impl IntoIterator<Item = OxcDiagnostic>,
) -> Result<(), Vec<Fault>> {
    let fault = |diagnostic: OxcDiagnostic| {
        let mut offsets = diagnostic.labels.iter().map(|label| label.offset());
        // Of two declarations of a name the second one is wrong.
        let is_second = diagnostic.message.ends_with("has already been declared");
        let offset = if is_second { offsets.max() } else { offsets.next() }.unwrap_or(0);
        fault(file, offset, diagnostic.message.to_string())
    };
    let faults: Vec<Fault> = diagnostics.into_iter().map(fault).collect();
    if faults.is_empty() { Ok(()) } else { Err(faults) }
}

fn fault(file: &SourceFile, offset: u32, message: String) -> Fault {
    let (line, column) = line_and_column(&file.source, offset);
    Fault { path: file.path.clone(), line, column, message }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compile_source(path: &str, source: &str) -> Result<Module, Vec<Fault>> {
        compile(&SourceFile { path: path.to_owned(), source: source.to_owned() }, &mut Lenient)
    }

    #[test]
    fn types_go_and_places_stay() {
        let source = "import type { A } from \"./a.js\";\nimport { b } from \"./b.js\";\n\
                      interface Wide { x: number }\n\n  const sum: number = b(1 as number);\n\
                      export { sum };\nexport * from \"./c.js\";\n";
        let module = compile_source("src/main.ts", source).unwrap();
        assert!(!module.code.contains("number"), "{}", module.code);
        let imports: Vec<_> =
            module.imports.iter().map(|i| (i.specifier.as_str(), i.line, i.column)).collect();
        assert_eq!(imports, [("./b.js", 2, 1), ("./c.js", 7, 1)]);
        let (line, text) =
            module.code.lines().enumerate().find(|(_, text)| text.contains("b(1")).unwrap();
        let column = text.find("b(1").unwrap() + 1;
        let place = module
            .source_position(u32::try_from(line + 1).unwrap(), u32::try_from(column).unwrap());
        assert_eq!(place, (5, 23));
    }

    #[test]
    fn imports_while_it_runs_are_told_apart() {
        let source = "const a = await import(\"./a.ts\");\n  import(`./${a}.ts`);\nimport('b');\n\
                      type T = import(\"./t\").T;\n";
        let found = compile_source("m.ts", source).unwrap().lazy;
        let found: Vec<_> =
            found.iter().map(|it| (it.specifier.as_deref(), it.line, it.column)).collect();
        assert_eq!(found, [(Some("./a.ts"), 1, 17), (None, 2, 3), (Some("b"), 3, 1)]);
    }

    #[test]
    fn what_is_wrong_has_its_place() {
        let fault =
            |path: &str, source: &str| compile_source(path, source).unwrap_err()[0].to_string();
        assert!(fault("a.ts", "let x = 1;\nlet = ;\n").starts_with("a.ts:2:"));
        assert!(fault("a.ts", "let x = 1;\nlet x = 2;\n").starts_with("a.ts:"));
        assert!(fault("a.js", "let x: number;").starts_with("a.js:1:6 — "));
    }

    #[test]
    fn enums_and_tsx_are_javascript_afterwards() {
        assert!(
            compile_source("a.ts", "export enum E { A = 1, B }").unwrap().code.contains("\"B\"")
        );
        let tsx = compile_source("a.tsx", "export const e = <p id=\"1\">x</p>;").unwrap();
        assert_eq!(tsx.imports[0].specifier, "react/jsx-runtime");
        assert!(compile_source("a.jsx", "export const e = <p/>;").is_ok());
        let own = "/** @jsx h */\nconst h = (name: string) => name;\nexport const e = <p/>;";
        let own = compile_source("a.tsx", own).unwrap();
        assert!(own.imports.is_empty() && own.code.contains("h(\"p\""), "{}", own.code);
    }

    #[test]
    fn elements_know_their_library_and_their_places() {
        let elements = |source: &str| {
            let file = SourceFile { path: "a.tsx".to_owned(), source: source.to_owned() };
            compile_elements(&file, "ours", &mut Lenient).unwrap()
        };
        let module = elements("export const e = (\n  <p>x</p>\n);");
        assert_eq!(module.imports[0].specifier, "ours/jsx-dev-runtime");
        assert!(module.code.contains("lineNumber: 2") && module.code.contains("a.tsx"));
        // One value for each source position.
        let twice = elements("const f = (_jsxPlace) => [<p/>, <b>{[<i/>]}</b>];").code;
        assert_eq!(twice.matches("??=").count(), 3, "{twice}");
        assert!(twice.ends_with("var _jsxPlace_0, _jsxPlace_1, _jsxPlace_2;\n"), "{twice}");
        let named = elements("/** @jsxImportSource theirs */\nexport const e = <p/>;");
        assert_eq!(named.imports[0].specifier, "theirs/jsx-dev-runtime");
    }
}
