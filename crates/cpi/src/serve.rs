//! The process: one request on stdin, exactly one answer on stdout.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;
use std::process::ExitCode;

use windlass_contract::cpi::{CpiError, Response};

use crate::cloud::Cloud;
use crate::config::Config;

/// More than this is no request. The rest is still read, because a caller that cannot write all of it fails.
const LONGEST_REQUEST: u64 = 64 * 1024 * 1024;

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
    let stdout = claim_stdout();
    let response = read_request()
        .and_then(|request| Ok(crate::answer(&config()?, &request, build)))
        .unwrap_or_else(Response::failure);
    match write(stdout, &response) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "cannot write the CPI's answer: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Takes stdout away, so that a stray print, here or in a child, ends on stderr instead of inside the answer.
fn claim_stdout() -> io::Result<File> {
    let answer = rustix::io::fcntl_dupfd_cloexec(io::stdout(), 3)?;
    rustix::stdio::dup2_stdout(io::stderr())?;
    Ok(File::from(answer))
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
