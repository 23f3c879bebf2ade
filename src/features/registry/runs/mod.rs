//! Runs of this server and the registry.
//!
//! | File | Content |
//! |---|---|
//! | `go_names.rs` | names of Go modules that `go` must not show to the public checksum database |
//! | `uses.rs` | versions that plans use, in the database |
//! | `notes.rs` | deprecated and taken-down versions, for comments |

mod go_names;
mod notes;
mod uses;

use lockkeeper_registry::names::{NameKind, RegistryName};
use lockkeeper_registry::versions::VersionKey;

use self::go_names::go_names;
pub(crate) use self::notes::{module_notes, refused_apply};
use self::uses::MAX_USES;
pub use self::uses::{ModuleUse, VersionUse};
use super::readers::Namespaces;
use crate::context::RunCtx;
use crate::model::{OwnerName, PlanId, Pull};
use crate::workflow::{InstalledModule, RegistryAccess, RunReader, RunRegistry};

/// Gives a run access to the registry, until the returned value is dropped. Returns `None` if runs do not use the
/// registry.
///
/// A run reads public names, and those of the owner who has claimed its repository. The author of a pull request from a
/// fork need not be one of the people of that owner, so its runs read public names alone.
pub(crate) async fn access_of_run(
    ctx: &RunCtx,
    pull: &Pull,
) -> Result<Option<RegistryAccess>, sqlx::Error> {
    let registry = &ctx.runs.registry;
    if !registry.is_open() {
        return Ok(None);
    }
    let owner = reading_owner(ctx, pull).await?;
    let go_names = go_names(&ctx.store, owner.as_ref()).await?;
    Ok(registry.enter(RunReader { owner }, go_names))
}

/// Returns the owner whose names the runs of a pull request read, beside public ones.
async fn reading_owner(ctx: &RunCtx, pull: &Pull) -> Result<Option<OwnerName>, sqlx::Error> {
    if pull.is_fork() {
        return Ok(None);
    }
    ctx.store.claim_owner_of(&pull.at.repo).await
}

/// Lists the deprecated and taken-down versions that a plan uses, as far as its runs may read their names. The list of
/// modules of a plan is as hostile as its code: it can name what its author must not learn about.
pub(crate) async fn plan_notices(
    ctx: &RunCtx,
    pull: &Pull,
    plan: PlanId,
) -> Result<Vec<VersionUse>, sqlx::Error> {
    let mut uses = ctx.store.registry_plan_notices(plan).await?;
    if uses.is_empty() {
        return Ok(uses);
    }
    let owner = reading_owner(ctx, pull).await?;
    let namespaces = Namespaces::read(&ctx.store).await?;
    uses.retain(|used| match namespaces.of(&used.key.name()) {
        Some(access) => access.is_read_by_run(owner.as_ref()),
        // Its name was public while another deployment was accepted for it. Runs learn of the takedown, as clients do.
        None => used.notice.takedown.is_some(),
    });
    Ok(uses)
}

/// Returns the versions of the registry among the modules that a plan uses. The error is a clause that says why the plan
/// must not be applied: nobody knows whether it uses something that was taken down.
pub(crate) fn used_versions(
    registry: &RunRegistry,
    installed: &Result<Vec<InstalledModule>, String>,
) -> Result<Vec<VersionKey>, String> {
    let Some(host) = registry.host() else {
        return Ok(Vec::new());
    };
    let installed = installed.as_ref().map_err(|why| {
        format!(
            "the modules that it uses cannot be determined, because `modules.json` cannot be read: {why}"
        )
    })?;
    let used = installed
        .iter()
        .filter_map(|module| version_of(host, module));
    let used: Vec<VersionKey> = used.collect();
    if used.len() > MAX_USES {
        return Err(format!(
            "it uses more than {MAX_USES} versions of modules of the registry"
        ));
    }
    Ok(used)
}

/// Returns the version of the registry that an installed module is; `None` if it is from elsewhere. A name or number
/// that the registry cannot have is from elsewhere too.
fn version_of(host: &str, module: &InstalledModule) -> Option<VersionKey> {
    let (source_host, name) = module.source.split_once('/')?;
    if !source_host.eq_ignore_ascii_case(host) {
        return None;
    }
    let name = RegistryName::new(NameKind::Module, name).ok()?;
    VersionKey::new(name, &module.version).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn registry() -> RunRegistry {
        let log = "log.example.com".parse().unwrap();
        RunRegistry::new("mods.example.com", &log)
    }

    #[test]
    fn only_modules_with_the_host_of_the_registry_count() {
        let registry = registry();
        let used = |source: &str, version: &str| {
            let module = InstalledModule {
                source: source.to_owned(),
                version: version.to_owned(),
            };
            let used = used_versions(&registry, &Ok(vec![module])).unwrap();
            used.first().map(ToString::to_string)
        };
        for source in [
            "mods.example.com/acme/vpc/aws",
            "Mods.Example.com/Acme/vpc/aws",
        ] {
            assert_eq!(
                used(source, "1.2.3").as_deref(),
                Some("module acme/vpc/aws 1.2.3"),
                "{source}"
            );
        }
        for (source, version) in [
            ("registry.terraform.io/acme/vpc/aws", "1.2.3"),
            ("acme/vpc/aws", "1.2.3"),
            ("mods.example.com.evil/acme/vpc/aws", "1.2.3"),
            ("mods.example.com/acme/vpc", "1.2.3"),
            ("mods.example.com/acme/vpc/aws", "latest"),
            ("mods.example.com", "1.2.3"),
            ("", ""),
        ] {
            assert_eq!(used(source, version), None, "{source} {version}");
        }
    }

    #[test]
    fn a_list_that_cannot_be_read_stops_the_plan_only_with_a_registry() {
        let unread = Err("it is not a regular file".to_owned());
        let why = used_versions(&registry(), &unread).unwrap_err();
        assert!(why.ends_with("it is not a regular file"), "{why}");
        assert_eq!(used_versions(&RunRegistry::default(), &unread), Ok(vec![]));
    }
}
