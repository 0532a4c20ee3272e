//! Attends to a process that somebody started: input goes in, output comes out, and it ends when nobody is there any more.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::process::Child;
use tokio::sync::{mpsc, watch};
use tokio::time::{MissedTickBehavior, interval};
use windlass_contract::way_in::{ALIVE_EVERY, Frame, INPUT_WINDOW};
use windlass_durable::process::ProcessIdentity;

use super::Incoming;
use super::terminal::Terminal;
use super::work::StartedWork;
use crate::scripts::process::{signal_each, started_apart};

/// How much is read at once.
const PART: usize = 32 * 1024;
/// How long a process may take to end once nobody is there any more.
const GRACE: Duration = Duration::from_secs(5);
/// How long to read on, when a process has ended, from what it left behind with its output.
const LINGER: Duration = Duration::from_millis(500);

/// The key that ends the input of a terminal.
const CTRL_D: &[u8] = &[4];

/// Until the process ends, or its client goes.
pub(super) async fn attend(started: StartedWork, mut incoming: Incoming, output: mpsc::Sender<Bytes>) {
    let StartedWork { mut child, terminal } = started;
    let (over, ended) = watch::channel(false);
    let stdout = child.stdout.take().map(|stream| pass_on(stream, Frame::Output, output.clone(), ended.clone()));
    let stderr = child.stderr.take().map(|stream| pass_on(stream, Frame::Errors, output.clone(), ended.clone()));
    let (screen, keys, terminal) = match terminal.map(Terminal::taken_apart) {
        Some((screen, keys, resizing)) => (Some(screen), Some(keys), Some(resizing)),
        None => (None, None, None),
    };
    let screen = screen.map(|stream| pass_on(stream, Frame::Output, output.clone(), ended.clone()));
    let readers = tokio::spawn(async { tokio::join!(all(stdout), all(stderr), all(screen)) });
    let mut input = match keys {
        Some(keys) => Input::new(Some(Box::new(keys)), CTRL_D, output.clone()),
        None => Input::new(child.stdin.take().map(|stdin| Box::new(stdin) as _), &[], output.clone()),
    };
    let mut ticks = interval(ALIVE_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let status = loop {
        tokio::select! {
            ended = child.wait() => break ended.ok(),
            frame = incoming.next() => {
                let goes_on = match frame {
                    Ok(Some(Frame::Input(bytes))) => input.add(bytes),
                    Ok(Some(Frame::InputEnd)) => {
                        input.end();
                        true
                    }
                    Ok(Some(Frame::Interrupt)) => {
                        signal(&child, Signal::INT);
                        true
                    }
                    Ok(Some(Frame::Resize(size))) => {
                        terminal.iter().for_each(|terminal| terminal.resize(size));
                        true
                    }
                    Ok(Some(Frame::Alive)) => true,
                    _ => false,
                };
                if !goes_on {
                    break None;
                }
            }
            () = output.closed() => break None,
            // A client that does not take what is there already need not hear it.
            _ = ticks.tick() => drop(output.try_send(Frame::Alive.encode().into())),
        }
    };
    let Some(status) = status else {
        readers.abort();
        if terminal.is_some() {
            // Shells ignore requests to end, and not the loss of their terminal.
            signal(&child, Signal::HUP);
        }
        end(child).await;
        return;
    };
    let _ = over.send(true);
    tokio::select! {
        _ = readers => {}
        () = output.closed() => return,
        () = gone(&mut incoming) => return,
    }
    let _ = output.send(Frame::Ended(code(status)).encode().into()).await;
}

async fn all(reader: Option<impl Future<Output = ()>>) {
    if let Some(reader) = reader {
        reader.await;
    }
}

/// Until the caller breaks off.
async fn gone(incoming: &mut Incoming) {
    while let Ok(Some(_)) = incoming.next().await {}
}

/// Its exit code, or, as shells have it, 128 and the signal that ended it.
fn code(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default())
}

fn signal(child: &Child, signal: Signal) {
    // It has no id once it was waited for, and then its group may be somebody else's.
    let pid = child.id().and_then(|pid| Pid::from_raw(pid.cast_signed()));
    if let Some(pid) = pid {
        let _ = kill_process_group(pid, signal);
    }
}

