//! What the integration tests share. A test binary says `mod support;` and takes what it needs.
//!
//! | file | what it gives |
//! | --- | --- |
//! | `shared` | the servers that all tests use: where they come from, and what to do when there is none |
//! | `database` | a fresh database for one test, with raw clients to look behind the product's back |
//! | `mongod` | a server of a test's own: authentication, parameters, signals, a clock that can be shifted |
//! | `replica_set` | three members of a test's own, for fail-over |
//! | `server_clock` | shifting what a server of one's own believes the time to be |
//! | `failpoint` | the server's own faults (`failCommand`), switched off again by a guard |
//! | `proxy` | a TCP proxy that cuts, delays, swallows and holds what passes between client and server |
//! | `poll` | waiting for a condition with a bound |
//! | `running` | the real binary: started, watched, ended |
//! | `probe` | a process that a test tells what to do, step by step |
//! | `overrun` | a queue of directory events that runs over |
//! | `process`, `scratch`, `container`, `uri` | what the others are made of |

#![allow(dead_code, reason = "each test binary compiles the whole module and uses its own part of it")]

#[cfg(feature = "local")]
pub(crate) mod overrun;
pub(crate) mod poll;
#[cfg(test)]
pub(crate) mod probe;
pub(crate) mod process;
#[cfg(all(test, feature = "cli"))]
pub(crate) mod running;
pub(crate) mod scratch;

#[cfg(feature = "mongo")]
pub(crate) mod container;
#[cfg(feature = "mongo")]
pub(crate) mod database;
#[cfg(feature = "mongo")]
pub(crate) mod failpoint;
#[cfg(feature = "mongo")]
pub(crate) mod mongod;
#[cfg(feature = "mongo")]
pub(crate) mod proxy;
#[cfg(feature = "mongo")]
pub(crate) mod replica_set;
#[cfg(feature = "mongo")]
pub(crate) mod server_clock;
#[cfg(feature = "mongo")]
pub(crate) mod shared;
#[cfg(feature = "mongo")]
pub(crate) mod uri;
