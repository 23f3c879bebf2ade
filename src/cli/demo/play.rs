//! Plays the steps of the script and checks their results, without output.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, ensure};
use tokio::time::timeout;

use super::sample::{self, MODULE_REPO, REPO};
use super::script::{BOT, DemoAction, DemoTeam, Expectation, PROJECT, PullRole, ScriptStep};
use super::stage::DemoStage;
use super::{accounts, modules};
use crate::claims;
use crate::emulator::{EmulatedComment, EmulatedDelivery, NewPull, SendAttempt, ShaStatus};
use crate::features::accounts::AccountJson;
use crate::model::{
    Actor, ApplicationFields, Cause, ForgeHosts, Origin, OwnerName, PlanCounts, PullNumber,
    RepoUrl, Rights,
};
use crate::render::{MachineLine, MachineProject};

/// Time limit for git and the webhook.
const ACT_WITHIN: Duration = Duration::from_mins(1);
/// Time limit for the answer of the bot. A busy machine needs a few seconds.
const ANSWER_WITHIN: Duration = Duration::from_secs(90);
/// Time limit for the statuses and records that follow the answer.
const SETTLE_WITHIN: Duration = Duration::from_secs(15);
/// Interval between checks of the database and the states.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Result of a step.
pub(super) struct StepResult {
    pub heard: DemoOutput,
    /// Time until the answer.
    pub took: Duration,
    /// Statuses of the head commit, if the step is about them.
    pub statuses: Vec<ShaStatus>,
    pub verdicts: Vec<DemoVerdict>,
}

impl StepResult {
    /// Returns `true` if all checks succeeded.
    pub fn holds(&self) -> bool {
        self.verdicts
            .iter()
            .all(|verdict| verdict.problem.is_none())
    }
}

/// Answer to a step.
pub(super) enum DemoOutput {
    /// Comment of the bot.
    Comment(EmulatedComment),
    /// Answer of the server to a request without a pull request.
    Reply(String),
    /// No answer within the time limit.
    Silence,
    /// A step without an answer.
    Nothing,
}

impl DemoOutput {
    fn text(&self) -> &str {
        match self {
            Self::Comment(comment) => &comment.body,
            Self::Reply(text) => text,
            Self::Silence | Self::Nothing => NO_ANSWER,
        }
    }
}

/// Result of a check.
pub(super) struct DemoVerdict {
    pub claim: &'static str,
    /// Difference between expectation and result, if any.
    pub problem: Option<DemoFailure>,
}

/// Difference between expectation and result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DemoFailure {
    pub expected: String,
    pub seen: String,
}

/// Performs the steps on a stage.
pub(super) struct DemoPlayer<'a> {
    stage: &'a DemoStage,
    /// Newest known comment of each pull request.
    seen: BTreeMap<PullNumber, u64>,
    /// Answer to the latest request without a pull request.
    reply: Option<String>,
}

impl<'a> DemoPlayer<'a> {
    pub fn new(stage: &'a DemoStage) -> Self {
        Self {
            stage,
            seen: BTreeMap::new(),
            reply: None,
        }
    }

    /// Performs a step and returns the webhook that it caused, if any.
    pub async fn act(&mut self, act: DemoAction) -> anyhow::Result<Option<EmulatedDelivery>> {
        let done = timeout(ACT_WITHIN, self.do_now(act)).await;
        done.with_context(|| {
            format!(
                "the emulated GitHub did not finish within {} s",
                ACT_WITHIN.as_secs()
            )
        })?
    }

