//! Measures 100,000 accounts with 300,000 external IDs, 50,000 watches, 1,000,000 stars and 10,000,000 reviewed flags.

mod copy;
mod git_clients;
mod requests;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use lockkeeper::clock::{Clock as _, SystemClock};
use lockkeeper::features::accounts::{AccountsActor, AllUsers, LabelChanges};
use lockkeeper::git::LocalCopy;
use lockkeeper::model::{AccountId, Actor, Cause};
use lockkeeper::store::DatabaseUrl;
use lockkeeper_accounts::config_text::ConfigText;
use lockkeeper_accounts::external_ids::ExternalId;
use lockkeeper_accounts::objects::CommitPerson;
use lockkeeper_accounts::refs::ChangeNumber;
use sqlx::ConnectOptions as _;
use sqlx_sqlite::SqliteConnectOptions;

use crate::locks::{self, durable_postgres};
use crate::memory::Memory;
use crate::report::{Section, Table};
use crate::server::{self, Server};
use crate::stats::{Samples, ratio};

/// Maximum size of the note of an external ID in bytes.
const MAX_NOTE: u64 = 512 * 1024;
/// Number of flags of each account, all of them on two patch sets.
const FLAGS: u32 = 100;
/// Longest time for a server to check all accounts.
const CHECKED_WITHIN: Duration = Duration::from_mins(10);
/// Number of concurrent updates.
const TASKS: [u32; 2] = [1, 16];
/// Number of updates of each task, and of locks that it takes.
const UPDATES: u32 = 100;

/// Rows that the server makes of pull requests. `$1` is now.
const ADD_CHANGES: &str = "INSERT INTO pulls (repo, number, state, url, title, updated_at) \
     SELECT 'github.test/acme/r' || (n % 500), n, 'open', 'https://github.test/acme/r' || (n % 500) || '/pull/' || n, NULL, $1 \
     FROM (WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < 20000) SELECT n FROM s) AS s";
const ADD_PATCH_SETS: &str = "INSERT INTO patch_sets (change_number, number, head, last_turn) \
     SELECT c.number, p.n, lower(substr('000000000000000000000000000000000000000' || p.n, length('' || p.n), 40)), p.n \
     FROM changes c CROSS JOIN (SELECT 1 AS n UNION ALL SELECT 2) AS p WHERE $1 = $1";
/// Flags of each account on the two patch sets of one change.
const ADD_FLAGS: &str = "INSERT INTO reviewed_flags (account, change_number, patch_set, plan, item) \
     SELECT a.number, 1 + a.number % 20000, 1 + f.n % 2, '', 'modules/network/file' || f.n || '.tf' \
     FROM accounts a CROSS JOIN (WITH RECURSIVE s(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM s WHERE n < 99) \
     SELECT n FROM s) AS f WHERE $1 = $1";

/// A database, and a server that uses it.
struct AccountsBench<'a> {
    name: &'static str,
    dir: &'a Path,
    /// PostgreSQL. `None`: SQLite in the data directory of the server.
    database: Option<&'a DatabaseUrl>,
    url: DatabaseUrl,
}

/// Measures accounts and prints the sections of the report as soon as they are measured.
pub async fn measure(work: &Path, print: &mut impl FnMut(Section)) -> anyhow::Result<()> {
    let work = work.join("accounts");
    let copy = work.join("All-Users.git");
    std::fs::create_dir_all(&work)?;
    let since = Instant::now();
    copy::write(&copy)?;
    let written = since.elapsed();
    let mut section = Section::new("Accounts").with_table(external_ids(&copy)?);
    section.note(format!(
        "{} accounts, each with three external IDs, {} stars and {FLAGS} reviewed flags; {} of them watch a project. \
         Writing the copy took {:.0} s.",
        copy::ACCOUNTS,
        copy::STARS,
        copy::WATCHES,
        written.as_secs_f64()
    ));
    let (postgres, version) = durable_postgres().await?;
    section.note(format!("Both databases are durable. {version}"));
    print(section);
    for database in [None, Some(&postgres)] {
        let name = database.map_or("SQLite", |_| "PostgreSQL");
        let dir = work.join(name);
        std::fs::create_dir(&dir)?;
        let own = DatabaseUrl::Sqlite(dir.join("data/lockkeeper.db"));
        let bench = AccountsBench {
            name,
            url: database.cloned().unwrap_or(own),
            dir: &dir,
            database,
        };
        bench.measure(&copy, print).await.context(name)?;
    }
    Ok(())
}

