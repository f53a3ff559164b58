//! `/v1/status`: the JSON of `lockhouse status --json`, with one field more: `look`, which says how old it is.

use std::convert::Infallible;
use std::sync::Arc;

use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures::stream;
use serde_json::json;

use super::watch::Watched;

/// The handler. What was seen last is told as long as the process lives; `look.old` and `look.trouble` say what to
/// think of it.
pub(crate) async fn status(State(watched): State<Arc<Watched>>) -> Response {
    let seen = watched.seen();
    let trouble = seen.trouble.as_ref().map(|trouble| &trouble.message);
    let Some(look) = &seen.look else {
        let message = trouble.cloned().unwrap_or_else(|| "the store has not answered yet".to_owned());
        let error = json!({"kind": "Unavailable", "message": message, "store": watched.store});
        return (StatusCode::SERVICE_UNAVAILABLE, Json(json!({"schema": 1, "error": error}))).into_response();
    };
    let about = json!({
        "age_ms": u64::try_from(look.age().as_millis()).unwrap_or(u64::MAX),
        "took_ms": u64::try_from(look.took.as_millis()).unwrap_or(u64::MAX),
        "old": trouble.is_some() || look.is_old(),
        "trouble": trouble,
    });
    // The rest is the same for everybody who asks between two looks, and may be long: it is not copied.
    let begin = Bytes::from(format!("{{\"look\":{about},"));
    let parts = [Ok::<Bytes, Infallible>(begin), Ok(look.json().slice(1..))];
    ([(header::CONTENT_TYPE, "application/json")], Body::from_stream(stream::iter(parts))).into_response()
}
