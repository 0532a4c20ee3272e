use sqlx::Row;

use super::*;

const FIRST: &[Migration] = &[Migration {
    number: 1,
    name: "things",
    sql: "CREATE TABLE things (id {id}, name TEXT NOT NULL UNIQUE, good BIGINT NOT NULL, note TEXT, at BIGINT)",
}];
const SECOND: &[Migration] = &[
    FIRST[0],
    Migration { number: 2, name: "more", sql: "CREATE TABLE more (a BIGINT); CREATE INDEX more_a ON more (a)" },
];

fn url(folder: &tempfile::TempDir) -> String {
    format!("sqlite:{}", folder.path().join("test.db").display())
}

#[tokio::test]
async fn what_was_committed_is_there_and_what_was_not_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let database = Database::open(&url(&folder), FIRST).await.unwrap();
    let mut kept = database.begin().await.unwrap();
    let row = sqlx::query("INSERT INTO things (name, good, note, at) VALUES ($1, $2, $3, $4) RETURNING id")
        .bind("a")
        .bind(1_i64)
        .bind(None::<String>)
        .bind(7_i64)
        .fetch_one(kept.connection())
        .await
        .unwrap();
    assert_eq!(row.get::<i64, _>("id"), 1);
    kept.commit().await.unwrap();
    let mut dropped = database.begin().await.unwrap();
    sqlx::query("DELETE FROM things").execute(dropped.connection()).await.unwrap();
    drop(dropped);
    database.close().await;

    let database = Database::open(&url(&folder), FIRST).await.unwrap();
    let row = sqlx::query("SELECT * FROM things WHERE good = $1").bind(1_i64).fetch_one(database.pool()).await.unwrap();
    assert_eq!(row.get::<String, _>("name"), "a");
    assert_eq!(row.get::<i64, _>("good"), 1);
    assert_eq!(row.get::<Option<String>, _>("note"), None);
    assert_eq!(row.get::<Option<i64>, _>("at"), Some(7));
}

#[tokio::test]
async fn what_was_committed_without_a_flush_is_seen_by_everybody_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let database = Database::open(&url(&folder), FIRST).await.unwrap();
    for (number, name) in ["a", "b"].into_iter().enumerate() {
        let mut quick = database.begin_unflushed().await.unwrap();
        let insert = sqlx::query("INSERT INTO things (name, good) VALUES ($1, 1)").bind(name);
        insert.execute(quick.connection()).await.unwrap();
        quick.commit().await.unwrap();
        let mut slow = database.begin().await.unwrap();
        let seen = sqlx::query("SELECT name FROM things").fetch_all(slow.connection()).await.unwrap();
        assert_eq!(seen.len(), number + 1);
        slow.commit().await.unwrap();
    }
}

#[tokio::test]
async fn migrations_are_applied_once_and_a_newer_database_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    Database::open(&url(&folder), FIRST).await.unwrap().close().await;
    Database::open(&url(&folder), SECOND).await.unwrap().close().await;
    Database::open(&url(&folder), SECOND).await.unwrap().close().await;
    let error = Database::open(&url(&folder), FIRST).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "the database has migration 2, this version knows 1: use a version that is at least as new"
    );
}

/// A version may get one with a lower number than the highest that is applied.
#[tokio::test]
async fn every_migration_that_is_not_there_is_applied() {
    const THIRD: Migration = Migration { number: 3, name: "late", sql: "CREATE TABLE late (a BIGINT)" };
    let folder = tempfile::tempdir().unwrap();
    Database::open(&url(&folder), &[FIRST[0], THIRD]).await.unwrap().close().await;
    let all = Database::open(&url(&folder), &[SECOND[0], SECOND[1], THIRD]).await.unwrap();
    sqlx::query("SELECT a FROM more").fetch_all(all.pool()).await.unwrap();
}

#[tokio::test]
async fn the_write_ahead_log_is_cut_after_a_large_transaction() {
    let folder = tempfile::tempdir().unwrap();
    let database = Database::open(&url(&folder), FIRST).await.unwrap();
    let log = folder.path().join("test.db-wal");
    let mut large = database.begin().await.unwrap();
    for number in 0..400 {
        let insert = sqlx::query("INSERT INTO things (name, good, note) VALUES ($1, 1, $2)");
        let insert = insert.bind(number.to_string()).bind("x".repeat(100_000));
        insert.execute(large.connection()).await.unwrap();
    }
    large.commit().await.unwrap();
    assert!(log.metadata().unwrap().len() > 32 << 20);
    for number in 0..3 {
        add(database.begin().await.unwrap(), &format!("more {number}")).await.unwrap();
    }
    assert!(log.metadata().unwrap().len() <= 16 << 20, "{}", log.metadata().unwrap().len());
}

