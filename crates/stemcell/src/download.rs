//! Fetches a file that an operator named by its URL.

use std::path::Path;
use std::sync::Once;
use std::time::Duration;

use futures_util::StreamExt;
use reqwest::StatusCode;
use tokio::io::AsyncWriteExt;

/// How long a server may take to be reached, and may be silent.
const CONNECT: Duration = Duration::from_secs(10);
const SILENCE: Duration = Duration::from_secs(60);

/// why a file was not fetched
#[derive(Debug, thiserror::Error)]
pub enum DownloadError {
    /// it is not there
    #[error("No stemcell found at '{0}'.")]
    NotFound(String),
    /// the server refuses
    #[error("'{url}' answers {status}; fetch the file yourself and give its path instead")]
    Refused {
        /// Which, without credentials.
        url: String,
        /// What it says.
        status: StatusCode,
    },
    /// the server cannot be reached, or broke off
    #[error("'{url}' cannot be fetched")]
    Transport {
        /// Which, without credentials.
        url: String,
        /// Why.
        #[source]
        source: reqwest::Error,
    },
    /// it cannot be kept
    #[error("the download cannot be written")]
    Write(#[from] std::io::Error),
}

/// Streams what is at `url` into a new file.
pub async fn download(url: &str, into: &Path) -> Result<(), DownloadError> {
    // The library takes its cryptography from the process.
    static CRYPTOGRAPHY: Once = Once::new();
    CRYPTOGRAPHY.call_once(|| {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    });
    let shown = without_credentials(url);
    let broken = |source: reqwest::Error| DownloadError::Transport { url: shown.clone(), source: source.without_url() };
    let client = reqwest::Client::builder().connect_timeout(CONNECT).read_timeout(SILENCE).build().map_err(broken)?;
    windlass_durable::kill_point("download");
    let answer = client.get(url).send().await.map_err(broken)?;
    match answer.status() {
        status if status.is_success() => {}
        StatusCode::NOT_FOUND => return Err(DownloadError::NotFound(shown)),
        status => return Err(DownloadError::Refused { url: shown, status }),
    }
    let mut file = tokio::fs::File::create_new(into).await?;
    let mut body = answer.bytes_stream();
    while let Some(part) = body.next().await {
        file.write_all(&part.map_err(broken)?).await?;
    }
    Ok(file.flush().await?)
}

/// `https://user:secret@host/path?signature` without what is secret: what stands before the host, and the query.
pub(crate) fn without_credentials(url: &str) -> String {
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
        assert_eq!(without_credentials("https://me:secret@example.com/a@b"), "https://example.com/a@b");
        assert_eq!(without_credentials("https://example.com/a?b@c"), "https://example.com/a?…");
        let signed = "https://me:secret@store.example.com/stemcell.tgz?X-Amz-Signature=4711&X-Amz-Credential=key";
        assert_eq!(without_credentials(signed), "https://store.example.com/stemcell.tgz?…");
        assert_eq!(without_credentials("https://example.com#secret@x"), "https://example.com?…");
    }
}
