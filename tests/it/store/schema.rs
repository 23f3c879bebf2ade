//! Compares the schemas of both databases: the same tables, columns, keys and indexes.

use std::collections::BTreeMap;

use lockkeeper::store::DatabaseUrl;
use sqlx::{AssertSqlSafe, Connection};
use sqlx_postgres::PgConnection;
use sqlx_sqlite::SqliteConnectOptions;
use sqlx_sqlite::SqliteConnection;

use crate::support::db::{Backend, TestDb};

/// Lines for columns, keys, references and indexes, by table.
type Schema = BTreeMap<String, Vec<String>>;

#[tokio::test]
async fn store_schemas_are_alike() {
    let sqlite = sqlite_schema(&TestDb::new(Backend::Sqlite).await).await;
    let postgres = postgres_schema(&TestDb::new(Backend::Postgres).await).await;
    assert!(
        sqlite.contains_key("locks")
            && sqlite["locks"].contains(&"unique (repo, dir, workspace, scope)".to_owned())
    );
    assert_eq!(
        sqlite.keys().collect::<Vec<_>>(),
        postgres.keys().collect::<Vec<_>>()
    );
    for (table, lines) in &sqlite {
        assert_eq!(
            lines, &postgres[table],
            "table {table}: SQLite left, PostgreSQL right"
        );
    }
}

