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
        let texts: Option<Vec<String>> = values.iter().map(Value::as_text).collect();
        let Some(texts) = texts else { return Ok(None) };
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let found = match (class, name, texts.as_slice()) {
            ("File", "dirname", [path]) => folder(path),
            ("File", "basename", [path]) if !path.ends_with('/') && !path.is_empty() => {
                path.rsplit('/').next().map(str::to_owned)
            }
            ("File", "join", parts) => Some(joined(parts)),
            ("Shellwords", "shellescape" | "escape", [text]) => shell_word(text),
            ("Base64", "strict_encode64", [text]) => Some(STANDARD.encode(text)),
            ("Base64", "encode64", [text]) => {
                let encoded = STANDARD.encode(text);
                let lines = encoded.as_bytes().chunks(60).map(String::from_utf8_lossy);
                Some(lines.map(|line| format!("{line}\n")).collect())
            }
            ("Base64", "strict_decode64" | "decode64", [text]) => {
                let plain = if name == "decode64" { text.replace('\n', "") } else { (*text).to_owned() };
                // What is not ASCII has no encoding in Ruby afterwards.
                let decoded = STANDARD.decode(plain).ok().and_then(|bytes| String::from_utf8(bytes).ok());
                decoded.filter(|decoded| decoded.is_ascii())
            }
            ("IPAddr", "new", [address]) => match address.parse() {
                Ok(address) => return Ok(Some(Value::Address(address))),
                Err(_) => None,
            },
            _ => return Ok(None),
        };
        match found {
            Some(text) => self.text(text).map(Some),
            None => self.refuse(format!("'{class}.{name}' of this string")),
        }
    }
}

fn folder(path: &str) -> Option<String> {
    // Repeated slashes have rules of their own.
    if path.contains("//") || path.is_empty() || (path.len() > 1 && path.ends_with('/')) {
        return None;
    }
    Some(match path.rsplit_once('/') {
        None => ".".to_owned(),
        Some(("", _)) => "/".to_owned(),
        Some((folder, _)) => folder.to_owned(),
    })
}

fn joined(parts: &[&str]) -> String {
    let mut path = String::new();
    for (index, part) in parts.iter().enumerate() {
        if index == 0 {
            path.push_str(part);
            continue;
        }
        let (before, after) = (path.ends_with('/'), part.starts_with('/'));
        if before && after {
            path.truncate(path.trim_end_matches('/').len());
        } else if !before && !after {
            path.push('/');
        }
        path.push_str(part);
    }
    path
}

/// A word that a shell reads as it is.
pub(crate) fn shell_word(text: &str) -> Option<String> {
    if !text.is_ascii() {
        return None;
    }
    if text.is_empty() {
        return Some("''".to_owned());
    }
    let mut word = String::new();
    for letter in text.chars() {
        match letter {
            '\n' => word.push_str("'\n'"),
            'A'..='Z' | 'a'..='z' | '0'..='9' | '_' | '-' | '.' | ',' | ':' | '+' | '/' | '@' => word.push(letter),
            other => word.extend(['\\', other]),
        }
    }
    Some(word)
}
