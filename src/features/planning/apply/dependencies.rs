//! Checks `depends_on`: projects that have to be applied before (reference 3.9).
//!
//! A dependency is met if its plan of the same commit is applied or has no changes. A dependency that the pull
//! request does not concern does not count. A dependency with an unknown state is not met (P6).

use crate::features::planning::CommandCx;
use crate::features::planning::projects::Work;
use crate::features::replies::NewestRuns;
use crate::model::{PlanRecord, PlanState, ProjectKey, ProjectName};
use crate::queue::JobError;
use crate::render::UserText;

/// Returns the reason why a plan has to wait for others, if it has to. The reason names all of them.
pub(super) async fn unmet(
    cx: &CommandCx<'_>,
    work: &Work,
    plan: &PlanRecord,
) -> Result<Option<UserText>, JobError> {
    let Some(order) = work.order(plan) else {
        return Ok(Some(unread()));
    };
    if order.after.is_empty() {
        return Ok(None);
    }
    let plans = cx.ctx.store.plan_list(&cx.pull.at).await?;
    let newest_runs = NewestRuns::of(cx.ctx, &cx.pull.at, &plan.head).await?;
    let waits = |name: &ProjectName| {
        let is_it = |project: &ProjectKey| project.name.as_ref() == Some(name);
        let planned = plans.iter().find(|other| is_it(&other.project));
        let why = match planned {
            Some(other) if other.head == plan.head => planned_at_this_commit(other.state)?,
            Some(_) | None if newest_runs.any(is_it) => "has no plan of this commit",
            Some(_) => "has only a plan of an older commit",
            None => return None,
        };
        Some((name.clone(), format!("`{name}` {why}")))
    };
    let (names, waits): (Vec<ProjectName>, Vec<String>) =
        order.after.iter().filter_map(waits).unzip();
    Ok((!waits.is_empty()).then(|| text(cx, &names, &waits)))
}

fn planned_at_this_commit(state: PlanState) -> Option<&'static str> {
    match state {
        PlanState::Applied | PlanState::NoChanges => None,
        PlanState::Planned => Some("is not applied yet"),
        PlanState::Applying => Some("is being applied"),
        PlanState::ApplyFailed => Some("failed to apply"),
        PlanState::Discarded => Some("has no plan any more"),
    }
}

fn text(cx: &CommandCx<'_>, names: &[ProjectName], waits: &[String]) -> UserText {
    let word = cx.ctx.settings.comments.executable();
    let message = format!(
        "this project depends on {}, and {}. Nothing was applied.",
        if names.len() == 1 {
            "another one"
        } else {
            "others"
        },
        waits.join(", ")
    );
    let first = names
        .iter()
        .map(|name| format!("`{word} apply -p {name}`"))
        .collect::<Vec<_>>()
        .join(", ");
    UserText::new(
        message,
        [format!(
            "Apply its dependencies first ({first}), or apply everything in order: `{word} apply`."
        )],
    )
}

fn unread() -> UserText {
    let message = "the configuration file of the planned commit cannot be read, so the dependencies of this project \
                   are unknown. Nothing was applied.";
    UserText::new(
        message,
        ["Plan again. The new plan reads the file again.".to_owned()],
    )
}
