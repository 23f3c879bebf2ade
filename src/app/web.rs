//! Sets up the web server of a replica: the endpoint of webhooks and the dashboard.

use std::sync::Arc;

use anyhow::Context;
use async_trait::async_trait;
use axum::Router;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::authz::{self, AuthzError, Decision, OutsideScope, Resource};
use crate::config::access::{Action, Identity, NetworkRequester};
use crate::config::server::{self, ServerConfig};
use crate::context::{Ctx, RegistryParts, ServerCtx};
use crate::features::accounts::{AccountSignIn, AccountsGit, FlagTable, WebPasswords};
use crate::features::registry::{
    MissParts, PeerExchange, PeerServer, Registry, RegistryPages, RegistryServer, RegistryUploads,
    RunModuleServer, open_misses,
};
use crate::features::{applications, locks, planning};
use crate::http;
use crate::kit::web::{Authority, Cancel, Cancelling, HandOverLocks, WebAuth, WebParts, WebState};
use crate::locks::{HandOver, HandOverOutcome};
use crate::model::{Actor, BranchName, CommandId, RepoId};

/// Routes of a server.
pub(super) struct WebRouters {
    /// Pages, the API, webhooks, and everything else that the server serves at its address.
    pub public: Router,
    /// Modules for runs, on a listener of their own; `None` if runs do not use the registry.
    pub runs: Option<Router>,
}

/// Builds all routes that a server serves at its address. Streams end when `closing` is cancelled.
pub async fn router(
    ctx: &Arc<ServerCtx>,
    config: &ServerConfig,
    closing: CancellationToken,
) -> anyhow::Result<Router> {
    Ok(routers(ctx, config, closing).await?.public)
}

/// Builds all routes. Streams end when `closing` is cancelled.
pub(super) async fn routers(
    ctx: &Arc<ServerCtx>,
    config: &ServerConfig,
    closing: CancellationToken,
) -> anyhow::Result<WebRouters> {
    let version = env!("CARGO_PKG_VERSION");
    let has_registry = ctx.server.registry.is_some();
    let parts = WebParts::load(&ctx.store, &config.web.public_url, version, has_registry)
        .await
        .context("cannot read the data of the dashboard from the database")?;
    let web = Arc::new(WebState {
        store: ctx.store.clone(),
        clock: Arc::clone(&ctx.clock),
        ids: Arc::clone(&ctx.ids),
        hub: ctx.runs.hub.clone(),
        public_url: config.web.public_url.clone(),
        auth: auth(config),
        hosts: config.web.hosts.clone(),
        accounts: Arc::clone(&ctx.settings.web_accounts),
        passwords: Arc::new(WebPasswords::new(ctx.store.clone())),
        trusted_proxies: config.web.trusted_proxies.clone(),
        executable: ctx.settings.comments.executable().to_owned(),
        hand_over: Arc::new(WebHandOver(Arc::clone(ctx))),
        cancel: Arc::new(WebCancel(Arc::clone(ctx))),
        credentials: ctx.credentials.clone(),
        authority: Arc::new(WebPermissions(Arc::clone(ctx))),
        shutting_down: closing,
        version: version.to_owned(),
        metrics: ctx.metrics.clone(),
        keep_runs: ctx.settings.retention.runs,
        periods: ctx.settings.periods,
        forges: ctx.settings.forge_hosts.clone(),
        mirror_wake_up: ctx.mirror_wake_up.clone(),
        repo_config: {
            let ctx = Arc::clone(ctx);
            Arc::new(move || ctx.live.file())
        },
        without_effect: {
            let ctx = Arc::clone(ctx);
            Arc::new(move || ctx.live.settings().without_effect())
        },
        policy_sets: {
            let ctx = Arc::clone(ctx);
            Arc::new(move || ctx.live.settings().repo_rules.repos.policies().sets)
        },
        parts,
    });
    let batch = ctx.server.account_batch;
    let flags = ctx.server.flag_store.as_ref().unwrap_or(&ctx.store);
    let flags = Arc::new(FlagTable::of(flags.clone()));
    let sign_in = AccountSignIn::new(Arc::clone(&web), ctx.store.clone(), batch, flags);
    let sign_in = Arc::new(sign_in);
    let (git, places) = (&ctx.server.git_of_accounts, &ctx.server.accounts_served);
    let git = AccountsGit::new(Arc::clone(&sign_in), git, places);
    let pages = http::router(Arc::clone(&web));
    let public = http::webhook_router(Ctx::clone(ctx)).merge(http::accounts_router(sign_in, git));
    let Some(parts) = &ctx.server.registry else {
        let public = public.merge(pages);
        return Ok(WebRouters { public, runs: None });
    };
    let of_registry = registry(ctx, &web, parts).await?;
    let public = public
        .merge(pages.layer(of_registry.pages.layer()))
        .merge(of_registry.public);
    Ok(WebRouters {
        public: http::with_go_imports(public, of_registry.server),
        runs: of_registry.runs,
    })
}

/// Routes of a server with a registry.
struct RegistryRouters {
    /// Routes for clients and uploads.
    public: Router,
    /// Routes of runs; `None` if runs do not use the registry.
    runs: Option<Router>,
    /// The registry for the pages.
    pages: RegistryPages,
    /// The registry for import paths of Go.
    server: Arc<RegistryServer>,
}