    async fn do_now(&mut self, act: DemoAction) -> anyhow::Result<Option<EmulatedDelivery>> {
        if let DemoAction::Open(role) = act {
            self.push(role).await?;
        }
        let before = self.stage.github.deliveries().len();
        match act {
            DemoAction::Open(role) => self.open(role).await?,
            DemoAction::Say(role, words) => {
                let comment = self
                    .stage
                    .github
                    .comment(REPO, number(role), role.login(), words)
                    .await?;
                self.seen.insert(number(role), comment);
            }
            DemoAction::Merge(role) => drop(
                self.stage
                    .github
                    .merge(REPO, number(role), role.login())
                    .await?,
            ),
            DemoAction::Push => drop(
                self.stage
                    .github
                    .push(REPO, "main", &[sample::change(sample::NOTE)])
                    .await?,
            ),
            DemoAction::Wait(_) => return Ok(None),
            DemoAction::Register(team) => {
                let registered = self.register(team, team.address(), Some(PROJECT));
                self.reply = Some(registered.await?);
                return Ok(None);
            }
            DemoAction::EditAccount(push) => {
                self.reply = Some(accounts::push(self.stage, push).await?);
                return Ok(None);
            }
            DemoAction::AddNamespace(team) => {
                let address = format!("https://github.com/{MODULE_REPO}");
                let registered = self.register(team, &address, None).await?;
                let added = Box::pin(modules::add_namespace(self.stage, team)).await?;
                self.reply = Some(format!("{registered}\n\nAdded: {added}"));
                return Ok(None);
            }
            DemoAction::Release(release) => {
                modules::release(self.stage, release).await?;
                if release.change().is_none() {
                    return Ok(None);
                }
            }
            DemoAction::Deprecate => {
                self.reply = Some(Box::pin(modules::deprecate(self.stage)).await?);
                return Ok(None);
            }
            DemoAction::TakeDown => {
                self.reply = Some(Box::pin(modules::take_down(self.stage)).await?);
                return Ok(None);
            }
            DemoAction::Join => {
                self.reply = Some(Box::pin(modules::join(self.stage)).await?);
                return Ok(None);
            }
        }
        let delivery = self.stage.github.deliveries().into_iter().nth(before);
        let delivery = delivery.context("the emulated GitHub sent no webhook")?;
        let accepted = matches!(delivery.outcome(), Some(SendAttempt::Answered(200..=299)));
        ensure!(
            accepted,
            "the server did not accept the webhook `{}`: {:?}",
            delivery.event,
            delivery.outcome()
        );
        Ok(Some(delivery))
    }

    async fn push(&self, role: PullRole) -> anyhow::Result<()> {
        let change = sample::change(role.change());
        self.stage
            .github
            .push(REPO, role.branch(), &[change])
            .await?;
        Ok(())
    }

    async fn open(&self, role: PullRole) -> anyhow::Result<()> {
        let pull = NewPull::from_branch(role.branch())
            .titled(role.title())
            .by(role.login());
        let opened = self.stage.github.open_pull(REPO, pull).await?;
        ensure!(
            opened == number(role),
            "the pull request of {} got the unexpected number {opened}",
            role.login()
        );
        Ok(())
    }

    /// Registers a project as `lockkeeper apps add` does, and returns what that command would print.
    async fn register(
        &self,
        team: DemoTeam,
        address: &str,
        dir: Option<&str>,
    ) -> anyhow::Result<String> {
        let store = &self.stage.server.ctx().store;
        let owner = OwnerName::new(team.name()).context("the name of a team of the demo")?;
        let cause = Cause::new(Actor::new(team.name(), Origin::Cli), "the demo");
        drop(
            store
                .owner_create(&owner, &cause)
                .await
                .context("cannot add an owner")?,
        );
        let fields = ApplicationFields {
            url: Some(address),
            branch: Some("main"),
            dir,
            ..ApplicationFields::default()
        };
        let spec = fields.spec(&ForgeHosts::public()).map_err(|problems| {
            let problems: Vec<String> = problems.into_iter().map(|problem| problem.text).collect();
            anyhow!(
                "the address of the demo's repository: {}",
                problems.join(" ")
            )
        })?;
        let saved = claims::application_add(store, &owner, &spec, (Rights::Whole, &cause))
            .await
            .context("cannot add an application")?;
        Ok(saved.or_why().map_or_else(
            |why| why,
            |app| format!("Added: {} of `{}`", app.spec, app.owner),
        ))
    }

