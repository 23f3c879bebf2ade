//! Builds the services of a replica from the configuration.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::os::unix::fs::{DirBuilderExt, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tokio_util::sync::CancellationToken;

use super::accounts::web_accounts;
use super::environment::{Environments, Setups};
use super::sandbox::{self, Boundaries};
use super::webhooks::webhooks;
use crate::claims::CredentialStore;
use crate::clock::{Clock, Ids};
use crate::config::server::{
    GitHubCredentials, GithubConfig, MirrorUrl, OwnRegistry, PlanFiles, RunConfig, SecretSource,
    ServerConfig,
};
use crate::context::{
    AccountsMirror, Live, PackagePlace, RegistryParts, RunServices, ServerCtx, ServerServices,
    Services, Settings, Stops,
};
use crate::features::accounts::{ACCOUNTS_DIR, open_flags};
use crate::features::audit;
use crate::features::registry::{FILLS_DIR, PACKAGES_DIR};
use crate::forges::github::{GitHub, GitHubAuth, GitHubEndpoints, Timeouts, TokenSource};
use crate::forges::{Forge, Forges, Memberships};
use crate::git::{AUTHORITY_VARIABLES, Git, GitSettings, PROXY_VARIABLES};
use crate::kit::term::database::database_url;
use crate::leases::{Leases, SharedGates};
use crate::model::{DataDirId, RunUser};
use crate::objects::RemoteObjects;
use crate::process::{LeaseHeartbeat, Supervisor};
use crate::queue::{LEASE, RunPool, WakeUp};
use crate::seal::keyring;
use crate::secret::Secret;
use crate::store::Store;
use crate::sync::{self, Syncer};
use crate::telemetry::{Metrics, Panics};
use crate::workflow::{
    Artifacts, Checkouts, ChildEnvironment, DownloadSettings, Downloads, MirrorLeases, OutputHub,
    ProviderCache, RunRegistry, Sources, Terraform, Tools, TrustedKeys,
};

/// Inputs of the services that do not come from the configuration.
pub struct ServiceInputs {
    pub clock: Arc<dyn Clock>,
    /// Source of new identifiers.
    pub ids: Arc<dyn Ids>,
    /// The `lockkeeper` executable, which also supervises runs.
    pub exe: PathBuf,
    pub environment: BTreeMap<String, String>,
    /// Panics of this process. No other replica notices them.
    pub panics: Arc<Panics>,
    /// Name of this replica. No other replica has it, not even an earlier one on the same machine.
    pub name: String,
}

/// Opens the database and builds the services.
pub async fn build(config: &ServerConfig, parts: ServiceInputs) -> anyhow::Result<Arc<ServerCtx>> {
    let storage = &config.storage;
    own_dir(&storage.data_dir).with_context(|| {
        format!(
            "cannot create the data directory {} (--data-dir)",
            storage.data_dir.display()
        )
    })?;
    if config.repos.lfs {
        let git = Git::new(GitSettings::new(
            &storage.data_dir,
            Environments::of(config, &parts)?.plans.path(),
        ));
        let version = git
            .lfs_version()
            .await
            .context("cannot use --checkout-lfs")?;
        tracing::info!(version, "Checkouts contain LFS files");
    }
    let url = database_url(&storage.database, "--database-url")?;
    let store = Store::open(&url, Arc::clone(&parts.clock), Arc::clone(&parts.ids));
    let store = store
        .await
        .with_context(|| format!("cannot open the database {url} (--database-url)"))?;
    build_on(config, parts, store).await
}

