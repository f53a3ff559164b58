//! A shared server as a container.
//!
//! A test process does not always get to run destructors, so the container is removed by a helper
//! process that waits for the end of a pipe which only this process holds open.

use std::process::{Command, Stdio};
use std::time::Duration;

use mongodb::bson::doc;
use testcontainers::core::{IntoContainerPort, WaitFor};
use testcontainers::runners::AsyncRunner;
use testcontainers::{ContainerAsync, GenericImage, ImageExt};

use super::database::connect;
use super::mongod::{SET_NAME, free_port};
use super::poll::eventually;
use super::shared::Kind;
use super::uri::Uri;

const DEFAULT_IMAGE: &str = "mongo:7";
const START_BOUND: Duration = Duration::from_secs(60);

/// Starts a server of this kind, or says why that cannot be.
pub(crate) async fn start(kind: Kind) -> Result<Uri, String> {
    let image = std::env::var("LOCKHOUSE_TEST_IMAGE").unwrap_or_else(|_| DEFAULT_IMAGE.into());
    // Asked first, so that no test ever waits for a download.
    let there = Command::new("docker")
        .args(["image", "inspect", "--format", "{{.Id}}", &image])
        .output()
        .map_err(|error| format!("no container: docker cannot be run ({error})"))?;
    if !there.status.success() {
        let said = String::from_utf8_lossy(&there.stderr);
        return Err(format!("no container of {image}: {}", said.trim()));
    }
    // The port is the same inside and outside, so that the name by which the replica set's member
    // knows itself leads to it from here too.
    let port = free_port();
    let container = run(kind, &image, port).await.map_err(|error| format!("no container of {image}: {error}"))?;
    remove_at_exit(container.id());
    // From here on the helper removes it; a destructor would need the runtime that starts it.
    std::mem::forget(container);
    let uri = Uri::parse(&format!("mongodb://127.0.0.1:{port}/"));
    Ok(match kind {
        Kind::Standalone => uri,
        Kind::ReplicaSet => initiate(uri, port).await,
    })
}

async fn run(
    kind: Kind,
    image: &str,
    port: u16,
) -> Result<ContainerAsync<GenericImage>, testcontainers::TestcontainersError> {
    let (name, tag) = match image.rsplit_once(':') {
        Some((name, tag)) if !tag.contains('/') => (name, tag),
        _ => (image, "latest"),
    };
    let mut arguments: Vec<String> = ["--bind_ip_all", "--wiredTigerCacheSizeGB", "0.25"]
        .into_iter()
        .chain(["--setParameter", "enableTestCommands=1"])
        .map(str::to_owned)
        .collect();
    arguments.extend(["--port".into(), port.to_string()]);
    if kind == Kind::ReplicaSet {
        arguments.extend(["--replSet", SET_NAME, "--oplogSize", "64"].map(str::to_owned));
    }
    GenericImage::new(name, tag)
        .with_wait_for(WaitFor::message_on_stdout("Waiting for connections"))
        .with_mapped_port(port, port.tcp())
        .with_host_config_modifier(|host| {
            // A server without users is nobody's business but this machine's.
            let bindings = host.port_bindings.iter_mut().flat_map(|map| map.values_mut());
            for binding in bindings.flatten().flatten() {
                binding.host_ip = Some("127.0.0.1".into());
            }
        })
        .with_startup_timeout(START_BOUND)
        .with_cmd(arguments)
        .start()
        .await
}

async fn initiate(uri: Uri, port: u16) -> Uri {
    let own_name = format!("127.0.0.1:{port}");
    let admin = connect(&uri.clone().directly_to(&own_name)).await.database("admin");
    let config = doc! { "_id": SET_NAME, "members": [{ "_id": 0, "host": own_name }] };
    admin.run_command(doc! { "replSetInitiate": config }).await.expect("initiate the replica set in the container");
    eventually(START_BOUND, "the container's server to become primary", || async {
        match admin.run_command(doc! { "hello": 1 }).await {
            Ok(hello) if hello.get_bool("isWritablePrimary").unwrap_or(false) => Ok(()),
            other => Err(other),
        }
    })
    .await;
    uri.with_option("replicaSet", SET_NAME)
}

fn remove_at_exit(id: &str) {
    // Its own session, so that a Ctrl-C at the terminal does not end it together with the tests.
    let helper = Command::new("setsid")
        .args(["sh", "-c", "read -r _; exec docker rm --force --volumes \"$0\"", id])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("start the helper that removes the container at the end");
    // The pipe stays open as long as this process lives, and no longer.
    std::mem::forget(helper);
}
