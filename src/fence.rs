//! Fencing: the commit of a MongoDB transaction that depends on a lease still standing.
//!
//! A lease alone trusts that nobody sleeps: a process that is stopped between its check and its write wakes up and
//! writes, whatever happened meanwhile. Within a transaction on the store's own cluster that can be excluded. A fenced
//! transaction writes a document that belongs to the lease; whoever takes the lease away deletes that document before
//! an fsck is granted. So either the commit came first, and the fsck waited for it, or there is no commit.
//!
//! # What it does not cover
//!
//! Writes outside the transaction; data on another cluster; a lease that httk-store's own force passed over, for it
//! deletes no fences. A standalone server has no transactions.

use std::fmt;

use bson::{Binary, Bson};
use mongodb::ClientSession;
use mongodb::error::{Error as DriverError, TRANSIENT_TRANSACTION_ERROR};
use mongodb::options::{Acknowledgment, ReadConcern, WriteConcern};
use tokio::sync::{mpsc, oneshot};

use crate::backend::{NO_TRANSACTIONS, Namespace, mongo};
use crate::error::{Error, Failure, LossReason, Result};
use crate::lease::command::Command;
use crate::lease::state::LeaseCell;
use crate::lease::{Lease, WriteGuard};

/// Why a fenced transaction has not been committed, or is not known to be.
#[derive(Debug)]
#[non_exhaustive]
pub enum FencedError {
    /// The lease is lost, or could not be brought into the transaction; the work was not committed.
    Lease(Error),
    /// The work, or the commit, failed in the driver and was not to be repeated, or not any longer. As for every
    /// transaction of the driver, a failed commit may have been applied.
    Driver(DriverError),
}

impl fmt::Display for FencedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FencedError::Lease(_) => f.write_str("the transaction was not committed"),
            FencedError::Driver(_) => f.write_str("the fenced transaction failed"),
        }
    }
}

impl std::error::Error for FencedError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            FencedError::Lease(error) => Some(error),
            FencedError::Driver(error) => Some(error),
        }
    }
}

macro_rules! fences {
    ($guard:ident) => {
        impl $guard {
            /// Makes the commit of the transaction that runs in `session` depend on this lease: if the lease is taken
            /// away before the commit, there is no commit, and an fsck is not granted before the transaction has ended.
            ///
            /// May be called anywhere in the transaction; as its first statement it costs one round trip, and the
            /// first time in a session a few more. The session may be of any client of the store's own cluster. The
            /// transaction needs write concern majority.
            ///
            /// # Errors
            ///
            /// The transaction is aborted, so that nobody commits it unfenced. `LeaseLost`: stop writing. `Unavailable`,
            /// retryable: run the transaction again, as after any transient error of the driver, which is the source
            /// where there is one. `Invalid` outside of a transaction, and in a store that has none.
            ///
            /// # Cancellation
            ///
            /// A call that is dropped may have fenced the transaction or not: abort it.
            pub async fn fence(&self, session: &mut ClientSession) -> Result<()> {
                let (cell, commands) = self.parts();
                Fence { cell: &cell, commands }.fence_or_abort(session).await
            }

            /// Runs `work` in a fenced transaction: starts it with write concern and read concern majority, fences it,
            /// calls `work`, and commits. Transient failures of any of that run all of it again, and an unknown result
            /// of the commit repeats the commit, by the driver's own rules, for up to two minutes. So `work` may be
            /// called more than once, and has to return the driver's errors as they are.
            ///
            /// ```no_run
            /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
            /// use lockhouse::Coordinator;
            /// use lockhouse::mongodb::{Client, bson::{Document, doc}};
            ///
            /// let url = "mongodb://localhost/shop?replicaSet=rs0";
            /// let coordinator = Coordinator::connect(url).await?;
            /// let lease = coordinator.acquire_writer().await?;
            ///
            /// let client = Client::with_uri_str(url).await?;
            /// let accounts = client.database("shop").collection::<Document>("accounts");
            /// let mut session = client.start_session().await?;
            /// lease
            ///     .fenced(&mut session, async |session| {
            ///         let (from, to) = (doc! { "_id": "ann" }, doc! { "_id": "bob" });
            ///         accounts.update_one(from, doc! { "$inc": { "euro": -5 } }).session(&mut *session).await?;
            ///         accounts.update_one(to, doc! { "$inc": { "euro": 5 } }).session(session).await?;
            ///         Ok(())
            ///     })
            ///     .await?;
            /// lease.release().await?;
            /// # Ok(())
            /// # }
            /// ```
            ///
            /// # Errors
            ///
            /// See [`FencedError`].
            ///
            /// # Cancellation
            ///
            /// Dropping the future leaves the transaction to the session, which aborts it with its next use, as it
            /// does for any transaction of the driver.
            pub async fn fenced<T>(
                &self,
                session: &mut ClientSession,
                mut work: impl AsyncFnMut(&mut ClientSession) -> Result<T, DriverError>,
            ) -> Result<T, FencedError> {
                let (cell, commands) = self.parts();
                let fence = Fence { cell: &cell, commands };
                // Before the transaction, so that it can see what is made for it.
                fence.slot(session).await.map_err(FencedError::Lease)?;
                let majority = WriteConcern::builder().w(Acknowledgment::Majority).journal(true).build();
                let transaction =
                    session.start_transaction().write_concern(majority).read_concern(ReadConcern::majority());
                let run = transaction.and_run2(async |session: &mut ClientSession| {
                    fence.raise(session).await?;
                    work(session).await
                });
                run.await.map_err(|error| match error.get_custom::<Stopped>() {
                    Some(stopped) => FencedError::Lease(stopped.0.again()),
                    None => FencedError::Driver(error),
                })
            }
        }
    };
}

