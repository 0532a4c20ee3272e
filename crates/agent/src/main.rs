//! The agent as a program of its own.

fn main() -> std::process::ExitCode {
    windlass_agent::run(std::env::args_os())
}
