//! Tests that the emulated GitHub follows GitHub's published descriptions, and that it fails on request.

mod app;
mod faults;
mod git;
mod hooks;
mod refusals;
mod rest;
mod rig;
mod teams;
