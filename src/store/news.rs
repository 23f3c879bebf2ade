//! News between replicas, so that nobody has to wait for the next poll: `NOTIFY` in the transaction that commits the
//! change, and one listening connection per replica.
//!
//! News carry no data and may be lost, for example in a proxy that shares connections between clients. Every listener
//! also polls the database, only later. SQLite has only one server, which notifies itself.

use std::fmt;
use std::str::FromStr;

use sqlx_postgres::PgListener;

use super::{DbPool, Result, Store, Tx};
use crate::model::RunId;

pub(super) const CHANNEL: &str = "lockkeeper";

/// Kinds of changes that a replica announces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// A job may be ready to be claimed.
    Jobs,
    /// A run has printed something, begun or ended.
    Run(RunId),
    /// Commands were requested to stop.
    Stops,
    /// An event of repositories was stored, or a sync of mirrors was requested.
    Mirrors,
    /// The log of the registry has a record that was made here.
    Registry,
}

impl fmt::Display for News {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Jobs => f.write_str("jobs"),
            Self::Run(run) => write!(f, "run {run}"),
            Self::Stops => f.write_str("stops"),
            Self::Mirrors => f.write_str("mirrors"),
            Self::Registry => f.write_str("registry"),
        }
    }
}

/// Error for a text that is not news of this release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownNews;

impl FromStr for News {
    type Err = UnknownNews;

    fn from_str(text: &str) -> Result<Self, UnknownNews> {
        match text.split_once(' ') {
            None if text == "jobs" => Ok(Self::Jobs),
            None if text == "stops" => Ok(Self::Stops),
            None if text == "mirrors" => Ok(Self::Mirrors),
            None if text == "registry" => Ok(Self::Registry),
            Some(("run", run)) => run.parse().map(Self::Run).map_err(|_| UnknownNews),
            _ => Err(UnknownNews),
        }
    }
}

/// Outcome of waiting for news.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewsOutcome {
    /// News that were received.
    News(News),
    /// The connection was lost for a while; any news may have been missed.
    Missed,
}

/// A connection that listens for news.
pub struct Listener(PgListener);

impl Listener {
    /// Waits for news, including those of this replica. An error means that there is no connection; the next call
    /// tries to connect again.
    pub async fn next(&mut self) -> Result<NewsOutcome> {
        loop {
            let Some(heard) = self.0.try_recv().await? else {
                return Ok(NewsOutcome::Missed);
            };
            if let Ok(news) = heard.payload().parse() {
                return Ok(NewsOutcome::News(news));
            }
        }
    }
}

impl Store {
    /// Listens for news from now on; `None` on a database that has only one server.
    pub async fn listen(&self) -> Result<Option<Listener>> {
        let DbPool::Postgres(pool) = &self.pool else {
            return Ok(None);
        };
        let mut listener = PgListener::connect_with(pool).await?;
        listener.listen(CHANNEL).await?;
        Ok(Some(Listener(listener)))
    }
}

/// Announces news to the other replicas when the transaction is committed, and only then.
pub(crate) async fn announce_in_tx(tx: &mut Tx, news: News) -> Result<()> {
    match tx {
        Tx::Sqlite(_) => Ok(()),
        Tx::Postgres(tx) => sqlx::query("SELECT pg_notify($1, $2)")
            .bind(CHANNEL)
            .bind(news.to_string())
            .execute(&mut **tx)
            .await
            .map(drop),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::CountingIds;

    #[test]
    fn news_survive_the_wire_and_others_are_passed_over() {
        for news in [
            News::Jobs,
            News::Stops,
            News::Mirrors,
            News::Registry,
            News::Run(RunId::next(&CountingIds::default())),
        ] {
            assert_eq!(news.to_string().parse(), Ok(news));
        }
        for text in ["", "run", "run x", "jobs of tomorrow", "moon"] {
            assert_eq!(text.parse::<News>(), Err(UnknownNews), "{text}");
        }
    }
}
