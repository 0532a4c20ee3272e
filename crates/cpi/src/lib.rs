//! The SDK for authors of CPIs.
