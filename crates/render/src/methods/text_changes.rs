//! Strings: others made of them, and changes in place.

use super::text::is_space;
use crate::evaluate::{Answer, Evaluator};
use crate::memory::{Content, Kept, Text};
use crate::value::Value;

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

/// Those whose answer is another string, letter by letter.
const REWRITTEN: &[&str] = &[
    "upcase",
    "downcase",
    "capitalize",
    "swapcase",
    "chop",
    "reverse",
    "ljust",
    "rjust",
    "center",
    "shellescape",
    "tr",
    "delete",
    "squeeze",
];

impl Evaluator<'_> {
    pub(crate) fn changed_text(
        &mut self,
        text: &Kept<Text>,
        content: &Content,
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
            let same = changed == *content;
            self.replace(text, changed)?;
            return Ok(Some(if same { Value::Nil } else { Value::Str(text.clone()) }));
        }
        let changed = match (name, values) {
            ("<<" | "concat", [Value::Str(other)]) => {
                self.changeable(text)?;
                self.append(text, &other.get())?;
                return Ok(Some(Value::Str(text.clone())));
            }
            ("replace", [Value::Str(other)]) => other.get(),
            ("prepend", [Value::Str(other)]) | ("insert", [Value::Int(0), Value::Str(other)]) => {
                self.both(&other.get(), content)?
            }
            ("clear", []) => self.content("")?,
            ("insert", [Value::Int(-1), Value::Str(other)]) => self.both(content, &other.get())?,
            ("+@", []) if !text.frozen.get() => content.clone(),
            ("partition", [Value::Str(by)]) => {
                let by = by.get();
                let parts = content.split_once(&*by).map_or([content, "", ""], |(before, after)| [before, &by, after]);
                return self.texts(parts).map(Some);
            }
            ("rpartition", [Value::Str(by)]) => {
                let by = by.get();
                let parts = content.rsplit_once(&*by).map_or(["", "", content], |(before, after)| [before, &by, after]);
                return self.texts(parts).map(Some);
            }
            _ => return Ok(None),
        };
        self.changeable(text)?;
        self.replace(text, changed)?;
        Ok(Some(Value::Str(text.clone())))
    }

    /// One behind the other.
    pub(crate) fn both(&self, first: &str, second: &str) -> Answer<Content> {
        let mut both = String::new();
        self.write(&mut both, first)?;
        self.write(&mut both, second)?;
        self.content(both)
    }

    /// Another string made of this one, by methods that exist with `!`, too.
    fn variant(&mut self, content: &str, name: &str, values: &[Value]) -> Answer<Option<Content>> {
        let is_plain = content.is_ascii() && !content.contains('\0');
        let needs_plain =
            ["upcase", "downcase", "capitalize", "swapcase", "strip", "lstrip", "rstrip", "tr", "delete", "squeeze"];
        if needs_plain.contains(&name) && !is_plain {
            return self.refuse(format!("'{name}' of a string with letters beyond ASCII"));
        }
        if let Some(part) = self.part(content, name, values)? {
            return self.content(part).map(Some);
        }
        if !REWRITTEN.contains(&name) {
            return Ok(None);
        }
        // None of these is longer than the string, but for those that write into a text that counts.
        self.will_write(content.len())?;
        let text = match (name, values) {
            ("upcase", []) => content.to_ascii_uppercase(),
            ("downcase", []) => content.to_ascii_lowercase(),
            ("capitalize", []) => {
                let mut text = content.to_ascii_lowercase();
                if let Some(first) = text.get_mut(..1) {
                    first.make_ascii_uppercase();
                }
                text
            }
            ("swapcase", []) => content
                .chars()
                .map(|letter| {
                    if letter.is_ascii_uppercase() { letter.to_ascii_lowercase() } else { letter.to_ascii_uppercase() }
                })
                .collect(),
            ("chop", []) => {
                let line = content.strip_suffix("\r\n");
                let mut letters = line.unwrap_or(content).to_owned();
                if line.is_none() {
                    letters.pop();
                }
                letters
            }
            ("reverse", []) => content.chars().rev().collect(),
            ("ljust" | "rjust" | "center", [Value::Int(width)]) => self.justified(content, name, *width, " ")?,
            ("ljust" | "rjust" | "center", [Value::Int(width), Value::Str(pad)]) => {
                self.justified(content, name, *width, &pad.get())?
            }
            ("shellescape", []) => self.shell_word(content)?,
            ("tr", [Value::Str(from), Value::Str(to)]) => self.translated(content, &from.get(), &to.get())?,
            ("delete", [Value::Str(letters)]) => {
                let letters = self.letters(&letters.get())?;
                let named = places(&letters);
                content.chars().filter(|letter| place(&named, *letter).is_none()).collect()
            }
            ("squeeze", []) => self.squeezed(content, None),
            ("squeeze", [Value::Str(letters)]) => {
                let letters = self.letters(&letters.get())?;
                self.squeezed(content, Some(&letters))
            }
            _ => return Ok(None),
        };
        self.content(text).map(Some)
    }

    /// The part of a string that a method leaves.
    fn part<'c>(&self, content: &'c str, name: &str, values: &[Value]) -> Answer<Option<&'c str>> {
        Ok(Some(match (name, values) {
            ("strip", []) => content.trim_matches(is_space),
            ("lstrip", []) => content.trim_start_matches(is_space),
            ("rstrip", []) => content.trim_end_matches(is_space),
            ("chomp", []) => {
                let line = content.strip_suffix("\r\n").or_else(|| content.strip_suffix('\n'));
                line.or_else(|| content.strip_suffix('\r')).unwrap_or(content)
            }
            ("chomp", [Value::Str(end)]) => match &*end.get() {
                "" | "\n" | "\r" | "\r\n" => return self.refuse("'chomp' of line ends"),
                end => content.strip_suffix(end).unwrap_or(content),
            },
            ("delete_prefix", [Value::Str(part)]) => content.strip_prefix(&*part.get()).unwrap_or(content),
            ("delete_suffix", [Value::Str(part)]) => content.strip_suffix(&*part.get()).unwrap_or(content),
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
        let left = match name {
            "ljust" => 0,
            "rjust" => missing,
            _ => missing / 2,
        };
        let mut text = String::new();
        self.fill(&mut text, pad, left)?;
        self.write(&mut text, content)?;
        self.fill(&mut text, pad, missing - left)?;
        Ok(text)
    }

    /// Writes so many letters of a text that comes again and again.
    fn fill(&self, text: &mut String, pad: &str, letters: usize) -> Answer<()> {
        let of_pad = pad.chars().count().max(1);
        self.write_times(text, pad, letters / of_pad)?;
        let end = pad.char_indices().nth(letters % of_pad).map_or(0, |(end, _)| end);
        self.write(text, &pad[..end])
    }

    /// The letters that `tr` and `delete` name. Only plain lists and ranges are read here.
    fn letters(&mut self, set: &str) -> Answer<Vec<char>> {
        // Each letter, and at most 128 for each three of a range.
        self.take(set.len().saturating_mul(4 + 128 * 4 / 3))?;
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
        let from = places(&from);
        let other = |letter: char| match place(&from, letter) {
            Some(index) => to.get(index).or(to.last()).copied(),
            None => Some(letter),
        };
        Ok(content.chars().filter_map(other).collect())
    }

    fn squeezed(&self, content: &str, letters: Option<&[char]>) -> String {
        let mut squeezed = String::new();
        let named = letters.map(places);
        for letter in content.chars() {
            let counts = named.is_none_or(|named| place(&named, letter).is_some());
            if !(counts && squeezed.ends_with(letter)) {
                squeezed.push(letter);
            }
        }
        squeezed
    }
}

/// Where each letter of ASCII comes first among those that were named: a list of them may be as long as the text.
fn places(letters: &[char]) -> [Option<usize>; 128] {
    let mut places = [None; 128];
    for (index, letter) in letters.iter().enumerate() {
        if let Some(place) = places.get_mut(*letter as usize) {
            place.get_or_insert(index);
        }
    }
    places
}

fn place(places: &[Option<usize>; 128], letter: char) -> Option<usize> {
    places.get(letter as usize).copied().flatten()
}
