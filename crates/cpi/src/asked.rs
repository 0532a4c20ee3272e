//! One request, and the ways to run its method.

use std::path::Path;

use serde_json::Value;
use uuid::Uuid;
use windlass_contract::cpi::methods::HasVm;
use windlass_contract::cpi::{Answer, CpiError, CreatedVm, ErrorType, Method, Repeated, Request};
use windlass_contract::version::SettingsFrom;
use windlass_contract::{AgentId, ApiVersion};

use crate::cloud::{Call, Cloud};
use crate::config::Limits;
use crate::locks::{self, Locked};
use crate::replay::{self, Key, Memory};
use crate::{decode, rate};

/// One request, with the cloud that it asks.
#[derive(Debug)]
pub(crate) struct Asked<'a, C> {
    pub(crate) cloud: &'a C,
    pub(crate) version: ApiVersion,
    pub(crate) request: &'a Request,
    pub(crate) limits: Limits,
}

/// What is to be known of a VM before it is made.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NewVm<'a> {
    pub(crate) agent: &'a AgentId,
    pub(crate) settings_from: SettingsFrom,
}

impl<C: Cloud> Asked<'_, C> {
    pub(crate) fn arguments<M: Method>(&self) -> Result<M, CpiError> {
        M::from_arguments(self.request.arguments.clone()).map_err(|error| CpiError::cpi(decode::reason(&error)))
    }

    /// Serves the request as its method declares: a repeated one runs again, or is answered as the first time.
    pub(crate) async fn serve<M: Method>(
        &self,
        effect: impl AsyncFnOnce(&Call, M) -> Result<M::Answer, CpiError>,
    ) -> Result<Value, CpiError> {
        match M::DECLARATION.repeated {
            Repeated::RunsAgain => self.run(effect).await,
            Repeated::AnsweredAgain => self.once(effect).await,
        }
    }

    /// A method that may run again without harm.
    async fn run<M: Method>(
        &self,
        effect: impl AsyncFnOnce(&Call, M) -> Result<M::Answer, CpiError>,
    ) -> Result<Value, CpiError> {
        let arguments = self.arguments()?;
        let _locked = self.begin::<M>().await?;
        let answer = effect(&self.call(Uuid::new_v4()), arguments).await?;
        Ok(answer.to_wire(self.version))
    }

    /// A method that a repeated request does not run again; see [`crate::replay`].
    async fn once<M: Method>(
        &self,
        effect: impl AsyncFnOnce(&Call, M) -> Result<M::Answer, CpiError>,
    ) -> Result<Value, CpiError> {
        let (Some(folder), Some(key)) = (self.cloud.memory(), self.by_request()) else {
            return self.run(effect).await;
        };
        let arguments: M = self.arguments()?;
        let hash = replay::hash(&self.request.arguments);
        let mut memory = Memory::open(folder, key, M::NAME, &hash)?;
        if let Some(answer) = memory.answer() {
            return self.replayed::<M>(answer);
        }
        let locked = self.begin::<M>().await?;
        let answer = effect(&self.call(memory.id()), arguments).await?.to_wire(ApiVersion::HIGHEST);
        memory.finish(answer.clone())?;
        drop((memory, locked));
        self.prune(folder, key).await;
        self.replayed::<M>(&answer)
    }

    /// `create_vm`, which is also known by its agent's id as long as the VM exists. `effect` is told how the VM gets its
    /// settings, because an interrupted call may have decided that.
    pub(crate) async fn once_per_agent<M: Method>(
        &self,
        new: NewVm<'_>,
        effect: impl AsyncFnOnce(&Call, M, SettingsFrom) -> Result<M::Answer, CpiError>,
    ) -> Result<Value, CpiError> {
        let Some(folder) = self.cloud.memory() else {
            return self.run(async |call, arguments| effect(call, arguments, new.settings_from).await).await;
        };
        let arguments: M = self.arguments()?;
        let hash = replay::hash(&self.request.arguments);
        let director = self.request.context.director_uuid.as_str();
        let by_request = self.by_request();
        let by_agent = Key::Agent { director, id: new.agent, arguments: &hash };
        // Always in this order, so that two calls never wait for each other.
        let mut request = by_request.map(|key| Memory::open(folder, key, M::NAME, &hash)).transpose()?;
        if let Some(answer) = request.as_ref().and_then(Memory::answer) {
            return self.replayed::<M>(answer);
        }
        let mut vm = Memory::open(folder, by_agent, M::NAME, &hash)?;
        if let Some(given) = vm.answer()
            && !self.vm_exists(given).await?
        {
            vm.renew()?;
        }
        let answer = match vm.answer() {
            Some(given) => given.clone(),
            None => {
                let settings_from = vm.settings_from(new.settings_from)?;
                let _locked = self.begin::<M>().await?;
                match effect(&self.call(vm.id()), arguments, settings_from).await {
                    Ok(made) => {
                        let made = made.to_wire(ApiVersion::HIGHEST);
                        vm.finish(made.clone())?;
                        made
                    }
                    Err(error) => {
                        vm.forget_settings_from()?;
                        return Err(error);
                    }
                }
            }
        };
        if let Some(request) = &mut request {
            request.finish(answer.clone())?;
        }
        drop((request, vm));
        for key in by_request.into_iter().chain([by_agent]) {
            self.prune(folder, key).await;
        }
        self.replayed::<M>(&answer)
    }

    /// Waits until the method may run.
    async fn begin<M: Method>(&self) -> Result<Locked, CpiError> {
        let memory = self.cloud.memory();
        if let Some(per_second) = self.limits.calls_per_second {
            let Some(memory) = memory else {
                return Err(CpiError::cpi(
                    "'calls_per_second' is configured, and this CPI keeps no memory to count calls in; remove it",
                ));
            };
            rate::wait(memory, per_second).await?;
        }
        locks::lock(memory, M::DECLARATION, &self.request.arguments)
    }

    fn call(&self, id: Uuid) -> Call {
        Call { version: self.version, context: self.request.context.clone(), id }
    }

    /// What the request is known by, if its id is unique.
    fn by_request(&self) -> Option<Key<'_>> {
        let context = &self.request.context;
        let id = context.request_id.as_ref().filter(|id| id.is_unique())?;
        Some(Key::Request { director: &context.director_uuid, id })
    }

    /// Answers are remembered in the shape of the highest version.
    fn replayed<M: Method>(&self, answer: &Value) -> Result<Value, CpiError> {
        M::Answer::from_wire(answer.clone(), ApiVersion::HIGHEST)
            .map(|answer| answer.to_wire(self.version))
            .map_err(|reason| CpiError::cpi(format!("'{}' has an answer that callers cannot use: {reason}", M::NAME)))
    }

    async fn prune(&self, folder: &Path, key: Key<'_>) {
        replay::prune(folder, key, async |answer| self.vm_exists(answer).await.unwrap_or(true)).await;
    }

    async fn vm_exists(&self, answer: &Value) -> Result<bool, CpiError> {
        let Ok(vm) = CreatedVm::from_wire(answer.clone(), ApiVersion::HIGHEST) else { return Ok(false) };
        match self.cloud.has_vm(&self.call(Uuid::new_v4()), HasVm { vm_cid: vm.cid }).await {
            Err(error) if error.kind == ErrorType::NotImplemented => Ok(false),
            other => other,
        }
    }
}
