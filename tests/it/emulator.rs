//! The emulated GitHub is held to GitHub's published descriptions, and does what it is told to do wrong.

mod app;
mod faults;
mod git;
mod hooks;
mod refusals;
mod rest;
mod rig;
mod teams;
