//! Read, inspect and build stemcells.
