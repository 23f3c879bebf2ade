//! Tests of policy checks with the program itself.

mod engine;
