//! Attacks that once succeeded: each is made against the program as it is, and has to fail.

mod web;
