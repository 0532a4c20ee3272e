//! Which variables are not for a team, though BOSH lets every deployment name any of them, to read it or to make it again:
//!
//! | variable | a team may |
//! |---|---|
//! | of a deployment of others: its name begins with the director's name and that of the deployment | nothing |
//! | of a deployment that is not there, unless it was the team's | nothing: others may have had it, or may make it and take what they find for theirs |
//! | that CPI configs, or cloud configs of nobody, name: credentials of clouds | nothing |
//! | that runtime configs of nobody name | name it, because its VMs have the value, and not define it |
//! | any other that a deployment of others was deployed with | name it, and not define it in a way that makes it again |

use std::collections::BTreeSet;

use serde_json::Value;
use windlass_manifest::{Document, placeholders};
use windlass_planning::desired::Findings;
use windlass_planning::names::DeploymentName;
use windlass_planning::records::{ConfigRecord, ReleaseRecord};

use crate::Director;
use crate::store::StoreError;

/// The absolute names of variables in documents of a team.
#[derive(Debug, Default)]
pub(crate) struct Named {
    /// Those whose values it asks for, defines, or signs with.
    all: BTreeSet<String>,
    /// Those that it defines.
    defined: BTreeSet<String>,
    /// Of those, the ones that may be made again.
    remade: BTreeSet<String>,
    /// Whether definitions are converged that do not say otherwise.
    converges: bool,
    /// Definitions that sign with what only the value of another variable names.
    unclear: BTreeSet<String>,
}

impl Named {
    pub(crate) fn in_document(document: &Document) -> Self {
        let text = document.node().to_json();
        let mut named = Self::default();
        named.add_placeholders(&text);
        let converges = text.get("features").and_then(|features| features.get("converge_variables"));
        named.converges = converges == Some(&Value::Bool(true));
        let usual = if named.converges { "converge" } else { "no-overwrite" };
        for definition in text.get("variables").and_then(Value::as_array).into_iter().flatten() {
            let options = definition.get("options").and_then(Value::as_object);
            let signs = options.and_then(|options| options.get("ca")).and_then(Value::as_str);
            named.all.extend(signs.map(str::to_owned));
            let Some(name) = definition.get("name").and_then(Value::as_str) else { continue };
            let is_open = |text: &str| placeholders::in_text(text).next().is_some();
            if signs.is_some_and(is_open) || options.is_some_and(|options| options.keys().any(|key| is_open(key))) {
                named.unclear.insert(name.to_owned());
            }
            named.all.insert(name.to_owned());
            named.defined.insert(name.to_owned());
            let mode = definition.get("update_mode").and_then(Value::as_str).unwrap_or(usual);
            if mode != "no-overwrite" {
                named.remade.insert(name.to_owned());
            }
        }
        for names in [&mut named.all, &mut named.defined, &mut named.remade] {
            names.retain(|name| name.starts_with('/'));
        }
        named
    }

    /// Defaults of jobs, where a manifest says nothing: the author of the release writes them.
    pub(crate) fn add_defaults(&mut self, releases: &[ReleaseRecord]) {
        let specs = releases.iter().flat_map(|release| &release.jobs).map(|job| &job.spec);
        let properties =
            specs.filter_map(|spec| spec.get("properties")?.as_object()).flat_map(|object| object.values());
        for default in properties.filter_map(|property| property.get("default")) {
            self.add_placeholders(default);
        }
        self.all.retain(|name| name.starts_with('/'));
    }

    fn add_placeholders(&mut self, value: &Value) {
        placeholders::each(value, &mut |placeholder| {
            self.all.insert(placeholder.name().to_owned());
        });
    }

    fn extend(&mut self, other: Self) {
        self.all.extend(other.all);
        if self.converges {
            self.remade.extend(other.defined.iter().cloned());
        }
        self.defined.extend(other.defined);
        self.remade.extend(other.remade);
        self.unclear.extend(other.unclear);
    }
}

