//! Settings with a fixed list of words.

/// Defines an enum without data, and the one spelling of each variant in flags and variables.
macro_rules! choice {
    ($(#[$meta:meta])* $vis:vis enum $name:ident { $($(#[$vmeta:meta])* $variant:ident = $text:literal,)+ }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        $vis enum $name { $($(#[$vmeta])* $variant,)+ }

        impl $name {
            /// All words, in the order of the help.
            pub const WORDS: &'static [&'static str] = &[$($text),+];
        }

        $crate::config::server::section::setting_value! {
            $name: |reader, flag| $crate::config::server::section::chosen(reader, flag);
        }

        impl std::str::FromStr for $name {
            type Err = ();

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                match text {
                    $($text => Ok(Self::$variant),)+
                    _ => Err(()),
                }
            }
        }
    };
}

pub(super) use choice;
