//! What is printed: for people on a terminal, for scripts elsewhere, or as one JSON document at the end.
//!
//! As with the original, scripts get data only: lines that tell a person where things stand are left out for them.

mod questions;

use std::io::{self, IsTerminal, Write};

use serde_json::{Value, json};

use crate::cli::Global;
use crate::failure::{Failure, KnownNames};
use crate::formats;
use crate::table::Table;
use crate::terminal_table::{in_lines, on_terminal};

/// For whom is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reader {
    Person,
    Script,
    Json,
}

/// Where output goes.
#[derive(Debug)]
pub(crate) struct Screen {
    reader: Reader,
    /// Whether it can draw over what it printed.
    live: bool,
    colours: bool,
    /// Whether a person is spared what repeats, and long ids.
    brief: bool,
    /// Letters in a line of the terminal, which tables are fitted to; none where they are shown as BOSH shows them.
    width: Option<usize>,
    /// What is shown at once at the end, where the screen is drawn again and again.
    held_back: Option<String>,
    asks: bool,
    /// Whether it ends by saying that all went well.
    confirms_success: bool,
    /// Whether scripts take it for the output of BOSH's client.
    as_bosh: bool,
    /// Whether something was printed that a paragraph is set off from.
    begun: bool,
    /// Whether pieces ended without a line break, which comes before whatever is printed next.
    owes_line_break: bool,
    document: Document,
    /// Whether there is a table that the next is set off from.
    tabled: bool,
    /// What is shown of tables; everything if empty.
    columns: Vec<String>,
    /// The columns of the table that had none of those that were asked for.
    found_no_column: Option<Vec<String>>,
    /// With what the program ends if all goes well.
    code: u8,
    /// The first failure to print; the rest would fail, too.
    broken: Option<io::Error>,
}

/// What `--json` prints at the end.
#[derive(Debug, Default)]
struct Document {
    tables: Vec<Value>,
    blocks: Vec<String>,
    lines: Vec<String>,
}

/// A colour or weight.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Paint {
    Bold,
    Red,
    Green,
    Yellow,
}

impl Screen {
    /// The standard output.
    pub(crate) fn new(flags: &Global) -> Self {
        let terminal = io::stdout().is_terminal();
        let reader = match (flags.json, terminal || flags.tty || is_set("BOSH_TTY")) {
            (true, _) => Reader::Json,
            (false, true) => Reader::Person,
            (false, false) => Reader::Script,
        };
        let person = reader == Reader::Person;
        Self {
            reader,
            live: person && terminal,
            colours: person && terminal && !flags.no_color && std::env::var_os("NO_COLOR").is_none(),
            brief: person && flags.brief,
            width: (person && terminal && !flags.wide).then(terminal_width),
            held_back: None,
            // Also where the output is no terminal, somebody may answer on the standard input.
            asks: !flags.non_interactive && !is_set("BOSH_NON_INTERACTIVE"),
            confirms_success: true,
            as_bosh: crate::is_called_bosh(),
            begun: false,
            owes_line_break: false,
            document: Document::default(),
            tabled: false,
            columns: flags.columns.clone(),
            found_no_column: None,
            code: 0,
            broken: None,
        }
    }

    /// The program ends with this code if all goes well.
    pub(crate) fn end_with(&mut self, code: u8) {
        self.code = code;
    }

    /// With what the program ends if all goes well.
    pub(crate) fn code(&self) -> u8 {
        self.code
    }

    /// Whether nobody reads it any more.
    pub(crate) fn is_broken(&self) -> bool {
        self.broken.is_some()
    }

    /// For verbs that print for themselves: only a failure is shown.
    pub(crate) fn for_failures_only(flags: &Global) -> Self {
        Self { confirms_success: false, ..Self::new(&Global { json: false, ..flags.clone() }) }
    }