/// The names in configs that belong to nobody, as they are compared.
#[derive(Debug, Default)]
struct ReservedNames {
    clouds: BTreeSet<String>,
    /// Of what runs on all VMs.
    everywhere: BTreeSet<String>,
}

/// Refuses what is not for a team; who belongs to no team may name any. What comes through links that others share is no business
/// of this.
pub(crate) async fn refuse_those_of_others(
    director: &Director,
    deployment: &DeploymentName,
    teams: &[String],
    mut named: Named,
    configs: &[ConfigRecord],
    findings: &mut Findings,
) -> Result<(), StoreError> {
    if teams.is_empty() {
        return Ok(());
    }
    // The current ones, whichever the deploy was told to use.
    let mut of_nobody = director.store.current_configs("cpi").await?;
    for kind in ["cloud", "runtime"] {
        of_nobody.extend(director.store.current_configs_for(kind, &[]).await?);
    }
    // CredHub takes letters of either case for the same.
    let ignores_case = director.variables.embedded.is_none();
    let compared = |name: &str| if ignores_case { name.to_lowercase() } else { name.to_owned() };
    let names_in = |config: &ConfigRecord| Document::parse(&config.content).ok().map(|it| Named::in_document(&it));
    let read = || {
        let mut reserved = ReservedNames::default();
        for config in &of_nobody {
            let names = names_in(config).unwrap_or_default().all.into_iter().map(|name| compared(&name));
            match config.kind.as_str() {
                "runtime" => reserved.everywhere.extend(names),
                _ => reserved.clouds.extend(names),
            }
        }
        let of_teams = configs.iter().filter(|config| config.team.is_some());
        (reserved, of_teams.filter_map(names_in).collect::<Vec<_>>())
    };
    let (reserved, in_configs) = director.limits.heavily(read).await;
    in_configs.into_iter().for_each(|names| named.extend(names));
    let deployments = if ignores_case { director.store.deployment_names().await? } else { Vec::new() };
    let folder = compared(&format!("/{}/", director.name));
    for name in &named.unclear {
        findings.say(format!(
            "the options of the variable '{name}' must name its 'ca' as it is, without a placeholder: '{deployment}' belongs to a team"
        ));
    }
    let mut known = BTreeSet::new();
    for name in &named.all {
        if findings.is_full() {
            break;
        }
        let same = compared(name);
        if reserved.clouds.contains(&same) {
            findings.say(format!(
                "the variable '{name}' is named by a CPI or cloud config that is for all teams, so '{deployment}' may neither read nor \
                 define it; use another name"
            ));
        } else if named.defined.contains(name) && reserved.everywhere.contains(&same) {
            findings.say(format!(
                "the variable '{name}' is named by a runtime config that is for all teams, so '{deployment}' may not define it; use \
                 its value, or another name"
            ));
        }
        let owner = same.strip_prefix(&folder).and_then(|rest| Some(rest.split_once('/')?.0));
        let Some(owner) = owner else {
            if named.remade.contains(name) && is_used_by_others(director, name, deployment, teams).await? {
                findings.say(format!(
                    "the variable '{name}' is used by a deployment of other teams, so '{deployment}' may not make it again; define it \
                     with 'update_mode: no-overwrite', or use another name"
                ));
            }
            continue;
        };
        if owner == compared(deployment) || !known.insert(owner.to_owned()) {
            continue;
        }
        let all = deployments.iter().filter(|other| compared(other) == owner).cloned();
        let mut owners: Vec<DeploymentName> = all.collect();
        if owners.is_empty() {
            owners.push(owner.into());
        }
        for owner in owners {
            let there = director.store.teams_of(&owner).await?;
            let is_there = there.is_some();
            let theirs = match there {
                Some(theirs) => theirs,
                None => director.store.former_teams(&owner, ignores_case).await?.unwrap_or_default(),
            };
            if theirs.iter().any(|team| teams.contains(team)) {
                continue;
            }
            known.remove(&compared(&owner));
            findings.say(match is_there {
                true => format!(
                    "the variable '{name}' is one of the deployment '{owner}', which belongs to none of the teams of '{deployment}'; \
                     get its value through a link that '{owner}' shares, or have an admin set it under a name that begins otherwise"
                ),
                false => format!(
                    "the variable '{name}' is one of the deployment '{owner}', which does not exist, and which was none of the teams \
                     of '{deployment}'; use a name that begins otherwise"
                ),
            });
        }
    }
    Ok(())
}

