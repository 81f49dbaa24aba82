//! The validator: good messages, with exact positions, for code that is useless in a snippet. Names
//! are denied by default: an undeclared name is refused unless it is on the list of allowed ones.
//! It is not an isolation mechanism; the realm and its process are.
//!
//! Names are checked in the code that will run, without types, so that a declaration for the
//! compiler only cannot hide one.

mod fold;
mod import_rules;
mod names;

use std::collections::BTreeSet;

use stockade_script::syntax::tree::ast::{
    AccessorProperty, Argument, AssignmentTargetPropertyIdentifier,
    AssignmentTargetPropertyProperty, BindingProperty, CallExpression, ComputedMemberExpression,
    Decorator, Expression, IdentifierReference, NewExpression, Program, PropertyKey,
    StaticMemberExpression,
};
use stockade_script::syntax::visit::{Visit, walk};
use stockade_script::syntax::{GetSpan as _, Scoping, Span};
use stockade_script::{Fault, Finding, Inspector, Module, SourceFile, compile};

use crate::imports::Imports;
use fold::Constants;

/// Checks every file.
///
/// # Errors
/// All problems, file by file, in the order of positions.
pub fn check(files: &[SourceFile], imports: &Imports) -> Result<Vec<Module>, Vec<Fault>> {
    let mut modules = Vec::new();
    let mut faults = Vec::new();
    for file in files {
        match check_file(file, imports) {
            Ok(module) => modules.push(module),
            Err(more) => faults.extend(more),
        }
    }
    if faults.is_empty() { Ok(modules) } else { Err(faults) }
}

/// Checks one file, and compiles it.
///
/// # Errors
/// All problems, in the order of positions.
pub fn check_file(file: &SourceFile, imports: &Imports) -> Result<Module, Vec<Fault>> {
    let module = compile(file, &mut Validator { imports })?;
    // It is in no line of the source.
    let runtime = module.imports.iter().find(|import| import.specifier.ends_with("/jsx-runtime"));
    match runtime.and_then(|runtime| imports.refusal(&runtime.specifier)) {
        None => Ok(module),
        Some(why) => {
            let message = format!(
                "{why} Elements need it, unless a comment names their function: /** @jsx NAME */"
            );
            Err(vec![Fault { path: file.path.clone(), line: 1, column: 1, message }])
        }
    }
}

struct Validator<'i> {
    imports: &'i Imports,
}

impl Inspector for Validator<'_> {
    fn inspect_source(&mut self, program: &Program<'_>, findings: &mut Vec<Finding>) {
        import_rules::find(program, self.imports, findings);
    }

    fn inspect_transformed(
        &mut self,
        program: &Program<'_>,
        scoping: &Scoping,
        findings: &mut Vec<Finding>,
    ) {
        let constants = Constants::of(program, scoping);
        let judged = BTreeSet::new();
        NameRules { scoping, constants, checked: judged, findings }.visit_program(program);
    }
}

/// Inspects names: free ones, and those through which a free one could be reached.
struct NameRules<'p> {
    scoping: &'p Scoping,
    constants: Constants<'p>,
    /// The positions of each `globalThis` in an expression that was already checked as a whole.
    checked: BTreeSet<u32>,
    findings: &'p mut Vec<Finding>,
}

impl NameRules<'_> {
    fn report(&mut self, span: Span, message: String) {
        self.findings.push(Finding { offset: span.start, message });
    }

    /// The free name, if an expression is one.
    fn free_name<'e>(&self, expression: &'e Expression<'_>) -> Option<&'e str> {
        let Expression::Identifier(name) = expression.get_inner_expression() else { return None };
        self.is_free(name).then(|| name.name.as_str())
    }

    fn is_free(&self, name: &IdentifierReference<'_>) -> bool {
        let symbol = name.reference_id.get().map(|id| self.scoping.get_reference(id).symbol_id());
        !matches!(symbol, Some(Some(_)))
    }

    fn is_global_object(&self, expression: &Expression<'_>) -> bool {
        self.free_name(expression) == Some("globalThis")
    }

    /// Marks the `globalThis` of an expression that is checked as a whole.
    fn mark_checked(&mut self, expression: &Expression<'_>) {
        self.checked.insert(expression.get_inner_expression().span().start);
    }

    /// Checks the key of a destructuring pattern.
    fn check_pattern_key(&mut self, key: &PropertyKey<'_>) {
        let name = match key.static_name() {
            Some(name) => Some(name.into_owned()),
            None => key.as_expression().and_then(|key| self.constants.fold(key)),
        };
        if let Some(name) = name {
            self.check_key(key.span(), &name);
        }
    }

    fn check_key(&mut self, span: Span, name: &str) {
        if names::is_escape(name) {
            self.report(
                span,
                format!(
                    "destructuring `{name}` is denied in the sandbox (would reach a denied name)"
                ),
            );
        }
    }

    /// Checks `Reflect.get(globalThis, "X")` and similar calls.
    fn check_reflection(&mut self, call: &CallExpression<'_>) {
        let Expression::StaticMemberExpression(callee) = call.callee.get_inner_expression() else {
            return;
        };
        let Some(object) =
            self.free_name(&callee.object).filter(|o| matches!(*o, "Reflect" | "Object"))
        else {
            return;
        };
        let function = callee.property.name.as_str();
        if !names::REFLECTION.contains(&function) {
            return;
        }
        let mut arguments = call.arguments.iter().map(Argument::as_expression);
        let (Some(Some(target)), Some(Some(key))) = (arguments.next(), arguments.next()) else {
            return;
        };
        let Some(name) = self.constants.fold(key).filter(|name| names::is_escape(name)) else {
            return;
        };
        if let Some(target_name) = self.free_name(target).filter(|name| names::is_allowed(name)) {
            self.mark_checked(target);
            self.report(
                call.span,
                format!(
                    "`{object}.{function}({target_name}, \"{name}\")` would reach a denied name"
                ),
            );
        } else {
            self.report(
                call.span,
                format!("`{object}.{function}(…, \"{name}\")` would reach a denied name"),
            );
        }
    }
}

