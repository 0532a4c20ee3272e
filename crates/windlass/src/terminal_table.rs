//! Tables on a terminal: as wide as it is, ids short, times relative, and how something is doing as a symbol and in colour.
//!
//! Nothing is broken in the middle of a word. What does not fit is wrapped between words, then columns go that say least, and a
//! line below names them; `--wide` shows all of it, as BOSH does.

use crate::formats;
use crate::screen::Paint;
use crate::table::Table;

/// Columns that go first when a table is too wide to stand in single lines.
const NOISE: [&str; 6] = ["Active", "Bootstrap", "Ignore", "Agent ID", "Index", "Deployment"];
/// Columns that go rather than that they make every row two lines high: of VMs they say the same in most rows.
const SAME_IN_MOST_ROWS: [&str; 2] = ["VM Type", "Stemcell"];
/// Columns that go when it is too wide in several lines, the first first.
const DETAILS: [&str; 26] = [
    "Metadata",
    "Context",
    "Cloud Properties",
    "Swap\nUsage",
    "CPU\nWait",
    "CPU\nSys",
    "CPU\nUser",
    "System\nDisk Usage",
    "Ephemeral\nDisk Usage",
    "Persistent\nDisk Usage",
    "VM Created At",
    "Uptime",
    "Load\n(1m, 5m, 15m)",
    "CPU\nTotal",
    "VM Type",
    "Stemcell",
    "Request ID",
    "Object Type",
    "User",
    "Started At",
    "Hint",
    "CID",
    "Disk CIDs",
    "VM CID",
    "Instance",
    "Method",
];
/// Columns that say how something is doing.
const HEALTH: [&str; 4] = ["Process State", "State", "Verdict", "Health"];
const GAP: usize = 2;
/// No column becomes narrower because of another one.
const NARROWEST: usize = 6;
/// A word longer than this is no reason to drop another column.
const LONG_WORD: usize = 24;

/// How something is doing, as far as its word tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Health {
    Good,
    Bad,
    Resting,
    Changing,
}

impl Health {
    fn of(word: &str) -> Option<Self> {
        Some(match word {
            "running" | "done" | "good" => Self::Good,
            "failing" | "error" | "timeout" | "bad" | "unresponsive agent" => Self::Bad,
            "stopped" | "cancelled" => Self::Resting,
            "starting" | "stopping" | "processing" | "queued" | "cancelling" | "limited" => Self::Changing,
            _ => return None,
        })
    }

    fn symbol(self) -> &'static str {
        match self {
            Self::Good => "●",
            Self::Bad => "✗",
            Self::Resting => "○",
            Self::Changing => "◐",
        }
    }

    fn paint(self) -> Option<Paint> {
        match self {
            Self::Good => Some(Paint::Green),
            Self::Bad => Some(Paint::Red),
            Self::Resting => None,
            Self::Changing => Some(Paint::Yellow),
        }
    }
}

/// A cell: its text, in which colour it is, and whether its lines stay whole.
#[derive(Debug, Clone, Default)]
struct Cell {
    text: String,
    paint: Option<Paint>,
    whole: bool,
    heading: bool,
}

/// Columns whose cells are read at a glance, and so not broken.
const WHOLE: [&str; 9] = ["Instance", "Size", "IPs", "ID", "AZ", "Process", "Memory\nUsage", "Time", "After"];

