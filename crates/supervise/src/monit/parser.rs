//! Tokens to services.

use std::time::Duration;

use super::lexer::{Text, Token, split_command, tokens};
use super::{
    Condition, Connection, Endpoint, Kind, Mode, MonitError, MonitFile, Operator, PATIENCE, Program, Property, Rate,
    Reaction, Resource, Service, Test,
};

/// Words that mean nothing, wherever they stand between others.
const NOISE: [&str; 13] =
    ["is", "are", "on", "only", "with", "within", "of", "the", "and", "has", "using", "use", "it's"];

/// What a clause of a service begins with; what has no extent of its own ends before the next of these.
const CLAUSES: [&str; 14] = [
    "start", "stop", "restart", "group", "depends", "depend", "if", "mode", "every", "alert", "noalert", "check",
    "set", "include",
];

/// How far back a test can look.
const MOST_CYCLES: u32 = 64;

/// Larger files are nobody's.
const LARGEST_FILE: usize = 1 << 20;

/// Reads the text of `file`, which is named in errors.
pub fn parse(file: &str, text: &str) -> Result<MonitFile, MonitError> {
    let error = |line: usize, message: &str| MonitError {
        file: file.to_owned(),
        line,
        clause: line_of(text, line),
        message: message.to_owned(),
    };
    if text.len() > LARGEST_FILE {
        return Err(error(1, "the file has more than 1 MiB"));
    }
    if text.trim_start().starts_with('{') {
        return Err(error(1, "this is the form of jobs for Windows, which do not run on Linux"));
    }
    let tokens = tokens(text).map_err(|open| error(open.0, "quotes without an end"))?;
    let mut parser = Parser { tokens: &tokens, next: 0, last_line: 1 };
    parser.file().map_err(|problem| error(problem.line, &problem.message))
}

fn line_of(text: &str, line: usize) -> String {
    text.lines().nth(line - 1).unwrap_or_default().trim().chars().take(200).collect()
}

struct Problem {
    line: usize,
    message: String,
}

type Parsed<T> = Result<T, Problem>;

struct Parser<'a> {
    tokens: &'a [Token],
    next: usize,
    last_line: usize,
}

