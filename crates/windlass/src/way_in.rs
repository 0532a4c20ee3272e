//! Being on instances through their agents: work is begun there, its output comes as it is written, and it ends with this
//! program. What an instance says is output or an end, and nothing else: where one goes, the director alone knows.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use futures_util::stream;
use reqwest::{Body, StatusCode};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::JoinHandle;
use windlass_contract::way_in::{ALIVE_EVERY, Frame, Frames, INPUT_WINDOW, LARGEST, Size, WayIn};
use windlass_director_client::{ClientError, DirectorClient, escape};

use crate::chosen_instances::chosen;
use crate::cli::Selection;
use crate::failure::Failure;
use crate::screen::Screen;
use crate::session::Session;

/// How much output waits for a reader.
const WAITING: usize = 4;
/// Longer lines are shown in parts: a host that never ends one is not kept in memory.
const LONGEST_LINE: usize = 64 * 1024;

/// An instance with a VM.
#[derive(Debug, Clone)]
pub(crate) struct VisitedInstance {
    pub(crate) group: String,
    pub(crate) id: String,
}

impl VisitedInstance {
    pub(crate) fn name(&self) -> String {
        format!("{}/{}", self.group, self.id)
    }
}

/// What work writes.
#[derive(Debug)]
pub(crate) enum WorkOutput {
    Output(Vec<u8>),
    Errors(Vec<u8>),
}

/// why nobody knows how work ended
#[derive(Debug)]
pub(crate) enum Lost {
    Director(ClientError),
    Broken(String),
    Interrupted,
}

impl Lost {
    /// Whether the agent knows no way in but ssh.
    pub(crate) fn needs_ssh(&self) -> bool {
        matches!(self, Self::Director(error) if error.status() == Some(StatusCode::NOT_ACCEPTABLE))
    }

    pub(crate) fn at(self, place: &VisitedInstance) -> Failure {
        let instance = place.name();
        match self {
            Self::Director(source) => Failure::Director { doing: format!("working on '{instance}'"), source },
            Self::Broken(why) => Failure::WayInBroken { instance, why },
            Self::Interrupted => Failure::WayInInterrupted,
        }
    }
}

/// The instances that are selected and have VMs.
pub(crate) async fn places(
    session: &mut Session<'_>,
    deployment: &str,
    selection: Option<&Selection>,
) -> Result<Vec<VisitedInstance>, Failure> {
    let meant = chosen(session, deployment, selection).await?.into_iter().filter(|one| one.has_vm);
    let places: Vec<VisitedInstance> = meant.map(|one| VisitedInstance { group: one.group, id: one.id }).collect();
    match places.is_empty() {
        true => Err(Failure::NoInstanceWithVm(selection.map_or_else(|| "*".to_owned(), Selection::to_string))),
        false => Ok(places),
    }
}

/// How often Ctrl-C came.
pub(crate) fn interrupts() -> watch::Receiver<u32> {
    let (told, heard) = watch::channel(0);
    if let Ok(mut interrupts) = signal(SignalKind::interrupt()) {
        tokio::spawn(async move {
            while interrupts.recv().await.is_some() {
                told.send_modify(|times| *times += 1);
            }
        });
    }
    heard
}

/// Work on an instance, under way.
pub(crate) struct RunningWork {
    pub(crate) said: mpsc::Receiver<WorkOutput>,
    /// Gone when the work has ended.
    frames: mpsc::WeakSender<Frame>,
    end: JoinHandle<Result<i32, Lost>>,
}

impl RunningWork {
    /// Begins it. It hears Ctrl-C once as one that it may handle; the second breaks off.
    pub(crate) fn begin(
        director: &DirectorClient,
        deployment: &str,
        place: &VisitedInstance,
        wanted: &WayIn,
        input: Option<mpsc::Receiver<Vec<u8>>>,
        mut interrupts: watch::Receiver<u32>,
    ) -> Self {
        let (group, id) = (escape(&place.group), escape(&place.id));
        let path = format!("/windlass/deployments/{}/instances/{group}/{id}/way-in", escape(deployment));
        let begin = Frame::Begin(serde_json::to_vec(wanted).unwrap_or_default());
        let (director, (saying, said)) = (director.twin(), mpsc::channel(WAITING));
        let (frames, sent) = mpsc::channel::<Frame>(WAITING);
        let (interrupting, weak) = (frames.clone(), frames.downgrade());
        let end = tokio::spawn(converse(director, path, begin, (frames, sent), input, saying));
        let abort = end.abort_handle();
        tokio::spawn(async move {
            for time in 0.. {
                if interrupts.changed().await.is_err() {
                    return;
                }
                match time {
                    0 => drop(interrupting.send(Frame::Interrupt).await),
                    _ => abort.abort(),
                }
            }
        });
        let end = tokio::spawn(async move { end.await.unwrap_or(Err(Lost::Interrupted)) });
        Self { said, frames: weak, end }
    }

