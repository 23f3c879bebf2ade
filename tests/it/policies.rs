//! Tests of policy checks with the program itself.

mod conftest;
mod end_to_end;
mod engine;
