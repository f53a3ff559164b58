//! `init`: the store's layout.

use lockhouse::Init;
use serde_json::json;

use super::args::Global;
use super::console::Console;
use super::exit::Failure;
use super::{output, store};

/// Makes the layout, or finds it there.
pub(crate) async fn init(global: Global, console: Console) -> Result<i32, Failure> {
    let store = store::open(&global, &console, None).await?;
    let made = matches!(store.coordinator.init().await?, Init::Made);
    let text = if global.json {
        output::json_line(&json!({"schema": 1, "store": store.name(), "made": made}))
    } else if made {
        format!("store {} is ready", store.name())
    } else {
        format!("store {} was ready before; nothing was changed", store.name())
    };
    output::print(&format!("{text}\n"))?;
    Ok(0)
}