/// Returns the statement that creates the table of reviewed flags in a file below `migrations/`.
fn flag_table(file: &str) -> String {
    let path = format!("{}/migrations/{file}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).unwrap();
    let table = text.split_once("CREATE TABLE reviewed_flags").unwrap().1;
    table.split_once(';').unwrap().0.to_owned()
}

#[test]
fn reviewed_flags_are_alike_in_the_database_of_the_server_and_in_their_own() {
    for database in ["sqlite", "postgres"] {
        assert_eq!(
            flag_table(&format!("{database}/0013_reviewed_flags.sql")),
            flag_table(&format!("reviewed_flags/{database}/0001_start.sql")),
            "{database}"
        );
    }
}

async fn sqlite_schema(db: &TestDb) -> Schema {
    let DatabaseUrl::Sqlite(path) = &db.url else {
        panic!("asked for SQLite")
    };
    let mut connection =
        SqliteConnection::connect_with(&SqliteConnectOptions::new().filename(path))
            .await
            .unwrap();
    let mut rows = Vec::new();
    for sql in [SQLITE_COLUMNS, SQLITE_REFERENCES, SQLITE_INDEXES] {
        let more: Vec<(String, String)> = sqlx::query_as(AssertSqlSafe(sql))
            .fetch_all(&mut connection)
            .await
            .unwrap();
        rows.extend(more);
    }
    collect(rows)
}

async fn postgres_schema(db: &TestDb) -> Schema {
    let DatabaseUrl::Postgres(options) = &db.url else {
        panic!("asked for PostgreSQL")
    };
    let mut connection = PgConnection::connect_with(options).await.unwrap();
    let mut rows = Vec::new();
    for sql in [POSTGRES_COLUMNS, POSTGRES_REFERENCES, POSTGRES_INDEXES] {
        let more: Vec<(String, String)> = sqlx::query_as(AssertSqlSafe(sql))
            .fetch_all(&mut connection)
            .await
            .unwrap();
        rows.extend(more);
    }
    collect(rows)
}

/// Collects the lines by table. Conditions of partial indexes lose the type names and parentheses that PostgreSQL
/// adds.
fn collect(rows: Vec<(String, String)>) -> Schema {
    let mut schema = Schema::new();
    for (table, line) in rows
        .into_iter()
        .filter(|(table, _)| !table.starts_with("_sqlx"))
    {
        let line = line
            .replace("::text", "")
            .replace("= ANY (ARRAY[", "IN (")
            .replace("])", ")");
        let line = match line.split_once(" where ") {
            Some((index, condition)) => {
                format!("{index} where {}", condition.replace(['(', ')'], ""))
            }
            None => line,
        };
        schema.entry(table).or_default().push(line);
    }
    for lines in schema.values_mut() {
        lines.sort();
    }
    schema
}

/// Query for the columns of SQLite. SQLite reports that an `INTEGER PRIMARY KEY` may be NULL, which it never is.
const SQLITE_COLUMNS: &str = "SELECT t.name, 'column ' || c.name || CASE WHEN c.\"notnull\" = 1 \
     OR (c.pk > 0 AND c.type = 'INTEGER') THEN ' not null' ELSE '' END || ' ' || CASE c.type WHEN 'INTEGER' THEN 'bigint' \
     WHEN 'BLOB' THEN 'bytes' WHEN 'TEXT' THEN CASE WHEN c.name LIKE '%\\_at' ESCAPE '\\' \
     OR c.name IN ('until', 'run_after', 'lease_until', 'at', 'since') THEN 'time' ELSE 'text' END ELSE lower(c.type) END \
     FROM sqlite_schema t JOIN pragma_table_info(t.name) c WHERE t.type = 'table' AND t.name NOT LIKE 'sqlite\\_%' ESCAPE '\\' \
     UNION ALL SELECT t.name, 'primary key (' || (SELECT group_concat(name, ', ') FROM (SELECT name \
     FROM pragma_table_info(t.name) WHERE pk > 0 ORDER BY pk)) || ')' FROM sqlite_schema t \
     WHERE t.type = 'table' AND t.name NOT LIKE 'sqlite\\_%' ESCAPE '\\'";
const POSTGRES_COLUMNS: &str = "SELECT table_name::text, 'column ' || column_name || \
     CASE WHEN is_nullable = 'NO' THEN ' not null' ELSE '' END || ' ' || CASE data_type WHEN 'bytea' THEN 'bytes' \
     WHEN 'timestamp with time zone' THEN 'time' ELSE data_type END \
     FROM information_schema.columns WHERE table_schema = 'public' UNION ALL \
     SELECT k.table_name::text, 'primary key (' || string_agg(k.column_name, ', ' ORDER BY k.ordinal_position) || ')' \
     FROM information_schema.table_constraints c JOIN information_schema.key_column_usage k USING (constraint_name) \
     WHERE c.table_schema = 'public' AND c.constraint_type = 'PRIMARY KEY' GROUP BY k.table_name";

const SQLITE_REFERENCES: &str = "SELECT t.name, 'reference ' || f.\"from\" || ' to ' || f.\"table\" || '.' || f.\"to\" \
     || ' ' || lower(f.on_delete) FROM sqlite_schema t JOIN pragma_foreign_key_list(t.name) f WHERE t.type = 'table'";
const POSTGRES_REFERENCES: &str = "SELECT k.table_name::text, 'reference ' || k.column_name || ' to ' || u.table_name \
     || '.' || u.column_name || ' ' || lower(r.delete_rule) FROM information_schema.referential_constraints r \
     JOIN information_schema.key_column_usage k USING (constraint_name) \
     JOIN information_schema.constraint_column_usage u USING (constraint_name)";

/// Query for the indexes of SQLite. Indexes of primary keys are left out, and those of unique keys have no name.
/// SQLite does not report the expression of an index.
const SQLITE_INDEXES: &str = "SELECT t.name, CASE WHEN i.\"unique\" = 1 THEN 'unique ' ELSE 'index ' END \
     || CASE WHEN i.origin = 'c' THEN i.name || ' ' ELSE '' END \
     || '(' || (SELECT group_concat(name, ', ') FROM (SELECT COALESCE(name, 'expression') AS name \
     FROM pragma_index_info(i.name) ORDER BY seqno)) || ')' \
     || CASE WHEN i.partial = 1 THEN ' where ' || (SELECT substr(sql, instr(sql, ' WHERE ') + 7) FROM sqlite_schema \
     WHERE name = i.name) ELSE '' END \
     FROM sqlite_schema t JOIN pragma_index_list(t.name) i WHERE t.type = 'table' AND i.origin <> 'pk'";
const POSTGRES_INDEXES: &str = "SELECT t.relname::text, CASE WHEN i.indisunique THEN 'unique ' ELSE 'index ' END \
     || CASE WHEN c.oid IS NULL THEN n.relname || ' ' ELSE '' END \
     || '(' || (SELECT string_agg(CASE i.indkey[k - 1] WHEN 0 THEN 'expression' \
     ELSE pg_get_indexdef(i.indexrelid, k, true) END, ', ' ORDER BY k) \
     FROM generate_series(1, i.indnkeyatts) k) || ')' || COALESCE(' where ' || pg_get_expr(i.indpred, i.indrelid), '') \
     FROM pg_index i JOIN pg_class t ON t.oid = i.indrelid JOIN pg_class n ON n.oid = i.indexrelid \
     LEFT JOIN pg_constraint c ON c.conindid = i.indexrelid AND c.contype = 'u' \
     WHERE t.relnamespace = 'public'::regnamespace AND NOT i.indisprimary";
