//! The way between a caller and a store in the process: none, unless the simulation lays one.

/// A statement on its way to the store: run, it is applied and gives back its reply, which run arrives at
/// the caller.
pub(crate) type Statement = Box<dyn FnOnce() -> Reply>;
pub(crate) type Reply = Box<dyn FnOnce()>;

/// What lies between a caller and the store.
pub(crate) trait Link {
    /// Takes a statement to the store, and its reply back: at once, late, or never.
    fn carry(&self, name: &'static str, statement: Statement);
}

/// No distance at all.
pub(super) struct Direct;

impl Link for Direct {
    fn carry(&self, _name: &'static str, statement: Statement) {
        statement()();
    }
}
