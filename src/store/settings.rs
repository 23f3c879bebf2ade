//! Values that one server creates once and that every replica shares.

use super::{Result, Store, execute, on_tx};

impl Store {
    /// Returns the value stored under `key`. If there is none yet, stores and returns `fresh`.
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
