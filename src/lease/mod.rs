//! The engine.

pub mod status;
