//! A request's bytes to a response.

use std::panic::{AssertUnwindSafe, catch_unwind};

use serde_json::Value;
use uuid::Uuid;
use windlass_contract::ApiVersion;
use windlass_contract::cpi::answer::Extensions;
use windlass_contract::cpi::methods::{
    AttachDisk, CalculateVmCloudProperties, ConfigureNetworks, CreateDisk, CreateNetwork, CreateStemcell, CreateVm,
    DeleteDisk, DeleteNetwork, DeleteSnapshot, DeleteStemcell, DeleteVm, DetachDisk, GetDisks, HasDisk, HasVm, Info,
    RebootVm, ResizeDisk, SetDiskMetadata, SetVmMetadata, SnapshotDisk, UpdateDisk,
};
use windlass_contract::cpi::{
    Answer, AttachedDisk, CpiError, CpiInfo, CreatedVm, ErrorType, Method, Request, Response,
};

use crate::cloud::{Call, Cloud};
use crate::config::Config;
use crate::replay::{self, Key, Memory};
use crate::user_data::UserData;
use crate::{decode, settings};

/// Answers one request. `build` makes the cloud from the configuration of this call; it should do no more than read it,
/// because `info`, which callers ask before nearly every call, passes it, too. A panic becomes an error answer.
pub fn answer<C: Cloud>(
    config: &Config,
    request: &[u8],
    build: impl FnOnce(&Config) -> Result<C, CpiError>,
) -> Response {
    let served = AssertUnwindSafe(|| decode::request(request).and_then(|it| serve_request(config, it, build)));
    match catch_unwind(served) {
        Ok(Ok(result)) => Response::success(result),
        Ok(Err(error)) => Response::failure(CpiError { message: one_line(&error.message), ..error }),
        // The panic's own words may hold a secret; they are on stderr.
        Err(_) => Response::failure(CpiError::cpi("the CPI failed in a way that it did not expect; stderr says where")),
    }
}

/// Callers put the message into lines of their own.
fn one_line(message: &str) -> String {
    message.split('\n').map(str::trim_end).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" | ")
}

fn serve_request<C: Cloud>(
    config: &Config,
    request: Request,
    build: impl FnOnce(&Config) -> Result<C, CpiError>,
) -> Result<Value, CpiError> {
    let config = config.overlaid(&request.context.properties);
    let cloud = build(&config)?;
    let version = request.api_version.unwrap_or_default();
    if request.method == Info::NAME {
        return info(&cloud, &config).map(|info| info.to_wire(version));
    }
    if version > ApiVersion::HIGHEST {
        return Err(CpiError::cpi(format!(
            "'{}' was asked in contract version {version}, and this CPI speaks versions up to {}; ask 'info' first",
            request.method,
            ApiVersion::HIGHEST
        )));
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| CpiError::cpi(format!("cannot start the CPI's runtime: {error}")))?;
    runtime.block_on(dispatch(&cloud, &config, version, request))
}

fn info(cloud: &impl Cloud, config: &Config) -> Result<CpiInfo, CpiError> {
    Ok(CpiInfo {
        stemcell_formats: cloud.stemcell_formats(),
        api_version: Some(config.advertised_version()?),
        windlass: Some(Extensions { replay: cloud.memory().is_some() }),
    })
}

async fn dispatch<C: Cloud>(
    cloud: &C,
    config: &Config,
    version: ApiVersion,
    request: Request,
) -> Result<Value, CpiError> {
    let method = request.method.clone();
    let asked = Asked { cloud, version, request };
    match method.as_str() {
        CreateStemcell::NAME => {
            asked.once(None, async |call, arguments| cloud.create_stemcell(call, arguments).await).await
        }
        DeleteStemcell::NAME => asked.run(async |call, arguments| cloud.delete_stemcell(call, arguments).await).await,
        CreateVm::NAME => create_vm(asked, config).await,
        DeleteVm::NAME => asked.run(async |call, arguments| cloud.delete_vm(call, arguments).await).await,
        HasVm::NAME => asked.run(async |call, arguments| cloud.has_vm(call, arguments).await).await,
        RebootVm::NAME => asked.run(async |call, arguments| cloud.reboot_vm(call, arguments).await).await,
        SetVmMetadata::NAME => asked.run(async |call, arguments| cloud.set_vm_metadata(call, arguments).await).await,
        CreateDisk::NAME => asked.once(None, async |call, arguments| cloud.create_disk(call, arguments).await).await,
        DeleteDisk::NAME => asked.run(async |call, arguments| cloud.delete_disk(call, arguments).await).await,
        HasDisk::NAME => asked.run(async |call, arguments| cloud.has_disk(call, arguments).await).await,
        AttachDisk::NAME => {
            let attach = async |call: &Call, arguments| {
                Ok(AttachedDisk { hint: Some(cloud.attach_disk(call, arguments).await?) })
            };
            asked.once(None, attach).await
        }
        DetachDisk::NAME => asked.once(None, async |call, arguments| cloud.detach_disk(call, arguments).await).await,
        SetDiskMetadata::NAME => {
            asked.run(async |call, arguments| cloud.set_disk_metadata(call, arguments).await).await
        }
        GetDisks::NAME => asked.run(async |call, arguments| cloud.get_disks(call, arguments).await).await,
        ConfigureNetworks::NAME => {
            asked.run(async |call, arguments| cloud.configure_networks(call, arguments).await).await
        }
        CalculateVmCloudProperties::NAME => {
            asked.run(async |call, arguments| cloud.calculate_vm_cloud_properties(call, arguments).await).await
        }
        ResizeDisk::NAME => asked.run(async |call, arguments| cloud.resize_disk(call, arguments).await).await,
        UpdateDisk::NAME => asked.once(None, async |call, arguments| cloud.update_disk(call, arguments).await).await,
        SnapshotDisk::NAME => {
            asked.once(None, async |call, arguments| cloud.snapshot_disk(call, arguments).await).await
        }
        DeleteSnapshot::NAME => asked.run(async |call, arguments| cloud.delete_snapshot(call, arguments).await).await,
        CreateNetwork::NAME => {
            asked.once(None, async |call, arguments| cloud.create_network(call, arguments).await).await
        }
        DeleteNetwork::NAME => asked.run(async |call, arguments| cloud.delete_network(call, arguments).await).await,
        unknown => Err(CpiError::not_implemented(unknown)),
    }
}

