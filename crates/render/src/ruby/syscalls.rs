//! What a Ruby that renders may ask the kernel for.
//!
//! It computes, reads its libraries, has threads, and answers. Everything else does not exist for it: no processes, no sockets, no
//! signals to others, no mounts, no tracing. The list names what is allowed, so that what kernels learn later is not.

use std::collections::BTreeMap;
use std::env::consts::ARCH;
use std::io;

use libc::{
    SYS_access, SYS_arch_prctl, SYS_bind, SYS_brk, SYS_chdir, SYS_chmod, SYS_clock_getres, SYS_clock_gettime,
    SYS_clock_nanosleep, SYS_clone, SYS_close, SYS_connect, SYS_dup, SYS_dup2, SYS_dup3, SYS_epoll_create1,
    SYS_epoll_ctl, SYS_epoll_pwait, SYS_epoll_wait, SYS_eventfd2, SYS_execve, SYS_exit, SYS_exit_group, SYS_faccessat,
    SYS_faccessat2, SYS_fadvise64, SYS_fchmod, SYS_fcntl, SYS_fdatasync, SYS_flock, SYS_fork, SYS_fstat, SYS_fstatfs,
    SYS_fsync, SYS_ftruncate, SYS_futex, SYS_getcwd, SYS_getdents64, SYS_getegid, SYS_geteuid, SYS_getgid,
    SYS_getgroups, SYS_getpgid, SYS_getpgrp, SYS_getpid, SYS_getppid, SYS_getrandom, SYS_getresgid, SYS_getresuid,
    SYS_getrusage, SYS_gettid, SYS_gettimeofday, SYS_getuid, SYS_ioctl, SYS_kill, SYS_lseek, SYS_lstat, SYS_madvise,
    SYS_membarrier, SYS_mkdir, SYS_mkdirat, SYS_mmap, SYS_mount, SYS_mprotect, SYS_mremap, SYS_munmap, SYS_nanosleep,
    SYS_newfstatat, SYS_open, SYS_openat, SYS_pipe, SYS_pipe2, SYS_poll, SYS_ppoll, SYS_prctl, SYS_pread64,
    SYS_prlimit64, SYS_pselect6, SYS_ptrace, SYS_pwrite64, SYS_read, SYS_readlink, SYS_readlinkat, SYS_readv,
    SYS_rename, SYS_renameat, SYS_renameat2, SYS_restart_syscall, SYS_rmdir, SYS_rseq, SYS_rt_sigaction,
    SYS_rt_sigpending, SYS_rt_sigprocmask, SYS_rt_sigreturn, SYS_rt_sigsuspend, SYS_rt_sigtimedwait,
    SYS_sched_getaffinity, SYS_sched_yield, SYS_seccomp, SYS_select, SYS_set_robust_list, SYS_set_tid_address,
    SYS_sigaltstack, SYS_socket, SYS_socketpair, SYS_stat, SYS_statfs, SYS_statx, SYS_sysinfo, SYS_tgkill, SYS_time,
    SYS_timer_create, SYS_timer_delete, SYS_timer_getoverrun, SYS_timer_gettime, SYS_timer_settime, SYS_times,
    SYS_umask, SYS_uname, SYS_unlink, SYS_unlinkat, SYS_utimensat, SYS_vfork, SYS_wait4, SYS_write, SYS_writev,
};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    apply_filter,
};

