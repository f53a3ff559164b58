//! `owner serve`: owning a record store until it is stopped.

use futures::StreamExt;
use lockhouse::owner::Role;
use serde_json::json;

use super::super::Context;
use super::super::exit::Failure;
use super::super::records::{Around, Builds, Writing, around};
use super::super::store::waits_for_itself;
use super::args::ServeArgs;

/// Owns the store, or stands by, until a signal comes.
pub(super) async fn serve(context: &mut Context, args: ServeArgs) -> Result<i32, Failure> {
    #[cfg(feature = "service")]
    {
        context.beside = super::super::listen::Beside::start(context, &args.listen)?;
    }
    // Below a `run` it would be waited for by every fsck, and wait for each.
    if let Around::Run(coordinator, lease) = around(&context.global, &context.console).await? {
        return Err(waits_for_itself(coordinator.store(), &lease));
    }
    let builds = Builds { build: args.build, label: "owner serve".to_owned(), on_poison: args.on_poison.into() };
    let writing = Writing::open(context, builds, std::time::Duration::MAX).await?;
    let console = context.console.clone();
    let store = writing.store.clone();
    let telling = async move {
        let mut roles = store.on_role();
        while let Some(role) = roles.next().await {
            let (word, text) = match role {
                Role::Owner => ("owner", format!("owns the store {}", store.name())),
                Role::Reader => ("reader", format!("stands by; the owner: {}", store.status())),
            };
            console.event("role", json!({"role": word, "owner": store.status()}), &text);
        }
        std::future::pending::<()>().await
    };
    let signal = tokio::select! {
        biased;
        signal = context.signals.interrupted() => signal,
        () = telling => unreachable!("it never ends"),
    };
    if let Ok(signal) = signal {
        let text = format!("{signal}: applying what is in the spool; again to leave at once");
        context.console.say("closing", &text);
    }
    writing.close(context).await;
    match signal {
        // How one leaves it.
        Ok(_) => Ok(0),
        signal => Err(Failure::interrupted(signal)),
    }
}
