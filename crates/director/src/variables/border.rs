//! Which variables are not for a team: those of deployments that belong to others. Their names begin with the director's name and
//! that of the deployment, and BOSH lets whoever deploys name any of them, to read it or to make it again.

use std::collections::BTreeSet;

use serde_json::Value;
use windlass_manifest::{Document, placeholders};
use windlass_planning::desired::Findings;
use windlass_planning::records::ConfigRecord;

use crate::Director;
use crate::store::StoreError;

/// The absolute names of variables in a document of a team: those whose values it asks for, defines, or signs with.
pub(crate) fn named_in(document: &Document) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let text = document.node().to_json();
    placeholders::each(&text, &mut |placeholder| {
        names.insert(placeholder.name().to_owned());
    });
    for definition in text.get("variables").and_then(Value::as_array).into_iter().flatten() {
        let signs = definition.get("options").and_then(|options| options.get("ca"));
        let both = [definition.get("name"), signs].into_iter().flatten();
        names.extend(both.filter_map(Value::as_str).map(str::to_owned));
    }
    names.retain(|name| name.starts_with('/'));
    names
}

/// Refuses variables of deployments that belong to none of these teams; who belongs to no team may name any. What comes through
/// links that others share is no business of this.
pub(crate) async fn refuse_those_of_others(
    director: &Director,
    deployment: &str,
    teams: &[String],
    named: BTreeSet<String>,
    configs: &[ConfigRecord],
    findings: &mut Findings,
) -> Result<(), StoreError> {
    if teams.is_empty() {
        return Ok(());
    }
    let of_teams = configs.iter().filter(|config| config.team.is_some());
    let read =
        || of_teams.filter_map(|config| Document::parse(&config.content).ok()).flat_map(|it| named_in(&it)).collect();
    let in_configs: Vec<String> = director.limits.heavily(read).await;
    let folder = format!("/{}/", director.name);
    let mut known = BTreeSet::new();
    for name in named.into_iter().chain(in_configs) {
        let owner = name.strip_prefix(&folder).and_then(|rest| Some(rest.split_once('/')?.0));
        let Some(owner) = owner.filter(|owner| *owner != deployment && !known.contains(*owner)) else { continue };
        let owners = director.store.teams_of(owner).await?;
        // Of a deployment that is gone, whoever makes the next one of that name has the values.
        if owners.is_none_or(|owners| owners.iter().any(|team| teams.contains(team))) {
            known.insert(owner.to_owned());
            continue;
        }
        findings.say(format!(
            "the variable '{name}' is one of the deployment '{owner}', which belongs to none of the teams of '{deployment}'; get \
             its value through a link that '{owner}' shares, or have an admin set it under a name that begins otherwise"
        ));
        if findings.is_full() {
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use axum::http::{Method, StatusCode};

    use super::*;
    use crate::testing::TestDirector;

    #[test]
    fn names_are_found_wherever_they_stand() {
        let text = "variables: [{name: /d/bank/a, type: certificate, options: {ca: /d/bank/ca}}, {name: own, type: rsa}]\n\
            properties: {x: 'a ((/d/bank/b.part)) ((own))', '((/d/bank/key))': [\"\\x28(/d/bank/c))\"]}\n";
        let found = named_in(&Document::parse(text).unwrap());
        let expected = ["/d/bank/a", "/d/bank/b", "/d/bank/c", "/d/bank/ca", "/d/bank/key"];
        assert_eq!(found.into_iter().collect::<Vec<_>>(), expected);
    }

    /// A team reads no password of another one by naming it in a manifest, and makes none again.
    #[tokio::test]
    async fn a_team_names_no_variable_of_anothers_deployment() {
        let test = TestDirector::new().await;
        let director = &test.director;
        for (name, teams) in
            [("bank", vec!["bank".to_owned()]), ("common", vec![]), ("market", vec!["shop".to_owned()])]
        {
            director.store.add_deployment(name, &teams).await.unwrap();
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
        for own in
            [at("market/password"), at("stall/password"), at("gone/password"), "/any/password".into(), "own".into()]
        {
            assert!(!refused("shop-admin", &own).await, "{own}");
        }
        assert!(!refused("admin", &at("bank/password")).await);
    }
}
