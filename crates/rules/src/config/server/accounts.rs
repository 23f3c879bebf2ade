//! Settings for accounts in Git.

use std::path::PathBuf;

use url::Url;

use super::github::is_loopback;
use super::reader::{ReadResult, SettingReader};
use super::section::section;
use super::storage::{DATABASE_FORMS, Database, parse_database, read_database};

/// Port of SSH servers, unless a URL names another one.
const SSH_PORT: u16 = 22;
const TO: &str = "accounts-mirror-to";
const TOKEN: &str = "accounts-mirror-token-file";
const SSH_KEY: &str = "accounts-mirror-ssh-key-file";
const KNOWN_HOSTS: &str = "accounts-mirror-known-hosts-file";

/// Repository on another server that gets a copy of the accounts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccountsMirrorConfig {
    /// URL of the repository, without a user name.
    pub url: Url,
    /// Credentials for the repository.
    pub access: AccountsMirrorAccess,
}

/// Credentials for the repository that gets a copy of the accounts. Files are read for each use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccountsMirrorAccess {
    /// None. The repository is on a network that only the server reaches.
    Open,
    /// A user with a password or token, for HTTP.
    Token {
        /// Name of the user.
        user: String,
        /// File with the password or token.
        file: PathBuf,
    },
    /// A user with a key, for SSH.
    Ssh {
        /// Name of the user, mostly `git`.
        user: String,
        /// Port of the SSH server.
        port: u16,
        /// File with the private key.
        key: PathBuf,
        /// File with the keys of the host.
        known_hosts: PathBuf,
    },
}

section! {
    /// Settings for accounts in Git.
    #[expect(clippy::doc_markdown, reason = "the comment of a setting is its help on the command line")]
    pub struct AccountsConfig in Storage {
        /// Repository to which the accounts are pushed.
        pub mirror: Option<AccountsMirrorConfig> = read_mirror from {
            /// Git repository to which the accounts are pushed after each change, as in
            /// https://NAME@git.example.com/ops/accounts.git or ssh://git@git.example.com/ops/accounts.git. It must be
            /// private, because it gets hashes of passwords, and addresses of people (docs/accounts.md). Not set: no
            /// copy.
            text("accounts-mirror-to", "URL"),

            /// File with the password or token for the https: URL of --accounts-mirror-to; read again for each push.
            path("accounts-mirror-token-file", "FILE")
                .must_exist()
                .hidden_from_runs("the token for the copy of the accounts"),

            /// File with the private key for the ssh: URL of --accounts-mirror-to, without a passphrase; read again
            /// for each push.
            path("accounts-mirror-ssh-key-file", "FILE")
                .must_exist()
                .hidden_from_runs("the key for the copy of the accounts"),

            /// File with the keys of the host of that ssh: URL, one per line, as `ssh-keyscan HOST` prints them.
            path("accounts-mirror-known-hosts-file", "FILE")
                .must_exist()
                .fixed_in_runs("the keys of the host for the copy of the accounts"),
        },

        /// Numbers for new accounts that this server takes from the sequence at a time. It gives them from memory, so
        /// several servers seldom wait for each other, and a restart leaves a gap.
        pub sequence_batch: u32 =
            number("accounts-sequence-batch-size", "NUMBER", 1, 1_000).or("1") => read_batch,

        /// Another database for the reviewed flags of accounts: postgres://user:password@host/name, or sqlite:FILE. It
        /// belongs to this server alone; PGPASSWORD is not for it. Not set: they are in the database of the server.
        pub reviewed_flags: Option<Database> = secret("reviewed-flags-url", "URL") => read_reviewed_flags,
    }
}

fn read_batch(reader: &mut SettingReader<'_>, flag: &'static str) -> ReadResult<u32> {
    Ok(reader.number(flag)?.expect("the batch has a default"))
}

fn read_reviewed_flags(
    reader: &mut SettingReader<'_>,
    flag: &'static str,
) -> ReadResult<Option<Database>> {
    let Some(url) = reader.hidden(flag) else {
        return Ok(None);
    };
    let database = match parse_database(&url, reader.raw()) {
        Ok(database) => database,
        Err(what) => return reader.refuse(flag, what, DATABASE_FORMS),
    };
    let server = read_database(reader, "database-url")?;
    match (&database, server) {
        (Database::Sqlite(_), Database::Postgres(_)) => reader.refuse(
            flag,
            "a file, which servers that share --database-url do not share",
            "write postgres://user:password@host/name",
        ),
        (Database::Sqlite(_), Database::Sqlite(_)) => Ok(Some(database)),
        (Database::Postgres(_), _) => {
            reader.warn_of_secret_flag(flag);
            Ok(Some(database))
        }
    }
}

