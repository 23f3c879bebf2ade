//! Declares sections of settings: see [`section`].

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use super::logging::{LogFormat, LogLevel};
use super::reader::{ReadResult, SettingReader};
use super::setting::Setting;
use crate::config::repo::AutodiscoverMode;
use crate::config::size::ByteSize;
use crate::model::{Distribution, MergeMethod};

/// A part of the server's configuration that declares its own settings.
pub(super) trait Section: Sized {
    /// Returns the settings of the section, in the order in which they are shown.
    fn settings() -> Vec<Setting>;

    /// Reads all fields, and records every problem.
    fn read(reader: &mut SettingReader<'_>) -> ReadResult<Self>;
}

/// Declares a section: a struct, its settings, and how they are read.
///
/// Each setting is one entry. Its comment is the help of the flag and the text in the documentation:
///
/// ```text
/// section! {
///     /// Limits for runs.
///     pub struct RunConfig in Terraform {
///         /// Time after which a run is stopped.
///         pub timeout: Duration = time("run-timeout").or("2h"),
///     }
/// }
/// ```
///
/// The words after `=` are a constructor of [`Setting`] without its first two arguments, and further methods. The type
/// of the field decides how the value is read: see [`SettingValue`]. There are five other forms of a field:
///
/// - `field: Type = text("flag", "NAME") => parse` reads its setting with `parse(reader, flag)`.
/// - `field: Type = read_it from { … }` takes several settings, and reads them with `read_it(reader)`. Such a function
///   also checks that they fit together.
/// - `field: Type = section` is another section.
/// - `field: Type = None` has no setting.
/// - `field: Type = computed by get_it` follows from other settings: `get_it(reader)`.
///
/// `given to name { … }` declares settings that have no field, because `name` reads them first.
macro_rules! section {
    ($(#[$meta:meta])* pub struct $name:ident in $group:ident { $($fields:tt)* }) => {
        section! { @next [$(#[$meta])* $name $group] [] [] [] $($fields)* }
    };

    // A section within the section.
    (@next [$($head:tt)*] [$($field:tt)*] [$($settings:tt)*] [$($read:tt)*]
        $(#[$doc:meta])+ pub $name:ident: $ty:ty = section, $($rest:tt)*
    ) => {
        section! {
            @next [$($head)*]
            [$($field)* $(#[$doc])+ pub $name: $ty,]
            [$($settings)* <$ty as $crate::config::server::section::Section>::settings(),]
            [$($read)* $name = <$ty as $crate::config::server::section::Section>::read;]
            $($rest)*
        }
    };

    // A field without a setting.
    (@next [$($head:tt)*] [$($field:tt)*] [$($settings:tt)*] [$($read:tt)*]
        $(#[$doc:meta])+ pub $name:ident: $ty:ty = None, $($rest:tt)*
    ) => {
        section! {
            @next [$($head)*]
            [$($field)* $(#[$doc])+ pub $name: $ty,]
            [$($settings)*]
            [$($read)* $name = |_| Ok(None);]
            $($rest)*
        }
    };

    // A field that follows from other settings.
    (@next [$($head:tt)*] [$($field:tt)*] [$($settings:tt)*] [$($read:tt)*]
        $(#[$doc:meta])+ pub $name:ident: $ty:ty = computed by $get:ident, $($rest:tt)*
    ) => {
        section! {
            @next [$($head)*]
            [$($field)* $(#[$doc])+ pub $name: $ty,]
            [$($settings)*]
            [$($read)* $name = |reader| Ok($get(reader));]
            $($rest)*
        }
    };

    // Settings that were read before.
    (@next [$(#[$meta:meta])* $section:ident $group:ident] [$($field:tt)*] [$($settings:tt)*] [$($read:tt)*]
        given to $name:ident {
            $($(#[doc = $help:literal])+ $kind:ident($($arg:expr),*) $(.$method:ident($($with:expr),*))*,)+
        }
        $($rest:tt)*
    ) => {
        section! {
            @next [$(#[$meta])* $section $group]
            [$($field)*]
            [$($settings)* vec![$(section!(@setting $group ($($help)+) $kind($($arg),*) $(.$method($($with),*))*)),+],]
            [$($read)*]
            $($rest)*
        }
    };

    // A field that takes several settings.
    (@next [$(#[$meta:meta])* $section:ident $group:ident] [$($field:tt)*] [$($settings:tt)*] [$($read:tt)*]
        $(#[$doc:meta])+ pub $name:ident: $ty:ty = $reader:ident from {
            $($(#[doc = $help:literal])+ $kind:ident($($arg:expr),*) $(.$method:ident($($with:expr),*))*,)*
        },
        $($rest:tt)*
    ) => {
        section! {
            @next [$(#[$meta])* $section $group]
            [$($field)* $(#[$doc])+ pub $name: $ty,]
            [$($settings)* vec![$(section!(@setting $group ($($help)+) $kind($($arg),*) $(.$method($($with),*))*)),*],]
            [$($read)* $name = $reader;]
            $($rest)*
        }
    };

    // A field with its setting, read by a function.
    (@next [$(#[$meta:meta])* $section:ident $group:ident] [$($field:tt)*] [$($settings:tt)*] [$($read:tt)*]
        $(#[doc = $help:literal])+
        pub $name:ident: $ty:ty = $kind:ident($($arg:expr),*) $(.$method:ident($($with:expr),*))* => $reader:path,
        $($rest:tt)*
    ) => {
        section! {
            @next [$(#[$meta])* $section $group]
            [$($field)* $(#[doc = $help])+ pub $name: $ty,]
            [$($settings)* vec![section!(@setting $group ($($help)+) $kind($($arg),*) $(.$method($($with),*))*)],]
            [$($read)* $name = |reader| $reader(reader, section!(@flag $($arg),*));]
            $($rest)*
        }
    };

    // A field with its setting, read as its type says.
    (@next [$($head:tt)*] [$($field:tt)*] [$($settings:tt)*] [$($read:tt)*]
        $(#[doc = $help:literal])+
        pub $name:ident: $ty:ty = $kind:ident($($arg:expr),*) $(.$method:ident($($with:expr),*))*,
        $($rest:tt)*
    ) => {
        section! {
            @next [$($head)*] [$($field)*] [$($settings)*] [$($read)*]
            $(#[doc = $help])+
            pub $name: $ty = $kind($($arg),*) $(.$method($($with),*))*
                => $crate::config::server::section::SettingValue::read,
            $($rest)*
        }
    };

    (@next [$(#[$meta:meta])* $section:ident $group:ident] [$($field:tt)*] [$($settings:tt)*]
        [$($name:ident = $read:expr;)*]
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $section {
            $($field)*
        }

        impl $crate::config::server::section::Section for $section {
            fn settings() -> Vec<$crate::config::server::setting::Setting> {
                [$($settings)*].concat()
            }

            fn read(
                reader: &mut $crate::config::server::reader::SettingReader<'_>,
            ) -> $crate::config::server::reader::ReadResult<Self> {
                use $crate::config::server::section::field;
                // All fields are read before the first problem ends the section.
                $(let $name = field(reader, $read);)*
                Ok(Self { $($name: $name?),* })
            }
        }
    };

    (@setting $group:ident ($($help:literal)+) $kind:ident($($arg:expr),*) $(.$method:ident($($with:expr),*))*) => {
        $crate::config::server::setting::Setting::$kind(
            $crate::config::server::setting::SettingGroup::$group,
            concat!($($help),+).trim_start(),
            $($arg),*
        )$(.$method($($with),*))*
    };

    (@flag $flag:expr $(, $more:expr)*) => { $flag };
}

pub(super) use section;

/// Reads one field of a section.
pub(super) fn field<T>(
    reader: &mut SettingReader<'_>,
    read: impl FnOnce(&mut SettingReader<'_>) -> ReadResult<T>,
) -> ReadResult<T> {
    read(reader)
}

const HAS_DEFAULT: &str = "a setting has a default if its field always has a value";

/// Type of a field that is read without a function of its own.
pub(super) trait SettingValue: Sized {
    /// Reads the setting of a flag.
    fn read(reader: &mut SettingReader<'_>, flag: &'static str) -> ReadResult<Self>;
}

/// Implements [`SettingValue`] with an expression.
macro_rules! setting_value {
    ($($ty:ty: |$reader:ident, $flag:ident| $read:expr;)*) => {
        $(impl $crate::config::server::section::SettingValue for $ty {
            fn read(
                $reader: &mut $crate::config::server::reader::SettingReader<'_>,
                $flag: &'static str,
            ) -> $crate::config::server::reader::ReadResult<Self> {
                $read
            }
        })*
    };
}

pub(super) use setting_value;

setting_value! {
    bool: |reader, flag| reader.switch(flag);
    usize: |reader, flag| Ok(reader.number(flag)?.expect(HAS_DEFAULT));
    Duration: |reader, flag| reader.duration(flag);
    ByteSize: |reader, flag| Ok(reader.size(flag)?.expect(HAS_DEFAULT));
    Option<ByteSize>: |reader, flag| reader.size(flag);
    Option<String>: |reader, flag| Ok(reader.text(flag));
    Option<PathBuf>: |reader, flag| Ok(reader.path(flag));
    Vec<String>: |reader, flag| Ok(reader.list(flag));
    Vec<PathBuf>: |reader, flag| Ok(reader.paths(flag));
    LogLevel: |reader, flag| chosen(reader, flag);
    LogFormat: |reader, flag| chosen(reader, flag);
    Distribution: |reader, flag| chosen(reader, flag);
    AutodiscoverMode: |reader, flag| chosen(reader, flag);
    Option<MergeMethod>: |reader, flag| reader.choice(flag);
}

/// Reads one of the words of a setting with a default.
pub(super) fn chosen<T: std::str::FromStr>(
    reader: &mut SettingReader<'_>,
    flag: &'static str,
) -> ReadResult<T> {
    Ok(reader.choice(flag)?.expect(HAS_DEFAULT))
}

/// Reads a number for which 0 means that there is none.
pub(super) fn unless_zero<T: TryFrom<u64> + PartialEq + Default>(
    reader: &mut SettingReader<'_>,
    flag: &'static str,
) -> ReadResult<Option<T>> {
    let number = reader.number::<T>(flag)?;
    Ok(number.filter(|number| *number != T::default()))
}

/// Reads a count for which 0 means that there is none.
pub(super) fn nonzero(
    reader: &mut SettingReader<'_>,
    flag: &'static str,
) -> ReadResult<Option<NonZeroUsize>> {
    Ok(reader.number(flag)?.and_then(NonZeroUsize::new))
}

/// Reads a switch that turns off the behaviour of its field.
pub(super) fn unless_set(reader: &mut SettingReader<'_>, flag: &'static str) -> ReadResult<bool> {
    Ok(!reader.switch(flag)?)
}
