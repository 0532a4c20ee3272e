//! Tables as the original prints them: with a header for people, separated by tabs for scripts, or as JSON.

use serde_json::{Map, Value, json};

use crate::formats;

#[derive(Debug, Clone, Default)]
pub(crate) struct Table {
    /// What the rows are, in the plural; none for a table of one thing.
    pub(crate) content: &'static str,
    /// Stands above it, for people.
    pub(crate) title: Option<String>,
    pub(crate) header: Vec<&'static str>,
    /// A cell may have several lines; an empty one is shown as `-`.
    pub(crate) rows: Vec<Vec<String>>,
    /// What a person sees on a terminal in the place of the rows, if that differs.
    pub(crate) shown_rows: Vec<Vec<String>>,
    /// Of a verb that BOSH does not have: scripts get what people get, with its names.
    pub(crate) ours: bool,
    /// Stand below it, for people and in JSON.
    pub(crate) notes: Vec<&'static str>,
    /// JSON has a list of notes even if there are none.
    pub(crate) lists_notes: bool,
    /// One line per column instead of one per row: for single things.
    pub(crate) transpose: bool,
    /// How many things the rows are about, if not one each.
    pub(crate) counted: Option<usize>,
}

/// The columns whose cells may have several lines. A line break in another is somebody's attempt to make up a row.
const SEVERAL_LINES: [&str; 34] = [
    "Cloud Properties",
    "Config(s)",
    "Content",
    "Context",
    "Dependencies",
    "Description",
    "Details",
    "Diff",
    "Disk CIDs",
    "Error",
    "Failing",
    "Features",
    "Formats",
    "Found",
    "Found, and what to do",
    "Hint",
    "IPs",
    "Links Consumed",
    "Links Provided",
    "Metadata",
    "Needs Ruby",
    "Packages",
    "Problem",
    "Reason",
    "Release(s)",
    "Remedy",
    "Rendered by Ruby",
    "Result",
    "Stderr",
    "Stdout",
    "Stemcell(s)",
    "Tasks",
    "Team(s)",
    "Why",
];

impl Table {
    /// The same table, and what others wrote into its cells cannot steer a terminal.
    pub(crate) fn plain(&self) -> Self {
        let cell = |(index, cell): (usize, &String)| match self.header.get(index) {
            Some(name) if SEVERAL_LINES.contains(name) => formats::plain(cell),
            _ => formats::plain_line(cell),
        };
        let row = |row: &Vec<String>| row.iter().enumerate().map(cell).collect();
        Self {
            title: self.title.as_deref().map(formats::plain),
            rows: self.rows.iter().map(row).collect(),
            shown_rows: self.shown_rows.iter().map(row).collect(),
            ..self.clone()
        }
    }

    /// What its columns are called in JSON.
    pub(crate) fn column_keys(&self) -> Vec<String> {
        self.header.iter().enumerate().map(|(index, name)| key(name, index)).collect()
    }

    /// The same table with only these columns, by the keys that they have in JSON or by their titles, in the table's order.
    pub(crate) fn with_columns(&self, columns: &[String]) -> Self {
        let is_wanted = |index: &usize| columns.iter().any(|column| key(self.header[*index], *index) == key(column, 0));
        let shown: Vec<usize> = (0..self.header.len()).filter(is_wanted).collect();
        let rows = |rows: &[Vec<String>]| {
            rows.iter().map(|row| shown.iter().map(|index| row[*index].clone()).collect()).collect()
        };
        Self {
            header: shown.iter().map(|index| self.header[*index]).collect(),
            rows: rows(&self.rows),
            shown_rows: rows(&self.shown_rows),
            ..self.clone()
        }
    }

    /// The same table without a title, notes and a count, its cells as `shorten` makes them.
    pub(crate) fn brief(&self, shorten: impl Fn(&str) -> String) -> Self {
        let row = |row: &Vec<String>| row.iter().map(|cell| shorten(cell)).collect();
        let (rows, shown_rows) = (self.rows.iter().map(row).collect(), self.shown_rows.iter().map(row).collect());
        Self { content: "", title: None, notes: Vec::new(), rows, shown_rows, ..self.clone() }
    }