/// Builds the services on an open database.
pub async fn build_on(
    config: &ServerConfig,
    parts: ServiceInputs,
    store: Store,
) -> anyhow::Result<Arc<ServerCtx>> {
    let storage = &config.storage;
    let metrics = Metrics::default();
    let keys = storage
        .encryption_keys
        .as_deref()
        .map(keyring)
        .transpose()?
        .map(Arc::new);
    let audit = audit::files(storage, keys.clone())?;
    let credentials = CredentialStore::new(store.clone(), Arc::clone(&parts.ids), keys.clone());
    let clients = clients(config, &parts, &metrics, &credentials, &store)?;
    let webhooks = webhooks(config, &clients);
    let forges = Forges::new(clients.into_iter().map(|client| client as Arc<dyn Forge>));
    let environments = Environments::of(config, &parts)?;
    let tools = tools(config, &parts, &environments.plans)?;
    let boundaries =
        Boundaries::detect(config, &parts, (&environments.plans, tools.dirs())).await?;
    let settings_of_git = |dirs: &[&str]| {
        let git = GitSettings {
            sandbox: boundaries.of_git(&environments.plans, dirs),
            hold: Some(git_hold(&storage.data_dir)),
            ..GitSettings::new(&storage.data_dir, environments.plans.path())
        };
        reaching_hosts(git, &parts.environment)
    };
    let git = settings_of_git(&["mirrors", "checkouts"]);
    // No git that reads the repositories of others can read the accounts.
    let git_of_accounts = settings_of_git(&[ACCOUNTS_DIR]);
    // No git that reads repositories of strangers can read the mirrors.
    let open_registry = |own: OwnRegistry| {
        let remote = own.packages.as_ref();
        let remote = remote.map(|url| RemoteObjects::open(url, &parts.environment));
        anyhow::Ok(RegistryParts {
            packages: PackagePlace {
                dir: storage.data_dir.join(PACKAGES_DIR),
                remote: remote
                    .transpose()
                    .context("cannot use the store of packages (--registry-store)")?,
                metrics: metrics.clone(),
            },
            config: own,
            keys: keys.clone(),
            git: settings_of_git(&[FILLS_DIR]),
            scratch: storage.data_dir.join(FILLS_DIR),
        })
    };
    let registry = config.registry.own.clone().map(open_registry).transpose()?;
    let setups = environments.setups(&boundaries)?;
    sandbox::log_ignored_git_config(&setups.plans);
    let of_registry = registry.as_ref().map(|_| FILLS_DIR);
    for name in ["mirrors", "checkouts", ACCOUNTS_DIR]
        .into_iter()
        .chain(of_registry)
    {
        own_dir(&storage.data_dir.join(name))
            .context("cannot create a directory in the data directory (--data-dir)")?;
    }
    let (clock, ids) = (Arc::clone(&parts.clock), Arc::clone(&parts.ids));
    let leases = Leases::new(
        store.clone(),
        clock,
        ids,
        parts.name.clone(),
        metrics.clone(),
    );
    let closing = CancellationToken::new();
    let mirrors = sync::SyncerDependencies {
        data_dir_id: data_dir_id(config, &parts)?,
        store: store.clone(),
        git: Git::new(GitSettings {
            filter: config.repos.mirror_filter,
            ..git
        }),
        forges: forges.clone(),
        clock: Arc::clone(&parts.clock),
        leases: leases.clone(),
        lease_time: config.sync.lease_timeout,
        fetch_time: config.sync.fetch_timeout,
        metrics: metrics.clone(),
        closing: closing.clone(),
    };
    let (syncer, checkouts) = checkouts(config, mirrors);
    let heartbeat = heartbeat(&store);
    let runs = RunServices {
        artifacts: plan_store(&storage.plan_files, &store)
            .context("cannot use the directory of plan files")?,
        terraform: terraform(config, &parts, tools, setups, heartbeat.clone()),
        pool: pool(&config.runs),
        hub: OutputHub::default(),
        registry: match &config.registry.own {
            Some(own) => RunRegistry::new(&own.host, &own.name),
            None => RunRegistry::default(),
        },
        interrupt: CancellationToken::new(),
    };
    let server = ServerServices {
        syncer,
        leases,
        audit,
        panics: Arc::clone(&parts.panics),
        git_of_accounts,
        accounts_served: Arc::default(),
        account_batch: config.accounts.sequence_batch,
        accounts_mirror: config
            .accounts
            .mirror
            .clone()
            .map(|config| AccountsMirror::new(config, scratch(&storage.data_dir))),
        flag_store: flag_store(config, &parts, &store).await?,
        registry,
    };
    let services = Services {
        authz_environment: runs.terraform.plans.environment.clone(),
        checkouts,
        credentials,
        memberships: Memberships::default(),
        wake_up: WakeUp::default(),
        mirror_wake_up: WakeUp::default(),
        registry_wake_up: WakeUp::default(),
        stops: Stops::default(),
        heartbeat,
        metrics,
        started_at: parts.clock.now(),
        closing,
        live: Live::new(
            Settings::new(config, web_accounts(config, parts.clock.now())?),
            parts.clock.now(),
        ),
        clock: parts.clock,
        ids: parts.ids,
        webhooks,
        forges,
    };
    Ok(Arc::new(ServerCtx::new(store, services, runs, server)))
}

