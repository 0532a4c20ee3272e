//! The process: one request on stdin, exactly one answer on stdout, in time.

use std::fs::File;
use std::io::{self, Read, Write};
use std::panic::PanicHookInfo;
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use windlass_contract::cpi::{CpiError, Redactor, Request, Response, redact};

use crate::answer::answer_watched;
use crate::cloud::Cloud;
use crate::config::Config;

/// More than this is no request. The rest is still read, because a caller that cannot write all of it fails.
const LONGEST_REQUEST: u64 = 64 * 1024 * 1024;

/// How much of a failed request is logged: callers read stderr slowly.
const LONGEST_LOG: usize = 4096;

/// Serves the one call of this process with the configuration at `config`. The exit status is success whenever an answer
/// was written, also an error: callers read the answer only then.
pub fn serve<C: Cloud>(config: &Path, build: impl FnOnce(&Config) -> Result<C, CpiError>) -> ExitCode {
    serve_with(|| Config::load(config), build)
}

/// [`serve`]s with a configuration that need not come from a file.
pub fn serve_with<C: Cloud>(
    config: impl FnOnce() -> Result<Config, CpiError>,
    build: impl FnOnce(&Config) -> Result<C, CpiError>,
) -> ExitCode {
    let stdout = Stdout::claim();
    std::panic::set_hook(Box::new(last_words));
    let mut shown = None;
    let watch = |request: &Request, config: &Config| {
        shown = Some(redact(request));
        let _ = REDACTOR.set(Redactor::of(request).and_configuration(config.properties()));
        match config.limits()?.deadline {
            Some(deadline) => stdout.answer_after(deadline, &request.method),
            None => Ok(()),
        }
    };
    let response = read_request()
        .and_then(|request| Ok(answer_watched(&config()?, &request, build, watch)))
        .unwrap_or_else(Response::failure);
    if let (Some(error), Some(request)) = (&response.error, &shown) {
        log(&format!("{error}; the request was {request}"));
    }
    match stdout.answer(&response) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            log(&format!("cannot write the CPI's answer: {error}"));
            ExitCode::FAILURE
        }
    }
}

/// Knows the secrets of this process's one request, for whatever is written to stderr.
static REDACTOR: OnceLock<Redactor> = OnceLock::new();

/// Writes a line to stderr, without secrets.
pub(crate) fn log(text: &str) {
    let text = REDACTOR.get().map_or_else(|| text.to_owned(), |redactor| redactor.own_words(text));
    let end = text.floor_char_boundary(LONGEST_LOG);
    // Nobody may be there to read it.
    let _ = writeln!(io::stderr(), "{}{}", &text[..end], if end < text.len() { "…" } else { "" });
}

/// What a panic says. Before the secrets are known, only where it was.
fn last_words(panic: &PanicHookInfo<'_>) {
    let place = panic.location().map(|location| format!(" at {location}")).unwrap_or_default();
    match panic.payload_as_str().filter(|_| REDACTOR.get().is_some()) {
        Some(words) => log(&format!("the CPI panicked{place}: {words}")),
        None => log(&format!("the CPI panicked{place}")),
    }
}

/// Where the answer goes. The method or its deadline takes it out and answers.
#[derive(Clone)]
struct Stdout(Arc<Mutex<Option<io::Result<File>>>>);

impl Stdout {
    /// Takes stdout away, so that a stray print, here or in a child, ends on stderr instead of inside the answer.
    fn claim() -> Self {
        let claim = || {
            let answer = rustix::io::fcntl_dupfd_cloexec(io::stdout(), 3)?;
            rustix::stdio::dup2_stdout(io::stderr())?;
            Ok(File::from(answer))
        };
        Self(Arc::new(Mutex::new(Some(claim()))))
    }

    fn take(&self) -> Option<io::Result<File>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn answer(&self, response: &Response) -> io::Result<()> {
        let Some(stdout) = self.take() else {
            // The deadline answers, and then ends the process.
            loop {
                std::thread::park();
            }
        };
        write(stdout, response)
    }

    /// Answers and ends the process when the method takes too long. In a thread, because methods may block. What the
    /// method began is then as if the process had been killed; a repeated request finishes it.
    fn answer_after(&self, deadline: Duration, method: &str) -> Result<(), CpiError> {
        let stdout = self.clone();
        let late = Response::failure(CpiError::cloud(format!(
            "'{method}' took longer than its deadline of {deadline:?} and was given up; what it began may be half done"
        )));
        let watch = move || {
            std::thread::sleep(deadline);
            if let Some(stdout) = stdout.take() {
                let written = write(stdout, &late);
                std::process::exit(if written.is_ok() { 0 } else { 1 });
            }
        };
        std::thread::Builder::new()
            .name("deadline".into())
            .spawn(watch)
            .map(|_| ())
            .map_err(|error| CpiError::cpi(format!("cannot watch the deadline: {error}")))
    }
}

fn read_request() -> Result<Vec<u8>, CpiError> {
    let mut request = Vec::new();
    let mut stdin = io::stdin().lock();
    let read = (&mut stdin).take(LONGEST_REQUEST).read_to_end(&mut request);
    let rest = read.and_then(|_| io::copy(&mut stdin, &mut io::sink()));
    match rest {
        Ok(0) => Ok(request),
        Ok(_) => Err(CpiError::cpi(format!("the request is longer than {LONGEST_REQUEST} bytes"))),
        Err(error) => Err(CpiError::cpi(format!("cannot read the request from stdin: {error}"))),
    }
}

fn write(stdout: io::Result<File>, response: &Response) -> io::Result<()> {
    let mut stdout = stdout?;
    stdout.write_all(&serde_json::to_vec(response)?)?;
    stdout.flush()
}
