//! Who may ask: everybody on this machine by a name of this machine, or whoever has the token.

use std::fmt;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::{self, HeaderName, HeaderValue};
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use base64::Engine;
use subtle::ConstantTimeEq;

use crate::{Error, Failure, Result};

/// The shortest token that is worth the name: eight bytes by chance, written in hexadecimal.
const SHORTEST: usize = 16;
/// No token file is longer.
const LONGEST: u64 = 4096;

/// Who may ask a router.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Access {
    /// Whoever reaches it by a name of this machine (`localhost`, `127.0.0.1`, `[::1]`): for a listener on loopback.
    Loopback,
    /// Whoever has the token. Health and readiness are open, for probes have none.
    Token(Token),
    /// Everybody: the server around the router decides.
    Everybody,
}

/// A secret that whoever asks has to know: sent as `Authorization: Bearer TOKEN`, or, by a browser, as the password of
/// any user. Never shown.
#[derive(Clone)]
pub struct Token(Arc<str>);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

impl Token {
    /// # Errors
    ///
    /// `Invalid` unless it is 16 printable ASCII characters or more, without spaces.
    pub fn new(text: &str) -> Result<Token> {
        check(text).map_err(|why| Error::invalid(format!("the token {why}")))?;
        Ok(Token(text.into()))
    }

    /// The token in a file, without the end of its line.
    ///
    /// # Errors
    ///
    /// `Denied` if the file cannot be read, or if others can read it too; `Invalid` for what is no file or no token.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Token> {
        let path = path.as_ref();
        let name = crate::describe::printable(&path.to_string_lossy());
        let denied = |message: String, source: Option<std::io::Error>| {
            Error::Denied(Box::new(Failure { store: None, message, source: source.map(Into::into) }))
        };
        // A fifo must not keep us waiting for somebody who writes.
        let nonblocking = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or_default();
        let file = std::fs::OpenOptions::new().read(true).custom_flags(nonblocking).open(path);
        let unreadable = |error| denied(format!("the token file {name} cannot be read"), Some(error));
        let file = file.map_err(unreadable)?;
        let about = file.metadata().map_err(unreadable)?;
        if !about.is_file() {
            return Err(Error::invalid(format!("the token file {name} is not a file")));
        }
        // A group that may read it is how secrets are handed to containers.
        if about.mode() & 0o027 != 0 {
            let mode = about.mode() & 0o777;
            return Err(denied(
                format!("others can read the token file {name}, or change it (mode {mode:04o}); run: chmod 600 {name}"),
                None,
            ));
        }
        let mut text = String::new();
        file.take(LONGEST + 1).read_to_string(&mut text).map_err(|error| match error.kind() {
            std::io::ErrorKind::InvalidData => Error::invalid(format!("the token file {name} is no text")),
            _ => unreadable(error),
        })?;
        let text = text.strip_suffix('\n').unwrap_or(&text);
        let text = text.strip_suffix('\r').unwrap_or(text);
        check(text).map_err(|why| Error::invalid(format!("the token in the file {name} {why}")))?;
        Ok(Token(text.into()))
    }

    /// In a time that tells nothing about the token but its length.
    fn is(&self, said: &[u8]) -> bool {
        self.0.as_bytes().ct_eq(said).into()
    }

    /// Whether a request says it.
    fn is_said_by(&self, headers: &HeaderMap) -> bool {
        let Some(said) = headers.get(header::AUTHORIZATION).and_then(|said| said.to_str().ok()) else { return false };
        match said.split_once(' ') {
            Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => self.is(token.trim().as_bytes()),
            Some((scheme, login)) if scheme.eq_ignore_ascii_case("basic") => {
                let login = base64::engine::general_purpose::STANDARD.decode(login.trim()).unwrap_or_default();
                let colon = login.iter().position(|byte| *byte == b':');
                colon.is_some_and(|colon| self.is(&login[colon + 1..]))
            }
            _ => false,
        }
    }
}

fn check(token: &str) -> std::result::Result<(), String> {
    if token.is_empty() {
        Err("is empty".to_owned())
    } else if token.len() as u64 > LONGEST {
        Err(format!("is longer than {LONGEST} bytes"))
    } else if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        Err("has something else than printable ASCII characters, or a space".to_owned())
    } else if token.len() < SHORTEST {
        Err(format!("has {} characters; take {SHORTEST} or more, as from: openssl rand -hex 32", token.len()))
    } else {
        Ok(())
    }
}