/// Opens the database with the reviewed flags of accounts, if it is another one.
async fn flag_store(
    config: &ServerConfig,
    parts: &ServiceInputs,
    server: &Store,
) -> anyhow::Result<Option<Store>> {
    let Some(database) = &config.accounts.reviewed_flags else {
        return Ok(None);
    };
    let url = database_url(database, "--reviewed-flags-url")?;
    let (clock, ids) = (Arc::clone(&parts.clock), Arc::clone(&parts.ids));
    open_flags(&url, server, clock, ids).await.map(Some)
}

/// Returns the name of the data directory in the table of mirrors.
fn data_dir_id(config: &ServerConfig, parts: &ServiceInputs) -> anyhow::Result<DataDirId> {
    let data_dir = &config.storage.data_dir;
    own_dir(data_dir).context("cannot create the data directory (--data-dir)")?;
    sync::data_dir_id(data_dir, &parts.name).context("the data directory (--data-dir) has no name")
}

/// Builds the syncer, which keeps mirrors in sync, and the checkouts that are made from the mirrors.
fn checkouts(config: &ServerConfig, mirrors: sync::SyncerDependencies) -> (Syncer, Checkouts) {
    let (git, clock) = (mirrors.git.clone(), Arc::clone(&mirrors.clock));
    let forges = mirrors.forges.clone();
    let leases = MirrorLeases::new(
        mirrors.leases.clone(),
        mirrors.data_dir_id.to_string(),
        mirrors.lease_time,
    );
    let syncer = Syncer::new(mirrors);
    let checkouts = Checkouts::new(
        git,
        (&config.repos).into(),
        clock,
        leases,
        syncer.clone(),
        forges,
    );
    (syncer, checkouts)
}

fn pool(runs: &RunConfig) -> RunPool {
    let per_repo = runs.parallel_per_repo.map_or(usize::MAX, NonZeroUsize::get);
    RunPool::new(runs.parallel.get(), per_repo)
}

/// Makes a directory that only this account can open, because it will hold code, plans and the database.
pub(crate) fn own_dir(dir: &Path) -> std::io::Result<()> {
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
}

/// Returns a warning if other users can open the data directory, because it was mounted or created by somebody else.
/// The group of a user of runs (`--run-as`) needs to pass through it, so its execute bit causes no warning.
pub(super) fn open_to_others(dir: &Path, run_as: Option<RunUser>) -> Option<String> {
    let meta = std::fs::metadata(dir).ok()?;
    let of_runs = if run_as.is_some_and(|user| user.gid == meta.gid()) {
        0o010
    } else {
        0
    };
    let mode = meta.permissions().mode() & 0o7777 & !of_runs;
    (mode & 0o077 != 0).then(|| {
        let dir = dir.display();
        format!(
            "Other users of this machine can read the data directory {dir} (mode {mode:04o}), which contains code, \
             plans and outputs. Run `chmod 700 {dir}`"
        )
    })
}

/// Returns the directory of short-lived files, such as the files of a run or the key of an SSH login. A server that
/// starts deletes the files that an earlier one left there.
pub(super) fn scratch(data_dir: &Path) -> PathBuf {
    data_dir.join("tmp")
}

/// Returns the file that git keeps open while it runs. The next server of the data directory sees from it whether an
/// old git still runs.
pub(super) fn git_hold(data_dir: &Path) -> PathBuf {
    data_dir.join("git.lock")
}

