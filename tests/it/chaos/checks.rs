//! Checks the promises from outside, after a round is over and no work is left.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use lockkeeper::emulator::{EmulatedPull, StatusState};
use lockkeeper::locks::AuditVerdict;
use lockkeeper::model::{CommandKind, CommitSha, PullNumber, PullState};
use lockkeeper::render::{MachineLine, PartLine};

use super::post::Letter;
use super::world::{SHORT_LIVED, World};
use super::{api, ledger, mirrors};
use crate::support::program::lockkeeper;
use crate::support::server::LOOK;

/// Time after the start of a server within which it finds a close whose webhook was lost.
const RECONCILED: Duration = Duration::from_secs(30);

/// Checks every promise of the servers.
pub async fn all(world: &World) {
    deliveries(world).await;
    answers(world).await;
    applies(world).await;
    locks(world).await;
    statuses(world).await;
    nothing_left(world).await;
    mirrors::check(world).await;
    audit(world).await;
    accounts(world);
    panics(world).await;
}

/// Checks that accounts keep every rule, that no address is on two of them, and that the tables are those of the branches.
fn accounts(world: &World) {
    let checked = lockkeeper(&["accounts", "check"], &world.look.url(), &[], &[]);
    if checked.code != 0 {
        world.broken(&format!(
            "the accounts break rules: {}{}",
            checked.out, checked.err
        ));
    }
}

/// Checks that no server panicked. A panic is caught, and the work goes on, but it is still a bug.
async fn panics(world: &World) {
    for server in &world.servers {
        let log = server.lock().await.log();
        if let Some(line) = log.lines().find(|line| line.contains("panicked at")) {
            world.broken(&format!("something in a server panicked: {line}"));
        }
    }
}

/// Checks that every event of the audit log continues the one before it, although servers died in between.
async fn audit(world: &World) {
    let verdict = world.look.audit().await;
    if !matches!(verdict, AuditVerdict::Whole(_)) {
        world.broken(&format!("the audit log is not whole: {verdict:?}"));
    }
}

/// P1: checks that every delivery that was answered with 2xx is stored.
async fn deliveries(world: &World) {
    let rows = world
        .look
        .rows("SELECT forge_delivery FROM deliveries")
        .await;
    let known: BTreeSet<String> = rows.into_iter().flatten().collect();
    for letter in world.post.all() {
        if letter.accepted > 0 && !known.contains(&letter.delivery.id.to_string()) {
            world.broken(&format!(
                "the delivery {} was taken and is not on record",
                letter.delivery.id
            ));
        }
        if let Some(refusal) = letter
            .trouble
            .iter()
            .find(|trouble| trouble.starts_with('4'))
        {
            world.broken(&format!(
                "the delivery {} was refused with {refusal}",
                letter.delivery.id
            ));
        }
    }
}

/// A stored command that a comment requested.
struct Asked {
    id: String,
    /// End of the command.
    end: String,
    /// The newer plan that answers in place of this command, if one superseded it.
    stand_in: Option<String>,
}

impl Asked {
    fn is_answered(&self, said: &BTreeSet<String>) -> bool {
        said.contains(&self.id) || self.stand_in.as_ref().is_some_and(|id| said.contains(id))
    }
}

/// P1, P2: checks that every accepted comment is one command, and that it is answered once: by its own answer or by
/// that of the newer plan that superseded it. Nothing else is answered.
async fn answers(world: &World) {
    let mut commands = BTreeMap::<u64, Vec<Asked>>::new();
    let sql = "SELECT CAST(id AS TEXT), CAST(comment AS TEXT), kind || ' ' || state || ' ' || COALESCE(outcome, '') \
               || ' ' || COALESCE(reason, ''), COALESCE(CAST(superseded_by AS TEXT), '') \
               FROM commands WHERE comment IS NOT NULL";
    for row in world.look.rows(sql).await {
        let stand_in = Some(row[3].clone()).filter(|id| !id.is_empty());
        let asked = Asked {
            id: row[0].clone(),
            end: row[2].clone(),
            stand_in,
        };
        commands
            .entry(row[1].parse().expect("a number"))
            .or_default()
            .push(asked);
    }
    let (said, mut notices) = said(world);
    let rows = world
        .look
        .rows("SELECT CAST(id AS TEXT) FROM commands")
        .await;
    for id in rows.into_iter().flatten() {
        notices.remove(&id);
    }
    for (id, kind) in notices
        .into_iter()
        .filter(|(_, kind)| *kind != CommandKind::Unlock)
    {
        world.broken(&format!(
            "a comment answers the {kind} {id}, which nobody asked for"
        ));
    }
    for letter in world.post.all() {
        let Some((comment, words)) = written_comment(&letter, &world.bot) else {
            continue;
        };
        let found = commands.get(&comment).map_or(&[][..], Vec::as_slice);
        let wanted = usize::from(letter.accepted > 0 && words.starts_with("lockkeeper"));
        if found.len() != wanted {
            world.broken(&format!(
                "the comment {comment} `{words}` is {} commands, not {wanted}",
                found.len()
            ));
        }
        for asked in found.iter().filter(|asked| !asked.is_answered(&said)) {
            world.broken(&format!(
                "the comment {comment} `{words}` ({} {}) was not answered",
                asked.id, asked.end
            ));
        }
    }
}