    /// A terminal that is redrawn each time; none if there is no terminal. Progress is not shown again and again.
    pub(crate) fn watched(flags: &Global) -> Option<Self> {
        let screen = Self::new(flags);
        let quiet = Self { live: false, confirms_success: false, held_back: Some(String::new()), ..screen };
        quiet.width.is_some().then_some(quiet)
    }

    /// What was held back, in the place of what the terminal shows.
    pub(crate) fn redraw(&mut self, title: &str, first: bool) {
        let text = self.held_back.take().unwrap_or_default();
        let height = rustix::termios::tcgetwinsize(io::stdout()).map_or(24, |window| usize::from(window.ws_row));
        // From the first line on; each line loses what stood there before, and so does what is below.
        let lines: Vec<String> =
            [title, ""].into_iter().chain(text.lines()).map(|line| format!("{line}\u{1b}[K")).collect();
        let shown = lines.iter().take(height.saturating_sub(1).max(1)).cloned().collect::<Vec<_>>().join("\r\n");
        let clear = if first { "\u{1b}[2J" } else { "" };
        self.print(&format!("{clear}\u{1b}[H{shown}\u{1b}[J"));
    }

    /// Whether it is drawn again and again.
    pub(crate) fn is_watched(&self) -> bool {
        self.held_back.is_some()
    }

    /// Whether it can draw over what it printed.
    pub(crate) fn is_live(&self) -> bool {
        self.live
    }

    /// Whether a person reads it.
    pub(crate) fn is_for_people(&self) -> bool {
        self.reader == Reader::Person
    }

    /// Whether it must print nothing that BOSH's client does not.
    pub(crate) fn is_as_bosh(&self) -> bool {
        self.as_bosh && self.reader != Reader::Person
    }

    fn is_script_of_bosh(&self) -> bool {
        self.as_bosh && self.reader == Reader::Script
    }

    /// Whether it prints one JSON document.
    pub(crate) fn is_json(&self) -> bool {
        self.reader == Reader::Json
    }

    /// Whether a person is spared what repeats, and long ids.
    pub(crate) fn is_brief(&self) -> bool {
        self.brief
    }

    /// A text as this screen shows it.
    pub(crate) fn shown(&self, text: &str) -> String {
        if self.brief { formats::short_digests(&formats::short_ids(text)) } else { text.to_owned() }
    }

    /// In a colour, where there are colours.
    fn paint(&self, paint: Paint, text: &str) -> String {
        if !self.colours {
            return text.to_owned();
        }
        let code = match paint {
            Paint::Bold => 1,
            Paint::Red => 31,
            Paint::Green => 32,
            Paint::Yellow => 33,
        };
        format!("\u{1b}[{code}m{text}\u{1b}[0m")
    }

    /// Tells a person where things stand.
    pub(crate) fn line(&mut self, text: &str) {
        match self.reader {
            Reader::Person => self.paragraph(&self.fitted(&formats::plain(text))),
            Reader::Script => {}
            Reader::Json => self.document.lines.push(text.to_owned()),
        }
    }

    /// A text in lines that fit the terminal, if there is one.
    fn fitted(&self, text: &str) -> String {
        self.width.map_or_else(|| text.to_owned(), |width| between_words(text, width))
    }

    /// The same with short ids and digests, where tables have them short.
    pub(crate) fn fitted_with_short_ids(&self, text: &str) -> String {
        match self.width {
            Some(width) => between_words(&formats::short_digests(&formats::short_ids(text)), width),
            None => text.to_owned(),
        }
    }

    /// Tells everybody where things stand: for verbs of our own, whose output people pass on as it is.
    pub(crate) fn told(&mut self, text: &str) {
        match self.reader {
            Reader::Person | Reader::Script => self.print(&format!("{}\n", self.fitted(&formats::plain(text)))),
            Reader::Json => self.document.lines.push(text.to_owned()),
        }
    }

    /// The same, set off from what stands above.
    pub(crate) fn told_apart(&mut self, text: &str) {
        if self.reader != Reader::Json {
            self.set_off();
        }
        self.told(text);
    }

