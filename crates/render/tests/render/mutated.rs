//! Templates that were damaged at random: each is answered, natively and by Ruby, without a panic and in time.

use std::time::{Duration, Instant};

use windlass_render::{Native, RenderError, Renderer as _, Ruby, RubySetup};

/// What is put in at random.
const PIECES: [&str; 24] = [
    "<%", "%>", "<%=", "-%>", "<%-", "%%>", "end", "do", "{", "}", "(", ")", "[", "]", "'", "\"", "#{", "|x|", "\\",
    "\n", "/", "$1", "é", "\0",
];

/// How many, and each of which Ruby gets as well: every one of a million with `WINDLASS_POINTS=all` or of as many as
/// `WINDLASS_MUTATED` says.
fn count() -> (usize, usize) {
    let is_all = std::env::var("WINDLASS_POINTS").is_ok_and(|points| points == "all");
    let asked = std::env::var("WINDLASS_MUTATED").ok().and_then(|count| count.parse().ok());
    match asked.or(is_all.then_some(1_000_000)) {
        Some(count) => (count, 10),
        None => (2000, 20),
    }
}

/// How long Ruby may take for one: some have no end.
const PATIENCE: Duration = Duration::from_secs(2);

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
    let ruby = crate::ruby::ruby().map(|_| Ruby::new(RubySetup { patience: PATIENCE, ..crate::ruby::setup() }));
    let (count, each) = count();
    let (mut native, mut failed, mut by_ruby, mut stopped) = (0, 0, 0, 0);
    eprintln!("{count} damaged templates of WINDLASS_SEED={seed}");
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
        let Some(ruby) = ruby.as_ref().filter(|_| number % each == 0) else { continue };
        let started = Instant::now();
        match ruby.render(&job, &crate::spec()) {
            Err(RenderError::Failed(errors)) => {
                let is_stopped = errors.errors.iter().any(|error| error.message.contains("was stopped after"));
                stopped += usize::from(is_stopped);
            }
            Err(error) => panic!("{error} at: {template}"),
            Ok(_) => by_ruby += 1,
        }
        assert!(started.elapsed() < Duration::from_secs(60), "by Ruby {:?}: {template}", started.elapsed());
    }
    eprintln!(
        "natively: {native} rendered, {failed} failed as templates do; of each {each}th, Ruby rendered {by_ruby} and was stopped at {stopped}"
    );
}
