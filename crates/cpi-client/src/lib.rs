//! The caller's side of a CPI: spawn, negotiate, deadline, validate, explain.
