//! `serve`: the service alone, watching one store.

use futures::future::FutureExt;
use lockhouse::{Error, ErrorKind};
use tokio::sync::mpsc;

use super::exit::Failure;
use super::listen::{Port, ServeArgs};
use super::{Context, check, store};

/// Serves until a signal comes. A store that cannot be reached is waited for; what waiting cannot mend ends it.
pub(crate) async fn serve(context: &mut Context, args: ServeArgs) -> Result<i32, Failure> {
    if let Some(address) = args.checks() {
        return super::interruptible(context, |_, _| check::check(address)).await;
    }
    let (url, builder) = store::given(&context.global)?;
    let port = Port::of_serve(&args)?;
    let (hopeless, mut told) = mpsc::unbounded_channel::<Error>();
    let console = context.console.clone();
    let mut said = false;
    let listening = port.open(&context.console, url, move || {
        let (connecting, hopeless, console) = (builder.clone().connect(), hopeless.clone(), console.clone());
        let first = !std::mem::replace(&mut said, true);
        async move {
            match connecting.await {
                Err(error) if error.kind() == ErrorKind::Unavailable => {
                    if first {
                        console.say("connecting", &format!("{error}; trying on"));
                    }
                    Err(error)
                }
                Err(error) => {
                    // Nobody reads it only if the program ends anyway.
                    let _ = hopeless.send(error);
                    std::future::pending().await
                }
                Ok(coordinator) => Ok(coordinator),
            }
        }
        .boxed()
    })?;
    let result = tokio::select! {
        biased;
        signal = context.signals.interrupted() => match signal {
            // How one ends a service.
            Ok(_) => Ok(0),
            Err(error) => Err(Failure::system("the signals cannot be read", error)),
        },
        Some(error) = told.recv() => Err(error.into()),
    };
    listening.finish();
    result
}
