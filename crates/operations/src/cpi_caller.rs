//! Asking a CPI: the seam between the steps and the process that a CPI is.

use std::io;

use async_trait::async_trait;
use serde_json::Value;
use windlass_contract::cpi::{CpiInfo, Method, MethodName};
use windlass_contract::{ApiVersion, RequestId};
use windlass_cpi_client::{CallError, CallObserver, Cpi, ReadAnswer};
use windlass_durable::process::ProcessIdentity;

/// Somebody who asks a CPI. [`Cpi`] starts a process for each question; tests have a cloud in memory.
///
/// Questions are asked through `call` and `send` of `dyn CpiCaller`, which know their types.
#[async_trait]
pub trait CpiCaller: std::fmt::Debug + Send + Sync {
    /// What the CPI can do.
    async fn info(&self) -> Result<CpiInfo, CallError>;

    /// What the CPI says of itself and its cloud now, though it was asked before.
    async fn info_now(&self) -> Result<CpiInfo, CallError> {
        self.info().await
    }

    /// Asks, and gives the answer to [`CpiCall::read`], whose complaint makes it an invalid one.
    async fn ask(&self, call: CpiCall<'_>) -> Result<(), CallError>;
}

/// A question as it goes to a CPI.
pub struct CpiCall<'a> {
    pub method: MethodName,
    pub arguments: Vec<Value>,
    pub stemcell_version: Option<ApiVersion>,
    pub request_id: RequestId,
    pub watcher: &'a dyn CallWatcher,
    pub read: &'a mut ReadAnswer<'a>,
}

impl std::fmt::Debug for CpiCall<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Arguments have secrets.
        f.debug_struct("CpiCall").field("method", &self.method).finish_non_exhaustive()
    }
}

/// A [`CallObserver`] as a trait object.
#[async_trait]
pub trait CallWatcher: Send + Sync {
    /// The process exists and waits for its request, which it gets only after this returns.
    async fn spawned(&self, child: ProcessIdentity) -> io::Result<()>;
    /// A line of the CPI's log.
    fn log_line(&self, line: &str);
    /// What is asked, and later what came back after how long.
    fn told(&self, _line: &str) {}
    /// A text without what only the caller knows to be secret.
    fn hide(&self, text: String) -> String {
        text
    }
}

/// Writes down what is asked, answered and logged in a call that needs no record.
struct Logged<'a>(&'a (dyn Fn(&str) + Send + Sync));

#[async_trait]
impl CallWatcher for Logged<'_> {
    async fn spawned(&self, _: ProcessIdentity) -> io::Result<()> {
        Ok(())
    }

    fn log_line(&self, line: &str) {
        (self.0)(line);
    }

    fn told(&self, line: &str) {
        (self.0)(line);
    }
}

/// Nobody watches.
#[async_trait]
impl CallWatcher for () {
    async fn spawned(&self, _: ProcessIdentity) -> io::Result<()> {
        Ok(())
    }

    fn log_line(&self, _: &str) {}
}

impl dyn CpiCaller + '_ {
    /// Asks with this id while somebody watches.
    pub async fn send<M: Method<Answer: Send> + Sync>(
        &self,
        method: &M,
        stemcell_version: Option<ApiVersion>,
        request_id: RequestId,
        watcher: &dyn CallWatcher,
    ) -> Result<M::Answer, CallError> {
        let mut answer = None;
        let mut read = |arguments: &[Value], value, version| {
            answer = Some(M::read_answer(arguments, value, version)?);
            Ok(())
        };
        let id = request_id.to_string();
        let arguments = method.to_arguments();
        let name = MethodName::named(M::NAME).ok_or_else(|| unanswered::<M>(&id))?;
        self.ask(CpiCall { method: name, arguments, stemcell_version, request_id, watcher, read: &mut read }).await?;
        answer.ok_or_else(|| unanswered::<M>(&id))
    }

    /// Asks something that needs no record, and writes down what came of it.
    pub async fn call_logged<M: Method<Answer: Send> + Sync>(
        &self,
        method: &M,
        stemcell_version: Option<ApiVersion>,
        log: &(dyn Fn(&str) + Send + Sync),
    ) -> Result<M::Answer, CallError> {
        self.send(method, stemcell_version, RequestId::random(), &Logged(log)).await
    }

    /// Asks something that needs no record.
    pub async fn call<M: Method<Answer: Send> + Sync>(
        &self,
        method: &M,
        stemcell_version: Option<ApiVersion>,
    ) -> Result<M::Answer, CallError> {
        self.send(method, stemcell_version, RequestId::random(), &()).await
    }
}

fn unanswered<M: Method>(request_id: &str) -> CallError {
    CallError::InvalidAnswer {
        method: M::NAME.to_owned(),
        what: "nobody read it; this is a defect of Windlass, please report it".to_owned(),
        stdout: String::new(),
        stderr: String::new(),
        request_id: request_id.to_owned(),
    }
}

#[async_trait]
impl CpiCaller for Cpi {
    async fn info(&self) -> Result<CpiInfo, CallError> {
        Cpi::info(self).await
    }

    async fn info_now(&self) -> Result<CpiInfo, CallError> {
        Cpi::info_now(self).await
    }

    async fn ask(&self, call: CpiCall<'_>) -> Result<(), CallError> {
        let CpiCall { method, arguments, stemcell_version, request_id, watcher, read } = call;
        Cpi::ask(self, (method, arguments), stemcell_version, request_id, &Watched(watcher), read).await
    }
}

struct Watched<'a>(&'a dyn CallWatcher);

impl CallObserver for Watched<'_> {
    async fn spawned(&self, child: ProcessIdentity) -> io::Result<()> {
        self.0.spawned(child).await
    }

    fn hide(&self, text: String) -> String {
        self.0.hide(text)
    }

    fn stderr_line(&self, line: &str) {
        self.0.log_line(line);
    }

    fn told(&self, line: &str) {
        self.0.told(line);
    }
}
