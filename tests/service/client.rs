//! A client that says exactly what a test wants said.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

/// How long any answer may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// An answer.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:#?}"))
    }

    /// The value of a header.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head
            .lines()
            .filter_map(|line| line.split_once(": "))
            .find(|(is, _)| is.eq_ignore_ascii_case(name))
            .map(|(_, value)| value)
    }

    /// The value of a metric, with its labels as they are printed. One that is not there is no number, and equals none.
    pub(crate) fn metric(&self, name: &str) -> f64 {
        let found = self.body.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok());
        found.unwrap_or(f64::NAN)
    }
}

pub(crate) fn connect(to: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect_timeout(&to, PATIENCE).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Asks for a path.
pub(crate) fn get(to: SocketAddr, path: &str) -> Answer {
    with(to, path, &[])
}

/// Asks for a path with headers of one's own. Without a Host among them it is the address.
pub(crate) fn with(to: SocketAddr, path: &str, headers: &[(&str, &str)]) -> Answer {
    try_with(to, path, headers).unwrap_or_else(|error| panic!("GET {path}: {error}"))
}

/// As `with`, of a service that may not be there.
pub(crate) fn try_with(to: SocketAddr, path: &str, headers: &[(&str, &str)]) -> std::io::Result<Answer> {
    let mut stream = TcpStream::connect_timeout(&to, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut request = format!("GET {path} HTTP/1.1\r\nConnection: close\r\n");
    if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
        request += &format!("Host: {to}\r\n");
    }
    for (name, value) in headers {
        request += &format!("{name}: {value}\r\n");
    }
    stream.write_all((request + "\r\n").as_bytes())?;
    read(stream)
}

/// Reads an answer to its end.
pub(crate) fn read(stream: TcpStream) -> std::io::Result<Answer> {
    let mut from = BufReader::new(stream);
    let mut head = String::new();
    loop {
        let before = head.len();
        from.read_line(&mut head)?;
        if head[before..].trim_end().is_empty() {
            break;
        }
    }
    let code = head.split(' ').nth(1).and_then(|code| code.parse().ok());
    let code = code.ok_or_else(|| std::io::Error::other(format!("no answer: {head:?}")))?;
    let mut body = Vec::new();
    if head.to_lowercase().contains("transfer-encoding: chunked") {
        loop {
            let mut size = String::new();
            from.read_line(&mut size)?;
            let size = usize::from_str_radix(size.trim_end(), 16).map_err(std::io::Error::other)?;
            let mut chunk = vec![0; size + 2];
            from.read_exact(&mut chunk)?;
            if size == 0 {
                break;
            }
            body.extend_from_slice(&chunk[..size]);
        }
    } else {
        from.read_to_end(&mut body)?;
    }
    Ok(Answer { code, head, body: String::from_utf8(body).expect("text") })
}

/// A listener of server-sent events.
pub(crate) struct Listener(BufReader<TcpStream>);

/// One event.
#[derive(Debug, Clone, Default)]
pub(crate) struct Event {
    pub(crate) id: Option<String>,
    pub(crate) name: String,
    pub(crate) data: Value,
}

impl Listener {
    pub(crate) fn start(to: SocketAddr, path: &str, last: Option<&str>) -> Listener {
        Listener::try_start(to, path, last).unwrap()
    }

    /// As `start`, of a service that may not let it. `Err`: the first line of what it says instead.
    pub(crate) fn try_start(to: SocketAddr, path: &str, last: Option<&str>) -> Result<Listener, String> {
        let mut stream = connect(to);
        let last = last.map(|last| format!("Last-Event-ID: {last}\r\n")).unwrap_or_default();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: {to}\r\n{last}\r\n").unwrap();
        let mut from = BufReader::new(stream);
        let mut line = String::new();
        from.read_line(&mut line).unwrap();
        if !line.contains(" 200 ") {
            return Err(line);
        }
        while line.trim_end() != "" {
            line.clear();
            from.read_line(&mut line).unwrap();
        }
        Ok(Listener(from))
    }

    /// The next event, or `None` at the end of the stream.
    pub(crate) fn next(&mut self) -> Option<Event> {
        self.try_next().unwrap()
    }

    /// As `next`, of a stream that may be cut.
    pub(crate) fn try_next(&mut self) -> std::io::Result<Option<Event>> {
        let mut event = Event::default();
        loop {
            let mut line = String::new();
            if self.0.read_line(&mut line)? == 0 {
                return Ok(None);
            }
            // The sizes of chunks stand in between; nothing of an event looks like one.
            match line.trim_end().split_once(": ") {
                Some(("id", id)) => event.id = Some(id.to_owned()),
                Some(("event", name)) => event.name = name.to_owned(),
                // The last line of a stream that was cut is no whole one.
                Some(("data", data)) => event.data = serde_json::from_str(data).map_err(std::io::Error::other)?,
                _ if line.trim_end().is_empty() && !event.name.is_empty() => return Ok(Some(event)),
                _ => {}
            }
        }
    }

    /// The next event of a name.
    pub(crate) fn until(&mut self, name: &str) -> Event {
        let mut seen = Vec::new();
        while let Some(event) = self.next() {
            if event.name == name {
                return event;
            }
            seen.push(event);
        }
        panic!("the stream ended before {name}; {seen:?}")
    }
}