/// The table on a terminal of `width` letters. `now` is what times are relative to; `paint` puts a text into a colour.
pub(crate) fn on_terminal(table: &Table, width: usize, now: i64, paint: impl Fn(Paint, &str) -> String) -> String {
    let mut text =
        table.title.iter().map(|title| format!("{}\n\n", in_lines(title, width).join("\n"))).collect::<String>();
    let mut notes: Vec<String> = table.notes.iter().map(|note| (*note).to_owned()).collect();
    let header: Vec<Cell> = table.header.iter().map(|name| Cell::heading(name)).collect();
    let rows = if table.shown_rows.is_empty() { &table.rows } else { &table.shown_rows };
    let mut rows: Vec<Vec<Cell>> = rows
        .iter()
        .map(|row| row.iter().zip(&table.header).map(|(cell, name)| Cell::new(name, cell, now)).collect())
        .collect();
    if table.transpose {
        let mut lines = Vec::new();
        for (index, row) in rows.into_iter().enumerate() {
            if index > 0 {
                lines.push(vec![Cell::plain(" "), Cell::plain(" ")]);
            }
            lines.extend(header.iter().zip(row).map(|(name, cell)| vec![Cell { whole: true, ..name.clone() }, cell]));
        }
        text.push_str(&laid_out(&lines, &widths(&lines, width), &paint));
    } else {
        for index in (1..rows.len()).rev() {
            if rows[index].first().map(|cell| &cell.text) == rows[index - 1].first().map(|cell| &cell.text) {
                rows[index][0] = Cell::plain("~");
            }
        }
        rows.insert(0, header);
        let dropped = drop_columns(table, &mut rows, width);
        text.push_str(&laid_out(&rows, &widths(&rows, width), &paint));
        if !dropped.is_empty() {
            notes.push(format!("Not shown: {}; --wide shows all", dropped.join(", ")));
        }
    }
    if !notes.is_empty() {
        let folded: Vec<String> = notes.iter().flat_map(|note| in_lines(note, width)).collect();
        text.push_str(&format!("\n{}\n", folded.join("\n")));
    }
    if !table.content.is_empty() && !table.header.is_empty() {
        let count = table.counted.unwrap_or(table.rows.len());
        let content = if count == 1 { table.content.trim_end_matches('s') } else { table.content };
        text.push_str(&format!("\n{count} {content}\n"));
    }
    text
}

impl Cell {
    fn plain(text: &str) -> Self {
        Self { text: text.to_owned(), ..Self::default() }
    }

    fn heading(name: &str) -> Self {
        Self { text: name.to_owned(), paint: Some(Paint::Bold), whole: false, heading: true }
    }

    fn new(column: &str, text: &str, now: i64) -> Self {
        if text.is_empty() {
            return Self::plain("-");
        }
        if let Some(health) = Health::of(text).filter(|_| HEALTH.contains(&column)) {
            return Self {
                text: format!("{} {text}", health.symbol()),
                paint: health.paint(),
                whole: true,
                heading: false,
            };
        }
        match formats::unix_time_of(text) {
            Some(time) => Self { whole: true, ..Self::plain(&formats::relative(time, now)) },
            None => {
                let text = formats::short_digests(&formats::short_ids(text));
                Self { whole: WHOLE.contains(&column), ..Self::plain(&text) }
            }
        }
    }

    fn natural(&self) -> usize {
        self.text.lines().map(|line| line.chars().count()).max().unwrap_or(0)
    }

    /// A heading in two lines is no loss.
    fn natural_but_for_headings(&self) -> usize {
        if self.heading { self.least() } else { self.natural() }
    }

    /// What it needs in any case: the longest of its words, or all of it.
    fn least(&self) -> usize {
        if self.whole {
            return self.natural();
        }
        let words = self.text.split_whitespace().flat_map(parts).map(|part| part.chars().count());
        words.max().unwrap_or(0).min(LONG_WORD)
    }

    fn in_lines(&self, width: usize) -> Vec<String> {
        match self.whole {
            true => self.text.split('\n').map(|line| elided(line, width)).collect(),
            false => in_lines(&self.text, width),
        }
    }
}

