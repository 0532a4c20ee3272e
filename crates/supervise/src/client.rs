//! The agent's side of a supervisor.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::machine::commands::{Command, Selection};
use crate::machine::snapshot::MonitText;
use crate::machine::status::ServiceStatus;
use crate::protocol::{Answer, Happening, LONGEST_LINE, Request, socket_in};

/// How long a supervisor may take for an answer.
const ANSWER_TIME: Duration = Duration::from_secs(30);

/// Between attempts to reach a supervisor that is being restarted.
const RETRY: Duration = Duration::from_millis(50);

/// A caller of the supervisor in a folder. Each request has a connection of its own, so that it does not matter who restarts.
#[derive(Debug, Clone)]
pub struct Client {
    folder: PathBuf,
    patience: Duration,
}

/// why a request was not done
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("the supervisor in {} does not answer: is it running?", folder.display())]
    Unreachable {
        folder: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{0}")]
    Refused(String),
    /// it is done, but not for long
    #[error("the supervisor could not save its state, so this does not outlive it: {0}")]
    Unsaved(String),
    /// it says something else
    #[error("the supervisor's answer is none to this request: {0}")]
    Unexpected(String),
}

impl Client {
    /// A client of the supervisor whose folder this is. It waits ten seconds for one that restarts.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into(), patience: Duration::from_secs(10) }
    }

    /// The same, with another time to wait for a supervisor that restarts.
    pub fn with_patience(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// Puts these files, each a name and a text, in the place of all others.
    pub fn load(&self, files: &[(&str, &str)]) -> Result<(), ClientError> {
        let text = |(name, text): &(&str, &str)| MonitText { name: (*name).into(), text: (*text).into() };
        self.done(&Request::Load { files: files.iter().map(text).collect() })
    }

    /// Does `command` to some services. What follows from it is seen in [`Self::status`].
    pub fn command(&self, command: Command, of: Selection) -> Result<(), ClientError> {
        self.done(&Request::Command { command, of })
    }

    pub fn status(&self) -> Result<Vec<ServiceStatus>, ClientError> {
        match self.ask(&Request::Status)? {
            Answer::Status(services) => Ok(services),
            other => Err(unexpected(other)),
        }
    }

    /// What happened after the event with this number.
    pub fn events(&self, after: u64) -> Result<Vec<Happening>, ClientError> {
        match self.ask(&Request::Events { after })? {
            Answer::Events(events) => Ok(events),
            other => Err(unexpected(other)),
        }
    }

    fn done(&self, request: &Request) -> Result<(), ClientError> {
        match self.ask(request)? {
            Answer::Done => Ok(()),
            other => Err(unexpected(other)),
        }
    }

    /// Asks, again if the supervisor goes away before it has answered: every request may be made twice.
    fn ask(&self, request: &Request) -> Result<Answer, ClientError> {
        let deadline = Instant::now() + self.patience;
        loop {
            match self.try_ask(request) {
                Ok(answer) => return Ok(answer),
                Err(source) if source.kind() == io::ErrorKind::InvalidData || Instant::now() >= deadline => {
                    return Err(ClientError::Unreachable { folder: self.folder.clone(), source });
                }
                Err(_) => std::thread::sleep(RETRY),
            }
        }
    }

    fn try_ask(&self, request: &Request) -> io::Result<Answer> {
        let (_handle, path) = socket_in(&self.folder)?;
        let mut stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(ANSWER_TIME))?;
        stream.set_write_timeout(Some(ANSWER_TIME))?;
        let mut line = serde_json::to_vec(request)?;
        line.push(b'\n');
        stream.write_all(&line)?;
        let mut answer = Vec::new();
        BufReader::new(stream.take(LONGEST_LINE)).read_until(b'\n', &mut answer)?;
        if answer.last() != Some(&b'\n') {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it went away before it had answered"));
        }
        serde_json::from_slice(&answer).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    }
}

fn unexpected(answer: Answer) -> ClientError {
    match answer {
        Answer::Refused(reason) => ClientError::Refused(reason),
        Answer::Unsaved(reason) => ClientError::Unsaved(reason),
        other => ClientError::Unexpected(format!("{other:?}").chars().take(200).collect()),
    }
}
