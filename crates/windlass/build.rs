//! How the programs are linked.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let is = |name: &str, value: &str| std::env::var(name).is_ok_and(|found| found == value);
    let is_static =
        std::env::var("CARGO_CFG_TARGET_FEATURE").is_ok_and(|all| all.split(',').any(|it| it == "crt-static"));
    // A position-independent program is moved to a random address at each start, which means thousands of writes to its
    // tables: a third of what a CPI call costs. The CPI reads its caller's stdin and no network, so it does without; the
    // director, which listens, does not.
    if is("CARGO_CFG_TARGET_OS", "linux") && is("CARGO_CFG_TARGET_ENV", "gnu") && !is_static && is("PROFILE", "release")
    {
        println!("cargo::rustc-link-arg-bin=windlass-cpi=-no-pie");
    }
}