    /// From now on the work hears of each size of the terminal.
    pub(crate) fn resized(&self, mut sizes: watch::Receiver<Size>) {
        let frames = self.frames.clone();
        tokio::spawn(async move {
            while sizes.changed().await.is_ok() {
                let size = *sizes.borrow_and_update();
                let Some(frames) = frames.upgrade() else { return };
                if frames.send(Frame::Resize(size)).await.is_err() {
                    return;
                }
            }
        });
    }

    /// How it ended: its exit code. What it wrote is read before.
    pub(crate) async fn end(self) -> Result<i32, Lost> {
        drop(self.said);
        self.end.await.unwrap_or(Err(Lost::Interrupted))
    }
}

/// The bytes of input that are under way.
#[derive(Debug)]
struct Window {
    left: Semaphore,
    under_way: AtomicUsize,
}

impl Window {
    async fn enter(&self, bytes: usize) {
        // It is never closed, and no part is larger than a frame.
        if let Ok(permit) = self.left.acquire_many(u32::try_from(bytes).unwrap_or(u32::MAX)).await {
            permit.forget();
            self.under_way.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// An agent may say anything of what it took; no more than was sent is believed.
    fn taken(&self, bytes: u32) {
        let bytes = bytes as usize;
        let before =
            self.under_way.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |now| Some(now.saturating_sub(bytes)));
        self.left.add_permits(before.unwrap_or(0).min(bytes));
    }
}

async fn converse(
    director: DirectorClient,
    path: String,
    begin: Frame,
    (frames, sent): (mpsc::Sender<Frame>, mpsc::Receiver<Frame>),
    input: Option<mpsc::Receiver<Vec<u8>>>,
    said: mpsc::Sender<WorkOutput>,
) -> Result<i32, Lost> {
    let window = Arc::new(Window { left: Semaphore::new(INPUT_WINDOW), under_way: AtomicUsize::new(0) });
    // Their ends are the conversation's, whatever they wait for.
    let _beside = Beside(vec![
        tokio::spawn(send_input(input, window.clone(), frames.clone())).abort_handle(),
        tokio::spawn(say_alive(frames)).abort_handle(),
    ]);
    let body = stream::unfold((Some(begin), sent), async |(begin, mut sent)| {
        let frame = match begin {
            Some(begin) => begin,
            None => sent.recv().await?,
        };
        Some((Ok::<_, io::Error>(Bytes::from(frame.encode())), (None, sent)))
    });
    let mut response = director.stream(&path, Body::wrap_stream(body)).await.map_err(Lost::Director)?;
    let mut frames = Frames::default();
    loop {
        while let Some(frame) = frames.take().map_err(|error| Lost::Broken(error.to_string()))? {
            match frame {
                Frame::Output(bytes) => drop(said.send(WorkOutput::Output(bytes)).await),
                Frame::Errors(bytes) => drop(said.send(WorkOutput::Errors(bytes)).await),
                Frame::Taken(bytes) => window.taken(bytes),
                Frame::Alive => {}
                Frame::Ended(code) => return Ok(code),
                Frame::Broken(why) => return Err(Lost::Broken(why)),
                _ => return Err(Lost::Broken("it said what only clients say".to_owned())),
            }
        }
        match response.chunk().await {
            Ok(Some(part)) => frames.add(&part),
            Ok(None) => return Err(Lost::Broken("the director broke off".to_owned())),
            Err(error) => return Err(Lost::Broken(windlass_contract::explain(&error))),
        }
    }
}

struct Beside(Vec<tokio::task::AbortHandle>);

impl Drop for Beside {
    fn drop(&mut self) {
        self.0.iter().for_each(tokio::task::AbortHandle::abort);
    }
}

async fn send_input(input: Option<mpsc::Receiver<Vec<u8>>>, window: Arc<Window>, frames: mpsc::Sender<Frame>) {
    if let Some(mut input) = input {
        while let Some(bytes) = input.recv().await {
            for part in bytes.chunks(LARGEST) {
                window.enter(part.len()).await;
                if frames.send(Frame::Input(part.to_vec())).await.is_err() {
                    return;
                }
            }
        }
    }
    let _ = frames.send(Frame::InputEnd).await;
}

async fn say_alive(frames: mpsc::Sender<Frame>) {
    loop {
        tokio::time::sleep(ALIVE_EVERY).await;
        if frames.send(Frame::Alive).await.is_err() {
            return;
        }
    }
}

/// What comes in on the standard input. The thread that waits for it ends with the program.
pub(crate) fn standard_input() -> mpsc::Receiver<Vec<u8>> {
    let (sender, input) = mpsc::channel(1);
    std::thread::spawn(move || {
        let mut part = vec![0; 16 * 1024];
        while let Ok(read @ 1..) = io::stdin().lock().read(&mut part) {
            if sender.blocking_send(part[..read].to_vec()).is_err() {
                return;
            }
        }
    });
    input
}

/// Input that somebody writes.
pub(crate) struct InputWriter(pub(crate) mpsc::Sender<Vec<u8>>);

impl Write for InputWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let part = &bytes[..bytes.len().min(LARGEST)];
        self.0.blocking_send(part.to_vec()).map_err(|_| io::ErrorKind::BrokenPipe)?;
        Ok(part.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Output that somebody reads.
pub(crate) struct OutputReader {
    parts: mpsc::Receiver<Vec<u8>>,
    part: VecDeque<u8>,
}

impl OutputReader {
    pub(crate) fn new(parts: mpsc::Receiver<Vec<u8>>) -> Self {
        Self { parts, part: VecDeque::new() }
    }
}

impl Read for OutputReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.part.is_empty() {
            match self.parts.blocking_recv() {
                Some(part) => self.part = part.into(),
                None => return Ok(0),
            }
        }
        self.part.read(buffer)
    }
}