impl<'a> Visit<'a> for NameRules<'_> {
    fn visit_identifier_reference(&mut self, name: &IdentifierReference<'a>) {
        if !self.is_free(name) {
            return;
        }
        let text = name.name.as_str();
        if names::is_denied(text) {
            self.report(
                name.span,
                format!("identifier \"{text}\" is denied in the sandbox (FS/network/eval surface)"),
            );
        } else if text == "globalThis" && !self.checked.contains(&name.span.start) {
            self.report(
                name.span,
                "`globalThis` is denied in the sandbox unless an allowed name follows it, as in \
                 `globalThis.Math`"
                    .to_owned(),
            );
        } else if !names::is_allowed(text) {
            self.report(
                name.span,
                format!("identifier \"{text}\" is not available in the sandbox"),
            );
        }
    }

    fn visit_static_member_expression(&mut self, member: &StaticMemberExpression<'a>) {
        let name = member.property.name.as_str();
        let global = self.is_global_object(&member.object);
        if global {
            self.mark_checked(&member.object);
        }
        if name == "constructor" {
            self.report(
                member.span,
                "`.constructor` access is denied in the sandbox (Function-constructor smuggle \
                 vector)"
                    .to_owned(),
            );
        } else if names::is_denied(name) {
            self.report(
                member.span,
                format!(
                    "`.{name}` access is denied in the sandbox (FS/network/eval surface) — \
                     accessing a denied global via property syntax was the property-access bypass \
                     closed in v0.3.0"
                ),
            );
        } else if global && (name == "globalThis" || !names::is_allowed(name)) {
            self.report(
                member.span,
                format!("`globalThis.{name}` is not available in the sandbox"),
            );
        }
        walk::walk_static_member_expression(self, member);
    }

    fn visit_computed_member_expression(&mut self, member: &ComputedMemberExpression<'a>) {
        let name = self.constants.fold(&member.expression);
        if self.is_global_object(&member.object) {
            self.mark_checked(&member.object);
            let how = if name.is_some() { " with a string literal" } else { "" };
            self.report(
                member.span,
                format!(
                    "bracket-access on `globalThis`{how} is denied in the sandbox (use direct \
                     identifier reference for allowlisted names)"
                ),
            );
        } else if let Some(name) = name.filter(|name| names::is_escape(name)) {
            self.report(
                member.span,
                format!(
                    "bracket-access `[\"{name}\"]` is denied in the sandbox (would reach a denied \
                     name)"
                ),
            );
        }
        walk::walk_computed_member_expression(self, member);
    }

    fn visit_call_expression(&mut self, call: &CallExpression<'a>) {
        if self.free_name(&call.callee) == Some("Function") {
            self.report(call.span, "`Function(...)` call is denied in the sandbox".to_owned());
        }
        self.check_reflection(call);
        walk::walk_call_expression(self, call);
    }

    fn visit_new_expression(&mut self, new: &NewExpression<'a>) {
        if self.free_name(&new.callee) == Some("Function") {
            self.report(new.span, "new Function(...) is not allowed in the sandbox".to_owned());
        }
        walk::walk_new_expression(self, new);
    }

    fn visit_decorator(&mut self, decorator: &Decorator<'a>) {
        self.report(decorator.span, "decorators are not available in the sandbox".to_owned());
    }

    fn visit_accessor_property(&mut self, property: &AccessorProperty<'a>) {
        self.report(property.span, "`accessor` is not available in the sandbox".to_owned());
        walk::walk_accessor_property(self, property);
    }

    fn visit_binding_property(&mut self, property: &BindingProperty<'a>) {
        self.check_pattern_key(&property.key);
        walk::walk_binding_property(self, property);
    }

    fn visit_assignment_target_property_identifier(
        &mut self,
        property: &AssignmentTargetPropertyIdentifier<'a>,
    ) {
        self.check_key(property.span, property.binding.name.as_str());
        walk::walk_assignment_target_property_identifier(self, property);
    }

    fn visit_assignment_target_property_property(
        &mut self,
        property: &AssignmentTargetPropertyProperty<'a>,
    ) {
        self.check_pattern_key(&property.name);
        walk::walk_assignment_target_property_property(self, property);
    }
}

#[cfg(test)]
mod tests;