/// The host of a request is this machine. A page of elsewhere that lets its own name point here cannot say so.
fn is_local(headers: &HeaderMap) -> bool {
    let mut hosts = headers.get_all(header::HOST).iter();
    let (Some(host), None) = (hosts.next().and_then(|host| host.to_str().ok()), hosts.next()) else { return false };
    let name = match host.rsplit_once(':') {
        // What is in brackets has colons of its own.
        Some((name, port)) if !port.ends_with(']') => {
            if !port.bytes().all(|byte| byte.is_ascii_digit()) {
                return false;
            }
            name
        }
        _ => host,
    };
    ["localhost", "127.0.0.1", "[::1]"].iter().any(|local| name.eq_ignore_ascii_case(local))
}

fn refuse_host() -> Response {
    let text = "this service is for its own machine: ask for localhost, 127.0.0.1 or [::1]\n";
    (StatusCode::MISDIRECTED_REQUEST, text).into_response()
}

/// For what is open to whoever reaches it.
pub(crate) async fn same_host(State(access): State<Access>, request: Request, next: Next) -> Response {
    match access {
        Access::Loopback if !is_local(request.headers()) => refuse_host(),
        _ => next.run(request).await,
    }
}

/// For all the rest.
pub(crate) async fn may_ask(State(access): State<Access>, request: Request, next: Next) -> Response {
    match &access {
        Access::Loopback if !is_local(request.headers()) => refuse_host(),
        Access::Token(token) if !token.is_said_by(request.headers()) => {
            let text = "the token is missing or wrong: send it as Authorization: Bearer TOKEN\n";
            let mut response = (StatusCode::UNAUTHORIZED, text).into_response();
            // The second is what a browser asks its user for.
            for way in ["Bearer realm=\"lockhouse\"", "Basic realm=\"lockhouse: any user, the token as password\""] {
                response.headers_mut().append(header::WWW_AUTHENTICATE, HeaderValue::from_static(way));
            }
            response
        }
        _ => next.run(request).await,
    }
}

/// What every answer says to browsers and to caches.
pub(crate) async fn harden(mut response: Response) -> Response {
    let headers = response.headers_mut();
    let mut set = |name: HeaderName, value: &'static str| {
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    };
    set(header::CACHE_CONTROL, "no-store");
    set(header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    set(header::REFERRER_POLICY, "no-referrer");
    set(header::X_FRAME_OPTIONS, "DENY");
    set(header::CONTENT_SECURITY_POLICY, "default-src 'none'; frame-ancestors 'none'");
    set(HeaderName::from_static("cross-origin-resource-policy"), "same-origin");
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(name: HeaderName, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(name, HeaderValue::from_str(value).unwrap())])
    }

    #[test]
    fn only_names_of_this_machine_are_local() {
        for host in ["localhost", "LocalHost:80", "127.0.0.1", "127.0.0.1:7411", "[::1]", "[::1]:7411"] {
            assert!(is_local(&headers(header::HOST, host)), "{host}");
        }
        for host in
            ["", "evil.example", "localhost.evil.example", "127.0.0.1.evil:1", "evil@localhost", "localhost:1:2", "::1"]
        {
            assert!(!is_local(&headers(header::HOST, host)), "{host}");
        }
        assert!(!is_local(&HeaderMap::new()));
        let mut two = headers(header::HOST, "localhost");
        two.append(header::HOST, HeaderValue::from_static("evil.example"));
        assert!(!is_local(&two));
    }

    #[test]
    fn a_token_is_said_as_bearer_or_as_a_password() {
        let token = Token::new("0123456789abcdef").unwrap();
        let says = |value: &str| token.is_said_by(&headers(header::AUTHORIZATION, value));
        assert!(says("Bearer 0123456789abcdef") && says("bearer  0123456789abcdef"));
        let login = |login: &str| format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(login));
        assert!(says(&login("me:0123456789abcdef")) && says(&login(":0123456789abcdef")));
        for wrong in ["Bearer 0123456789abcdee", "Bearer 0123456789abcde", "Bearer ", "Bearer", "0123456789abcdef"] {
            assert!(!says(wrong), "{wrong}");
        }
        assert!(!says(&login("0123456789abcdef")) && !says("Basic !") && !token.is_said_by(&HeaderMap::new()));
        assert!(!format!("{token:?}").contains("0123"));
    }

    #[test]
    fn what_is_no_token_is_refused() {
        for (text, why) in
            [("", "empty"), ("short", "openssl"), ("0123456789 abcdef", "space"), ("ümlautümlaut", "ASCII")]
        {
            let error = Token::new(text).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