/// Why a team cannot have a deployment of this name: it would have values that another one left, or has.
pub(crate) async fn refusal_of_name(
    director: &Director,
    deployment: &DeploymentName,
    teams: &[String],
) -> Result<Option<String>, StoreError> {
    let store = &director.store;
    if teams.is_empty() || store.teams_of(deployment).await?.is_some() {
        return Ok(None);
    }
    let are_others = |theirs: &[String]| !theirs.iter().any(|team| teams.contains(team));
    let ignores_case = director.variables.embedded.is_none();
    if ignores_case {
        let same = |other: &DeploymentName| other.to_lowercase() == deployment.to_lowercase();
        for other in store.deployment_names().await?.into_iter().filter(same) {
            if are_others(&store.teams_of(&other).await?.unwrap_or_default()) {
                return Ok(Some(format!(
                    "the name '{deployment}' means the same to the config server as that of a deployment of other teams; choose another"
                )));
            }
        }
    }
    let leaves_values = match ignores_case {
        // Nobody can ask it what there is.
        true => true,
        false => store.has_values_under(&format!("/{}/{deployment}/", director.name)).await?,
    };
    let former = store.former_teams(deployment, ignores_case).await?;
    Ok(former.filter(|former| leaves_values && are_others(former)).map(|_| {
        format!(
            "the name '{deployment}' was that of a deployment of others, whose variables have their values still; choose another"
        )
    }))
}

