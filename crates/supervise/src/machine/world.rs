//! A simulated VM around the machine: programs that start processes without looking whether there is one already, pid files that
//! come late, deaths, strangers with the pids of the dead, answers that come late, and supervisors that are killed.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use proptest::prelude::*;

use super::commands::{Command, Selection};
use super::rounds::Round;
use super::snapshot::{Change, MonitText, Snapshot};
use super::*;

const CYCLE: Duration = Duration::from_secs(10);

/// `b` depends on `a`, `c` stands alone; `d` comes and goes.
fn files(with_d: bool) -> Vec<MonitText> {
    let check = |name: &str, more: &str| {
        format!(
            "check process {name} pidfile /run/{name}.pid start \"/ctl start {name}\" stop \"/ctl stop {name}\" group vcap {more}\n"
        )
    };
    let mut text = check("a", "") + &check("b", "depends on a") + &check("c", "");
    if with_d {
        text += &check("d", "");
    }
    vec![MonitText { name: "job".into(), text }]
}

const NAMES: [&str; 4] = ["a", "b", "c", "d"];

/// How one run of a start program goes, in milliseconds from its release.
#[derive(Debug, Clone, Copy)]
struct Script {
    /// When the process is there.
    process: u64,
    /// When its pid file is written, after that.
    pid_file: u64,
    /// When the program ends.
    end: u64,
}

#[derive(Debug, Clone)]
enum Op {
    Wait(u64),
    Command(Command, usize),
    Die(usize),
    Stranger(usize),
    Kill,
    KillUnsaved,
    Reboot,
    Load(bool),
    Scripts(Script),
    LateAnswers(bool),
    NoSpace(bool),
}

fn any_script() -> impl Strategy<Value = Script> {
    let quick = (0..20_000_u64, 0..5_000_u64, 0..50_000_u64);
    quick.prop_map(|(process, late, end)| Script { process, pid_file: process + late, end })
}

