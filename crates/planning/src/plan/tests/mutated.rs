//! Good documents with something wrong in them: whatever it is, they are refused with its place, or planned like any other.

use super::*;

/// How many documents are tried.
const DOCUMENTS: usize = 10_000;

/// What people and programs put where something else should be.
const ODD: [&str; 36] = [
    "",
    "~",
    "true",
    "no",
    "0",
    "-1",
    "1.5",
    "1e9",
    "4294967296",
    "99999999999999999999",
    "0x10",
    "''",
    "\"\"",
    "{}",
    "[]",
    "[[]]",
    "{a: b}",
    "((secret))",
    "latest",
    "z9",
    "n",
    "10.0.1.300",
    "10.0.1.0/33",
    "10.0.1.0/0",
    "::/0",
    "fd00:1::/129",
    "10.0.1.250 - 10.0.1.2",
    "10.0.1.1",
    "1%",
    "1000%",
    "&a",
    "*a",
    "<<",
    "!!binary",
    "\u{0}",
    "\u{1F4A9}",
];

/// Numbers that look random and are the same in every run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % sides
    }
}

/// Words, and everything between them, one by one.
fn tokens(text: &str) -> Vec<String> {
    let mut tokens: Vec<String> = Vec::new();
    let is_word = |letter: char| letter.is_alphanumeric() || "_./%:".contains(letter);
    for letter in text.chars() {
        match tokens.last_mut() {
            Some(last) if is_word(letter) && last.chars().all(is_word) => last.push(letter),
            _ => tokens.push(letter.to_string()),
        }
    }
    tokens
}

fn mutate(text: &str, dice: &mut Dice) -> String {
    let mut tokens = tokens(text);
    for _ in 0..=dice.roll(3) {
        let (at, other) = (dice.roll(tokens.len()), dice.roll(tokens.len()));
        match dice.roll(8) {
            0 => drop(tokens.remove(at)),
            1 => tokens.insert(at, tokens[other].clone()),
            2 => tokens.swap(at, other),
            3 => tokens.insert(at, ["\n", "  ", "- ", ": ", "#", "{", "]", "\t"][dice.roll(8)].to_owned()),
            4 => tokens.truncate(at.max(1)),
            _ => tokens[at] = ODD[dice.roll(ODD.len())].to_owned(),
        }
    }
    tokens.concat()
}

/// A director that dies of a document takes every deployment with it; a refusal without a place helps nobody.
#[test]
fn whatever_is_wrong_with_a_document_it_is_refused_with_its_place_or_planned_like_any_other() {
    let shape = Shape { instances: 2, azs: "[z1, z2]", tags: "{a: b}", ..shape() };
    let shapes = [
        shape.clone(),
        Shape { networks: "several", disk: "named", strategy: "create-swap-delete", ..shape.clone() },
        Shape { networks: "pool", disk: "", lifecycle: "errand", vm_type: RESOURCES, ..shape },
    ];
    let good = manifest(&shapes.iter().enumerate().map(|(number, shape)| group(number, shape)).collect::<String>());
    let before = carry_out(&planned(&desired(&shapes), &nothing()), &nothing(), "0");
    let mut dice = Dice(1);
    let (mut unreadable, mut refused, mut planned) = (0, 0, 0);
    for _ in 0..DOCUMENTS {
        let (mut cloud, mut text) = (CLOUD.to_owned(), good.clone());
        match dice.roll(3) {
            0 => cloud = mutate(&cloud, &mut dice),
            _ => text = mutate(&text, &mut dice),
        }
        let document = match Document::parse(&text) {
            Ok(document) => document,
            Err(error) => {
                assert!(error.to_string().contains("line "), "'{error}' has no place:\n{text}");
                unreadable += 1;
                continue;
            }
        };
        let (desired, mut findings) = read(&cloud, &document);
        for current in [&before, &nothing()] {
            let plan =
                plan(&desired, current, &PlanOptions::default(), &jobs::Hashed, &mut ids(current), &mut findings);
            if findings.is_clean() {
                addresses_are_unique(&plan);
                planned += 1;
            }
        }
        for finding in findings.problems() {
            let has_place = !finding.path.is_empty() || finding.line.is_some() || finding.message.contains("line ");
            assert!(has_place, "'{finding:?}' has no place:\n{cloud}\n{text}");
            assert!(!finding.message.is_empty() && !finding.message.contains('\n'), "{finding:?}");
        }
        refused += usize::from(!findings.is_clean());
    }
    // Otherwise nothing was tried.
    assert!(unreadable > 500 && refused > 500 && planned > 500, "{unreadable} {refused} {planned}");
}

fn addresses_are_unique(plan: &Plan) {
    let mut seen = BTreeSet::new();
    for instance in plan.instances() {
        for (_, address) in instance.spec.iter().flat_map(|spec| spec.reserved_addresses()) {
            assert!(seen.insert(address), "{address} is given twice");
        }
    }
}
