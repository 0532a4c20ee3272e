//! A director that another one leads before: it waits, says who leads, and takes over when that one is gone.
//!
//! It can only take over what it can reach: the database, the clouds, and what directors keep in files. So the clouds must not be on
//! one machine, and the files are in a folder that both see (`shared_dir`), which is marked with the director's uuid.

use std::net::TcpListener;
use std::path::PathBuf;
use std::time::Duration;

use tokio::sync::watch;
use windlass_contract::explain;
use windlass_database::{Leader, leader_of};
use windlass_durable::file;
use windlass_durable::host::Host;
use windlass_pki::Authority;

use crate::api;
use crate::leadership::{Leadership, LeadershipError};
use crate::server_tls::{self, LiveCertificate};
use crate::settings::{CpiChoice, Settings};
use crate::start::{StartError, server_names, until};
use crate::state_dir::StateDir;
use crate::variables::vault;

/// How often a database is tried that is away.
const TRY_AGAIN: Duration = Duration::from_secs(1);

/// Why a director cannot stand by.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CannotStandBy {
    /// what it would need is not where it can see it
    #[error("name a folder that both see with shared_dir in director.yml of both")]
    NothingShared,
    /// the folder is not the leader's
    #[error("the folder {} is not the one that the other director uses as shared_dir", .0.display())]
    OtherFolder(PathBuf),
    /// values of variables would be closed to it
    #[error(
        "it does not have the key of variables with the fingerprint {0}; name the same one with variables.key in director.yml of both"
    )]
    OtherKey(String),
    /// pids would be mistaken
    #[error("its machine has the same name and machine-id as this one; give one of them others")]
    SameName,
}

/// Refuses settings under which nobody could ever take over.
pub(crate) fn check(settings: &Settings) -> Result<(), LeadershipError> {
    let Some(_) = settings.shared_dir else { return Ok(()) };
    if matches!(settings.cpi, CpiChoice::Local { .. }) {
        return Err(LeadershipError::Unshared("cpi: local, whose VMs are on one machine"));
    }
    match &settings.db {
        Some(url) if url.reveal().starts_with("postgres") => Ok(()),
        _ => {
            Err(LeadershipError::Unshared("the embedded database, which is on one machine; name a PostgreSQL with db"))
        }
    }
}

/// Notes whose folder this is; refuses that of another director.
pub(crate) fn mark(folders: &StateDir, uuid: &str) -> Result<(), LeadershipError> {
    let path = folders.owner();
    match std::fs::read_to_string(&path) {
        Ok(owner) if owner.trim() == uuid => Ok(()),
        Ok(_) => Err(LeadershipError::SharedWithStrangers(path)),
        Err(_) => {
            file::write(&path, uuid.as_bytes(), file::PRIVATE).map_err(|source| LeadershipError::Lock { path, source })
        }
    }
}

/// Waits until the director that leads is gone, and takes over.
pub(crate) async fn stand_by(
    url: &str,
    folders: &StateDir,
    settings: &Settings,
    listener: &TcpListener,
) -> Result<Leadership, StartError> {
    let leader = leader_of(url).await.ok().flatten();
    possible(url, folders, settings, leader.as_ref())
        .await
        .map_err(|why| LeadershipError::Taken { leader: describe(leader.as_ref()), why })?;
    let failed = |error: Box<dyn std::error::Error + Send + Sync>| StartError::Tls(error);
    let authority = Authority::open(&folders.pki())?;
    let server = authority.director_server(&folders.own_pki(), &server_names(settings))?;
    let server = server_tls::shown(settings.tls.as_ref(), server).map_err(|error| failed(error.into()))?;
    let live = std::sync::Arc::new(LiveCertificate::new(&server).map_err(|error| failed(error.into()))?);
    let tls = server_tls::server_config(live).map_err(|error| failed(error.into()))?;
    let (tell, why) = watch::channel(says(leader.as_ref()));
    let (stop, stopped) = watch::channel(false);
    let listening = |source| StartError::Listen { address: settings.listen, source };
    let own = listener.try_clone().and_then(tokio::net::TcpListener::from_std).map_err(listening)?;
    let serving = tokio::spawn(api::serve_standby(own, tls, why, until(stopped)));
    let listens = listener.local_addr().map_err(listening)?;
    tracing::warn!(leader = describe(leader.as_ref()), %listens, "another director leads; this one stands by");
    let leadership = take_over(url, &tell).await;
    tracing::warn!("the director that led is gone; this one takes over");
    let _ = stop.send(true);
    let _ = serving.await;
    Ok(leadership)
}

