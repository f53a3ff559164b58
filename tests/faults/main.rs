//! Faults on a real server, each named for the situation. What a test breaks is the network, the server,
//! its clock or its documents; what it asserts is that no lease is granted twice, none is left behind, and
//! that everybody is told the truth in time.
#![cfg(feature = "mongo")]

#[path = "../support/mod.rs"]
mod support;

mod clocks;
mod codes;
mod commands;
mod common;
mod connecting;
mod documents;
mod drains;
mod elections;
mod history;
mod overrides;
mod polling;
mod races;
mod silence;
mod streams;
mod unknown;
