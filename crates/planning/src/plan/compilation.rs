//! Which packages have to be compiled, and on which VMs.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::InstancePlan;
use crate::desired::{Desired, DesiredCompilation, DesiredGroup, StemcellChoice};
use crate::records::CompilationKey;
use crate::software::PackageOfGroup;
use crate::weight::Room;

/// What is compiled before anything else is made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CompilationPlan {
    /// Whether a worker compiles several packages on one VM.
    pub reuse_vms: bool,
    /// Whether VMs of workers are given up rather than deleted.
    #[serde(default)]
    pub orphan_workers: bool,
    /// How many workers there are at once, whatever their stemcells; 0 in plans of long ago, for all of them.
    #[serde(default)]
    pub at_once: usize,
    /// Each after what it needs.
    pub packages: Vec<PackageToCompile>,
    /// The VMs to compile on, by the stemcell that they have.
    pub workers: Vec<InstancePlan>,
}

/// A package to be compiled for a stemcell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PackageToCompile {
    pub package: PackageOfGroup,
    /// The operating system of the stemcell.
    pub os: String,
    /// The stemcell's name.
    pub stemcell: String,
    /// The stemcell's version.
    pub version: String,
    /// What it is compiled with: the packages that it needs directly.
    pub needs: Vec<CompilationKey>,
}

impl PackageToCompile {
    pub fn key(&self) -> CompilationKey {
        self.package.key(&self.os, &self.version)
    }

    /// As tasks name it.
    pub fn label(&self) -> String {
        format!("{}/{}", self.package.name, self.package.version)
    }

    /// For people.
    pub fn reason(&self) -> String {
        format!("it is not compiled for {}/{} yet", self.os, self.version)
    }
}

const PREFIX: &str = "compilation-";

/// Whether a group on record is one of workers, which no manifest names.
pub fn is_compilation_group(group: &str) -> bool {
    group.strip_prefix(PREFIX).is_some_and(|id| uuid::Uuid::try_parse(id).is_ok())
}

/// The packages that no stemcell of the groups' has yet, each after what it needs.
pub(super) fn missing(
    desired: &Desired,
    compiled: &BTreeSet<CompilationKey>,
    room: &mut Room,
) -> Result<Vec<PackageToCompile>, String> {
    let mut missing: Vec<PackageToCompile> = Vec::new();
    for group in &desired.groups {
        let Some(software) = &group.software else { continue };
        for stemcell in &group.stemcells {
            for package in &software.packages {
                let key = package.key(&stemcell.os, &stemcell.version);
                if compiled.contains(&key) || missing.iter().any(|other| other.key() == key) {
                    continue;
                }
                // Each has the keys of all that it needs, once for each stemcell.
                let needs = || package.dependencies.iter().filter_map(|name| software.needed_by(package, name));
                room.take(package.weight() + needs().map(|needed| 256 + needed.dependency_key.len()).sum::<usize>())?;
                missing.push(PackageToCompile {
                    package: package.clone(),
                    os: stemcell.os.clone(),
                    stemcell: stemcell.name.clone(),
                    version: stemcell.version.clone(),
                    needs: needs().map(|needed| needed.key(&stemcell.os, &stemcell.version)).collect(),
                });
            }
        }
    }
    Ok(missing)
}

/// The workers for the packages of one stemcell, as a group of their own.
pub(super) fn workers(
    compilation: &DesiredCompilation,
    packages: &[PackageToCompile],
    stemcell: (&str, &str),
    id: &str,
) -> DesiredGroup {
    let has_stemcell = |choice: &&StemcellChoice| (choice.name.as_str(), choice.version.as_str()) == stemcell;
    let count =
        packages.iter().filter(|package| (package.stemcell.as_str(), package.version.as_str()) == stemcell).count();
    DesiredGroup {
        name: format!("{PREFIX}{id}"),
        instances: count.min(compilation.workers.instances),
        stemcells: compilation.stemcells.iter().filter(has_stemcell).cloned().collect(),
        ..compilation.workers.clone()
    }
}
