//! `demo`: the whole story in half a minute.

use super::Context;
use super::args::DemoWork;
use super::exit::Failure;

/// Shows the story.
pub(crate) async fn demo(_: &mut Context) -> Result<i32, Failure> {
    Err(Failure::Demo("this build has no demo".to_owned()))
}

/// What one of its processes does.
pub(crate) fn work(_: &DemoWork) -> i32 {
    super::exit::UNEXPECTED
}
