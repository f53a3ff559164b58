//! A whole store in the process.
