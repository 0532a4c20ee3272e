//! What a CPI answered, and what it should have answered.

use serde_json::{Value, json};
use windlass_contract::cpi::{CpiError, ErrorType, Redactor, Request, Response, redact};
use windlass_cpi_client::response;

use crate::caller::Exchange;
use crate::check::NotPassed;

/// One call and its response, if it is one.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) exchange: Exchange,
    pub(crate) response: Result<Response, String>,
}

/// A call as a report may show it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShownCall {
    /// The bytes on stdin, without secrets.
    pub request: String,
    /// The bytes on stdout, without secrets.
    pub stdout: String,
    /// The end of stderr, without secrets.
    pub stderr: String,
    /// How the process ended.
    pub ending: String,
}

impl ShownCall {
    /// Indented lines.
    pub(crate) fn block(&self) -> String {
        let head = format!("  request: {}\n  answer:  {} ({})\n", self.request, self.stdout.trim(), self.ending);
        self.stderr.lines().fold(head, |text, line| text + "  stderr:  " + line + "\n")
    }

    pub(crate) fn to_json(&self) -> Value {
        json!({"request": self.request, "stdout": self.stdout, "stderr": self.stderr, "ending": self.ending})
    }
}

/// Longer texts are cut in reports.
pub(crate) const LONGEST_SHOWN: usize = 4096;
/// So much of a stream is looked through for secrets.
const LONGEST_READ: usize = 1 << 20;

impl Answer {
    pub(crate) fn new(exchange: Exchange) -> Self {
        let response = if exchange.timed_out {
            Err(format!("it did not answer within {:.0?} and was killed", exchange.took))
        } else if exchange.is_endless() {
            Err(format!("it wrote more than {} bytes to stdout", exchange.stdout.len()))
        } else {
            response::parse(&exchange.stdout)
        };
        Self { exchange, response }
    }

    /// The method that was asked for, if the request names one.
    pub(crate) fn method(&self) -> String {
        let request = serde_json::from_slice::<Value>(&self.exchange.request).unwrap_or_default();
        request["method"].as_str().unwrap_or_default().to_owned()
    }

    /// A response that the director takes, whatever is in it.
    pub(crate) fn valid(&self) -> Result<&Response, NotPassed> {
        self.response.as_ref().map_err(|what| self.fail(what.clone()))
    }

    /// The result; any error is a failure of the check, and a method that is not there makes it unsupported.
    pub(crate) fn success(&self) -> Result<Value, NotPassed> {
        let response = self.valid()?;
        match &response.error {
            None => Ok(response.result.clone()),
            Some(error) if is_missing_method(error) => Err(NotPassed::NotSupported(self.scrub(&error.to_string()))),
            Some(error) => Err(self.fail(format!("it answered an error: {}", self.scrub(&error.to_string())))),
        }
    }

    /// The error that it must answer with.
    pub(crate) fn error(&self, instead_of: &str) -> Result<&CpiError, NotPassed> {
        self.valid()?.error.as_ref().ok_or_else(|| self.fail(format!("it answered success, {instead_of}")))
    }

    /// The error that it must answer with, from a method that is there.
    pub(crate) fn refusal(&self, instead_of: &str) -> Result<&CpiError, NotPassed> {
        let error = self.error(instead_of)?;
        if error.kind == ErrorType::NotImplemented {
            return Err(NotPassed::NotSupported(self.scrub(&error.to_string())));
        }
        Ok(error)
    }

    /// Success, or an error of one of these types.
    pub(crate) fn success_or(&self, kinds: &[ErrorType]) -> Result<Option<Value>, NotPassed> {
        match &self.valid()?.error {
            Some(error) if kinds.contains(&error.kind) => Ok(None),
            _ => self.success().map(Some),
        }
    }

    /// A non-empty string.
    pub(crate) fn cid(&self) -> Result<String, NotPassed> {
        match self.success()? {
            Value::String(cid) if !cid.is_empty() => Ok(cid),
            other => Err(self.fail(format!("expected a non-empty string as cid, got {other}"))),
        }
    }

    pub(crate) fn boolean(&self) -> Result<bool, NotPassed> {
        match self.success()? {
            Value::Bool(value) => Ok(value),
            other => Err(self.fail(format!("expected true or false, got {other}"))),
        }
    }

    pub(crate) fn fail(&self, what: impl Into<String>) -> NotPassed {
        NotPassed::Failed(what.into(), vec![self.clone()])
    }

    pub(crate) fn warn(&self, what: impl Into<String>) -> NotPassed {
        NotPassed::Warned(what.into(), vec![self.clone()])
    }

    fn scrub(&self, text: &str) -> String {
        match serde_json::from_slice::<Request>(&self.exchange.request) {
            Ok(request) => Redactor::of(&request).message(text),
            Err(_) => text.to_owned(),
        }
    }

    /// For reports.
    pub(crate) fn shown(&self, secrets: &Redactor) -> ShownCall {
        let request = serde_json::from_slice::<Request>(&self.exchange.request).ok();
        let redactor = request.as_ref().map(Redactor::of);
        let text = |bytes: &[u8]| {
            let text = secrets.echo(&String::from_utf8_lossy(bytes));
            redactor.as_ref().map_or(text.clone(), |redactor| redactor.echo(&text))
        };
        // Without secrets before it is cut to what is shown, so that no half of one stays. This cut only bounds the work.
        let head = |bytes: &[u8]| text(&bytes[..bytes.len().min(LONGEST_READ)]);
        let sent = match &request {
            Some(request) => redact(request).to_string(),
            None => head(&self.exchange.request),
        };
        let stderr = text(&self.exchange.stderr[self.exchange.stderr.len().saturating_sub(LONGEST_READ)..]);
        let tail = stderr.char_indices().rev().nth(LONGEST_SHOWN).map_or(0, |(at, _)| at);
        ShownCall {
            request: cut(&sent, sent.len()),
            stdout: cut(&head(&self.exchange.stdout), self.exchange.stdout.len()),
            stderr: stderr[tail..].to_owned(),
            ending: self.exchange.ending(),
        }
    }
}

fn is_missing_method(error: &CpiError) -> bool {
    matches!(error.kind, ErrorType::NotImplemented | ErrorType::NotSupported)
}

fn cut(text: &str, bytes: usize) -> String {
    match text.char_indices().nth(LONGEST_SHOWN) {
        Some((at, _)) => format!("{}… ({bytes} bytes)", &text[..at]),
        None => text.to_owned(),
    }
}