    /// The same in lines that have colours, where there are colours.
    pub(crate) fn painted_lines(&mut self, lines: &[(Option<Paint>, String)]) {
        let join = |lines: Vec<String>| lines.join("\n");
        match self.reader {
            Reader::Person => {
                let paint = |(paint, line): &(Option<Paint>, String)| match paint {
                    Some(paint) => self.paint(*paint, &formats::plain(line)),
                    None => formats::plain(line),
                };
                let text = join(lines.iter().map(paint).collect());
                self.paragraph(&text);
            }
            Reader::Script => {}
            // Each by itself, with its line break, as BOSH's client has them.
            Reader::Json => self.document.lines.extend(lines.iter().map(|(_, line)| format!("{line}\n"))),
        }
    }

    /// Tells everybody what they should think about, beside what was asked for.
    pub(crate) fn warning(&mut self, text: &str) {
        match self.reader {
            Reader::Person => self.set_off(),
            Reader::Script => {}
            Reader::Json => return self.document.lines.push(text.to_owned()),
        }
        let text = formats::plain(text);
        let text = if io::stderr().is_terminal() { self.fitted(&text) } else { text };
        let _ = writeln!(io::stderr(), "{text}");
    }

    /// Tells a person what they may know already: which director, which deployment, and that all went well.
    pub(crate) fn context(&mut self, text: &str) {
        if !self.brief && !self.is_watched() {
            self.line(text);
        }
    }

    /// The same in lines that fit a terminal.
    pub(crate) fn prose_context(&mut self, text: &str) {
        if !self.brief && !self.is_watched() {
            match self.width {
                Some(_) => self.prose(text),
                None => self.line(text),
            }
        }
    }

    /// Tells a person more about what stands above. JSON gets it as it is, people without the line breaks around it.
    pub(crate) fn continue_line(&mut self, text: &str) {
        match self.reader {
            Reader::Person => self.print(&format!("{}\n", formats::plain(text.trim_matches('\n')))),
            Reader::Script => {}
            Reader::Json => self.document.lines.push(text.to_owned()),
        }
    }

    /// Begins a line that [`Screen::continue_line`] ends.
    pub(crate) fn begin_line(&mut self, text: &str) {
        match self.reader {
            Reader::Person => {
                self.set_off();
                self.print(&formats::plain(text));
            }
            Reader::Script => {}
            Reader::Json => self.document.lines.push(text.to_owned()),
        }
    }

    /// What was asked for: everybody gets it. It is a document, so what is no terminal gets it as it is.
    pub(crate) fn block(&mut self, text: &str) {
        match self.reader {
            Reader::Person => self.paragraph(&formats::plain(text.trim_end_matches('\n'))),
            Reader::Script => self.print(text),
            Reader::Json => self.document.blocks.push(text.to_owned()),
        }
    }

    /// The same in lines that fit a terminal, with short ids there.
    pub(crate) fn prose(&mut self, text: &str) {
        let width = self.width.or(self.brief.then_some(USUAL_WIDTH));
        match width.filter(|_| self.reader == Reader::Person) {
            Some(width) => {
                let text = formats::short_digests(&formats::short_ids(&formats::plain(text.trim_end_matches('\n'))));
                self.paragraph(&in_lines(&text, width).join("\n"));
            }
            None => self.block(text),
        }
    }

    /// A piece of what was asked for, without line breaks of its own.
    pub(crate) fn piece(&mut self, text: &str) {
        match self.reader {
            Reader::Person | Reader::Script => self.print(&formats::plain(text)),
            Reader::Json => self.document.blocks.push(text.to_owned()),
        }
    }

    /// Ends what pieces made up. BOSH's client ends the line only if another one follows.
    pub(crate) fn end_pieces(&mut self) {
        match self.reader {
            Reader::Script if self.as_bosh => self.owes_line_break = true,
            Reader::Person | Reader::Script => self.print("\n"),
            Reader::Json => {}
        }
    }

