//! Why a file is not fetched.

use std::io;

use reqwest::StatusCode;

use crate::shown;

/// why a file was not fetched
#[derive(Debug, thiserror::Error)]
pub enum DownloadError {
    #[error("No {what} found at '{url}'.")]
    NotFound {
        /// Release or stemcell.
        what: &'static str,
        /// Without credentials.
        url: String,
    },
    #[error("'{url}' answers {status}; fetch the file yourself and give its path instead")]
    Refused {
        /// Without credentials.
        url: String,
        status: StatusCode,
    },
    /// the server cannot be reached, or broke off
    #[error("'{url}' cannot be fetched; try again, or fetch the file yourself and give its path")]
    Transport {
        /// Without credentials.
        url: String,
        #[source]
        source: reqwest::Error,
    },
    /// the server takes connections, and no more
    #[error("'{url}' is silent; try again, or fetch the file yourself and give its path")]
    Silent {
        /// Without credentials.
        url: String,
        #[source]
        source: reqwest::Error,
    },
    /// it would not come to an end
    #[error("'{url}' sends less than {slowest} bytes a second; fetch the file yourself and give its path instead")]
    TooSlow {
        /// Without credentials.
        url: String,
        slowest: u64,
    },
    /// less came than was announced
    #[error("'{url}' sent {received} of {announced} bytes, and no more when it was asked again")]
    Short {
        /// Without credentials.
        url: String,
        received: u64,
        announced: u64,
    },
    /// it does not fit
    #[error("'{url}' has {} MiB, and {} MiB are left for it in '{folder}'; make room there", needed.div_ceil(1 << 20), left >> 20)]
    NoRoom {
        /// Without credentials.
        url: String,
        /// In bytes.
        needed: u64,
        /// In bytes, beside what stays free.
        left: u64,
        folder: String,
    },
    /// it cannot be kept
    #[error("the download cannot be written")]
    Write(#[from] io::Error),
    /// the proxy is no proxy
    #[error("BOSH_ALL_PROXY names no proxy; it has the form socks5://HOST:PORT")]
    Proxy,
    /// the proxy is behind ssh
    #[error(
        "'{0}' cannot be fetched through ssh: start 'ssh -D 1080' to the host of BOSH_ALL_PROXY and set BOSH_ALL_PROXY to socks5://127.0.0.1:1080"
    )]
    SshProxy(String),
}

impl DownloadError {
    pub(crate) fn transport(url: &str, source: reqwest::Error) -> Self {
        let (url, source) = (shown(url), source.without_url());
        if source.is_timeout() && !source.is_connect() {
            return Self::Silent { url, source };
        }
        Self::Transport { url, source }
    }

    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::NotFound { .. })
    }
}
