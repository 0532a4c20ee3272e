//! What one team may have. Every deployment and instance costs all others something: lists, looks of the resurrector, names in DNS,
//! addresses. Who belongs to no team has no limit, and what is there already stays.

use windlass_planning::names::DeploymentName;

use crate::Director;
use crate::store::StoreError;

/// Why these teams cannot have another deployment; none if they can.
pub(crate) async fn refusal_of_deployment(director: &Director, teams: &[String]) -> Result<Option<String>, StoreError> {
    let most = director.settings.team_limits.deployments;
    for team in teams {
        let there = director.store.deployments_of_team(team).await?;
        if there >= most {
            return Ok(Some(format!(
                "the team '{team}' has {there} deployments, and {most} are the most; delete some, or have an admin raise \
                 'team_limits.deployments' in director.yml"
            )));
        }
    }
    Ok(None)
}

/// Why a deployment of these teams cannot have so many instances; none if it can, or if it has as many already.
pub(crate) async fn refusal_of_instances(
    director: &Director,
    deployment: &DeploymentName,
    teams: &[String],
    (before, after): (usize, usize),
) -> Result<Option<String>, StoreError> {
    let most = director.settings.team_limits.instances;
    if after <= before {
        return Ok(None);
    }
    for team in teams {
        let others = director.store.instances_of_team(team, deployment).await?;
        if others + after > most {
            return Ok(Some(format!(
                "'{deployment}' would have {after} instances, and the other deployments of the team '{team}' have {others}; {most} \
                 together are the most; make it smaller, or have an admin raise 'team_limits.instances' in director.yml"
            )));
        }
    }
    Ok(None)
}

/// How many bytes may be on record of what a team has: of five thousand instances there are forty megabytes. The director's disk is for
/// all teams, and what instances leave stays on it for days.
const MOST_ON_RECORD: u64 = 512 << 20;

/// Why nothing new is deployed for these teams; none if it can be.
pub(crate) async fn refusal_of_records(director: &Director, teams: &[String]) -> Result<Option<String>, StoreError> {
    for team in teams {
        let there = director.store.bytes_of_team(team).await?;
        if there > MOST_ON_RECORD {
            return Ok(Some(format!(
                "what is on record of the deployments of the team '{team}', and of the disks that they left, has {} MiB, and {} are the most; \
                 delete deployments, or have an admin delete orphaned disks",
                there >> 20,
                MOST_ON_RECORD >> 20
            )));
        }
    }
    Ok(None)
}

/// How many versions of releases a deployment of a team may use. Lists of all deployments name those of each.
const MOST_RELEASES: usize = 300;

/// Why a deployment of these teams cannot use so many versions of releases; none if it can.
pub(crate) fn refusal_of_releases(deployment: &DeploymentName, teams: &[String], releases: usize) -> Option<String> {
    (!teams.is_empty() && releases > MOST_RELEASES).then(|| {
        format!("'{deployment}' would use {releases} releases, and {MOST_RELEASES} are the most for a team; name those that its jobs are of")
    })
}

#[cfg(test)]
mod tests {
    use axum::http::{Method, StatusCode};
    use windlass_operations::testing::new_instance_record;
    use windlass_planning::records::InstanceRecord;

    use super::*;
    use crate::settings::TeamLimits;
    use crate::testing::TestDirector;

    async fn director() -> TestDirector {
        let limits = TeamLimits { deployments: 2, instances: 5 };
        TestDirector::with(|settings| settings.team_limits = limits).await
    }

