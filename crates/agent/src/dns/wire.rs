//! DNS messages, as far as names of instances need them: one question, and addresses as its answer. Everything else is passed on as
//! it came.

use std::net::IpAddr;

const HEADER: usize = 12;
/// What everybody can receive by UDP.
const SMALLEST: usize = 512;
/// What is sent at most by UDP, whatever the other side says: more would be sent in fragments.
const LARGEST: usize = 1232;
/// The longest name, written with its dots.
const LONGEST_NAME: usize = 253;

pub(crate) const A: u16 = 1;
pub(crate) const AAAA: u16 = 28;
pub(crate) const ANY: u16 = 255;
const OPT: u16 = 41;
const INTERNET: u16 = 1;

const RESPONSE: u8 = 0x80;
const AUTHORITATIVE: u8 = 0x04;
const TRUNCATED: u8 = 0x02;
const RECURSION_DESIRED: u8 = 0x01;
const RECURSION_AVAILABLE: u8 = 0x80;

/// How a question ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Found = 0,
    Malformed = 1,
    Failed = 2,
    NoSuchName = 3,
    NotImplemented = 4,
}

/// A message with one question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Question<'p> {
    packet: &'p [u8],
    /// Lower case, without a dot at its end.
    pub(crate) name: String,
    pub(crate) kind: u16,
    class: u16,
    /// Where the question ends.
    end: usize,
    /// How much the other side takes by UDP, if it says so.
    size: Option<usize>,
}

/// What is answered to a message that is no question; none if it is not worth an answer.
pub(crate) type Refusal = Option<Vec<u8>>;

fn number(packet: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes([*packet.get(at)?, *packet.get(at + 1)?]))
}

/// Where a name ends, and the name itself. A question's name is never shortened by a pointer.
fn name(packet: &[u8], mut at: usize) -> Option<(String, usize)> {
    let mut name = String::new();
    loop {
        let length = usize::from(*packet.get(at)?);
        at += 1;
        match length {
            0 => return Some((name, at)),
            1..=63 => {}
            _ => return None,
        }
        let label = packet.get(at..at + length)?;
        if !name.is_empty() {
            name.push('.');
        }
        // A dot or anything else that cannot be written is no part of a name that somebody here has.
        if !label.iter().all(|letter| letter.is_ascii_graphic() && *letter != b'.') {
            return None;
        }
        name.extend(label.iter().map(|letter| char::from(letter.to_ascii_lowercase())));
        at += length;
        if name.len() > LONGEST_NAME {
            return None;
        }
    }
}

impl<'p> Question<'p> {
    pub(crate) fn parse(packet: &'p [u8]) -> Result<Self, Refusal> {
        // Answers are never answered, or two servers would talk for ever.
        if packet.len() < HEADER || packet[2] & RESPONSE != 0 {
            return Err(None);
        }
        if packet[2] & 0x78 != 0 {
            return Err(Some(bare(packet, Outcome::NotImplemented)));
        }
        let malformed = || Some(bare(packet, Outcome::Malformed));
        let count = |at| number(packet, at).ok_or_else(malformed);
        let (questions, answers, authorities, additions) = (count(4)?, count(6)?, count(8)?, count(10)?);
        if questions != 1 || answers != 0 || authorities != 0 {
            return Err(malformed());
        }
        let (name, at) = name(packet, HEADER).ok_or_else(malformed)?;
        let (kind, class, end) = (count(at)?, count(at + 2)?, at + 4);
        // Of what is added only the first is looked at: who speaks EDNS puts it there.
        let says_size = additions > 0 && packet.get(end) == Some(&0) && number(packet, end + 1) == Some(OPT);
        let size = says_size.then(|| number(packet, end + 3)).flatten().map(usize::from);
        Ok(Self { packet, name, kind, class, end, size })
    }

    pub(crate) fn is_of_internet(&self) -> bool {
        matches!(self.class, INTERNET | ANY)
    }

    /// How much can be sent by UDP.
    pub(crate) fn most(&self) -> usize {
        self.size.unwrap_or(SMALLEST).clamp(SMALLEST, LARGEST)
    }

    /// The answer with those addresses that were asked for; as many as `most` bytes can have, and the note that there are more.
    pub(crate) fn answer(&self, outcome: Outcome, addresses: &[IpAddr], most: usize) -> Vec<u8> {
        let mut answer = self.begun(outcome);
        let addition = if self.size.is_some() { 11 } else { 0 };
        let mut count: u16 = 0;
        for address in addresses {
            let kind = if address.is_ipv4() { A } else { AAAA };
            if self.kind != kind && self.kind != ANY {
                continue;
            }
            let (v4, v6);
            let bytes: &[u8] = match address {
                IpAddr::V4(address) => {
                    v4 = address.octets();
                    &v4
                }
                IpAddr::V6(address) => {
                    v6 = address.octets();
                    &v6
                }
            };
            if answer.len() + 12 + bytes.len() + addition > most {
                answer[2] |= TRUNCATED;
                break;
            }
            // The name is where the question has it; nobody keeps the answer, because instances come and go.
            answer.extend([0xc0, HEADER as u8]);
            answer.extend(kind.to_be_bytes());
            answer.extend([0, INTERNET as u8, 0, 0, 0, 0, 0, bytes.len() as u8]);
            answer.extend(bytes);
            count += 1;
        }
        answer[6..8].copy_from_slice(&count.to_be_bytes());
        self.add_size(&mut answer);
        answer
    }

