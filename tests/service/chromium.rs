//! A real browser, driven through its WebDriver.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use fantoccini::wd::WebDriverCompatibleCommand;
use fantoccini::{Client, ClientBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use serde_json::{Value, json};

/// What to do when there is none.
const ADVICE: &str = "the tests of the page need Chromium and its driver; run: apt-get install chromium chromium-driver \
                      (scripts/test does), or name them in LOCKHOUSE_TEST_CHROMIUM and LOCKHOUSE_TEST_CHROMEDRIVER";

/// A browser of a test's own. Ends with it, however the test does.
pub(crate) struct Chromium {
    driver: Child,
    pub(crate) page: Client,
}

/// How the browser is started.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Look {
    pub(crate) without_scripts: bool,
}

fn named(variable: &str, otherwise: &str) -> String {
    std::env::var(variable).unwrap_or_else(|_| otherwise.to_owned())
}

impl Chromium {
    pub(crate) async fn start(look: Look) -> Chromium {
        let driver = named("LOCKHOUSE_TEST_CHROMEDRIVER", "chromedriver");
        let mut command = Command::new(&driver);
        command.arg("--port=0").stdout(Stdio::piped()).stderr(Stdio::null()).stdin(Stdio::null());
        let mut driver = command.spawn().unwrap_or_else(|error| panic!("{driver}: {error}; {ADVICE}"));
        let mut out = BufReader::new(driver.stdout.take().unwrap());
        let port = loop {
            let mut line = String::new();
            assert_ne!(out.read_line(&mut line).unwrap(), 0, "chromedriver ended; {ADVICE}");
            if let Some((_, rest)) = line.split_once("successfully on port ") {
                break rest.trim_end().trim_end_matches('.').to_owned();
            }
        };
        // Nobody reads on: it says no more than a pipe takes.
        std::mem::forget(out);
        // Root has no sandbox, and a container little shared memory.
        let arguments = [
            "--headless=new",
            "--no-sandbox",
            "--disable-dev-shm-usage",
            "--disable-gpu",
            "--hide-scrollbars",
            "--no-first-run",
            "--force-device-scale-factor=1",
            "--window-size=1280,900",
        ];
        let mut options = json!({"args": arguments});
        if let Ok(browser) = std::env::var("LOCKHOUSE_TEST_CHROMIUM") {
            options["binary"] = browser.into();
        }
        if look.without_scripts {
            options["prefs"] = json!({"profile.managed_default_content_settings.javascript": 2});
        }
        let mut capabilities = serde_json::Map::new();
        capabilities.insert("goog:chromeOptions".to_owned(), options);
        let connecting = ClientBuilder::new(HttpConnector::new())
            .capabilities(capabilities)
            .connect(&format!("http://127.0.0.1:{port}"))
            .await;
        match connecting {
            Ok(page) => Chromium { driver, page },
            Err(error) => {
                let _ = driver.kill();
                panic!("no browser: {error}; {ADVICE}")
            }
        }
    }

    /// Runs a script on the page, which returns a value.
    pub(crate) async fn ask(&self, script: &str) -> Value {
        self.page.execute(script, Vec::new()).await.unwrap_or_else(|error| panic!("{script}: {error}"))
    }

    /// Waits until a script returns true.
    pub(crate) async fn until(&self, what: &str, script: &str) {
        crate::support::poll::eventually(crate::client::PATIENCE, what, || async {
            match self.page.execute(script, Vec::new()).await {
                Ok(Value::Bool(true)) => Ok(()),
                other => Err((other.map_err(|error| error.to_string()), self.text().await)),
            }
        })
        .await;
    }

    async fn text(&self) -> Option<Value> {
        self.page.execute("return document.body.innerText", Vec::new()).await.ok()
    }

    /// A command of the browser's own protocol.
    pub(crate) async fn command(&self, command: &'static str, parameters: Value) -> Value {
        self.page.issue_cmd(Own { command, parameters }).await.unwrap()
    }

    /// Shows the page as who prefers this sees it.
    pub(crate) async fn prefers(&self, scheme: &str) {
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        self.command("Emulation.setEmulatedMedia", json!({"features": features})).await;
    }

    /// The end, in order: the driver ends the browser.
    pub(crate) async fn close(mut self) {
        let _ = self.page.clone().close().await;
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

impl Drop for Chromium {
    fn drop(&mut self) {
        // It takes its browser along.
        let pid = nix::unistd::Pid::from_raw(self.driver.id().cast_signed());
        let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM);
        let _ = self.driver.wait();
    }
}

#[derive(Debug)]
struct Own {
    command: &'static str,
    parameters: Value,
}

impl WebDriverCompatibleCommand for Own {
    fn endpoint(&self, base: &url::Url, session: Option<&str>) -> Result<url::Url, url::ParseError> {
        base.join(&format!("session/{}/goog/cdp/execute", session.unwrap_or_default()))
    }

    fn method_and_body(&self, _: &url::Url) -> (http::Method, Option<String>) {
        (http::Method::POST, Some(json!({"cmd": self.command, "params": self.parameters}).to_string()))
    }
}
