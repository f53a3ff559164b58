//! Connection strings, taken apart just far enough to change one part.

/// A `mongodb://` connection string in its parts.
#[derive(Clone, Debug)]
pub(crate) struct Uri {
    /// `user:password@`, or nothing.
    login: String,
    hosts: String,
    database: String,
    options: Vec<(String, String)>,
}

impl Uri {
    pub(crate) fn parse(text: &str) -> Self {
        let rest = text
            .strip_prefix("mongodb://")
            .unwrap_or_else(|| panic!("not a connection string that starts with mongodb://"));
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, database) = place.split_once('/').unwrap_or((place, ""));
        let (login, hosts) = match authority.rsplit_once('@') {
            Some((login, hosts)) => (format!("{login}@"), hosts),
            None => (String::new(), authority),
        };
        Self {
            login,
            hosts: hosts.to_owned(),
            database: database.to_owned(),
            options: query
                .split('&')
                .filter_map(|pair| pair.split_once('='))
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .collect(),
        }
    }

    /// The first host, as `host:port`.
    pub(crate) fn first_host(&self) -> String {
        let host = self.hosts.split(',').next().unwrap_or_default();
        if host.contains(':') { host.to_owned() } else { format!("{host}:27017") }
    }

    #[must_use]
    pub(crate) fn with_database(mut self, database: &str) -> Self {
        // A user is looked up in the database of the connection string unless it says otherwise.
        if !self.login.is_empty() && self.option("authSource").is_none() {
            let known_in = if self.database.is_empty() { "admin" } else { &self.database };
            let known_in = known_in.to_owned();
            self = self.with_option("authSource", &known_in);
        }
        self.database = database.to_owned();
        self
    }

    #[must_use]
    pub(crate) fn with_option(mut self, key: &str, value: &str) -> Self {
        self = self.without_option(key);
        self.options.push((key.to_owned(), value.to_owned()));
        self
    }

    /// Talks to exactly this address, whatever the server says that its name is.
    #[must_use]
    pub(crate) fn directly_to(mut self, host: &str) -> Self {
        self.hosts = host.to_owned();
        self.without_option("replicaSet").with_option("directConnection", "true")
    }

    #[must_use]
    fn without_option(mut self, key: &str) -> Self {
        self.options.retain(|(name, _)| !name.eq_ignore_ascii_case(key));
        self
    }

    fn option(&self, key: &str) -> Option<&str> {
        let named = |(name, _): &&(String, String)| name.eq_ignore_ascii_case(key);
        self.options.iter().find(named).map(|(_, value)| value.as_str())
    }
}

impl std::fmt::Display for Uri {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "mongodb://{}{}/{}", self.login, self.hosts, self.database)?;
        for (index, (key, value)) in self.options.iter().enumerate() {
            write!(f, "{}{key}={value}", if index == 0 { '?' } else { '&' })?;
        }
        Ok(())
    }
}
