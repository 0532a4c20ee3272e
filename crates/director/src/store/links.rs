//! Links: who provides what, who consumes it, and what each consumer gets.
//!
//! What instances were rendered with is in their software. These records tell other deployments and clients what there is, and keep
//! the numbers that clients know links by.

use std::collections::BTreeSet;

use serde_json::Value;
use windlass_database::Transaction;
use windlass_database::sqlx::any::AnyRow;
use windlass_database::sqlx::{self, AssertSqlSafe, Row};
use windlass_operations::clock;
use windlass_planning::links::{
    LinkConsumer, LinkProvider, LinkSource, PlannedLink, PlannedLinks, ProviderKind, is_same_content,
};
use windlass_planning::names::DeploymentName;

use super::{Store, StoreError, from_json, to_json};
use crate::limits::{EXTERNAL_BYTES, EXTERNAL_LINKS};

/// A consumer of a link on record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LinkConsumerRecord {
    pub id: i64,
    pub deployment: DeploymentName,
    /// Empty for one outside of deployments.
    pub group: String,
    pub owner: String,
    /// `job`, or `external`.
    pub kind: String,
    pub original_name: String,
    pub link_type: String,
    pub name: String,
    pub optional: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LinkRecord {
    pub id: i64,
    pub name: String,
    /// None once the provider is gone.
    pub provider: Option<i64>,
    pub consumer: i64,
    pub content: Value,
    /// Unix seconds.
    pub created_at: i64,
}

/// What a plan may read of links that other deployments share: anybody may name all of them, in many plans at once.
#[derive(Debug)]
pub(crate) struct RoomForLinks {
    bytes: i64,
    /// Each takes a hundred bytes, also one that is written with two.
    values: usize,
}

impl Default for RoomForLinks {
    fn default() -> Self {
        Self { bytes: 8 << 20, values: 300_000 }
    }
}

/// A link with what is known of its consumer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LinkOfConsumer {
    pub link: LinkRecord,
    /// Whether the consumer is outside of deployments.
    pub is_external: bool,
    /// The consumer's; of one outside of deployments, the provider's.
    pub deployment: DeploymentName,
}

const EXTERNAL: &str = "external";

/// How many bytes, and how many providers and consumers, a deployment has of links that its last deploy does not name, until a deploy
/// succeeds: each that fails leaves some.
const STALE_BYTES: i64 = 32 << 20;
const STALE_NUMBER: i64 = 20_000;

fn provider(row: &AnyRow) -> Result<LinkProvider, StoreError> {
    let kind: String = row.try_get("kind")?;
    Ok(LinkProvider {
        id: row.try_get("id")?,
        deployment: row.try_get("deployment")?,
        group: row.try_get("instance_group")?,
        owner: row.try_get("owner")?,
        kind: ProviderKind::parse(&kind).ok_or(StoreError::Damaged { column: "link_providers.kind", byte: 0 })?,
        original_name: row.try_get("original_name")?,
        link_type: row.try_get("link_type")?,
        name: row.try_get("name")?,
        shared: row.try_get::<i64, _>("shared")? != 0,
        consumable: row.try_get::<i64, _>("consumable")? != 0,
        content: from_json("link_providers.content", row.try_get("content")?)?,
        aliases: from_json("link_providers.aliases", row.try_get("aliases")?)?,
    })
}

fn consumer(row: &AnyRow) -> Result<LinkConsumerRecord, StoreError> {
    Ok(LinkConsumerRecord {
        id: row.try_get("id")?,
        deployment: row.try_get::<String, _>("deployment")?.into(),
        group: row.try_get("instance_group")?,
        owner: row.try_get("owner")?,
        kind: row.try_get("kind")?,
        original_name: row.try_get("original_name")?,
        link_type: row.try_get("link_type")?,
        name: row.try_get("name")?,
        optional: row.try_get::<i64, _>("optional")? != 0,
    })
}

fn link(row: &AnyRow) -> Result<LinkRecord, StoreError> {
    Ok(LinkRecord {
        id: row.try_get("id")?,
        name: row.try_get("name")?,
        provider: row.try_get("provider")?,
        consumer: row.try_get("consumer")?,
        content: from_json("links.content", row.try_get("content")?)?,
        created_at: row.try_get("created_at")?,
    })
}

