//! Measures what people do with git, beside a repository that has only their branch.

use std::path::Path;
use std::time::Instant;

use anyhow::Context as _;

use super::{AccountsBench, copy};
use crate::report::Table;
use crate::server::{PASSWORD, Server};
use crate::stats::{Samples, ratio};
use crate::support::git_http::GitServer;

/// Number of fetches and pushes.
const ROUNDS: u32 = 20;

/// Measures fetches and pushes of one's own branch.
pub async fn own_branch(bench: &AccountsBench<'_>, server: &Server) -> anyhow::Result<Table> {
    let mut table = Table::new(&[
        "git, ms",
        "p50",
        "p90",
        "p99",
        "max",
        "rounds",
        "÷ that branch alone",
    ]);
    let place = 8;
    let password = bench.password(place)?;
    let ours = with_password(server, &copy::username(place), &password);
    let clone = bench.dir.join("clone");
    copy::git(&clone, &["init", "--quiet"])?;
    let first = Instant::now();
    fetch(&clone, &ours)?;
    let first: Samples = std::iter::once(first.elapsed()).collect();
    copy::git(&clone, &["checkout", "--quiet", "FETCH_HEAD"])?;

    // The same branch, alone, behind git's own server.
    let root = bench.dir.join("alone");
    let alone = root.join("All-Users.git");
    copy::git(&alone, &["init", "--quiet", "--bare"])?;
    copy::git(&alone, &["config", "http.receivepack", "true"])?;
    let name = "HEAD:refs/users/self";
    copy::git(
        &clone,
        &["push", "--quiet", &alone.display().to_string(), name],
    )?;
    let user = format!("{}:{password}", copy::username(place));
    let git = GitServer::start(&root, Some(&user)).await;
    let theirs = git.url.replacen("://", &format!("://{user}@"), 1) + "/All-Users.git";

    let (mut fetches, mut pushes) = ([vec![], vec![]], [vec![], vec![]]);
    for round in 0..ROUNDS {
        let text = format!(
            "[account]\n\tfullName = Somebody {round}\n\tpreferredEmail = {}\n",
            copy::email(place)
        );
        std::fs::write(clone.join("account.config"), text)?;
        let (name, email) = (
            format!("user.name={}", copy::username(place)),
            format!("user.email={}", copy::email(place)),
        );
        let commit = [
            "-c",
            &name,
            "-c",
            &email,
            "commit",
            "--quiet",
            "--all",
            "--message",
            "Edit",
        ];
        copy::git(&clone, &commit)?;
        for (at, url) in [&ours, &theirs].into_iter().enumerate() {
            let since = Instant::now();
            copy::git(&clone, &["push", "--quiet", url, "HEAD:refs/users/self"])?;
            pushes[at].push(since.elapsed());
        }
        for (at, url) in [&ours, &theirs].into_iter().enumerate() {
            let other = bench.dir.join(format!("fetched-{at}-{round}"));
            copy::git(&other, &["init", "--quiet"])?;
            let since = Instant::now();
            fetch(&other, url)?;
            fetches[at].push(since.elapsed());
        }
    }
    table.row(
        format!("{}, first fetch of self", bench.name),
        first.cells(),
    );
    for (what, [ours, theirs]) in [("fetch of self", fetches), ("push to self", pushes)] {
        let (ours, theirs): (Samples, Samples) =
            (ours.into_iter().collect(), theirs.into_iter().collect());
        let compared = ratio(ours.quantile(50), theirs.quantile(50));
        table.row(
            format!("{}, {what}", bench.name),
            ours.cells().into_iter().chain([compared]),
        );
        table.row(
            format!("{}, {what}, that branch alone", bench.name),
            theirs.cells(),
        );
    }
    Ok(table)
}

/// Measures a copy of everything, the first one and one without news.
pub fn everything(bench: &AccountsBench<'_>, server: &Server) -> anyhow::Result<Table> {
    let mut table = Table::new(&["git, everything", "s"]);
    let admin = with_password(server, "lockkeeper", &PASSWORD.replace(' ', "%20"));
    let whole = bench.dir.join("whole.git");
    let dir = whole.display().to_string();
    // A fetch into an empty repository would write a file for each ref. A clone writes one for all.
    let clone = ["clone", "--quiet", "--mirror", &admin, &dir];
    let fetch = ["fetch", "--quiet", "origin"];
    for (what, dir, args) in [
        ("clone", bench.dir, &clone[..]),
        ("fetch, no news", &whole, &fetch),
    ] {
        let since = Instant::now();
        copy::git(dir, args).context("copy of everything")?;
        let took = format!("{:.1}", since.elapsed().as_secs_f64());
        table.row(format!("{}, {what}", bench.name), [took]);
    }
    Ok(table)
}

fn fetch(dir: &Path, url: &str) -> anyhow::Result<()> {
    copy::git(dir, &["fetch", "--quiet", url, "refs/users/self"])?;
    Ok(())
}

fn with_password(server: &Server, name: &str, password: &str) -> String {
    let url = server.events.replace("events", "All-Users");
    url.replacen("://", &format!("://{name}:{password}@"), 1)
}