impl Parser<'_> {
    fn peek(&self) -> Option<&Text> {
        self.tokens.get(self.next).map(|token| &token.text)
    }

    /// The line of the next token, or the last one.
    fn line(&self) -> usize {
        self.tokens.get(self.next).map_or(self.last_line, |token| token.line)
    }

    fn problem<T>(&self, message: impl Into<String>) -> Parsed<T> {
        Err(Problem { line: self.line(), message: message.into() })
    }

    fn advance(&mut self) -> Option<Text> {
        let token = self.tokens.get(self.next)?;
        self.last_line = token.line;
        self.next += 1;
        Some(token.text.clone())
    }

    fn skip_noise(&mut self) {
        while self.word().is_some_and(|word| NOISE.contains(&word.as_str())) {
            self.advance();
        }
    }

    /// The next token in lower case, if it is a word.
    fn word(&self) -> Option<String> {
        match self.peek() {
            Some(Text::Word(word)) => Some(word.to_lowercase()),
            _ => None,
        }
    }

    /// The next word after noise, without taking it.
    fn keyword(&mut self) -> Option<String> {
        self.skip_noise();
        self.word()
    }

    /// Takes the next word if it is one of `words`.
    fn take_one_of(&mut self, words: &[&str]) -> Option<String> {
        let word = self.keyword().filter(|word| words.contains(&word.as_str()))?;
        self.advance();
        Some(word)
    }

    fn take(&mut self, word: &str) -> bool {
        self.take_one_of(&[word]).is_some()
    }

    fn expect(&mut self, word: &str) -> Parsed<()> {
        if self.take(word) { Ok(()) } else { self.problem(format!("'{word}' is expected")) }
    }

    /// A name, path or text.
    fn text(&mut self, what: &str) -> Parsed<String> {
        self.skip_noise();
        match self.peek() {
            Some(Text::Word(text) | Text::Quoted(text)) if !text.is_empty() => {
                let text = text.clone();
                self.advance();
                Ok(text)
            }
            _ => self.problem(format!("{what} is expected")),
        }
    }

    /// A number, and the unit that is glued to it.
    fn number(&mut self, what: &str) -> Parsed<(f64, String)> {
        self.skip_noise();
        let Some(word) = self.word() else { return self.problem(format!("{what} is expected")) };
        let end = word.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(word.len());
        match word[..end].parse::<f64>() {
            Ok(number) => {
                self.advance();
                Ok((number, word[end..].to_owned()))
            }
            Err(_) => self.problem(format!("{what} is expected")),
        }
    }

    fn count(&mut self, what: &str) -> Parsed<u32> {
        let start = self.next;
        match self.number(what)? {
            (number, unit) if unit.is_empty() && number.fract() == 0.0 && number <= f64::from(u32::MAX) => {
                Ok(number as u32)
            }
            _ => {
                self.next = start;
                self.problem(format!("{what} is expected, a whole number"))
            }
        }
    }

    fn file(&mut self) -> Parsed<MonitFile> {
        let mut file = MonitFile { services: Vec::new(), ignored: Vec::new() };
        while self.peek().is_some() {
            let line = self.line();
            match self.keyword().as_deref() {
                Some("check") => {
                    let service = self.service(&mut file.ignored)?;
                    file.services.push(service);
                }
                Some("set") => {
                    self.skip_statement(&["check", "set", "include"]);
                    file.ignored.push(format!("line {line}: 'set' has no effect"));
                }
                Some("include") => {
                    return self.problem("'include' is not for jobs: put the services into the job's own file");
                }
                None if self.peek().is_none() => {}
                _ => return self.problem("'check' is expected"),
            }
        }
        Ok(file)
    }

    /// Skips to one of `ends`; braces belong together.
    fn skip_statement(&mut self, ends: &[&str]) {
        self.advance();
        let mut depth = 0_usize;
        while let Some(text) = self.peek() {
            match text {
                Text::Mark('{') => depth += 1,
                Text::Mark('}') => depth = depth.saturating_sub(1),
                Text::Word(word) if depth == 0 && ends.contains(&word.to_lowercase().as_str()) => return,
                _ => {}
            }
            self.advance();
        }
    }

    fn service(&mut self, ignored: &mut Vec<String>) -> Parsed<Service> {
        self.expect("check")?;
        let line = self.last_line;
        let kind = self.keyword().unwrap_or_default();
        if !["process", "file", "directory", "host", "system"].contains(&kind.as_str()) {
            return self.problem("only process, file, directory, host and system can be checked");
        }
        self.advance();
        let name = self.text("the service's name")?;
        let kind = match kind.as_str() {
            "process" => {
                self.expect("pidfile")?;
                Kind::Process { pidfile: self.path()? }
            }
            "file" => {
                self.expect("path")?;
                Kind::File { path: self.path()? }
            }
            "directory" => {
                self.expect("path")?;
                Kind::Directory { path: self.path()? }
            }
            "host" => {
                self.expect("address")?;
                Kind::Host { address: self.text("a host's name or address")? }
            }
            _ => Kind::System,
        };
        let mut service = Service {
            name,
            line,
            kind,
            start: None,
            stop: None,
            groups: Vec::new(),
            depends: Vec::new(),
            tests: Vec::new(),
            mode: Mode::Active,
            every: 1,
        };
        while let Some(clause) = self.keyword() {
            match clause.as_str() {
                "check" | "set" | "include" => break,
                "start" => service.start = Some(self.program_clause()?),
                "stop" => service.stop = Some(self.program_clause()?),
                "group" => {
                    self.advance();
                    service.groups.push(self.text("a group's name")?);
                }
                "depends" | "depend" => {
                    self.advance();
                    service.depends.extend(self.names()?);
                }
                "if" => service.tests.push(self.test(&service.kind, ignored)?),
                "mode" => {
                    self.advance();
                    service.mode = match self.take_one_of(&["active", "passive", "manual"]).as_deref() {
                        Some("active") => Mode::Active,
                        Some("passive") => Mode::Passive,
                        Some(_) => Mode::Manual,
                        None => return self.problem("active, passive or manual is expected"),
                    };
                }
                "every" => {
                    self.advance();
                    service.every = self.count("a number of cycles")?.max(1);
                    if self.take_one_of(&["cycle", "cycles"]).is_none() {
                        return self.problem("'cycles' is expected");
                    }
                }
                "alert" | "noalert" => {
                    let line = self.line();
                    self.skip_statement(&CLAUSES);
                    ignored.push(format!("line {line}: '{clause}' has no effect: alerts go to the director"));
                }
                _ => return self.problem("this clause is not known"),
            }
        }
        if self.peek().is_some() && self.keyword().is_none() {
            return self.problem("a clause is expected");
        }
        Ok(service)
    }

    fn path(&mut self) -> Parsed<String> {
        let start = self.next;
        let path = self.text("a path")?;
        if path.starts_with('/') {
            return Ok(path);
        }
        self.next = start;
        self.problem("a path that begins with / is expected")
    }

    fn names(&mut self) -> Parsed<Vec<String>> {
        let mut names = vec![self.text("a service's name")?];
        while self.peek() == Some(&Text::Mark(',')) {
            self.advance();
            names.push(self.text("a service's name")?);
        }
        Ok(names)
    }

    fn program_clause(&mut self) -> Parsed<Program> {
        self.advance();
        self.take("program");
        if self.peek() == Some(&Text::Operator("=")) {
            self.advance();
        }
        self.program()
    }

    fn program(&mut self) -> Parsed<Program> {
        let start = self.next;
        let arguments = split_command(&self.text("a program")?);
        if !arguments.first().is_some_and(|program| program.starts_with('/')) {
            self.next = start;
            return self.problem("a program is expected, by a path that begins with /");
        }
        let mut program = Program { arguments, uid: None, gid: None, timeout: PATIENCE };
        loop {
            match self.keyword().as_deref() {
                Some("as") => {
                    self.advance();
                    if self.keyword().is_none_or(|word| word != "uid" && word != "gid") {
                        return self.problem("'uid' or 'gid' is expected");
                    }
                }
                Some("uid") => {
                    self.advance();
                    program.uid = Some(self.text("a user")?);
                }
                Some("gid") => {
                    self.advance();
                    program.gid = Some(self.text("a group")?);
                }
                Some("timeout") => {
                    self.advance();
                    program.timeout = self.seconds()?;
                }
                _ => return Ok(program),
            }
        }
    }

    /// `60`, `60 seconds`, `60s`, `2 minutes`.
    fn seconds(&mut self) -> Parsed<Duration> {
        let (number, glued) = self.number("a number of seconds")?;
        let unit = if glued.is_empty() { self.take_one_of(&TIME_UNITS).unwrap_or_default() } else { glued };
        let Some(factor) = time_factor(&unit) else { return self.problem("seconds are expected") };
        // Nobody waits for longer than a day.
        Ok(Duration::from_secs_f64((number * factor as f64).clamp(0.0, 86_400.0)))
    }

    fn test(&mut self, kind: &Kind, ignored: &mut Vec<String>) -> Parsed<Test> {
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

const TIME_UNITS: [&str; 8] = ["second", "seconds", "minute", "minutes", "hour", "hours", "day", "days"];

fn time_factor(unit: &str) -> Option<u64> {
    match unit {
        "" | "s" | "second" | "seconds" => Some(1),
        "minute" | "minutes" => Some(60),
        "hour" | "hours" => Some(3600),
        "day" | "days" => Some(86_400),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