/// Takes out columns until the rest fits. Gives their names.
fn drop_columns(table: &Table, rows: &mut [Vec<Cell>], width: usize) -> Vec<String> {
    let mut names: Vec<&str> = table.header.clone();
    let mut dropped = Vec::new();
    let mut drop = |rows: &mut [Vec<Cell>], names: &mut Vec<&str>, name: &str| {
        // The first says what the row is about.
        if let Some(index) = names.iter().position(|it| *it == name).filter(|index| *index > 0) {
            names.remove(index);
            rows.iter_mut().for_each(|row| drop_cell(row, index));
            dropped.push(name.replace('\n', " "));
        }
    };
    for name in NOISE {
        if total(rows, Cell::natural) > width && (name != "Deployment" || table.title.is_some()) {
            drop(rows, &mut names, name);
        }
    }
    for name in SAME_IN_MOST_ROWS {
        if total(rows, Cell::natural_but_for_headings) > width {
            drop(rows, &mut names, name);
        }
    }
    for name in DETAILS {
        if total(rows, Cell::least) > width {
            drop(rows, &mut names, name);
        }
    }
    dropped
}

fn drop_cell(row: &mut Vec<Cell>, index: usize) {
    if index < row.len() {
        row.remove(index);
    }
}

/// What each column needs, by a measure of its cells.
fn needs(rows: &[Vec<Cell>], measure: impl Fn(&Cell) -> usize) -> Vec<usize> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    (0..columns).map(|column| rows.iter().filter_map(|row| row.get(column)).map(&measure).max().unwrap_or(0)).collect()
}

fn total(rows: &[Vec<Cell>], measure: impl Fn(&Cell) -> usize) -> usize {
    let needs = needs(rows, measure);
    needs.iter().sum::<usize>() + GAP * needs.len().saturating_sub(1)
}

/// How wide each column is: as it wants to be, or else what there is, where most is missing.
fn widths(rows: &[Vec<Cell>], width: usize) -> Vec<usize> {
    let natural = needs(rows, Cell::natural);
    let room = width.saturating_sub(GAP * natural.len().saturating_sub(1));
    if natural.iter().sum::<usize>() <= room {
        return natural;
    }
    let mut widths: Vec<usize> =
        needs(rows, Cell::least).iter().zip(&natural).map(|(least, most)| *least.min(most)).collect();
    while widths.iter().sum::<usize>() > room {
        match widths.iter_mut().filter(|width| **width > NARROWEST).max() {
            Some(widest) => *widest -= 1,
            None => break,
        }
    }
    let wanted = needs(rows, Cell::natural_but_for_headings);
    while widths.iter().sum::<usize>() < room {
        let missing = (0..widths.len()).filter(|column| wanted[*column] > widths[*column]);
        match missing.max_by_key(|column| wanted[*column] - widths[*column]) {
            Some(column) => widths[column] += 1,
            None => break,
        }
    }
    widths
}

fn laid_out(rows: &[Vec<Cell>], widths: &[usize], paint: &impl Fn(Paint, &str) -> String) -> String {
    let mut text = String::new();
    for row in rows {
        let cells: Vec<Vec<String>> = row.iter().zip(widths).map(|(cell, width)| cell.in_lines(*width)).collect();
        let height = cells.iter().map(Vec::len).max().unwrap_or(1);
        for line in 0..height {
            let mut shown = String::new();
            let mut used = 0;
            for (column, (cell, width)) in cells.iter().zip(widths).enumerate() {
                let part = cell.get(line).map_or("", String::as_str);
                if part.is_empty() {
                    continue;
                }
                let begin: usize = widths[..column].iter().sum::<usize>() + GAP * column;
                shown.push_str(&" ".repeat(begin - used));
                shown.push_str(&row[column].paint.map_or_else(|| part.to_owned(), |colour| paint(colour, part)));
                used = begin + part.chars().count().min(*width);
            }
            text.push_str(&shown);
            text.push('\n');
        }
    }
    text
}

