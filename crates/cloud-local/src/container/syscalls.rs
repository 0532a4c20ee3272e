//! The system calls that a container's programs may not make, as a filter that the kernel runs before each one.
//!
//! Container engines refuse about the same: what changes the machine or looks into it, and what most programs never need and
//! attackers do. Not among them is `mount`, because agents mount disks, and `reboot`, which ends no more than the VM.

use seccompy::bpf::BpfInstruction;
use seccompy::{FilterFlags, SetFilterError, set_filter};

use super::confinement::Confinement;

/// A call by its name, and its numbers for programs of x86_64, of x86 with 32 bits, and of aarch64.
type Call = (&'static str, [u32; 3]);

/// There is no such call.
const NONE: u32 = u32::MAX;

/// Of the machine, for nobody in a container.
const OF_MACHINE: [Call; 27] = [
    ("acct", [163, 51, 89]),
    ("clock_settime", [227, 264, 112]),
    ("clock_settime64", [NONE, 404, NONE]),
    ("delete_module", [176, 129, 106]),
    ("finit_module", [313, 350, 273]),
    ("init_module", [175, 128, 105]),
    ("io_uring_enter", [426, 426, 426]),
    ("io_uring_register", [427, 427, 427]),
    ("io_uring_setup", [425, 425, 425]),
    ("ioperm", [173, 101, NONE]),
    ("iopl", [172, 110, NONE]),
    ("kexec_file_load", [320, NONE, 294]),
    ("kexec_load", [246, 283, 104]),
    ("lookup_dcookie", [212, 253, 18]),
    ("open_by_handle_at", [304, 342, 265]),
    ("perf_event_open", [298, 336, 241]),
    ("quotactl", [179, 131, 60]),
    ("quotactl_fd", [443, 443, 443]),
    ("settimeofday", [164, 79, 170]),
    ("stime", [NONE, 25, NONE]),
    ("swapoff", [168, 115, 225]),
    ("swapon", [167, 87, 224]),
    ("syslog", [103, 103, 116]),
    ("userfaultfd", [323, 374, 282]),
    ("uselib", [134, 86, NONE]),
    ("vm86", [NONE, 166, NONE]),
    ("vm86old", [NONE, 113, NONE]),
];

/// What makes a container. Keyrings are not kept apart by namespaces, and `bpf` is how devices are kept from a control group.
const OF_CONTAINERS: [Call; 7] = [
    ("add_key", [248, 286, 217]),
    ("bpf", [321, 357, 280]),
    KEYCTL,
    ("pivot_root", [155, 217, 41]),
    ("request_key", [249, 287, 218]),
    ("setns", [308, 346, 268]),
    ("unshare", [272, 310, 97]),
];

/// Those of them that are about keyrings.
const KEYRINGS: [&str; 3] = ["add_key", "keyctl", "request_key"];

/// Its first argument says what it does.
const KEYCTL: Call = ("keyctl", [250, 288, 219]);

/// What engines of containers do with it: they begin a session's keyring, look at it, and say who may use it. With the rest, a user of one
/// VM would have the keys of the same user of all others, and of the machine.
const OF_OWN_KEYRING: [u32; 3] = [1, 6, 5];

/// Also what makes threads; its flags tell.
const CLONE: Call = ("clone", [56, 120, 220]);

/// Its flags lie where a filter cannot look. A program that is told that there is no such call uses `clone`.
const CLONE3: Call = ("clone3", [435, 435, 435]);

const SOCKET: Call = ("socket", [41, 359, 198]);

/// The way of old programs of 32 bits to `socket` and its like, of which its first argument is the number. What kind of socket it is to be
/// lies where a filter cannot look. Programs that know no other way have no sockets.
const SOCKETCALL: Call = ("socketcall", [NONE, 102, NONE]);
const SOCKETCALL_SOCKET: u32 = 1;

/// New namespaces for mounts, control groups, names, messages, users, processes and networks.
const NEW_NAMESPACES: u32 = 0x7e02_0000;

/// Connections to the machine's own host, which no network namespace keeps apart.
const VSOCK: u32 = 40;

/// From here on up the numbers are those of another table, which hardly any kernel has.
const X32: u32 = 0x4000_0000;

/// The programs that a machine runs: how the kernel calls them, and which of a call's numbers is theirs.
#[derive(Debug, Clone, Copy)]
struct Abi {
    architecture: u32,
    column: usize,
}

#[cfg(any(test, target_arch = "x86_64"))]
const X86: [Abi; 2] = [Abi { architecture: 0xc000_003e, column: 0 }, Abi { architecture: 0x4000_0003, column: 1 }];
/// Not programs of 32 bits, which few of these machines can run at all.
#[cfg(any(test, target_arch = "aarch64"))]
const ARM: [Abi; 1] = [Abi { architecture: 0xc000_00b7, column: 2 }];

#[cfg(target_arch = "x86_64")]
const OF_THIS_MACHINE: &[Abi] = &X86;
#[cfg(target_arch = "aarch64")]
const OF_THIS_MACHINE: &[Abi] = &ARM;

/// Forbids them to this thread and all that it starts. Not by taking the right to gain rights, as programs without any must:
/// `sudo` works in a VM.
pub(super) fn restrict(confinement: Confinement) -> Result<(), SetFilterError> {
    if confinement == Confinement::Unfiltered {
        return Ok(());
    }
    // Older kernels slow down a process with a filter, unless told that the filter is not about speculation.
    let flags = FilterFlags { spec_allow: true, ..FilterFlags::default() };
    set_filter(flags, &program(confinement, OF_THIS_MACHINE))
}

/// Forbids keyrings to this thread and all that it starts: the keyring of a session goes to all its processes, and no namespace
/// keeps their keys from a VM that is one of these.
pub(crate) fn restrict_keyrings() -> Result<(), SetFilterError> {
    let flags = FilterFlags { spec_allow: true, ..FilterFlags::default() };
    set_filter(flags, &program_of(OF_THIS_MACHINE, keyring_rules))
}

/// Where the kernel shows a filter the number of the call, the architecture and the lower half of the first argument.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const ARGUMENT: u32 = 16;

const ALLOW: u32 = 0x7fff_0000;
/// Operation not permitted.
const REFUSE: u32 = 0x0005_0001;
/// No such call.
const UNKNOWN: u32 = 0x0005_0026;

const LOAD: u16 = 0x20;
const GO_ON: u16 = 0x05;
const IF_EQUAL: u16 = 0x15;
const IF_AT_LEAST: u16 = 0x35;
const IF_ANY_BIT: u16 = 0x45;
const RETURN: u16 = 0x06;

const fn step(code: u16, k: u32) -> BpfInstruction {
    BpfInstruction { code, jt: 0, jf: 0, k }
}

/// Goes over the next `length` steps unless it holds.
const fn unless(code: u16, k: u32, length: u8) -> BpfInstruction {
    BpfInstruction { code, jt: 0, jf: length, k }
}

fn program(confinement: Confinement, abis: &[Abi]) -> Vec<BpfInstruction> {
    program_of(abis, |column| rules(confinement, column))
}

/// `rules` are those of a column of numbers.
fn program_of(abis: &[Abi], rules: impl Fn(usize) -> Vec<BpfInstruction>) -> Vec<BpfInstruction> {
    let mut program = vec![step(LOAD, ARCHITECTURE)];
    for abi in abis {
        let rules = rules(abi.column);
        let length = u32::try_from(rules.len()).unwrap_or(u32::MAX);
        program.push(BpfInstruction { code: IF_EQUAL, jt: 1, jf: 0, k: abi.architecture });
        program.push(step(GO_ON, length));
        program.extend(rules);
    }
    program.push(step(RETURN, UNKNOWN));
    program
}

fn keyring_rules(column: usize) -> Vec<BpfInstruction> {
    let mut rules = vec![step(LOAD, NUMBER), unless(IF_AT_LEAST, X32, 1), step(RETURN, UNKNOWN)];
    for (_, numbers) in OF_CONTAINERS.iter().filter(|(name, _)| KEYRINGS.contains(name)) {
        rules.extend([unless(IF_EQUAL, numbers[column], 1), step(RETURN, REFUSE)]);
    }
    rules.push(step(RETURN, ALLOW));
    rules
}

/// What is decided about a call of one table of numbers.
fn rules(confinement: Confinement, column: usize) -> Vec<BpfInstruction> {
    let mut rules = vec![step(LOAD, NUMBER), unless(IF_AT_LEAST, X32, 1), step(RETURN, UNKNOWN)];
    let mut refuse = |(_, numbers): &Call, answer: u32| {
        if numbers[column] != NONE {
            rules.extend([unless(IF_EQUAL, numbers[column], 1), step(RETURN, answer)]);
        }
    };
    OF_MACHINE.iter().for_each(|call| refuse(call, REFUSE));
    let mut by_argument = vec![(SOCKET, IF_EQUAL, VSOCK, REFUSE), (SOCKETCALL, IF_EQUAL, SOCKETCALL_SOCKET, UNKNOWN)];
    if confinement == Confinement::Nesting {
        let keyrings = OF_CONTAINERS.iter().filter(|call| KEYRINGS.contains(&call.0) && call.0 != KEYCTL.0);
        keyrings.for_each(|call| refuse(call, REFUSE));
        rules.extend([unless(IF_EQUAL, KEYCTL.1[column], 8), step(LOAD, ARGUMENT)]);
        for operation in OF_OWN_KEYRING {
            rules.extend([unless(IF_EQUAL, operation, 1), step(RETURN, ALLOW)]);
        }
        rules.push(step(RETURN, REFUSE));
    } else {
        OF_CONTAINERS.iter().for_each(|call| refuse(call, REFUSE));
        refuse(&CLONE3, UNKNOWN);
        by_argument.push((CLONE, IF_ANY_BIT, NEW_NAMESPACES, REFUSE));
    }
    for ((_, numbers), condition, value, answer) in by_argument {
        if numbers[column] == NONE {
            continue;
        }
        rules.extend([
            unless(IF_EQUAL, numbers[column], 4),
            step(LOAD, ARGUMENT),
            unless(condition, value, 1),
            step(RETURN, answer),
            step(RETURN, ALLOW),
        ]);
    }
    rules.push(step(RETURN, ALLOW));
    rules
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the kernel would answer.
    fn decide(program: &[BpfInstruction], architecture: u32, number: u32, argument: u32) -> u32 {
        let (mut at, mut loaded) = (0, 0);
        loop {
            let BpfInstruction { code, jt, jf, k } = program[at];
            at += 1;
            let mut jump = |holds: bool| at += usize::from(if holds { jt } else { jf });
            match code {
                LOAD => {
                    loaded = match k {
                        NUMBER => number,
                        ARCHITECTURE => architecture,
                        ARGUMENT => argument,
                        other => panic!("nothing is at {other}"),
                    };
                }
                GO_ON => at += k as usize,
                IF_EQUAL => jump(loaded == k),
                IF_AT_LEAST => jump(loaded >= k),
                IF_ANY_BIT => jump(loaded & k != 0),
                RETURN => return k,
                other => panic!("no step has the code {other}"),
            }
        }
    }

    #[test]
    fn what_reaches_out_of_a_container_is_refused_on_every_machine() {
        for abis in [&X86[..], &ARM] {
            for abi in abis {
                for (confinement, of_containers) in [(Confinement::Filtered, REFUSE), (Confinement::Nesting, ALLOW)] {
                    let program = program(confinement, abis);
                    let asked = |number, argument| decide(&program, abi.architecture, number, argument);
                    let answer = |call: &Call, argument| asked(call.1[abi.column], argument);
                    let known = |call: &&Call| call.1[abi.column] != NONE;
                    for call in OF_MACHINE.iter().filter(known) {
                        assert_eq!(answer(call, 0), REFUSE, "{} {confinement:?}", call.0);
                    }
                    for call in OF_CONTAINERS.iter().filter(known) {
                        let expected = if KEYRINGS.contains(&call.0) { REFUSE } else { of_containers };
                        assert_eq!(answer(call, 0), expected, "{} {confinement:?}", call.0);
                    }
                    // As engines do; and what reads, searches and links keys.
                    assert_eq!([1, 5, 6].map(|operation| answer(&KEYCTL, operation)), [of_containers; 3]);
                    assert_eq!([8, 10, 11].map(|operation| answer(&KEYCTL, operation)), [REFUSE; 3]);
                    let clone3 = if of_containers == ALLOW { ALLOW } else { UNKNOWN };
                    assert_eq!(answer(&CLONE3, 0), clone3);
                    // As threads are made, and with a network of its own.
                    assert_eq!((answer(&CLONE, 0x003d_0f00), answer(&CLONE, 0x4000_0011)), (ALLOW, of_containers));
                    assert_eq!((answer(&SOCKET, 2), answer(&SOCKET, VSOCK)), (ALLOW, REFUSE));
                    if known(&&SOCKETCALL) {
                        // 3 connects, which says nothing about the kind.
                        assert_eq!((answer(&SOCKETCALL, 1), answer(&SOCKETCALL, 3)), (UNKNOWN, ALLOW));
                    }
                    assert_eq!(asked(X32 | 1, 0), UNKNOWN, "x32");
                    assert_eq!(decide(&program, 0x8000_0016, 4, 0), UNKNOWN, "a call of another architecture");
                }
            }
        }
    }

    #[test]
    fn keyrings_alone_are_refused_to_a_vm_that_is_a_process() {
        for abis in [&X86[..], &ARM] {
            let program = program_of(abis, keyring_rules);
            for abi in abis {
                for call in OF_CONTAINERS.iter().chain(&OF_MACHINE).filter(|call| call.1[abi.column] != NONE) {
                    let expected = if KEYRINGS.contains(&call.0) { REFUSE } else { ALLOW };
                    let answer = decide(&program, abi.architecture, call.1[abi.column], 0);
                    assert_eq!(answer, expected, "{} {abi:?}", call.0);
                }
            }
        }
    }

    #[test]
    fn what_programs_need_is_allowed() {
        // read, mount, umount2, execve, reboot, ptrace, openat
        for (abi, numbers) in [
            (X86[0], [0, 165, 166, 59, 169, 101, 257]),
            (X86[1], [3, 21, 52, 11, 88, 26, 295]),
            (ARM[0], [63, 40, 39, 221, 142, 117, 56]),
        ] {
            let abis = if abi.column == 2 { &ARM[..] } else { &X86 };
            let program = program(Confinement::Filtered, abis);
            for number in numbers {
                assert_eq!(decide(&program, abi.architecture, number, 0), ALLOW, "{abi:?} {number}");
            }
        }
    }

    /// The kernel applies it to one thread and what that starts; for root alone, as others need to give rights up first.
    #[test]
    fn the_kernel_takes_the_filter_and_programs_still_run() {
        let filtered = || {
            if let Err(error) = restrict(Confinement::Filtered) {
                eprintln!("needs root and did not run: {error}");
                return;
            }
            assert_eq!(nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWUTS), Err(nix::Error::EPERM));
            assert_eq!(std::thread::spawn(|| 7).join().unwrap(), 7);
            let looks = ["-E", "Seccomp:|NoNewPrivs", "/proc/self/status"];
            let output = std::process::Command::new("grep").args(looks).output().unwrap();
            assert_eq!(String::from_utf8(output.stdout).unwrap(), "NoNewPrivs:\t0\nSeccomp:\t2\n");
        };
        std::thread::scope(|scope| scope.spawn(filtered).join().unwrap());
    }
}
