//! Parts of Ruby's library that only compute: paths, shell words, Base64, addresses.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::evaluate::{Answer, Evaluator};
use crate::value::Value;

pub(crate) const NAMES: &[&str] = &[
    "dirname",
    "basename",
    "join",
    "shellescape",
    "escape",
    "encode64",
    "decode64",
    "strict_encode64",
    "strict_decode64",
    "ipv4?",
    "ipv6?",
];

impl Evaluator<'_> {
    /// Answers nothing where the library has no such function here.
    pub(crate) fn library(&mut self, class: &str, name: &str, values: &[Value]) -> Answer<Option<Value>> {
        if (class, name) == ("File", "join") {
            return self.joined_path(values);
        }
        let [Value::Str(text)] = values else { return Ok(None) };
        let text = text.get();
        let found = match (class, name) {
            ("File", "dirname") => folder(&text).map(|folder| self.text(folder)),
            ("File", "basename") if !text.ends_with('/') && !text.is_empty() => {
                text.rsplit('/').next().map(|base| self.text(base))
            }
            ("Shellwords", "shellescape" | "escape") => {
                let word = self.shell_word(&text)?;
                Some(self.text(word))
            }
            ("Base64", "strict_encode64" | "encode64") => Some(self.encoded(&text, name == "encode64")),
            ("Base64", "strict_decode64" | "decode64") => {
                // Twice without line ends, and what is in it.
                self.take(text.len() * 2)?;
                let plain = if name == "decode64" { text.replace('\n', "") } else { text.as_str().to_owned() };
                // What is not ASCII has no encoding in Ruby afterwards.
                let decoded = STANDARD.decode(plain).ok().and_then(|bytes| String::from_utf8(bytes).ok());
                decoded.filter(|decoded| decoded.is_ascii()).map(|decoded| self.text(decoded))
            }
            ("IPAddr", "new") => match text.parse() {
                Ok(address) => return Ok(Some(Value::Address(address))),
                Err(_) => None,
            },
            _ => return Ok(None),
        };
        match found {
            Some(text) => text.map(Some),
            None => self.refuse(format!("'{class}.{name}' of this string")),
        }
    }

    fn encoded(&mut self, text: &str, in_lines: bool) -> Answer {
        // Four letters for three bytes, and those once more in lines.
        self.will_write(text.len().div_ceil(3) * 4 * if in_lines { 2 } else { 1 })?;
        let encoded = STANDARD.encode(text);
        if !in_lines {
            return self.text(encoded);
        }
        let mut lines = String::new();
        let mut rest = encoded.as_str();
        while !rest.is_empty() {
            let (line, after) = rest.split_at(rest.len().min(60));
            self.write(&mut lines, line)?;
            self.write(&mut lines, "\n")?;
            rest = after;
        }
        self.text(lines)
    }

    fn joined_path(&mut self, parts: &[Value]) -> Answer<Option<Value>> {
        let mut path = String::new();
        for (index, part) in parts.iter().enumerate() {
            let Value::Str(part) = part else { return Ok(None) };
            let part = part.get();
            if index > 0 {
                match (path.ends_with('/'), part.starts_with('/')) {
                    (true, true) => path.truncate(path.trim_end_matches('/').len()),
                    (false, false) => self.write(&mut path, "/")?,
                    _ => {}
                }
            }
            self.write(&mut path, &part)?;
        }
        self.text(path).map(Some)
    }

    /// A word that a shell reads as it is.
    pub(crate) fn shell_word(&mut self, text: &str) -> Answer<String> {
        if !text.is_ascii() {
            return self.refuse("'shellescape' of this string");
        }
        if text.is_empty() {
            return Ok("''".to_owned());
        }
        let mut word = String::new();
        for letter in text.chars() {
            match letter {
                '\n' => self.write(&mut word, "'\n'")?,
                'A'..='Z' | 'a'..='z' | '0'..='9' | '_' | '-' | '.' | ',' | ':' | '+' | '/' | '@' => {
                    self.write_letter(&mut word, letter)?;
                }
                other => {
                    self.write(&mut word, "\\")?;
                    self.write_letter(&mut word, other)?;
                }
            }
        }
        Ok(word)
    }
}

fn folder(path: &str) -> Option<&str> {
    // Repeated slashes have rules of their own.
    if path.contains("//") || path.is_empty() || (path.len() > 1 && path.ends_with('/')) {
        return None;
    }
    Some(match path.rsplit_once('/') {
        None => ".",
        Some(("", _)) => "/",
        Some((folder, _)) => folder,
    })
}