/// What a deploy notes, in one transaction.
struct Notes<'a> {
    transaction: &'a mut Transaction,
    deployment: &'a DeploymentName,
    serial: i64,
}

impl Notes<'_> {
    /// A group that took over another has its rows, so that clients know them by the same numbers.
    async fn rename(&mut self, from: &str, to: &str) -> Result<(), StoreError> {
        for table in ["link_providers", "link_consumers"] {
            let statement = format!(
                "UPDATE {table} SET instance_group = $1 WHERE deployment = $2 AND instance_group = $3 AND NOT EXISTS (\
                 SELECT 1 FROM {table} o WHERE o.deployment = $2 AND o.instance_group = $1 AND o.owner = {table}.owner \
                 AND o.kind = {table}.kind AND o.original_name = {table}.original_name)"
            );
            sqlx::query(AssertSqlSafe(statement))
                .bind(to)
                .bind(self.deployment.as_str())
                .bind(from)
                .execute(self.transaction.connection())
                .await?;
        }
        Ok(())
    }

    async fn provider(&mut self, provider: &LinkProvider) -> Result<i64, StoreError> {
        let id = sqlx::query_scalar(
            "INSERT INTO link_providers (deployment, instance_group, owner, kind, original_name, link_type, name, shared, \
             consumable, content, serial, aliases) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) \
             ON CONFLICT (deployment, instance_group, owner, kind, original_name) DO UPDATE SET link_type = $6, name = $7, \
             shared = $8, consumable = $9, content = $10, serial = $11, aliases = $12 RETURNING id",
        )
        .bind(self.deployment.as_str())
        .bind(&provider.group)
        .bind(&provider.owner)
        .bind(provider.kind.as_str())
        .bind(&provider.original_name)
        .bind(&provider.link_type)
        .bind(&provider.name)
        .bind(i64::from(provider.shared))
        .bind(i64::from(provider.consumable))
        .bind(to_json("link_providers.content", &provider.content)?)
        .bind(self.serial)
        .bind(to_json("link_providers.aliases", &provider.aliases)?)
        .fetch_one(self.transaction.connection())
        .await?;
        Ok(id)
    }

    async fn consumer(&mut self, kind: &str, consumer: &LinkConsumer) -> Result<i64, StoreError> {
        let id = sqlx::query_scalar(
            "INSERT INTO link_consumers (deployment, instance_group, owner, kind, original_name, link_type, name, optional, serial) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) \
             ON CONFLICT (deployment, instance_group, owner, kind, original_name) DO UPDATE SET link_type = $6, name = $7, \
             optional = $8, serial = $9 RETURNING id",
        )
        .bind(self.deployment.as_str())
        .bind(&consumer.group)
        .bind(&consumer.job)
        .bind(kind)
        .bind(&consumer.original_name)
        .bind(&consumer.link_type)
        .bind(&consumer.name)
        .bind(i64::from(consumer.optional))
        .bind(self.serial)
        .fetch_one(self.transaction.connection())
        .await?;
        Ok(id)
    }

    /// A link with the same content is the same link.
    async fn link(
        &mut self,
        name: &str,
        provider: i64,
        consumer: i64,
        content: &Value,
    ) -> Result<LinkRecord, StoreError> {
        let rows = sqlx::query("SELECT * FROM links WHERE consumer = $1 AND provider = $2")
            .bind(consumer)
            .bind(provider)
            .fetch_all(self.transaction.connection())
            .await?;
        for row in &rows {
            let known = link(row)?;
            if is_same_content(&known.content, content) {
                sqlx::query("UPDATE links SET serial = $1 WHERE id = $2")
                    .bind(self.serial)
                    .bind(known.id)
                    .execute(self.transaction.connection())
                    .await?;
                return Ok(known);
            }
        }
        let row = sqlx::query(
            "INSERT INTO links (name, provider, consumer, content, created_at, serial) VALUES ($1, $2, $3, $4, $5, $6) RETURNING *",
        )
        .bind(name)
        .bind(provider)
        .bind(consumer)
        .bind(to_json("links.content", content)?)
        .bind(clock::now())
        .bind(self.serial)
        .fetch_one(self.transaction.connection())
        .await?;
        link(&row)
    }

    /// A consumer, and the link that it gets.
    async fn planned(&mut self, planned: &PlannedLink, providers: &[i64]) -> Result<(), StoreError> {
        let consumer = self.consumer("job", &planned.consumer).await?;
        let provider = match &planned.source {
            Some(LinkSource::Own(position)) => providers.get(*position).copied(),
            Some(LinkSource::Shared(provider)) => self.existing(provider.id).await?,
            None => None,
        };
        if let Some(provider) = provider {
            self.link(&planned.consumer.original_name, provider, consumer, &planned.content).await?;
        }
        Ok(())
    }

    /// Another deployment's provider may have gone since the plan was made.
    async fn existing(&mut self, provider: i64) -> Result<Option<i64>, StoreError> {
        let found = sqlx::query_scalar("SELECT id FROM link_providers WHERE id = $1").bind(provider);
        Ok(found.fetch_optional(self.transaction.connection()).await?)
    }
}

