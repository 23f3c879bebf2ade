//! Writes a large copy of `All-Users` with `git fast-import`.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufRead as _, BufReader, BufWriter, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};
use lockkeeper::model::AccountId;
use lockkeeper_accounts::email::AccountEmail;
use lockkeeper_accounts::external_ids::{ExternalIdKey, ForgeScheme};
use lockkeeper_accounts::refs::{AllUsersRef, ChangeNumber};

/// Number of accounts. Each has a user name, an address and a number on GitHub.
pub const ACCOUNTS: u32 = 100_000;
/// Number of accounts that watch a project.
pub const WATCHES: u32 = 50_000;
/// Number of accounts that watch [`PROJECT`]. The others watch one of [`PROJECTS`].
pub const WATCHERS: u32 = 1_000;
const PROJECTS: u32 = 5_000;
/// Number of changes, which accounts have starred.
pub const CHANGES: u32 = 20_000;
/// Number of stars of each account.
pub const STARS: u32 = 10;
/// Project with many watchers.
pub const PROJECT: &str = "github.test/acme/infra";

const FIRST_NAMES: [&str; 20] = [
    "Ada", "Ben", "Chloe", "Dmitri", "Elif", "Farid", "Grace", "Hiro", "Ines", "Jonas", "Kofi",
    "Lena", "Mateo", "Nadia", "Oscar", "Priya", "Quentin", "Rosa", "Sven", "Tariq",
];
const LAST_NAMES: [&str; 25] = [
    "Abbott", "Bauer", "Castillo", "Dubois", "Eriksen", "Fischer", "Garcia", "Haddad", "Ivanov",
    "Jensen", "Kowalski", "Larsson", "Moreau", "Nakamura", "Okafor", "Petrov", "Quispe", "Rossi",
    "Silva", "Tanaka", "Ueda", "Vargas", "Weber", "Yilmaz", "Zhang",
];
/// Time of all commits.
const WHO: &str = "Lockkeeper <lockkeeper@localhost> 1700000000 +0000";
/// Branches on which fast-import makes the commits of accounts and of external IDs.
const ACCOUNT_BRANCH: &str = "refs/heads/account";
const NOTES_BRANCH: &str = "refs/heads/notes";
/// Marks of the objects that are no accounts.
const NOTES_MARK: u32 = ACCOUNTS + 1;
const STAR_MARK: u32 = ACCOUNTS + 2;
const SEQUENCE_MARK: u32 = ACCOUNTS + 3;

/// Returns the number of the account at this place.
pub fn account(place: u32) -> AccountId {
    AccountId::new(AccountId::FIRST.get() + place).expect("the places are few")
}

/// Returns the user name of the account at this place.
pub fn username(place: u32) -> String {
    format!("user{place}")
}

/// Returns the address of the account at this place.
pub fn email(place: u32) -> String {
    format!("{}@example.com", username(place))
}

/// Returns the name of the person at this place. Each is there 200 times, but for the last word.
fn full_name(place: u32) -> String {
    let (first, last) = (place as usize % 20, place as usize / 20 % 25);
    format!("{} {} {place}", FIRST_NAMES[first], LAST_NAMES[last])
}

/// Returns the changes that the account at this place has starred.
fn stars(place: u32) -> impl Iterator<Item = u32> {
    (0..STARS).map(move |star| (place * STARS + star * 7_919) % CHANGES + 1)
}

/// Writes a bare repository into `dir`.
pub fn write(dir: &Path) -> anyhow::Result<()> {
    git(dir, &["init", "--quiet", "--bare"])?;
    let marks = dir.join("marks");
    let mut import = git_command(dir)
        .args(["fast-import", "--quiet", "--force"])
        .arg(format!("--export-marks={}", marks.display()))
        .stdin(Stdio::piped())
        .spawn()
        .context("cannot start git")?;
    let stream = import.stdin.take().context("git has no input")?;
    let mut stream = BufWriter::new(stream);
    write_accounts(&mut stream)?;
    write_notes(&mut stream)?;
    blob(&mut stream, STAR_MARK, "star")?;
    let next = account(ACCOUNTS).to_string();
    blob(&mut stream, SEQUENCE_MARK, &next)?;
    stream.flush()?;
    drop(stream);
    ensure!(import.wait()?.success(), "git fast-import failed");
    for branch in [ACCOUNT_BRANCH, NOTES_BRANCH] {
        git(dir, &["update-ref", "-d", branch])?;
    }
    write_refs(dir, &read_marks(&marks)?)?;
    std::fs::remove_file(marks)?;
    Ok(())
}

