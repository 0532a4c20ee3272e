//! The caller's side of an agent over HTTPS.
