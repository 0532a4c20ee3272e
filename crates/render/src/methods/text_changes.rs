//! Strings: others made of them, and changes in place.

use std::rc::Rc;

use super::text::is_space;
use crate::evaluate::{Answer, Evaluator};
use crate::value::{Text, Value};

pub(crate) const NAMES: &[&str] = &[
    "<<",
    "concat",
    "upcase",
    "downcase",
    "capitalize",
    "swapcase",
    "strip",
    "lstrip",
    "rstrip",
    "chomp",
    "chop",
    "reverse",
    "center",
    "ljust",
    "rjust",
    "tr",
    "delete",
    "squeeze",
    "delete_prefix",
    "delete_suffix",
    "prepend",
    "replace",
    "insert",
    "clear",
    "upcase!",
    "downcase!",
    "capitalize!",
    "strip!",
    "lstrip!",
    "rstrip!",
    "chomp!",
    "chop!",
    "reverse!",
    "squeeze!",
    "tr!",
    "delete_prefix!",
    "delete_suffix!",
    "partition",
    "rpartition",
    "+@",
];

impl Evaluator<'_> {
    pub(crate) fn changed_text(
        &mut self,
        text: &Rc<Text>,
        content: &str,
        name: &str,
        values: &[Value],
    ) -> Answer<Option<Value>> {
        if let Some(changed) = self.variant(content, name, values)? {
            return self.text(changed).map(Some);
        }
        if let Some(plain) = name.strip_suffix('!')
            && let Some(changed) = self.variant(content, plain, values)?
        {
            self.changeable(text)?;
            let same = changed == content;
            text.content.replace(changed);
            return Ok(Some(if same { Value::Nil } else { Value::Str(Rc::clone(text)) }));
        }
        let changed = match (name, values) {
            ("<<" | "concat", [Value::Str(other)]) => {
                let other = other.get();
                self.take(other.len())?;
                self.changeable(text)?;
                if content.len() + other.len() > crate::evaluate::LARGEST_TEXT {
                    self.take(usize::MAX)?;
                }
                text.content.borrow_mut().push_str(&other);
                return Ok(Some(Value::Str(Rc::clone(text))));
            }
            ("replace", [Value::Str(other)]) => other.get(),
            ("prepend", [Value::Str(other)]) => format!("{other}{content}"),
            ("clear", []) => String::new(),
            ("insert", [Value::Int(-1), Value::Str(other)]) => format!("{content}{other}"),
            ("insert", [Value::Int(0), Value::Str(other)]) => format!("{other}{content}"),
            ("+@", []) if !text.frozen.get() => content.to_owned(),
            ("partition", [Value::Str(by)]) => {
                let by = by.get();
                let parts = content.split_once(&by).map_or([content, "", ""], |(before, after)| [before, &by, after]);
                return self.list(parts.map(Value::text).to_vec()).map(Some);
            }
            ("rpartition", [Value::Str(by)]) => {
                let by = by.get();
                let parts = content.rsplit_once(&by).map_or(["", "", content], |(before, after)| [before, &by, after]);
                return self.list(parts.map(Value::text).to_vec()).map(Some);
            }
            _ => return Ok(None),
        };
        self.changeable(text)?;
        self.take(changed.len())?;
        text.content.replace(changed);
        Ok(Some(Value::Str(Rc::clone(text))))
    }

    /// Another string made of this one, by methods that exist with `!`, too.
    fn variant(&mut self, content: &str, name: &str, values: &[Value]) -> Answer<Option<String>> {
        let is_plain = content.is_ascii() && !content.contains('\0');
        let needs_plain =
            ["upcase", "downcase", "capitalize", "swapcase", "strip", "lstrip", "rstrip", "tr", "delete", "squeeze"];
        if needs_plain.contains(&name) && !is_plain {
            return self.refuse(format!("'{name}' of a string with letters beyond ASCII"));
        }
        Ok(Some(match (name, values) {
            ("upcase", []) => content.to_ascii_uppercase(),
            ("downcase", []) => content.to_ascii_lowercase(),
            ("capitalize", []) => {
                let lower = content.to_ascii_lowercase();
                let split = usize::from(!lower.is_empty());
                lower[..split].to_ascii_uppercase() + &lower[split..]
            }
            ("swapcase", []) => content
                .chars()
                .map(|letter| {
                    if letter.is_ascii_uppercase() { letter.to_ascii_lowercase() } else { letter.to_ascii_uppercase() }
                })
                .collect(),
            ("strip", []) => content.trim_matches(is_space).to_owned(),
            ("lstrip", []) => content.trim_start_matches(is_space).to_owned(),
            ("rstrip", []) => content.trim_end_matches(is_space).to_owned(),
            ("chomp", []) => {
                let line = content.strip_suffix("\r\n").or_else(|| content.strip_suffix('\n'));
                line.or_else(|| content.strip_suffix('\r')).unwrap_or(content).to_owned()
            }
            ("chomp", [Value::Str(end)]) => match end.get().as_str() {
                "" | "\n" | "\r" | "\r\n" => return self.refuse("'chomp' of line ends"),
                end => content.strip_suffix(end).unwrap_or(content).to_owned(),
            },
            ("chop", []) => {
                let mut letters =
                    content.strip_suffix("\r\n").map(|line| format!("{line}\n")).unwrap_or(content.to_owned());
                letters.pop();
                letters
            }
            ("reverse", []) => content.chars().rev().collect(),
            ("delete_prefix", [Value::Str(part)]) => {
                content.strip_prefix(part.content.borrow().as_str()).unwrap_or(content).to_owned()
            }
            ("delete_suffix", [Value::Str(part)]) => {
                content.strip_suffix(part.content.borrow().as_str()).unwrap_or(content).to_owned()
            }
            ("ljust" | "rjust" | "center", [Value::Int(width)]) => self.justified(content, name, *width, " ")?,
            ("ljust" | "rjust" | "center", [Value::Int(width), Value::Str(pad)]) => {
                self.justified(content, name, *width, &pad.get())?
            }
            ("shellescape", []) => match super::libraries::shell_word(content) {
                Some(word) => word,
                None => return self.refuse("'shellescape' of this string"),
            },
            ("tr", [Value::Str(from), Value::Str(to)]) => self.translated(content, &from.get(), &to.get())?,
            ("delete", [Value::Str(letters)]) => {
                let letters = self.letters(&letters.get())?;
                content.chars().filter(|letter| !letters.contains(letter)).collect()
            }
            ("squeeze", []) => self.squeezed(content, None),
            ("squeeze", [Value::Str(letters)]) => {
                let letters = self.letters(&letters.get())?;
                self.squeezed(content, Some(&letters))
            }
            _ => return Ok(None),
        }))
    }

    fn justified(&mut self, content: &str, name: &str, width: i128, pad: &str) -> Answer<String> {
        if pad.is_empty() {
            return self.refuse(format!("'{name}' with nothing"));
        }
        let count = content.chars().count();
        let width = usize::try_from(width.max(0)).unwrap_or(usize::MAX);
        let missing = width.saturating_sub(count);
        self.take(missing)?;
        let fill = |count: usize| pad.chars().cycle().take(count).collect::<String>();
        let left = match name {
            "ljust" => 0,
            "rjust" => missing,
            _ => missing / 2,
        };
        Ok(format!("{}{content}{}", fill(left), fill(missing - left)))
    }

    /// The letters that `tr` and `delete` name. Only plain lists and ranges are read here.
    fn letters(&mut self, set: &str) -> Answer<Vec<char>> {
        let set: Vec<char> = set.chars().collect();
        if set.first() == Some(&'^') || set.contains(&'\\') || !set.iter().all(char::is_ascii) {
            return self.refuse("this set of letters");
        }
        let mut letters = Vec::new();
        let mut index = 0;
        while index < set.len() {
            match set[index..] {
                [from, '-', to, ..] if from <= to => {
                    letters.extend(from..=to);
                    index += 3;
                }
                [_, '-', _, ..] => return self.refuse("this set of letters"),
                [letter, ..] => {
                    letters.push(letter);
                    index += 1;
                }
                [] => {}
            }
        }
        Ok(letters)
    }

    fn translated(&mut self, content: &str, from: &str, to: &str) -> Answer<String> {
        let (from, to) = (self.letters(from)?, self.letters(to)?);
        let other = |letter: char| match from.iter().position(|known| *known == letter) {
            Some(index) => to.get(index).or(to.last()).copied(),
            None => Some(letter),
        };
        Ok(content.chars().filter_map(other).collect())
    }

    fn squeezed(&self, content: &str, letters: Option<&[char]>) -> String {
        let mut squeezed = String::new();
        for letter in content.chars() {
            let counts = letters.is_none_or(|letters| letters.contains(&letter));
            if !(counts && squeezed.ends_with(letter)) {
                squeezed.push(letter);
            }
        }
        squeezed
    }
}
