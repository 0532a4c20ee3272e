//! One director per database: two would end each other's tasks and take each other's VMs for dead.
//!
//! On PostgreSQL a lock of the server's says who leads, for as long as the leader's connection lives; beside a file of SQLite it is a
//! lock of the machine's. Who takes over must have the CA that the agents trust, so its digest is on record.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use tokio::sync::watch;
use windlass_database::{Exclusive, OpenError};
use windlass_durable::lock::FileLock;
use windlass_pki::Authority;

use crate::store::{Store, StoreError};

/// Where digests of the CAs are kept.
const AUTHORITIES: &str = "certificate_authorities";

/// why a director may not use a database
#[derive(Debug, thiserror::Error)]
pub enum LeadershipError {
    /// another one leads
    #[error(
        "another director uses this database; stop it, or give this one a database of its own (db in director.yml)"
    )]
    Taken,
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
        /// Which file.
        path: PathBuf,
        /// Why.
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
    lost: watch::Receiver<bool>,
    _file: Option<FileLock>,
    watching: Option<tokio::task::JoinHandle<()>>,
}

impl Leadership {
    /// Takes the lead of the database at `url`, before anything is written there.
    pub(crate) async fn take(url: &str) -> Result<Self, LeadershipError> {
        let (told, lost) = watch::channel(false);
        if let Some(path) = url.strip_prefix("sqlite:") {
            let path = PathBuf::from(format!("{path}.lock"));
            let lock = FileLock::try_acquire(&path);
            let lock = lock.map_err(|source| LeadershipError::Lock { path, source })?.ok_or(LeadershipError::Taken)?;
            return Ok(Self { lost, _file: Some(lock), watching: None });
        }
        if !url.starts_with("postgres") {
            // What this is will be told by whoever opens it.
            return Ok(Self { lost, _file: None, watching: None });
        }
        let exclusive = Exclusive::take(url).await?.ok_or(LeadershipError::Taken)?;
        let watching = tokio::spawn(async move {
            exclusive.lost().await;
            let _ = told.send(true);
        });
        Ok(Self { lost, _file: None, watching: Some(watching) })
    }

    /// Resolves when another director leads; never, where that cannot be.
    pub(crate) fn lost(&self) -> impl Future<Output = ()> + use<> {
        let mut lost = self.lost.clone();
        async move {
            if lost.wait_for(|lost| *lost).await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }
}

impl Drop for Leadership {
    fn drop(&mut self) {
        if let Some(watching) = &self.watching {
            // Its connection ends with it, and with that the lead.
            watching.abort();
        }
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
        start(DirectorOptions { state_dir: state_dir.to_owned(), settings, own_cpi }).await
    }

    async fn one_leads(database: &str) {
        let folder = tempfile::tempdir().unwrap();
        let (first, second) = (folder.path().join("first"), folder.path().join("second"));
        let running = start_on(&first, database).await.unwrap();
        let refused = start_on(&second, database).await.unwrap_err();
        assert!(matches!(refused, StartError::Leadership(LeadershipError::Taken)), "{refused}");
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
        let leads = Leadership::take(&server.url()).await.unwrap();
        server.stop().unwrap();
        server.start_again().unwrap();
        until_somebody_leads(&store).await;
        assert!(matches!(Leadership::take(&server.url()).await, Err(LeadershipError::Taken)));
        drop(leads);
        Leadership::take(&server.url()).await.unwrap();
        store.close().await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_director_hears_that_another_one_took_over() {
        let mut server = PrivatePostgres::start().unwrap();
        let leads = Leadership::take(&server.url()).await.unwrap();
        server.stop().unwrap();
        server.start_again().unwrap();
        let _other = Leadership::take(&server.url()).await.unwrap();
        let patience = std::time::Duration::from_secs(60);
        tokio::time::timeout(patience, leads.lost()).await.unwrap();
    }
}
