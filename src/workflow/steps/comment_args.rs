//! Escapes `COMMENT_ARGS`, the words after `--` in the comment, for commands of a workflow (reference 6.5).

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

/// Puts a backslash before every byte, so that a shell that a command passes them to finds no special characters, and
/// joins the arguments with commas.
pub(in crate::workflow) fn escaped(arguments: &[String]) -> OsString {
    let mut all = Vec::new();
    for (place, argument) in arguments.iter().enumerate() {
        if place > 0 {
            all.push(b',');
        }
        // NUL is dropped: an environment cannot hold it, and no comment can mean it.
        for byte in argument.bytes().filter(|byte| *byte != 0) {
            all.extend([b'\\', byte]);
        }
    }
    OsString::from_vec(all)
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn each_byte_is_escaped_and_arguments_are_joined_by_commas() {
        for (arguments, expected) in [
            (&[][..], &b""[..]),
            (&["-x"], br"\-\x"),
            (&["a b", "c"], br"\a\ \b,\c"),
            (&["a,b"], br"\a\,\b"),
            (&["$(reboot)"], br"\$\(\r\e\b\o\o\t\)"),
            (&["a\nb"], b"\\a\\\n\\b"),
            (&["\u{e9}"], b"\\\xc3\\\xa9"),
            (&["", "a\0b"], br",\a\b"),
        ] {
            let arguments: Vec<String> = arguments
                .iter()
                .map(|&argument| argument.to_owned())
                .collect();
            assert_eq!(escaped(&arguments).as_bytes(), expected, "{arguments:?}");
        }
    }

    proptest! {
        #[test]
        fn every_second_byte_of_an_argument_is_a_backslash_and_the_rest_is_the_argument(argument in "[^\0]*") {
            let text = escaped(std::slice::from_ref(&argument));
            let bytes = text.as_bytes();
            prop_assert!(bytes.iter().step_by(2).all(|byte| *byte == b'\\'));
            let rest: Vec<u8> = bytes.iter().skip(1).step_by(2).copied().collect();
            prop_assert_eq!(rest, argument.into_bytes());
        }
    }
}
