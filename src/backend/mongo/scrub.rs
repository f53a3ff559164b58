//! Keeps what the connection string says in confidence out of texts for people.

use crate::describe;

/// The longest text that is passed on: a driver's error may carry a whole command.
const LONGEST: usize = 500;

/// Secrets up to this length are only hidden where they stand alone: hiding every `a` helps nobody.
const SHORT: usize = 3;

const HIDDEN: &str = "***";

/// Options whose values are secrets, in lower case.
const SECRET_OPTIONS: [&str; 4] =
    ["authmechanismproperties", "tlscertificatekeyfilepassword", "proxypassword", "proxyusername"];

/// The secrets of one connection string.
pub(super) struct Scrub {
    /// Longest first, so that a secret that contains another is hidden whole.
    secrets: Vec<String>,
}

impl std::fmt::Debug for Scrub {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Scrub")
    }
}

impl Scrub {
    pub(super) fn new(url: &str) -> Scrub {
        let mut raw = Vec::new();
        let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
        if let Some((userinfo, _)) = rest.split_once('@') {
            raw.push(userinfo);
            let (user, password) = userinfo.split_once(':').unwrap_or((userinfo, ""));
            raw.extend([user, password]);
        }
        let options = rest.split_once('?').map_or("", |(_, options)| options);
        for (name, value) in options.split('&').filter_map(|option| option.split_once('=')) {
            if SECRET_OPTIONS.contains(&name.to_ascii_lowercase().as_str()) {
                raw.push(value);
                raw.extend(value.split(',').filter_map(|pair| pair.split_once(':').map(|(_, value)| value)));
            }
        }
        let mut secrets = Vec::new();
        for secret in raw {
            let decoded = percent_encoding::percent_decode_str(secret).decode_utf8_lossy().into_owned();
            secrets.push(decoded.escape_debug().to_string());
            secrets.push(decoded);
            secrets.push(secret.to_owned());
        }
        secrets.retain(|secret| !secret.is_empty());
        secrets.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        secrets.dedup();
        Scrub { secrets }
    }

    /// `text` without secrets, on one line and not too long.
    pub(super) fn clean(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for secret in &self.secrets {
            text = hide(&text, secret);
        }
        let mut text = describe::printable(&text);
        if let Some((end, _)) = text.char_indices().nth(LONGEST) {
            text.truncate(end);
            text.push('…');
        }
        text
    }
}

fn hide(text: &str, secret: &str) -> String {
    if secret.chars().count() > SHORT {
        return text.replace(secret, HIDDEN);
    }
    let part_of_word = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
    let mut hidden = String::with_capacity(text.len());
    let mut from = 0;
    for (at, found) in text.match_indices(secret) {
        let before = text[..at].chars().next_back();
        let after = text[at + found.len()..].chars().next();
        if !part_of_word(before) && !part_of_word(after) {
            hidden.push_str(&text[from..at]);
            hidden.push_str(HIDDEN);
            from = at + found.len();
        }
    }
    hidden.push_str(&text[from..]);
    hidden
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_and_users_are_hidden_in_every_form() {
        let scrub = Scrub::new("mongodb://al%40ice:p%22w%2Fd1@h1,h2/shop?replicaSet=rs0");
        let text =
            r#"SCRAM failure for al@ice / al%40ice with p"w/d1, p%22w%2Fd1, "p\"w/d1", al%40ice:p%22w%2Fd1 on h1"#;
        let clean = scrub.clean(text);
        for secret in ["ice", "w/d1", "d1"] {
            assert!(!clean.contains(secret), "{clean}");
        }
        assert!(clean.contains("on h1"), "{clean}");
    }

    #[test]
    fn secrets_in_options_are_hidden() {
        let scrub = Scrub::new(
            "mongodb://h/shop?authMechanismProperties=AWS_SESSION_TOKEN:tok3n%2B1,X:other1&tlsCertificateKeyFilePassword=k3yword",
        );
        let clean = scrub.clean("tok3n+1 tok3n%2B1 other1 k3yword shop");
        assert_eq!(clean, "*** *** *** *** shop");
    }

    #[test]
    fn a_short_secret_is_hidden_only_where_it_stands_alone() {
        let scrub = Scrub::new("mongodb://a:pw@h/shop");
        assert_eq!(scrub.clean("a pwd: 'pw' a-b"), "*** pwd: '***' ***-b");
    }

    #[test]
    fn nothing_is_hidden_without_secrets_and_texts_are_bounded() {
        let scrub = Scrub::new("mongodb://h/shop");
        assert_eq!(scrub.clean("a\nb"), "a\\nb");
        assert_eq!(scrub.clean(&"é".repeat(2000)).chars().count(), LONGEST + 1);
    }
}
