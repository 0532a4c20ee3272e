//! A request's bytes to a response.

use std::panic::{AssertUnwindSafe, catch_unwind};

use serde_json::Value;
use windlass_contract::ApiVersion;
use windlass_contract::cpi::answer::Extensions;
use windlass_contract::cpi::methods::{AttachDisk, CreateVm, DeleteVm, DetachDisk, Info};
use windlass_contract::cpi::{
    Answer, AttachedDisk, CpiError, CpiInfo, CreatedVm, ErrorType, Method, MethodName, Redactor, Request, Response,
};
use windlass_contract::version::SettingsFrom;

use crate::asked::{Asked, NewVm};
use crate::cloud::{Call, Cloud};
use crate::config::Config;
use crate::registered_vms::RegisteredVms;
use crate::user_data::UserData;
use crate::{decode, settings};

/// Answers one request. `build` makes the cloud from the configuration of this call; it should do no more than read it,
/// because `info`, which callers ask before nearly every call, passes it, too. A panic becomes an error answer.
pub fn answer<C: Cloud>(
    config: &Config,
    request: &[u8],
    build: impl FnOnce(&Config) -> Result<C, CpiError>,
) -> Response {
    answer_watched(config, request, build, |_, _| Ok(()))
}

/// [`answer`]s, and tells `watch` about every request but `info` before its method runs.
pub(crate) fn answer_watched<C: Cloud>(
    config: &Config,
    request: &[u8],
    build: impl FnOnce(&Config) -> Result<C, CpiError>,
    watch: impl FnOnce(&Request, &Config) -> Result<(), CpiError>,
) -> Response {
    let served = AssertUnwindSafe(|| {
        let request = decode::request(request)?;
        let config = config.overlaid(&request.context.properties);
        serve_request(&config, &request, build, watch).map_err(|error| {
            let message = Redactor::of(&request).and_configuration(config.properties()).own_words(&error.message);
            CpiError { message: one_line(&message), ..error }
        })
    });
    match catch_unwind(served) {
        Ok(Ok(result)) => Response::success(result),
        Ok(Err(error)) => Response::failure(error),
        // Its own words are for stderr.
        Err(_) => Response::failure(CpiError::cpi("the CPI failed in a way that it did not expect; stderr says where")),
    }
}

/// Callers put the message into lines of their own.
fn one_line(message: &str) -> String {
    message.split('\n').map(str::trim_end).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" | ")
}

fn serve_request<C: Cloud>(
    config: &Config,
    request: &Request,
    build: impl FnOnce(&Config) -> Result<C, CpiError>,
    watch: impl FnOnce(&Request, &Config) -> Result<(), CpiError>,
) -> Result<Value, CpiError> {
    let version = request.api_version.unwrap_or_default();
    if request.method == Info::NAME {
        return info(&build(config)?, config).map(|info| info.to_wire(version));
    }
    watch(request, config)?;
    let cloud = build(config)?;
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
    let asked = Asked { cloud: &cloud, version, request, limits: config.limits()? };
    runtime.block_on(dispatch(&asked, config))
}

fn info(cloud: &impl Cloud, config: &Config) -> Result<CpiInfo, CpiError> {
    let jobs_reason = cloud.runs_jobs().err();
    Ok(CpiInfo {
        stemcell_formats: cloud.stemcell_formats(),
        api_version: Some(config.advertised_version()?),
        windlass: Some(Extensions {
            replay: cloud.memory().is_some(),
            jobs: jobs_reason.is_none(),
            jobs_reason,
            jobs_os: cloud.jobs_os(),
            limits: cloud.limits(),
            nesting: cloud.nests_containers(),
        }),
    })
}

/// Which method of the cloud serves what. What a repeated request does is declared with the method.
async fn dispatch<C: Cloud>(asked: &Asked<'_, C>, config: &Config) -> Result<Value, CpiError> {
    let cloud = asked.cloud;
    macro_rules! serve {
        ($method:ident) => {
            asked.serve(async |call, arguments| cloud.$method(call, arguments).await).await
        };
    }
    let Some(method) = MethodName::named(&asked.request.method) else {
        return Err(CpiError::not_implemented(&asked.request.method));
    };
    match method {
        MethodName::CreateStemcell => serve!(create_stemcell),
        MethodName::DeleteStemcell => serve!(delete_stemcell),
        MethodName::CreateVm => create_vm(asked, config).await,
        MethodName::DeleteVm => delete_vm(asked, config).await,
        MethodName::HasVm => serve!(has_vm),
        MethodName::RebootVm => serve!(reboot_vm),
        MethodName::SetVmMetadata => serve!(set_vm_metadata),
        MethodName::ConfigureNetworks => serve!(configure_networks),
        MethodName::CalculateVmCloudProperties => serve!(calculate_vm_cloud_properties),
        MethodName::CreateDisk => serve!(create_disk),
        MethodName::DeleteDisk => serve!(delete_disk),
        MethodName::HasDisk => serve!(has_disk),
        MethodName::AttachDisk => attach_disk(asked, config).await,
        MethodName::DetachDisk => detach_disk(asked, config).await,
        MethodName::SetDiskMetadata => serve!(set_disk_metadata),
        MethodName::GetDisks => serve!(get_disks),
        MethodName::ResizeDisk => serve!(resize_disk),
        MethodName::UpdateDisk => serve!(update_disk),
        MethodName::SnapshotDisk => serve!(snapshot_disk),
        MethodName::DeleteSnapshot => serve!(delete_snapshot),
        MethodName::CreateNetwork => serve!(create_network),
        MethodName::DeleteNetwork => serve!(delete_network),
        // Answered before, without a runtime; and one that no cloud offers.
        MethodName::Info | MethodName::CurrentVmId => Err(CpiError::not_implemented(method.as_str())),
    }
}

