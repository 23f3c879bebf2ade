//! Runs `explain`: it says what a plan would do and why. It runs, locks and promises nothing.

use super::stop::Stop;
use super::{CommandCx, projects};
use crate::command::ExplainCommand;
use crate::features::replies::Reply;
use crate::render::Body;

pub(super) async fn run(cx: &CommandCx<'_>, command: &ExplainCommand) -> Result<Reply, Stop> {
    let (explanation, warnings) = Box::pin(projects::explain(cx, &command.target)).await?;
    Ok(Reply::new(Body::Explained(Box::new(explanation), warnings)))
}