/// Lets git reach other hosts by the proxy of the server, with the authorities that the server trusts.
fn reaching_hosts(mut git: GitSettings, environment: &BTreeMap<String, String>) -> GitSettings {
    let named = |names: &[&'static str]| -> Vec<(OsString, OsString)> {
        let found = names.iter().filter_map(|name| {
            let value = environment.get(*name)?;
            Some((OsString::from(name), OsString::from(value)))
        });
        found.collect()
    };
    // Git reads other variables than the server.
    let authorities: Vec<(OsString, OsString)> = AUTHORITY_VARIABLES
        .iter()
        .filter_map(|(name, instead)| {
            let value = environment
                .get(*name)
                .or_else(|| environment.get(*instead))?;
            Some((OsString::from(name), OsString::from(value)))
        })
        .collect();
    let paths = authorities.iter().map(|(_, path)| PathBuf::from(path));
    git.sandbox = git.sandbox.map(|sandbox| sandbox.reads(paths));
    git.env.extend(named(PROXY_VARIABLES));
    git.env.extend(authorities);
    git
}

fn plan_store(place: &PlanFiles, store: &Store) -> anyhow::Result<Artifacts> {
    match place {
        PlanFiles::Database { limit } => Ok(Artifacts::in_database(store.clone(), *limit)),
        PlanFiles::Directory(dir) => {
            own_dir(dir)?;
            Ok(Artifacts::in_directory(dir)?)
        }
    }
}

/// Prepares the connections to all hosts of GitHub, in the order of the configuration.
fn clients(
    config: &ServerConfig,
    parts: &ServiceInputs,
    metrics: &Metrics,
    credentials: &CredentialStore,
    store: &Store,
) -> anyhow::Result<Vec<Arc<GitHub>>> {
    let connect = |github| -> anyhow::Result<Arc<GitHub>> {
        let client = connection(github, &parts.clock)?
            .counting(metrics.clone())
            .with_gates(Arc::new(SharedGates::new(store.clone())))
            .with_access(
                Arc::new(credentials.clone()),
                scratch(&config.storage.data_dir),
            );
        Ok(Arc::new(client))
    };
    config.github.iter().map(connect).collect()
}

fn connection(github: &GithubConfig, clock: &Arc<dyn Clock>) -> anyhow::Result<GitHub> {
    let endpoints = GitHubEndpoints::new(github.host.as_str(), Some(github.api_url.clone()))
        .with_context(|| {
            format!(
                "cannot use the address of {} (--gh-hostname, --gh-api-url, --gh-hosts-file)",
                github.host
            )
        })?;
    let auth = match &github.auth {
        GitHubCredentials::Token { user, token } => GitHubAuth::Token {
            user: Some(user.clone()),
            token: match token {
                SecretSource::Inline(token) => TokenSource::Fixed(token.clone()),
                SecretSource::File(path) => TokenSource::File(path.clone()),
            },
        },
        GitHubCredentials::App {
            id,
            key,
            installation,
            slug: _,
        } => GitHubAuth::App {
            app_id: *id,
            key: read_secret(key)?,
            installation: *installation,
        },
    };
    let client = GitHub::new(endpoints, auth, Arc::clone(clock), Timeouts::default())
        .with_context(|| format!("cannot use the credentials for {}", github.host))?;
    Ok(match github.write_pause {
        Some(pause) => client.with_pause_between_writes(pause),
        None => client,
    })
}

fn read_secret(source: &SecretSource) -> anyhow::Result<Secret> {
    match source {
        SecretSource::Inline(secret) => Ok(secret.clone()),
        SecretSource::File(path) => {
            let text = std::fs::read_to_string(path)
                .with_context(|| format!("cannot read {}", path.display()))?;
            Ok(Secret::new(&text))
        }
    }
}

/// Time between the notice to runs that they have to stop and the moment in which another server may take over the
/// work.
const TIME_TO_STOP: Duration = Duration::from_secs(5);

/// Returns the heartbeat of runs. A server with a database of its own needs none: no other server can take over work.
fn heartbeat(store: &Store) -> LeaseHeartbeat {
    if store.is_shared() {
        LeaseHeartbeat::every(LEASE.saturating_sub(TIME_TO_STOP))
    } else {
        LeaseHeartbeat::unneeded()
    }
}