/// Reads all external IDs of a copy, beside git, which only prints them.
fn external_ids(copy: &Path) -> anyhow::Result<Table> {
    let mut table = Table::new(&["all external IDs, cold", "s", "÷ git", "MiB"]);
    let since = Instant::now();
    let listing = copy::git(copy, &["ls-tree", "-r", "refs/meta/external-ids"])?;
    let ids: Vec<u8> = String::from_utf8(listing)?
        .lines()
        .filter_map(|line| line.split_whitespace().nth(2))
        .flat_map(|id| [id.as_bytes(), b"\n"].concat())
        .collect();
    let list = copy.with_extension("ids");
    std::fs::write(&list, ids)?;
    let printed = copy::git_command(copy)
        .args(["cat-file", "--batch"])
        .stdin(std::fs::File::open(&list)?)
        .stdout(Stdio::null())
        .status()?;
    ensure!(printed.success(), "git cat-file failed");
    let git = since.elapsed();
    table.row(
        "git ls-tree -r, git cat-file --batch",
        [format!("{:.2}", git.as_secs_f64()), "1".to_owned()],
    );
    let since = Instant::now();
    let opened = LocalCopy::open(copy)?;
    let took = since.elapsed();
    table.row(
        format!("{} refs, read by Lockkeeper", opened.refs().count()),
        [format!("{:.2}", took.as_secs_f64()), ratio(took, git)],
    );
    let before = Memory::of(std::process::id())?.anonymous;
    let since = Instant::now();
    let known = read_external_ids(&opened)?;
    let took = since.elapsed();
    let after = Memory::of(std::process::id())?.anonymous;
    ensure!(
        known.len() == copy::ACCOUNTS as usize,
        "{} accounts have external IDs",
        known.len()
    );
    table.row(
        "all external IDs, read and checked by Lockkeeper",
        [
            format!("{:.2}", took.as_secs_f64()),
            ratio(took, git),
            (after.saturating_sub(before) / 1024).to_string(),
        ],
    );
    Ok(table)
}

fn read_external_ids(copy: &LocalCopy) -> anyhow::Result<BTreeMap<AccountId, Vec<ExternalId>>> {
    let tip = copy
        .refs()
        .find(|(name, _)| *name == "refs/meta/external-ids");
    let (_, tip) = tip.context("there are no external IDs")?;
    let notes = copy.notes(copy.root(tip)?)?;
    let blobs: Vec<_> = notes.values().copied().collect();
    let ids = copy.read_blobs(&blobs, MAX_NOTE, |content| {
        let text = ConfigText::parse(&content)?;
        let id = ExternalId::read(&text).0.context("a note is none")?;
        let name = id.key.note_name();
        anyhow::Ok((name, id))
    })?;
    let mut accounts: BTreeMap<AccountId, Vec<ExternalId>> = BTreeMap::new();
    for (name, read) in notes.into_keys().zip(ids) {
        let (known, id) = read?;
        ensure!(known == name, "the note {name} has another name");
        accounts.entry(id.account).or_default().push(id);
    }
    Ok(accounts)
}