    /// An answer that only says that it does not fit, so that the question comes again by TCP.
    pub(crate) fn too_long(&self) -> Vec<u8> {
        let mut answer = self.begun(Outcome::Found);
        answer[2] |= TRUNCATED;
        self.add_size(&mut answer);
        answer
    }

    /// The whole message under another number, to be asked elsewhere.
    pub(crate) fn numbered(&self, number: u16) -> Vec<u8> {
        let mut packet = self.packet.to_vec();
        packet[..2].copy_from_slice(&number.to_be_bytes());
        packet
    }

    /// Somebody else's answer to this question, under the number that it was asked with; none if it is no answer to it.
    pub(crate) fn answered(&self, mut answer: Vec<u8>, number: u16) -> Option<Vec<u8>> {
        let is_answer = answer.len() >= self.end
            && answer[..2] == number.to_be_bytes()
            && answer[2] & RESPONSE != 0
            && answer[HEADER..self.end].eq_ignore_ascii_case(&self.packet[HEADER..self.end]);
        is_answer.then(|| {
            answer[..2].copy_from_slice(&self.packet[..2]);
            answer
        })
    }

    fn begun(&self, outcome: Outcome) -> Vec<u8> {
        let mut answer = Vec::with_capacity(LARGEST);
        answer.extend(&self.packet[..self.end]);
        answer[2] = RESPONSE | AUTHORITATIVE | (self.packet[2] & RECURSION_DESIRED);
        answer[3] = RECURSION_AVAILABLE | outcome as u8;
        answer[4..HEADER].copy_from_slice(&[0, 1, 0, 0, 0, 0, 0, 0]);
        answer
    }

    fn add_size(&self, answer: &mut Vec<u8>) {
        if self.size.is_some() {
            answer.extend([0, 0, OPT as u8]);
            answer.extend((LARGEST as u16).to_be_bytes());
            answer.extend([0; 6]);
            answer[11] = 1;
        }
    }
}

/// Whether an answer says that it does not fit.
#[cfg(test)]
pub(crate) fn is_truncated(answer: &[u8]) -> bool {
    answer.get(2).is_some_and(|flags| flags & TRUNCATED != 0)
}

/// A header and nothing else.
fn bare(packet: &[u8], outcome: Outcome) -> Vec<u8> {
    let mut answer = packet[..HEADER].to_vec();
    answer[2] = RESPONSE | (packet[2] & (0x78 | RECURSION_DESIRED));
    answer[3] = RECURSION_AVAILABLE | outcome as u8;
    answer[4..].fill(0);
    answer
}

/// A question as clients send it, for measurements and tests.
pub(crate) fn question(number: u16, name: &str, kind: u16, size: Option<u16>) -> Vec<u8> {
    let mut packet = Vec::new();
    packet.extend(number.to_be_bytes());
    packet.extend([RECURSION_DESIRED, 0, 0, 1, 0, 0, 0, 0, 0, u8::from(size.is_some())]);
    for label in name.split('.').filter(|label| !label.is_empty()) {
        packet.push(label.len().min(63) as u8);
        packet.extend(label.bytes().take(63));
    }
    packet.push(0);
    packet.extend(kind.to_be_bytes());
    packet.extend([0, INTERNET as u8]);
    if let Some(size) = size {
        packet.extend([0, 0, OPT as u8]);
        packet.extend(size.to_be_bytes());
        packet.extend([0; 6]);
    }
    packet
}

