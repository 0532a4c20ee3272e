//! `docs/troubleshooting.md`: what people see there is what the programs say.

use std::path::Path;

use super::pages::root;

/// Words in the first column that are not ours.
const OF_OTHERS: [(&str, &str); 2] = [
    ("this package needs a C compiler", "of the `packaging` of examples/guestbook"),
    ("Connection refused", "of the machine"),
];

/// Who looks for the words on their screen finds no row when a message changed.
#[test]
fn every_symptom_has_the_words_that_the_programs_say() {
    let page = std::fs::read_to_string(root().join("docs/troubleshooting.md")).unwrap();
    let mut sources = String::new();
    read_sources(&root().join("crates"), &mut sources);
    let symptoms: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next()).collect();
    let quoted: Vec<&str> = symptoms.iter().flat_map(|symptom| symptom.split('`').skip(1).step_by(2)).collect();
    assert!(quoted.len() > 15, "{quoted:?}");
    for words in quoted.into_iter().filter(|words| !words.starts_with("windlass ")) {
        if OF_OTHERS.iter().any(|(of_others, _)| *of_others == words) {
            continue;
        }
        for part in fixed_parts(words) {
            assert!(sources.contains(part), "docs/troubleshooting.md: no program says '{part}' of '{words}'");
        }
    }
}

/// What does not change from case to case: without names in quotes, placeholders in capitals, numbers, addresses and what `…` leaves
/// out.
fn fixed_parts(words: &str) -> Vec<&str> {
    let changes = |word: &str| {
        let bare = word.trim_matches([':', ';', ',', '.', '(', ')']);
        bare.contains(['\'', '…', '✗'])
            || bare.starts_with(|letter: char| letter.is_ascii_digit())
            || (!bare.is_empty() && bare.chars().all(|letter| letter.is_ascii_uppercase()))
    };
    let (mut parts, mut begin) = (Vec::new(), None);
    let mut place = 0;
    for word in words.split_inclusive(' ') {
        match (changes(word.trim_end()), begin) {
            (false, None) => begin = Some(place),
            (true, Some(first)) => {
                parts.push(words[first..place].trim());
                begin = None;
            }
            _ => {}
        }
        place += word.len();
    }
    parts.extend(begin.map(|first: usize| words[first..].trim()));
    parts.into_iter().filter(|part| !part.is_empty()).collect()
}

#[test]
fn only_what_never_changes_is_compared() {
    assert_eq!(fixed_parts("task N holds the lock"), ["task", "holds the lock"]);
    assert_eq!(fixed_parts("10.0.0.0/24 overlaps … choose another range"), ["overlaps", "choose another range"]);
    assert_eq!(fixed_parts("the key 'gatway' is not known"), ["the key", "is not known"]);
}

/// All that programs say, without tests.
fn read_sources(folder: &Path, sources: &mut String) {
    for entry in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.is_dir() {
            if entry.file_name().is_none_or(|name| name != "tests") {
                read_sources(&entry, sources);
            }
        } else if entry.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&entry).unwrap();
            sources.push_str(text.split("#[cfg(test)]").next().unwrap_or_default());
        }
    }
}
