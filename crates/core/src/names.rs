//! Enums whose values have a name that is stored, sent and printed: one list defines the values,
//! their names, their schema, and the conversions between names and values.

/// A text that is not the name of any value of its kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{input:?} is not a valid {kind}: use one of {known}")]
pub struct UnknownName {
    /// The expected kind of value.
    pub kind: &'static str,
    /// The text.
    pub input: String,
    /// The known names.
    pub known: String,
}

/// Defines an enum from a list of its values with their names. A crate that uses it depends on
/// serde.
#[macro_export]
macro_rules! names {
    (
        $(#[doc = $documentation:literal])*
        pub enum $name:ident: $kind:literal {
            $($(#[doc = $value_documentation:literal])* $value:ident = $text:literal,)+
        }
    ) => {
        $(#[doc = $documentation])*
        #[derive(
            Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash,
            serde::Serialize, serde::Deserialize,
        )]
        pub enum $name {
            $($(#[doc = $value_documentation])* #[serde(rename = $text)] $value,)+
        }

        impl $name {
            /// Every value, in the order of the list.
            pub const ALL: &'static [Self] = &[$(Self::$value),+];

            /// The name as it is stored, sent and printed.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$value => $text,)+
                }
            }
        }

        impl $crate::schemars::JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut $crate::schemars::SchemaGenerator) -> $crate::schemars::Schema {
                $crate::schema_of_names(
                    concat!($($documentation),*),
                    &[$(($text, concat!($($value_documentation),*))),+],
                )
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl std::str::FromStr for $name {
            type Err = $crate::UnknownName;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                let found = Self::ALL.iter().find(|value| value.as_str() == text);
                found.copied().ok_or_else(|| $crate::UnknownName {
                    kind: $kind,
                    input: text.to_owned(),
                    known: [$($text),+].join(", "),
                })
            }
        }
    };
}

pub(crate) use names;

#[cfg(test)]
mod tests {
    use crate::State;

    #[test]
    fn a_name_leads_to_its_value_and_back_everywhere() {
        for value in State::ALL {
            assert_eq!(value.as_str().parse(), Ok(*value));
            assert_eq!(value.to_string(), value.as_str());
            let json = serde_json::to_string(value).unwrap();
            assert_eq!(json, format!("{:?}", value.as_str()));
            assert_eq!(serde_json::from_str::<State>(&json).unwrap(), *value);
        }
    }

    #[test]
    fn an_unknown_name_is_answered_with_the_known_ones() {
        let error = "Paused".parse::<State>().unwrap_err();
        assert_eq!(
            error.to_string(),
            "\"Paused\" is not a valid state: \
             use one of new, creating, running, paused, stopped, error, terminated"
        );
        assert!(serde_json::from_str::<State>("\"\"").is_err());
    }
}
