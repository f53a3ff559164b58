//! What `--store` names: a MongoDB database or a local path, and how a store is named to people.

use std::ffi::OsStr;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use crate::error::{Error, Result};

/// A parsed store URL. `Display` and `Debug` never show user names, passwords or options.
///
/// ```
/// use lockhouse::StoreUrl;
///
/// let url: StoreUrl = "mongodb://job:s3cret@db1,db2:27018/shop?replicaSet=rs0".parse()?;
/// assert_eq!(url.to_string(), "mongodb://db1,db2:27018/shop");
/// # Ok::<(), lockhouse::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub enum StoreUrl {
    /// `mongodb://…/DB` or `mongodb+srv://…/DB`.
    Mongo(MongoUrl),
    /// `file:///P` or a plain path.
    Local(PathBuf),
}

/// A MongoDB connection string that names a database.
#[derive(Clone, PartialEq, Eq)]
pub struct MongoUrl {
    full: String,
    scheme: &'static str,
    hosts: String,
    database: String,
}

impl MongoUrl {
    /// The whole connection string, secrets included: for the driver alone.
    #[cfg_attr(not(feature = "mongo"), expect(dead_code, reason = "only the MongoDB backend connects"))]
    pub(crate) fn expose(&self) -> &str {
        &self.full
    }

    /// The hosts as typed, without credentials.
    pub fn hosts(&self) -> &str {
        &self.hosts
    }

    /// The database's name, percent-decoded.
    pub fn database(&self) -> &str {
        &self.database
    }

    fn parse(scheme: &'static str, full: &str) -> Result<MongoUrl> {
        let rest = &full[scheme.len() + "://".len()..];
        let (rest, options) = rest.split_once(['?', '#']).unwrap_or((rest, ""));
        // An unescaped reserved character in a password moves the borders of the parts: nothing of such a
        // URL may be shown, for what looks like a host may be half a password.
        let credentials = rest.matches('@').count();
        if credentials > 1 || options.contains('@') {
            return Err(Error::invalid(format!(
                "the store URL {scheme}://… has more than one @; percent-encode the characters : / ? # @ in user name, password and options"
            )));
        }
        let rest = rest.split_once('@').map_or(rest, |(_, hosts)| hosts);
        let (hosts, database) = rest.split_once('/').unwrap_or((rest, ""));
        if hosts.is_empty() {
            return Err(Error::invalid(format!("the store URL {scheme}://… names no host")));
        }
        let database = decode(database);
        let shown = format!("{scheme}://{hosts}");
        if database.is_empty() {
            return Err(Error::invalid(format!(
                "the store URL {shown} names no database; write it as {shown}/DATABASE"
            )));
        }
        let forbidden = ['/', '\\', '.', ' ', '"', '$', '\0'];
        if database.len() > 63 || database.contains(forbidden) {
            return Err(Error::invalid(format!(
                "the store URL {shown} names the database {database:?}, which is no MongoDB database name: \
                 at most 63 bytes and none of / \\ . \" $ or a space"
            )));
        }
        Ok(MongoUrl { full: full.to_owned(), scheme, hosts: hosts.to_owned(), database })
    }
}

impl fmt::Display for MongoUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}/{}", self.scheme, self.hosts, self.database)
    }
}

impl fmt::Debug for MongoUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MongoUrl({self})")
    }
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreUrl::Mongo(url) => url.fmt(f),
            StoreUrl::Local(path) => write!(f, "{}", path.display()),
        }
    }
}

impl fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StoreUrl({self})")
    }
}

impl StoreUrl {
    /// As [`FromStr`], of a word that may be a path that is no text.
    ///
    /// # Errors
    ///
    /// As [`FromStr`].
    pub fn from_os_str(word: &OsStr) -> Result<StoreUrl> {
        match word.to_str() {
            Some(text) => text.parse(),
            None => Ok(StoreUrl::Local(PathBuf::from(word))),
        }
    }
}

impl FromStr for StoreUrl {
    type Err = Error;