fn write_accounts(stream: &mut impl Write) -> anyhow::Result<()> {
    for place in 0..ACCOUNTS {
        let mut config = format!(
            "[account]\n\tfullName = {}\n\tpreferredEmail = {}\n",
            full_name(place),
            email(place)
        );
        if place % 50 == 0 {
            config.push_str("\tactive = false\n");
        }
        writeln!(stream, "reset {ACCOUNT_BRANCH}\n")?;
        commit(stream, ACCOUNT_BRANCH, place + 1, "Create Account\n")?;
        file(stream, "account.config", &config)?;
        if place < WATCHES {
            let project = if place < WATCHERS {
                PROJECT.to_owned()
            } else {
                format!("github.test/acme/r{}", place % PROJECTS)
            };
            let watches = format!("[project \"{project}\"]\n\tnotify = * [ALL_COMMENTS]\n");
            file(stream, "watch.config", &watches)?;
        }
    }
    Ok(())
}

fn write_notes(stream: &mut impl Write) -> anyhow::Result<()> {
    commit(stream, NOTES_BRANCH, NOTES_MARK, "Create Accounts\n")?;
    for place in 0..ACCOUNTS {
        let address: AccountEmail = email(place).parse()?;
        let keys = [
            (ExternalIdKey::username(&username(place))?, false),
            (ExternalIdKey::mailto(&address)?, true),
            (
                ExternalIdKey::forge(ForgeScheme::GitHub, "github.com", u64::from(place) + 1)?,
                false,
            ),
        ];
        for (key, has_email) in keys {
            let mut note = format!(
                "[externalId \"{}\"]\n\taccountId = {}\n",
                key.as_str(),
                account(place)
            );
            if has_email {
                writeln!(note, "\temail = {address}")?;
            }
            // Folders of two digits, as Lockkeeper would split so many.
            let name = key.note_name().to_string();
            let path = format!("{}/{}/{}", &name[..2], &name[2..4], &name[4..]);
            file(stream, &path, &note)?;
        }
    }
    Ok(())
}

fn commit(stream: &mut impl Write, branch: &str, mark: u32, message: &str) -> anyhow::Result<()> {
    write!(
        stream,
        "commit {branch}\nmark :{mark}\nauthor {WHO}\ncommitter {WHO}\ndata {}\n{message}",
        message.len()
    )?;
    Ok(())
}

fn file(stream: &mut impl Write, path: &str, text: &str) -> anyhow::Result<()> {
    writeln!(
        stream,
        "M 100644 inline {path}\ndata {}\n{text}",
        text.len()
    )?;
    Ok(())
}

fn blob(stream: &mut impl Write, mark: u32, text: &str) -> anyhow::Result<()> {
    writeln!(stream, "blob\nmark :{mark}\ndata {}\n{text}", text.len())?;
    Ok(())
}

/// Reads the ids of objects by their marks.
fn read_marks(path: &Path) -> anyhow::Result<HashMap<u32, String>> {
    let mut marks = HashMap::new();
    for line in BufReader::new(File::open(path)?).lines() {
        let line = line?;
        let mark = line.trim_start_matches(':').split_once(' ');
        let (mark, id) = mark.context("a mark is none")?;
        marks.insert(mark.parse()?, id.to_owned());
    }
    Ok(marks)
}

/// Writes all refs into one file, because a million files would take minutes.
fn write_refs(dir: &Path, marks: &HashMap<u32, String>) -> anyhow::Result<()> {
    let mut refs = vec![
        (AllUsersRef::ExternalIds.to_string(), NOTES_MARK),
        (AllUsersRef::AccountSequence.to_string(), SEQUENCE_MARK),
    ];
    for place in 0..ACCOUNTS {
        let number = account(place);
        refs.push((AllUsersRef::User(number).to_string(), place + 1));
        for change in stars(place) {
            let change = ChangeNumber::new(change).context("changes begin with 1")?;
            refs.push((
                AllUsersRef::StarredChange(change, number).to_string(),
                STAR_MARK,
            ));
        }
    }
    refs.sort();
    let mut packed = BufWriter::new(File::create(dir.join("packed-refs"))?);
    writeln!(packed, "# pack-refs with: peeled fully-peeled sorted ")?;
    for (name, mark) in refs {
        let id = marks.get(&mark).context("an object has no mark")?;
        writeln!(packed, "{id} {name}")?;
    }
    packed.flush()?;
    Ok(())
}

/// Runs git in `dir`.
pub fn git(dir: &Path, args: &[&str]) -> anyhow::Result<Vec<u8>> {
    std::fs::create_dir_all(dir)?;
    let output = git_command(dir).args(args).output()?;
    ensure!(
        output.status.success(),
        "git {args:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(output.stdout)
}

#[expect(clippy::disallowed_methods, reason = "git is run as people run it")]
pub fn git_command(dir: &Path) -> Command {
    let mut command = Command::new("git");
    command
        .current_dir(dir)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", "/nonexistent")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_TERMINAL_PROMPT", "0");
    command
}
