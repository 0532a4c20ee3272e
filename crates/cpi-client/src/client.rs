//! A CPI and the calls to it.

use std::future::Future;
use std::io;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::sync::Mutex;
use windlass_contract::cpi::methods::Info;
use windlass_contract::cpi::{Context, CpiError, CpiInfo, Method, MethodName, Redactor, Request, redact};
use windlass_contract::{ApiVersion, Object, RequestId, explain};
use windlass_durable::process::ProcessIdentity;

use crate::call_log::{CallLog, dropped};
use crate::child::{self, NotSent};
use crate::configuration::Configuration;
use crate::error::request_id;
use crate::origin::Origin;
use crate::response::{LONGEST_RESULT, RawResponse};
use crate::{CallError, CpiCommand, Negotiated, response};

/// How to talk to a CPI.
#[derive(Debug, Clone)]
pub struct CpiOptions {
    pub director_uuid: String,
    /// Properties of the cpi-config entry; they travel in the context of each request.
    pub properties: Object,
    /// The highest version to speak.
    pub preferred_version: ApiVersion,
    /// How long each call may take.
    pub deadline: Duration,
}

/// Somebody who watches a call.
pub trait CallObserver: Sync {
    /// The process exists and waits for its request, which it gets only after this returns. On an error it is killed
    /// instead.
    fn spawned(&self, child: ProcessIdentity) -> impl Future<Output = io::Result<()>> + Send;

    /// A text without what only this caller knows to be secret.
    fn hide(&self, text: String) -> String {
        text
    }

    /// A line that the CPI wrote to stderr, as it comes, then the lines of its answer's `log`; without credentials. After some
    /// megabytes of one call, one line says how much was left out.
    fn stderr_line(&self, line: &str);

    /// What is asked, and later what came back after how long: a line each, without credentials.
    fn told(&self, _line: &str) {}
}

/// Somebody who measures all calls to a CPI.
pub trait CallMeter: std::fmt::Debug + Send + Sync {
    /// A call ended after so long.
    fn called(&self, method: &str, took: Duration, succeeded: bool);
}

/// Nobody watches.
impl CallObserver for () {
    async fn spawned(&self, _: ProcessIdentity) -> io::Result<()> {
        Ok(())
    }

    fn stderr_line(&self, _: &str) {}
}

/// A request that is complete and not sent yet.
#[derive(Debug, Clone, PartialEq)]
pub struct PreparedCall<M> {
    request: Request,
    method: PhantomData<fn() -> M>,
}

/// Takes the arguments, the answer to them, and the version that it was given in; says what is wrong with the answer.
pub type ReadAnswer<'a> = dyn FnMut(&[Value], Value, ApiVersion) -> Result<(), String> + Send + 'a;

/// A CPI with the properties of one cpi-config entry.
#[derive(Debug)]
pub struct Cpi {
    command: CpiCommand,
    options: CpiOptions,
    /// What was asked, and of which files.
    negotiated: Mutex<Option<(Origin, Negotiated)>>,
    meter: Option<Arc<dyn CallMeter>>,
    configuration: Option<Configuration>,
}

/// How CPIs of others refuse a version.
const VERSION_REFUSED: &str = "Bosh::Clouds::CPIAPIVersionNotSupported";

/// What the caller itself says in a context.
const OWN_CONTEXT_KEYS: [&str; 3] = ["director_uuid", "request_id", "vm"];

impl Cpi {
    /// A CPI that nothing was asked of yet.
    pub fn new(command: CpiCommand, mut options: CpiOptions) -> Self {
        for key in OWN_CONTEXT_KEYS {
            if options.properties.shift_remove(key).is_some() {
                tracing::warn!("the CPI's property '{key}' is not sent: the context's own value has that name");
            }
        }
        Self { command, options, negotiated: Mutex::default(), meter: None, configuration: None }
    }

    /// The same, with all calls measured.
    pub fn measured_by(self, meter: Arc<dyn CallMeter>) -> Self {
        Self { meter: Some(meter), ..self }
    }

    /// The same, with the credentials of what it is configured with removed from whatever it says: some print all they know
    /// when they fail.
    pub fn configured_with(self, configuration: Configuration) -> Self {
        Self { configuration: Some(configuration), ..self }
    }

    fn redactor(&self, request: &Request) -> Redactor {
        let redactor = Redactor::of(request);
        match &self.configuration {
            Some(configuration) => redactor.and_configuration(&configuration.read()),
            None => redactor,
        }
    }

    /// What the CPI can do, and the version that both sides speak. Asked once, and again when the CPI's executable or its
    /// configuration is another file than it was, or when the CPI refused the version.
    pub async fn negotiated(&self) -> Result<Negotiated, CallError> {
        let origin = Origin::of(&self.command);
        // Calls that come while it is asked wait for the answer.
        let mut known = self.negotiated.lock().await;
        match &*known {
            Some((asked, negotiated)) if *asked == origin => Ok(negotiated.clone()),
            _ => {
                let negotiated = self.negotiate().await?;
                *known = Some((origin, negotiated.clone()));
                Ok(negotiated)
            }
        }
    }