/// Returns the comment and its text, if a person wrote it.
fn written_comment(letter: &Letter, bot: &str) -> Option<(u64, String)> {
    let body = &letter.delivery.recorded.body;
    let is_comment = letter.delivery.event == "issue_comment"
        && letter.delivery.action.as_deref() == Some("created");
    let by_person = body["comment"]["user"]["login"]
        .as_str()
        .is_some_and(|login| login != bot);
    let words = body["comment"]["body"].as_str()?.to_owned();
    (is_comment && by_person).then_some((body["comment"]["id"].as_u64()?, words))
}

/// Returns the commands that were answered, with all parts and no part twice, and their kinds.
fn said(world: &World) -> (BTreeSet<String>, BTreeMap<String, CommandKind>) {
    let (mut answered, mut kinds) = (BTreeSet::new(), BTreeMap::new());
    let mut parts = BTreeMap::<(String, u32), Vec<u32>>::new();
    let pulls = world.record().pulls.clone();
    for pull in pulls {
        for comment in world
            .github
            .comments(world.repo(), pull)
            .expect("the pull exists")
        {
            if comment.author != world.bot {
                continue;
            }
            let Some(line) = PartLine::find(&comment.body) else {
                world.broken(&format!(
                    "the comment {} on #{pull} has no hidden line",
                    comment.id
                ));
                continue;
            };
            let command = MachineLine::find(&comment.body).and_then(|whole| whole.command);
            kinds.extend(command.map(|command| (line.id.to_string(), command)));
            parts
                .entry((line.id.to_string(), line.parts))
                .or_default()
                .push(line.part);
        }
    }
    for ((id, all), mut parts) in parts {
        parts.sort_unstable();
        if parts.iter().copied().eq(1..=all) && answered.insert(id.clone()) {
            continue;
        }
        world.broken(&format!(
            "the answer to {id} of {all} comments was posted as {parts:?}"
        ));
    }
    (answered, kinds)
}

/// P3, P5: checks that each plan record is applied at most once, and that an apply that began is never offered again.
async fn applies(world: &World) {
    let rows = world
        .look
        .rows("SELECT digest, state, CAST(id AS TEXT) FROM plans WHERE digest IS NOT NULL")
        .await;
    let plans: BTreeMap<String, (String, String)> = rows
        .into_iter()
        .map(|row| (row[0].clone(), (row[1].clone(), row[2].clone())))
        .collect();
    let ledger = ledger::read(&world.ledger());
    for (digest, applied) in &ledger {
        if applied.begun > 1 {
            world.broken(&format!(
                "the plan file {digest} was applied {} times",
                applied.begun
            ));
        }
        match plans.get(digest) {
            None => world.broken(&format!(
                "the plan file {digest} was applied and is on no record"
            )),
            Some((state, id)) if state == "planned" || state == "applying" => {
                world.broken(&format!(
                    "the apply of the plan {id} began, and its record says `{state}`"
                ));
            }
            Some(_) => {}
        }
    }
    for (digest, (state, id)) in plans.iter().filter(|(_, (state, _))| state == "applied") {
        if ledger.get(digest).is_none_or(|applied| applied.ended == 0) {
            world.broken(&format!(
                "the plan {id} is `{state}` and no apply of it came to its end"
            ));
        }
    }
}

/// P4, P7, P9: checks that every server lists the same locks and that none has two holders. Each lock must belong to
/// an open pull request of an existing repository, under its present name.
async fn locks(world: &World) {
    let begun = Instant::now();
    loop {
        let wrong = wrong_locks(world).await;
        if wrong.is_empty() {
            return;
        }
        if begun.elapsed() > RECONCILED {
            return wrong.iter().for_each(|wrong| world.broken(wrong));
        }
        tokio::time::sleep(LOOK).await;
    }
}

