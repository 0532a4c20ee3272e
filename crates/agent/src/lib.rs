//! The agent in the VM.
