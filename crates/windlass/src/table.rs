//! Tables as the original prints them: with a header for people, separated by tabs for scripts, or as JSON.

use serde_json::{Map, Value, json};

/// A table.
#[derive(Debug, Clone, Default)]
pub(crate) struct Table {
    /// What the rows are, in the plural; none for a table of one thing.
    pub(crate) content: &'static str,
    /// Stands above it, for people.
    pub(crate) title: Option<String>,
    pub(crate) header: Vec<&'static str>,
    /// A cell may have several lines; an empty one is shown as `-`.
    pub(crate) rows: Vec<Vec<String>>,
    /// Stand below it, for people and in JSON.
    pub(crate) notes: Vec<&'static str>,
    /// For people, one line per column: for a table with one row.
    pub(crate) transpose: bool,
}

impl Table {
    /// For people. The header is `heading` of each column's padded name.
    pub(crate) fn for_people(&self, heading: impl Fn(&str) -> String) -> String {
        let mut text = self.title.iter().map(|title| format!("{title}\n\n")).collect::<String>();
        if self.transpose {
            let row = self.rows.first().cloned().unwrap_or_default();
            let rows: Vec<_> = self.header.iter().zip(row).map(|(name, cell)| vec![(*name).to_owned(), cell]).collect();
            text.push_str(&lay_out(&rows, "  "));
        } else {
            let mut rows = vec![self.header.iter().map(|name| (*name).to_owned()).collect()];
            rows.extend(self.rows.iter().cloned());
            for index in (2..rows.len()).rev() {
                if rows[index][0] == rows[index - 1][0] {
                    rows[index][0] = "~".into();
                }
            }
            let laid_out = lay_out(&rows, "  ");
            let (header, body) = laid_out.split_once('\n').unwrap_or_default();
            text.push_str(&format!("{}\n{body}", heading(header)));
        }
        if !self.notes.is_empty() {
            text.push_str(&format!("\n{}\n", self.notes.join("\n")));
        }
        if !self.content.is_empty() {
            text.push_str(&format!("\n{} {}\n", self.rows.len(), self.content));
        }
        text
    }

    /// For scripts.
    pub(crate) fn for_scripts(&self) -> String {
        if self.transpose {
            let cells: Vec<_> = self.rows.iter().flatten().map(|cell| vec![cell.clone()]).collect();
            return lay_out(&cells, "\t");
        }
        lay_out(&self.rows, "\t")
    }

    /// As it stands in the `Tables` of a JSON document.
    pub(crate) fn to_json(&self) -> Value {
        let keys: Vec<_> = self.header.iter().map(|name| key(name)).collect();
        let header = keys.iter().zip(&self.header).map(|(key, name)| (key.as_str(), json!(name)));
        let rows =
            self.rows.iter().map(|row| object(keys.iter().zip(row).map(|(key, cell)| (key.as_str(), json!(cell)))));
        let notes = if self.notes.is_empty() { Value::Null } else { json!(self.notes) };
        json!({"Content": self.content, "Header": object(header), "Rows": rows.collect::<Vec<_>>(), "Notes": notes})
    }
}

/// With its keys in order, as the original's.
fn object<'a>(entries: impl Iterator<Item = (&'a str, Value)>) -> Value {
    let mut entries: Vec<_> = entries.collect();
    entries.sort_by_key(|(key, _)| *key);
    Value::Object(entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect::<Map<_, _>>())
}

/// `Release(s)` becomes `release_s`.
fn key(name: &str) -> String {
    let name = name.to_lowercase();
    let words = name.split(|letter: char| !letter.is_alphanumeric()).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join("_")
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
    if cell.is_empty() { vec!["-"] } else { cell.lines().collect() }
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
