//! ERB with trim mode `-`: a template becomes one Ruby program of the same lines.
//!
//! The program is put together as Ruby's own ERB does it, so that odd templates mean the same: a comment at the end of a tag
//! hides the text after it, an unfinished expression is a syntax error. Text is not part of the program but numbered.

/// The call that appends a text by its number. Templates must not use the prefix.
pub(crate) const TEXT: &str = "__windlass_text";
/// The call that appends a value.
pub(crate) const PRINT: &str = "__windlass_print";
/// What the program ends with, unless a comment hides it.
pub(crate) const END: &str = "__windlass_end";
/// What marks the calls above.
pub(crate) const RESERVED: &str = "__windlass_";
/// Lines of the program before the template's first.
pub(crate) const LINES_BEFORE: usize = 1;

/// A template as a program.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Program {
    pub(crate) source: String,
    pub(crate) texts: Vec<String>,
    /// Whether there is any code.
    pub(crate) has_code: bool,
    /// The line of a comment that changes how Ruby reads the program.
    pub(crate) magic_comment: bool,
    /// Whether the template has a word that only the program may have.
    pub(crate) reserved: bool,
}

#[derive(Clone, Copy, PartialEq)]
enum Tag {
    Code,
    Print,
    Comment,
}

struct Compiler {
    program: Program,
    commands: Vec<String>,
    content: String,
}

pub(crate) fn compile(template: &str) -> Program {
    let program = Program { magic_comment: has_magic_comment(template), ..Program::default() };
    let mut compiler = Compiler { program, commands: vec!["nil".to_owned()], content: String::new() };
    compiler.program.source.push_str("#coding:UTF-8\n");
    let mut rest = template;
    while !rest.is_empty() {
        rest = compiler.text(rest);
    }
    compiler.put_text();
    compiler.commands.push(END.to_owned());
    compiler.end_line(false);
    compiler.program
}

impl Compiler {
    /// Text up to a tag, and the tag.
    fn text<'a>(&mut self, rest: &'a str) -> &'a str {
        let Some(at) = rest.find("<%") else {
            self.token(rest);
            return "";
        };
        let (before, tag) = (&rest[..at], &rest[at + 2..]);
        if let Some(after) = tag.strip_prefix('-') {
            self.token(without_indentation(before));
            return self.code(Tag::Code, after);
        }
        self.token(before);
        if let Some(after) = tag.strip_prefix('%') {
            self.content.push_str("<%");
            return after;
        }
        match tag.as_bytes().first() {
            Some(b'=') => self.code(Tag::Print, &tag[1..]),
            Some(b'#') => self.code(Tag::Comment, &tag[1..]),
            _ => self.code(Tag::Code, tag),
        }
    }

    /// A text between tags. A line feed alone is written at once, as ERB does.
    fn token(&mut self, text: &str) {
        self.content.push_str(text);
        if text == "\n" {
            self.put_text();
        }
    }

    /// What is in a tag, and its end. Without an end, it is text.
    fn code<'a>(&mut self, tag: Tag, mut rest: &'a str) -> &'a str {
        self.put_text();
        loop {
            let Some(at) = rest.find("%>") else {
                self.content.push_str(rest);
                return "";
            };
            let (inside, after) = (&rest[..at], &rest[at + 2..]);
            if let Some(inside) = inside.strip_suffix('%') {
                self.content.push_str(inside);
                self.content.push_str("%>");
                rest = after;
                continue;
            }
            let trimmed = inside.strip_suffix('-');
            self.content.push_str(trimmed.unwrap_or(inside));
            self.put_code(tag);
            let Some(_) = trimmed else { return after };
            let line_end = after.strip_prefix("\r\n").or_else(|| after.strip_prefix('\n'));
            if line_end.is_some() || after.is_empty() {
                self.end_line(true);
            }
            return line_end.unwrap_or(after);
        }
    }

    fn put_text(&mut self) {
        if self.content.is_empty() {
            return;
        }
        let text = std::mem::take(&mut self.content);
        let lines = "\n".repeat(text.matches('\n').count());
        self.commands.push(format!("{TEXT}({}){lines}", self.program.texts.len()));
        self.program.texts.push(text);
    }

    fn put_code(&mut self, tag: Tag) {
        let code = std::mem::take(&mut self.content);
        self.program.reserved |= code.contains(RESERVED);
        self.program.has_code |= tag != Tag::Comment;
        match tag {
            Tag::Comment => self.commands.push("\n".repeat(code.matches('\n').count())),
            Tag::Print => self.commands.push(format!("{PRINT}(({code}).to_s)")),
            Tag::Code => match code.strip_suffix("\r\n").or_else(|| code.strip_suffix('\n')) {
                Some(code) => {
                    self.commands.push(code.to_owned());
                    self.end_line(true);
                }
                None => self.commands.push(code),
            },
        }
    }

    fn end_line(&mut self, with_feed: bool) {
        self.program.source.push_str(&self.commands.join("; "));
        self.commands.clear();
        if with_feed {
            self.program.source.push('\n');
        }
    }
}

/// Without the spaces and tabs after the last line's start. What follows a tag counts as a line's start, as in ERB.
fn without_indentation(text: &str) -> &str {
    let trimmed = text.trim_end_matches([' ', '\t']);
    if trimmed.is_empty() || trimmed.ends_with('\n') { trimmed } else { text }
}

/// Whether comments at the start change the encoding or freeze strings.
fn has_magic_comment(template: &str) -> bool {
    let line = template.lines().next().unwrap_or_default();
    let sets_coding = |after: &str| after.trim_start().starts_with(['=', ':']);
    line.starts_with("<%#") && (line.contains("frozen") || line.split("coding").skip(1).any(sets_coding))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(template: &str) -> (String, Vec<String>) {
        let program = compile(template);
        (program.source.split_once('\n').unwrap().1.replace("; __windlass_end", ""), program.texts)
    }

    #[test]
    fn lines_of_the_program_are_lines_of_the_template() {
        let (source, texts) = source("a\n<% if x -%>\nb\n<% end %>\n");
        assert_eq!(source, "nil; __windlass_text(0)\n;  if x \n__windlass_text(1)\n;  end ; __windlass_text(2)\n");
        assert_eq!(texts, ["a\n", "b\n", "\n"]);
    }

    #[test]
    fn a_tag_with_a_dash_takes_its_indentation_along() {
        assert_eq!(source("a\n \t<%- x %>").1, ["a\n"]);
        assert_eq!(source("a <%- x %>").1, ["a "]);
        assert_eq!(source("<% x %>  <%- y %>").1, Vec::<String>::new());
    }

    #[test]
    fn doubled_percent_signs_stand_for_the_tags_themselves() {
        assert_eq!(source("<%% a %>").1, ["<% a %>"]);
        assert_eq!(source("<%= '%%>' %>").0, "nil; __windlass_print(( '%>' ).to_s)");
    }

    #[test]
    fn a_tag_without_an_end_is_text() {
        assert_eq!(source("a <%= b").1, ["a ", " b"]);
    }

    #[test]
    fn comments_that_change_how_ruby_reads_are_seen() {
        assert!(compile("<%# -*- coding: latin1 -*- %>").magic_comment);
        assert!(compile("<%# frozen_string_literal: true %>").magic_comment);
        assert!(!compile("<%# about encoding %>").magic_comment);
    }
}
