//! Captured packets in the format of libpcap, as they come from several machines and go into one file.

use std::io::{self, Read};

const MICROSECONDS: u32 = 0xa1b2_c3d4;
const NANOSECONDS: u32 = 0xa1b2_3c4d;
/// What tcpdump takes at most.
const LONGEST: u32 = 262_144;

/// A packet, and on what kind of link it was seen.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Packet {
    pub(crate) link_type: u32,
    seconds: u32,
    microseconds: u32,
    /// How long it was; `data` may be its beginning.
    length: u32,
    data: Vec<u8>,
}

impl Packet {
    /// As it stands in a file.
    pub(crate) fn record(&self) -> Vec<u8> {
        let kept = u32::try_from(self.data.len()).unwrap_or(LONGEST);
        let head = [self.seconds, self.microseconds, kept, self.length].map(u32::to_le_bytes);
        [head.as_flattened(), &self.data].concat()
    }
}

/// How a file begins.
pub(crate) fn header(snaplen: u32, link_type: u32) -> Vec<u8> {
    // Version 2.4, no time zone, no accuracy.
    [MICROSECONDS, 0x0004_0002, 0, 0, snaplen, link_type].map(u32::to_le_bytes).as_flattened().to_vec()
}

/// What a tcpdump writes to a pipe.
#[derive(Debug)]
pub(crate) struct Capture<R> {
    source: R,
    is_big_endian: bool,
    has_nanoseconds: bool,
    link_type: u32,
}

impl<R: Read> Capture<R> {
    /// Reads how it begins; says what is wrong with it.
    pub(crate) fn open(mut source: R) -> Result<Self, String> {
        let mut head = [0; 24];
        source.read_exact(&mut head).map_err(|_| "it ended before tcpdump said anything".to_owned())?;
        let word = |at: usize| [head[at], head[at + 1], head[at + 2], head[at + 3]];
        let magic = u32::from_le_bytes(word(0));
        let (is_big_endian, magic) = match magic {
            MICROSECONDS | NANOSECONDS => (false, magic),
            _ => (true, magic.swap_bytes()),
        };
        let has_nanoseconds = match magic {
            MICROSECONDS => false,
            NANOSECONDS => true,
            _ => return Err("what it sends is no capture".to_owned()),
        };
        let link_type = if is_big_endian { u32::from_be_bytes(word(20)) } else { u32::from_le_bytes(word(20)) };
        Ok(Self { source, is_big_endian, has_nanoseconds, link_type })
    }

    /// The next one; none at the end, which may come in the middle of one.
    pub(crate) fn next_packet(&mut self) -> Result<Option<Packet>, String> {
        let mut head = [0; 16];
        if !self.fill(&mut head)? {
            return Ok(None);
        }
        let [seconds, fraction, kept, length] = [0, 4, 8, 12].map(|at| {
            let bytes = [head[at], head[at + 1], head[at + 2], head[at + 3]];
            if self.is_big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) }
        });
        if kept > LONGEST {
            return Err(format!("it says that a packet has {kept} bytes"));
        }
        let mut data = vec![0; kept as usize];
        if !self.fill(&mut data)? {
            return Ok(None);
        }
        let microseconds = if self.has_nanoseconds { fraction / 1000 } else { fraction };
        Ok(Some(Packet { link_type: self.link_type, seconds, microseconds, length, data }))
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Result<bool, String> {
        match self.source.read_exact(bytes) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
            Err(error) => Err(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(microseconds: u32) -> Packet {
        Packet { link_type: 1, seconds: 7, microseconds, length: 60, data: vec![1, 2, 3] }
    }

    #[test]
    fn packets_of_every_machine_are_read_and_written() {
        let ours = [header(100, 1), packet(5).record(), packet(6).record()].concat();
        let mut capture = Capture::open(ours.as_slice()).unwrap();
        assert_eq!(capture.next_packet().unwrap(), Some(packet(5)));
        assert_eq!(capture.next_packet().unwrap(), Some(packet(6)));
        assert_eq!(capture.next_packet().unwrap(), None);

        let words = [NANOSECONDS, 0x0002_0004, 0, 0, 100, 1, 7, 5999, 3, 60].map(u32::to_be_bytes);
        let others = [words.as_flattened(), &[1, 2, 3], &[9; 5]].concat();
        let mut capture = Capture::open(others.as_slice()).unwrap();
        assert_eq!(capture.next_packet().unwrap(), Some(packet(5)));
        assert_eq!(capture.next_packet().unwrap(), None, "what was cut off is no packet");
    }

    #[test]
    fn a_machine_that_sends_something_else_is_not_believed() {
        assert!(Capture::open(&b"sudo: tcpdump: command not found"[..]).unwrap_err().contains("no capture"));
        assert!(Capture::open(&b""[..]).unwrap_err().contains("ended before"));
        let huge = [header(100, 1), [7, 5, u32::MAX, 60].map(u32::to_le_bytes).as_flattened().to_vec()].concat();
        assert!(Capture::open(huge.as_slice()).unwrap().next_packet().unwrap_err().contains("4294967295 bytes"));
    }
}
