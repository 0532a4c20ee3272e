//! A CPI and the calls to it.

use std::future::Future;
use std::io;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::sync::OnceCell;
use windlass_contract::cpi::methods::Info;
use windlass_contract::cpi::{Context, CpiError, CpiInfo, Method, Request, Response};
use windlass_contract::{ApiVersion, Object, RequestId};
use windlass_durable::process::ProcessIdentity;

use crate::child::{self, NotSent};
use crate::error::request_id;
use crate::redaction::Scrubber;
use crate::{CallError, CpiCommand, Negotiated, redact, response};

/// How to talk to a CPI.
#[derive(Debug, Clone)]
pub struct CpiOptions {
    /// Who asks.
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

    /// A line that the CPI wrote to stderr, as it comes, then the lines of its answer's `log`; without credentials.
    fn stderr_line(&self, line: &str);
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

/// a stored request is for another method
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the stored request is for '{found}', not for '{expected}'")]
pub struct WrongMethod {
    found: String,
    expected: &'static str,
}

impl<M: Method> PreparedCall<M> {
    /// A request that was stored before, to be repeated word for word.
    pub fn from_request(request: Request) -> Result<Self, WrongMethod> {
        if request.method == M::NAME {
            Ok(Self { request, method: PhantomData })
        } else {
            Err(WrongMethod { found: request.method, expected: M::NAME })
        }
    }

    /// The request, for storing it. It holds secrets.
    pub fn request(&self) -> &Request {
        &self.request
    }
}

/// A CPI with the properties of one cpi-config entry.
#[derive(Debug)]
pub struct Cpi {
    command: CpiCommand,
    options: CpiOptions,
    negotiated: OnceCell<Negotiated>,
    meter: Option<Arc<dyn CallMeter>>,
}

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
        Self { command, options, negotiated: OnceCell::new(), meter: None }
    }

    /// The same, with all calls measured.
    pub fn measured_by(self, meter: Arc<dyn CallMeter>) -> Self {
        Self { meter: Some(meter), ..self }
    }

    /// What the CPI can do, and the version that both sides speak. Asked once.
    pub async fn negotiated(&self) -> Result<&Negotiated, CallError> {
        self.negotiated
            .get_or_try_init(|| async {
                let request = self.request::<Info>(Vec::new(), None, None, RequestId::random());
                match self.exchange(&request, &()).await {
                    Ok(result) => Negotiated::from_info(Some(result), self.options.preferred_version),
                    Err(CallError::Cpi { source, .. }) if source.is_not_implemented() => {
                        Negotiated::from_info(None, self.options.preferred_version)
                    }
                    Err(error) => Err(error),
                }
            })
            .await
    }

    /// What the CPI can do. Asked once.
    pub async fn info(&self) -> Result<&CpiInfo, CallError> {
        Ok(&self.negotiated().await?.info)
    }

    /// The full request for `method`, in the version that both sides speak.
    pub async fn prepare<M: Method>(
        &self,
        method: &M,
        stemcell_version: Option<ApiVersion>,
        request_id: RequestId,
    ) -> Result<PreparedCall<M>, CallError> {
        let version = self.negotiated().await?.version;
        let request = self.request::<M>(method.to_arguments(), Some(version), stemcell_version, request_id);
        Ok(PreparedCall { request, method: PhantomData })
    }

    /// Sends a prepared call and waits for its answer.
    pub async fn send<M: Method>(
        &self,
        call: PreparedCall<M>,
        observer: &impl CallObserver,
    ) -> Result<M::Answer, CallError> {
        let request = call.request;
        let result = self.exchange(&request, observer).await?;
        let shown = result.to_string();
        M::read_answer(&request.arguments, result, request.api_version.unwrap_or(ApiVersion::V1))
            .map_err(|what| invalid(&request, &format!("its result is wrong: {what}"), &shown, ""))
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

    fn request<M: Method>(
        &self,
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
        Request { method: M::NAME.to_owned(), arguments, context: context.with_stemcell(stemcell_version), api_version }
    }

    async fn exchange(&self, request: &Request, observer: &impl CallObserver) -> Result<Value, CallError> {
        let begun = Instant::now();
        let result = self.run(request, observer).await;
        if let Some(meter) = &self.meter {
            meter.called(&request.method, begun.elapsed(), result.is_ok());
        }
        result
    }

    /// One process, one request, one result.
    async fn run(&self, request: &Request, observer: &impl CallObserver) -> Result<Value, CallError> {
        let method = &request.method;
        let command = self.command.build()?;
        let scrubber = Scrubber::of(request);
        let spawn_error =
            |source| CallError::Spawn { executable: self.command.executable.clone(), method: method.clone(), source };
        let bytes = serde_json::to_vec(request).map_err(|error| spawn_error(error.into()))?;
        if tracing::enabled!(tracing::Level::DEBUG) {
            tracing::debug!(request = %redact(request), executable = %self.command.executable.display(), "calling the CPI");
        }
        let started = Instant::now();
        let mut last_line = String::new();
        let listen = |line: &str| {
            let line = scrubber.message(line);
            observer.stderr_line(&line);
            if !line.trim().is_empty() {
                last_line = line;
            }
        };
        let record = |child| observer.spawned(child);
        let output =
            child::run(command, &bytes, self.options.deadline, record, listen).await.map_err(|error| match error {
                NotSent::Spawn(source) => spawn_error(source),
                NotSent::Recording(source) => CallError::NotRecorded { method: method.clone(), source },
            })?;
        tracing::debug!(method, duration = ?started.elapsed(), ending = output.ending, "the CPI is done");
        let parsed = if output.is_too_long() {
            Err("its answer is endless".to_owned())
        } else {
            response::parse(&output.stdout)
        };
        // A success that came complete, but late, is not thrown away: it may name the only handle to a resource.
        match parsed {
            Ok(Response { result, error: None, log }) => {
                log.lines().for_each(|line| observer.stderr_line(&scrubber.message(line)));
                Ok(result)
            }
            _ if output.past_deadline => Err(CallError::Deadline {
                method: method.clone(),
                after: self.options.deadline,
                request_id: request_id(request.context.request_id.as_ref()),
            }),
            Ok(Response { error: Some(error), log, .. }) => {
                log.lines().for_each(|line| observer.stderr_line(&scrubber.message(line)));
                Err(CallError::Cpi {
                    method: method.clone(),
                    request_id: request_id(request.context.request_id.as_ref()),
                    source: CpiError { message: scrubber.message(&error.message), ..error },
                })
            }
            Err(what) => {
                let stdout = String::from_utf8_lossy(&output.stdout);
                Err(invalid(request, &format!("{what} ({})", output.ending), &stdout, &last_line))
            }
        }
    }
}

/// How much of what a CPI wrote an error shows.
const EXCERPT: usize = 300;

fn invalid(request: &Request, what: &str, stdout: &str, stderr: &str) -> CallError {
    let scrubber = Scrubber::of(request);
    let excerpt = |text: &str| {
        // Scrubbed before it is cut, so that no half of a secret stays. The generous first cut only bounds the work.
        let text = scrubber.echo(text.get(..text.floor_char_boundary(1 << 20)).unwrap_or(text).trim());
        let cut = text.floor_char_boundary(EXCERPT);
        if cut < text.len() { format!("{}…", &text[..cut]) } else { text }
    };
    CallError::InvalidAnswer {
        method: request.method.clone(),
        what: excerpt(what),
        stdout: excerpt(stdout),
        stderr: excerpt(stderr),
        request_id: request_id(request.context.request_id.as_ref()),
    }
}