async fn is_used_by_others(
    director: &Director,
    name: &str,
    deployment: &DeploymentName,
    teams: &[String],
) -> Result<bool, StoreError> {
    for (user, _) in director.store.deployments_with(name).await? {
        let others = director.store.teams_of(&user).await?.unwrap_or_default();
        if user != *deployment && !others.iter().any(|team| teams.contains(team)) {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use axum::http::{Method, StatusCode};
    use windlass_planning::records::JobRecord;

    use super::*;
    use crate::testing::TestDirector;

    fn release_with(spec: Value) -> ReleaseRecord {
        let text = String::new;
        let (name, version) = ("thief".to_owned(), "1".to_owned());
        let job = JobRecord {
            id: 0,
            name: name.clone(),
            version: text(),
            fingerprint: text(),
            sha1: text(),
            blob: text(),
            spec,
        };
        let (deployments, packages) = (Vec::new(), Vec::new());
        let (jobs, commit_hash) = (vec![job], text());
        ReleaseRecord { id: 0, name, version, commit_hash, uncommitted_changes: false, jobs, packages, deployments }
    }

    #[test]
    fn names_are_found_wherever_they_stand() {
        let text = "variables: [{name: /d/bank/a, type: certificate, options: {ca: /d/bank/ca}}, {name: own, type: rsa}]\n\
            properties: {x: 'a ((/d/bank/b.part)) ((own))', '((/d/bank/key))': [\"\\x28(/d/bank/c))\"]}\n";
        let mut found = Named::in_document(&Document::parse(text).unwrap());
        let spec = serde_json::json!({"properties": {"p": {"default": ["((!/d/bank/default))", "((own))"]}}});
        found.add_defaults(&[release_with(spec)]);
        let expected = ["/d/bank/a", "/d/bank/b", "/d/bank/c", "/d/bank/ca", "/d/bank/default", "/d/bank/key"];
        assert_eq!(found.all.into_iter().collect::<Vec<_>>(), expected);
        assert_eq!(found.defined.into_iter().collect::<Vec<_>>(), ["/d/bank/a"]);
    }

    /// A team reads no password of another one by naming it in a manifest, and makes none again.
    #[tokio::test]
    async fn a_team_names_no_variable_of_anothers_deployment() {
        let test = TestDirector::new().await;
        let director = &test.director;
        for (name, teams) in
            [("bank", vec!["bank".to_owned()]), ("common", vec![]), ("market", vec!["shop".to_owned()])]
        {
            director.store.add_deployment(&name.into(), &teams).await.unwrap();
        }
        let refused = async |user: &str, variable: &str| {
            let manifest = format!("name: stall\nproperties: {{p: (({variable}))}}\n");
            let (status, told) = test.send(Some(user), Method::POST, "/windlass/plan", manifest).await;
            assert_eq!(status, StatusCode::BAD_REQUEST, "{told}");
            told.contains("belongs to none of the teams")
        };
        test.send(Some("admin"), Method::POST, "/cloud_configs", "azs: [{name: z1}]\n").await;
        let at = |rest: &str| format!("/{}/{rest}", director.name);
        assert!(refused("shop-admin", &at("bank/password")).await);
        assert!(refused("shop-admin", &at("common/password")).await);
        for own in [at("market/password"), at("stall/password"), "/any/password".into(), "own".into()] {
            assert!(!refused("shop-admin", &own).await, "{own}");
        }
        assert!(!refused("admin", &at("bank/password")).await);
    }

    /// A deployment with a value of its variable `pw`.
    async fn deployed(test: &TestDirector, name: &str, team: &str) {
        let store = &test.director.store;
        store.add_deployment(&name.into(), &[team.to_owned()]).await.unwrap();
        let value = format!("/{}/{name}/pw", test.director.name);
        test.director.variables.embedded.as_ref().unwrap().set(&value, "secret".into()).await.unwrap();
    }

    /// A team would read what another's deployment left, which the next one of that name uses again, or would choose beforehand what
    /// another's deployment finds there.
    #[tokio::test]
    async fn a_team_names_no_variable_of_a_deployment_that_is_gone_or_not_there_yet() {
        let test = TestDirector::new().await;
        test.send(Some("admin"), Method::POST, "/cloud_configs", "azs: [{name: z1}]\n").await;
        for (name, team) in [("vault", "bank"), ("market", "shop")] {
            deployed(&test, name, team).await;
            test.director.store.remove_deployment(&name.into()).await.unwrap();
        }
        let is_refused = async |user: &str, owner: &str, rest: &str| {
            let manifest = format!("name: stall\n{}\n", rest.replace("VAR", &format!("/test/{owner}/pw")));
            let (_, told) = test.send(Some(user), Method::POST, "/windlass/plan", manifest).await;
            told.contains("which does not exist, and which was none of the teams of 'stall'")
        };
        for rest in ["properties: {p: ((VAR))}", "variables: [{name: VAR, type: password}]"] {
            for (owner, expected) in [("vault", true), ("future", true), ("market", false), ("stall", false)] {
                assert_eq!(is_refused("shop-admin", owner, rest).await, expected, "{owner} {rest}");
            }
            assert!(!is_refused("admin", "vault", rest).await, "{rest}");
        }
    }

    /// A team would have the values that another's deployment left, under their own names.
    #[tokio::test]
    async fn a_team_takes_no_name_under_which_others_left_values() {
        let test = TestDirector::new().await;
        test.send(Some("admin"), Method::POST, "/cloud_configs", "azs: [{name: z1}]\n").await;
        deployed(&test, "vault", "bank").await;
        let store = &test.director.store;
        store.remove_deployment(&"vault".into()).await.unwrap();
        // A task that goes on after a kill removes it again.
        store.remove_deployment(&"vault".into()).await.unwrap();
        let send = async |user: &str, path: &str| test.send(Some(user), Method::POST, path, "name: vault\n").await;
        for path in ["/deployments", "/windlass/plan"] {
            let (status, told) = send("shop-admin", path).await;
            assert_eq!(status, StatusCode::BAD_REQUEST, "{path}: {told}");
            assert!(told.contains("was that of a deployment of others"), "{path}: {told}");
        }
        assert_eq!(send("bank-admin", "/deployments").await.0, StatusCode::FOUND);
        store.remove_deployment(&"vault".into()).await.unwrap();
        assert_eq!(send("shop-admin", "/deployments").await.0, StatusCode::BAD_REQUEST, "the values are there still");
        assert!(test.director.variables.embedded.as_ref().unwrap().remove("/test/vault/pw").await.unwrap());
        assert_eq!(send("shop-admin", "/deployments").await.0, StatusCode::FOUND);
    }

    /// A team would have the credentials of the clouds of all, or put others in their place.
    #[tokio::test]
    async fn a_team_neither_reads_nor_makes_what_clouds_and_all_vms_are_configured_with() {
        let test = TestDirector::new().await;
        let told = async |user: &str, manifest: &str| {
            let manifest = format!("name: stall\n{manifest}\n");
            test.send(Some(user), Method::POST, "/windlass/plan", manifest).await.1
        };
        let cloud = "azs: [{name: z1, cloud_properties: {key: ((/aws/cloud))}}]\n";
        test.send(Some("admin"), Method::POST, "/cloud_configs", cloud).await;
        let cpis = "cpis: [{name: aws, type: aws, exec_path: /bin/true, properties: {key: ((/aws/key))}}]\n";
        let (status, said) = test.send(Some("admin"), Method::POST, "/cpi_configs", cpis).await;
        assert_eq!(status, StatusCode::CREATED, "{said}");
        let runtime = "tags: {t: ((/everywhere))}\n";
        test.send(Some("admin"), Method::POST, "/runtime_configs", runtime).await;
        for name in ["/aws/key", "/aws/cloud"] {
            for manifest in [
                format!("properties: {{p: '(({name}.part))'}}"),
                format!("variables: [{{name: {name}, type: password}}]"),
                format!("variables: [{{name: own, type: certificate, options: {{ca: {name}, common_name: x}}}}]"),
            ] {
                let said = told("shop-admin", &manifest).await;
                assert!(said.contains("may neither read nor define it") && said.contains(name), "{manifest}: {said}");
                assert!(!told("admin", &manifest).await.contains("neither read"), "{manifest}");
            }
        }
        assert!(
            told("shop-admin", "variables: [{name: /everywhere, type: password}]").await.contains("may not define it")
        );
        assert!(!told("shop-admin", "properties: {p: ((/everywhere))}").await.contains("may not define it"));
    }

    /// A team would give others its own password, and know it.
    #[tokio::test]
    async fn a_team_makes_no_value_again_that_others_were_deployed_with() {
        let test = TestDirector::new().await;
        let store = &test.director.store;
        store.add_deployment(&"bank".into(), &["bank".to_owned()]).await.unwrap();
        let set = store.begin_variable_set(&"bank".into(), 1).await.unwrap();
        store.note_versions(set, &std::iter::once(("/common".to_owned(), "7".to_owned())).collect()).await.unwrap();
        store.finish_deployment(&"bank".into(), "name: bank", &[], Some(set)).await.unwrap();
        test.send(Some("admin"), Method::POST, "/cloud_configs", "azs: [{name: z1}]\n").await;
        let told = async |user: &str, rest: &str| {
            let manifest = format!("name: stall\nvariables: [{{name: /common, type: password{rest}\n");
            test.send(Some(user), Method::POST, "/windlass/plan", manifest).await.1
        };
        for rest in
            [", update_mode: overwrite}]", ", update_mode: converge}]", "}]\nfeatures: {converge_variables: true}"]
        {
            let said = told("shop-admin", rest).await;
            assert!(said.contains("may not make it again"), "{rest}: {said}");
            assert!(!told("bank-admin", rest).await.contains("may not make it again"), "{rest}");
        }
        assert!(!told("shop-admin", "}]").await.contains("may not make it again"));
    }
}
