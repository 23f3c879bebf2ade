//! The jobs that write to the forge, one file each.

mod add_reaction;
mod annotate_findings;
mod post_comment;
mod remove_duplicates;
mod repeat_status;
mod set_status;

pub use add_reaction::AddReaction;
pub use annotate_findings::AnnotateFindings;
pub use post_comment::PostComment;
pub(crate) use post_comment::posted_at;
pub use remove_duplicates::RemoveDuplicates;
pub use repeat_status::RepeatStatus;
pub use set_status::SetStatus;