fences!(Lease);
fences!(WriteGuard);

/// Carries our error through the driver's retrying.
#[derive(Debug)]
struct Stopped(Error);

/// What fencing needs of a lease.
struct Fence<'a> {
    cell: &'a LeaseCell,
    commands: &'a mpsc::UnboundedSender<Command>,
}

impl Fence<'_> {
    /// A transaction that could not be fenced is not left to be committed.
    async fn fence_or_abort(&self, session: &mut ClientSession) -> Result<()> {
        let fenced = self.fence(session).await;
        if fenced.is_err() {
            // Fails where there is none, or the server has ended it already.
            let _ = session.abort_transaction().await;
        }
        fenced
    }

    async fn fence(&self, session: &mut ClientSession) -> Result<()> {
        self.check()?;
        let within = mongo::fence::is_in_transaction(session, self.namespace()?).await;
        if !within.map_err(|error| self.unavailable("the transaction could not be fenced", Some(error)))? {
            return Err(Error::invalid_at(
                &self.cell.terms.store,
                "a fence holds only within a transaction, and none runs in this session; start one first",
            ));
        }
        match self.raise(session).await {
            Ok(()) => Ok(()),
            Err(error) => Err(match error.get_custom::<Stopped>() {
                Some(stopped) => stopped.0.again(),
                None => self.unavailable("the transaction could not be fenced; run it again", Some(error)),
            }),
        }
    }

    /// Raises this session's fence document. Our own errors come as [`Stopped`], the driver's as they are.
    async fn raise(&self, session: &mut ClientSession) -> Result<(), DriverError> {
        let stop = |error: Error| DriverError::custom(Stopped(error));
        self.check().map_err(stop)?;
        let slot = self.slot(session).await.map_err(stop)?;
        let namespace = self.namespace().map_err(stop)?;
        if mongo::fence::raise(session, namespace, &self.cell.terms.key, slot).await? {
            return Ok(());
        }
        // There is none that the transaction can see: the lease is gone, or the transaction began too early.
        let (key, (reply, answer)) = (self.cell.terms.key.clone(), oneshot::channel());
        let looked = self.commands.send(Command::Refresh { key, force: true, reply }).is_ok();
        let looked = if looked { answer.await.unwrap_or_else(|_| self.check()) } else { self.check() };
        self.check().map_err(stop)?;
        looked.map_err(stop)?;
        Err(stop(self.unavailable(
            "the transaction cannot see its fence: it began before there was one, or its session is one of another cluster; run it again",
            None,
        )))
    }

    /// The number of the fence document of this session.
    async fn slot(&self, session: &ClientSession) -> Result<u64> {
        self.namespace()?;
        let Some(Bson::Binary(Binary { bytes: id, .. })) = session.id().get("id") else {
            return Err(Error::internal("the driver's session has an id of another form"));
        };
        loop {
            self.check()?;
            if let Some(slot) = self.cell.slots.take(id, self.cell.now()) {
                return Ok(slot);
            }
            let (reply, answer) = oneshot::channel();
            let ended = || self.cell.error(LossReason::Supervisor);
            self.commands.send(Command::Slots(self.cell.terms.key.clone(), reply)).map_err(|_| ended())?;
            answer.await.unwrap_or_else(|_| Err(ended()))?;
        }
    }

    fn check(&self) -> Result<()> {
        self.cell.check().map_err(|why| self.cell.error(why))
    }

    fn namespace(&self) -> Result<&Namespace> {
        let namespace = self.cell.terms.namespace.as_deref();
        namespace.ok_or_else(|| Error::invalid_at(&self.cell.terms.store, NO_TRANSACTIONS))
    }

    fn unavailable(&self, message: &str, source: Option<DriverError>) -> Error {
        let transient = source.as_ref().is_none_or(|error| error.contains_label(TRANSIENT_TRANSACTION_ERROR));
        let failure = Box::new(Failure {
            store: Some(self.cell.terms.store.clone()),
            message: message.to_owned(),
            source: source.map(|error| error.into()),
        });
        if transient { Error::Unavailable(failure) } else { Error::Internal(failure) }
    }
}
