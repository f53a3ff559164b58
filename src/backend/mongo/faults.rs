//! What is known about a statement that failed: driver errors become [`BackendError`]s.
//!
//! The rule that decides: a write that may have been applied is [`Fault::Unknown`], whatever the last
//! answer says. The driver repeats a retryable write by itself and returns the error of the last attempt,
//! so an answer such as "not the primary" may hide a first attempt that was applied, unless the server
//! itself says that nothing was written.

use std::fmt;

use mongodb::error::{Error, ErrorKind, NO_WRITES_PERFORMED, TRANSIENT_TRANSACTION_ERROR, WriteFailure};

use crate::backend::{BackendError, Fault};
use crate::describe;

use super::scrub::Scrub;

/// What the statement that failed could have changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Effect {
    /// It reads.
    Look,
    /// It writes within a transaction that is not committed after an error.
    Staged,
    /// It writes.
    Write,
    /// It commits a transaction.
    Commit,
}

/// Makes errors for one store: knows what must not be shown and which database the privileges are for.
#[derive(Debug)]
pub(super) struct Faults {
    scrub: Scrub,
    database: String,
}

impl Faults {
    pub(super) fn new(scrub: Scrub, database: &str) -> Faults {
        Faults { scrub, database: database.to_owned() }
    }

    /// For a read.
    pub(super) fn look(&self, error: Error) -> BackendError {
        self.fault(Effect::Look, &error)
    }

    /// For a statement inside a transaction.
    pub(super) fn staged(&self, error: Error) -> BackendError {
        self.fault(Effect::Staged, &error)
    }

    /// For a write.
    pub(super) fn write(&self, error: Error) -> BackendError {
        self.fault(Effect::Write, &error)
    }

    /// For the commit of a transaction.
    pub(super) fn commit(&self, error: Error) -> BackendError {
        self.fault(Effect::Commit, &error)
    }

    /// For a connection string that the driver does not take.
    pub(super) fn url(&self, error: Error) -> BackendError {
        match *error.kind {
            ErrorKind::DnsResolve { .. } | ErrorKind::Io(_) => self.look(error),
            _ => BackendError::new(
                Fault::Invalid,
                format!(
                    "the store URL is not usable: {}; see https://www.mongodb.com/docs/manual/reference/connection-string/",
                    self.scrub.clean(&text(&error))
                ),
            ),
        }
    }

    fn fault(&self, effect: Effect, error: &Error) -> BackendError {
        let fault = classify(error, effect);
        BackendError {
            fault,
            message: self.message(fault, effect, error),
            source: Some(Box::new(Cause(self.scrub.clean(&text(error))))),
        }
    }

    fn message(&self, fault: Fault, effect: Effect, error: &Error) -> String {
        let unreachable =
            matches!(*error.kind, ErrorKind::ServerSelection { .. } | ErrorKind::DnsResolve { .. } | ErrorKind::Io(_));
        match fault {
            Fault::Exists => "a document with that id stands already; look again".to_owned(),
            Fault::Busy if unreachable => {
                "no primary can be reached; check hosts, port, TLS and network, and that the server runs"
                    .to_owned()
            }
            Fault::Busy => "the server could not do it now; try again".to_owned(),
            Fault::Unknown => {
                "it is not known whether the statement was applied: its answer was lost, or a majority did not confirm it; look again"
                    .to_owned()
            }
            Fault::Denied if code(error) == Some(codes::UNAUTHORIZED) => {
                let role = match effect {
                    Effect::Look => "read",
                    Effect::Staged | Effect::Write | Effect::Commit => "readWrite",
                };
                format!(
                    "the user may not do this; grant the role {role} on the database {}",
                    describe::printable(&self.database)
                )
            }
            Fault::Denied => {
                "the server did not accept the credentials; check user, password and authSource in the store URL"
                    .to_owned()
            }
            Fault::Invalid => invalid(error).to_owned(),
            Fault::Internal => "the server's answer was not understood".to_owned(),
        }
    }
}

