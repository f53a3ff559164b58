//! Append-only streams of rows, numbered from 1, and what is done to them.
//!
//! A *stream* holds rows of one *kind*; a kind has a [`Schema`]: columns, a key, what happens to a row whose key is
//! there already, and what ends a row's life. What many processes write travels as a [`Batch`] of [`Entry`]s, each
//! of which is applied whole or refused whole, and what became of each is its [`Outcome`].
//!
//! # Map
//!
//! `name` has the names of streams and kinds, `schema` what a kind is, `row` one row as a store keeps it, `batch` what
//! is to be done, `outcome` what became of it, `refusal` why something is not done, `target` what a store does with
//! all of them. `check` says what a schema has to be and when it is only widened, `infer` makes one of the first rows.
//! `json` makes rows of JSON and JSON of rows, with `object` for its outermost layer and `nested` for JSON columns.
//! [`sqlite`] is the real store.

mod batch;
mod check;
mod infer;
mod json;
mod name;
mod nested;
mod object;
mod outcome;
mod refusal;
mod row;
mod schema;
pub mod sqlite;
mod target;

pub use batch::{Batch, Entry, Operation};
pub use name::{KindName, StreamName};
pub use object::{DEEPEST_ROW, LONGEST_ROW};
pub use outcome::{Applied, BatchOutcome, Outcome};
pub use refusal::{Refusal, RefusalKind};
pub use row::{Cell, Row};
pub use schema::{Column, ColumnType, Conflict, Retention, Schema};
pub use target::{Checkpoint, Expired, Source, Standing, StreamMeta, Target, TargetError, Window};
