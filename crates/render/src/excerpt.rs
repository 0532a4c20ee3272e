//! Shows people the place in a template.

/// A line of a template, with its code underlined; none if there is no such line.
pub fn excerpt(template: &str, line: usize) -> Option<String> {
    let text = template.lines().nth(line.checked_sub(1)?)?.trim_end();
    let start = text.find("<%").or_else(|| text.find(|letter: char| !letter.is_whitespace())).unwrap_or(0);
    let end = text[start..].rfind("%>").map_or(text.len(), |at| start + at + 2);
    // Tabs are as wide below as they are above.
    let before: String = text[..start].chars().map(|letter| if letter == '\t' { '\t' } else { ' ' }).collect();
    let marks = "^".repeat(text[start..end].chars().count().max(1));
    Some(format!("{line:>4} | {text}\n     | {before}{marks}"))
}

#[cfg(test)]
mod tests {
    use super::excerpt;

    #[test]
    fn the_code_of_a_line_is_underlined() {
        let template = "a\n\tb: <%= p('ë') %> c\n  x\n";
        assert_eq!(excerpt(template, 2).unwrap(), "   2 | \tb: <%= p('ë') %> c\n     | \t   ^^^^^^^^^^^^^");
        assert_eq!(excerpt(template, 3).unwrap(), "   3 |   x\n     |   ^");
        assert_eq!(excerpt("", 1), None);
        assert_eq!(excerpt("\n", 1).unwrap(), "   1 | \n     | ^");
        assert_eq!(excerpt("a", 0), None);
    }
}