/// The next step for a store or request at fault.
fn invalid(error: &Error) -> &'static str {
    match code(error) {
        Some(17_276 | 40_324 | 31_325 | 59 | 168 | 115) => {
            "the server does not know a statement that leases need; MongoDB 4.4 or later is needed"
        }
        Some(121) => {
            "the collection's validator refuses lease documents; remove the validator, or name another collection with --collection"
        }
        Some(166) => "the collection is a view; name another with --collection",
        Some(10_334 | 17_419 | 17_420) => "the label or the reason is too long for a document",
        Some(61) => "the collection is sharded on another key than _id; name another with --collection",
        _ => "the server refuses the statement; what it said follows",
    }
}

/// Server error codes by what they mean here.
mod codes {
    pub(super) const UNAUTHORIZED: i32 = 13;
    /// A user that the server does not accept: UserNotFound, AuthenticationFailed, Atlas's AtlasError.
    pub(super) const CREDENTIALS: &[i32] = &[11, 18, 8000];
    /// DuplicateKey, and the numbers that older and compatible servers use for it.
    pub(super) const EXISTS: &[i32] = &[11_000, 11_001, 12_582];
    /// Rejected before anything was done, or rolled back by the server: LockTimeout, WriteConflict,
    /// StaleDbVersion, StaleConfig, a compatible service's "too many requests".
    pub(super) const REJECTED: &[i32] = &[24, 112, 249, 13_388, 16_500];
    /// The store or the statement is at fault and stays so.
    pub(super) const INVALID: &[i32] = &[
        2, 9, 14, 20, 26, 40, 48, 56, 59, 61, 66, 72, 73, 115, 121, 166, 168, 263, 303, 10_334, 17_276, 17_419, 17_420,
        31_325, 40_324,
    ];
    /// Passing trouble, or an election: on the way in or after the write was done. HostUnreachable,
    /// HostNotFound, NetworkTimeout, MaxTimeMSExpired, WriteConcernFailed, UnknownReplWriteConcern,
    /// ShutdownInProgress, CannotSatisfyWriteConcern, ConflictingOperationInProgress,
    /// FailedToSatisfyReadPreference, PrimarySteppedDown, NetworkInterfaceExceededTimeLimit,
    /// TransactionTooOld, NoSuchTransaction, ExceededTimeLimit, ClientDisconnect, SocketException,
    /// NotWritablePrimary, InterruptedAtShutdown, Interrupted, InterruptedDueToReplStateChange,
    /// NotPrimaryNoSecondaryOk, NotPrimaryOrSecondary, and 10058 of old servers.
    pub(super) const PASSING: &[i32] = &[
        6, 7, 50, 64, 79, 89, 91, 100, 117, 133, 134, 189, 202, 225, 251, 262, 279, 9001, 10_058, 10_107, 11_600,
        11_601, 11_602, 13_435, 13_436,
    ];
    /// From here on a code is the number of one assertion in the server's source: it stops the one
    /// document that it concerns.
    pub(super) const FIRST_LOCATION: i32 = 10_000;
}

