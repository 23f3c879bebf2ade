//! Runs the steps of a project: chooses program, environment and checkout, and keeps the plan file. Decisions about
//! pull requests are made in `handlers/`.

mod artifacts;
mod beneath;
mod checkout_parts;
mod checkouts;
mod data_dir;
mod environment;
mod facts;
mod hooks;
mod lend;
mod mirror_leases;
mod output;
mod provider_cache;
mod sandbox;
mod scratch;
mod shown;
mod state_lock;
mod steps;
mod terraform;
mod tools;
mod uses;

pub use artifacts::{ArtifactError, Artifacts, FoundPlanFile, Saved};
pub use checkout_parts::CheckoutParts;
pub use checkouts::{CheckedOut, CheckoutContents, CheckoutError, Checkouts, Source};
pub use environment::{ChildEnvironment, StageSetup};
pub use facts::Facts;
pub use hooks::HookPlace;
pub use mirror_leases::MirrorLeases;
pub use output::{OutputHub, RunOutput};
pub use provider_cache::{InitPlace, Linked, PackagePath, PackageUse, ProviderCache, Session};
pub use sandbox::RunSandbox;
pub use shown::Shown;
pub use steps::{CommentWords, MultienvError, StepError, StepFailure, StepName};
pub use terraform::{Place, PlanMade, PlanText, ProfileSetup, RunError, StateWork, Terraform};
pub use tools::{
    ChosenBy, DownloadError, DownloadSettings, DownloadUse, Downloads, InvalidKey, Keys, Platform,
    Sources, Tool, ToolError, Tools, VersionChoice, Wish,
};
pub use uses::InUse;
