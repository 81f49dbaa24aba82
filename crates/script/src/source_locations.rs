//! The source positions of JSX elements, as arguments of the JSX runtime: each position object is
//! created once, however often its element is. So the position of two elements can be compared by
//! identity.

use oxc_allocator::{Allocator, TakeIn as _};
use oxc_ast::ast::{
    Argument, AssignmentOperator, AssignmentTarget, CallExpression, Expression, Ident,
    ObjectExpression, ObjectPropertyKind, Program,
};
use oxc_ast::builder::AstBuilder;
use oxc_ast_visit::{VisitMut, walk_mut};
use oxc_span::SPAN;

/// The index of the position among the arguments of the runtime's function.
const ARGUMENT: usize = 4;
/// The name that the transformer gives the variable with the file name.
const FILE_NAME: &str = "_jsxFileName";

/// Changes a transformed program so that every position object is created once; returns the code to
/// append to it.
pub(crate) fn hoist_locations<'a>(
    program: &mut Program<'a>,
    allocator: &'a Allocator,
    source: &str,
) -> String {
    let mut prefix = "_jsxPlace".to_owned();
    while source.contains(&prefix) {
        prefix.push('_');
    }
    let builder = AstBuilder::new(allocator);
    let mut hoister = LocationHoister { builder, prefix, names: Vec::new() };
    hoister.visit_program(program);
    // `var` declarations are hoisted to the beginning of the module.
    if hoister.names.is_empty() {
        String::new()
    } else {
        format!("var {};\n", hoister.names.join(", "))
    }
}

struct LocationHoister<'a> {
    builder: AstBuilder<'a>,
    /// The prefix of the variables for positions; no other name begins with it.
    prefix: String,
    names: Vec<String>,
}

impl<'a> VisitMut<'a> for LocationHoister<'a> {
    fn visit_call_expression(&mut self, call: &mut CallExpression<'a>) {
        walk_mut::walk_call_expression(self, call);
        let Some(argument) = call.arguments.get_mut(ARGUMENT) else { return };
        if !matches!(argument, Argument::ObjectExpression(object) if is_location(object)) {
            return;
        }
        let location = argument.take_in(&self.builder).into_expression();
        let name = format!("{}{}", self.prefix, self.names.len());
        let ident = Ident::from_str_in(&name, &self.builder);
        let target = AssignmentTarget::new_assignment_target_identifier(SPAN, ident, &self.builder);
        let operator = AssignmentOperator::LogicalNullish;
        *argument =
            Argument::new_assignment_expression(SPAN, operator, target, location, &self.builder);
        self.names.push(name);
    }
}

/// Whether an object is a position as the transformer writes it: the name of the file, and two
/// numbers.
fn is_location(object: &ObjectExpression<'_>) -> bool {
    let value = |property: &ObjectPropertyKind<'_>| match property {
        ObjectPropertyKind::ObjectProperty(property) => match &property.value {
            Expression::Identifier(value) if value.name.starts_with(FILE_NAME) => "file",
            Expression::NumericLiteral(_) => "number",
            _ => "other",
        },
        ObjectPropertyKind::SpreadProperty(_) => "other",
    };
    object.properties.iter().map(value).eq(["file", "number", "number"])
}
