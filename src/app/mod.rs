//! Builds everything from the configuration.

use crate::config::server::ServerConfig;

/// Runs the server until it is told to stop.
#[expect(clippy::unused_async, reason = "the room that replaces this body waits")]
pub async fn serve(config: ServerConfig) -> anyhow::Result<()> {
    drop(config);
    anyhow::bail!("this build has no server in it")
}
