//! The service: what it answers, to whom, and on bad days. The router in the process on a memory store where that is
//! enough, else the real binary on a real server.
//!
//! - `answers`: health, readiness, metrics, status.
//! - `access`: hosts, tokens, token files.
//! - `crowds`: slow, idle and huge clients; shutdown.
//! - `events`: ids, coming again, slow listeners.
//! - `page`: what the HTML says, and that everything in it is escaped.
//! - `colours`: the contrast of every pair of colours.
//! - `days`: servers that go away, ports that are taken, signals, users who may only read.
//! - `owners`: a local store's owner, shown and answering for itself; its spool.
//! - `probes`: `serve --check` and `token`, for containers without a shell.
//! - `browser`: the page in headless Chromium.
//! - `client`, `served`, `chromium`: what they are made of.

mod access;
mod answers;
mod browser;
mod chromium;
mod client;
mod colours;
mod crowds;
mod days;
mod events;
mod owners;
mod page;
mod probes;
#[path = "../program/program.rs"]
#[expect(dead_code, reason = "the tests of the program use the rest")]
mod program;
mod served;
#[path = "../support/mod.rs"]
mod support;
