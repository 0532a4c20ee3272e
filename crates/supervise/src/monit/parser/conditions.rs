//! `if CONDITION then REACTION`: the tests of a service.

use std::time::Duration;

use super::{Parsed, Parser, TIME_UNITS, time_factor};
use crate::monit::lexer::Text;
use crate::monit::{Condition, Connection, Endpoint, Kind, Operator, Property, Rate, Reaction, Resource, Test};

/// How far back a test can look.
const MOST_CYCLES: u32 = 64;

impl Parser<'_> {
    pub(super) fn test(&mut self, kind: &Kind, ignored: &mut Vec<String>) -> Parsed<Test> {
        self.expect("if")?;
        let line = self.last_line;
        let (condition, rate) = self.condition(kind, ignored)?;
        self.expect("then")?;
        let action = self.reaction()?;
        let mut otherwise = None;
        if self.take("else") {
            if self.take("if") {
                if self.take_one_of(&["succeeded", "passed", "recovered"]).is_none() {
                    return self.problem("'succeeded' is expected");
                }
                let rate = self.rate()?;
                if rate != (Rate { matches: 1, cycles: 1 }) {
                    ignored.push(format!("line {line}: a recovery counts at once"));
                }
            }
            self.expect("then")?;
            otherwise = Some(self.reaction()?);
        }
        Ok(Test { line, condition, rate, action, otherwise })
    }

    fn reaction(&mut self) -> Parsed<Reaction> {
        let word = self.keyword().unwrap_or_default();
        let reaction = match word.as_str() {
            "alert" => Reaction::Alert,
            "restart" => Reaction::Restart,
            "start" => Reaction::Start,
            "stop" => Reaction::Stop,
            "unmonitor" | "timeout" => Reaction::Unmonitor,
            "exec" => {
                self.advance();
                return Ok(Reaction::Exec(self.program()?));
            }
            _ => return self.problem("alert, restart, start, stop, unmonitor, timeout or exec is expected"),
        };
        self.advance();
        Ok(reaction)
    }

    fn condition(&mut self, kind: &Kind, ignored: &mut Vec<String>) -> Parsed<(Condition, Rate)> {
        let Some(word) = self.keyword() else { return self.problem("a test is expected") };
        let condition = match word.as_str() {
            "failed" => {
                self.advance();
                Condition::Connection(self.connection(kind, ignored)?)
            }
            "changed" => {
                self.advance();
                let property = match self.take_one_of(&["timestamp", "checksum", "size", "pid"]).as_deref() {
                    Some("timestamp") => Property::Timestamp,
                    Some("checksum") => Property::Checksum,
                    Some("size") => Property::Size,
                    Some(_) => Property::Pid,
                    None => return self.problem("timestamp, checksum, size or pid is expected"),
                };
                if (property == Property::Pid) != matches!(kind, Kind::Process { .. }) {
                    return self.problem("processes have a pid, files have the others");
                }
                Condition::Changed(property)
            }
            "does" | "not" => {
                self.take("does");
                self.expect("not")?;
                self.expect("exist")?;
                Condition::Missing
            }
            "timestamp" => {
                self.advance();
                let operator = self.operator()?;
                let (number, glued) = self.number("an age")?;
                let unit = if glued.is_empty() { self.take_one_of(&TIME_UNITS).unwrap_or_default() } else { glued };
                let Some(factor) = time_factor(&unit) else { return self.problem("a unit of time is expected") };
                Condition::Age { operator, limit: number as u64 * factor }
            }
            _ if word.starts_with(|letter: char| letter.is_ascii_digit()) => {
                let restarts = self.count("a number of restarts")?;
                if self.take_one_of(&["restart", "restarts"]).is_none() {
                    return self.problem("'restarts' is expected");
                }
                let cycles = self.cycles()?;
                return Ok((Condition::Restarts(restarts.max(1)), Rate { matches: 1, cycles }));
            }
            _ => self.resource()?,
        };
        Ok((condition, self.rate()?))
    }

    /// `[for] [m times [within]] n cycles`; once, if nothing is said.
    fn rate(&mut self) -> Parsed<Rate> {
        let is_said = self.take("for")
            || self.keyword().is_some_and(|word| word.starts_with(|letter: char| letter.is_ascii_digit()));
        if !is_said {
            return Ok(Rate { matches: 1, cycles: 1 });
        }
        let matches = self.count("a number of cycles")?;
        if self.take_one_of(&["times", "time"]).is_some() {
            let cycles = self.cycles()?;
            if matches == 0 || matches > cycles {
                return self.problem("it cannot match more often than there are cycles");
            }
            return Ok(Rate { matches, cycles });
        }
        self.next -= 1;
        let cycles = self.cycles()?;
        Ok(Rate { matches: cycles, cycles })
    }

    fn cycles(&mut self) -> Parsed<u32> {
        let start = self.next;
        let cycles = self.count("a number of cycles")?;
        if self.take_one_of(&["cycle", "cycles"]).is_none() {
            return self.problem("'cycles' is expected");
        }
        if (1..=MOST_CYCLES).contains(&cycles) {
            return Ok(cycles);
        }
        self.next = start;
        self.problem(format!("1 to {MOST_CYCLES} cycles are possible"))
    }

    fn operator(&mut self) -> Parsed<Operator> {
        self.skip_noise();
        let operator = match self.peek() {
            Some(Text::Operator(">")) => Operator::Greater,
            Some(Text::Operator("<")) => Operator::Less,
            Some(Text::Operator(">=")) => Operator::AtLeast,
            Some(Text::Operator("<=")) => Operator::AtMost,
            Some(Text::Operator("==" | "=")) => Operator::Equal,
            Some(Text::Operator("!=")) => Operator::NotEqual,
            Some(Text::Word(word)) => match word.to_lowercase().as_str() {
                "gt" | "greater" => Operator::Greater,
                "lt" | "less" => Operator::Less,
                "ge" => Operator::AtLeast,
                "le" => Operator::AtMost,
                "eq" | "equal" => Operator::Equal,
                "ne" | "notequal" => Operator::NotEqual,
                _ => return Ok(Operator::Greater),
            },
            _ => return self.problem("a comparison is expected"),
        };
        self.advance();
        self.take("than");
        Ok(operator)
    }

    fn resource(&mut self) -> Parsed<Condition> {
        let word = self.keyword().unwrap_or_default();
        let is_total = word == "total";
        if is_total {
            self.advance();
        }
        let name = self.keyword().unwrap_or_default();
        let resource = match (is_total, name.as_str()) {
            (false, "mem" | "memory") => Resource::Memory,
            (false, "totalmem" | "totalmemory") | (true, "mem" | "memory") => Resource::TotalMemory,
            (false, "cpu") => Resource::Cpu,
            (false, "totalcpu") | (true, "cpu") => Resource::TotalCpu,
            (false, "children") => Resource::Children,
            (false, "loadavg") => Resource::Load(1),
            _ => return self.problem("this test is not known"),
        };
        self.advance();
        self.take("usage");
        let resource = if matches!(resource, Resource::Load(_)) { self.load()? } else { resource };
        let operator = self.operator()?;
        let (number, glued) = self.number("a number")?;
        let unit =
            if glued.is_empty() { self.take_one_of(&["b", "kb", "mb", "gb", "%"]).unwrap_or_default() } else { glued };
        let kib = match unit.as_str() {
            "b" => Some(1.0 / 1024.0),
            "" | "kb" => Some(1.0),
            "mb" => Some(1024.0),
            "gb" => Some(1024.0 * 1024.0),
            "%" => None,
            _ => return self.problem("B, KB, MB, GB or % is expected"),
        };
        let (resource, limit) = match (resource, kib) {
            (Resource::Memory, None) => (Resource::MemoryShare, number),
            (Resource::TotalMemory, None) => (Resource::TotalMemoryShare, number),
            (Resource::Memory | Resource::TotalMemory, Some(factor)) => (resource, number * factor),
            (Resource::Cpu | Resource::TotalCpu, _) if unit.is_empty() || unit == "%" => (resource, number),
            (_, _) if unit.is_empty() => (resource, number),
            _ => return self.problem("this is counted without a unit"),
        };
        Ok(Condition::Resource { resource, operator, limit })
    }

    /// `(5min)`, or nothing.
    fn load(&mut self) -> Parsed<Resource> {
        if self.peek() != Some(&Text::Mark('(')) {
            return Ok(Resource::Load(1));
        }
        self.advance();
        let minutes = match self.take_one_of(&["1min", "5min", "15min"]).as_deref() {
            Some("1min") => 1,
            Some("5min") => 5,
            Some(_) => 15,
            None => return self.problem("1min, 5min or 15min is expected"),
        };
        if self.peek() != Some(&Text::Mark(')')) {
            return self.problem("')' is expected");
        }
        self.advance();
        Ok(Resource::Load(minutes))
    }

    fn connection(&mut self, kind: &Kind, ignored: &mut Vec<String>) -> Parsed<Connection> {
        let line = self.last_line;
        let mut host = match kind {
            Kind::Host { address } => address.clone(),
            _ => "localhost".to_owned(),
        };
        let (mut port, mut unix, mut is_udp, mut http) = (None, None, false, None);
        let mut timeout = Duration::from_secs(5);
        while let Some(word) = self.keyword() {
            match word.as_str() {
                "host" => {
                    self.advance();
                    host = self.text("a host's name or address")?;
                }
                "port" => {
                    self.advance();
                    match u16::try_from(self.count("a port")?) {
                        Ok(number) if number > 0 => port = Some(number),
                        _ => return self.problem("a port from 1 to 65535 is expected"),
                    }
                }
                "unixsocket" | "unix" => {
                    self.advance();
                    unix = Some(self.path()?);
                }
                "type" => {
                    self.advance();
                    match self.take_one_of(&["tcp", "udp", "tcpssl"]).as_deref() {
                        Some("udp") => is_udp = true,
                        Some("tcpssl") => ignored.push(format!("line {line}: TLS is not spoken, only connected to")),
                        Some(_) => {}
                        None => return self.problem("tcp, udp or tcpssl is expected"),
                    }
                }
                "protocol" | "proto" => {
                    self.advance();
                    if !self.take("http") {
                        return self.problem("only the protocol http is spoken: without it, a connection is enough");
                    }
                    http = Some("/".to_owned());
                    if self.take("request") {
                        http = Some(self.text("a path")?);
                    }
                }
                "timeout" => {
                    self.advance();
                    timeout = self.seconds()?;
                }
                "for" | "then" => break,
                _ if word.starts_with(|letter: char| letter.is_ascii_digit()) => break,
                _ => return self.problem("this part of a connection test is not known"),
            }
        }
        let to = match (unix, port) {
            (Some(path), None) => Endpoint::Unix(path),
            (None, Some(port)) if is_udp => Endpoint::Udp { host, port },
            (None, Some(port)) => Endpoint::Tcp { host, port },
            _ => return self.problem("a port or a unixsocket is expected, and not both"),
        };
        if http.is_some() && is_udp {
            return self.problem("http is not spoken over udp");
        }
        Ok(Connection { to, http, timeout })
    }
}