    /// What the CPI says now, though it was asked before: what it tells of its cloud changes with the cloud.
    pub async fn info_now(&self) -> Result<CpiInfo, CallError> {
        let origin = Origin::of(&self.command);
        let mut known = self.negotiated.lock().await;
        let negotiated = self.negotiate().await?;
        *known = Some((origin, negotiated.clone()));
        Ok(negotiated.info)
    }

    async fn negotiate(&self) -> Result<Negotiated, CallError> {
        let request = self.request(Info::NAME, Vec::new(), None, None, RequestId::random());
        let info = match self.exchange(&request, Info::DECLARATION.longest_answer, &()).await {
            Ok(result) => decoded(&result).map(Some),
            Err(CallError::Cpi { source, .. }) if source.is_not_implemented() => Ok(None),
            Err(error) => return Err(error),
        };
        info.and_then(|info| Negotiated::from_info(info, self.options.preferred_version))
            .map_err(|reported| CallError::OddVersion { reported: excerpt(&self.redactor(&request), &reported) })
    }

    /// What the CPI can do; as old as the negotiated version.
    pub async fn info(&self) -> Result<CpiInfo, CallError> {
        Ok(self.negotiated().await?.info)
    }

    /// The full request for `method`, in the version that both sides speak.
    pub async fn prepare<M: Method>(
        &self,
        method: &M,
        stemcell_version: Option<ApiVersion>,
        request_id: RequestId,
    ) -> Result<PreparedCall<M>, CallError> {
        let version = self.negotiated().await?.version;
        let request = self.request(M::NAME, method.to_arguments(), Some(version), stemcell_version, request_id);
        Ok(PreparedCall { request, method: PhantomData })
    }

    /// Sends a prepared call and waits for its answer.
    pub async fn send<M: Method>(
        &self,
        call: PreparedCall<M>,
        observer: &impl CallObserver,
    ) -> Result<M::Answer, CallError> {
        let request = call.request;
        let result = self.sent(&request, M::DECLARATION.longest_answer, observer).await?;
        let version = request.api_version.unwrap_or(ApiVersion::V1);
        decoded(&result)
            .and_then(|value| M::read_answer(&request.arguments, value, version))
            .map_err(|what| self.invalid(&request, &format!("its result is wrong: {what}"), &result, ""))
    }

    /// Prepares and sends in one go, for calls that need no record.
    pub async fn call<M: Method>(
        &self,
        method: &M,
        stemcell_version: Option<ApiVersion>,
    ) -> Result<M::Answer, CallError> {
        let prepared = self.prepare(method, stemcell_version, RequestId::random()).await?;
        self.send(prepared, &()).await
    }

    /// Prepares and sends a method that only its name and arguments are known of, as behind a trait object.
    pub async fn ask(
        &self,
        (method, arguments): (MethodName, Vec<Value>),
        stemcell_version: Option<ApiVersion>,
        request_id: RequestId,
        observer: &impl CallObserver,
        read: &mut ReadAnswer<'_>,
    ) -> Result<(), CallError> {
        let version = self.negotiated().await?.version;
        let request = self.request(method.as_str(), arguments, Some(version), stemcell_version, request_id);
        let result = self.sent(&request, method.declaration().longest_answer, observer).await?;
        decoded(&result)
            .and_then(|value| read(&request.arguments, value, version))
            .map_err(|what| self.invalid(&request, &format!("its result is wrong: {what}"), &result, ""))
    }

    /// A CPI that refuses the version is asked again which one it speaks.
    async fn sent(
        &self,
        request: &Request,
        longest_answer: usize,
        observer: &impl CallObserver,
    ) -> Result<String, CallError> {
        let result = self.exchange(request, longest_answer, observer).await;
        if let Err(CallError::Cpi { source, .. }) = &result
            && source.kind.as_str() == VERSION_REFUSED
        {
            *self.negotiated.lock().await = None;
        }
        result
    }

    fn request(
        &self,
        method: &str,
        arguments: Vec<Value>,
        api_version: Option<ApiVersion>,
        stemcell_version: Option<ApiVersion>,
        request_id: RequestId,
    ) -> Request {
        let context = Context {
            director_uuid: self.options.director_uuid.clone(),
            request_id: Some(request_id),
            vm: None,
            properties: self.options.properties.clone(),
        };
        Request { method: method.to_owned(), arguments, context: context.with_stemcell(stemcell_version), api_version }
    }

    async fn exchange(
        &self,
        request: &Request,
        longest_answer: usize,
        observer: &impl CallObserver,
    ) -> Result<String, CallError> {
        let begun = Instant::now();
        observer.told(&shortened(&format!("asking the CPI: {}", redact(request))));
        let result = self.run(request, longest_answer, observer).await;
        observer.told(&shortened(&outcome(request, &result, begun.elapsed(), &self.redactor(request))));
        if let Some(meter) = &self.meter {
            meter.called(&request.method, begun.elapsed(), result.is_ok());
        }
        result
    }