fn terraform(
    config: &ServerConfig,
    parts: &ServiceInputs,
    tools: Tools,
    setups: Setups,
    heartbeat: LeaseHeartbeat,
) -> Terraform {
    let data_dir = &config.storage.data_dir;
    let cache =
        || ProviderCache::new(data_dir, Arc::clone(&parts.clock)).of_user(config.sandbox.run_as);
    Terraform {
        tools,
        providers: config.terraform.provider_cache.then(cache),
        plans: setups.plans,
        applies: setups.applies,
        profiles: setups.profiles,
        supervisor: Supervisor {
            exe: parts.exe.clone(),
            grace: config.runs.shutdown_grace,
            heartbeat,
        },
        scratch: scratch(data_dir),
    }
}

/// Finds and downloads programs, and warns if one of them is missing that policies need.
fn tools(
    config: &ServerConfig,
    parts: &ServiceInputs,
    environment: &ChildEnvironment,
) -> anyhow::Result<Tools> {
    let tools = search(config, parts, environment.clone())?;
    let repos = &config.repo_rules.repos;
    if !repos.has_idle_policies()
        && let Some(warning) = tools.warn_without_conftest(&repos.policies(), environment)
    {
        tracing::warn!("{warning}");
    }
    Ok(tools)
}

/// Searches and downloads programs. A program that was downloaded once stays available even if `--tf-bin-dir` is set.
fn search(
    config: &ServerConfig,
    parts: &ServiceInputs,
    environment: ChildEnvironment,
) -> anyhow::Result<Tools> {
    let downloaded = config.storage.data_dir.join("bin");
    let dirs = [
        config.terraform.bin_dir.as_deref().unwrap_or(&downloaded),
        &downloaded,
    ];
    let Some(mirrors) = &config.terraform.downloads else {
        return Ok(Tools::new(&dirs, environment));
    };
    let url = |mirror: &Option<MirrorUrl>| mirror.as_ref().map(|mirror| mirror.0.clone());
    let sources = Sources::new(
        url(&mirrors.terraform).as_ref(),
        url(&mirrors.opentofu).as_ref(),
    );
    let settings = DownloadSettings::new(downloaded.clone(), sources);
    let downloads = Downloads::new(settings, TrustedKeys::official(), Arc::clone(&parts.clock));
    let downloads =
        downloads.context("cannot download programs (--tf-download=false turns downloads off)")?;
    Ok(Tools::with_downloads(&dirs, environment, downloads))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn git_reaches_hosts_as_the_server_does() {
        let environment = [
            ("HTTPS_PROXY", "http://kim:hunter2@proxy.example.com:3128"),
            ("no_proxy", "git.example.com"),
            ("SSL_CERT_FILE", "/etc/acme/ca.pem"),
            ("GIT_SSL_CAPATH", "/etc/acme/certs"),
            ("SSL_CERT_DIR", "/etc/acme/more"),
            ("GIT_SSL_NO_VERIFY", "1"),
            ("AWS_SECRET_ACCESS_KEY", "secret"),
        ];
        let environment = environment.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let git = GitSettings::new("/srv/lockkeeper", "/usr/bin");
        let git = reaching_hosts(git, &environment.into());
        let variables: BTreeMap<_, _> = git.env.iter().cloned().collect();
        let expected = [
            ("PATH", "/usr/bin"),
            ("HTTPS_PROXY", "http://kim:hunter2@proxy.example.com:3128"),
            ("no_proxy", "git.example.com"),
            ("GIT_SSL_CAINFO", "/etc/acme/ca.pem"),
            ("GIT_SSL_CAPATH", "/etc/acme/certs"),
        ];
        let expected = expected.map(|(name, value)| (name.into(), value.into()));
        assert_eq!(variables, BTreeMap::from(expected));
    }

    #[test]
    fn a_data_directory_that_others_can_read_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let told = |mode| {
            std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(mode)).unwrap();
            open_to_others(dir.path(), None)
        };
        assert_eq!(told(0o700), None);
        let warning = told(0o755).unwrap();
        assert!(
            warning.contains("(mode 0755)") && warning.contains("`chmod 700 /"),
            "{warning}"
        );
    }
}
