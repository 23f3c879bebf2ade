//! The module of the story: it is published from tags, deprecated and taken down, and another deployment gets all of it.

use std::time::Duration;

use anyhow::{Context, ensure};
use lockkeeper_registry::names::NamePrefix;
use lockkeeper_registry::records::{RecordNotice, TakedownKind};
use lockkeeper_registry::states::{BaseLocation, KnownVersion};
use lockkeeper_registry::versions::VersionKey;

use super::sample::{self, MODULE_REPO, SampleFile};
use super::script::DemoTeam;
use super::stage::DemoStage;
use crate::app::Server;
use crate::features::registry::{
    AddNamespace, Deprecated, ForeignVersions, JoinRequest, NamePatterns, NewInvitation,
    PeerExchange, PeerUrl, TakenDown, Visibility,
};
use crate::model::{Actor, Cause, CommitSha, Origin, OwnerName, Reason, RepoId};

/// Namespace of the modules of the team.
pub(super) const NAMESPACE: &str = "acme";
/// Name of the module, which follows from the name of its repository.
pub(super) const MODULE: &str = "acme/vpc/aws";
/// Names that the other deployment gets.
pub(super) const SHARED: &str = "module acme/*";

/// Reason of the deprecation.
pub(super) const DEPRECATED_BECAUSE: &str = "services run in the public subnet";
/// Reason of the takedown.
pub(super) const TAKEN_DOWN_BECAUSE: &str = "services can be reached from the internet";

/// Maintainer of the module.
pub(super) const MAINTAINER: &str = "emil";

/// A version of the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ModuleRelease {
    /// The version that is deprecated and taken down.
    First,
    /// The version to use instead.
    Fix,
}

impl ModuleRelease {
    /// Returns the number of the version.
    pub fn version(self) -> &'static str {
        match self {
            Self::First => "1.0.0",
            Self::Fix => "1.1.0",
        }
    }

    /// Returns the changed file and its new content, if the version has a commit of its own.
    pub fn change(self) -> Option<SampleFile> {
        match self {
            Self::First => None,
            Self::Fix => Some(sample::MODULE_FIX),
        }
    }

    /// Describes what the maintainer does.
    pub fn title(self) -> String {
        let version = self.version();
        let branch = if self.change().is_some() { "main " } else { "" };
        format!("{MAINTAINER}: git tag v{version} && git push origin {branch}v{version}")
    }

    fn key(self) -> anyhow::Result<VersionKey> {
        let key: VersionKey = format!("module {MODULE} {}", self.version())
            .parse()
            .context("the module of the demo")?;
        Ok(key)
    }
}

/// Gives the team a namespace, as `lockkeeper registry namespaces add` does. Returns what that command would print.
pub(super) async fn add_namespace(stage: &DemoStage, team: DemoTeam) -> anyhow::Result<String> {
    let owner = OwnerName::new(team.name()).context("the name of a team of the demo")?;
    let prefix: NamePrefix = format!("module {NAMESPACE}")
        .parse()
        .context("the namespace of the demo")?;
    let cause = cause(team.name());
    let store = &stage.server.ctx().store;
    let added = store
        .registry_namespace_add(
            &prefix,
            &owner,
            Visibility::Public,
            ForeignVersions::Refuse,
            &cause,
        )
        .await
        .context("cannot add a namespace")?;
    ensure!(
        matches!(added, AddNamespace::Added(_)),
        "the namespace was not added: {added:?}"
    );
    // Tags that the first look finds are old ones, which have no statuses.
    stage.server.tick("registry_tags").await?;
    Ok(format!("{prefix} of {owner} ({})", Visibility::Public))
}

/// Tags a commit of the module, after a push if the version has a commit of its own.
pub(super) async fn release(stage: &DemoStage, release: ModuleRelease) -> anyhow::Result<()> {
    let commit = match release.change() {
        Some(change) => {
            let change = sample::change(change);
            stage.github.push(MODULE_REPO, "main", &[change]).await?
        }
        None => newest_commit(stage).await?,
    };
    let tag = format!("v{}", release.version());
    stage.github.tag(MODULE_REPO, &tag, &commit).await?;
    // Servers look at the tags of a repository every five minutes, and after each sync of its mirror.
    let ctx = stage.server.ctx();
    let repo: RepoId = format!("github.com/{MODULE_REPO}").parse()?;
    ctx.store
        .registry_tag_repo_due(&repo, ctx.clock.now())
        .await
        .context("cannot look at the tags of the module")
}

/// Returns the newest commit of the module.
pub(super) async fn newest_commit(stage: &DemoStage) -> anyhow::Result<CommitSha> {
    let branches = stage.github.branches(MODULE_REPO).await?;
    let main = branches.get("main").cloned();
    main.context("the repository of the module has no branch `main`")
}

/// Deprecates the first version, as `lockkeeper registry deprecate` does.
pub(super) async fn deprecate(stage: &DemoStage) -> anyhow::Result<String> {
    let key = ModuleRelease::First.key()?;
    let notice = notice(DEPRECATED_BECAUSE)?;
    let exchange = exchange(&stage.server).await?;
    let deprecated = exchange
        .registry()
        .deprecate(&key, notice, &cause(MAINTAINER))
        .await
        .context("cannot deprecate a version")?;
    ensure!(
        matches!(deprecated, Deprecated::New(_)),
        "the version was not deprecated: {deprecated:?}"
    );
    changed(stage).await
}

