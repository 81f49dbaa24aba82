//! The derivations that files declare: the names in `derive: { … }` and `derivations: { … }`.

use stockade_script::syntax::Scoping;
use stockade_script::syntax::tree::ast::{Expression, ObjectProperty, ObjectPropertyKind, Program};
use stockade_script::syntax::visit::{Visit, walk};
use stockade_script::{Finding, Inspector, SourceFile, compile};

/// Their names, each once, in the order of the first declaration. A file with syntax errors
/// declares none.
pub fn derivation_keys(files: &[SourceFile]) -> Vec<String> {
    let mut keys = Keys::default();
    for file in files {
        // The validator reports the problems of a file.
        drop(compile(file, &mut keys));
    }
    keys.keys
}

#[derive(Default)]
struct Keys {
    keys: Vec<String>,
}

impl Inspector for Keys {
    fn inspect_source(&mut self, program: &Program<'_>, _: &mut Vec<Finding>) {
        self.visit_program(program);
    }

    fn inspect_transformed(&mut self, _: &Program<'_>, _: &Scoping, _: &mut Vec<Finding>) {}
}

impl<'a> Visit<'a> for Keys {
    fn visit_object_property(&mut self, property: &ObjectProperty<'a>) {
        let name = property.key.static_name();
        if matches!(name.as_deref(), Some("derive" | "derivations"))
            && let Expression::ObjectExpression(object) = property.value.get_inner_expression()
        {
            let properties = object.properties.iter().filter_map(ObjectPropertyKind::as_property);
            for key in properties.filter_map(|property| property.key.static_name()) {
                if !self.keys.iter().any(|found| *found == key) {
                    self.keys.push(key.into_owned());
                }
            }
        }
        walk::walk_object_property(self, property);
    }
}