/// Opens the registry of modules, and builds its routes.
async fn registry(
    ctx: &ServerCtx,
    web: &Arc<WebState>,
    parts: &RegistryParts,
) -> anyhow::Result<RegistryRouters> {
    let RegistryParts {
        config,
        packages,
        keys,
        git,
        scratch,
    } = parts;
    let registry = Registry::open(
        ctx.store.clone(),
        keys.clone(),
        config.name.clone(),
        packages,
    );
    let registry = registry
        .await
        .context("cannot open the registry (--registry)")?
        .waking(ctx.registry_wake_up.clone());
    info!(
        name = registry.name().as_str(),
        key = %registry.verifier(),
        "The registry serves modules; GOSUMDB is its key"
    );
    let keys = keys.clone().context("the registry has no keys")?;
    let leases = ctx.server.leases.clone();
    let peers = PeerExchange::new(registry.clone(), keys, leases, config.into())?;
    let peers = Arc::new(peers);
    let registry = Arc::new(registry);
    let pages = RegistryPages::new(Arc::clone(&registry), Arc::clone(&peers), config);
    let of_peers = Arc::new(PeerServer::new(Arc::clone(&peers)));
    let misses = open_misses(MissParts {
        registry: Arc::clone(&registry),
        peers: Arc::clone(&peers),
        config: config.misses.clone(),
        git: git.clone(),
        mirrors: ctx.server.syncer.mirrors().clone(),
        scratch: scratch.clone(),
        leases: ctx.server.leases.clone(),
        metrics: ctx.metrics.clone(),
        closing: ctx.closing.clone(),
    });
    let misses =
        misses.context("cannot fetch modules from elsewhere (--registry-vcs-allowlist)")?;
    let server = RegistryServer::new(
        Arc::clone(web),
        (Arc::clone(&registry), peers, misses),
        &config.host,
        config.is_open,
    );
    let server = Arc::new(server);
    let uploads = RegistryUploads::new(registry, Arc::clone(&server));
    let runs = || {
        let runs = RunModuleServer::new(Arc::clone(&server), ctx.runs.registry.clone());
        http::run_registry_router(runs)
    };
    let runs = config.is_for_runs.then(runs);
    let public = http::registry_router(&server, Arc::new(uploads), of_peers);
    Ok(RegistryRouters {
        public,
        runs,
        pages,
        server,
    })
}

fn auth(config: &ServerConfig) -> Option<WebAuth> {
    match &config.web.auth {
        server::WebAccess::Open => None,
        server::WebAccess::Basic { username, password } => Some(WebAuth {
            user: username.clone(),
            password: password.clone(),
        }),
    }
}

/// Logs what the pages can be used for.
pub fn log_web_access(config: &ServerConfig) {
    let may = &config.permissions.web;
    match &config.web.auth {
        server::WebAccess::Basic { .. } => {
            info!(%may, "The pages and the API require a password (--web-allow)");
        }
        server::WebAccess::Open if may.is_empty() => info!(
            "The pages and the API do not require a password, so they are read-only and hide the output of runs; \
             --web-basic-auth turns on the rest"
        ),
        server::WebAccess::Open => {
            warn!(%may, "Anybody who can open the pages may make changes (--allow-anonymous-web)");
        }
    }
}

/// Hands locks over from pull requests, and notifies them.
struct WebHandOver(Arc<ServerCtx>);

#[async_trait]
impl HandOverLocks for WebHandOver {
    async fn hand_over(&self, request: &HandOver) -> Result<HandOverOutcome, sqlx::Error> {
        locks::hand_over_on_server(&self.0, request).await
    }
}

/// Cancels commands for the dashboard and the API. The reply of the cancelled command appears on the pull request.
struct WebCancel(Arc<ServerCtx>);

#[async_trait]
impl Cancel for WebCancel {
    async fn cancel(
        &self,
        id: CommandId,
        who: &Actor,
        force: bool,
    ) -> Result<Cancelling, sqlx::Error> {
        let cancelled = planning::cancel_command(&self.0, id, who, force).await?;
        Ok(
            match (
                cancelled.dropped.is_empty(),
                cancelled.interrupted.is_empty(),
                cancelled.spared.is_empty(),
            ) {
                (false, _, _) => Cancelling::Dropped,
                (_, false, _) => Cancelling::Interrupted,
                (_, _, false) => Cancelling::ApplyRunning,
                (true, true, true) => Cancelling::Over,
            },
        )
    }
}

/// Checks permissions with [`authz`], the one place that decides.
struct WebPermissions(Arc<ServerCtx>);

#[async_trait]
impl Authority for WebPermissions {
    async fn check(
        &self,
        who: &NetworkRequester,
        action: Action,
        on: &Resource<'_>,
    ) -> Result<Decision, AuthzError> {
        authz::check_from(&self.0, &who.who, who.remote.as_deref(), action, on).await
    }

    async fn within(
        &self,
        user: &str,
        on: &Resource<'_>,
    ) -> Result<Result<(), OutsideScope>, AuthzError> {
        authz::within(&self.0.store, &self.0.settings.web_accounts.now(), user, on).await
    }

    async fn default_branch(&self, repo: &RepoId) -> Result<BranchName, AuthzError> {
        Ok(applications::default_branch(&self.0, repo).await?)
    }

    fn offers(&self, who: &Identity, action: Action) -> bool {
        authz::offers(&self.0, who, action)
    }
}
