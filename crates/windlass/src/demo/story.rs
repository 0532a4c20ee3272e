//! What the demo shows, in order: a director, a stemcell, a cloud config, and what is done with them.

use serde_json::{Value, json};
use windlass_cloud_local::Isolation;
use windlass_contract::ApiVersion;
use windlass_contract::version::SettingsFrom;
use windlass_director_client::DirectorClient;
use windlass_director_client::answers::Stemcell;
use windlass_installation::own_programs;

use super::telling::{Chapters, command, connect, expect, shell, verb, write};
use super::{DemoError, Stage, bare, place, say, service};

pub(super) const CLOUD_CONFIG: &str = include_str!("../../../../examples/cloud-config.yml");
/// The addresses of the example, for which the demo puts its own.
pub(super) const EXAMPLE_NET: &str = "127.84.0.";

/// Tells the story, and checks on the way that it is true.
pub(super) async fn tell(stage: &mut Stage, keep: bool) -> Result<(), DemoError> {
    say("Windlass demo: a director, a cloud and a service with data, on this machine.");
    say(match stage.isolation {
        Isolation::Container => {
            "VMs are containers here, in namespaces that end with the demo: nothing of the\n\
             machine is touched. Ids are shortened, and what repeats is left out."
        }
        Isolation::Process => {
            "VMs are processes here, on loopback addresses, without privileges. Ids are\n\
             shortened, and what repeats is left out."
        }
    });
    let mut chapters = Chapters::default();

    chapters.begin("A director. It needs nothing but a place for its state.");
    shell(&format!("DIR={}", stage.place.state_dir.display()));
    let isolation = stage.isolation.to_string();
    command(&["--state-dir", "$DIR", "up", "--isolation", &isolation, "--listen", "127.0.0.1:0"]);
    let pid = stage.place.start_director(stage.isolation).await?;
    say(&format!("(it runs in the background, as process {pid})"));
    shell(". $DIR/env.sh");
    let missing = what_jobs_miss(stage).await?;
    if let Some(missing) = &missing {
        say(&format!("\n{missing}\nSo this shows a VM with a disk, without software."));
    }

    chapters.begin("A stemcell: the image that VMs start from, with our agent inside.");
    if missing.is_none() {
        say("   This one shows its VMs the programs of this machine, such as its compiler.");
        verb(stage, &["stemcell", "build", "--userland", "host", "--output", "stemcell.tgz"]).await?;
    } else {
        verb(stage, &["stemcell", "build", "--output", "stemcell.tgz"]).await?;
    }
    verb(stage, &["upload-stemcell", "stemcell.tgz"]).await?;

    chapters.begin("The cloud config: what the cloud offers. Here, addresses and disks.");
    write(&stage.place.files.join("cloud-config.yml"), &cloud_config(stage))?;
    verb(stage, &["update-cloud-config", "-n", "cloud-config.yml"]).await?;

    match missing {
        None => service::tell(stage, &mut chapters).await?,
        Some(_) => bare::tell(stage, &mut chapters).await?,
    }

    chapters
        .begin("No registry. Director, CPI and stemcell all speak version 2, so the CPI gave\n   the VM its settings.");
    let director = connect(stage)?;
    let (cpi, stemcell) = versions(stage, &director).await?;
    let request = cpi.min(ApiVersion::HIGHEST);
    let without_registry = SettingsFrom::decide(request, stemcell) == SettingsFrom::UserData;
    expect(without_registry, "a version below 2 needs a registry")?;
    say(&format!("CPI: {cpi}   stemcell: {stemcell}   so requests: {request}, and nobody needs a registry"));

    if keep {
        go_on_with(stage, if missing_software(stage) { bare::DEPLOYMENT } else { service::DEPLOYMENT });
        return Ok(());
    }
    match missing_software(stage) {
        false => service::end(stage, &mut chapters).await?,
        true => bare::end(stage, &mut chapters).await?,
    }

    say("\nThat was all. The demo now stops its director and removes everything.\nTo go on:\n");
    say("  windlass demo --keep    leaves it all running, to play with");
    say("  windlass up             starts a director that stays; docs/tutorial.md goes on");
    say("  windlass --help         shows all verbs; those of 'bosh' work as usual");
    Ok(())
}

/// Whether this demo is the one without software.
fn missing_software(stage: &Stage) -> bool {
    !stage.place.files.join("guestbook.yml").exists()
}

/// The example, with addresses that nobody else has.
pub(super) fn cloud_config(stage: &Stage) -> String {
    CLOUD_CONFIG.replace(EXAMPLE_NET, stage.net_prefix())
}

/// Why jobs of the example cannot run here, in a sentence.
async fn what_jobs_miss(stage: &Stage) -> Result<Option<String>, DemoError> {
    let info = stage.place.call_cpi(&json!({"method": "info", "arguments": []})).await;
    let info = info.map_err(|source| DemoError::Spawn { what: "the CPI", source })?;
    if info["result"]["windlass"]["jobs"] == false {
        return Ok(Some("Jobs do not run on this machine; 'windlass doctor' says why, and what helps.".to_owned()));
    }
    let has_compiler =
        own_programs::find("cc").is_some_and(|path| path.starts_with("/usr") || path.starts_with("/bin"));
    Ok((!has_compiler).then(|| "The example needs a C compiler ('cc'), and this machine has none.".to_owned()))
}

/// The versions of the CPI and of the stemcell.
async fn versions(stage: &Stage, director: &DirectorClient) -> Result<(ApiVersion, ApiVersion), DemoError> {
    let request = json!({"method": "info", "arguments": []});
    shell(&format!("echo '{request}' |\n    windlass cpi local --config $DIR/cpi/local.json"));
    let answer = stage.place.call_cpi(&request).await.map_err(|source| DemoError::Spawn { what: "the CPI", source })?;
    say(&in_lines_that_fit(&answer["result"]));
    let stemcells: Vec<Stemcell> = director.get("/stemcells").await.map_err(DemoError::Director)?;
    let stemcell = stemcells.first().and_then(|stemcell| stemcell.api_version).map_or(ApiVersion::V1, ApiVersion);
    let cpi = answer["result"]["api_version"].as_u64().and_then(|version| version.try_into().ok());
    Ok((cpi.map_or(ApiVersion::V1, ApiVersion), stemcell))
}

/// The answer to `info` on a terminal, without which addresses and networks of this machine are taken, and why jobs do not run.
fn in_lines_that_fit(info: &Value) -> String {
    let mut info = info.clone();
    if let Some(extensions) = info["windlass"].as_object_mut() {
        extensions.retain(|key, _| !key.starts_with("networks_") && key != "addresses_in_use" && key != "jobs_reason");
    }
    let line = info.to_string().replacen("],", "],\n ", 1);
    let line = line.replacen(",\"docker", ",\n \"docker", 1).replacen(",\"largest", ",\n \"largest", 1);
    let line = line.replacen(",\"jobs_os", ",\n \"jobs_os", 1);
    line.strip_suffix("}}").map_or_else(|| line.clone(), |line| format!("{line},…}}}}"))
}

fn go_on_with(stage: &Stage, deployment: &str) {
    let place = stage.place.state_dir.display();
    say(&format!("\nThe director and the deployment '{deployment}' keep running. To use them:\n"));
    say(&format!("  . {place}/env.sh"));
    say("  windlass instances    (or bosh instances)");
    say(&format!("  cd {place}/demo       (the manifests of this demo)\n"));
    say("To end them and remove everything:\n");
    let named = if place::is_usual(&stage.place.state_dir) { String::new() } else { format!(" --state-dir {place}") };
    say(&format!("  windlass demo --end{named}"));
}