#[tokio::test]
async fn two_programs_in_one_database_count_their_own_migrations() {
    const OTHER: &[Migration] = &[Migration { number: 1, name: "other", sql: "CREATE TABLE other (a BIGINT)" }];
    let folder = tempfile::tempdir().unwrap();
    Database::open(&url(&folder), SECOND).await.unwrap().close().await;
    let database = Database::open_beside_others(&url(&folder), "other_migrations", OTHER).await.unwrap();
    sqlx::query("SELECT a FROM other").fetch_all(database.pool()).await.unwrap();
    Database::open(&url(&folder), SECOND).await.unwrap();
}

#[tokio::test]
async fn writers_wait_for_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let database = Database::open(&url(&folder), FIRST).await.unwrap();
    let mut writers = Vec::new();
    for number in 0..20 {
        let database = database.clone();
        writers.push(tokio::spawn(async move {
            let mut transaction = database.begin().await.unwrap();
            sqlx::query("SELECT COUNT(*) FROM things").fetch_one(transaction.connection()).await.unwrap();
            sqlx::query("INSERT INTO things (name, good) VALUES ($1, $2)")
                .bind(number.to_string())
                .bind(0_i64)
                .execute(transaction.connection())
                .await
                .unwrap();
            transaction.commit().await.unwrap();
        }));
    }
    for writer in writers {
        writer.await.unwrap();
    }
    let count: i64 = sqlx::query_scalar("SELECT COUNT(*) FROM things").fetch_one(database.pool()).await.unwrap();
    assert_eq!(count, 20);
}

async fn add(mut transaction: Transaction, name: &str) -> Result<(), sqlx::Error> {
    let large = "x".repeat(100_000);
    let insert = sqlx::query("INSERT INTO things (name, good, note) VALUES ($1, 1, $2)").bind(name).bind(large);
    insert.execute(transaction.connection()).await?;
    transaction.commit().await
}

/// SQLite's own limit stands for a disk that is full: the same code, and the same end of the transaction.
#[tokio::test]
async fn a_database_that_was_full_is_written_again_once_there_is_room() {
    let folder = tempfile::tempdir().unwrap();
    let database = Database::open(&url(&folder), FIRST).await.unwrap();
    let pools = [database.pool.clone(), database.unflushed.clone().unwrap()];
    let limit = async |pages: &'static str| {
        for pool in &pools {
            let mut held = Vec::new();
            for _ in 0..pool.options().get_max_connections() {
                let mut connection = pool.acquire().await.unwrap();
                connection.execute(pages).await.unwrap();
                held.push(connection);
            }
        }
    };
    limit("PRAGMA max_page_count = 10").await;
    for number in 0..6 {
        let failed = add(database.begin().await.unwrap(), &format!("flushed {number}")).await.unwrap_err();
        assert!(is_full(&failed), "{failed}");
        limit("PRAGMA max_page_count = 10").await;
        let failed = add(database.begin_unflushed().await.unwrap(), &format!("quick {number}")).await.unwrap_err();
        assert!(is_full(&failed), "{failed}");
        limit("PRAGMA max_page_count = 10").await;
    }
    limit("PRAGMA max_page_count = 1000000").await;
    for number in 0..6 {
        add(database.begin().await.unwrap(), &format!("flushed {number}")).await.unwrap();
        add(database.begin_unflushed().await.unwrap(), &format!("quick {number}")).await.unwrap();
    }
}

#[tokio::test]
async fn what_is_wrong_with_a_database_is_told_at_once() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("test.db"), "something else entirely, and long enough to be looked at").unwrap();
    let error = Database::open(&url(&folder), &[]).await.unwrap_err();
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert!(cause.contains("not a database"), "{cause}");
}

#[tokio::test]
async fn an_unknown_scheme_is_named() {
    let error = Database::open("mysql://x", &[]).await.unwrap_err();
    assert!(error.to_string().contains("'mysql'"), "{error}");
}

/// A pool that looks for old or idle connections may look for ever, with a thread of the runtime.
#[tokio::test]
async fn no_pool_looks_for_connections_to_close() {
    let folder = tempfile::tempdir().unwrap();
    let database = Database::open(&url(&folder), FIRST).await.unwrap();
    let pools = [Some(&database.pool), database.unflushed.as_ref()];
    for options in pools.into_iter().flatten().map(sqlx::Pool::options) {
        assert_eq!((options.get_idle_timeout(), options.get_max_lifetime()), (None, None));
    }
    database.close().await;
}