    /// Waits for the answer and checks the results.
    pub async fn watch(&mut self, step: &ScriptStep) -> anyhow::Result<StepResult> {
        let number = step.act.role().map(number);
        let started = Instant::now();
        let heard = match number {
            Some(number) => self.listen(number).await?,
            None => self
                .reply
                .take()
                .map_or(DemoOutput::Nothing, DemoOutput::Reply),
        };
        let took = started.elapsed();
        let check = ScriptChecker {
            stage: self.stage,
            heard: &heard,
            act: step.act,
        };
        let verdicts = check.settle(step).await?;
        let statuses = if step.is_about_statuses() {
            check.statuses().await?
        } else {
            Vec::new()
        };
        Ok(StepResult {
            heard,
            took,
            statuses,
            verdicts,
        })
    }

    async fn listen(&mut self, number: PullNumber) -> anyhow::Result<DemoOutput> {
        let seen = self.seen.get(&number).copied().unwrap_or_default();
        let answer = self.stage.github.comment_by(REPO, number, BOT, seen);
        let answer = timeout(ANSWER_WITHIN, answer).await.ok().transpose()?;
        self.seen
            .extend(answer.as_ref().map(|answer| (number, answer.id)));
        Ok(answer.map_or(DemoOutput::Silence, DemoOutput::Comment))
    }
}

impl ScriptStep {
    fn is_about_statuses(&self) -> bool {
        self.checks.iter().any(|(expect, _)| {
            matches!(
                expect,
                Expectation::Status(..) | Expectation::StatusText(..)
            )
        })
    }
}

fn number(role: PullRole) -> PullNumber {
    PullNumber(role.number())
}

/// Checks the results of a step.
struct ScriptChecker<'a> {
    stage: &'a DemoStage,
    heard: &'a DemoOutput,
    act: DemoAction,
}

