//! The names of runtimes as values of flags: help and completions list them, and every other name is
//! passed on, because the operation itself rejects it with its reason.

use std::ffi::OsStr;

use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use stockade_core::runtime::RuntimeName;

/// Parses the name of a runtime.
#[derive(Clone)]
pub(super) struct RuntimeNameParser;

impl TypedValueParser for RuntimeNameParser {
    type Value = String;

    fn parse_ref(
        &self,
        command: &clap::Command,
        argument: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<String, clap::Error> {
        StringValueParser::new().parse_ref(command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(RuntimeName::ALL.into_iter().map(|name| PossibleValue::new(name.as_str()))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_listed_and_other_names_are_passed_on() {
        let argument = clap::Arg::new("runtime").long("runtime").value_parser(RuntimeNameParser);
        let listed = argument.get_value_parser().possible_values().unwrap();
        let listed: Vec<String> = listed.map(|value| value.get_name().to_owned()).collect();
        assert_eq!(listed, RuntimeName::ALL.map(RuntimeName::as_str));
        let command = clap::Command::new("create").arg(argument);
        let matches = command.get_matches_from(["create", "--runtime", "cloudflare"]);
        assert_eq!(matches.get_one::<String>("runtime").unwrap(), "cloudflare");
    }
}