    /// For people. The header is `heading` of each of its lines.
    pub(crate) fn for_people(&self, heading: impl Fn(&str) -> String) -> String {
        let mut text = self.title.iter().map(|title| format!("{title}\n\n")).collect::<String>();
        let mut rows = self.rows.clone();
        for index in (1..rows.len()).rev() {
            if !self.transpose && rows[index].first() == rows[index - 1].first() {
                rows[index][0] = "~".into();
            }
        }
        if self.transpose {
            text.push_str(&lay_out(&self.transposed(), "  "));
        } else {
            rows.insert(0, self.header.iter().map(|name| (*name).to_owned()).collect());
            let laid_out = lay_out(&rows, "  ");
            let height = self.header.iter().map(|name| name.lines().count()).max().unwrap_or(0);
            for (index, line) in laid_out.lines().enumerate() {
                let line = if index < height { heading(line) } else { line.to_owned() };
                text.push_str(&line);
                text.push('\n');
            }
        }
        if !self.notes.is_empty() {
            text.push_str(&format!("\n{}\n", self.notes.join("\n")));
        }
        if !self.content.is_empty() && !self.header.is_empty() {
            let count = self.counted.unwrap_or(self.rows.len());
            let content = if self.ours && count == 1 { self.content.trim_end_matches('s') } else { self.content };
            text.push_str(&format!("\n{count} {content}\n"));
        }
        text
    }

    /// Name and value in each row, with an empty row between things.
    fn transposed(&self) -> Vec<Vec<String>> {
        let mut lines = Vec::new();
        for (index, row) in self.rows.iter().enumerate() {
            if index > 0 {
                lines.push(vec![" ".to_owned(), " ".to_owned()]);
            }
            lines.extend(self.header.iter().zip(row).map(|(name, cell)| vec![(*name).to_owned(), cell.clone()]));
        }
        lines
    }

    pub(crate) fn for_scripts(&self) -> String {
        if self.ours {
            let lines: Vec<_> =
                self.for_people(str::to_owned).lines().map(|line| format!("{}\n", line.trim_end())).collect();
            return lines.concat();
        }
        if self.transpose {
            let values: Vec<_> = self.transposed().into_iter().map(|mut line| line.split_off(1)).collect();
            return lay_out(&values, "\t");
        }
        lay_out(&self.rows, "\t")
    }

    /// As it stands in the `Tables` of a JSON document.
    pub(crate) fn to_json(&self) -> Value {
        let keys: Vec<_> = self.header.iter().enumerate().map(|(index, name)| key(name, index)).collect();
        let header = keys.iter().zip(&self.header).map(|(key, name)| (key.as_str(), json!(name)));
        let rows =
            self.rows.iter().map(|row| object(keys.iter().zip(row).map(|(key, cell)| (key.as_str(), json!(cell)))));
        let notes = if self.notes.is_empty() && !self.lists_notes { Value::Null } else { json!(self.notes) };
        json!({"Content": self.content, "Header": object(header), "Rows": rows.collect::<Vec<_>>(), "Notes": notes})
    }
}

/// With its keys in order, as the original's.
fn object<'a>(entries: impl Iterator<Item = (&'a str, Value)>) -> Value {
    let mut entries: Vec<_> = entries.collect();
    entries.sort_by_key(|(key, _)| *key);
    Value::Object(entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect::<Map<_, _>>())
}

/// `Release(s)` becomes `release_s`, and what has no letters the column's number.
fn key(name: &str, index: usize) -> String {
    let name = name.to_lowercase();
    let words = name.split(|letter: char| !letter.is_alphanumeric()).filter(|word| !word.is_empty());
    let key = words.collect::<Vec<_>>().join("_");
    if key.is_empty() { index.to_string() } else { key }
}

/// Columns of equal width, except the last; every cell is followed by the separator.
fn lay_out(rows: &[Vec<String>], separator: &str) -> String {
    let cells: Vec<Vec<Vec<&str>>> = rows.iter().map(|row| row.iter().map(|cell| lines_of(cell)).collect()).collect();
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns)
        .map(|column| {
            let lines = cells.iter().filter_map(|row| row.get(column)).flatten();
            lines.map(|line| line.chars().count()).max().unwrap_or(0)
        })
        .collect();
    let mut text = String::new();
    for row in &cells {
        let height = row.iter().map(Vec::len).max().unwrap_or(1);
        for line in 0..height {
            for (column, cell) in row.iter().enumerate() {
                let part = cell.get(line).copied().unwrap_or("");
                let width = if column + 1 == row.len() { 0 } else { widths[column] };
                text.push_str(&format!("{part:width$}{separator}"));
            }
            text.push('\n');
        }
    }
    text
}