/// The outcome of an answer, and the addresses in it, as far as it is one of ours.
#[cfg(test)]
pub(crate) fn read_answer(answer: &[u8]) -> (u8, Vec<IpAddr>) {
    let (_, mut at) = name(answer, HEADER).unwrap();
    at += 4;
    let mut addresses = Vec::new();
    for _ in 0..number(answer, 6).unwrap() {
        let length = usize::from(number(answer, at + 10).unwrap());
        let data = &answer[at + 12..at + 12 + length];
        addresses.push(match length {
            4 => IpAddr::from(<[u8; 4]>::try_from(data).unwrap()),
            _ => IpAddr::from(<[u8; 16]>::try_from(data).unwrap()),
        });
        at += 12 + length;
    }
    (answer[3] & 0x0f, addresses)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn addresses(count: u8) -> Vec<IpAddr> {
        (0..count).map(|last| IpAddr::from([10, 0, 0, last])).collect()
    }

    #[test]
    fn a_question_is_read_and_answered() {
        let packet = question(7, "Q-s0.DB.a.shop.bosh", A, None);
        let question = Question::parse(&packet).unwrap();
        assert_eq!((question.name.as_str(), question.kind, question.most()), ("q-s0.db.a.shop.bosh", A, 512));
        let answer = question.answer(Outcome::Found, &addresses(3), 512);
        assert_eq!(answer[..2], [0, 7]);
        assert_eq!(read_answer(&answer), (0, addresses(3)));
        let none = question.answer(Outcome::NoSuchName, &[], 512);
        assert_eq!(read_answer(&none), (3, vec![]));
        let v6 = ["fd00::1".parse().unwrap()];
        assert_eq!(read_answer(&question.answer(Outcome::Found, &v6, 512)), (0, vec![]), "only what was asked for");
    }

    #[test]
    fn what_does_not_fit_is_said_to_be_more() {
        let packet = question(7, "a.bosh", A, None);
        let question = Question::parse(&packet).unwrap();
        let answer = question.answer(Outcome::Found, &addresses(200), question.most());
        assert!(is_truncated(&answer) && answer.len() <= 512 && read_answer(&answer).1.len() > 20);
        let whole = question.answer(Outcome::Found, &addresses(200), 65_535);
        assert!(!is_truncated(&whole) && read_answer(&whole).1.len() == 200);
    }

    #[test]
    fn who_takes_more_by_udp_gets_more_but_nothing_in_fragments() {
        for (size, most) in [(0, 512), (800, 800), (4096, 1232), (65_535, 1232)] {
            let packet = question(7, "a.bosh", A, Some(size));
            let question = Question::parse(&packet).unwrap();
            assert_eq!(question.most(), most);
            let answer = question.answer(Outcome::Found, &addresses(200), most);
            assert!(answer.len() <= most && answer[11] == 1, "{size}");
        }
    }

    #[test]
    fn answers_and_odd_messages_are_refused_briefly() {
        let mut packet = question(9, "a.bosh", A, None);
        packet[2] |= RESPONSE;
        assert_eq!(Question::parse(&packet), Err(None), "an answer is never answered");
        let mut update = question(9, "a.bosh", A, None);
        update[2] |= 5 << 3;
        let refusal = Question::parse(&update).unwrap_err().unwrap();
        assert_eq!((refusal.len(), refusal[3] & 15), (12, 4));
        let mut two = question(9, "a.bosh", A, None);
        two[5] = 2;
        assert_eq!(Question::parse(&two).unwrap_err().unwrap()[3] & 15, 1);
        let pointer = [&[0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0][..], &[0xc0, 12, 0, 1, 0, 1]].concat();
        assert_eq!(Question::parse(&pointer).unwrap_err().unwrap().len(), 12);
    }

    #[test]
    fn only_an_answer_to_the_question_is_passed_on() {
        let packet = question(9, "a.example", A, None);
        let asked = Question::parse(&packet).unwrap();
        let forwarded = asked.numbered(77);
        let there = Question::parse(&forwarded).unwrap();
        let answer = there.answer(Outcome::Found, &addresses(1), 512);
        assert_eq!(asked.answered(answer.clone(), 77).unwrap()[..2], [0, 9]);
        assert_eq!(asked.answered(answer.clone(), 78), None);
        assert_eq!(asked.answered(forwarded.clone(), 77), None, "a question is no answer");
        let other = question(77, "b.example", A, None);
        let other = Question::parse(&other).unwrap().answer(Outcome::Found, &addresses(1), 512);
        assert_eq!(asked.answered(other, 77), None);
    }

    proptest! {
        /// Packets come from anybody who can send one: none may break the agent or make it send more than it got asked for.
        #[test]
        fn no_packet_breaks_it_and_refusals_are_never_longer(packet in proptest::collection::vec(any::<u8>(), 0..600)) {
            match Question::parse(&packet) {
                Err(refusal) => prop_assert!(refusal.is_none_or(|refusal| refusal.len() <= packet.len())),
                Ok(question) => {
                    let answer = question.answer(Outcome::Found, &addresses(255), question.most());
                    prop_assert!(answer.len() <= question.most().max(packet.len() + 11));
                    let _ = question.answered(packet.clone(), 1);
                }
            }
        }

        #[test]
        fn every_damaged_question_is_read_or_refused(at in 0_usize..40, value in any::<u8>(), cut in 0_usize..60) {
            let mut packet = question(1, "q-a1s0.q-g12.bosh", ANY, Some(1232));
            let length = packet.len();
            packet[at % length] = value;
            packet.truncate(length - cut.min(length));
            if let Ok(question) = Question::parse(&packet) {
                prop_assert!(question.name.len() <= LONGEST_NAME);
                let _ = question.answer(Outcome::NoSuchName, &[], question.most());
            }
        }
    }
}
