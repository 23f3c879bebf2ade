//! Values the server makes once and every replica shares.

use super::{Result, Store, execute, on_tx};

impl Store {
    /// The value kept under `key`; `fresh` is stored and returned when there is none yet.
    pub async fn setting_get_or_insert(&self, key: &str, fresh: &str) -> Result<String> {
        let mut tx = self.begin().await?;
        execute!(
            &mut tx,
            "INSERT INTO settings (key, value) VALUES ($1, $2) ON CONFLICT (key) DO NOTHING",
            key,
            fresh
        )?;
        let value = on_tx!(&mut tx, db => sqlx::query_scalar::<_, String>("SELECT value FROM settings WHERE key = $1")
            .bind(key).fetch_one(db))?;
        tx.commit().await.map(|()| value)
    }
}