    /// # Errors
    ///
    /// `Invalid`: an unknown scheme, no host, no database, a `file:` URL with a host. The text never
    /// repeats credentials.
    fn from_str(text: &str) -> Result<StoreUrl> {
        for scheme in ["mongodb", "mongodb+srv"] {
            if text.strip_prefix(scheme).is_some_and(|rest| rest.starts_with("://")) {
                return MongoUrl::parse(scheme, text).map(StoreUrl::Mongo);
            }
        }
        if let Some(path) = text.strip_prefix("file://") {
            if !path.starts_with('/') {
                return Err(Error::invalid("a file: store URL has three slashes: file:///PATH"));
            }
            return Ok(StoreUrl::Local(PathBuf::from(decode(path))));
        }
        if let Some((scheme, _)) = text.split_once("://") {
            let scheme: String = scheme.chars().filter(char::is_ascii_alphanumeric).take(20).collect();
            return Err(Error::invalid(format!(
                "the store URL has the unknown scheme {scheme}; use mongodb://HOST/DATABASE, mongodb+srv://HOST/DATABASE, file:///PATH or a path"
            )));
        }
        if text.is_empty() {
            return Err(Error::invalid("the store URL is empty; use mongodb://HOST/DATABASE or a path"));
        }
        Ok(StoreUrl::Local(PathBuf::from(text)))
    }
}

fn decode(text: &str) -> String {
    percent_encoding::percent_decode_str(text).decode_utf8_lossy().into_owned()
}

/// A store's name for people: host, database and collection, or a path. Never a password.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct StoreName {
    text: String,
    /// Of a path that is no text.
    bytes: Option<Vec<u8>>,
}

impl StoreName {
    pub(crate) fn new(name: impl Into<String>) -> StoreName {
        StoreName { text: name.into(), bytes: None }
    }

    /// Of a local store. The name may lose bytes that are no text.
    #[cfg(feature = "local")]
    pub(crate) fn path(path: &std::path::Path) -> StoreName {
        use std::os::unix::ffi::OsStrExt;
        let bytes = path.to_str().is_none().then(|| path.as_os_str().as_bytes().to_owned());
        StoreName { text: path.display().to_string(), bytes }
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// In base64, for JSON, which cannot hold a name that is no text.
    pub(crate) fn bytes_if_not_text(&self) -> Option<String> {
        use base64::Engine;
        self.bytes.as_ref().map(|bytes| base64::engine::general_purpose::STANDARD.encode(bytes))
    }
}

impl fmt::Display for StoreName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&crate::describe::printable(&self.text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<StoreUrl> {
        text.parse()
    }

    #[test]
    fn stores_are_recognised() {
        assert_eq!(parse("/srv/data.db").unwrap(), StoreUrl::Local("/srv/data.db".into()));
        assert_eq!(parse("data.db").unwrap(), StoreUrl::Local("data.db".into()));
        assert_eq!(parse("file:///srv/a%20b").unwrap(), StoreUrl::Local("/srv/a b".into()));
        let StoreUrl::Mongo(url) = parse("mongodb+srv://u:p@cluster.example/shop?w=1").unwrap() else {
            panic!("not recognised as MongoDB")
        };
        assert_eq!((url.hosts(), url.database()), ("cluster.example", "shop"));
    }

    #[test]
    fn what_is_wrong_is_said_without_the_secret() {
        for (text, says) in [
            ("mongodb://u:s3cret@h:27017", "names no database"),
            ("mongodb://u:s3cret@h/", "mongodb://h/DATABASE"),
            ("mongodb://u:s3cret@/db", "names no host"),
            ("mongodb://u:s3/cret@h/a.b", "no MongoDB database name"),
            ("mongodb://u:s3@cret@h/db", "more than one @"),
            ("mongodb://u:s3?cret@h/db", "more than one @"),
            ("mongodb://u:s3#cret@h/db", "more than one @"),
            ("redis://u:s3cret@h/0", "unknown scheme redis"),
            ("file://host/p", "three slashes"),
            ("", "empty"),
        ] {
            let error = parse(text).unwrap_err();
            let shown = format!("{error} {error:?}");
            assert!(shown.contains(says), "{text}: {shown}");
            assert!(!shown.contains("cret") && !shown.contains("s3"), "{text}: {shown}");
        }
    }

    #[test]
    fn debug_shows_no_secret() {
        let shown = format!("{:?}", parse("mongodb://u:s3cret@h/db?authMechanismProperties=TOKEN:s3cret").unwrap());
        assert_eq!(shown, "StoreUrl(mongodb://h/db)");
    }
}
