//! A way into a VM through its agent, for VMs without an ssh server: what somebody wants there, and the frames in which the
//! work's input and output travel between a client, the director and the agent.
//!
//! A client sends [`Frame::Begin`] first, then input for as long as the work takes. The agent answers with output, and last with
//! [`Frame::Ended`]. Each side says [`Frame::Alive`] while it has nothing else to say, so that a side that is lost is noticed. No
//! more than [`INPUT_WINDOW`] bytes of input are under way: the agent says with [`Frame::Taken`] what the work took of it. So
//! an agent keeps that much at most, and still hears [`Frame::Interrupt`] while the work reads nothing.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// How many bytes one frame carries at most.
pub const LARGEST: usize = 64 * 1024;
/// How many bytes of input may be under way.
pub const INPUT_WINDOW: usize = 256 * 1024;
/// How often each side says that it is alive.
pub const ALIVE_EVERY: Duration = Duration::from_secs(15);
/// How long a side that says nothing is waited for.
pub const SILENCE: Duration = Duration::from_secs(60);

/// The path at which agents of ours take it.
pub const AGENT_PATH: &str = "/windlass/way-in";

/// What somebody wants to do in a VM.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WayIn {
    /// As root, and not as the user of jobs.
    #[serde(default)]
    pub root: bool,
    pub work: Work,
}

/// Some work in a VM.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Work {
    /// Run a program with arguments. No shell is between.
    Run {
        /// The program, and its arguments.
        command: Vec<String>,
    },
    /// The same on a terminal: output and errors are one, and what is typed is for the program to read.
    Terminal {
        /// The program, and its arguments.
        command: Vec<String>,
        /// How large the terminal is.
        size: Size,
        /// What kind of terminal it is, such as `xterm`.
        kind: String,
    },
    /// Pack a file, or a folder with all that is in it, and give it as a tar archive.
    Send {
        /// What to pack. Relative paths begin in the user's home.
        path: String,
        /// Folders too.
        recursive: bool,
    },
    /// Unpack the tar archive that comes as input.
    Receive {
        /// Where to: into a folder that is there, or under this name.
        path: String,
    },
    /// Show the ends of logs, and what is added to them.
    Logs(Logs),
}

/// How large a terminal is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Size {
    /// Letters in a line.
    pub columns: u16,
    /// Lines.
    pub rows: u16,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Logs {
    /// Those of jobs.
    pub of_jobs: bool,
    /// Of jobs, only these.
    pub jobs: Vec<String>,
    /// Of jobs, only files that match one of these patterns.
    pub filters: Vec<String>,
    pub agent: bool,
    pub system: bool,
    /// How many lines of each file there are to be shown first.
    pub lines: u32,
    /// Go on with what is added.
    pub follow: bool,
    /// Do not name the files.
    pub quiet: bool,
}

impl Work {
    /// For events: what is done, and to what; never what a program is told, which may be a secret.
    pub fn describe(&self) -> (&'static str, String) {
        match self {
            Self::Run { command } | Self::Terminal { command, .. } => {
                ("exec", command.first().cloned().unwrap_or_default())
            }
            Self::Send { path, .. } => ("copy from", path.clone()),
            Self::Receive { path } => ("copy to", path.clone()),
            Self::Logs(logs) => ("follow logs", logs.jobs.join(",")),
        }
    }
}

/// A part of the conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame {
    /// JSON of a [`WayIn`].
    Begin(Vec<u8>),
    /// Input of the work.
    Input(Vec<u8>),
    /// There is no more input.
    InputEnd,
    /// As Ctrl-C does.
    Interrupt,
    /// The sender is still there.
    Alive,
    /// What the work wrote.
    Output(Vec<u8>),
    /// What it wrote about mistakes.
    Errors(Vec<u8>),
    /// So many bytes of input were taken.
    Taken(u32),
    /// The work has ended with this exit code; a signal counts as 128 and its number.
    Ended(i32),
    /// The conversation cannot go on, for this reason.
    Broken(String),
    /// The terminal has another size now.
    Resize(Size),
}

/// why something is no conversation of this kind
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// no such frame is known
    #[error("a frame of the unknown kind {0}")]
    Kind(u8),
    /// the frame is too large
    #[error("a frame of {0} bytes; {LARGEST} are the most")]
    Size(usize),
    /// it does not have what it should have
    #[error("a frame of kind {0} whose content is not what it should be")]
    Content(u8),
}

const HEAD: usize = 5;

impl Frame {
    fn kind(&self) -> u8 {
        match self {
            Self::Begin(_) => 0,
            Self::Input(_) => 1,
            Self::InputEnd => 2,
            Self::Interrupt => 3,
            Self::Alive => 4,
            Self::Output(_) => 5,
            Self::Errors(_) => 6,
            Self::Taken(_) => 7,
            Self::Ended(_) => 8,
            Self::Broken(_) => 9,
            Self::Resize(_) => 10,
        }
    }

