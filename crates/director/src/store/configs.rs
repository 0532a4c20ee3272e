//! Configs: many versions are kept; the latest of a type and name that is not deleted is the current one.

use windlass_database::Transaction;
use windlass_database::sqlx::any::AnyRow;
use windlass_database::sqlx::{self, AssertSqlSafe, Row};
use windlass_operations::clock;
use windlass_planning::records::ConfigRecord;

use super::{Store, StoreError};
use crate::limits::{CONFIG_BYTES_OF_A_TEAM, CONFIGS_OF_A_TEAM, OLD_CONFIG_BYTES_OF_A_TEAM};

/// A version without its content, which may be large.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ConfigLabel {
    pub(crate) id: i64,
    pub(crate) kind: String,
    pub(crate) name: String,
    /// The team that it belongs to.
    pub(crate) team: Option<String>,
    /// How many letters its content has.
    pub(crate) length: i64,
}

impl ConfigLabel {
    /// Whether deployments of these teams use it.
    pub(crate) fn is_for(&self, teams: &[String]) -> bool {
        self.team.as_ref().is_none_or(|team| teams.contains(team))
    }
}

/// What became of a config that was to be added.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AddConfig {
    /// This is the current version: the one just added, or one that says the same.
    Current(ConfigRecord),
    /// Another version is the current one than the one that was expected; nothing was added.
    Unexpected {
        /// The current one, 0 for none.
        latest: i64,
    },
    /// The current one belongs to somebody else; nothing was added.
    OfOthers(ConfigRecord),
    /// The team has so much already that this would be too much; nothing was added.
    TooMuch(String),
}

/// A version to be added.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NewConfig<'a> {
    pub(crate) kind: &'a str,
    pub(crate) name: &'a str,
    pub(crate) content: &'a str,
    /// The id that the current version must have, 0 for none.
    pub(crate) expected: Option<i64>,
    /// The team that it belongs to.
    pub(crate) team: Option<&'a str>,
}

impl<'a> NewConfig<'a> {
    /// Of no team, whatever the current version is.
    pub(crate) fn new(kind: &'a str, name: &'a str, content: &'a str) -> Self {
        Self { kind, name, content, expected: None, team: None }
    }
}

// Statements name their columns: a connection that is older than a column would count wrongly with `*`.

fn read(row: &AnyRow) -> Result<ConfigRecord, StoreError> {
    Ok(ConfigRecord {
        id: row.try_get("id")?,
        kind: row.try_get("type")?,
        name: row.try_get("name")?,
        content: row.try_get("content")?,
        created_at: row.try_get("created_at")?,
        team: row.try_get("team")?,
    })
}

const LABEL: &str = "id, type, name, team, CAST(OCTET_LENGTH(content) AS BIGINT) AS length";

fn label(row: &AnyRow) -> Result<ConfigLabel, StoreError> {
    Ok(ConfigLabel {
        id: row.try_get("id")?,
        kind: row.try_get("type")?,
        name: row.try_get("name")?,
        team: row.try_get("team")?,
        length: row.try_get("length")?,
    })
}

/// Why a team may not have this config beside its others. Every deploy of the team reads them all.
async fn too_much(transaction: &mut Transaction, team: &str, new: NewConfig<'_>) -> Result<Option<String>, StoreError> {
    let row = sqlx::query(
        "SELECT COUNT(*) AS number, CAST(COALESCE(SUM(OCTET_LENGTH(content)), 0) AS BIGINT) AS length FROM configs
         WHERE id IN (SELECT MAX(id) FROM configs WHERE deleted = 0 AND team = $1 GROUP BY type, name)
            AND NOT (type = $2 AND name = $3)",
    )
    .bind(team)
    .bind(new.kind)
    .bind(new.name)
    .fetch_one(transaction.connection())
    .await?;
    let (number, length): (i64, i64) = (row.try_get("number")?, row.try_get("length")?);
    if number >= CONFIGS_OF_A_TEAM {
        let reason = format!(
            "the team '{team}' has {number} configs, and may have {CONFIGS_OF_A_TEAM}; delete some with delete-config"
        );
        return Ok(Some(reason));
    }
    let length = length.saturating_add(i64::try_from(new.content.len()).unwrap_or(i64::MAX));
    Ok((length > CONFIG_BYTES_OF_A_TEAM).then(|| {
        format!(
            "the configs of the team '{team}' would have {length} bytes, and may have {CONFIG_BYTES_OF_A_TEAM}; make them \
             smaller, or delete some with delete-config"
        )
    }))
}