async fn create_vm<C: Cloud>(asked: &Asked<'_, C>, config: &Config) -> Result<Value, CpiError> {
    let arguments: CreateVm = asked.arguments()?;
    let memory = asked.cloud.memory();
    let (request, stemcell) = (asked.version, asked.request.context.stemcell_version());
    let registry_for = |mode| settings::registry_for(mode, config, memory.is_some(), request, stemcell);
    let settings_from = SettingsFrom::decide(request, stemcell);
    registry_for(settings_from)?;
    let new = NewVm { agent: &arguments.agent_id, settings_from };
    let create = async |call: &Call, arguments: CreateVm, settings_from| {
        let registry = registry_for(settings_from)?;
        let mut settings = settings::of_new_vm(&arguments)?;
        settings::complete(&mut settings, config.agent()?);
        let mut user_data = UserData::new(settings, registry.clone());
        user_data.set_vm_name(format!("vm-{}", call.id));
        let vm = asked.cloud.create_vm(call, arguments, &mut user_data).await?;
        match RegisteredVms::new(memory, config).add(&vm, &user_data, registry.as_ref()).await {
            Ok(()) => Ok(vm),
            Err(error) => Err(undo(asked.cloud, call, config, vm, error).await),
        }
    };
    asked.once_per_agent(new, create).await
}

/// A VM that cannot get its settings must not remain.
async fn undo<C: Cloud>(cloud: &C, call: &Call, config: &Config, vm: CreatedVm, mut error: CpiError) -> CpiError {
    let cid = vm.cid;
    let deleted = cloud.delete_vm(call, DeleteVm { vm_cid: cid.clone() }).await;
    let remains = match deleted {
        Ok(()) => RegisteredVms::new(cloud.memory(), config).remove(&cid).await.err().map(|remains| remains.message),
        Err(remains) => Some(format!("the VM '{cid}' remains: {}", remains.message)),
    };
    if let Some(remains) = remains {
        error.message = format!("{}; and {remains}", error.message);
    }
    error
}

async fn delete_vm<C: Cloud>(asked: &Asked<'_, C>, config: &Config) -> Result<Value, CpiError> {
    let delete = async |call: &Call, arguments: DeleteVm| {
        let cid = arguments.vm_cid.clone();
        let deleted = asked.cloud.delete_vm(call, arguments).await;
        if matches!(&deleted, Err(error) if error.kind != ErrorType::VmNotFound) {
            return deleted;
        }
        RegisteredVms::new(asked.cloud.memory(), config).remove(&cid).await?;
        deleted
    };
    asked.serve(delete).await
}

async fn attach_disk<C: Cloud>(asked: &Asked<'_, C>, config: &Config) -> Result<Value, CpiError> {
    let attach = async |call: &Call, arguments: AttachDisk| {
        let (vm, disk) = (arguments.vm_cid.clone(), arguments.disk_cid.clone());
        let hint = asked.cloud.attach_disk(call, arguments).await?;
        RegisteredVms::new(asked.cloud.memory(), config).add_disk(&vm, &disk, &hint).await?;
        Ok(AttachedDisk { hint: Some(hint) })
    };
    asked.serve(attach).await
}

async fn detach_disk<C: Cloud>(asked: &Asked<'_, C>, config: &Config) -> Result<Value, CpiError> {
    let detach = async |call: &Call, arguments: DetachDisk| {
        let (vm, disk) = (arguments.vm_cid.clone(), arguments.disk_cid.clone());
        let detached = asked.cloud.detach_disk(call, arguments).await;
        let gone = [ErrorType::DiskNotAttached, ErrorType::DiskNotFound];
        if matches!(&detached, Err(error) if !gone.contains(&error.kind)) {
            return detached;
        }
        RegisteredVms::new(asked.cloud.memory(), config).remove_disk(&vm, &disk).await?;
        detached
    };
    asked.serve(detach).await
}
