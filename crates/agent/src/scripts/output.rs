//! What a script writes, however much it is: its beginning and its end are kept.

use std::collections::VecDeque;
use std::io::{self, Read};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How many bytes of the beginning are kept, and as many of the end.
const HALF: usize = 240 * 1024;

/// How long the text of a stream may be in JSON: with both streams, an answer has less than the MiB that callers take.
const LONGEST: usize = 2 * HALF;

/// What stands for what was left out, in the original's words for long messages.
const CUT: &str = "\n...[truncated]...\n";

/// How long a stream is waited for whose script has ended: what it left running may hold it for ever.
const LINGER: Duration = Duration::from_secs(2);

/// A stream that is read until its end by a thread of its own, so that nobody who writes ever waits.
#[derive(Debug)]
pub(super) struct Output(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    kept: Mutex<KeptOutput>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct KeptOutput {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    is_cut: bool,
    has_ended: bool,
}

impl Output {
    pub(super) fn of(mut stream: impl Read + Send + 'static) -> io::Result<Self> {
        let shared = Arc::<Shared>::default();
        let reader = shared.clone();
        std::thread::Builder::new().name("output".into()).stack_size(128 * 1024).spawn(move || {
            let mut buffer = [0; 16 * 1024];
            // A stream that cannot be read has ended.
            while let Ok(length @ 1..) = stream.read(&mut buffer) {
                reader.lock().add(&buffer[..length]);
            }
            reader.lock().has_ended = true;
            reader.ended.notify_all();
        })?;
        Ok(Self(shared))
    }

    /// The text, once its script has ended.
    pub(super) fn text(&self) -> String {
        let deadline = Instant::now() + LINGER;
        let mut kept = self.0.lock();
        while !kept.has_ended {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            kept = self.0.ended.wait_timeout(kept, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        kept.text()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, KeptOutput> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl KeptOutput {
    fn add(&mut self, bytes: &[u8]) {
        let room = (HALF - self.head.len()).min(bytes.len());
        self.head.extend(&bytes[..room]);
        self.tail.extend(&bytes[room..]);
        let surplus = self.tail.len().saturating_sub(HALF);
        self.is_cut |= surplus > 0;
        self.tail.drain(..surplus);
    }

    fn text(&self) -> String {
        let tail: Vec<u8> = self.tail.iter().copied().collect();
        let all = match self.is_cut {
            false => String::from_utf8_lossy(&[&self.head[..], &tail].concat()).into_owned(),
            true => format!("{}{CUT}{}", String::from_utf8_lossy(&self.head), String::from_utf8_lossy(&tail)),
        };
        if all.chars().map(length_in_json).sum::<usize>() <= LONGEST {
            return all;
        }
        let (head, tail) = (fitting(all.chars()), fitting(all.chars().rev()));
        format!("{}{CUT}{}", &all[..head], &all[all.len() - tail..])
    }
}

/// How many bytes of the first letters fit into half of what there is.
fn fitting(letters: impl Iterator<Item = char>) -> usize {
    let mut left = LONGEST / 2 - CUT.len();
    let fits = |letter: &char| {
        let length = length_in_json(*letter);
        let fits = length <= left;
        left = left.saturating_sub(length);
        fits
    };
    letters.take_while(fits).map(char::len_utf8).sum()
}

fn length_in_json(letter: char) -> usize {
    match letter {
        '"' | '\\' | '\n' | '\r' | '\t' | '\u{8}' | '\u{c}' => 2,
        '\0'..' ' => 6,
        _ => letter.len_utf8(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_output_is_kept_as_it_is_and_of_long_output_the_beginning_and_the_end() {
        let text = |bytes: &[u8]| Output::of(io::Cursor::new(bytes.to_vec())).unwrap().text();
        assert_eq!(text(b"one\ntwo"), "one\ntwo");
        assert_eq!(text(b"\xff!"), "\u{fffd}!");
        for letters in ["a", "\n", "\0", "\u{1f980}", "\""] {
            let long = format!("first{}last", letters.repeat(3 << 20));
            let text = text(long.as_bytes());
            assert!(text.starts_with("first") && text.ends_with("last") && text.contains(CUT), "{letters:?}");
            let length = serde_json::to_string(&text).unwrap().len();
            assert!(length <= LONGEST + 2 && length > LONGEST - 100, "{letters:?}: {length}");
        }
    }

    #[test]
    fn a_stream_that_is_held_open_is_not_waited_for_for_long() {
        let (read, write) = io::pipe().unwrap();
        let output = Output::of(read).unwrap();
        io::Write::write_all(&mut &write, b"said").unwrap();
        assert_eq!(output.text(), "said");
        drop(write);
    }
}
