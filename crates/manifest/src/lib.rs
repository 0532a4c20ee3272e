//! YAML as the ecosystem writes it.
