//! Runs the commands of a page as written, in a scratch place on a machine of its own.

use std::fmt::Write;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::Command;

use super::pages::{Page, all, root};

/// The user who types what a page says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum User {
    Root,
    /// An ordinary user with an empty home.
    Nobody,
}

/// How commands begin that are not run, and why.
const NOT_RUN: [(&str, &str); 5] = [
    ("cargo ", "compiles what this test runs"),
    ("bin/check", "compiles what this test runs"),
    ("bin/test", "runs this test"),
    ("windlass certify --matrix", "windlass::matrix does, and it takes a minute"),
    ("windlass certify --cpi \"$PWD/target/", "certify::the_example_of_the_sdk_is_certified does"),
];

/// How commands begin that run until they are stopped: in a terminal of their own, as people do it.
const SERVERS: [&str; 2] = ["windlass director", "windlass registry"];

const NOBODY: u32 = 65534;

/// What the commands find. `systemctl` does with the unit what matters of it here: it starts and stops what it names.
const PRELUDE: &str = r#"
set -eEuo pipefail
trap 'echo "failed at $where" >&2' ERR
# Control groups outlive namespaces: the script that made containers deletes them.
trap '(windlass -n -d example delete-deployment --force; windlass -n down --all) > /dev/null 2>&1 || true' EXIT
unit=/etc/systemd/system/windlass-director.service
systemctl() {
    case "$*" in
    "enable --now windlass-director" | "start windlass-director")
        ! command -v systemd-analyze > /dev/null || systemd-analyze verify --man=no $unit
        $(sed -n 's/^ExecStart=//p' $unit) > service.log 2>&1 &
        service=$!
        director_answers ;;
    "stop windlass-director") kill $service && wait $service ;;
    *) echo "what does 'systemctl $*' do?" >&2; return 1 ;;
    esac
}
director_answers() { until windlass env > /dev/null 2>&1; do sleep 0.1; done; }
server_listens() { until grep -q listens server.log; do kill -0 $! && sleep 0.1; done; }
"#;

/// Runs all commands of a page. Must be called on a machine of its own.
pub(crate) fn run(page: &Page, user: User) {
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| folder.path().join(name);
    for name in ["checkout", "home", "tmp", "etc", "etc-work"] {
        fs::create_dir(place(name)).unwrap();
    }
    prepare_machine(folder.path());
    for name in ["examples", "packaging"] {
        sh(&format!("cp -r {}/{name} {}", root().display(), place("checkout").display()));
    }
    for block in &page.blocks {
        if let Some(file) = &block.file {
            fs::write(place("checkout").join(file), &block.text).unwrap();
        }
    }
    let script = place("script.sh");
    fs::write(&script, script_of(page)).unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();

    // Whatever hangs is ended, with the namespaces at the latest.
    let mut command = Command::new("timeout");
    command.args(["--kill-after=5", "300"]);
    if user == User::Nobody {
        for name in ["checkout", "home", "tmp"] {
            sh(&format!("chown -R {NOBODY}:{NOBODY} {}", place(name).display()));
        }
        chown(&script, Some(NOBODY), None).unwrap();
        let nobody = NOBODY.to_string();
        command.args(["setpriv", "--reuid", &nobody, "--regid", &nobody, "--clear-groups"]);
    }
    command.arg("bash").arg(&script).current_dir(place("checkout")).env_clear();
    command.env("PATH", "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin").env("LANG", "C.UTF-8");
    command.env("HOME", place("home")).env("TMPDIR", place("tmp"));
    let output = command.output().unwrap();
    let said = [output.stdout.as_slice(), b"\n", &output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    assert!(output.status.success(), "{} as {user:?}: {}\n{said}", page.name, output.status);
    unprepare_machine();
}

/// The program is installed, and what is written to the machine's folders goes elsewhere.
fn prepare_machine(folder: &Path) {
    let etc = format!("lowerdir=/etc,upperdir={0}/etc,workdir={0}/etc-work", folder.display());
    sh(&format!("mount -t overlay none -o {etc} /etc && mkdir -p /etc/systemd/system /etc/bash_completion.d"));
    sh(
        "mount -t tmpfs -o mode=755 none /var/lib && mount -t tmpfs -o mode=755 none /usr/local && mkdir /usr/local/bin",
    );
    for program in [env!("CARGO_BIN_EXE_windlass"), env!("CARGO_BIN_EXE_windlass-cpi")] {
        let name = Path::new(program).file_name().unwrap().display().to_string();
        sh(&format!("touch /usr/local/bin/{name} && mount --bind {program} /usr/local/bin/{name}"));
    }
    // An address that the pages give to a machine.
    sh("ip addr replace 10.0.0.6/32 dev lo");
}

fn unprepare_machine() {
    sh("umount --lazy /usr/local/bin/* /usr/local /var/lib /etc");
}

fn sh(line: &str) {
    let output = Command::new("sh").args(["-c", line]).output().unwrap();
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
}

fn script_of(page: &Page) -> String {
    let mut script = PRELUDE.to_owned();
    for block in page.blocks_in("sh") {
        for (line, text) in lines(&block.text) {
            writeln!(script, "where='{}:{}'", page.name, block.line + line).unwrap();
            let command = text.split("  #").next().unwrap().trim_end();
            if reason_not_to_run(command).is_some() {
                continue;
            }
            let is_server = SERVERS.iter().any(|server| command.starts_with(server));
            match command.strip_suffix(" &") {
                Some(_) => writeln!(script, "{command}\ndirector_answers").unwrap(),
                None if is_server => writeln!(script, "{command} > server.log 2>&1 &\nserver_listens").unwrap(),
                None => writeln!(script, "{text}").unwrap(),
            }
        }
    }
    script
}

/// The commands of a block, with the numbers of their lines in it; one that goes on in the next line is one.
pub(crate) fn lines(text: &str) -> Vec<(usize, String)> {
    let mut commands: Vec<(usize, String)> = Vec::new();
    let mut goes_on = false;
    for (index, line) in text.lines().enumerate() {
        let (part, more) = line.strip_suffix('\\').map_or((line, false), |part| (part, true));
        match commands.last_mut().filter(|_| goes_on) {
            Some((_, command)) => command.push_str(part.trim_start()),
            None => commands.push((index, part.to_owned())),
        }
        goes_on = more;
    }
    commands
}

fn reason_not_to_run(command: &str) -> Option<&'static str> {
    NOT_RUN.iter().find(|(beginning, _)| command.starts_with(beginning)).map(|(_, reason)| *reason)
}

/// An exception that nothing needs any more would hide the next command that begins so.
pub(crate) fn every_exception_is_needed() {
    let pages = all();
    let commands: Vec<String> = pages
        .iter()
        .flat_map(|page| page.blocks_in("sh").flat_map(|block| lines(&block.text)))
        .map(|(_, command)| command)
        .collect();
    for (beginning, reason) in NOT_RUN {
        let needed = commands.iter().any(|command| command.starts_with(beginning));
        assert!(needed, "no command begins with '{beginning}' ({reason})");
    }
}