async fn wrong_locks(world: &World) -> Vec<String> {
    let (mut wrong, mut told) = (Vec::new(), Vec::new());
    for server in 0..world.servers.len() {
        match api::locks(world, server).await {
            Ok(locks) => told.push(locks),
            Err(error) => wrong.push(format!("server {server} does not tell its locks: {error}")),
        }
    }
    if told.iter().any(|locks| *locks != told[0]) {
        wrong.push(format!("the servers tell of different locks: {told:#?}"));
    }
    let mut names = BTreeSet::new();
    for lock in told.into_iter().next().unwrap_or_default() {
        if lock.name.starts_with(SHORT_LIVED) {
            wrong.push(format!(
                "{} is locked, and its repository is gone",
                lock.name
            ));
            continue;
        }
        if !lock.name.starts_with(world.repo()) {
            wrong.push(format!(
                "{} is locked, and its repository is {} now",
                lock.name,
                world.repo()
            ));
        }
        if world.state(PullNumber(lock.pull)) != Some(PullState::Open) {
            wrong.push(format!(
                "{} is locked by #{}, which is not open",
                lock.name, lock.pull
            ));
        }
        if !names.insert(lock.name.clone()) {
            wrong.push(format!("{} has two holders", lock.name));
        }
    }
    wrong
}

/// Checks that no commit looks as if work were still under way. Two statuses may be pending. The combined status of
/// applies is pending while something is left to apply, and says how much, or who had stopped applies when one was
/// requested. The status of a plan is pending while its pull request is queued for a lock.
async fn statuses(world: &World) {
    let heads = world.record().heads.clone();
    let queued = world
        .look
        .rows("SELECT DISTINCT CAST(pull AS TEXT) FROM lock_waiters")
        .await;
    let queued: BTreeSet<String> = queued.into_iter().flatten().collect();
    let pulls = (1..).map_while(|number| world.github.pull(world.repo(), PullNumber(number)).ok());
    let may_wait = |pull: &EmulatedPull| {
        pull.state != PullState::Open || queued.contains(&pull.number.to_string())
    };
    let left_line: BTreeSet<CommitSha> = pulls
        .filter(|pull| !may_wait(pull))
        .map(|pull| pull.head)
        .collect();
    for head in heads {
        let statuses = world
            .github
            .statuses(world.repo(), &head)
            .expect("the repository exists")
            .latest;
        for status in statuses
            .iter()
            .filter(|status| status.state == StatusState::Pending)
        {
            let text = status.description.as_deref().unwrap_or_default();
            let waits = text.starts_with("Waiting for ") && !left_line.contains(&head);
            if !waits
                && !text.contains(" projects applied")
                && !text.starts_with("Applies are stopped")
            {
                world.broken(&format!(
                    "the status {} of {} still says `{text}`",
                    status.context,
                    head.short()
                ));
            }
        }
    }
}

/// Checks that no work is left in the database.
async fn nothing_left(world: &World) {
    for (what, sql) in [
        (
            "delivery",
            "SELECT forge_delivery FROM deliveries WHERE state = 'received'",
        ),
        (
            "command",
            "SELECT CAST(id AS TEXT) FROM commands WHERE state <> 'finished' AND repo NOT LIKE '%/acme/short-lived'",
        ),
        (
            "run",
            "SELECT CAST(id AS TEXT) FROM runs WHERE state <> 'finished' AND repo NOT LIKE '%/acme/short-lived'",
        ),
        (
            "apply",
            "SELECT CAST(id AS TEXT) FROM plans WHERE state = 'applying'",
        ),
    ] {
        for id in world.look.rows(sql).await.into_iter().flatten() {
            world.broken(&format!("the {what} {id} never ends"));
        }
    }
    let refused = "SELECT CAST(id AS TEXT) FROM commands WHERE reason = 'config'";
    for id in world.look.rows(refused).await.into_iter().flatten() {
        world.broken(&format!(
            "the command {id} was refused for the configuration, which is right"
        ));
    }
    let given_up = "SELECT kind, lane, COALESCE(last_error, '') FROM jobs WHERE state = 'failed' \
                    AND lane NOT LIKE '%/acme/short-lived%'";
    for job in world
        .look
        .rows(given_up)
        .await
        .iter()
        .filter(|job| job[0] != "run_command")
    {
        world.broken(&format!("a job was given up: {}", job.join(" | ")));
    }
}
