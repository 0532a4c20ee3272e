//! Which room of this crate uses which.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// The rooms that are named in the code of a file.
fn named(text: &str, into: &mut BTreeSet<String>) {
    for line in text.lines().filter(|line| !line.trim_start().starts_with("//")) {
        for (at, found) in line.match_indices("crate::") {
            let is_ours =
                line[..at].chars().next_back().is_none_or(|before| !before.is_alphanumeric() && before != '_');
            let after = &line[at + found.len()..];
            assert!(!after.starts_with('{'), "one `use` per room: {line}");
            let room = after.chars().take_while(|letter| letter.is_ascii_lowercase() || *letter == '_').collect();
            into.extend(Some(room).filter(|_| is_ours));
        }
    }
}

fn collect(path: &Path, into: &mut BTreeSet<String>) {
    if path.is_dir() {
        fs::read_dir(path).unwrap().for_each(|entry| collect(&entry.unwrap().path(), into));
    } else {
        named(&fs::read_to_string(path).unwrap(), into);
    }
}

/// Within a crate the compiler accepts circles, and what goes in circles cannot be read, tested or moved alone.
#[test]
fn no_room_is_used_by_one_that_it_uses() {
    let rooms = [
        "desired",
        "diff",
        "dns",
        "links",
        "names",
        "plan",
        "problems",
        "records",
        "software",
        "spec",
        "template_spec",
        "weight",
    ];
    let mut uses: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    for room in rooms {
        let mut used = BTreeSet::new();
        let (file, folder) = (source.join(format!("{room}.rs")), source.join(room));
        [file, folder].iter().filter(|path| path.exists()).for_each(|path| collect(path, &mut used));
        used.remove(room);
        assert!(used.iter().all(|other| rooms.contains(&other.as_str())), "{room} uses {used:?}");
        uses.insert(room, used);
    }
    assert!(uses["plan"].contains("desired") && uses["desired"].contains("records"), "{uses:?}");
    // What uses nothing that is left is taken away, until nothing is left or all that is left goes in circles.
    while let Some(room) = uses.iter().find(|(_, used)| used.iter().all(|other| !uses.contains_key(other.as_str()))) {
        let room = *room.0;
        uses.remove(room);
    }
    assert!(uses.is_empty(), "these use each other in circles: {uses:#?}");
}