/// Forgets what the last deploy of a deployment did not touch.
pub(super) async fn forget_stale(transaction: &mut Transaction, deployment: &DeploymentName) -> Result<(), StoreError> {
    const STALE: &str = "deployment = $1 AND serial <> (SELECT links_serial FROM deployments WHERE name = $1)";
    for statement in [
        format!(
            "DELETE FROM links WHERE consumer IN (SELECT id FROM link_consumers WHERE deployment = $1 AND kind <> '{EXTERNAL}') \
             AND serial <> (SELECT links_serial FROM deployments WHERE name = $1)"
        ),
        format!("DELETE FROM link_consumers WHERE kind <> '{EXTERNAL}' AND {STALE}"),
        format!("UPDATE links SET provider = NULL WHERE provider IN (SELECT id FROM link_providers WHERE {STALE})"),
        format!("DELETE FROM link_providers WHERE {STALE}"),
    ] {
        sqlx::query(AssertSqlSafe(statement)).bind(deployment.as_str()).execute(transaction.connection()).await?;
    }
    Ok(())
}

/// Whether failed deploys have left very much.
async fn is_much_stale(
    transaction: &mut Transaction,
    deployment: &DeploymentName,
    (most_bytes, most): (i64, i64),
) -> Result<bool, StoreError> {
    let (mut bytes, mut number) = (0, 0);
    for statement in [
        "SELECT CAST(COALESCE(SUM(OCTET_LENGTH(p.content) + OCTET_LENGTH(p.aliases)), 0) AS BIGINT), COUNT(*) FROM link_providers p
         JOIN deployments d ON d.name = p.deployment WHERE p.deployment = $1 AND p.serial <> d.links_serial",
        "SELECT CAST(COALESCE(SUM(OCTET_LENGTH(l.content)), 0) AS BIGINT), COUNT(*) FROM link_consumers c
         JOIN deployments d ON d.name = c.deployment LEFT JOIN links l ON l.consumer = c.id
         WHERE c.deployment = $1 AND c.kind <> 'external' AND COALESCE(l.serial, c.serial) <> d.links_serial",
    ] {
        let found = sqlx::query_as::<_, (i64, i64)>(statement).bind(deployment.as_str());
        let (of_these, count) = found.fetch_one(transaction.connection()).await?;
        (bytes, number) = (bytes + of_these, number + count);
    }
    Ok(bytes > most_bytes || number > most)
}

/// Forgets all links of a deployment. Those who consume its shared ones keep what they have.
pub(super) async fn forget_all(transaction: &mut Transaction, deployment: &DeploymentName) -> Result<(), StoreError> {
    for statement in [
        "DELETE FROM links WHERE consumer IN (SELECT id FROM link_consumers WHERE deployment = $1)",
        "DELETE FROM link_consumers WHERE deployment = $1",
        "UPDATE links SET provider = NULL WHERE provider IN (SELECT id FROM link_providers WHERE deployment = $1)",
        "DELETE FROM link_providers WHERE deployment = $1",
    ] {
        sqlx::query(statement).bind(deployment.as_str()).execute(transaction.connection()).await?;
    }
    Ok(())
}