/// A text in lines of at most `width` letters, broken between words, or after what separates parts of a path or of JSON. A part
/// that is longer than a line loses its end.
pub(crate) fn in_lines(text: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    for given in text.split('\n') {
        let indent: String = given.chars().take_while(|letter| *letter == ' ').collect();
        let mut line = indent.clone();
        let mut empty = true;
        for word in given.split(' ').filter(|word| !word.is_empty()) {
            // Only a word that no line has room for is broken.
            let fits = indent.len() + word.chars().count() <= width;
            let pieces: Vec<&str> = if fits { vec![word] } else { parts(word).collect() };
            for (index, part) in pieces.into_iter().enumerate() {
                let gap = usize::from(index == 0 && !empty);
                if !empty && line.chars().count() + gap + part.chars().count() > width {
                    lines.push(std::mem::replace(&mut line, indent.clone()));
                    empty = true;
                }
                if gap > 0 && !empty {
                    line.push(' ');
                }
                let room = width.saturating_sub(line.chars().count());
                line.push_str(&elided(part, room));
                empty = false;
            }
        }
        lines.push(line);
    }
    lines
}

fn elided(part: &str, room: usize) -> String {
    if part.chars().count() <= room {
        return part.to_owned();
    }
    // Of an instance the id stays, as it tells it from its sisters.
    if let Some((group, id)) = part.split_once('/')
        && let Some(left) = room.checked_sub(id.chars().count() + 2).filter(|left| *left > 0)
    {
        return group.chars().take(left).chain("…/".chars()).chain(id.chars()).collect();
    }
    part.chars().take(room.saturating_sub(1)).chain(['…']).collect()
}

