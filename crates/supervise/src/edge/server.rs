//! Connections of clients: one line is a request, one line an answer.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Sender};
use std::time::Duration;

use windlass_durable::file;

use super::Message;
use crate::protocol::{Answer, LONGEST_LINE, Request, SOCKET, socket_in};

/// A request, and who waits for its answer.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) request: Request,
    pub(crate) answer: Sender<Answer>,
}

/// So many clients at a time; others are sent away.
const MOST_CLIENTS: usize = 32;

/// A client may think for so long.
const IDLE: Duration = Duration::from_secs(60);

/// Takes the place of a socket that a supervisor before this one left. The caller holds the folder's lock.
pub(super) fn listen(folder: &Path, to_main: Sender<Message>) -> io::Result<()> {
    file::remove_file(&folder.join(SOCKET))?;
    let (handle, path) = socket_in(folder)?;
    let listener = UnixListener::bind(path)?;
    fs::set_permissions(folder.join(SOCKET), fs::Permissions::from_mode(0o600))?;
    let clients = Arc::new(AtomicUsize::new(0));
    let accept = move || {
        let _handle = handle;
        for stream in listener.incoming() {
            let Ok(stream) = stream else {
                // Out of descriptors: some will be free again.
                std::thread::sleep(Duration::from_millis(100));
                continue;
            };
            if clients.fetch_add(1, Ordering::SeqCst) >= MOST_CLIENTS {
                clients.fetch_sub(1, Ordering::SeqCst);
                continue;
            }
            let (to_main, one_less) = (to_main.clone(), Arc::clone(&clients));
            let serve = move || {
                // A client that goes away in the middle of anything concerns nobody else.
                let _ = serve(stream, &to_main);
                one_less.fetch_sub(1, Ordering::SeqCst);
            };
            if std::thread::Builder::new().stack_size(256 * 1024).spawn(serve).is_err() {
                clients.fetch_sub(1, Ordering::SeqCst);
            }
        }
    };
    std::thread::Builder::new().stack_size(128 * 1024).spawn(accept)?;
    Ok(())
}

fn serve(stream: UnixStream, to_main: &Sender<Message>) -> io::Result<()> {
    stream.set_read_timeout(Some(IDLE))?;
    stream.set_write_timeout(Some(IDLE))?;
    let mut writer = stream.try_clone()?;
    let mut reader = BufReader::new(stream);
    loop {
        let mut line = Vec::new();
        (&mut reader).take(LONGEST_LINE).read_until(b'\n', &mut line)?;
        if line.last() != Some(&b'\n') {
            return Ok(());
        }
        let answer = match serde_json::from_slice(&line) {
            Ok(request) => {
                let (answer, answered) = mpsc::channel();
                let asked = Message::Asked(Asked { request, answer });
                to_main.send(asked).map_err(|_| io::Error::other("the supervisor ends"))?;
                answered.recv().map_err(|_| io::Error::other("the supervisor ends"))?
            }
            Err(error) => Answer::Refused(format!("this is no request: {error}")),
        };
        let mut line = serde_json::to_vec(&answer)?;
        line.push(b'\n');
        writer.write_all(&line)?;
    }
}