fn lines_of(cell: &str) -> Vec<&str> {
    if cell.is_empty() { vec!["-"] } else { cell.split('\n').collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(cells: &[&str]) -> Vec<String> {
        cells.iter().map(|cell| (*cell).to_owned()).collect()
    }

    fn stemcells() -> Table {
        Table {
            content: "stemcells",
            header: vec!["Name", "Version", "OS", "CPI", "CID"],
            rows: vec![
                row(&["ubuntu-stemcell", "2", "toronto-os", "", "896ab86a"]),
                row(&["ubuntu-stemcell", "1*", "toronto-os", "", "0c524570"]),
            ],
            notes: vec!["(*) Currently deployed"],
            ..Table::default()
        }
    }

    #[test]
    fn people_see_the_original_tables() {
        let expected = "Name             Version  OS          CPI  CID  \n\
                        ubuntu-stemcell  2        toronto-os  -    896ab86a  \n\
                        ~                1*       toronto-os  -    0c524570  \n\
                        \n(*) Currently deployed\n\n2 stemcells\n";
        assert_eq!(stemcells().for_people(str::to_owned), expected);
        let empty = Table { content: "locks", header: vec!["Type", "Resource"], ..Table::default() };
        assert_eq!(empty.for_people(str::to_owned), "Type  Resource  \n\n0 locks\n");
    }

    #[test]
    fn scripts_see_no_header_and_no_abbreviation() {
        let table = Table { rows: vec![row(&["smoke/04", ""]), row(&["web/32987", "running"])], ..Table::default() };
        assert_eq!(table.for_scripts(), "smoke/04 \t-\t\nweb/32987\trunning\t\n");
        assert!(!stemcells().for_scripts().contains('~'));
    }

    /// A VM could make up a row, and turn a column of another one red.
    #[test]
    fn a_cell_neither_makes_up_a_row_nor_steers_the_terminal() {
        let rows =
            vec![row(&["db/1", "\u{1b}]0;OWNED\u{7}\u{1b}[2J\u{1b}[31mHACK\r\nfake line", "10.0.0.2\n10.0.0.3"])];
        let table = Table { header: vec!["Instance", "Process State", "IPs"], rows, ..Table::default() };
        let state = r"\u{1b}]0;OWNED\u{7}\u{1b}[2J\u{1b}[31mHACK\u{d}\u{a}fake line";
        let gap = " ".repeat(state.len());
        assert_eq!(table.plain().for_scripts(), format!("db/1\t{state}\t10.0.0.2\t\n    \t{gap}\t10.0.0.3\t\n"));
    }

    #[test]
    fn one_thing_is_shown_line_by_line() {
        let table = Table {
            header: vec!["Name", "Features"],
            rows: vec![row(&["TestDirector", "local_dns: enabled\nsnapshots: enabled"])],
            transpose: true,
            ..Table::default()
        };
        let expected = "Name      TestDirector  \nFeatures  local_dns: enabled  \n          snapshots: enabled  \n";
        assert_eq!(table.for_people(str::to_owned), expected);
        assert_eq!(table.for_scripts(), "TestDirector\t\nlocal_dns: enabled\t\nsnapshots: enabled\t\n");
    }

    #[test]
    fn columns_are_chosen_by_name_and_several_things_are_set_apart() {
        let table = stemcells().with_columns(&["CID".into(), "os".into(), "nope".into()]);
        assert_eq!(table.for_scripts(), "toronto-os\t896ab86a\t\ntoronto-os\t0c524570\t\n", "in the table's order");
        let results = Table {
            header: vec!["Instance", "Exit Code"],
            rows: vec![row(&["web/1", "0"]), row(&["web/2", "1"])],
            transpose: true,
            ..Table::default()
        };
        let expected = "Instance   web/1  \nExit Code  0  \n              \nInstance   web/2  \nExit Code  1  \n";
        assert_eq!(results.for_people(str::to_owned), expected);
    }

    #[test]
    fn json_has_the_original_keys() {
        let table = Table {
            content: "deployments",
            header: vec!["Name", "Release(s)", "VM CID"],
            rows: vec![row(&["shop", "", "vm-1"])],
            ..Table::default()
        };
        let expected = r#"{"Content":"deployments","Header":{"name":"Name","release_s":"Release(s)","vm_cid":"VM CID"},"Rows":[{"name":"shop","release_s":"","vm_cid":"vm-1"}],"Notes":null}"#;
        assert_eq!(table.to_json().to_string(), expected);
    }
}