impl AccountsBench<'_> {
    async fn start(&self, github: &lockkeeper::emulator::Emulator) -> anyhow::Result<Server> {
        match self.database {
            None => Server::start(self.dir, github).await,
            Some(database) => Server::start_on(self.dir, github, database).await,
        }
    }

    async fn measure(&self, copy: &Path, print: &mut impl FnMut(Section)) -> anyhow::Result<()> {
        let mut section = |table: Table| print(Section::default().with_table(table));
        section(self.fill(copy).await?);
        section(self.updates().await?);
        let github = server::github(self.dir).await?;
        let server = self.start(&github).await?;
        self.checked().await?;
        section(requests::measure(self, &server).await?);
        section(git_clients::own_branch(self, &server).await?);
        section(git_clients::everything(self, &server)?);
        let mut memory = Table::new(&["memory", "peak MiB"]);
        memory.row(
            format!("{}, the server after all requests", self.name),
            [Memory::peak(server.pid())?],
        );
        section(memory);
        server.stop().await
    }

    /// Waits until the server has checked all accounts, as it does every hour.
    async fn checked(&self) -> anyhow::Result<()> {
        let store = locks::open(&self.url).await?;
        let since = Instant::now();
        loop {
            let rows = store.reconciler_list().await?;
            if rows
                .iter()
                .any(|row| row.name == "accounts" && row.looked_at > 0)
            {
                store.close().await;
                return Ok(());
            }
            ensure!(
                since.elapsed() < CHECKED_WITHIN,
                "the server has not checked the accounts"
            );
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// Imports all accounts, checks them, and adds what is not in a copy.
    async fn fill(&self, copy: &Path) -> anyhow::Result<Table> {
        let mut table = Table::new(&["whole commands", "s", "accounts/s", "peak MiB"]);
        let github = server::github(self.dir).await?;
        self.start(&github).await?.stop().await?;
        let copy = copy.display().to_string();
        for (what, args) in [
            ("import", &["accounts", "import", "git", copy.as_str()][..]),
            ("check", &["accounts", "check"]),
            ("reindex, nothing to do", &["reindex", "accounts"]),
        ] {
            let (took, peak) = self.lockkeeper(args)?;
            let rate = f64::from(copy::ACCOUNTS) / took.as_secs_f64();
            table.row(
                format!("{}, {what}", self.name),
                [
                    format!("{:.1}", took.as_secs_f64()),
                    format!("{rate:.0}"),
                    peak,
                ],
            );
        }
        for sql in [ADD_CHANGES, ADD_PATCH_SETS, ADD_FLAGS] {
            self.execute(sql).await?;
        }
        if let DatabaseUrl::Postgres(options) = &self.url {
            // As autovacuum does some time after so many rows.
            let mut connection = options.connect().await?;
            sqlx::query("VACUUM ANALYZE")
                .execute(&mut connection)
                .await?;
        }
        Ok(table)
    }

    async fn execute(&self, sql: &'static str) -> anyhow::Result<()> {
        let now = SystemClock.now();
        match &self.url {
            DatabaseUrl::Sqlite(path) => {
                let options = SqliteConnectOptions::new()
                    .filename(path)
                    .busy_timeout(Duration::from_mins(1));
                let mut connection = options.connect().await?;
                sqlx::query(sql).bind(now).execute(&mut connection).await?;
            }
            DatabaseUrl::Postgres(options) => {
                let mut connection = options.connect().await?;
                sqlx::query(sql).bind(now).execute(&mut connection).await?;
            }
        }
        Ok(())
    }

    /// Generates the HTTP password of the account at this place.
    fn password(&self, place: u32) -> anyhow::Result<String> {
        let name = copy::username(place);
        let output = self.command(&["accounts", "password", &name]).output()?;
        ensure!(output.status.success(), "{name} got no password");
        Ok(String::from_utf8(output.stdout)?.trim().to_owned())
    }

    /// Runs a command on the database. Returns its time and its peak of memory in MiB.
    fn lockkeeper(&self, args: &[&str]) -> anyhow::Result<(Duration, String)> {
        let since = Instant::now();
        let mut child = self.command(args).stdout(Stdio::null()).spawn()?;
        let mut peak = String::new();
        loop {
            if let Some(status) = child.try_wait()? {
                ensure!(status.success(), "lockkeeper {args:?}: {status}");
                return Ok((since.elapsed(), peak));
            }
            // It fails between the end of the program and the moment when it is seen.
            peak = Memory::peak(child.id()).unwrap_or(peak);
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "the program is run as people run it"
    )]
    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lockkeeper"));
        command.args(args).env_clear();
        command.arg("--data-dir").arg(self.dir.join("data"));
        if let DatabaseUrl::Postgres(options) = &self.url {
            command.env("LOCKKEEPER_DATABASE_URL", options.to_url_lossy().as_str());
        }
        command
    }

    /// Updates accounts in this process, beside locks in the same database.
    async fn updates(&self) -> anyhow::Result<Table> {
        let mut table = Table::new(&[
            "updates, ms",
            "p50",
            "p90",
            "p99",
            "max",
            "updates",
            "÷ a lock",
        ]);
        let store = locks::open(&self.url).await?;
        for tasks in TASKS {
            let lock = locks::taken(&store, tasks, UPDATES).await?;
            let name = |what: &str| {
                let many = if tasks == 1 { "task" } else { "tasks" };
                format!("{}, {tasks} {many}: {what}", self.name)
            };
            let mut row = |what: &str, samples: &Samples| {
                let compared = ratio(samples.quantile(50), lock.quantile(50));
                table.row(name(what), samples.cells().into_iter().chain([compared]));
            };
            row("a lock is taken", &lock);
            let users = Arc::new(AllUsers::new(store.clone(), "localhost"));
            row(
                "an account is deactivated or activated",
                &updated(&users, tasks, Update::Branch).await?,
            );
            row(
                "a star is given or taken back",
                &updated(&users, tasks, Update::Star).await?,
            );
            row(
                "an external ID is added or removed",
                &updated(&users, tasks, Update::ExternalId).await?,
            );
        }
        store.close().await;
        Ok(table)
    }
}

