//! Templates that were damaged at random: each is answered, natively and by Ruby, without a panic and in time.

use std::time::{Duration, Instant};

use windlass_render::{Cage, Native, RenderError, Renderer as _, Ruby, RubySetup};

/// What is put in at random.
const PIECES: [&str; 24] = [
    "<%", "%>", "<%=", "-%>", "<%-", "%%>", "end", "do", "{", "}", "(", ")", "[", "]", "'", "\"", "#{", "|x|", "\\",
    "\n", "/", "$1", "é", "\0",
];

/// How many, unless `WINDLASS_MUTATED` says so; with `WINDLASS_POINTS=all` a million.
fn count() -> usize {
    let is_all = std::env::var("WINDLASS_POINTS").is_ok_and(|points| points == "all");
    let asked = std::env::var("WINDLASS_MUTATED").ok().and_then(|count| count.parse().ok());
    asked.unwrap_or(if is_all { 1_000_000 } else { 2000 })
}

/// Numbers that are the same ones for the same seed.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit.max(1) as u64) as usize
    }
}

fn mutated(numbers: &mut Numbers, cases: &[String]) -> String {
    let mut letters: Vec<char> = cases[numbers.below(cases.len())].chars().collect();
    for _ in 0..=numbers.below(4) {
        let at = numbers.below(letters.len() + 1);
        let end = (at + 1 + numbers.below(8)).min(letters.len());
        match numbers.below(4) {
            0 => drop(letters.drain(at..end.max(at))),
            1 => drop(letters.splice(at..at, PIECES[numbers.below(PIECES.len())].chars())),
            2 => {
                let copied: Vec<char> = letters[at..end.max(at)].to_vec();
                let to = numbers.below(letters.len() + 1);
                drop(letters.splice(to..to, copied));
            }
            _ => {
                let other: Vec<char> = cases[numbers.below(cases.len())].chars().collect();
                let from = numbers.below(other.len() + 1);
                drop(letters.splice(at..end.max(at), other[from..].iter().copied()));
            }
        }
    }
    letters.into_iter().collect()
}

#[test]
fn damaged_templates_are_answered_in_time() {
    let seed = std::env::var("WINDLASS_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1u64);
    let mut numbers = Numbers(seed.max(1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let cases: Vec<String> = crate::cases::native().into_iter().chain(crate::cases::native_or_not()).collect();
    let ruby = crate::ruby::ruby().map(|_| {
        let (program, cage) = (env!("CARGO_BIN_EXE_render-cage").into(), Cage::Closed);
        Ruby::new(RubySetup { program, cage, patience: Duration::from_secs(20) })
    });
    let (mut native, mut failed) = (0, 0);
    let count = count();
    for number in 0..count {
        let template = mutated(&mut numbers, &cases);
        let job = crate::job("app", "", &[("t.erb", &template)]);
        let started = Instant::now();
        let is_native = Native.check(&job).is_ok();
        match Native.render(&job, &crate::spec()) {
            Ok(_) => native += 1,
            Err(RenderError::Failed(_)) => failed += 1,
            Err(RenderError::NeedsRuby(why)) => assert!(!why.construct.contains("gives up"), "a panic at: {template}"),
            Err(error) => panic!("{error} at: {template}"),
        }
        assert!(started.elapsed() < Duration::from_secs(60), "{is_native} {:?}: {template}", started.elapsed());
        if let Some(ruby) = ruby.as_ref().filter(|_| number % 20 == 0)
            && let Err(RenderError::Ruby(error)) = ruby.render(&job, &crate::spec())
        {
            panic!("{error} at: {template}");
        }
    }
    eprintln!("{count} damaged templates: {native} rendered natively, {failed} failed as templates do");
}