async fn take_over(url: &str, tell: &watch::Sender<String>) -> Leadership {
    loop {
        match Leadership::take(url).await {
            Ok(Some(leadership)) => return leadership,
            Ok(None) => {
                if let Ok(leader) = leader_of(url).await {
                    tell.send_replace(says(leader.as_ref()));
                }
            }
            Err(error) => {
                tracing::warn!(error = explain(&error), "cannot see who leads");
                tokio::time::sleep(TRY_AGAIN).await;
            }
        }
    }
}

async fn possible(
    url: &str,
    folders: &StateDir,
    settings: &Settings,
    leader: Option<&Leader>,
) -> Result<(), CannotStandBy> {
    let Some(shared) = &settings.shared_dir else { return Err(CannotStandBy::NothingShared) };
    let (here, there) = (Host::here(), leader.and_then(host));
    if there.is_some_and(|there| here.has_same_name(&there) && !here.has_same_pids(&there)) {
        return Err(CannotStandBy::SameName);
    }
    let owner = std::fs::read_to_string(folders.owner()).unwrap_or_default();
    let uuid = crate::store::uuid_in(url).await.ok().flatten();
    match uuid {
        Some(uuid) if uuid == owner.trim() => must_have_key(url, folders, settings).await,
        _ => Err(CannotStandBy::OtherFolder(shared.clone())),
    }
}

/// Better now than when it takes over.
async fn must_have_key(url: &str, folders: &StateDir, settings: &Settings) -> Result<(), CannotStandBy> {
    match crate::store::key_fingerprint_in(url).await.ok().flatten() {
        Some(fingerprint) if !vault::has_key(&settings.variables, folders, &fingerprint).await => {
            Err(CannotStandBy::OtherKey(fingerprint))
        }
        _ => Ok(()),
    }
}

fn host(leader: &Leader) -> Option<Host> {
    serde_json::from_str(&leader.host).ok()
}

fn describe(leader: Option<&Leader>) -> String {
    match leader.and_then(|leader| Some((leader, host(leader)?))) {
        Some((leader, host)) => format!("the director at {} on {}", leader.address, host.name),
        None => "another director".to_owned(),
    }
}

fn says(leader: Option<&Leader>) -> String {
    let leader = describe(leader);
    format!("this director stands by: {leader} leads. Ask that one; this one takes over when it is gone")
}

#[cfg(test)]
mod tests {
    use windlass_contract::Secret;

    use super::*;

    #[test]
    fn what_is_on_one_machine_is_refused_where_others_could_take_over() {
        let postgres = Some(Secret::new("postgres://there".to_owned()));
        let shared = |cpi: &str, db: &Option<Secret>| Settings {
            shared_dir: Some("/shared".into()),
            cpi: CpiChoice::named(cpi, None, Vec::new()),
            db: db.clone(),
            ..Settings::default()
        };
        check(&shared("/opt/cpi", &postgres)).unwrap();
        check(&Settings::default()).unwrap();
        let said = |settings| check(&settings).unwrap_err().to_string();
        assert!(said(shared("local", &postgres)).contains("cpi: local"));
        assert!(said(shared("/opt/cpi", &None)).contains("name a PostgreSQL"));
    }

    #[tokio::test]
    async fn a_director_without_the_key_of_variables_does_not_stand_by() {
        let folder = tempfile::tempdir().unwrap();
        let folders = StateDir::open(&folder.path().join("state")).unwrap();
        let url = format!("sqlite:{}", folders.database().display());
        let settings = Settings::default();
        let store = crate::store::Store::open(&url).await.unwrap();
        vault::open(&store, &settings.variables, &folders).await.unwrap();
        assert_eq!(must_have_key(&url, &folders, &settings).await, Ok(()));
        std::fs::remove_file(folders.variables_key()).unwrap();
        let refused = must_have_key(&url, &folders, &settings).await.unwrap_err();
        let fingerprint = store.variables_key().await.unwrap().unwrap().fingerprint;
        assert_eq!(refused, CannotStandBy::OtherKey(fingerprint));
    }

    #[test]
    fn a_folder_of_another_director_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let folders = StateDir::open(&folder.path().join("state")).unwrap();
        mark(&folders, "ours").unwrap();
        mark(&folders, "ours").unwrap();
        let refused = mark(&folders, "another").unwrap_err().to_string();
        assert!(refused.contains("director.uuid"), "{refused}");
    }
}
