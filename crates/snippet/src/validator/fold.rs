//! Texts that are known before the program runs: `"con" + "structor"`, templates, and constants
//! with such texts.

use std::collections::BTreeMap;

use stockade_script::syntax::Scoping;
use stockade_script::syntax::kinds::operator::BinaryOperator;
use stockade_script::syntax::kinds::symbol::SymbolId;
use stockade_script::syntax::tree::ast::{BindingPattern, Expression, Program, VariableDeclarator};
use stockade_script::syntax::visit::{Visit, walk};

/// No name in the lists is longer; longer texts are not evaluated.
const MAX_BYTES: usize = 64;

/// The constants of a program with a known text.
pub(super) struct Constants<'p> {
    scoping: &'p Scoping,
    texts: BTreeMap<SymbolId, String>,
}

impl<'p> Constants<'p> {
    /// Collects them in the order of their declarations, so that one may be built from others.
    pub(super) fn of(program: &Program<'_>, scoping: &'p Scoping) -> Self {
        let mut constants = Self { scoping, texts: BTreeMap::new() };
        constants.visit_program(program);
        constants
    }

    /// The text of an expression, if it is known and short.
    pub(super) fn fold(&self, expression: &Expression<'_>) -> Option<String> {
        let text = match expression.get_inner_expression() {
            Expression::StringLiteral(text) => text.value.to_string(),
            Expression::TemplateLiteral(template) => {
                let mut text = String::new();
                for (index, quasi) in template.quasis.iter().enumerate() {
                    text.push_str(quasi.value.cooked.as_ref()?.as_str());
                    if let Some(inner) = template.expressions.get(index) {
                        text.push_str(&self.fold(inner)?);
                    }
                }
                text
            }
            Expression::BinaryExpression(sum) if sum.operator == BinaryOperator::Addition => {
                self.fold(&sum.left)? + &self.fold(&sum.right)?
            }
            Expression::SequenceExpression(sequence) => self.fold(sequence.expressions.last()?)?,
            Expression::Identifier(name) => {
                let symbol = self.scoping.get_reference(name.reference_id.get()?).symbol_id()?;
                self.texts.get(&symbol)?.clone()
            }
            _ => return None,
        };
        (text.len() <= MAX_BYTES).then_some(text)
    }
}

impl<'a> Visit<'a> for Constants<'_> {
    fn visit_variable_declarator(&mut self, declarator: &VariableDeclarator<'a>) {
        if let (BindingPattern::BindingIdentifier(name), Some(init)) =
            (&declarator.id, &declarator.init)
            && let Some(symbol) = name.symbol_id.get()
            && !self.scoping.symbol_is_mutated(symbol)
            && let Some(text) = self.fold(init)
        {
            self.texts.insert(symbol, text);
        }
        walk::walk_variable_declarator(self, declarator);
    }
}
