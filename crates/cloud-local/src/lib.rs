//! The embedded cloud: VMs on this machine.
