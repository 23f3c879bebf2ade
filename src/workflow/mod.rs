//! Runs the steps of a project: chooses program, environment and checkout, and keeps the plan file. Decisions about
//! pull requests are made in `features/`.

mod artifacts;
mod checkout_parts;
mod checkouts;
mod cli_config;
mod data_dir;
mod environment;
mod facts;
mod file_owner;
mod hooks;
mod inside;
mod installed_modules;
mod kept_plan;
mod lock_file;
mod mirror_leases;
mod output;
mod policies;
mod provider_cache;
mod run_registry;
mod running;
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
pub use facts::PullFacts;
pub use hooks::HookPlace;
pub use installed_modules::{InstalledModule, parse_manifest};
pub use mirror_leases::MirrorLeases;
pub use output::{OutputHub, RunOutput};
pub use policies::{PolicySources, PolicyWork, ReadyPolicies};
pub use provider_cache::{CacheSession, InitPlace, Linked, PackagePath, PackageUse, ProviderCache};
pub use run_registry::{RegistryAccess, RunPlaces, RunReader, RunRegistry};
pub use running::ProgramObserver;
pub use sandbox::RunSandbox;
pub use shown::ResourceList;
pub use steps::{CommentWords, MultienvError, StepError, StepFailure, StepName};
pub use terraform::{
    PlanMade, PlanText, ProfileSetup, RunError, StateWork, Terraform, ToolContext,
};
pub use tools::{
    ChosenBy, DownloadError, DownloadSettings, DownloadUse, Downloads, FoundConftest, FoundTool,
    InvalidKey, Platform, Sources, ToolError, Tools, TrustedKeys, VersionChoice, VersionSources,
};
pub use uses::PullInUse;
