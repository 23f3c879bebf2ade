//! Macros for types with a text form, so that each one reads and writes the same text everywhere.

/// Implements `Serialize`, `Deserialize` and, with the feature `sqlx`, the traits of a column (as `TEXT`, on any
/// database) through the type's own `Display` and `FromStr`.
#[macro_export]
macro_rules! text_type {
    ($type:ty) => {
        $crate::text_type!($type, of_row: str::parse::<$type>);
    };
    // Rows may have values that were valid under the rules of an older release.
    ($type:ty, of_row: $of_row:expr) => {
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }

        $crate::text_column!($type, $of_row);
    };
}

/// Implements the sqlx traits of a text column.
#[cfg(feature = "sqlx")]
#[doc(hidden)]
#[macro_export]
macro_rules! text_column {
    ($type:ty, $of_row:expr) => {
        impl<DB: $crate::sqlx::Database> $crate::sqlx::Type<DB> for $type
        where
            String: $crate::sqlx::Type<DB>,
        {
            fn type_info() -> DB::TypeInfo {
                <String as $crate::sqlx::Type<DB>>::type_info()
            }

            fn compatible(ty: &DB::TypeInfo) -> bool {
                <String as $crate::sqlx::Type<DB>>::compatible(ty)
            }
        }

        impl<'q, DB: $crate::sqlx::Database> $crate::sqlx::Encode<'q, DB> for $type
        where
            String: $crate::sqlx::Encode<'q, DB>,
        {
            fn encode_by_ref(
                &self,
                buf: &mut <DB as $crate::sqlx::Database>::ArgumentBuffer,
            ) -> Result<$crate::sqlx::encode::IsNull, $crate::sqlx::error::BoxDynError> {
                <String as $crate::sqlx::Encode<'q, DB>>::encode(self.to_string(), buf)
            }
        }

        impl<'r, DB: $crate::sqlx::Database> $crate::sqlx::Decode<'r, DB> for $type
        where
            String: $crate::sqlx::Decode<'r, DB>,
        {
            fn decode(
                value: <DB as $crate::sqlx::Database>::ValueRef<'r>,
            ) -> Result<Self, $crate::sqlx::error::BoxDynError> {
                let text = <String as $crate::sqlx::Decode<'r, DB>>::decode(value)?;
                Ok(($of_row)(text.as_str())?)
            }
        }
    };
}

/// Does nothing: without the feature `sqlx` no type is a column.
#[cfg(not(feature = "sqlx"))]
#[doc(hidden)]
#[macro_export]
macro_rules! text_column {
    ($type:ty, $of_row:expr) => {};
}

/// Declares an enum without data and with one spelling per variant: `Display`, `FromStr` and [`text_type!`].
#[macro_export]
macro_rules! text_enum {
    ($(#[$meta:meta])* $vis:vis enum $name:ident { $($(#[$vmeta:meta])* $variant:ident = $text:literal,)+ }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        $vis enum $name { $($(#[$vmeta])* $variant,)+ }

        impl $name {
            /// Every variant, in the order of declaration.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// Returns the spelling in tables, JSON and comments.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)+ }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl std::str::FromStr for $name {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                match text {
                    $($text => Ok(Self::$variant),)+
                    other => {
                        let all: Vec<&str> = Self::ALL.iter().copied().map(Self::as_str).collect();
                        Err(format!("`{other}` is none of: {}", all.join(", ")))
                    }
                }
            }
        }

        $crate::text_type!($name);
    };
}

pub use {text_enum, text_type};
