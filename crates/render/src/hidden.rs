//! The files of a job as people may see them: each value stands as the tag that printed it.
//!
//! Marks around the tags that print tell text and values apart, whichever backend renders the templates. A template that writes
//! past its tags is hidden as a whole.

use std::collections::BTreeMap;

use serde_json::Value;
use windlass_release::Job;

use crate::error::RenderError;
use crate::{MONIT, ProvidedLink, Renderer};

/// What stands for lines of which nobody knows where values are.
const HIDDEN: &str = "(hidden)";

/// One line of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HiddenLine {
    /// With its values, for comparison.
    content: String,
    shown: String,
}

impl HiddenLine {
    /// The line as the template has it.
    pub fn shown(&self) -> &str {
        &self.shown
    }

    #[cfg(test)]
    fn new(content: &str, shown: &str) -> Self {
        Self { content: content.to_owned(), shown: shown.to_owned() }
    }
}

/// Renders a job that provides these links; its files by destination, `monit` among them. `mark` is a word that occurs nowhere
/// else.
pub fn render_hidden(
    renderer: &dyn Renderer,
    job: &Job,
    spec: &Value,
    links: &[ProvidedLink],
    mark: &str,
) -> Result<BTreeMap<String, Vec<HiddenLine>>, RenderError> {
    let mut tags: BTreeMap<&str, Marked> = BTreeMap::new();
    let mut with_marks = job.clone();
    for (source, content) in job.templates.iter().chain(&job.monit) {
        let marked = Marked::of(content, mark);
        let templates = if source == MONIT { &mut with_marks.monit } else { &mut with_marks.templates };
        templates.insert(source.clone(), marked.template.clone());
        tags.insert(source, marked);
    }
    let mut rendered = renderer.render(&with_marks, spec)?;
    rendered.provide(links);
    let lines = |source: &str, content: &str| match tags.get(source) {
        Some(marked) => marked.lines(content, mark),
        // Of our own making, without values of properties.
        None => plain(content),
    };
    let mut files = BTreeMap::from([(MONIT.to_owned(), lines(MONIT, &rendered.monit))]);
    files.extend(rendered.files.iter().map(|file| (file.destination.clone(), lines(&file.source, &file.content))));
    Ok(files)
}

/// A template with marks around what prints.
struct Marked {
    template: String,
    /// The tags that print, by the number in their marks.
    tags: Vec<String>,
    /// Whether code can write where it is not seen.
    is_opaque: bool,
}

impl Marked {
    fn of(template: &str, mark: &str) -> Self {
        let mut marked = Self { template: String::new(), tags: Vec::new(), is_opaque: false };
        let mut rest = template;
        while let Some(at) = rest.find("<%") {
            marked.template.push_str(&rest[..at]);
            let tag = &rest[at..];
            if let Some(after) = tag.strip_prefix("<%%") {
                marked.template.push_str("<%%");
                rest = after;
                continue;
            }
            let Some(end) = end_of(&tag[2..]).map(|end| end + 4) else {
                rest = tag;
                break;
            };
            let code = &tag[..end];
            marked.is_opaque |= ["_erbout", "binding", "eval", "ObjectSpace"].iter().any(|word| code.contains(word));
            match code.strip_prefix("<%=") {
                Some(inside) => marked.print(inside, mark),
                None => marked.template.push_str(code),
            }
            rest = &tag[end..];
        }
        marked.template.push_str(rest);
        marked
    }

    /// A tag that prints. What it trims behind it, a comment trims in its place.
    fn print(&mut self, inside: &str, mark: &str) {
        let inside = inside.strip_suffix("%>").unwrap_or(inside);
        let (code, dash) = inside.strip_suffix('-').map_or((inside, ""), |code| (code, "-"));
        let number = self.tags.len();
        self.template.push_str(&format!("{mark}{number}[<%={code}%>{mark}]<%#{dash}%>"));
        self.tags.push(format!("<%= {} %>", code.split_whitespace().collect::<Vec<_>>().join(" ")));
    }

