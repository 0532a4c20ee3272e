//! One request for a file, or for the rest of it.

use std::io::SeekFrom;
use std::path::{Path, PathBuf};
use std::time::Instant;

use futures_util::StreamExt;
use reqwest::header::{ACCEPT_ENCODING, IF_RANGE, RANGE};
use reqwest::{Client, Response, StatusCode};
use tokio::fs::File;
use tokio::io::{AsyncSeekExt, AsyncWriteExt};
use windlass_archive::{Limits, Space};

use crate::error::DownloadError;
use crate::progress::{Part, Progress};
use crate::{Patience, shown};

/// How often it is looked whether the disk takes more: a server may say anything of how much will come, and others write as well.
const LOOK: u64 = Space::LOOK;

/// How a request ended.
#[derive(Debug)]
pub(crate) enum Ended {
    Whole,
    /// Another try may go on.
    Interrupted(DownloadError),
    /// Another try would end in the same way.
    Final(DownloadError),
}

/// How quickly a body comes.
#[derive(Debug)]
struct Pace {
    patience: Patience,
    since: Instant,
    received: u64,
}

impl Pace {
    fn new(patience: Patience) -> Self {
        Self { patience, since: Instant::now(), received: 0 }
    }

    /// Counts what came, and says whether it was too little for the time that it took.
    fn is_too_slow(&mut self, bytes: u64) -> bool {
        self.received += bytes;
        let taken = self.since.elapsed();
        if taken < self.patience.silence {
            return false;
        }
        let is_too_slow = u128::from(self.received) * 1000 < u128::from(self.patience.slowest) * taken.as_millis();
        *self = Self::new(self.patience);
        is_too_slow
    }
}

#[derive(Debug)]
pub(crate) struct Attempt<'a> {
    what: &'static str,
    url: &'a str,
    path: PathBuf,
    file: File,
    progress: Progress,
    patience: Patience,
}

impl<'a> Attempt<'a> {
    pub(crate) async fn new(
        what: &'static str,
        url: &'a str,
        into: &Path,
        patience: Patience,
    ) -> Result<Self, DownloadError> {
        let file = File::create_new(into).await?;
        Ok(Self { what, url, path: into.to_owned(), file, progress: Progress::default(), patience })
    }

    pub(crate) fn received(&self) -> u64 {
        self.progress.received
    }

    pub(crate) async fn run(&mut self, client: &Client) -> Ended {
        let mut request = client.get(self.url).header(ACCEPT_ENCODING, "identity");
        if let Some((range, validator)) = self.progress.rest() {
            request = request.header(RANGE, range).header(IF_RANGE, validator);
        }
        let answer = match request.send().await {
            Ok(answer) => answer,
            Err(error) if error.is_builder() || error.is_redirect() => return Ended::Final(self.broken(error)),
            Err(error) => return Ended::Interrupted(self.broken(error)),
        };
        let begun = match answer.status() {
            StatusCode::PARTIAL_CONTENT => match self.progress.part(answer.headers()) {
                Part::Rest => Ok(()),
                Part::All => self.start_again(&answer).await,
                Part::Other => return self.without_progress().await,
            },
            status if status.is_success() => self.start_again(&answer).await,
            StatusCode::RANGE_NOT_SATISFIABLE => return self.without_progress().await,
            status => return self.refused(status),
        };
        match begun {
            Ok(()) => self.receive(answer).await,
            Err(error) => Ended::Final(error),
        }
    }

    fn broken(&self, error: reqwest::Error) -> DownloadError {
        DownloadError::transport(self.url, error)
    }

    /// The server has the whole file for us.
    async fn start_again(&mut self, answer: &Response) -> Result<(), DownloadError> {
        self.file.set_len(0).await?;
        self.file.seek(SeekFrom::Start(0)).await?;
        self.progress.start(answer.headers());
        Ok(())
    }

    /// The server has no rest that fits: the next try asks for everything.
    async fn without_progress(&mut self) -> Ended {
        let (received, announced) = (self.progress.received, self.progress.total.unwrap_or_default());
        self.progress = Progress::default();
        let emptied = self.file.set_len(0).await;
        match emptied.and(self.file.seek(SeekFrom::Start(0)).await) {
            Ok(_) => Ended::Interrupted(DownloadError::Short { url: shown(self.url), received, announced }),
            Err(error) => Ended::Final(error.into()),
        }
    }

    fn refused(&self, status: StatusCode) -> Ended {
        let url = shown(self.url);
        match status {
            StatusCode::NOT_FOUND => Ended::Final(DownloadError::NotFound { what: self.what, url }),
            StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS => {
                Ended::Interrupted(DownloadError::Refused { url, status })
            }
            status if status.is_server_error() => Ended::Interrupted(DownloadError::Refused { url, status }),
            status => Ended::Final(DownloadError::Refused { url, status }),
        }
    }

    async fn receive(&mut self, answer: Response) -> Ended {
        if let Err(error) = self.must_fit(self.progress.total.unwrap_or_default()) {
            return Ended::Final(error);
        }
        let mut looked = self.progress.received;
        let mut pace = Pace::new(self.patience);
        let mut body = answer.bytes_stream();
        while let Some(part) = body.next().await {
            let part = match part {
                Ok(part) => part,
                Err(error) => return self.interrupted(error).await,
            };
            if let Err(error) = self.file.write_all(&part).await {
                return Ended::Final(error.into());
            }
            self.progress.received += part.len() as u64;
            if pace.is_too_slow(part.len() as u64) {
                return Ended::Final(DownloadError::TooSlow { url: shown(self.url), slowest: self.patience.slowest });
            }
            if self.progress.received - looked > LOOK {
                looked = self.progress.received;
                if let Err(error) = self.must_fit(looked + LOOK) {
                    return Ended::Final(error);
                }
            }
        }
        if let Err(error) = self.file.flush().await {
            return Ended::Final(error.into());
        }
        let Progress { received, total, .. } = self.progress;
        match total.filter(|_| !self.progress.is_whole()) {
            None => Ended::Whole,
            Some(announced) => Ended::Interrupted(DownloadError::Short { url: shown(self.url), received, announced }),
        }
    }

    /// What was written stays; the file knows of it before more is asked for.
    async fn interrupted(&mut self, error: reqwest::Error) -> Ended {
        match self.file.flush().await {
            Ok(()) => Ended::Interrupted(self.broken(error)),
            Err(error) => Ended::Final(error.into()),
        }
    }

    /// A disk is never filled: some of it stays free.
    fn must_fit(&self, size: u64) -> Result<(), DownloadError> {
        let folder = self.path.parent().unwrap_or(Path::new("."));
        let left = Limits::of_space(folder)?.bytes;
        let needed = size.saturating_sub(self.progress.received);
        if needed <= left {
            return Ok(());
        }
        Err(DownloadError::NoRoom { url: shown(self.url), needed: size, left, folder: folder.display().to_string() })
    }
}
