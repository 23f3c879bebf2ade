//! What an attacker tries: each story is an attack that once succeeded, against the real program.

mod git;