/// Forgets the oldest versions of a team, deleted ones included, beyond what it may have of them. Those that are current or in use stay.
async fn forget_oldest(transaction: &mut Transaction, team: &str) -> Result<(), StoreError> {
    sqlx::query(
        "DELETE FROM configs WHERE id IN (
            SELECT id FROM (SELECT id, SUM(OCTET_LENGTH(content)) OVER (ORDER BY id DESC) AS total FROM configs WHERE team = $1)
                AS versions WHERE total > $2)
         AND id NOT IN (SELECT config FROM deployment_configs)
         AND id NOT IN (SELECT MAX(id) FROM configs WHERE deleted = 0 GROUP BY type, name)",
    )
    .bind(team)
    .bind(OLD_CONFIG_BYTES_OF_A_TEAM)
    .execute(transaction.connection())
    .await?;
    Ok(())
}

impl Store {
    /// The newest versions of each type and name, so many at most, that are not deleted: by type, then `default` first, then by
    /// name, newest first.
    pub(crate) async fn configs(
        &self,
        kind: Option<&str>,
        name: Option<&str>,
        most: usize,
    ) -> Result<Vec<ConfigLabel>, StoreError> {
        let statement = format!(
            "SELECT {LABEL} FROM configs WHERE id IN (
                SELECT id FROM (SELECT id, ROW_NUMBER() OVER (PARTITION BY type, name ORDER BY id DESC) AS place FROM configs
                    WHERE deleted = 0 AND ($1 = '' OR type = $1) AND ($2 = '' OR name = $2)) AS versions WHERE place <= $3)
             ORDER BY type, CASE WHEN name = 'default' THEN 0 ELSE 1 END, name, id DESC"
        );
        let rows = sqlx::query(AssertSqlSafe(statement))
            .bind(kind.unwrap_or_default())
            .bind(name.unwrap_or_default())
            .bind(i64::try_from(most).unwrap_or(i64::MAX))
            .fetch_all(self.database.pool())
            .await?;
        rows.iter().map(label).collect()
    }

    /// The current version of each name of a type, of all teams.
    pub(crate) async fn current_configs(&self, kind: &str) -> Result<Vec<ConfigRecord>, StoreError> {
        let rows = sqlx::query(
            "SELECT id, type, name, content, created_at, team FROM configs WHERE id IN (SELECT MAX(id) FROM configs WHERE deleted = 0 AND type = $1 GROUP BY name)
             ORDER BY CASE WHEN name = 'default' THEN 0 ELSE 1 END, name",
        )
        .bind(kind)
        .fetch_all(self.database.pool())
        .await?;
        rows.iter().map(read).collect()
    }

    /// The current version of each name of a type, of those that belong to nobody or to one of these teams.
    pub(crate) async fn current_configs_for(
        &self,
        kind: &str,
        teams: &[String],
    ) -> Result<Vec<ConfigRecord>, StoreError> {
        let statement = format!(
            "SELECT {LABEL} FROM configs
             WHERE id IN (SELECT MAX(id) FROM configs WHERE deleted = 0 AND type = $1 GROUP BY name, team)
             ORDER BY CASE WHEN name = 'default' THEN 0 ELSE 1 END, name, id DESC"
        );
        let rows = sqlx::query(AssertSqlSafe(statement)).bind(kind).fetch_all(self.database.pool()).await?;
        let mut labels: Vec<ConfigLabel> = rows.iter().map(label).collect::<Result<_, _>>()?;
        labels.retain(|config| config.is_for(teams));
        labels.dedup_by(|later, newest| later.name == newest.name);
        self.with_content(&labels).await
    }

    /// Configs with their content. What was forgotten meanwhile is left out.
    pub(crate) async fn with_content(&self, labels: &[ConfigLabel]) -> Result<Vec<ConfigRecord>, StoreError> {
        let mut configs = Vec::new();
        for label in labels {
            configs.extend(self.config(label.id).await?);
        }
        Ok(configs)
    }

    /// The current version of a type and name.
    pub(crate) async fn current_config(&self, kind: &str, name: &str) -> Result<Option<ConfigRecord>, StoreError> {
        let row =
            sqlx::query("SELECT id, type, name, content, created_at, team FROM configs WHERE deleted = 0 AND type = $1 AND name = $2 ORDER BY id DESC LIMIT 1")
                .bind(kind)
                .bind(name)
                .fetch_optional(self.database.pool())
                .await?;
        row.as_ref().map(read).transpose()
    }

    /// A version by its id.
    pub(crate) async fn config(&self, id: i64) -> Result<Option<ConfigRecord>, StoreError> {
        let row = sqlx::query("SELECT id, type, name, content, created_at, team FROM configs WHERE id = $1")
            .bind(id)
            .fetch_optional(self.database.pool())
            .await?;
        row.as_ref().map(read).transpose()
    }

    /// What a version is called, and whose it is.
    pub(crate) async fn config_label(&self, id: i64) -> Result<Option<ConfigLabel>, StoreError> {
        let statement = format!("SELECT {LABEL} FROM configs WHERE id = $1");
        let row = sqlx::query(AssertSqlSafe(statement)).bind(id).fetch_optional(self.database.pool()).await?;
        row.as_ref().map(label).transpose()
    }

    /// Whether a version is the current one of its type and name.
    pub(crate) async fn is_current(&self, config: &ConfigRecord) -> Result<bool, StoreError> {
        let newest: Option<i64> =
            sqlx::query_scalar("SELECT MAX(id) FROM configs WHERE deleted = 0 AND type = $1 AND name = $2")
                .bind(config.kind.as_str())
                .bind(config.name.as_str())
                .fetch_one(self.database.pool())
                .await?;
        Ok(newest == Some(config.id))
    }

    /// Adds a version, unless the current one has the same content, is not the one that was expected, or may not be replaced.
    pub(crate) async fn add_config(
        &self,
        new: NewConfig<'_>,
        may_replace: impl Fn(&ConfigRecord) -> bool,
    ) -> Result<AddConfig, StoreError> {
        let NewConfig { kind, name, content, expected, team } = new;
        let mut transaction = self.database.begin().await?;
        let current =
            sqlx::query("SELECT id, type, name, content, created_at, team FROM configs WHERE deleted = 0 AND type = $1 AND name = $2 ORDER BY id DESC LIMIT 1")
                .bind(kind)
                .bind(name)
                .fetch_optional(transaction.connection())
                .await?;
        let current = current.as_ref().map(read).transpose()?;
        let latest = current.as_ref().map_or(0, |current| current.id);
        if expected.is_some_and(|expected| expected != latest) {
            return Ok(AddConfig::Unexpected { latest });
        }
        // What becomes smaller is taken, also from a team that has too much already.
        let mut grows = true;
        if let Some(current) = current {
            if !may_replace(&current) {
                return Ok(AddConfig::OfOthers(current));
            }
            if current.content == content {
                return Ok(AddConfig::Current(current));
            }
            grows = current.team.as_deref() != team || content.len() > current.content.len();
        }
        if let Some(team) = team.filter(|_| grows)
            && let Some(reason) = too_much(&mut transaction, team, new).await?
        {
            return Ok(AddConfig::TooMuch(reason));
        }
        let row = sqlx::query(
            "INSERT INTO configs (type, name, content, created_at, team) VALUES ($1, $2, $3, $4, $5) RETURNING id, type, name, content, created_at, team",
        )
        .bind(kind)
        .bind(name)
        .bind(content)
        .bind(clock::now())
        .bind(team)
        .fetch_one(transaction.connection())
        .await?;
        let added = read(&row)?;
        if let Some(team) = team {
            forget_oldest(&mut transaction, team).await?;
        }
        transaction.commit().await?;
        Ok(AddConfig::Current(added))
    }

    /// Deletes a current version with all those before it; says whether there were any. One that somebody added meanwhile stays.
    /// Deployments keep those that they use.
    pub(crate) async fn delete_configs(&self, current: &ConfigRecord) -> Result<bool, StoreError> {
        let statement =
            sqlx::query("UPDATE configs SET deleted = 1 WHERE deleted = 0 AND type = $1 AND name = $2 AND id <= $3")
                .bind(current.kind.as_str())
                .bind(current.name.as_str())
                .bind(current.id);
        let deleted = self.database.execute(statement).await?;
        Ok(deleted > 0)
    }

    /// Forgets all but the newest versions of each type and name, and those that deployments use.
    pub(crate) async fn forget_configs(&self, keep: i64) -> Result<(), StoreError> {
        let mut transaction = self.database.begin().await?;
        sqlx::query(
            "DELETE FROM configs WHERE id IN (
                SELECT id FROM (SELECT id, ROW_NUMBER() OVER (PARTITION BY type, name ORDER BY deleted, id DESC) AS place
                    FROM configs) AS versions WHERE place > $1)
             AND id NOT IN (SELECT config FROM deployment_configs)",
        )
        .bind(keep)
        .execute(transaction.connection())
        .await?;
        Ok(transaction.commit().await?)
    }

    /// Deletes one version; says whether it was there.
    pub(crate) async fn delete_config(&self, id: i64) -> Result<bool, StoreError> {
        let statement = sqlx::query("UPDATE configs SET deleted = 1 WHERE deleted = 0 AND id = $1").bind(id);
        let deleted = self.database.execute(statement).await?;
        Ok(deleted > 0)
    }
}
