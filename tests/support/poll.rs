//! Waiting for a condition with a bound. A test never sleeps and hopes: it says what it waits for,
//! for how long at most, and what it saw last when the bound is over.

use std::fmt::Debug;
use std::time::{Duration, Instant};

/// Between two looks. Short against every bound in use, long against a round trip.
const PAUSE: Duration = Duration::from_millis(20);

/// Looks again and again until `look` gives `Ok`, and returns what it gave.
///
/// # Panics
///
/// When `bound` is over: with `what` was awaited and the last state that `look` gave as `Err`. A look
/// that never ends is given up at the bound too.
pub(crate) async fn eventually<T, S, F, Fut>(bound: Duration, what: &str, mut look: F) -> T
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<T, S>>,
    S: Debug,
{
    let start = Instant::now();
    let mut last_seen = None;
    let mut looks = 0_u32;
    let outcome = tokio::time::timeout(bound, async {
        loop {
            looks += 1;
            match look().await {
                Ok(value) => break value,
                Err(state) => last_seen = Some(state),
            }
            tokio::time::sleep(PAUSE).await;
        }
    })
    .await;
    match outcome {
        Ok(value) => value,
        Err(_) => {
            panic!("waited {:?} in vain for: {what}; looked {looks} times, last seen: {last_seen:?}", start.elapsed())
        }
    }
}

/// The same for code without a runtime.
pub(crate) fn eventually_blocking<T, S: Debug>(
    bound: Duration,
    what: &str,
    mut look: impl FnMut() -> Result<T, S>,
) -> T {
    let start = Instant::now();
    loop {
        match look() {
            Ok(value) => return value,
            Err(state) if start.elapsed() >= bound => {
                panic!("waited {bound:?} in vain for: {what}; last seen: {state:?}")
            }
            Err(_) => std::thread::sleep(PAUSE),
        }
    }
}