/// Kind of an update.
#[derive(Clone, Copy)]
enum Update {
    Branch,
    Star,
    ExternalId,
}

async fn updated(users: &Arc<AllUsers>, tasks: u32, update: Update) -> anyhow::Result<Samples> {
    let mut running = tokio::task::JoinSet::new();
    for task in 0..tasks {
        let users = Arc::clone(users);
        running.spawn(async move {
            let mut samples = Samples::default();
            let account = copy::account(task + 10);
            for round in 0..UPDATES {
                let since = Instant::now();
                update.make(&users, account, round % 2 == 0).await?;
                samples.push(since.elapsed());
            }
            anyhow::Ok(samples)
        });
    }
    let mut all = Samples::default();
    while let Some(samples) = running.join_next().await {
        all.extend(samples??);
    }
    Ok(all)
}

impl Update {
    async fn make(self, users: &AllUsers, account: AccountId, forth: bool) -> anyhow::Result<()> {
        let actor = AccountsActor {
            author: CommitPerson::new("ops", "ops@localhost"),
            cause: Cause::new(Actor::commenter("ops"), ""),
            expected: None,
            signed_in: None,
        };
        match self {
            Self::Branch => users.set_active(&actor, account, !forth).await?,
            Self::Star => {
                let labels = ["ignore".to_owned()].into();
                let mut changes = LabelChanges::default();
                if forth {
                    changes.add = labels;
                } else {
                    changes.remove = labels;
                }
                let change = ChangeNumber::new(1).context("changes begin with 1")?;
                users
                    .change_labels(&actor, account, change, &changes)
                    .await?;
            }
            Self::ExternalId => {
                let key = format!("oidc:https://id.example.com#{account}").parse()?;
                if forth {
                    users.link(&actor, account, &key, None).await?;
                } else {
                    users.unlink(&actor, account, &[key]).await?;
                }
            }
        }
        Ok(())
    }
}