/// What is allowed whatever its arguments are. Programs can be started, but there is none beside Ruby.
const ALLOWED: &[i64] = &[
    SYS_access,
    SYS_arch_prctl,
    SYS_brk,
    SYS_chdir,
    SYS_chmod,
    SYS_clock_getres,
    SYS_clock_gettime,
    SYS_clock_nanosleep,
    SYS_close,
    SYS_dup,
    SYS_dup2,
    SYS_dup3,
    SYS_epoll_create1,
    SYS_epoll_ctl,
    SYS_epoll_pwait,
    SYS_epoll_wait,
    SYS_eventfd2,
    SYS_execve,
    SYS_exit,
    SYS_exit_group,
    SYS_faccessat,
    SYS_faccessat2,
    SYS_fadvise64,
    SYS_fchmod,
    SYS_fcntl,
    SYS_fdatasync,
    SYS_flock,
    SYS_fstat,
    SYS_fstatfs,
    SYS_fsync,
    SYS_ftruncate,
    SYS_futex,
    SYS_getcwd,
    SYS_getdents64,
    SYS_getegid,
    SYS_geteuid,
    SYS_getgid,
    SYS_getgroups,
    SYS_getpgid,
    SYS_getpgrp,
    SYS_getpid,
    SYS_getppid,
    SYS_getrandom,
    SYS_getresgid,
    SYS_getresuid,
    SYS_getrusage,
    SYS_gettid,
    SYS_gettimeofday,
    SYS_getuid,
    SYS_ioctl,
    SYS_lseek,
    SYS_lstat,
    SYS_madvise,
    SYS_membarrier,
    SYS_mkdir,
    SYS_mkdirat,
    SYS_mmap,
    SYS_mprotect,
    SYS_mremap,
    SYS_munmap,
    SYS_nanosleep,
    SYS_newfstatat,
    SYS_open,
    SYS_openat,
    SYS_pipe,
    SYS_pipe2,
    SYS_poll,
    SYS_ppoll,
    SYS_pread64,
    SYS_prlimit64,
    SYS_pselect6,
    SYS_pwrite64,
    SYS_read,
    SYS_readlink,
    SYS_readlinkat,
    SYS_readv,
    SYS_rename,
    SYS_renameat,
    SYS_renameat2,
    SYS_restart_syscall,
    SYS_rmdir,
    SYS_rseq,
    SYS_rt_sigaction,
    SYS_rt_sigpending,
    SYS_rt_sigprocmask,
    SYS_rt_sigreturn,
    SYS_rt_sigsuspend,
    SYS_rt_sigtimedwait,
    SYS_sched_getaffinity,
    SYS_sched_yield,
    SYS_seccomp,
    SYS_select,
    SYS_set_robust_list,
    SYS_set_tid_address,
    SYS_sigaltstack,
    SYS_stat,
    SYS_statfs,
    SYS_statx,
    SYS_sysinfo,
    SYS_time,
    SYS_timer_create,
    SYS_timer_delete,
    SYS_timer_getoverrun,
    SYS_timer_gettime,
    SYS_timer_settime,
    SYS_times,
    SYS_umask,
    SYS_uname,
    SYS_unlink,
    SYS_unlinkat,
    SYS_utimensat,
    SYS_wait4,
    SYS_write,
    SYS_writev,
];

/// What templates might try: told that it is not permitted. For the rest, the kernel seems not to know it, so that libraries do
/// without.
const NOT_PERMITTED: &[i64] =
    &[SYS_bind, SYS_connect, SYS_fork, SYS_kill, SYS_mount, SYS_ptrace, SYS_socket, SYS_socketpair, SYS_vfork];

/// Of `prctl`: names of threads and of memory, and what the second filter needs. Not the signal with which this process ends with
/// its parent.
const PROCESS_CONTROL: [i32; 3] = [libc::PR_SET_NAME, libc::PR_SET_VMA, libc::PR_SET_NO_NEW_PRIVS];

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// Restricts this process and what it becomes, for ever.
pub(super) fn restrict() -> io::Result<()> {
    let own = u64::from(std::process::id());
    let thread = libc::CLONE_THREAD as u64;
    let mut allowed: Rules = ALLOWED.iter().map(|call| (*call, Vec::new())).collect();
    // A thread, and no process; a signal to one's own threads.
    allowed.insert(SYS_clone, vec![first_argument(SeccompCmpOp::MaskedEq(thread), thread)?]);
    allowed.insert(SYS_tgkill, vec![first_argument(SeccompCmpOp::Eq, own)?]);
    let control = PROCESS_CONTROL.iter().map(|what| first_argument(SeccompCmpOp::Eq, *what as u64));
    allowed.insert(SYS_prctl, control.collect::<io::Result<_>>()?);

    let mut not_permitted: Rules = NOT_PERMITTED.iter().map(|call| (*call, Vec::new())).collect();
    not_permitted.insert(SYS_clone, vec![first_argument(SeccompCmpOp::MaskedEq(thread), 0)?]);

    apply(allowed, refuse(libc::ENOSYS), SeccompAction::Allow)?;
    // Of two refusals, that of the later filter counts.
    apply(not_permitted, SeccompAction::Allow, refuse(libc::EPERM))
}

fn refuse(errno: i32) -> SeccompAction {
    SeccompAction::Errno(errno.unsigned_abs())
}

fn first_argument(operator: SeccompCmpOp, value: u64) -> io::Result<SeccompRule> {
    let condition = SeccompCondition::new(0, SeccompCmpArgLen::Dword, operator, value).map_err(io::Error::other)?;
    SeccompRule::new(vec![condition]).map_err(io::Error::other)
}

fn apply(rules: Rules, others: SeccompAction, listed: SeccompAction) -> io::Result<()> {
    let machine = ARCH.try_into().map_err(io::Error::other)?;
    let filter = SeccompFilter::new(rules, others, listed, machine).map_err(io::Error::other)?;
    let program: BpfProgram = filter.try_into().map_err(io::Error::other)?;
    apply_filter(&program).map_err(io::Error::other)
}