    fn lines(&self, content: &str, mark: &str) -> Vec<HiddenLine> {
        let known = if self.is_opaque { None } else { self.parts(content, mark) };
        let Some(parts) = known else {
            let hide = |line: &str| HiddenLine { content: line.to_owned(), shown: HIDDEN.to_owned() };
            return content.split('\n').map(hide).collect();
        };
        let mut lines = vec![HiddenLine { content: String::new(), shown: String::new() }];
        for (text, tag) in parts {
            for (number, piece) in text.split('\n').enumerate() {
                if number > 0 {
                    lines.push(HiddenLine { content: String::new(), shown: String::new() });
                }
                if let Some(line) = lines.last_mut() {
                    line.content.push_str(piece);
                    line.shown.push_str(tag.unwrap_or(piece));
                }
            }
        }
        lines
    }

    /// Texts, and values with the tags that printed them. None if marks are where they should not be.
    fn parts<'a>(&'a self, content: &'a str, mark: &str) -> Option<Vec<(&'a str, Option<&'a str>)>> {
        let mut pieces = content.split(mark);
        let mut parts = vec![(pieces.next()?, None)];
        while let Some(opened) = pieces.next() {
            let (number, value) = opened.split_once('[')?;
            parts.push((value, Some(self.tags.get(number.parse::<usize>().ok()?)?.as_str())));
            parts.push((pieces.next()?.strip_prefix(']')?, None));
        }
        Some(parts)
    }
}

/// Where the end of a tag begins.
fn end_of(inside: &str) -> Option<usize> {
    let ends = inside.match_indices("%>").map(|(at, _)| at);
    ends.into_iter().find(|at| !inside[..*at].ends_with('%'))
}

fn plain(content: &str) -> Vec<HiddenLine> {
    content.split('\n').map(|line| HiddenLine { content: line.to_owned(), shown: line.to_owned() }).collect()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LineChange {
    Removed,
    Added,
    /// Only values in it.
    Values,
}

/// A line that changes: its number where it is now, or, once removed, where it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangedLine {
    pub number: usize,
    pub change: LineChange,
    pub shown: String,
}

/// The most comparisons of lines; files that are longer count as changed from the first difference to the last.
const MOST_COMPARED: usize = 4_000_000;

/// Which lines of a file change.
pub fn changed_lines(before: &[HiddenLine], after: &[HiddenLine]) -> Vec<ChangedLine> {
    let same = before.iter().zip(after).take_while(|(before, after)| before == after).count();
    let (before, after) = (&before[same..], &after[same..]);
    let end = before.iter().rev().zip(after.iter().rev()).take_while(|(before, after)| before == after).count();
    let (before, after) = (&before[..before.len() - end], &after[..after.len() - end]);
    let mut changed = Vec::new();
    let (mut at, mut now) = (0, 0);
    for (kept_before, kept_after) in common(before, after).into_iter().chain([(before.len(), after.len())]) {
        replaced(&mut changed, (&before[at..kept_before], same + at), (&after[now..kept_after], same + now));
        (at, now) = (kept_before + 1, kept_after + 1);
    }
    changed
}

/// Lines between two that stay. The first ones of each that look alike are the same lines with other values.
fn replaced(
    changed: &mut Vec<ChangedLine>,
    (before, at): (&[HiddenLine], usize),
    (after, now): (&[HiddenLine], usize),
) {
    let line = |(offset, line): (usize, &HiddenLine), first: usize, change| ChangedLine {
        number: first + offset + 1,
        change,
        shown: line.shown.clone(),
    };
    let alike = before.iter().zip(after).take_while(|(before, after)| before.shown == after.shown).count();
    changed.extend(after[..alike].iter().enumerate().map(|each| line(each, now, LineChange::Values)));
    changed.extend(before[alike..].iter().enumerate().map(|each| line(each, at + alike, LineChange::Removed)));
    changed.extend(after[alike..].iter().enumerate().map(|each| line(each, now + alike, LineChange::Added)));
}

