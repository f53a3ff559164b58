//! `serve --check`: whether the service of another process is well. A container without a shell asks so.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use lockhouse::clock::{Clock, SystemClock};
use lockhouse::describe::printable;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::exit::Failure;
use super::output;

/// Longer than any answer of a service that is well, shorter than the patience of whoever runs health checks.
const PATIENCE: Duration = Duration::from_secs(3);
/// More than `/healthz` ever says. Another program may listen there, and talk without an end.
const LONGEST: u64 = 16 << 10;

/// Asks `/healthz` at the address that the service was told to listen on.
///
/// # Cancellation
///
/// Dropping the future closes the connection.
pub(crate) async fn check(listens: SocketAddr) -> Result<i32, Failure> {
    let address = reachable(listens);
    let bound = SystemClock.now() + PATIENCE;
    let answer = tokio::select! {
        biased;
        answer = ask(address) => answer,
        () = SystemClock.sleep_until(bound) => Err(io::Error::new(io::ErrorKind::TimedOut, "no answer in time")),
    };
    let answer = answer.map_err(|error| {
        Failure::Unwell(format!("no service answers at http://{address}/: {error}; does it run, and listen there?"))
    })?;
    match judge(&answer) {
        Ok(text) => {
            output::print(&format!("{}\n", printable(text)))?;
            Ok(0)
        }
        Err(why) => Err(Failure::Unwell(format!("the service at http://{address}/ is not well: {why}"))),
    }
}

/// Whoever listens on every address is asked on loopback.
fn reachable(listens: SocketAddr) -> SocketAddr {
    let ip = match listens.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, listens.port())
}

async fn ask(address: SocketAddr) -> io::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET /healthz HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.take(LONGEST).read_to_end(&mut answer).await?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

/// The body of a good answer, or what is wrong. `Connection: close` and the short answer leave nothing to decode.
fn judge(answer: &str) -> Result<&str, &str> {
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((answer, ""));
    let status = head.lines().next().unwrap_or_default();
    let mut words = status.split(' ');
    let speaks_http = words.next().is_some_and(|version| version.starts_with("HTTP/1."));
    match words.next() {
        Some("200") if speaks_http => Ok(body.trim()),
        _ if body.trim().is_empty() => Err(if status.is_empty() { "an empty answer" } else { status }),
        _ => Err(body.trim()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_200_of_http_is_well() {
        assert_eq!(judge("HTTP/1.1 200 OK\r\nx: y\r\n\r\nok\n"), Ok("ok"));
        assert_eq!(judge("HTTP/1.1 503 Service Unavailable\r\n\r\nsupervisor: ended\n"), Err("supervisor: ended"));
        assert_eq!(judge("HTTP/1.1 404 Not Found\r\n\r\n"), Err("HTTP/1.1 404 Not Found"));
        assert_eq!(judge("SSH-2.0 200 hello"), Err("SSH-2.0 200 hello"));
        assert_eq!(judge(""), Err("an empty answer"));
    }

    #[test]
    fn who_listens_everywhere_is_asked_here() {
        for (listens, asked) in
            [("0.0.0.0:7", "127.0.0.1:7"), ("[::]:7", "[::1]:7"), ("10.1.2.3:7", "10.1.2.3:7"), ("[::1]:7", "[::1]:7")]
        {
            assert_eq!(reachable(listens.parse().unwrap()), asked.parse().unwrap());
        }
    }
}