fn read_mirror(reader: &mut SettingReader<'_>) -> ReadResult<Option<AccountsMirrorConfig>> {
    let files = [TOKEN, SSH_KEY, KNOWN_HOSTS].map(|flag| (flag, reader.path(flag)));
    let fix =
        "write a URL such as `https://NAME@HOST/accounts.git` or `ssh://git@HOST/accounts.git`";
    let Some(url) = reader.parsed(TO, repository_url, fix)? else {
        return match files.iter().find(|(_, file)| file.is_some()) {
            None => Ok(None),
            Some((flag, _)) => reader.refuse(
                flag,
                "set, but there is no repository to push the accounts to",
                "set --accounts-mirror-to, or remove this setting",
            ),
        };
    };
    let [(_, token), (_, key), (_, known_hosts)] = files;
    let user = user_of(&url);
    let access = if url.scheme() == "ssh" {
        read_ssh(
            reader,
            (user, url.port()),
            token.is_some(),
            (key, known_hosts),
        )?
    } else {
        read_http(reader, user, token, key.is_some() || known_hosts.is_some())?
    };
    let url = without_user(url);
    Ok(Some(AccountsMirrorConfig { url, access }))
}

/// Parses the URL of a repository. Errors do not repeat the text, because it may contain a password.
fn repository_url(text: &str) -> Result<Url, &'static str> {
    let url = Url::parse(text).map_err(|_| {
        "the text is not an https: or ssh: URL. For a copy in a directory, run `git clone --mirror` there \
         (docs/accounts.md)"
    })?;
    match url.scheme() {
        "https" | "ssh" => {}
        "http" if is_loopback(&url) => {}
        "http" => {
            return Err(
                "an http: URL, so everybody on the way could read the hashes of passwords. It is only supported for this \
                 machine itself",
            );
        }
        _ => {
            return Err(
                "only https: and ssh: URLs are supported. A directory would be on one server only: run \
                 `git clone --mirror` there (docs/accounts.md)",
            );
        }
    }
    if url.password().is_some() {
        return Err(
            "the URL contains a password, which lists of processes and logs would show. Write it into the file of \
             --accounts-mirror-token-file",
        );
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err("the URL has a query or a fragment");
    }
    if url.path().len() < 2 || url.host_str().is_none_or(str::is_empty) {
        return Err("the URL names no repository");
    }
    Ok(url)
}

fn read_http(
    reader: &mut SettingReader<'_>,
    user: Option<String>,
    token: Option<PathBuf>,
    has_ssh_files: bool,
) -> ReadResult<AccountsMirrorAccess> {
    if has_ssh_files {
        return reader.refuse(
            TO,
            "an https: URL, but there is a key or a list of hosts for SSH",
            "write an ssh: URL, or remove --accounts-mirror-ssh-key-file and --accounts-mirror-known-hosts-file",
        );
    }
    match (user, token) {
        (None, None) => Ok(AccountsMirrorAccess::Open),
        (Some(user), Some(file)) => Ok(AccountsMirrorAccess::Token { user, file }),
        (None, Some(_)) => reader.refuse(
            TO,
            "names no user, but there is a token",
            "name the user of the token, as in `https://NAME@git.example.com/ops/accounts.git`",
        ),
        (Some(_), None) => reader.refuse(
            TOKEN,
            "missing, but --accounts-mirror-to names a user",
            "name the file with the password or token of the user",
        ),
    }
}

fn read_ssh(
    reader: &mut SettingReader<'_>,
    (user, port): (Option<String>, Option<u16>),
    has_token: bool,
    files: (Option<PathBuf>, Option<PathBuf>),
) -> ReadResult<AccountsMirrorAccess> {
    if has_token {
        return reader.refuse(
            TOKEN,
            "set, but --accounts-mirror-to is an ssh: URL",
            "write an https: URL, or remove the token",
        );
    }
    match (user, files) {
        (Some(user), (Some(key), Some(known_hosts))) => Ok(AccountsMirrorAccess::Ssh {
            user,
            port: port.unwrap_or(SSH_PORT),
            key,
            known_hosts,
        }),
        (None, _) => reader.refuse(
            TO,
            "an ssh: URL without a user",
            "name the user, as in `ssh://git@git.example.com/ops/accounts.git`",
        ),
        (_, (None, _)) => reader.refuse(
            SSH_KEY,
            "missing, but --accounts-mirror-to is an ssh: URL",
            "name the file with the private key",
        ),
        (_, (_, None)) => reader.refuse(
            KNOWN_HOSTS,
            "missing, but --accounts-mirror-to is an ssh: URL",
            "write the output of `ssh-keyscan HOST` into a file, compare the keys with those that the host publishes, \
             and name the file",
        ),
    }
}

fn user_of(url: &Url) -> Option<String> {
    let user = percent_encoding::percent_decode_str(url.username());
    let user = user.decode_utf8_lossy().into_owned();
    Some(user).filter(|user| !user.is_empty())
}

fn without_user(mut url: Url) -> Url {
    // Only a URL without a host refuses that.
    url.set_username("").ok();
    url
}