/// The longest common sequence, as pairs of positions.
fn common(before: &[HiddenLine], after: &[HiddenLine]) -> Vec<(usize, usize)> {
    let width = after.len() + 1;
    if before.is_empty() || after.is_empty() || before.len().saturating_mul(after.len()) > MOST_COMPARED {
        return Vec::new();
    }
    // The length of the longest sequence from each pair on.
    let mut longest = vec![0_u32; (before.len() + 1) * width];
    for at in (0..before.len()).rev() {
        for now in (0..after.len()).rev() {
            longest[at * width + now] = if before[at] == after[now] {
                longest[(at + 1) * width + now + 1] + 1
            } else {
                longest[(at + 1) * width + now].max(longest[at * width + now + 1])
            };
        }
    }
    let (mut at, mut now, mut pairs) = (0, 0, Vec::new());
    while at < before.len() && now < after.len() {
        if before[at] == after[now] {
            pairs.push((at, now));
            (at, now) = (at + 1, now + 1);
        } else if longest[(at + 1) * width + now] >= longest[at * width + now + 1] {
            at += 1;
        } else {
            now += 1;
        }
    }
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changes(before: &[(&str, &str)], after: &[(&str, &str)]) -> Vec<(usize, LineChange, String)> {
        let lines = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(content, shown)| HiddenLine::new(content, shown)).collect::<Vec<_>>()
        };
        let changed = changed_lines(&lines(before), &lines(after));
        changed.into_iter().map(|line| (line.number, line.change, line.shown)).collect()
    }

    #[test]
    fn lines_that_come_go_or_have_other_values_are_told_apart() {
        let tag = "port: <%= p('port') %>";
        let before = [("a", "a"), ("port: 1", tag), ("b", "b"), ("old", "old"), ("c", "c")];
        let after = [("a", "a"), ("port: 2", tag), ("b", "b"), ("c", "c"), ("new", "new")];
        let expected = [
            (2, LineChange::Values, tag.to_owned()),
            (4, LineChange::Removed, "old".to_owned()),
            (5, LineChange::Added, "new".to_owned()),
        ];
        assert_eq!(changes(&before, &after), expected);
        assert_eq!(changes(&before, &before), []);
        assert_eq!(changes(&[], &[("x", "x")]), [(1, LineChange::Added, "x".to_owned())]);
    }

    #[test]
    fn marks_leave_what_a_template_gives_as_it_is() {
        let marked = Marked::of("a <%= x -%>\nb <%% c %> <%- y -%>\n<%= '%%>' %>.<%= cut", "M");
        assert_eq!(marked.template, "a M0[<%= x %>M]<%#-%>\nb <%% c %> <%- y -%>\nM1[<%= '%%>' %>M]<%#%>.<%= cut");
        assert_eq!(marked.tags, ["<%= x %>", "<%= '%%>' %>"]);
    }

    #[test]
    fn a_value_of_several_lines_is_hidden_in_each() {
        let marked = Marked::of("key: <%= p('key') %>!\n", "M");
        let lines = marked.lines("key: M0[one\ntwoM]!\n", "M");
        let tag = "<%= p('key') %>";
        let expected = [("key: one", format!("key: {tag}")), ("two!", format!("{tag}!")), ("", String::new())];
        assert_eq!(lines, expected.map(|(content, shown)| HiddenLine::new(content, &shown)));
    }

    #[test]
    fn what_is_written_past_the_tags_is_hidden_with_the_whole_file() {
        let hidden = |template: &str, content: &str| {
            Marked::of(template, "M").lines(content, "M").iter().all(|line| line.shown() == HIDDEN)
        };
        assert!(hidden("<% _erbout << p('secret') %>x", "secretx"));
        assert!(hidden("<%= x %>", "M0[secret"), "a mark without its end");
        assert!(hidden("<%= x %>", "M7[secretM]"), "a mark that nobody made");
    }
}