impl ScriptChecker<'_> {
    /// Repeats the checks until all succeed, or one has certainly or very likely failed.
    async fn settle(&self, step: &ScriptStep) -> anyhow::Result<Vec<DemoVerdict>> {
        let started = Instant::now();
        loop {
            match self.act {
                DemoAction::Release(_) => self.stage.turn_tags().await,
                DemoAction::Join => self.stage.turn_copies().await,
                DemoAction::Open(_)
                | DemoAction::Say(..)
                | DemoAction::Merge(_)
                | DemoAction::Wait(_)
                | DemoAction::Register(_)
                | DemoAction::Push
                | DemoAction::EditAccount(_)
                | DemoAction::AddNamespace(_)
                | DemoAction::Deprecate
                | DemoAction::TakeDown => {}
            }
            let verdicts = self.verdicts(step).await?;
            let failed = || {
                step.checks
                    .iter()
                    .zip(&verdicts)
                    .filter(|(_, verdict)| verdict.problem.is_some())
            };
            let is_final = failed().any(|((expect, _), _)| expect.is_final())
                || matches!(self.heard, DemoOutput::Silence);
            if failed().next().is_none() || is_final || started.elapsed() > SETTLE_WITHIN {
                return Ok(verdicts);
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    async fn verdicts(&self, step: &ScriptStep) -> anyhow::Result<Vec<DemoVerdict>> {
        let mut verdicts = Vec::new();
        for (expect, claim) in step.checks {
            verdicts.push(DemoVerdict {
                claim,
                problem: self.problem(expect).await?,
            });
        }
        Ok(verdicts)
    }

    async fn problem(&self, expect: &Expectation) -> anyhow::Result<Option<DemoFailure>> {
        let problem = |expected: String, seen: String| {
            (expected != seen).then_some(DemoFailure { expected, seen })
        };
        Ok(match expect {
            Expectation::Project(outcome) => {
                let project = self.act.role().map_or(PROJECT, PullRole::project);
                problem(format!("{project} {outcome}"), self.projects())
            }
            Expectation::Adds(add) => {
                let counts = PlanCounts {
                    add: *add,
                    ..PlanCounts::default()
                };
                problem(counts.to_string(), self.counts())
            }
            Expectation::Command(outcome) => problem(outcome.to_string(), self.outcome()),
            Expectation::Words(words) => self.lacks(words),
            Expectation::Status(context, state) => {
                problem(state.as_str().to_owned(), self.status(context).await?)
            }
            Expectation::StatusText(context, text) => {
                problem((*text).to_owned(), self.status_text(context).await?)
            }
            Expectation::LockOf(role) => problem(
                format!("{PROJECT} by #{}", role.number()),
                self.locks().await?,
            ),
            Expectation::Resources(count) => {
                problem(resources(*count), resources(self.resources()?))
            }
            Expectation::OwnedBy(team) => problem(team.name().to_owned(), self.owner(*team).await?),
            Expectation::MirrorsInStep => self.out_of_step().await?,
            Expectation::Watches(count) => problem(
                format!("{count} watched"),
                format!("{} watched", self.account().await?.watched_projects()),
            ),
            Expectation::Address(address) => {
                let email = self.account().await?.email;
                problem((*address).to_owned(), email.unwrap_or_default())
            }
            Expectation::NamespaceOf(team) => {
                problem(team.name().to_owned(), modules::owner(self.stage).await?)
            }
            Expectation::Module(release, state) => problem(
                state.to_string(),
                modules::state(&self.stage.server, *release).await?,
            ),
            Expectation::Copy(release, state) => problem(
                state.to_string(),
                modules::state(&self.stage.deployment, *release).await?,
            ),
            Expectation::UsedBy(release, role) => problem(
                format!("#{}", role.number()),
                modules::uses(self.stage, *release).await?,
            ),
        })
    }

    fn line(&self) -> Option<MachineLine> {
        MachineLine::find(self.heard.text())
    }

    fn projects(&self) -> String {
        let Some(line) = self.line() else {
            return NO_ANSWER.to_owned();
        };
        if line.projects.is_empty() {
            return format!("no project, {}", self.outcome());
        }
        let name = |project: &MachineProject| {
            project
                .name
                .as_ref()
                .map_or(project.dir.to_string(), ToString::to_string)
        };
        let outcome =
            |project: &MachineProject| project.outcome.map_or("-", |outcome| outcome.as_str());
        let projects = line
            .projects
            .iter()
            .map(|project| format!("{} {}", name(project), outcome(project)));
        projects.collect::<Vec<_>>().join(", ")
    }

    fn counts(&self) -> String {
        let counts = self.line().and_then(|line| line.projects.first()?.plan);
        counts.map_or_else(|| "no plan".to_owned(), |counts| counts.to_string())
    }

    fn outcome(&self) -> String {
        self.line()
            .map_or_else(|| NO_ANSWER.to_owned(), |line| line.outcome.to_string())
    }

    fn lacks(&self, words: &str) -> Option<DemoFailure> {
        let body = self.heard.text();
        let missing = || DemoFailure {
            expected: format!("`{words}` in the answer"),
            seen: "other words".to_owned(),
        };
        (!body.contains(words)).then(missing)
    }

    /// Returns the statuses of the head of the pull request, or of the newest commit of the module.
    async fn statuses(&self) -> anyhow::Result<Vec<ShaStatus>> {
        let github = &self.stage.github;
        let (repo, commit) = match self.act.role() {
            Some(role) => (REPO, github.pull(REPO, number(role))?.head),
            None => (MODULE_REPO, modules::newest_commit(self.stage).await?),
        };
        Ok(github.statuses(repo, &commit)?.latest)
    }

    async fn status(&self, context: &str) -> anyhow::Result<String> {
        let statuses = self.statuses().await?;
        let status = statuses.iter().find(|status| status.context == context);
        Ok(status
            .map_or("no such status", |status| status.state.as_str())
            .to_owned())
    }

    async fn status_text(&self, context: &str) -> anyhow::Result<String> {
        let statuses = self.statuses().await?;
        let status = statuses
            .into_iter()
            .find(|status| status.context == context);
        Ok(status
            .and_then(|status| status.description)
            .unwrap_or_else(|| "no such status".to_owned()))
    }

    async fn locks(&self) -> anyhow::Result<String> {
        let locks = self
            .stage
            .server
            .ctx()
            .store
            .lock_list()
            .await
            .context("cannot read the locks")?;
        let locks: Vec<String> = locks
            .iter()
            .map(|lock| format!("{} by #{}", lock.key.dir, lock.pull.subject))
            .collect();
        Ok(if locks.is_empty() {
            NO_LOCK.to_owned()
        } else {
            locks.join(", ")
        })
    }

    async fn owner(&self, team: DemoTeam) -> anyhow::Result<String> {
        let url = RepoUrl::parse(team.address()).context("the address of the demo's repository")?;
        let claim = self
            .stage
            .server
            .ctx()
            .store
            .claim_get(&url)
            .await
            .context("cannot read the claims")?;
        Ok(claim.map_or_else(|| "nobody".to_owned(), |claim| claim.owner.to_string()))
    }

    async fn account(&self) -> anyhow::Result<AccountJson> {
        let users = accounts::accounts(self.stage);
        let row = users.find(accounts::OLGA).await?;
        let row = row.context("the account of the demo is gone")?;
        Ok(users.json(&row).await?)
    }

    /// Compares the mirrors of both servers, and their rows in the database, with the branches on GitHub.
    async fn out_of_step(&self) -> anyhow::Result<Option<DemoFailure>> {
        let branches = self.stage.github.branches(REPO).await?;
        let main = branches
            .get("main")
            .context("the repository of the demo has no branch `main`")?;
        let expected = format!("{} verified", main.short());
        for (which, mirror) in self.stage.mirrors().await?.into_iter().enumerate() {
            if mirror != expected {
                return Ok(Some(DemoFailure {
                    expected,
                    seen: format!("{mirror} (server {})", which + 1),
                }));
            }
        }
        Ok(None)
    }

    /// Counts the resources in Terraform's state.
    fn resources(&self) -> anyhow::Result<usize> {
        let path = sample::state_file(&self.stage.states, PROJECT);
        let Ok(text) = std::fs::read(&path) else {
            return Ok(0);
        };
        let state: TerraformState =
            serde_json::from_slice(&text).context("cannot read Terraform's state")?;
        Ok(state
            .resources
            .iter()
            .map(|resource| resource.instances.len())
            .sum())
    }
}

const NO_ANSWER: &str = "no answer";
const NO_LOCK: &str = "no lock";

fn resources(count: usize) -> String {
    format!("{count} resources in the state")
}

/// Parts of a state file that are counted.
#[derive(serde::Deserialize)]
struct TerraformState {
    resources: Vec<StateResource>,
}

#[derive(serde::Deserialize)]
struct StateResource {
    instances: Vec<serde::de::IgnoredAny>,
}

impl Expectation {
    /// Returns `true` if the result cannot change once the answer is there.
    fn is_final(self) -> bool {
        match self {
            Self::Project(_) | Self::Adds(_) | Self::Command(_) | Self::Words(_) => true,
            Self::Status(..)
            | Self::StatusText(..)
            | Self::LockOf(_)
            | Self::Resources(_)
            | Self::OwnedBy(_)
            | Self::MirrorsInStep
            | Self::Watches(_)
            | Self::Address(_)
            | Self::NamespaceOf(_)
            | Self::Module(..)
            | Self::Copy(..)
            | Self::UsedBy(..) => false,
        }
    }
}
