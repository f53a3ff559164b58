//! A fresh database for one test, on a shared server or on one of the test's own.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use mongodb::options::ClientOptions;
use mongodb::{Client, Database};

use super::failpoint::FailCommand;
use super::proxy::Proxy;
use super::shared;
use super::uri::Uri;

/// A database on the shared replica set of one member: transactions, change streams, fail points.
pub(crate) fn database() -> TestDatabase {
    TestDatabase::on(shared::replica_set())
}

/// A database on the shared standalone server, which has no transactions.
pub(crate) fn standalone_database() -> TestDatabase {
    TestDatabase::on(shared::standalone())
}

/// A database with a name of its own, dropped (best effort) together with this value.
#[derive(Debug)]
pub(crate) struct TestDatabase {
    server: Uri,
    name: String,
}

impl TestDatabase {
    pub(crate) fn on(server: &Uri) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        // Unique across the processes that share the server, on this machine and on others.
        let name =
            format!("lht_{}_{}_{:08x}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed), fastrand::u32(..));
        Self { server: server.clone(), name }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// `mongodb://…/NAME?…&appName=NAME`. The application's name is how a fail point spares other tests.
    pub(crate) fn uri(&self) -> String {
        self.own_uri().to_string()
    }

    /// The same database through a proxy.
    pub(crate) fn uri_through(&self, proxy: &Proxy) -> String {
        self.own_uri().directly_to(&proxy.address().to_string()).to_string()
    }

    /// A proxy in front of this database's server.
    pub(crate) fn proxy(&self) -> Proxy {
        Proxy::start(&self.server.first_host())
    }

    /// A bare driver's client, to look and write behind the product's back. Each call makes a new one.
    pub(crate) async fn client(&self) -> Client {
        connect(&self.own_uri()).await
    }

    /// This database by a bare driver's client.
    pub(crate) async fn raw(&self) -> Database {
        self.client().await.database(&self.name)
    }

    /// Faults of the server that meet only clients with this database's connection string.
    pub(crate) fn fail_command(&self) -> FailCommand {
        FailCommand::new(&self.server.to_string()).app_name(&self.name)
    }

    fn own_uri(&self) -> Uri {
        self.server.clone().with_database(&self.name).with_option("appName", &self.name)
    }
}

impl Drop for TestDatabase {
    fn drop(&mut self) {
        let (uri, name) = (self.server.clone(), self.name.clone());
        let _ = blocking(Duration::from_secs(5), async move {
            let _ = connect(&uri).await.database(&name).drop().await;
        });
    }
}

/// A bare client. A server that is not there is noticed after five seconds instead of thirty.
pub(crate) async fn connect(uri: &Uri) -> Client {
    let mut options = ClientOptions::parse(uri.to_string()).await.expect("a connection string that the driver takes");
    options.server_selection_timeout = Some(Duration::from_secs(5));
    options.connect_timeout = Some(Duration::from_secs(5));
    Client::with_options(options).expect("options that the driver takes")
}

/// Runs `work` to its end or to the bound, on a thread and a runtime of its own: a destructor may be
/// running on a runtime's only thread, and a client works only while its runtime does.
pub(crate) fn blocking<T: Send + 'static>(
    bound: Duration,
    work: impl Future<Output = T> + Send + 'static,
) -> Option<T> {
    std::thread::spawn(move || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .ok()?
            .block_on(async { tokio::time::timeout(bound, work).await.ok() })
    })
    .join()
    .ok()
    .flatten()
}
