//! One director leads a database: two would end each other's tasks and take each other's VMs for dead.
//!
//! On PostgreSQL a lock of the server's says who leads, for as long as the leader's connection lives, and a number keeps out who led before
//! (`database/src/lead.rs`); others may stand by (`standby`). Beside a file of SQLite it is a lock of the machine's, and a
//! second director is refused. Who takes over must have the CA that the agents trust, so its digest is on record.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use windlass_database::{HeldLead, Lead, OpenError};
use windlass_durable::lock::FileLock;
use windlass_pki::Authority;

use crate::standby::CannotStandBy;
use crate::store::{Store, StoreError};

/// Where digests of the CAs are kept.
const AUTHORITIES: &str = "certificate_authorities";

/// why a director may not use a database
#[derive(Debug, thiserror::Error)]
pub enum LeadershipError {
    /// another one uses the file
    #[error(
        "another director uses this database; stop it, or give this one a database of its own (db in director.yml)"
    )]
    InUse,
    /// another one leads, and this one cannot stand by
    #[error("{leader} leads this database, and this one cannot stand by; stop it, or give this one another db")]
    Taken {
        leader: String,
        /// Why this one cannot stand by.
        #[source]
        why: CannotStandBy,
    },
    /// others could not take over
    #[error("with shared_dir others must be able to take over, which they cannot with {0}")]
    Unshared(&'static str),
    /// the folder is another director's
    #[error("shared_dir belongs to the director of another database, as {} says", .0.display())]
    SharedWithStrangers(PathBuf),
    /// the agents trust somebody else
    #[error(
        "the director of this database had another CA, which its agents trust: use its state directory, or copy its folder pki to {}. \
         If that CA is lost for good, delete the row '{AUTHORITIES}' of the table attributes; all VMs must be recreated then", pki.display()
    )]
    OtherAuthority {
        /// Where this one has its own.
        pki: PathBuf,
    },
    /// the database cannot be reached
    #[error("cannot open the director's database")]
    Database(#[from] OpenError),
    /// nobody can tell who leads
    #[error("cannot lock {}", path.display())]
    Lock {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// the records cannot be read
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Held by the director that leads.
#[derive(Debug)]
pub(crate) struct Leadership {
    lead: Arc<Lead>,
    _file: Option<FileLock>,
    _held: Option<HeldLead>,
}

impl Leadership {
    /// Takes the lead of the database at `url`, before anything is written there; nothing if another director leads.
    pub(crate) async fn take(url: &str) -> Result<Option<Self>, LeadershipError> {
        if let Some(path) = url.strip_prefix("sqlite:") {
            let path = PathBuf::from(format!("{path}.lock"));
            let lock = FileLock::acquire_unless_kept(&path);
            let lock = lock.map_err(|source| LeadershipError::Lock { path, source })?.ok_or(LeadershipError::InUse)?;
            return Ok(Some(Self { lead: Lead::for_good(), _file: Some(lock), _held: None }));
        }
        if !url.starts_with("postgres") {
            // Opening it fails later, and that error names the URL.
            return Ok(Some(Self { lead: Lead::for_good(), _file: None, _held: None }));
        }
        let held = HeldLead::take(url).await?;
        Ok(held.map(|held| Self { lead: held.lead().clone(), _file: None, _held: Some(held) }))
    }

    /// What is known of it.
    pub(crate) fn lead(&self) -> &Arc<Lead> {
        &self.lead
    }

    /// Resolves when another director leads; never, where that cannot be.
    pub(crate) fn lost(&self) -> impl Future<Output = ()> + use<> {
        let lead = self.lead.clone();
        async move { lead.lost().await }
    }
}

/// Whether one of our CAs is one that the agents of this database trust; from now on ours are on record.
pub(crate) async fn must_be_trusted(store: &Store, ours: &Authority, pki: &Path) -> Result<(), LeadershipError> {
    let ours = ours.digests();
    let known = store.attribute(AUTHORITIES, || ours.join(" ")).await?;
    let known: BTreeSet<&str> = known.split(' ').collect();
    if !ours.iter().any(|digest| known.contains(digest.as_str())) {
        return Err(LeadershipError::OtherAuthority { pki: pki.to_owned() });
    }
    Ok(note_authorities(store, &ours).await?)
}

/// CAs change while a director runs.
pub(crate) async fn note_authorities(store: &Store, digests: &[String]) -> Result<(), StoreError> {
    let ours = digests.join(" ");
    match store.attribute(AUTHORITIES, || ours.clone()).await? == ours {
        true => Ok(()),
        false => store.set_attribute(AUTHORITIES, &ours).await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_contract::Secret;
    use windlass_cpi_client::{CpiCommand, Environment};
    use windlass_database::PrivatePostgres;

    use crate::settings::{CpiChoice, Settings};
    use crate::{DirectorOptions, Running, StartError, start};

    async fn start_on(state_dir: &Path, database: &str) -> Result<Running, StartError> {
        let settings = Settings {
            listen: ([127, 0, 0, 1], 0).into(),
            db: Some(Secret::new(database.to_owned())),
            cpi: CpiChoice::Sim { config: None },
            ..Settings::default()
        };
        let own_cpi =
            CpiCommand { executable: "/bin/false".into(), arguments: Vec::new(), environment: Environment::Director };
        let options = DirectorOptions { state_dir: state_dir.to_owned(), settings, own_cpi };
        Ok(start(options, std::future::pending()).await?.unwrap())
    }

    async fn one_leads(database: &str) {
        let folder = tempfile::tempdir().unwrap();
        let (first, second) = (folder.path().join("first"), folder.path().join("second"));
        let running = start_on(&first, database).await.unwrap();
        let refused = start_on(&second, database).await.unwrap_err();
        let taken = |error| matches!(error, &LeadershipError::InUse | &LeadershipError::Taken { .. });
        assert!(matches!(&refused, StartError::Leadership(error) if taken(error)), "{refused}");
        running.stop(std::future::pending()).await;
        let refused = start_on(&second, database).await.unwrap_err();
        assert!(matches!(refused, StartError::Leadership(LeadershipError::OtherAuthority { .. })), "{refused}");
        assert!(refused.to_string().contains(&second.join("pki").display().to_string()), "{refused}");
        start_on(&first, database).await.unwrap().stop(std::future::pending()).await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_second_director_on_one_postgres_is_refused_and_so_is_one_with_another_ca() {
        one_leads(&PrivatePostgres::start().unwrap().url()).await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_second_director_on_one_sqlite_file_is_refused_and_so_is_one_with_another_ca() {
        let folder = tempfile::tempdir().unwrap();
        one_leads(&format!("sqlite:{}", folder.path().join("shared.db").display())).await;
    }

    async fn until_somebody_leads(store: &Store) {
        while !store.is_led().await {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_director_leads_on_when_postgres_was_restarted() {
        let mut server = PrivatePostgres::start().unwrap();
        let store = Store::open(&server.url()).await.unwrap();
        let leads = Leadership::take(&server.url()).await.unwrap().unwrap();
        server.stop().unwrap();
        server.start_again().unwrap();
        until_somebody_leads(&store).await;
        assert!(Leadership::take(&server.url()).await.unwrap().is_none());
        drop(leads);
        Leadership::take(&server.url()).await.unwrap().unwrap();
        store.close().await;
    }

    /// It may have been frozen, and not have heard of it.
    #[tokio::test(flavor = "multi_thread")]
    async fn who_led_before_writes_nothing_more_and_hears_of_it() {
        let server = PrivatePostgres::start().unwrap();
        let store = || async { Store::open(&server.url()).await.unwrap() };
        let leads = Leadership::take(&server.url()).await.unwrap().unwrap();
        let hour = std::time::Duration::from_secs(3600);
        let before = store().await.led(leads.lead(), "https://before", hour).await.unwrap();
        before.set_attribute("a", "before").await.unwrap();
        // Somebody who has the lock without having waited for it: the number alone must do.
        let after = store().await.led(&Lead::for_good(), "https://after", hour).await.unwrap();
        after.set_attribute("a", "after").await.unwrap();
        assert!(!leads.lead().is_lost());
        let refused = before.set_attribute("a", "before").await.unwrap_err();
        assert!(windlass_contract::explain(&refused).contains("another director took over"), "{refused:?}");
        before.add_deployment(&"d".into(), &[]).await.unwrap_err();
        before.try_writing().await.unwrap_err();
        tokio::time::timeout(hour, leads.lost()).await.unwrap();
        assert_eq!(after.attribute("a", String::new).await.unwrap(), "after");
        assert!(after.deployment_names().await.unwrap().is_empty());
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_director_hears_that_another_one_took_over() {
        let mut server = PrivatePostgres::start().unwrap();
        let leads = Leadership::take(&server.url()).await.unwrap().unwrap();
        server.stop().unwrap();
        server.start_again().unwrap();
        let _other = Leadership::take(&server.url()).await.unwrap().unwrap();
        let patience = std::time::Duration::from_secs(60);
        tokio::time::timeout(patience, leads.lost()).await.unwrap();
    }
}