/// Where a long word may be broken.
fn parts(word: &str) -> impl Iterator<Item = &str> {
    word.split_inclusive(['/', ','])
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "83e68947-b7a1-4c06-9c6e-3f2b81f1a7a2";

    fn row(cells: &[&str]) -> Vec<String> {
        cells.iter().map(|cell| (*cell).to_owned()).collect()
    }

    fn shown(table: &Table, width: usize) -> String {
        on_terminal(table, width, 1_794_770_131 + 90, |paint, text| match paint {
            Paint::Red => format!("!{text}!"),
            _ => text.to_owned(),
        })
    }

    fn vms() -> Table {
        let header = vec!["Instance", "Process State", "AZ", "IPs", "VM CID", "VM Type", "Active", "Stemcell"];
        let line = |state: &str| {
            row(&[
                &format!("db/{ID}"),
                state,
                "z1",
                "10.84.0.2",
                &format!("vm-{ID}"),
                "small",
                "true",
                "windlass-minimal/1",
            ])
        };
        Table { content: "vms", header, rows: vec![line("running"), line("failing")], ..Table::default() }
    }

    #[test]
    fn a_table_fits_the_terminal_and_says_what_it_leaves_out() {
        let text = shown(&vms(), 80);
        for line in text.lines() {
            assert!(line.chars().filter(|letter| *letter != '!').count() <= 80, "{line}");
        }
        assert!(text.contains("db/83e68947…  ● running"), "{text}");
        assert!(text.contains("!✗ failing!"), "bad is red: {text}");
        assert!(text.contains("Not shown: Active; --wide shows all") && text.ends_with("\n2 vms\n"), "{text}");
        assert!(text.contains("windlass-minimal/1"), "{text}");
        assert!(!shown(&vms(), 200).contains("Not shown"));
        let mut wider = vms();
        wider.rows.iter_mut().for_each(|row| row[3] = "127.84.0.23".to_owned());
        let text = shown(&wider, 80);
        assert!(text.contains("Not shown: Active, VM Type; --wide shows all"), "rows stay one line high: {text}");
        assert!(text.contains("vm-83e68947…  windlass-minimal/1\n"), "{text}");
    }

    /// With long names of groups, the ids are all that differs.
    #[test]
    fn one_sees_which_instance_it_is_whatever_its_group_is_called() {
        let header =
            vec!["Instance", "Process State", "AZ", "IPs", "Load\n(1m, 5m, 15m)", "CPU\nTotal", "Memory\nUsage"];
        let name = format!("a-group-with-a-rather-long-name/{ID}");
        let cells = [name.as_str(), "running", "z1", "10.84.0.21", "9.53, 7.13, 6.29", "1.5%", "0% (2.0 MB)"];
        let vitals = Table { content: "vms", header, rows: vec![row(&cells)], ..Table::default() };
        let text = shown(&vitals, 80);
        assert!(text.contains("a-group-with-a-rather-long-na…/83e68947…  ● running  z1  10.84.0.21"), "{text}");
        assert!(text.contains("Not shown: Load (1m, 5m, 15m)"), "{text}");
        assert!(shown(&vitals, 60).contains("…/83e68947…"), "{}", shown(&vitals, 60));

        let (disk, vm) = (format!("disk-{ID}"), format!("vm-{ID}"));
        let header = vec!["Disk CID", "Size", "Instance", "VM CID", "Mounted", "Hint"];
        let cells = [disk.as_str(), "64 MiB", name.as_str(), vm.as_str(), "true", "\"/warden-cpi-dev/disk\""];
        let disks = Table { content: "disks", header, rows: vec![row(&cells)], ..Table::default() };
        let text = shown(&disks, 80);
        assert!(text.contains("a-group-with-a-rather-long-name/83e68947…"), "whose disk it is: {text}");
    }

    /// A second line in each row for the unit of a time is two screens instead of one.
    #[test]
    fn times_since_the_beginning_stay_in_one_line() {
        let header = vec!["Time", "After", "Stage", "What"];
        let cells = ["09:00:25", "0.608 s", "Applying problem resolutions", "telling the agent about the disk"];
        let table = Table { content: "moments", header, rows: vec![row(&cells)], ..Table::default() };
        assert!(shown(&table, 80).contains("09:00:25  0.608 s  Applying"), "{}", shown(&table, 80));
    }

    #[test]
    fn no_width_breaks_a_word_or_the_terminal() {
        let long = "the CPI answered 'create_vm' with an error that is long and has a path /var/lib/windlass/cloud/disks/x in it";
        let table = Table {
            content: "tasks",
            header: vec!["ID", "State", "Started At", "Description", "Result"],
            rows: vec![row(&["7", "error", "Sun Nov 15 19:15:31 UTC 2026", "create deployment", long])],
            ..Table::default()
        };
        for width in 40..130 {
            let text = shown(&table, width).replace('!', "");
            assert!(text.lines().all(|line| line.chars().count() <= width), "{width}:\n{text}");
            let words: Vec<&str> = text.split_whitespace().collect();
            for word in ["answered", "'create_vm'", "deployment"] {
                assert!(words.contains(&word), "'{word}' at {width}:\n{text}");
            }
        }
        let wide = shown(&table, 120);
        assert!(wide.contains("1 min ago") && wide.contains("✗ error") && wide.ends_with("\n1 task\n"), "{wide}");
    }

    #[test]
    fn what_a_person_sees_of_a_row_may_differ_from_what_scripts_see() {
        let mut table = vms();
        table.rows[0][1] = String::new();
        table.shown_rows = table.rows.clone();
        table.shown_rows[0][1] = "running".to_owned();
        assert!(shown(&table, 80).contains("● running"));
        assert!(!table.for_scripts().contains("running"));
    }

    #[test]
    fn one_thing_is_wrapped_beside_its_name() {
        let table = Table {
            header: vec!["Director", "Stemcell(s)"],
            rows: vec![row(&["running at https://127.0.0.1:25555 (process 4711, since 3 min ago)", "a/1\nb/2"])],
            transpose: true,
            ..Table::default()
        };
        let expected = "Director     running at\n             https://127.0.0.1:25555\n             (process 4711, since 3\n             min ago)\nStemcell(s)  a/1\n             b/2\n";
        assert_eq!(shown(&table, 37), expected);
    }

    #[test]
    fn what_is_longer_than_a_line_loses_its_end_and_indents_stay() {
        assert_eq!(in_lines("abcdefghij", 5), ["abcd…"]);
        assert_eq!(in_lines("/var/lib/windlass", 9), ["/var/lib/", "windlass"]);
        assert_eq!(in_lines("  a bc def", 6), ["  a bc", "  def"]);
        assert_eq!(in_lines("", 6), [""]);
    }
}