fn any_op() -> impl Strategy<Value = Op> {
    let commands = proptest::sample::select(vec![
        Command::Start,
        Command::Stop,
        Command::Restart,
        Command::Monitor,
        Command::Unmonitor,
    ]);
    prop_oneof![
        6 => prop_oneof![0..400_u64, 0..15_000_u64, 0..70_000_u64].prop_map(Op::Wait),
        5 => (commands, 0..5_usize).prop_map(|(command, of)| Op::Command(command, of)),
        3 => (0..4_usize).prop_map(Op::Die),
        1 => (0..4_usize).prop_map(Op::Stranger),
        2 => Just(Op::Kill),
        1 => Just(Op::KillUnsaved),
        1 => Just(Op::Reboot),
        1 => any::<bool>().prop_map(Op::Load),
        2 => any_script().prop_map(Op::Scripts),
        1 => any::<bool>().prop_map(Op::LateAnswers),
        1 => any::<bool>().prop_map(Op::NoSpace),
    ]
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Wish {
    Keep,
    Leave,
    Stop,
}

#[derive(Debug)]
struct Running {
    service: String,
    is_start: bool,
    program: ProcessIdentity,
    released: u64,
    script: Script,
    has_process: Option<ProcessIdentity>,
    has_written: bool,
}

#[derive(Debug)]
struct World {
    machine: Machine,
    now: u64,
    boot: u32,
    saved: Snapshot,
    alive: BTreeMap<u32, (u64, Option<String>)>,
    /// The pid, and the start time that its file is older than, if it is.
    pid_files: BTreeMap<String, u32>,
    file_ages: BTreeMap<String, u64>,
    gates: BTreeMap<u64, (String, bool, ProcessIdentity)>,
    programs: Vec<Running>,
    launched: BTreeSet<(u32, u64)>,
    answers: VecDeque<(u64, Event)>,
    wishes: BTreeMap<String, Wish>,
    loaded: BTreeSet<String>,
    script: Script,
    has_late_answers: bool,
    has_no_space: bool,
    /// A save did not work, and everything has to be saved when there is space.
    is_unsaved: bool,
    next_pid: u32,
    /// The state is saved, and nothing after it was done.
    stops_after_save: bool,
}

impl World {
    fn new() -> Self {
        let mut machine = Machine::new("boot 0", CYCLE, 0);
        let actions = machine.load(files(false), 0).unwrap();
        let saved = machine.snapshot();
        let mut world = Self {
            machine,
            now: 0,
            boot: 0,
            saved,
            alive: BTreeMap::new(),
            pid_files: BTreeMap::new(),
            file_ages: BTreeMap::new(),
            gates: BTreeMap::new(),
            programs: Vec::new(),
            launched: BTreeSet::new(),
            answers: VecDeque::new(),
            wishes: ["a", "b", "c"].map(|name| (name.to_owned(), Wish::Keep)).into(),
            loaded: ["a", "b", "c"].map(str::to_owned).into(),
            script: Script { process: 100, pid_file: 300, end: 200 },
            has_late_answers: false,
            has_no_space: false,
            is_unsaved: false,
            next_pid: 100,
            stops_after_save: false,
        };
        world.carry_out(actions);
        world
    }

    fn spawn(&mut self, service: Option<&str>) -> ProcessIdentity {
        self.next_pid += 1;
        let process = ProcessIdentity { pid: self.next_pid, start_time: self.now };
        self.alive.insert(process.pid, (process.start_time, service.map(str::to_owned)));
        process
    }

    fn runs(&self, process: ProcessIdentity) -> bool {
        self.alive.get(&process.pid).is_some_and(|(start, _)| *start == process.start_time)
    }

    /// Carries out `actions` as the edge does: in rounds, each with one save before its gates open.
    fn carry_out(&mut self, actions: Vec<Action>) {
        let mut next = VecDeque::from(actions);
        while !next.is_empty() {
            let round = Round::take(&mut next);
            for action in round.actions {
                self.act(action);
            }
            if let Some(change) = round.save {
                self.save(change);
                if !self.is_unsaved && std::mem::take(&mut self.stops_after_save) {
                    self.kill();
                    return;
                }
            }
            for launch in round.releases {
                self.release(launch);
            }
        }
    }

    fn save(&mut self, change: Change) {
        if self.has_no_space {
            self.is_unsaved = true;
        } else if std::mem::take(&mut self.is_unsaved) {
            self.saved = self.machine.snapshot();
        } else {
            match change {
                Change::All(snapshot) => self.saved = snapshot,
                Change::Of(records) => self.saved.apply(records),
            }
        }
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Look { service, look, process, start_program, stop_program, .. } => {
                let file = match self.pid_files.get(&service).and_then(|pid| Some((*pid, self.alive.get(pid)?.0))) {
                    Some((pid, start_time)) => PidFile::Process {
                        process: ProcessIdentity { pid, start_time },
                        is_younger: start_time > self.file_ages[&service],
                    },
                    None => PidFile::Nobody,
                };
                let runs = |process: Option<ProcessIdentity>| process.is_some_and(|process| self.runs(process));
                let sighting = Sighting {
                    file,
                    process_runs: runs(process),
                    start_program_runs: runs(start_program),
                    stop_program_runs: runs(stop_program),
                    readings: Vec::new(),
                };
                let at = self.now + if self.has_late_answers { 700 } else { 0 };
                self.answers.push_back((at, Event::Seen { service, look, sighting }));
            }
            Action::Launch { service, launch, program } => {
                let is_start = program.arguments[1] == "start";
                let identity = self.spawn(None);
                self.gates.insert(launch, (service.clone(), is_start, identity));
                self.launched.insert((identity.pid, identity.start_time));
                self.answers.push_back((self.now, Event::Launched { service, launch, program: identity }));
            }
            Action::Discard { launch } => {
                if let Some((_, _, program)) = self.gates.remove(&launch) {
                    self.alive.remove(&program.pid);
                }
            }
            Action::End { program, .. } => {
                let is_ours = self.launched.contains(&(program.pid, program.start_time));
                assert!(is_ours, "{program:?} is signalled and was never launched");
                if self.runs(program) {
                    self.alive.remove(&program.pid);
                    for it in self.programs.iter().filter(|it| it.program == program && !it.has_written) {
                        if let Some(process) = it.has_process {
                            self.alive.remove(&process.pid);
                        }
                    }
                    self.programs.retain(|it| it.program != program);
                }
            }
            Action::Save(_) | Action::Release { .. } => unreachable!("a round has them by themselves"),
            Action::Run { .. } | Action::Note(_) => {}
        }
    }

    fn release(&mut self, launch: u64) {
        let (service, is_start, program) = self.gates.remove(&launch).expect("a gate that was not there");
        // As the edge does: a gate whose record cannot be kept is not opened.
        if self.is_unsaved {
            self.alive.remove(&program.pid);
            let reason = "no space".to_owned();
            self.answers.push_back((self.now, Event::LaunchFailed { service, launch, reason }));
            return;
        }
        if is_start {
            let wish = self.wishes.get(&service).copied().unwrap_or(Wish::Leave);
            assert_eq!(wish, Wish::Keep, "{service} is started although nobody wants it");
            let others = self.programs.iter().filter(|it| it.service == service && it.is_start);
            assert_eq!(others.count(), 0, "two start programs of {service}");
        }
        self.programs.push(Running {
            service,
            is_start,
            program,
            released: self.now,
            script: self.script,
            has_process: None,
            has_written: false,
        });
    }

    fn kill(&mut self) {
        for (_, (_, _, program)) in std::mem::take(&mut self.gates) {
            self.alive.remove(&program.pid);
        }
        self.answers.clear();
        self.is_unsaved = false;
        let boot = format!("boot {}", self.boot);
        let (machine, actions) = Machine::restore(self.saved.clone(), &boot, CYCLE, self.now).unwrap();
        self.machine = machine;
        // What was asked for and not saved was not answered, so it is not wanted.
        for (name, record) in &self.saved.services {
            let wish = match record.goal {
                state::Goal::Keep => Wish::Keep,
                state::Goal::Leave => Wish::Leave,
                state::Goal::Stop => Wish::Stop,
            };
            self.wishes.insert(name.clone(), wish);
        }
        self.loaded = self.machine.fleet.services().map(|service| service.name.clone()).collect();
        self.carry_out(actions);
    }

    /// Lets the programs do what is due.
    fn run_programs(&mut self) {
        let now = self.now;
        let mut programs = std::mem::take(&mut self.programs);
        for it in &mut programs {
            let age = now - it.released;
            if it.is_start {
                if age >= it.script.process && it.has_process.is_none() {
                    let process = self.spawn(Some(&it.service));
                    it.has_process = Some(process);
                }
                if age >= it.script.pid_file
                    && let Some(process) = it.has_process.filter(|_| !it.has_written)
                {
                    it.has_written = true;
                    self.pid_files.insert(it.service.clone(), process.pid);
                    self.file_ages.insert(it.service.clone(), now);
                }
                // The daemon that it forked writes its file also when the program has ended.
                if age >= it.script.end {
                    self.alive.remove(&it.program.pid);
                }
            } else {
                if age >= (it.script.process / 2).min(it.script.end)
                    && !it.has_written
                    && let Some(pid) = self.pid_files.remove(&it.service)
                {
                    it.has_written = true;
                    if self.alive.get(&pid).is_some_and(|(_, owner)| owner.as_deref() == Some(&it.service)) {
                        self.alive.remove(&pid);
                    }
                }
                if age >= it.script.end {
                    self.alive.remove(&it.program.pid);
                }
            }
        }
        programs.retain(|it| {
            let has_more = it.is_start && !it.has_written;
            has_more || self.alive.get(&it.program.pid).is_some_and(|(start, _)| *start == it.program.start_time)
        });
        self.programs = programs;
        for name in NAMES {
            let copies = self.alive.values().filter(|(_, owner)| owner.as_deref() == Some(name)).count();
            assert!(copies <= 1, "{copies} copies of {name}");
        }
    }

    fn pass(&mut self, millis: u64) {
        let end = self.now + millis;
        let step = if millis < 20_000 { 100 } else { 500 };
        loop {
            self.run_programs();
            // All that is known by now is one round.
            while self.answers.front().is_some_and(|(at, _)| *at <= self.now) {
                let mut actions = Vec::new();
                while let Some((_, event)) = self.answers.pop_front_if(|(at, _)| *at <= self.now) {
                    actions.extend(self.machine.handle(event, self.now));
                }
                self.carry_out(actions);
                self.run_programs();
            }
            if self.is_unsaved && !self.has_no_space {
                self.is_unsaved = false;
                self.saved = self.machine.snapshot();
            }
            let actions = self.machine.handle(Event::Tick, self.now);
            self.carry_out(actions);
            if self.now >= end {
                return;
            }
            self.now = (self.now + step).min(end);
        }
    }

    fn wish(&mut self, command: Command, name: &str) {
        let depends = |name: &str| if name == "b" { vec!["a"] } else { vec![] };
        let dependants = |name: &str| if name == "a" { vec!["b"] } else { vec![] };
        let (wish, others) = match command {
            Command::Start | Command::Restart => (Wish::Keep, depends(name)),
            Command::Monitor => (Wish::Keep, vec![]),
            Command::Stop => (Wish::Stop, dependants(name)),
            Command::Unmonitor => (Wish::Leave, dependants(name)),
        };
        for name in others.into_iter().chain([name]) {
            if self.loaded.contains(name) {
                self.wishes.insert(name.to_owned(), wish);
            }
        }
    }

    fn apply(&mut self, op: &Op) {
        match op {
            Op::Wait(millis) => self.pass(*millis),
            Op::Command(command, of) => {
                let selection = match NAMES.get(*of) {
                    Some(name) => Selection::Service((*name).to_owned()),
                    None => Selection::Group("vcap".to_owned()),
                };
                let known = self.machine.command(*command, &selection, self.now);
                match (&selection, known) {
                    (Selection::Service(name), Ok(actions)) => {
                        self.wish(*command, name);
                        self.carry_out(actions);
                    }
                    (_, Ok(actions)) => {
                        for name in NAMES.into_iter().filter(|name| self.loaded.contains(*name)).collect::<Vec<_>>() {
                            self.wish(*command, name);
                        }
                        self.carry_out(actions);
                    }
                    (_, Err(unknown)) => assert!(unknown.to_string().contains("there is no service 'd'")),
                }
            }
            Op::Die(index) => {
                let name = NAMES[*index];
                self.alive.retain(|_, (_, owner)| owner.as_deref() != Some(name));
            }
            Op::Stranger(index) => {
                let pid = self.pid_files.get(NAMES[*index]).copied();
                if let Some(pid) = pid.filter(|pid| !self.alive.contains_key(pid)) {
                    self.alive.insert(pid, (self.now + 1, None));
                }
            }
            Op::Kill => self.kill(),
            Op::KillUnsaved => self.stops_after_save = true,
            Op::Reboot => {
                self.boot += 1;
                self.alive.clear();
                self.programs.clear();
                self.gates.clear();
                self.pid_files.clear();
                self.kill();
            }
            Op::Load(with_d) => {
                let actions = self.machine.load(files(*with_d), self.now).unwrap();
                if *with_d && self.loaded.insert("d".into()) {
                    self.wishes.insert("d".into(), Wish::Keep);
                } else if !*with_d && self.loaded.remove("d") {
                    self.wishes.insert("d".into(), Wish::Leave);
                }
                self.carry_out(actions);
            }
            Op::Scripts(script) => self.script = *script,
            Op::LateAnswers(late) => self.has_late_answers = *late,
            Op::NoSpace(no_space) => self.has_no_space = *no_space,
        }
    }
}