/// What is known about the effect of the statement that `error` answers.
pub(super) fn classify(error: &Error, effect: Effect) -> Fault {
    // A transaction that the server ended, whatever the reason, left nothing behind.
    if matches!(effect, Effect::Staged | Effect::Commit) && error.contains_label(TRANSIENT_TRANSACTION_ERROR) {
        return Fault::Busy;
    }
    if codes_of(error).any(|code| codes::EXISTS.contains(&code)) {
        return Fault::Exists;
    }
    if effect == Effect::Commit {
        return Fault::Unknown;
    }
    let uncertain = match effect {
        Effect::Look | Effect::Staged => Fault::Busy,
        Effect::Write if error.contains_label(NO_WRITES_PERFORMED) => Fault::Busy,
        Effect::Write | Effect::Commit => Fault::Unknown,
    };
    match error.kind.as_ref() {
        ErrorKind::ServerSelection { .. } | ErrorKind::DnsResolve { .. } => Fault::Busy,
        ErrorKind::Authentication { .. } => Fault::Denied,
        ErrorKind::Command(command) => by_code(command.code, uncertain),
        ErrorKind::Write(WriteFailure::WriteError(write)) => by_code(write.code, uncertain),
        // Applied, and only its confirmation failed.
        ErrorKind::Write(WriteFailure::WriteConcernError(_)) => Fault::Unknown,
        ErrorKind::InsertMany(_) | ErrorKind::BulkWrite(_) => uncertain,
        ErrorKind::Io(_)
        | ErrorKind::ConnectionPoolCleared { .. }
        | ErrorKind::InvalidResponse { .. }
        | ErrorKind::Bson(_)
        | ErrorKind::BsonDeserialization(_) => uncertain,
        ErrorKind::SessionsNotSupported | ErrorKind::InvalidTlsConfig { .. } | ErrorKind::IncompatibleServer { .. } => {
            Fault::Invalid
        }
        ErrorKind::InvalidArgument { .. }
        | ErrorKind::BsonSerialization(_)
        | ErrorKind::Transaction { .. }
        | ErrorKind::GridFs(_)
        | ErrorKind::Internal { .. }
        | ErrorKind::MissingResumeToken
        | ErrorKind::Custom(_)
        | ErrorKind::Shutdown => Fault::Internal,
        // The driver's list is open; what it adds cannot be known to have done nothing.
        _ => uncertain,
    }
}

fn by_code(code: i32, uncertain: Fault) -> Fault {
    if code == codes::UNAUTHORIZED || codes::CREDENTIALS.contains(&code) {
        Fault::Denied
    } else if codes::REJECTED.contains(&code) {
        Fault::Busy
    } else if codes::INVALID.contains(&code) {
        Fault::Invalid
    } else if codes::PASSING.contains(&code) {
        uncertain
    } else if code >= codes::FIRST_LOCATION || uncertain == Fault::Busy {
        Fault::Internal
    } else {
        // An unknown condition of the server during a write: nothing says that it was not applied.
        Fault::Unknown
    }
}

/// The code of the first error in `error`, if the server sent one.
pub(super) fn code(error: &Error) -> Option<i32> {
    codes_of(error).next()
}

/// Every code in `error`: one reply may carry several.
fn codes_of(error: &Error) -> impl Iterator<Item = i32> + '_ {
    let mut codes = Vec::new();
    match error.kind.as_ref() {
        ErrorKind::Command(command) => codes.push(command.code),
        ErrorKind::Write(WriteFailure::WriteError(write)) => codes.push(write.code),
        ErrorKind::Write(WriteFailure::WriteConcernError(concern)) => codes.push(concern.code),
        ErrorKind::InsertMany(many) => {
            codes.extend(many.write_errors.iter().flatten().map(|write| write.code));
            codes.extend(many.write_concern_error.iter().map(|concern| concern.code));
        }
        ErrorKind::BulkWrite(bulk) => {
            codes.extend(bulk.write_errors.values().map(|write| write.code));
            codes.extend(bulk.write_concern_errors.iter().map(|concern| concern.code));
        }
        _ => {}
    }
    codes.into_iter()
}

/// What the driver or the server said, without the driver's wrapping.
fn text(error: &Error) -> String {
    match error.kind.as_ref() {
        ErrorKind::Command(command) => {
            format!("{} ({}): {}", command.code_name, command.code, command.message)
        }
        ErrorKind::Write(WriteFailure::WriteError(write)) => {
            format!("write error {}: {}", write.code, write.message)
        }
        ErrorKind::Write(WriteFailure::WriteConcernError(concern)) => {
            format!("write concern error {}: {}", concern.code, concern.message)
        }
        kind => kind.to_string(),
    }
}

/// What the driver said, scrubbed: the source of a [`BackendError`].
#[derive(Debug)]
struct Cause(String);

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Cause {}

#[cfg(test)]
mod tests {
    use super::*;
    use bson::{Document, doc};
    use serde::de::DeserializeOwned;

    fn read<T: DeserializeOwned>(document: Document) -> T {
        bson::deserialize_from_document(document).unwrap()
    }

    fn command(code: i32) -> Error {
        ErrorKind::Command(read(doc! { "code": code, "codeName": "X", "errmsg": "x" })).into()
    }

