//! A cloud that prints, panics, hangs and tells secrets, for the test of what its caller gets all the same.

#![allow(clippy::print_stdout, reason = "noise is the point")]

use std::path::Path;
use std::process::{Command, ExitCode};

use windlass_contract::DiskCid;
use windlass_contract::cpi::CpiError;
use windlass_contract::cpi::methods::{CreateDisk, DeleteDisk, DeleteVm, HasDisk, HasVm, RebootVm};
use windlass_cpi::{Call, Cloud};

struct Noisy;

impl Cloud for Noisy {
    fn stemcell_formats(&self) -> Vec<String> {
        println!("a stray print");
        vec![]
    }

    async fn has_vm(&self, _: &Call, _: HasVm) -> Result<bool, CpiError> {
        let status = Command::new("echo").arg("a child's print").status();
        Ok(status.is_ok_and(|status| status.success()))
    }

    async fn has_disk(&self, _: &Call, _: HasDisk) -> Result<bool, CpiError> {
        panic!("an author's mistake")
    }

    /// Hangs in a way that no runtime can interrupt.
    async fn reboot_vm(&self, _: &Call, _: RebootVm) -> Result<(), CpiError> {
        std::thread::sleep(std::time::Duration::from_secs(600));
        Ok(())
    }

    async fn create_disk(&self, _: &Call, disk: CreateDisk) -> Result<DiskCid, CpiError> {
        panic!("an author's mistake with {}", disk.cloud_properties["password"])
    }

    async fn delete_vm(&self, call: &Call, _: DeleteVm) -> Result<(), CpiError> {
        Err(CpiError::cloud(format!("the cloud refuses {}", call.context.properties["api_token"])))
    }

    /// Timers and files work: there is a runtime.
    async fn delete_disk(&self, _: &Call, _: DeleteDisk) -> Result<(), CpiError> {
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        Ok(())
    }
}

fn main() -> ExitCode {
    let config = std::env::args().nth(1).unwrap_or_default();
    windlass_cpi::serve(Path::new(&config), |_| Ok(Noisy))
}