async fn create_vm<C: Cloud>(asked: Asked<'_, C>, config: &Config) -> Result<Value, CpiError> {
    let arguments: CreateVm = asked.arguments()?;
    settings::refuse_registry(asked.version, asked.request.context.stemcell_version())?;
    let mut user_data = UserData::complete(settings::of_new_vm(&arguments, config.agent()?)?);
    let cloud = asked.cloud;
    let create = async |call: &Call, arguments| cloud.create_vm(call, arguments, &mut user_data).await;
    asked.once(Some(&arguments.agent_id), create).await
}

/// One request, with the cloud that it asks.
struct Asked<'a, C> {
    cloud: &'a C,
    version: ApiVersion,
    request: Request,
}

impl<C: Cloud> Asked<'_, C> {
    fn arguments<M: Method>(&self) -> Result<M, CpiError> {
        M::from_arguments(self.request.arguments.clone()).map_err(|error| CpiError::cpi(decode::reason(&error)))
    }

    fn call(&self, id: Uuid) -> Call {
        Call { version: self.version, context: self.request.context.clone(), id }
    }

    /// A method that may run again without harm.
    async fn run<M: Method>(
        &self,
        effect: impl AsyncFnOnce(&Call, M) -> Result<M::Answer, CpiError>,
    ) -> Result<Value, CpiError> {
        let answer = effect(&self.call(Uuid::new_v4()), self.arguments()?).await?;
        Ok(answer.to_wire(self.version))
    }

    /// A method that a repeated request does not run again; see [`crate::replay`].
    async fn once<M: Method>(
        &self,
        agent: Option<&windlass_contract::AgentId>,
        effect: impl AsyncFnOnce(&Call, M) -> Result<M::Answer, CpiError>,
    ) -> Result<Value, CpiError> {
        let arguments: M = self.arguments()?;
        let Some(folder) = self.cloud.memory() else {
            let answer = effect(&self.call(Uuid::new_v4()), arguments).await?;
            return Ok(answer.to_wire(self.version));
        };
        let context = &self.request.context;
        let hash = replay::hash(&self.request.arguments);
        let director = context.director_uuid.as_str();
        let by_request =
            context.request_id.as_ref().filter(|id| id.is_unique()).map(|id| Key::Request { director, id });
        let by_agent = agent.map(|id| Key::Agent { director, id, arguments: &hash });
        // Always in this order: whoever waits for an agent's record holds nothing that the other needs.
        let open = |key| Memory::open(folder, key, M::NAME, &hash);
        let mut request = by_request.map(open).transpose()?;
        if let Some(answer) = request.as_ref().and_then(Memory::answer) {
            return self.replayed::<M>(answer);
        }
        let mut vm = by_agent.map(open).transpose()?;
        let mut answer = None;
        if let Some(vm) = &mut vm
            && let Some(given) = vm.answer()
        {
            if self.vm_exists(given).await? {
                answer = Some(given.clone());
            } else {
                vm.renew()?;
            }
        }
        let answer = match answer {
            Some(answer) => answer,
            None => {
                let id = vm.as_ref().or(request.as_ref()).map_or_else(Uuid::new_v4, Memory::id);
                let made = effect(&self.call(id), arguments).await?.to_wire(ApiVersion::HIGHEST);
                if let Some(vm) = &mut vm {
                    vm.finish(made.clone())?;
                }
                made
            }
        };
        if let Some(request) = &mut request {
            request.finish(answer.clone())?;
        }
        drop((request, vm));
        for key in by_request.into_iter().chain(by_agent) {
            replay::prune(folder, key, async |answer| self.vm_exists(answer).await.unwrap_or(true)).await;
        }
        self.replayed::<M>(&answer)
    }

    /// Answers are remembered in the shape of the highest version.
    fn replayed<M: Method>(&self, answer: &Value) -> Result<Value, CpiError> {
        M::Answer::from_wire(answer.clone(), ApiVersion::HIGHEST)
            .map(|answer| answer.to_wire(self.version))
            .map_err(|reason| CpiError::cpi(format!("'{}' has an answer that callers cannot use: {reason}", M::NAME)))
    }

    async fn vm_exists(&self, answer: &Value) -> Result<bool, CpiError> {
        let Ok(vm) = CreatedVm::from_wire(answer.clone(), ApiVersion::HIGHEST) else { return Ok(false) };
        match self.cloud.has_vm(&self.call(Uuid::new_v4()), HasVm { vm_cid: vm.cid }).await {
            Err(error) if error.kind == ErrorType::NotImplemented => Ok(false),
            other => other,
        }
    }
}