impl Store {
    /// Notes what a deploy does to links, from whose beginning on other deployments see it.
    pub(crate) async fn note_links(
        &self,
        deployment: &DeploymentName,
        planned: &PlannedLinks,
    ) -> Result<(), StoreError> {
        let mut transaction = self.database.begin().await?;
        let serial = sqlx::query_scalar(
            "UPDATE deployments SET links_serial = links_serial + 1 WHERE name = $1 RETURNING links_serial",
        )
        .bind(deployment.as_str())
        .fetch_one(transaction.connection())
        .await?;
        let mut notes = Notes { transaction: &mut transaction, deployment, serial };
        for (from, to) in &planned.renamed {
            notes.rename(from, to).await?;
        }
        let mut providers = Vec::new();
        for provider in &planned.providers {
            providers.push(notes.provider(provider).await?);
        }
        for link in &planned.links {
            notes.planned(link, &providers).await?;
        }
        if is_much_stale(&mut transaction, deployment, (STALE_BYTES, STALE_NUMBER)).await? {
            forget_stale(&mut transaction, deployment).await?;
        }
        Ok(transaction.commit().await?)
    }

    /// What a deployment provided in its last deploy under these names for others, as long as there is room.
    pub(crate) async fn shared_link_providers(
        &self,
        deployment: &DeploymentName,
        names: &BTreeSet<String>,
        room: &mut RoomForLinks,
    ) -> Result<Vec<LinkProvider>, StoreError> {
        let mut found = Vec::new();
        for listed in self.listed_link_providers(deployment).await? {
            if !listed.shared || !names.contains(&listed.name) {
                continue;
            }
            let too_large = || StoreError::TooLargeLinks(format!("{} of {deployment}", listed.name));
            let length = "SELECT CAST(OCTET_LENGTH(content) + OCTET_LENGTH(aliases) AS BIGINT) FROM link_providers WHERE id = $1";
            let length: Option<i64> =
                sqlx::query_scalar(length).bind(listed.id).fetch_optional(self.database.pool()).await?;
            room.bytes =
                room.bytes.checked_sub(length.unwrap_or_default()).filter(|left| *left >= 0).ok_or_else(too_large)?;
            let row = sqlx::query("SELECT * FROM link_providers WHERE id = $1")
                .bind(listed.id)
                .fetch_optional(self.database.pool())
                .await?;
            // Its deployment may have gone meanwhile.
            let Some(row) = row else { continue };
            let values = windlass_contract::values_in(row.try_get::<&str, _>("content")?.as_bytes());
            room.values = room.values.checked_sub(values).ok_or_else(too_large)?;
            found.push(provider(&row)?);
        }
        Ok(found)
    }

    /// What a deployment provided in its last deploy, without contents and aliases, which may be large.
    pub(crate) async fn listed_link_providers(
        &self,
        deployment: &DeploymentName,
    ) -> Result<Vec<LinkProvider>, StoreError> {
        let rows = sqlx::query(
            "SELECT p.id, p.deployment, p.instance_group, p.owner, p.kind, p.original_name, p.link_type, p.name, p.shared, \
             p.consumable, 'null' AS content, '[]' AS aliases FROM link_providers p JOIN deployments d ON d.name = p.deployment \
             WHERE p.deployment = $1 AND p.serial = d.links_serial ORDER BY p.id",
        )
        .bind(deployment.as_str())
        .fetch_all(self.database.pool())
        .await?;
        rows.iter().map(provider).collect()
    }

    pub(crate) async fn link_provider(&self, id: i64) -> Result<Option<LinkProvider>, StoreError> {
        let row = sqlx::query("SELECT * FROM link_providers WHERE id = $1")
            .bind(id)
            .fetch_optional(self.database.pool())
            .await?;
        row.as_ref().map(provider).transpose()
    }