    /// Tells a person what events came to. JSON gets it as it is.
    pub(crate) fn end_events(&mut self, text: &str) {
        match self.reader {
            Reader::Person => self.paragraph(&formats::plain(text.trim_matches('\n'))),
            Reader::Script => {}
            Reader::Json => self.document.lines.push(text.to_owned()),
        }
    }

    /// Prints a table.
    pub(crate) fn table(&mut self, table: &Table) {
        let chosen = (!self.columns.is_empty()).then(|| table.with_columns(&self.columns));
        let all_columns = table.column_keys();
        if chosen.as_ref().is_some_and(|table| table.header.is_empty()) {
            self.found_no_column = Some(all_columns);
            return;
        }
        let table = chosen.as_ref().unwrap_or(table);
        match self.reader {
            Reader::Person => {
                let table = table.plain();
                let brief = self.brief.then(|| table.brief(|text| formats::short_digests(&formats::short_ids(text))));
                let table = brief.as_ref().unwrap_or(&table);
                let text = match self.width {
                    Some(width) => on_terminal(table, width, formats::now(), |paint, text| self.paint(paint, text)),
                    None => table.for_people(|header| self.paint(Paint::Bold, header)),
                };
                self.paragraph(text.trim_end_matches('\n'));
            }
            Reader::Script => {
                let gap = if self.tabled { "\n" } else { "" };
                let text = format!("{gap}{}", table.plain().for_scripts());
                // A table without rows ends the line before it as well.
                let ends_a_line = text.is_empty() && std::mem::take(&mut self.owes_line_break);
                self.print(if ends_a_line { "\n" } else { &text });
                self.tabled = true;
            }
            Reader::Json => self.document.tables.push(table.to_json()),
        }
    }

    /// Fails if a table had none of the columns that were asked for.
    pub(crate) fn check_columns(&self) -> Result<(), Failure> {
        match &self.found_no_column {
            Some(known) => Err(Failure::NoColumn { name: self.columns.join("', '"), known: KnownNames(known.clone()) }),
            None => Ok(()),
        }
    }

    /// Ends the output: all went well, or `error` says what did not.
    pub(crate) fn finish(mut self, error: Option<&str>) -> io::Result<()> {
        match (self.reader, error) {
            (Reader::Json, _) => {
                self.document.lines.extend(error.map(str::to_owned));
                self.document.lines.push(if error.is_some() { "Exit code 1".into() } else { "Succeeded".into() });
                let text = self.document.render();
                self.print(if self.as_bosh { text.trim_end() } else { &text });
            }
            (_, None) if self.confirms_success => self.context("Succeeded"),
            (_, None) => {}
            (_, Some(error)) => {
                if self.is_script_of_bosh() {
                    // Its client sets off, among the output, what it prints elsewhere: the error, and then the exit code.
                    self.print(if self.begun && !self.owes_line_break { "\n\n" } else { "\n" });
                }
                let mut stderr = io::stderr().lock();
                let colours = self.colours && stderr.is_terminal();
                let gap = if self.begun && self.reader == Reader::Person { "\n" } else { "" };
                let (on, off) = if colours { ("\u{1b}[31m", "\u{1b}[0m") } else { ("", "") };
                let between = if self.reader == Reader::Person { "\n" } else { "" };
                let error = formats::plain(error);
                let error = match self.width.filter(|_| stderr.is_terminal()) {
                    Some(width) => in_lines(&error, width).join("\n"),
                    None => error,
                };
                writeln!(stderr, "{gap}{on}{error}{off}\n{between}{on}Exit code 1{off}")?;
            }
        }
        match self.broken {
            // The reader has seen enough, as `head` does.
            Some(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error),
            _ => Ok(()),
        }
    }

    fn paragraph(&mut self, text: &str) {
        self.set_off();
        self.print(&format!("{}\n", self.shown(text)));
    }

    fn set_off(&mut self) {
        if self.begun {
            self.print("\n");
        }
    }

