//! What monit says by itself: mail to this machine, one letter for each event.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

use windlass_supervise::protocol::Happening;

/// How many are kept.
const KEPT: usize = 100;

/// How long a letter may be, and how long one may take to come.
const LONGEST: u64 = 64 * 1024;
const PATIENCE: Duration = Duration::from_secs(10);

/// Those that came, the latest last.
#[derive(Debug, Default)]
pub(super) struct Letters(Mutex<VecDeque<Happening>>);

impl Letters {
    /// Takes letters from now on, one sender at a time.
    pub(super) fn receive(letters: &Arc<Self>, address: SocketAddr) -> io::Result<SocketAddr> {
        let listener = TcpListener::bind(address)?;
        let (address, letters) = (listener.local_addr()?, letters.clone());
        std::thread::Builder::new().name("mail".into()).stack_size(128 * 1024).spawn(move || {
            for stream in listener.incoming().flatten() {
                if let Err(error) = converse(&stream, |letter| letters.keep(letter)) {
                    tracing::debug!("mail: {error}");
                }
            }
        })?;
        Ok(address)
    }

    pub(super) fn all(&self) -> Vec<Happening> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }

    fn keep(&self, letter: &str) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let number = kept.back().map_or(1, |last| last.number + 1);
        kept.extend(read(letter, number));
        if kept.len() > KEPT {
            kept.pop_front();
        }
    }
}

/// What a letter tells, if it is monit's.
fn read(letter: &str, number: u64) -> Option<Happening> {
    let field = |name: &str| {
        let line = letter.lines().find_map(|line| line.trim().strip_prefix(name)?.strip_prefix(':'));
        line.map(|line| line.trim().to_owned())
    };
    let at = UNIX_EPOCH.elapsed().unwrap_or_default().as_secs();
    let text = field("Description").unwrap_or_default();
    Some(Happening { number, at, service: field("Service")?, event: field("Event")?, text, action: field("Action") })
}

/// As much of SMTP as monit speaks.
fn converse(stream: &TcpStream, mut keep: impl FnMut(&str)) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut reader = BufReader::new(stream.take(LONGEST));
    let say = |words: &str| (&mut &*stream).write_all(format!("{words}\r\n").as_bytes());
    say("220 localhost")?;
    loop {
        let Some(line) = line(&mut reader)? else { return Ok(()) };
        let verb = line.split([' ', ':']).next().unwrap_or_default().to_ascii_uppercase();
        match verb.as_str() {
            "DATA" => {
                say("354 end with a dot")?;
                let mut letter = String::new();
                while let Some(line) = self::line(&mut reader)?.filter(|line| line != ".") {
                    letter.push_str(line.strip_prefix('.').unwrap_or(&line));
                    letter.push('\n');
                }
                keep(&letter);
                say("250 taken")?;
            }
            "QUIT" => return say("221 bye"),
            "HELO" | "EHLO" | "MAIL" | "RCPT" | "RSET" | "NOOP" => say("250 yes")?,
            _ => say("502 no")?,
        }
    }
}

fn line(reader: &mut impl BufRead) -> io::Result<Option<String>> {
    let mut line = Vec::new();
    reader.read_until(b'\n', &mut line)?;
    let text = String::from_utf8_lossy(&line);
    Ok(if line.is_empty() { None } else { Some(text.trim_end_matches(['\r', '\n']).to_owned()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_letter_of_monit_is_an_event_and_no_other_letter_is() {
        let letters = Arc::<Letters>::default();
        let address = Letters::receive(&letters, ([127, 0, 0, 1], 0).into()).unwrap();
        let send = |body: &str| {
            let mut stream = TcpStream::connect(address).unwrap();
            let text = format!("HELO x\r\nMAIL FROM:<a>\r\nRCPT TO:<b>\r\nDATA\r\n{body}\r\n.\r\nQUIT\r\n");
            stream.write_all(text.as_bytes()).unwrap();
            let mut answers = String::new();
            stream.read_to_string(&mut answers).unwrap();
            assert!(answers.starts_with("220 ") && answers.ends_with("221 bye\r\n"), "{answers}");
        };
        send(
            "Message-id: <1@localhost>\r\n\r\nService: web\r\nEvent: does not exist\r\nAction: restart\r\nDescription: process is not running",
        );
        send("Subject: hello\r\n\r\nBuy this");
        let all = letters.all();
        assert_eq!(all.len(), 1, "{all:?}");
        assert_eq!((all[0].service.as_str(), all[0].event.as_str()), ("web", "does not exist"));
        assert_eq!((all[0].action.as_deref(), all[0].text.as_str()), (Some("restart"), "process is not running"));
        // A client that hangs up in the middle of anything keeps nobody else out.
        drop(TcpStream::connect(address).unwrap());
        send("Service: db\r\nEvent: Timeout");
        assert_eq!(letters.all().len(), 2);
    }
}