/// Each case is a long life; `PROPTEST_CASES` asks for more of them.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(60)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), max_shrink_iters: 4000, ..ProptestConfig::default() })]

    #[test]
    fn no_order_of_events_starts_twice_signals_a_stranger_or_forgets(
        ops in proptest::collection::vec(any_op(), 0..40)
    ) {
        let mut world = World::new();
        for op in &ops {
            world.apply(op);
        }
        world.has_late_answers = false;
        world.has_no_space = false;
        world.stops_after_save = false;
        world.script = Script { process: 100, pid_file: 300, end: 200 };
        world.pass(400_000);
        for name in world.loaded.clone() {
            let copies = world.alive.values().filter(|(_, owner)| owner.as_deref() == Some(&name)).count();
            let status = world.machine.status().into_iter().find(|it| it.name == name).unwrap();
            match world.wishes[&name] {
                Wish::Keep => {
                    // What it depends on may be left alone while it is down.
                    let waits = name == "b" && world.wishes["a"] != Wish::Keep;
                    prop_assert!(copies == 1 || waits, "{} should run: {:?}", name, status);
                    prop_assert!(waits || status.health == status::Health::Running, "{:?}", status);
                }
                // A stop that could not be tried is said to have failed.
                Wish::Stop => prop_assert!(copies == 0 || status.has_stop_failed, "{} runs: {:?}", name, status),
                Wish::Leave => prop_assert_eq!(status.health, status::Health::Unmonitored),
            }
        }
    }
}
