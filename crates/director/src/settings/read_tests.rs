//! What is documented is read, and every mistake is told with its line.

use std::time::Duration;

use super::*;

fn read(text: &str) -> Result<Settings, String> {
    settings(text, Path::new("/etc/windlass"))
}

#[test]
fn an_empty_file_sets_nothing() {
    for text in ["", "---\n", "{}"] {
        let settings = read(text).unwrap();
        assert_eq!(settings.listen.to_string(), "127.0.0.1:25555");
        assert!(settings.takes_snapshots(), "the cloud is built in");
    }
}

#[test]
fn a_highest_version_does_not_raise_a_preferred_one() {
    for (preferred, highest, expected) in [(1, 2, 1), (2, 1, 1), (2, 2, 2)] {
        let text = format!("cpi_preferred_api_version: {preferred}\ncpi_api_test_max_version: {highest}\n");
        assert_eq!(read(&text).unwrap().preferred_version, ApiVersion(expected), "{text}");
    }
}

#[test]
fn what_is_documented_is_understood() {
    let text = "name: one\nlisten: 10.0.0.6:0\nadvertise: [director.example.com, 10.0.0.9]\ndb: postgres://u:p@h/n\n\
        cpi: {exec: bin/cpi, config: cpi.json, arguments: [-v]}\ncpi_api_test_max_version: 1\ncpi_deadline: 10m\nagent_wait: 90s\ntemplate_time: 2m\n\
        agent: {env: {bosh: {ntp: [a]}}}\nusers:\n- {name: eve, password: x, role: read-only}\n\
        - {name: bob, password: x, scopes: [bosh.read]}\n- {name: amy, password: 12}\n\
        - {name: sue, password: x, scopes: [bosh.teams.shop.admin, bosh.stemcells.upload]}\n\
        team_limits: {deployments: 7}\nworkers: 2\nresurrector: {enabled: false, meltdown: {percent: 50, within: 1h}}\n\
        schedules: {delete_orphan_disks_after: never, snapshot_every: 24h}\ncertificates: {lifetime: 90d}\n\
        tls: {certificate: tls.crt, private_key: /etc/tls.key}\nblobs_limit: 50GiB\n\
        blobstore: {provider: s3, options: {bucket_name: b, access_key_id: keyed, secret_access_key: hidden}}\n";
    let settings = read(text).unwrap();
    assert_eq!(settings.advertise, ["director.example.com", "10.0.0.9"]);
    let arguments = ["-v", "--config", "/etc/windlass/cpi.json"].map(str::to_owned).to_vec();
    assert_eq!(settings.cpi, CpiChoice::Executable { exec: "/etc/windlass/bin/cpi".into(), arguments });
    assert!(!settings.takes_snapshots(), "somebody else's CPI must be trusted first");
    assert_eq!(settings.preferred_version, ApiVersion::V1);
    assert_eq!(settings.agent_wait, Duration::from_secs(90));
    assert_eq!(settings.template_time, Duration::from_secs(120));
    assert_eq!(settings.agent_env["ntp"][0], "a");
    let scopes: Vec<_> = settings.users.iter().map(|user| (*user.scopes).clone()).collect();
    let of_shop = Scopes::parse(["bosh.teams.shop.admin", "bosh.stemcells.upload"]).unwrap();
    assert_eq!(scopes, [Scopes::read_only(), Scopes::read_only(), Scopes::admin(), of_shop]);
    assert_eq!(settings.team_limits, TeamLimits { deployments: 7, instances: 5000 });
    assert!(!settings.resurrector.enabled);
    assert_eq!(
        settings.resurrector.meltdown,
        Meltdown { instances: 5, percent: 50, within: Duration::from_secs(3600) }
    );
    assert_eq!(settings.schedules.delete_orphan_disks_after, None);
    assert_eq!(settings.certificates.leaf, Duration::from_secs(90 * 86400));
    let tls = settings.tls.clone().unwrap();
    assert!(tls.certificate.ends_with("tls.crt") && tls.private_key == Path::new("/etc/tls.key") && tls.ca.is_none());
    let shown = format!("{settings:?}");
    assert!(settings.blobstore.is_shared() && settings.blobs_limit == Some(50 << 30));
    assert!(!shown.contains("keyed") && !shown.contains("hidden"), "{shown}");
    assert!(!shown.contains("u:p") && !shown.contains("\"12\""), "secrets print themselves: {shown}");
}

#[test]
fn the_secret_of_a_webhook_is_in_a_file_or_a_variable_and_never_in_the_settings() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("hook.secret"), "shh\n").unwrap();
    std::fs::write(folder.path().join("empty"), "\n").unwrap();
    let read = |text: &str| settings(&format!("webhook: {text}\n"), folder.path());
    let webhook = read("{url: 'https://x.example/h?t=1', secret: {file: hook.secret}}").unwrap().webhook.unwrap();
    assert_eq!(webhook.secret.reveal(), "shh");
    assert_eq!(webhook.events.len(), NoticeKind::WORDS.len());
    let some = read("{url: 'http://127.0.0.1:1', secret: {env: PATH}, events: [deploy_failed]}").unwrap();
    assert_eq!(some.webhook.unwrap().events, [NoticeKind::DeployFailed]);
    for (text, expected) in [
        ("{url: 'https://x.example'}", "webhook: is without a secret"),
        ("{url: 'https://x.example', secret: shh}", "webhook.secret: "),
        ("{url: 'https://x.example', secret: {}}", "webhook.secret: say either file or env"),
        ("{url: 'https://x.example', secret: {file: none}}", "webhook.secret.file: the file cannot be read"),
        ("{url: 'https://x.example', secret: {file: empty}}", "webhook.secret: the secret is empty"),
        ("{url: 'https://x.example', secret: {env: NOT_SET_HERE}}", "the variable NOT_SET_HERE is not set"),
        ("{url: 'ftp://x.example', secret: {file: hook.secret}}", "webhook.url: expected a URL such as"),
        ("{url: 'https://x.example', secret: {file: hook.secret}, events: [rain]}", "expected one of vm_unresponsive,"),
    ] {
        let said = read(text).unwrap_err();
        assert!(said.contains(expected), "expected '{expected}' in: {said}");
    }
}