/// Output in lines, each with the name of its instance, as BOSH shows it.
#[derive(Debug, Default)]
pub(crate) struct NamedLines {
    output: Vec<u8>,
    errors: Vec<u8>,
}

impl NamedLines {
    pub(crate) fn show(&mut self, screen: &mut Screen, name: &str, said: WorkOutput) {
        let (kept, kind, bytes) = match said {
            WorkOutput::Output(bytes) => (&mut self.output, "stdout", bytes),
            WorkOutput::Errors(bytes) => (&mut self.errors, "stderr", bytes),
        };
        kept.extend_from_slice(&bytes);
        let mut rest = kept.as_slice();
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            line(screen, name, kind, &rest[..end]);
            rest = &rest[end + 1..];
        }
        if rest.len() > LONGEST_LINE {
            line(screen, name, kind, rest);
            rest = &[];
        }
        *kept = rest.to_vec();
    }

    /// What did not end with a line.
    pub(crate) fn end(self, screen: &mut Screen, name: &str) {
        for (kept, kind) in [(self.output, "stdout"), (self.errors, "stderr")] {
            if !kept.is_empty() {
                line(screen, name, kind, &kept);
            }
        }
    }
}

fn line(screen: &mut Screen, name: &str, kind: &str, text: &[u8]) {
    let text = String::from_utf8_lossy(text);
    screen.piece(&format!("{name}: {kind} | {}\n", text.trim_end_matches('\r')));
}

/// Does the same on several instances at once, and shows what they say as it comes. Fails if one of them does.
pub(crate) async fn on_each(
    screen: &mut Screen,
    director: &DirectorClient,
    deployment: &str,
    places: &[VisitedInstance],
    wanted: &WayIn,
) -> Result<(), (usize, Lost)> {
    let interrupts = interrupts();
    let (shared, mut all) = mpsc::channel(WAITING);
    let mut ends = Vec::new();
    for (number, place) in places.iter().enumerate() {
        let mut work = RunningWork::begin(director, deployment, place, wanted, None, interrupts.clone());
        let shared = shared.clone();
        ends.push(tokio::spawn(async move {
            while let Some(said) = work.said.recv().await {
                if shared.send((number, said)).await.is_err() {
                    break;
                }
            }
            work.end().await
        }));
    }
    drop(shared);
    let mut lines: Vec<NamedLines> = places.iter().map(|_| NamedLines::default()).collect();
    while let Some((number, said)) = all.recv().await {
        lines[number].show(screen, &places[number].name(), said);
        if screen.is_broken() {
            // Nobody reads it any more, as behind `head`.
            return Ok(());
        }
    }
    for (place, lines) in places.iter().zip(lines) {
        lines.end(screen, &place.name());
    }
    if *interrupts.borrow() > 0 {
        return Err((0, Lost::Interrupted));
    }
    let mut failed = 0;
    for (number, end) in ends.into_iter().enumerate() {
        match end.await.unwrap_or(Err(Lost::Interrupted)) {
            Ok(0) => {}
            Ok(_) => failed += 1,
            Err(lost) => return Err((number, lost)),
        }
    }
    screen.end_with(u8::from(failed > 0));
    if failed > 0 {
        screen.warning(&format!("the command failed on {failed} of {} instances", places.len()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An agent that says that it took more than it got would let the input grow without bounds, or panic the client.
    #[tokio::test]
    async fn no_more_input_is_believed_to_be_taken_than_was_sent() {
        let window = Window { left: Semaphore::new(INPUT_WINDOW), under_way: AtomicUsize::new(0) };
        window.enter(1000).await;
        for _ in 0..10 {
            window.taken(u32::MAX);
        }
        assert_eq!(window.left.available_permits(), INPUT_WINDOW);
        window.enter(INPUT_WINDOW).await;
        let more = tokio::time::timeout(std::time::Duration::from_millis(20), window.enter(1)).await;
        assert!(more.is_err(), "there is no room until something was taken");
    }
}
