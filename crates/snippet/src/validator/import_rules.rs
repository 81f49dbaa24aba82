//! Checks on the source as written: imports, except for type-only ones, and the two forms that
//! belong to modules.

use stockade_script::Finding;
use stockade_script::syntax::Span;
use stockade_script::syntax::tree::ast::{
    ExportAllDeclaration, ExportFromDeclaration, ImportDeclaration, ImportDeclarationSpecifier,
    ImportExpression, ImportMeta, Program, TSImportEqualsDeclaration, TSModuleReference,
};
use stockade_script::syntax::visit::{Visit, walk};

use crate::imports::Imports;

pub(super) fn find(program: &Program<'_>, imports: &Imports, findings: &mut Vec<Finding>) {
    ImportRules { imports, findings }.visit_program(program);
}

struct ImportRules<'i> {
    imports: &'i Imports,
    findings: &'i mut Vec<Finding>,
}

impl ImportRules<'_> {
    fn import(&mut self, span: Span, specifier: &str) {
        if let Some(message) = self.imports.refusal(specifier) {
            self.findings.push(Finding { offset: span.start, message });
        }
    }

    fn report(&mut self, span: Span, message: &str) {
        self.findings.push(Finding { offset: span.start, message: message.to_owned() });
    }
}

impl<'a> Visit<'a> for ImportRules<'_> {
    fn visit_import_declaration(&mut self, import: &ImportDeclaration<'a>) {
        // Nothing remains of a type.
        let is_type = |specifier: &ImportDeclarationSpecifier<'_>| matches!(specifier, ImportDeclarationSpecifier::ImportSpecifier(named) if named.import_kind.is_type());
        let named = import.specifiers.as_ref().filter(|named| !named.is_empty());
        if import.import_kind.is_type() || named.is_some_and(|named| named.iter().all(is_type)) {
            return;
        }
        self.import(import.span, import.source.value.as_str());
    }

    fn visit_export_from_declaration(&mut self, export: &ExportFromDeclaration<'a>) {
        let are_types = !export.specifiers.is_empty()
            && export.specifiers.iter().all(|named| named.export_kind.is_type());
        if export.export_kind.is_type() || are_types {
            return;
        }
        self.import(export.span, export.source.value.as_str());
    }

    fn visit_export_all_declaration(&mut self, export: &ExportAllDeclaration<'a>) {
        if export.export_kind.is_type() {
            return;
        }
        self.import(export.span, export.source.value.as_str());
    }

    fn visit_ts_import_equals_declaration(&mut self, import: &TSImportEqualsDeclaration<'a>) {
        if import.import_kind.is_type() {
            return;
        }
        if let TSModuleReference::ExternalModuleReference(module) = &import.module_reference {
            self.import(import.span, module.expression.value.as_str());
        }
        walk::walk_ts_import_equals_declaration(self, import);
    }

    fn visit_import_expression(&mut self, import: &ImportExpression<'a>) {
        self.report(import.span, "dynamic import() is not allowed in the sandbox");
        walk::walk_import_expression(self, import);
    }

    fn visit_import_meta(&mut self, meta: &ImportMeta) {
        self.report(meta.span, "`import.meta` is not allowed in the sandbox");
    }
}
