//! The MongoDB backend.