#[test]
fn the_other_ways_to_name_a_cpi() {
    assert_eq!(read("cpi: {installed: aws}").unwrap().cpi, CpiChoice::Installed { name: "aws".into() });
    assert!(read("cpi: {installed: aws, exec: x}").unwrap_err().to_string().contains("keep one of them"));
    assert_eq!(read("cpi: sim").unwrap().cpi, CpiChoice::Sim { config: None });
    assert_eq!(read("cpi: incus").unwrap().cpi, CpiChoice::Incus { config: None });
    let config = Some("/etc/windlass/sim.json".into());
    assert_eq!(read("cpi: {exec: sim, config: sim.json}").unwrap().cpi, CpiChoice::Sim { config });
    let choice = read("cpi: {exec: bin/cpi, config: cpi.json, arguments: ['-configPath={config}', -x]}").unwrap().cpi;
    let arguments = ["-configPath=/etc/windlass/cpi.json", "-x"].map(str::to_owned).to_vec();
    assert_eq!(choice, CpiChoice::Executable { exec: "/etc/windlass/bin/cpi".into(), arguments });
    assert_eq!(read("advertise: one.example.com").unwrap().advertise, ["one.example.com"]);
}

/// An operator whose setting was silently ignored believes that it is in force.
#[test]
fn every_mistake_is_told_at_once_with_path_and_line() {
    let fencing =
        settings("fencing: {command: [/opt/fence, now], timeout: 5s}\n", Path::new("/")).unwrap().fencing.unwrap();
    assert_eq!(
        (fencing.command, fencing.timeout),
        (vec!["/opt/fence".to_owned(), "now".to_owned()], Duration::from_secs(5))
    );
    for (text, words) in [
        ("fencing: {}\n", "fencing: is without a command"),
        ("fencing: {command: [fence]}\n", "expected an absolute path, found 'fence'"),
    ] {
        let error = settings(text, Path::new("/")).unwrap_err();
        assert!(error.contains(words), "{error}");
    }
    let text = "listne: 1\nlisten: nowhere\nworkers: 0\nresurrector:\n  interval: soon\n  meltdown: {percent: 200}\n\
        users:\n- {name: a, password: x}\n- {name: a, password: y, role: king}\n- name: 'b:c'\n  password: z\n\
        - {name: d, password: x, scopes: []}\n- {name: e, password: x, scopes: [team.a.admin]}\n\
        - {name: f, password: x, role: admin, scopes: [bosh.read]}\n\
        blobs_limit: much\nblobstore: {provider: s3, options: {secret_access_key: hidden}}\n\
        isolation: jail\nenable_snapshots: sometimes\ncertificates: {lifetime: 10d, ca_lifetime: 10d}\nadvertise: 'a b'\n\
        cpi: {exe: x}\nagent: {env: {bosh: {mbus: {}}}}\ncpi_preferred_api_version: 9\n";
    let said = read(text).unwrap_err();
    for expected in [
        "listne: the key 'listne' is not known (did you mean 'listen'?) (line 1)",
        "listen: expected an address and a port such as 10.0.0.6:25555, found 'nowhere' (line 2)",
        "workers: expected a whole number from 1 to 1000, found 0 (line 3)",
        "resurrector.interval: expected a time such as",
        "resurrector.meltdown.percent: expected a whole number from 1 to 100, found 200 (line 6)",
        "users[1].role: expected 'admin' or 'read-only', found 'king' (line 9)",
        "users[1].name: the user 'a' is there already (line 9)",
        "users[2].name: a user's name must not contain ':' (line 10)",
        "users[3].scopes: expected at least one scope (line 12)",
        "users[4].scopes[0]: expected bosh.admin, bosh.read, bosh.teams.TEAM.admin,",
        "users[5].scopes: say either 'role' or 'scopes' (line 14)",
        "isolation: expected 'auto' or 'container' or 'process', found 'jail' (line 17)",
        "blobs_limit: expected a size such as 500MiB",
        "blobstore.provider: is 's3', and access_key_id and secret_access_key must be provided",
        "enable_snapshots: expected a boolean",
        "certificates: the CA must live longer",
        "advertise: expected a host name or an address, found 'a b' (line 20)",
        "cpi.exe: the key 'exe' is not known",
        "cpi.exec: is required",
        "agent.env.bosh.mbus: the director makes this itself",
        "cpi_preferred_api_version: expected a whole number from 1 to 2, found 9",
    ] {
        assert!(said.contains(expected), "expected '{expected}' in:\n{said}");
    }
    assert_eq!(said.lines().count(), 21, "{said}");
    assert!(!said.contains("hidden"), "{said}");
}
