//! One process of a CPI, from its start to its end.

use std::future::Future;
use std::io;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;
use windlass_durable::kill_point;
use windlass_durable::process::ProcessIdentity;

/// How long a process past its deadline may take to clean up after itself.
const GRACE: Duration = Duration::from_secs(2);

/// Longer lines of stderr are cut into pieces.
const LONGEST_LINE: usize = 64 * 1024;

/// What a process may take.
#[derive(Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) deadline: Duration,
    /// In bytes; more is not an answer but a runaway process.
    pub(crate) stdout: usize,
}

/// What a process left behind.
pub(crate) struct Output {
    /// All of stdout, or as much as came before the deadline, or one byte more than its limit.
    pub(crate) stdout: Vec<u8>,
    /// How the process ended, for people.
    pub(crate) ending: String,
    /// Whether it had to be killed.
    pub(crate) past_deadline: bool,
}

/// Why a process did not get its request.
pub(crate) enum NotSent {
    /// It did not start.
    Spawn(io::Error),
    /// Its caller could not record it.
    Recording(io::Error),
}

/// Starts `command`, lets the caller record it, gives it `request` and waits until it has closed stdout and stderr.
pub(crate) async fn run<R: Future<Output = io::Result<()>>>(
    mut command: Command,
    request: &[u8],
    limits: Limits,
    record: impl FnOnce(ProcessIdentity) -> R,
    stderr_line: impl FnMut(&str),
) -> Result<Output, NotSent> {
    kill_point("before the CPI is started");
    let mut child = command.spawn().map_err(NotSent::Spawn)?;
    // Declared after the child, so dropped before it: the group is signalled while its leader is not reaped yet and
    // its number cannot belong to anybody else.
    let mut group = Group { leader: child.id().and_then(|pid| Pid::from_raw(pid as i32)) };
    let identity = child.id().map_or_else(|| Err(io::Error::other("it is gone")), ProcessIdentity::of);
    let recorded = match identity {
        Ok(identity) => record(identity).await,
        Err(error) => Err(error),
    };
    if let Err(error) = recorded {
        group.kill();
        let _ = child.wait().await;
        return Err(NotSent::Recording(error));
    }
    kill_point("before the CPI gets its request");
    Ok(converse(&mut child, &mut group, request, limits, stderr_line).await)
}

async fn converse(
    child: &mut Child,
    group: &mut Group,
    request: &[u8],
    Limits { deadline, stdout: longest }: Limits,
    stderr_line: impl FnMut(&str),
) -> Output {
    let started = Instant::now();
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let mut answer = Vec::new();
    let conversation = async {
        let write = async {
            if let Some(mut stdin) = stdin {
                // A CPI may answer without reading its request: only the answer counts.
                let _ = stdin.write_all(request).await;
            }
        };
        let read = async {
            if let Some(stdout) = stdout {
                let _ = stdout.take(longest as u64 + 1).read_to_end(&mut answer).await;
            }
        };
        let listen = async {
            if let Some(stderr) = stderr {
                read_lines(stderr, stderr_line).await;
            }
        };
        tokio::join!(write, read, listen);
    };
    let past_deadline = {
        let mut conversation = std::pin::pin!(conversation);
        let in_time = timeout(deadline, &mut conversation).await.is_ok();
        if !in_time {
            group.signal(Signal::TERM);
            let obeyed = timeout(GRACE, &mut conversation).await.is_ok();
            group.signal(Signal::KILL);
            if !obeyed {
                let _ = timeout(GRACE, &mut conversation).await;
            }
        }
        !in_time
    };
    kill_point("after the CPI's answer");
    // Both streams are closed, so the process has ended or is about to. One that goes on has its deadline, too.
    let patience = deadline.saturating_sub(started.elapsed()).max(GRACE);
    let ending = match timeout(patience, child.wait()).await {
        Ok(Ok(status)) => status.to_string(),
        Ok(Err(error)) => error.to_string(),
        Err(_) => {
            group.kill();
            let _ = child.wait().await;
            "killed, because it went on after closing stdout and stderr".to_owned()
        }
    };
    group.release();
    Output { stdout: answer, ending, past_deadline }
}

async fn read_lines(stream: impl AsyncRead + Unpin, mut line: impl FnMut(&str)) {
    let mut reader = BufReader::new(stream);
    let mut bytes = Vec::new();
    loop {
        let mut piece = (&mut reader).take((LONGEST_LINE - bytes.len()) as u64);
        let read = piece.read_until(b'\n', &mut bytes).await.unwrap_or(0);
        let complete = bytes.ends_with(b"\n") || bytes.len() >= LONGEST_LINE || read == 0;
        if complete && !bytes.is_empty() {
            line(String::from_utf8_lossy(&bytes).trim_end_matches(['\n', '\r']));
            bytes.clear();
        }
        if read == 0 {
            return;
        }
    }
}

/// The process group of a CPI. Dropped before its release, it is killed: a call that nobody waits for any more must not
/// go on unseen.
struct Group {
    leader: Option<Pid>,
}

impl Group {
    fn signal(&self, signal: Signal) {
        if let Some(leader) = self.leader {
            let _ = kill_process_group(leader, signal);
        }
    }

    fn kill(&mut self) {
        self.signal(Signal::KILL);
        self.release();
    }

    /// Leaves whatever still runs in the group alone: it detached from the CPI's streams on purpose.
    fn release(&mut self) {
        self.leader = None;
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
    }
}
