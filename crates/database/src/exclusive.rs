//! A right that one process has at a time, for as long as its connection to PostgreSQL lives.

use std::time::Duration;

use sqlx::any::AnyConnectOptions;
use sqlx::{AnyConnection, Connection};

use crate::{Dialect, OpenError};

/// How often it is looked whether the connection still lives, and how long an answer may take.
const LOOK: Duration = Duration::from_secs(2);
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a server may need to notice that the process before has gone.
const GRACE: Duration = Duration::from_secs(3);
const TRY_AGAIN: Duration = Duration::from_millis(200);

/// The two numbers stand for this program and for the place of its tables, so that others in the same database are left alone.
const TAKE: &str =
    "SELECT CASE WHEN pg_try_advisory_lock(2003395180, hashtext(current_schema()::text)) THEN 1 ELSE 0 END";

/// The right to write to a database of PostgreSQL. The server gives it to somebody else once this process is gone.
#[derive(Debug)]
pub struct Exclusive {
    connection: AnyConnection,
    options: AnyConnectOptions,
}

impl Exclusive {
    /// Takes it; nothing if somebody else has it, also after a while.
    pub async fn take(url: &str) -> Result<Option<Self>, OpenError> {
        sqlx::any::install_default_drivers();
        let taken = async { take(&url.parse()?).await };
        taken.await.map_err(|source| OpenError::Connect { dialect: Dialect::Postgres, source })
    }

    /// Resolves when somebody else has it, because the connection was lost. As long as the database is away, nobody has.
    pub async fn lost(mut self) {
        loop {
            tokio::time::sleep(LOOK).await;
            let alive = tokio::time::timeout(PATIENCE, self.connection.ping()).await;
            if matches!(alive, Ok(Ok(()))) {
                continue;
            }
            match self.again().await {
                Some(again) => self = again,
                None => return,
            }
        }
    }

    async fn again(self) -> Option<Self> {
        tracing::warn!("the connection that shows that this process alone writes was lost; making another one");
        let options = self.options;
        drop(self.connection);
        loop {
            match take(&options).await {
                Ok(again) => return again,
                Err(error) => tracing::warn!(%error, "the database is away"),
            }
            tokio::time::sleep(LOOK).await;
        }
    }
}

async fn take(options: &AnyConnectOptions) -> Result<Option<Exclusive>, sqlx::Error> {
    let mut connection = AnyConnection::connect_with(options).await?;
    let deadline = tokio::time::Instant::now() + GRACE;
    loop {
        let taken: i32 = sqlx::query_scalar(TAKE).fetch_one(&mut connection).await?;
        if taken == 1 {
            return Ok(Some(Exclusive { connection, options: options.clone() }));
        }
        if tokio::time::Instant::now() >= deadline {
            return Ok(None);
        }
        tokio::time::sleep(TRY_AGAIN).await;
    }
}