/// Ends it and what it started, also in other groups: with a request, and after a while without one.
async fn end(mut child: Child) {
    let Some(pid) = child.id() else { return };
    // A process that has ended has no children any more, so they are listed before.
    let apart = tokio::task::spawn_blocking(move || ProcessIdentity::of(pid).and_then(started_apart));
    let apart = apart.await.ok().and_then(Result::ok).unwrap_or_default();
    signal(&child, Signal::TERM);
    signal_each(&apart, Signal::TERM);
    // Not waited for, so that its group stays its own until the last signal.
    let deadline = tokio::time::Instant::now() + GRACE;
    let has_ended = || {
        let (pid, options) = (Pid::from_raw(pid.cast_signed()), rustix::process::WaitIdOptions::EXITED);
        let options = options | rustix::process::WaitIdOptions::NOHANG | rustix::process::WaitIdOptions::NOWAIT;
        pid.is_none_or(|pid| !matches!(rustix::process::waitid(rustix::process::WaitId::Pid(pid), options), Ok(None)))
    };
    while !has_ended() && tokio::time::Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    signal(&child, Signal::KILL);
    signal_each(&apart, Signal::KILL);
    let _ = child.wait().await;
}

/// Sends what a process writes, for as long as somebody takes it. What it leaves behind when it ends may keep its output
/// open for ever, so then only what comes soon is read.
async fn pass_on(
    mut stream: impl AsyncRead + Unpin,
    frame: fn(Vec<u8>) -> Frame,
    output: mpsc::Sender<Bytes>,
    mut ended: watch::Receiver<bool>,
) {
    let mut part = vec![0; PART];
    loop {
        let read = tokio::select! {
            read = stream.read(&mut part) => read,
            () = lingered(&mut ended) => return,
        };
        match read {
            Ok(0) | Err(_) => return,
            Ok(length) => {
                if output.send(frame(part[..length].to_vec()).encode().into()).await.is_err() {
                    return;
                }
            }
        }
    }
}

async fn lingered(ended: &mut watch::Receiver<bool>) {
    let _ = ended.wait_for(|ended| *ended).await;
    tokio::time::sleep(LINGER).await;
}

/// What goes in: so much as a caller may send before it was taken is kept, and the rest is refused.
struct Input {
    parts: Option<mpsc::UnboundedSender<Vec<u8>>>,
    untaken: Arc<AtomicUsize>,
    writer: tokio::task::AbortHandle,
}

impl Drop for Input {
    /// What a process left behind may keep its input open and read nothing of it.
    fn drop(&mut self) {
        self.writer.abort();
    }
}

impl Input {
    /// `last` is written when there is no more.
    fn new(
        stdin: Option<Box<dyn AsyncWrite + Send + Unpin>>,
        last: &'static [u8],
        output: mpsc::Sender<Bytes>,
    ) -> Self {
        let (parts, mut waiting) = mpsc::unbounded_channel::<Vec<u8>>();
        let untaken = Arc::new(AtomicUsize::new(0));
        let count = untaken.clone();
        let writer = tokio::spawn(async move {
            let mut stdin = stdin;
            while let Some(part) = waiting.recv().await {
                let written = match &mut stdin {
                    Some(stdin) => stdin.write_all(&part).await,
                    None => Ok(()),
                };
                if written.is_err() {
                    // It reads no more. What still comes counts as taken: many programs read as much as they want.
                    stdin = None;
                }
                count.fetch_sub(part.len(), Ordering::Relaxed);
                let taken = Frame::Taken(u32::try_from(part.len()).unwrap_or(u32::MAX));
                if output.send(taken.encode().into()).await.is_err() {
                    return;
                }
            }
            if let Some(stdin) = &mut stdin {
                let _ = stdin.write_all(last).await;
            }
        });
        Self { parts: Some(parts), untaken, writer: writer.abort_handle() }
    }

    /// Whether there was room.
    fn add(&mut self, bytes: Vec<u8>) -> bool {
        let length = bytes.len();
        if length == 0 {
            return true;
        }
        if self.untaken.fetch_add(length, Ordering::Relaxed) + length > INPUT_WINDOW {
            return false;
        }
        self.parts.as_ref().is_some_and(|parts| parts.send(bytes).is_ok())
    }

    fn end(&mut self) {
        self.parts = None;
    }
}
