//! The tests' own tools, each proved against a real server: what a fault injector does not inject
//! proves nothing.
#![cfg(feature = "mongo")]

#[path = "../support/mod.rs"]
mod support;

mod proxy;
mod servers;