    /// As it travels: a kind, a length, and the content. What is larger than a frame can be is cut off there; those who send
    /// input or output read no more than [`LARGEST`] at once.
    pub fn encode(&self) -> Vec<u8> {
        let (taken, ended, size);
        let content: &[u8] = match self {
            Self::Begin(content) | Self::Input(content) | Self::Output(content) | Self::Errors(content) => content,
            Self::InputEnd | Self::Interrupt | Self::Alive => &[],
            Self::Taken(bytes) => {
                taken = bytes.to_be_bytes();
                &taken
            }
            Self::Ended(code) => {
                ended = code.to_be_bytes();
                &ended
            }
            Self::Broken(why) => why.as_bytes(),
            Self::Resize(Size { columns, rows }) => {
                size = [columns.to_be_bytes(), rows.to_be_bytes()];
                size.as_flattened()
            }
        };
        let content = &content[..content.len().min(LARGEST)];
        let mut bytes = Vec::with_capacity(HEAD + content.len());
        bytes.push(self.kind());
        // LARGEST fits.
        bytes.extend_from_slice(&(content.len() as u32).to_be_bytes());
        bytes.extend_from_slice(content);
        bytes
    }

    fn decode(kind: u8, content: &[u8]) -> Result<Self, FrameError> {
        let odd = |_| FrameError::Content(kind);
        let number = || <[u8; 4]>::try_from(content).map_err(odd);
        let nothing = |frame| if content.is_empty() { Ok(frame) } else { Err(FrameError::Content(kind)) };
        match kind {
            0 => Ok(Self::Begin(content.to_vec())),
            1 => Ok(Self::Input(content.to_vec())),
            2 => nothing(Self::InputEnd),
            3 => nothing(Self::Interrupt),
            4 => nothing(Self::Alive),
            5 => Ok(Self::Output(content.to_vec())),
            6 => Ok(Self::Errors(content.to_vec())),
            7 => Ok(Self::Taken(u32::from_be_bytes(number()?))),
            8 => Ok(Self::Ended(i32::from_be_bytes(number()?))),
            9 => Ok(Self::Broken(String::from_utf8_lossy(content).into_owned())),
            10 => {
                let [a, b, c, d] = number()?;
                Ok(Self::Resize(Size { columns: u16::from_be_bytes([a, b]), rows: u16::from_be_bytes([c, d]) }))
            }
            kind => Err(FrameError::Kind(kind)),
        }
    }
}

/// Frames out of bytes, however those are cut.
#[derive(Debug, Default)]
pub struct Frames {
    bytes: Vec<u8>,
    read: usize,
}

impl Frames {
    /// Adds bytes that came. The caller takes all frames before it adds more, so that no more than one is kept.
    pub fn add(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.read);
        self.read = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// What came after the frames that were taken.
    pub fn rest(self) -> Vec<u8> {
        self.bytes.get(self.read..).unwrap_or_default().to_vec()
    }

    /// The next frame, if all of it is there.
    pub fn take(&mut self) -> Result<Option<Frame>, FrameError> {
        let rest = &self.bytes[self.read..];
        let Some((head, rest)) = rest.split_first_chunk::<HEAD>() else { return Ok(None) };
        let [kind, length @ ..] = *head;
        let length = u32::from_be_bytes(length) as usize;
        if length > LARGEST {
            return Err(FrameError::Size(length));
        }
        let Some(content) = rest.get(..length) else { return Ok(None) };
        let frame = Frame::decode(kind, content)?;
        self.read += HEAD + length;
        Ok(Some(frame))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frame() -> impl Strategy<Value = Frame> {
        let bytes = || proptest::collection::vec(any::<u8>(), 0..300);
        prop_oneof![
            bytes().prop_map(Frame::Begin),
            bytes().prop_map(Frame::Input),
            Just(Frame::InputEnd),
            Just(Frame::Interrupt),
            Just(Frame::Alive),
            bytes().prop_map(Frame::Output),
            bytes().prop_map(Frame::Errors),
            any::<u32>().prop_map(Frame::Taken),
            any::<i32>().prop_map(Frame::Ended),
            ".{0,20}".prop_map(Frame::Broken),
            any::<(u16, u16)>().prop_map(|(columns, rows)| Frame::Resize(Size { columns, rows })),
        ]
    }

    proptest! {
        #[test]
        fn frames_come_as_they_were_sent_however_they_are_cut(
            sent in proptest::collection::vec(frame(), 0..8), cut in 1usize..50,
        ) {
            let bytes: Vec<u8> = sent.iter().flat_map(Frame::encode).collect();
            let (mut frames, mut came) = (Frames::default(), Vec::new());
            for part in bytes.chunks(cut) {
                frames.add(part);
                while let Some(frame) = frames.take().unwrap() {
                    came.push(frame);
                }
            }
            prop_assert_eq!(came, sent);
        }

        /// A VM may send anything: it is refused, or it is a frame, and never more is kept than one.
        #[test]
        fn nothing_that_comes_makes_it_fail_or_grow(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let mut frames = Frames::default();
            for part in bytes.chunks(7) {
                frames.add(part);
                while let Ok(Some(_)) = frames.take() {}
                if frames.take().is_err() {
                    break;
                }
            }
        }
    }

    #[test]
    fn a_frame_that_announces_gigabytes_is_refused_before_they_come() {
        let mut frames = Frames::default();
        frames.add(&[5, 0xff, 0xff, 0xff, 0xff]);
        assert_eq!(frames.take(), Err(FrameError::Size(0xffff_ffff)));
        assert_eq!(Frame::Output(vec![0; LARGEST + 1]).encode().len(), HEAD + LARGEST);
    }

    #[test]
    fn events_name_the_program_and_not_what_it_is_told() {
        let command = ["mysql", "-psecret"].map(str::to_owned).to_vec();
        assert_eq!(Work::Run { command }.describe(), ("exec", "mysql".to_owned()));
    }
}