    fn write_error(code: i32) -> Error {
        let error = read(doc! { "code": code, "errmsg": "x" });
        ErrorKind::Write(WriteFailure::WriteError(error)).into()
    }

    fn concern(code: i32) -> Error {
        let error = read(doc! { "code": code, "errmsg": "x" });
        ErrorKind::Write(WriteFailure::WriteConcernError(error)).into()
    }

    #[test]
    fn a_duplicate_key_means_exists_in_every_shape() {
        let many =
            |field: &str, value: bson::Bson| -> Error { ErrorKind::InsertMany(read(doc! { field: value })).into() };
        let error = doc! { "index": 0, "code": 11_000, "errmsg": "x" };
        for shape in [
            command(11_000),
            write_error(11_000),
            concern(11_000),
            many("writeErrors", vec![error.clone()].into()),
            many("writeConcernError", error.into()),
            command(11_001),
        ] {
            for effect in [Effect::Look, Effect::Staged, Effect::Write, Effect::Commit] {
                assert_eq!(classify(&shape, effect), Fault::Exists, "{shape}");
            }
        }
    }

    #[test]
    fn a_write_that_may_have_been_applied_is_unknown() {
        let io: Error = std::io::Error::from(std::io::ErrorKind::ConnectionReset).into();
        for error in [io, command(50), command(64), concern(50), concern(64), concern(11_602), concern(100)]
            .into_iter()
            .chain([91, 117, 189, 10_107, 11_600, 11_602, 13_435, 251, 225, 1, 8].map(command))
        {
            assert_eq!(classify(&error, Effect::Write), Fault::Unknown, "{error}");
            assert_eq!(classify(&error, Effect::Commit), Fault::Unknown, "{error}");
        }
    }

    #[test]
    fn the_same_trouble_leaves_nothing_behind_when_it_answers_a_read_or_an_open_transaction() {
        let io: Error = std::io::Error::from(std::io::ErrorKind::ConnectionReset).into();
        for error in
            std::iter::once(io).chain([50, 91, 112, 117, 189, 10_107, 11_600, 11_602, 16_500, 251].map(command))
        {
            assert_eq!(classify(&error, Effect::Look), Fault::Busy, "{error}");
            assert_eq!(classify(&error, Effect::Staged), Fault::Busy, "{error}");
        }
    }

    #[test]
    fn what_was_rejected_or_refused_is_told_apart() {
        for (error, fault) in [
            (command(112), Fault::Busy),
            (write_error(112), Fault::Busy),
            (command(16_500), Fault::Busy),
            (command(13), Fault::Denied),
            (command(18), Fault::Denied),
            (command(17_276), Fault::Invalid),
            (write_error(121), Fault::Invalid),
            (command(5_107_201), Fault::Internal),
        ] {
            assert_eq!(classify(&error, Effect::Write), fault, "{error}");
        }
    }

    #[test]
    fn the_label_that_nothing_was_written_is_believed() {
        let error = read(doc! { "code": 91, "errmsg": "x", "errorLabels": [NO_WRITES_PERFORMED] });
        // A label on a write concern error must not make it less than unknown.
        let concern: Error = ErrorKind::Write(WriteFailure::WriteConcernError(error)).into();
        assert_eq!(classify(&concern, Effect::Write), Fault::Unknown);
    }

    #[test]
    fn a_missing_privilege_is_named_and_nothing_secret_is_shown() {
        let scrub = Scrub::new("mongodb://bob:s3%2Fcret@h/shop");
        let faults = Faults::new(scrub, "shop");
        let error: Error = ErrorKind::Command(read(
            doc! { "code": 13, "codeName": "Unauthorized", "errmsg": "bob with s3/cret and s3%2Fcret" },
        ))
        .into();
        let denied = faults.write(error.clone());
        assert!(denied.message.contains("readWrite on the database shop"));
        let shown = format!("{denied:?}");
        assert!(!shown.contains("cret") && !shown.contains("bob"), "{shown}");
        assert!(faults.look(error).message.contains("role read on"));
    }
}
