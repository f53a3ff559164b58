//! One lease's logical session.
//!
//! A server session numbers its writes, and the server refuses a number below one that it has seen. So a
//! statement that is still under way somewhere when a later one of the same lease was answered can no
//! longer be applied. The session is causally consistent too: a look through it sees at least everything
//! that was there when the lease's own document became durable, also from a new or a deposed primary.

use mongodb::ClientSession;
use mongodb::options::{ReadConcern, WriteConcern};

/// A lease's logical session.
pub(crate) struct Session {
    inner: ClientSession,
    /// A transaction was begun and not seen to end: the call that began it was dropped.
    open: bool,
}

impl Session {
    pub(super) fn new(inner: ClientSession) -> Session {
        Session { inner, open: false }
    }

    /// The driver's session, outside of any transaction. Without this a statement that follows a dropped
    /// grant would join the grant's transaction and never be committed.
    pub(super) async fn settled(&mut self) -> &mut ClientSession {
        if self.open {
            // Fails only if it was not begun or was committed; either way it is over for the driver, and
            // the server ends it when it sees the session's next number.
            let _ = self.inner.abort_transaction().await;
            self.open = false;
        }
        &mut self.inner
    }

    /// Begins a transaction.
    pub(super) async fn begin(&mut self, durable: WriteConcern) -> mongodb::error::Result<&mut ClientSession> {
        self.settled().await;
        self.open = true;
        self.inner.start_transaction().read_concern(ReadConcern::majority()).write_concern(durable).await?;
        Ok(&mut self.inner)
    }

    /// Commits the transaction.
    pub(super) async fn commit(&mut self) -> mongodb::error::Result<()> {
        self.inner.commit_transaction().await?;
        self.open = false;
        Ok(())
    }
}