    /// The consumers of links in a deployment, and those of other deployments that consume its links.
    pub(crate) async fn link_consumers(
        &self,
        deployment: &DeploymentName,
    ) -> Result<Vec<LinkConsumerRecord>, StoreError> {
        let rows = sqlx::query("SELECT * FROM link_consumers WHERE deployment = $1 ORDER BY id")
            .bind(deployment.as_str())
            .fetch_all(self.database.pool())
            .await?;
        rows.iter().map(consumer).collect()
    }

    /// The links of a deployment's consumers, without their contents.
    pub(crate) async fn links(&self, deployment: &DeploymentName) -> Result<Vec<LinkRecord>, StoreError> {
        // Contents may be large, and those outside of deployments may have many: a list leaves them out.
        let rows = sqlx::query(
            "SELECT l.id, l.name, l.provider, l.consumer, 'null' AS content, l.created_at
             FROM links l JOIN link_consumers c ON c.id = l.consumer WHERE c.deployment = $1 ORDER BY c.id, l.id",
        )
        .bind(deployment.as_str())
        .fetch_all(self.database.pool())
        .await?;
        rows.iter().map(link).collect()
    }

    pub(crate) async fn link(&self, id: i64) -> Result<Option<LinkOfConsumer>, StoreError> {
        let row = sqlx::query(
            "SELECT l.*, c.kind, c.deployment FROM links l JOIN link_consumers c ON c.id = l.consumer WHERE l.id = $1",
        )
        .bind(id)
        .fetch_optional(self.database.pool())
        .await?;
        let both = |row: AnyRow| {
            let is_external = row.try_get::<String, _>("kind")? == EXTERNAL;
            Ok(LinkOfConsumer {
                link: link(&row)?,
                is_external,
                deployment: row.try_get::<String, _>("deployment")?.into(),
            })
        };
        row.map(both).transpose()
    }

    /// Gives a link to somebody outside of deployments; none if the provider's deployment has too many of those.
    pub(crate) async fn add_external_link(
        &self,
        provider: &LinkProvider,
        owner: &str,
        content: &Value,
    ) -> Result<Option<LinkRecord>, StoreError> {
        let mut transaction = self.database.begin().await?;
        let taken = sqlx::query(
            "SELECT COUNT(*) AS number, CAST(COALESCE(SUM(OCTET_LENGTH(l.content)), 0) AS BIGINT) AS length FROM links l
             JOIN link_consumers c ON c.id = l.consumer WHERE c.deployment = $1 AND c.kind = $2",
        )
        .bind(&provider.deployment)
        .bind(EXTERNAL)
        .fetch_one(transaction.connection())
        .await?;
        let (number, length): (i64, i64) = (taken.try_get("number")?, taken.try_get("length")?);
        if number >= EXTERNAL_LINKS || length > EXTERNAL_BYTES {
            return Ok(None);
        }
        let serial = sqlx::query_scalar("SELECT links_serial FROM deployments WHERE name = $1")
            .bind(&provider.deployment)
            .fetch_one(transaction.connection())
            .await?;
        let deployment = provider.deployment.as_str().into();
        let mut notes = Notes { transaction: &mut transaction, deployment: &deployment, serial };
        let consumer = LinkConsumer {
            group: String::new(),
            job: owner.to_owned(),
            original_name: provider.original_name.clone(),
            link_type: provider.link_type.clone(),
            name: provider.name.clone(),
            optional: false,
            blocked: false,
        };
        let consumer = notes.consumer(EXTERNAL, &consumer).await?;
        let made = notes.link(&provider.original_name, provider.id, consumer, content).await?;
        transaction.commit().await?;
        Ok(Some(made))
    }

    /// Takes a link from somebody outside of deployments, and forgets a consumer without links.
    pub(crate) async fn remove_external_link(&self, link: &LinkRecord) -> Result<(), StoreError> {
        let mut transaction = self.database.begin().await?;
        sqlx::query("DELETE FROM links WHERE id = $1").bind(link.id).execute(transaction.connection()).await?;
        sqlx::query(
            "DELETE FROM link_consumers WHERE id = $1 AND NOT EXISTS (SELECT 1 FROM links WHERE consumer = $1)",
        )
        .bind(link.consumer)
        .execute(transaction.connection())
        .await?;
        Ok(transaction.commit().await?)
    }
}