/// Takes the first version down, as `lockkeeper registry takedown` does.
pub(super) async fn take_down(stage: &DemoStage) -> anyhow::Result<String> {
    let key = ModuleRelease::First.key()?;
    let notice = notice(TAKEN_DOWN_BECAUSE)?;
    let exchange = exchange(&stage.server).await?;
    let taken_down = exchange
        .registry()
        .take_down(&key, TakedownKind::Security, notice, &cause(MAINTAINER))
        .await
        .context("cannot take a version down")?;
    ensure!(
        matches!(taken_down, TakenDown::New(_)),
        "the version was not taken down: {taken_down:?}"
    );
    changed(stage).await
}

/// Lets the other deployment join, as `lockkeeper registry peers invite` and `join` do. Returns what the second command
/// would print.
pub(super) async fn join(stage: &DemoStage) -> anyhow::Result<String> {
    let (ours, theirs) = (
        exchange(&stage.server).await?,
        exchange(&stage.deployment).await?,
    );
    let shared: NamePatterns = SHARED.parse().context("the names that the demo shares")?;
    let cause = cause("demo");
    let invitation = NewInvitation {
        url: address(&stage.deployment)?,
        shares: shared.clone(),
        accepts: NamePatterns::default(),
        visibility: Visibility::Public,
        expires: Duration::from_hours(1),
    };
    let word = ours.invite(invitation, &cause).await;
    let word = word
        .context("cannot invite the other deployment")?
        .context("there are too many invitations")?;
    let request = JoinRequest {
        url: address(&stage.server)?,
        word,
        shares: NamePatterns::default(),
        accepts: shared,
        visibility: Visibility::Public,
    };
    let peer = theirs.join(request, &cause).await?;
    let peer = peer.context("the other deployment cannot join")?;
    Ok(format!("{} at {}: {}", peer.name, peer.url, peer.state))
}

/// Returns the owner of the namespace.
pub(super) async fn owner(stage: &DemoStage) -> anyhow::Result<String> {
    let namespaces = stage.server.ctx().store.registry_namespaces().await;
    let namespaces = namespaces.context("cannot read the namespaces")?;
    let namespace = namespaces
        .iter()
        .find(|namespace| namespace.prefix.as_str() == NAMESPACE);
    Ok(namespace.map_or_else(
        || "nobody".to_owned(),
        |namespace| namespace.owner.to_string(),
    ))
}

/// Returns the state of a version on a server, and that its package is elsewhere if it is.
pub(super) async fn state(server: &Server, release: ModuleRelease) -> anyhow::Result<String> {
    let known = known(server, release).await?;
    let elsewhere = known
        .content()
        .is_some_and(|located| located.base != BaseLocation::Here);
    Ok(if elsewhere {
        format!("{}, its package is elsewhere", known.state())
    } else {
        known.state().to_string()
    })
}

/// Returns the pull requests whose plans use a version.
pub(super) async fn uses(stage: &DemoStage, release: ModuleRelease) -> anyhow::Result<String> {
    let key = release.key()?;
    let store = &stage.server.ctx().store;
    let uses = store.registry_uses(&key.name(), Some(&key), 10).await;
    let uses = uses.context("cannot read the uses of the module")?;
    let mut pulls: Vec<String> = uses
        .iter()
        .map(|used| format!("#{}", used.pull.subject))
        .collect();
    pulls.dedup();
    Ok(if pulls.is_empty() {
        "no plan".to_owned()
    } else {
        pulls.join(", ")
    })
}

/// Opens the registry of a server.
async fn exchange(server: &Server) -> anyhow::Result<PeerExchange> {
    let exchange = PeerExchange::of(server.ctx()).await?;
    exchange.context("a server of the demo has no registry")
}

/// Returns the address of a server for other deployments.
fn address(server: &Server) -> anyhow::Result<PeerUrl> {
    let url: PeerUrl = format!("http://{}", server.address())
        .parse()
        .context("the address of a server of the demo")?;
    Ok(url)
}

/// Returns what the commands print about the first version after a change.
async fn changed(stage: &DemoStage) -> anyhow::Result<String> {
    let release = ModuleRelease::First;
    let known = known(&stage.server, release).await?;
    Ok(format!("{MODULE}@{}: {}", release.version(), known.state()))
}

/// Returns everything that a server knows of a version.
async fn known(server: &Server, release: ModuleRelease) -> anyhow::Result<KnownVersion> {
    let version = server.ctx().store.registry_version(&release.key()?).await;
    let version = version.context("cannot read a version")?;
    Ok(version.map(|version| version.known).unwrap_or_default())
}

fn notice(reason: &str) -> anyhow::Result<RecordNotice> {
    let reason = Reason::read(reason).context("a reason of the demo")?;
    Ok(RecordNotice {
        reason: reason.context("a reason of the demo is empty")?,
        replacement: Some(ModuleRelease::Fix.key()?),
    })
}

fn cause(login: &str) -> Cause {
    Cause::new(Actor::new(login, Origin::Cli), "the demo")
}
