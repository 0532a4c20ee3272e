//! Tokens to services.

mod conditions;

use std::time::Duration;

use super::lexer::{Text, Token, split_command, tokens};
use super::{Kind, Mode, MonitError, MonitFile, PATIENCE, Program, Service};

/// Words that mean nothing, wherever they stand between others.
const NOISE: [&str; 13] =
    ["is", "are", "on", "only", "with", "within", "of", "the", "and", "has", "using", "use", "it's"];

/// What a clause of a service begins with; what has no extent of its own ends before the next of these.
const CLAUSES: [&str; 14] = [
    "start", "stop", "restart", "group", "depends", "depend", "if", "mode", "every", "alert", "noalert", "check",
    "set", "include",
];

/// Larger files are refused: no job has one, and reading it would take memory.
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
