//! Fetches files that somebody names by their URL: releases and stemcells.
//!
//! A [`Download`] goes on where it was interrupted, as long as the server says that it still has the same file. It gives up
//! a server that is silent or all but silent, and one that comes no further after a few tries. `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY` and
//! `NO_PROXY` are honoured; command lines honour `BOSH_ALL_PROXY` as well ([`Download::through_bosh_proxy`]).
//!
//! A URL may hold credentials, so what is shown of one has neither its user nor its query ([`shown`]).

mod attempt;
mod error;
mod kept;
mod progress;

use std::io;
use std::path::Path;
use std::sync::Once;
use std::time::Duration;

use reqwest::redirect::Policy;
use reqwest::{Client, NoProxy, Proxy};
use tokio::runtime;
use tokio::sync::oneshot;
use windlass_durable::{file, kill_point};

use crate::attempt::{Attempt, Ended};
pub use crate::error::DownloadError;
pub use crate::kept::{KeptError, kept_path};

/// BOSH's director follows as many.
const REDIRECTS: usize = 9;
/// However far each try comes.
const MOST_TRIES: u32 = 100;

/// How long a server is waited for.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// Until it is reached.
    pub connect: Duration,
    /// Until an answer begins, and then until the next byte comes.
    pub silence: Duration,
    /// How many bytes must come in a second, on average of each such time: who sends a byte from time to time is not silent.
    pub slowest: u64,
    /// How many tries in a row may come no further.
    pub tries: u32,
    /// Before the second try; longer before each further one.
    pub pause: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            silence: Duration::from_secs(60),
            slowest: 4 << 10,
            tries: 4,
            pause: Duration::from_millis(500),
        }
    }
}

/// How files are fetched.
#[derive(Debug, Clone)]
pub struct Download {
    /// What is fetched, for messages: `release` or `stemcell`.
    what: &'static str,
    patience: Patience,
    bosh_proxy: Option<String>,
}

impl Download {
    /// Fetches a `release` or a `stemcell`.
    pub fn of(what: &'static str) -> Self {
        Self { what, patience: Patience::default(), bosh_proxy: None }
    }

    pub fn with_patience(self, patience: Patience) -> Self {
        Self { patience, ..self }
    }

    /// As BOSH's command line does, which goes through the proxy that `BOSH_ALL_PROXY` names.
    pub fn through_bosh_proxy(self) -> Self {
        Self { bosh_proxy: std::env::var("BOSH_ALL_PROXY").ok().filter(|proxy| !proxy.is_empty()), ..self }
    }

    /// Streams what is at `url` into a new file, which is not there if this fails.
    pub async fn fetch(&self, url: &str, into: &Path) -> Result<(), DownloadError> {
        let (download, url, file) = (self.clone(), url.to_owned(), into.to_owned());
        // Gone at once when nobody waits any more, and for good when the thread has noticed.
        let unfinished = Unfinished(into);
        aside(async move { download.fetch_here(&url, &file).await }).await??;
        std::mem::forget(unfinished);
        Ok(())
    }

    async fn fetch_here(&self, url: &str, into: &Path) -> Result<(), DownloadError> {
        let client = self.client(url)?;
        kill_point("download");
        let unfinished = Unfinished(into);
        self.go_on_until_it_is_here(&client, url, into).await?;
        std::mem::forget(unfinished);
        Ok(())
    }

    async fn go_on_until_it_is_here(&self, client: &Client, url: &str, into: &Path) -> Result<(), DownloadError> {
        let mut attempt = Attempt::new(self.what, url, into, self.patience).await?;
        let mut in_vain = 0;
        for tries in 1.. {
            let before = attempt.received();
            let error = match attempt.run(client).await {
                Ended::Whole => return Ok(()),
                Ended::Final(error) => return Err(error),
                Ended::Interrupted(error) => error,
            };
            in_vain = if attempt.received() > before { 1 } else { in_vain + 1 };
            if in_vain >= self.patience.tries || tries >= MOST_TRIES {
                return Err(error);
            }
            tokio::time::sleep(self.patience.pause * in_vain).await;
        }
        Ok(())
    }

    fn client(&self, url: &str) -> Result<Client, DownloadError> {
        // The library takes its cryptography from the process.
        static CRYPTOGRAPHY: Once = Once::new();
        CRYPTOGRAPHY.call_once(|| {
            let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        });
        let mut builder = Client::builder()
            .connect_timeout(self.patience.connect)
            .read_timeout(self.patience.silence)
            .redirect(Policy::limited(REDIRECTS));
        if let Some(proxy) = &self.bosh_proxy {
            if proxy.starts_with("ssh+") {
                return Err(DownloadError::SshProxy(shown(url)));
            }
            let proxy = Proxy::all(proxy).map_err(|_| DownloadError::Proxy)?;
            builder = builder.proxy(proxy.no_proxy(NoProxy::from_env()));
        }
        builder.build().map_err(|source| DownloadError::transport(url, source))
    }
}

/// Works in a thread of its own until nobody waits for it any more: a server may keep whoever reads its answers busy with them, and those
/// who serve others are not to be.
async fn aside<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> io::Result<T> {
    let (mut done, ended) = oneshot::channel();
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    std::thread::Builder::new().name("download".to_owned()).spawn(move || {
        let ended = runtime.block_on(async {
            tokio::select! {
                ended = work => Some(ended),
                () = done.closed() => None,
            }
        });
        ended.map(|ended| done.send(ended))
    })?;
    ended.await.map_err(io::Error::other)
}

/// A file that goes unless all of it came; also when nobody waits for it any more.
struct Unfinished<'a>(&'a Path);

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        file::discard(self.0);
    }
}

/// What may be shown of a URL: neither user and password, nor the query, which signs some URLs.
pub fn shown(url: &str) -> String {
    let (url, query) = match url.split_once(['?', '#']) {
        Some((url, _)) => (url, "?…"),
        None => (url, ""),
    };
    match url.split_once("://") {
        Some((scheme, rest)) => {
            let end = rest.find('/').unwrap_or(rest.len());
            let host = rest[..end].rfind('@').map_or(rest, |at| &rest[at + 1..]);
            format!("{scheme}://{host}{query}")
        }
        None => format!("{url}{query}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_in_a_url_are_not_shown() {
        assert_eq!(shown("https://me:secret@example.com/a@b"), "https://example.com/a@b");
        assert_eq!(shown("https://example.com/a?signature=b@c"), "https://example.com/a?…");
        let signed = "https://me:secret@store.example.com/stemcell.tgz?X-Amz-Signature=4711&X-Amz-Credential=key";
        assert_eq!(shown(signed), "https://store.example.com/stemcell.tgz?…");
        assert_eq!(shown("https://example.com#secret@x"), "https://example.com?…");
    }

    #[tokio::test]
    async fn a_proxy_that_cannot_be_used_is_told_before_anything_is_fetched() {
        let folder = tempfile::tempdir().unwrap();
        let into = folder.path().join("file");
        let through = |proxy: &str| Download { bosh_proxy: Some(proxy.to_owned()), ..Download::of("stemcell") };
        let jumpbox = through("ssh+socks5://jumpbox@127.0.0.1:22?private-key=/key");
        let refused = jumpbox.fetch("http://127.0.0.1:9/", &into).await.unwrap_err().to_string();
        assert!(refused.contains("ssh -D"), "{refused}");
        let refused = through("no proxy").fetch("http://127.0.0.1:9/", &into).await.unwrap_err().to_string();
        assert!(refused.contains("BOSH_ALL_PROXY"), "{refused}");
        assert!(!into.exists());
    }
}