    /// One process, one request, one result.
    async fn run(
        &self,
        request: &Request,
        longest_answer: usize,
        observer: &impl CallObserver,
    ) -> Result<String, CallError> {
        let method = &request.method;
        let command = self.command.build()?;
        let spawn_error =
            |source| CallError::Spawn { executable: self.command.executable.clone(), method: method.clone(), source };
        let bytes = serde_json::to_vec(request).map_err(|error| spawn_error(error.into()))?;
        if tracing::enabled!(tracing::Level::DEBUG) {
            let shown = observer.hide(redact(request).to_string());
            tracing::debug!(request = %shown, executable = %self.command.executable.display(), "calling the CPI");
        }
        let started = Instant::now();
        let redactor = self.redactor(request);
        let mut log = CallLog::new(&redactor, observer);
        let limits = child::Limits { deadline: self.options.deadline, stdout: longest_answer };
        let record = |child| observer.spawned(child);
        let output =
            child::run(command, &bytes, limits, record, |line| log.line(line)).await.map_err(|error| match error {
                NotSent::Spawn(source) => spawn_error(source),
                NotSent::Recording(source) => CallError::NotRecorded { method: method.clone(), source },
            })?;
        tracing::debug!(method, duration = ?started.elapsed(), ending = output.ending, "the CPI is done");
        let stderr = log.shown();
        let parsed = if output.stdout.len() > longest_answer {
            Err(format!("it wrote more than {longest_answer} bytes to stdout"))
        } else {
            response::read(&output.stdout)
        };
        if let Ok(response) = &parsed {
            response.log.lines().for_each(|line| log.line(line));
        }
        log.end();
        // A success that came complete, but late, is not thrown away: it may name the only handle to a resource.
        let what = match parsed {
            Ok(RawResponse { result, error: None, .. }) if result.len() <= LONGEST_RESULT => {
                return Ok(result.to_owned());
            }
            _ if output.past_deadline => {
                return Err(CallError::Deadline {
                    method: method.clone(),
                    after: self.options.deadline,
                    request_id: request_id(request.context.request_id.as_ref()),
                });
            }
            Ok(RawResponse { error: Some(error), .. }) => {
                return Err(CallError::Cpi {
                    method: method.clone(),
                    request_id: request_id(request.context.request_id.as_ref()),
                    source: CpiError { message: shortened(&redactor.message(&error.message)), ..error },
                });
            }
            Ok(RawResponse { result, .. }) => response::too_long(result),
            Err(what) => what,
        };
        let stdout = String::from_utf8_lossy(&output.stdout);
        Err(self.invalid(request, &format!("{what} ({})", output.ending), &stdout, &stderr))
    }

    fn invalid(&self, request: &Request, what: &str, stdout: &str, stderr: &str) -> CallError {
        let redactor = self.redactor(request);
        CallError::InvalidAnswer {
            method: request.method.clone(),
            what: excerpt(&redactor, what),
            stdout: excerpt(&redactor, stdout),
            stderr: redactor.echo(stderr.trim()),
            request_id: request_id(request.context.request_id.as_ref()),
        }
    }
}

/// How much of what a CPI wrote an error shows.
const EXCERPT: usize = 300;

/// How much of the message that a CPI answered is kept: it goes into events and tasks.
const LONGEST_MESSAGE: usize = 16 * 1024;

/// What came back, for a log.
fn outcome(request: &Request, result: &Result<String, CallError>, took: Duration, redactor: &Redactor) -> String {
    let (method, took) = (&request.method, took.as_secs_f64());
    match result {
        Ok(answer) => {
            let answer = redactor.message(answer).replace(['\r', '\n'], " ");
            format!("'{method}' was answered after {took:.3} s: {answer}")
        }
        Err(error) => format!("'{method}' failed after {took:.3} s: {}", explain(error).replace(['\r', '\n'], " ")),
    }
}

fn decoded(result: &str) -> Result<Value, String> {
    serde_json::from_str(result).map_err(|error| error.to_string())
}

fn shortened(message: &str) -> String {
    match message.floor_char_boundary(LONGEST_MESSAGE) {
        end if end < message.len() => format!("{}{}", &message[..end], dropped(message.len() - end)),
        _ => message.to_owned(),
    }
}

fn excerpt(redactor: &Redactor, text: &str) -> String {
    // Redacted before it is cut, so that no half of a secret stays. The generous first cut only bounds the work.
    let text = redactor.echo(text.get(..text.floor_char_boundary(1 << 20)).unwrap_or(text).trim());
    let cut = text.floor_char_boundary(EXCERPT);
    if cut < text.len() { format!("{}…", &text[..cut]) } else { text }
}
