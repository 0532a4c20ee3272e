//! The director: store, plan, steps, tasks, HTTP API.