    fn print(&mut self, text: &str) {
        if let Some(held_back) = &mut self.held_back {
            held_back.push_str(text);
        } else if self.broken.is_none() && !text.is_empty() {
            let mut stdout = io::stdout().lock();
            let owed = if std::mem::take(&mut self.owes_line_break) { "\n" } else { "" };
            let text = format!("{owed}{text}");
            self.broken = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).err();
        }
        self.begun = true;
    }
}

const USUAL_WIDTH: usize = 80;
/// A terminal that says that it is narrower does not know.
const NARROWEST: usize = 20;

/// Letters in a line of the terminal; as on most if there is none.
pub(crate) fn terminal_width() -> usize {
    let window = rustix::termios::tcgetwinsize(io::stdout()).ok().map(|window| usize::from(window.ws_col));
    window.filter(|width| *width >= NARROWEST).unwrap_or(USUAL_WIDTH)
}

/// A text whose lines are broken between words where they are too long, and stay as they are otherwise. A line with a word that is
/// longer than the terminal is wide, such as a path, stays whole, so that it can be copied.
pub(crate) fn between_words(text: &str, width: usize) -> String {
    let fitted = |line: &str| {
        let longest = line.split(' ').map(|word| word.chars().count()).max().unwrap_or(0);
        match line.chars().count() > width && longest <= width {
            true => in_lines(line, width).join("\n"),
            false => line.to_owned(),
        }
    };
    text.split('\n').map(fitted).collect::<Vec<_>>().join("\n")
}

/// Variables that switch something on.
fn is_set(variable: &str) -> bool {
    std::env::var(variable).is_ok_and(|value| matches!(value.as_str(), "1" | "true" | "yes"))
}

impl Document {
    fn render(&self) -> String {
        let list = |empty: bool, items: Value| if empty { Value::Null } else { items };
        let document = json!({
            "Tables": list(self.tables.is_empty(), Value::Array(self.tables.clone())),
            "Blocks": list(self.blocks.is_empty(), json!(self.blocks)),
            "Lines": list(self.lines.is_empty(), json!(self.lines)),
        });
        let mut text = Vec::new();
        let format = serde_json::ser::PrettyFormatter::with_indent(b"    ");
        let mut serializer = serde_json::Serializer::with_formatter(&mut text, format);
        // A document of strings and maps with string keys has a JSON form, and memory takes every write.
        let _ = serde::Serialize::serialize(&document, &mut serializer);
        let text = String::from_utf8_lossy(&text);
        // The first three as the original escapes them, the rest so that it steers no terminal; they stand in strings only.
        let mut escaped = String::with_capacity(text.len() + 1);
        for letter in text.chars() {
            match letter {
                '&' | '<' | '>' | '\u{7f}'..='\u{9f}' => escaped.push_str(&format!("\\u{:04x}", u32::from(letter))),
                _ if formats::turns(letter) => escaped.push_str(&format!("\\u{:04x}", u32::from(letter))),
                _ => escaped.push(letter),
            }
        }
        escaped + "\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_are_broken_between_words_and_paths_stay_whole() {
        let text = "Stemcell      s/1\nThis removes all deployments of the director in /home/ada with their disks";
        assert_eq!(
            between_words(text, 40),
            "Stemcell      s/1\nThis removes all deployments of the\ndirector in /home/ada with their disks"
        );
        let path = "Log           /home/ada/.local/state/windlass/director.log";
        assert_eq!(between_words(path, 30), path);
    }

    #[test]
    fn json_has_the_original_form() {
        let document = Document {
            tables: Vec::new(),
            blocks: vec!["a <b>\u{9b}2J\u{202e}".into()],
            lines: vec!["Using environment 'https://127.0.0.1:61010' as client 'test'".into(), "Succeeded".into()],
        };
        let expected = r#"{
    "Tables": null,
    "Blocks": [
        "a \u003cb\u003e\u009b2J\u202e"
    ],
    "Lines": [
        "Using environment 'https://127.0.0.1:61010' as client 'test'",
        "Succeeded"
    ]
}
"#;
        assert_eq!(document.render(), expected);
    }
}