    /// A team would fill everybody's lists with deployments that need not even succeed.
    #[tokio::test]
    async fn a_team_makes_only_so_many_deployments_and_others_make_theirs() {
        let test = director().await;
        let deploy = async |user: &str, name: &str| {
            test.send(Some(user), Method::POST, "/deployments", format!("name: {name}\n")).await
        };
        for name in ["a", "b"] {
            assert_eq!(deploy("shop-admin", name).await.0, StatusCode::FOUND);
        }
        let (status, said) = deploy("shop-admin", "c").await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{said}");
        assert!(said.contains("'shop' has 2 deployments, and 2 are the most"), "{said}");
        assert!(test.director.store.teams_of(&"c".into()).await.unwrap().is_none());
        assert_eq!(deploy("shop-admin", "b").await.0, StatusCode::FOUND, "what is there is deployed again");
        assert_eq!(deploy("bank-admin", "c").await.0, StatusCode::FOUND);
        for name in ["d", "e", "f"] {
            assert_eq!(deploy("admin", name).await.0, StatusCode::FOUND, "who belongs to no team has no limit");
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_team_makes_no_more_deployments_at_once_than_one_after_the_other() {
        let test = director().await;
        let deploys = (0..8).map(async |number| {
            test.send(Some("shop-admin"), Method::POST, "/deployments", format!("name: at-once-{number}\n")).await.0
        });
        let answers = futures_util::future::join_all(deploys).await;
        assert_eq!(answers.iter().filter(|status| **status == StatusCode::FOUND).count(), 2, "{answers:?}");
        assert_eq!(test.director.store.deployments_of_team("shop").await.unwrap(), 2);
    }

    #[tokio::test]
    async fn the_deployments_of_a_team_have_only_so_many_instances_together() {
        let test = director().await;
        let store = &test.director.store;
        let instance = |number: i64| InstanceRecord {
            index: number,
            bootstrap: false,
            ..new_instance_record("a", "g", format!("i{number}"))
        };
        store.add_deployment(&"a".into(), &["shop".to_owned()]).await.unwrap();
        store.begin_instances(&(0..3).map(instance).collect::<Vec<_>>(), &[]).await.unwrap();
        let told = async |deployment: &DeploymentName, team: &str, numbers: (usize, usize)| {
            refusal_of_instances(&test.director, deployment, &[team.to_owned()], numbers).await.unwrap()
        };
        assert_eq!(told(&"b".into(), "shop", (0, 2)).await, None);
        let said = told(&"b".into(), "shop", (0, 3)).await.unwrap();
        assert!(said.contains("'b' would have 3 instances") && said.contains("have 3; 5 together"), "{said}");
        assert_eq!(told(&"b".into(), "shop", (3, 3)).await, None, "what is there stays");
        assert_eq!(told(&"a".into(), "shop", (3, 5)).await, None);
        assert!(told(&"a".into(), "shop", (3, 6)).await.is_some());
        assert_eq!(told(&"b".into(), "bank", (0, 5)).await, None);
    }

    /// A team that deployed and deleted in turns filled the disk with what its disks had been, and nobody could deploy any more.
    #[tokio::test]
    async fn a_team_has_only_so_much_on_record_and_what_its_disks_leave_counts() {
        use windlass_operations::ledger::{Fact, Ledger};
        let test = director().await;
        let store = &test.director.store;
        store.add_deployment(&"a".into(), &["shop".to_owned()]).await.unwrap();
        store.begin_instances(&[new_instance_record("a", "g", "1f")], &[]).await.unwrap();
        let before = store.bytes_of_team("shop").await.unwrap();
        store
            .tamper(
                "INSERT INTO disks (cid, instance, name, cpi, size, cloud_properties, active, mounted, created_at)
                 VALUES ('disk', '1f', '', '', 1, '{}' || printf('%1000000s', ''), 1, 0, 0)",
            )
            .await;
        let with_disk = store.bytes_of_team("shop").await.unwrap();
        assert_eq!(with_disk - before, 1_000_002);
        let orphaned = Fact::DiskOrphaned { disk: windlass_contract::DiskCid::new("disk").unwrap() };
        store.record(&orphaned).await.unwrap();
        assert_eq!(store.bytes_of_team("shop").await.unwrap(), with_disk);
        assert_eq!(refusal_of_records(&test.director, &["shop".to_owned()]).await.unwrap(), None);
        store.tamper("UPDATE orphan_disks SET cloud_properties = cloud_properties || printf('%540000000s', '')").await;
        let said = refusal_of_records(&test.director, &["shop".to_owned()]).await.unwrap().unwrap();
        assert!(said.contains("'shop', and of the disks that they left, has 515 MiB, and 512 are the most"), "{said}");
        assert_eq!(refusal_of_records(&test.director, &["bank".to_owned()]).await.unwrap(), None);
        store.record(&Fact::DiskDeleted { disk: windlass_contract::DiskCid::new("disk").unwrap() }).await.unwrap();
        assert_eq!(store.bytes_of_team("shop").await.unwrap(), before);
    }

    /// Five hundred deployments that each name two thousand releases made every list of deployments a hundred megabytes.
    #[test]
    fn a_deployment_of_a_team_uses_only_so_many_releases() {
        let (shop, teams) = (DeploymentName::from("shop"), ["shop".to_owned()]);
        assert_eq!(refusal_of_releases(&shop, &teams, MOST_RELEASES), None);
        assert_eq!(refusal_of_releases(&shop, &[], MOST_RELEASES + 1), None);
        let told = refusal_of_releases(&shop, &teams, MOST_RELEASES + 1).unwrap();
        assert!(told.contains("301 releases, and 300 are the most"), "{told}");
    }
}
