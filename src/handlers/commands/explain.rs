//! Runs `explain`: it says what a plan would do and why. It runs, locks and promises nothing.

use super::CommandCx;
use super::projects::{self, Explained};
use crate::command::ExplainCommand;
use crate::handlers::reply::Reply;
use crate::queue::JobError;
use crate::render::Body;

pub(super) async fn run(cx: &CommandCx<'_>, command: &ExplainCommand) -> Result<Reply, JobError> {
    Ok(match projects::explain(cx, &command.target).await? {
        Explained::Answer(explanation, warnings) => {
            Reply::new(Body::Explained(explanation, warnings))
        }
        Explained::Refused(reply) => reply,
    })
}
