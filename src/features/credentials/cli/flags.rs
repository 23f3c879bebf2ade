//! The command line of `lockkeeper credentials`.

use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};

use super::value::CredentialSource;
use crate::credential::CredentialKind;
use crate::kit::term::database;
use crate::model::{CredentialId, ForgeHosts, OwnerName, RepoUrl};
use crate::seal::KeyName;

/// Name of the flag for the key file, as for the server.
pub(super) const KEY_FILE: &str = "encryption-key-file";
/// Name of the flag for the host of the forge, as for the server.
pub(super) const HOST: &str = "gh-hostname";

pub(super) fn command() -> Command {
    let add = Command::new("add")
        .about("Store a credential for a repository, and claim the repository for its owner")
        .long_about(
            "Stores a token, an installation of a GitHub App or an SSH key for one repository. The secret is read from \
             --value-file, or from standard input. The owner claims the repository with it.\n\nExit code 1: another owner \
             has claimed the repository, or the credential cannot be used. The message says why, and nothing was stored.",
        )
        .args([text("owner", "NAME", "Owner of the credential").required(true), text("url", "URL", "The repository").required(true)])
        .args(value_args(true));
    let change = Command::new("change")
        .about("Replace a credential, or use it for another repository")
        .arg(id())
        .arg(text("url", "URL", "New repository of the credential"))
        .args(value_args(false));
    let list = Command::new("list")
        .about("Show credentials without their secrets")
        .args([
            text("owner", "NAME", "Only credentials of this owner"),
            text("url", "URL", "Only credentials for this repository"),
        ]);
    let remove = Command::new("remove")
        .about("Remove a credential, and the claim if nothing else needs it")
        .arg(id());
    let rotate = Command::new("rotate").about("Encrypt all credentials with the first key of the key file").long_about(
        "Encrypts every credential with the first key of --encryption-key-file, a hundred at a time. You can interrupt it \
         and run it again, and the servers keep working. Afterwards the older keys are no longer needed.\n\n\
         Exit code 1: some credentials could not be read, or were changed at the same time. Run it again.",
    );
    let keygen = Command::new("keygen")
        .about("Print a new line for the key file")
        .arg(
            text(
                "name",
                "NAME",
                "Name of the key; the default is today's date",
            )
            .value_parser(value_parser!(KeyName)),
        );
    let on_database =
        [add, change, list, remove, rotate].map(|command| {
            command
            .arg(text(KEY_FILE, "FILE", "Keys to encrypt with, as for `lockkeeper server`"))
            .arg(text(
                HOST,
                "HOST",
                "Host of the forge, as for `lockkeeper server`: names on it are case-insensitive",
            ))
            .arg(Arg::new("json").long("json").action(ArgAction::SetTrue).help("As JSON"))
            .args(database::flags())
        });
    Command::new("credentials")
        .about("Add, change and remove credentials of repositories")
        .subcommand_required(true)
        .disable_help_subcommand(true)
        .subcommands(on_database)
        .subcommand(keygen)
}

fn text(name: &'static str, value: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).value_name(value).help(help)
}

fn id() -> Arg {
    Arg::new("id")
        .value_name("ID")
        .required(true)
        .value_parser(value_parser!(CredentialId))
        .help("As `list` shows it")
}

fn value_args(with_default: bool) -> [Arg; 7] {
    let kind = Arg::new("kind")
        .long("kind")
        .value_name("KIND")
        .value_parser(
            CredentialKind::ALL
                .iter()
                .map(|kind| kind.as_str())
                .collect::<Vec<_>>(),
        )
        .help("token, app (an installation of a GitHub App) or ssh (an SSH key, for git only)");
    [
        if with_default {
            kind.default_value("token")
        } else {
            kind
        },
        Arg::new("value-file")
            .long("value-file")
            .value_name("FILE")
            .value_parser(value_parser!(PathBuf))
            .help("File with the token or the private key; the default is standard input"),
        text(
            "user",
            "NAME",
            "Account of the token, or on the SSH host; usually not needed",
        ),
        text("app-id", "NUMBER", "Identifier of the GitHub App").value_parser(value_parser!(u64)),
        text(
            "installation-id",
            "NUMBER",
            "Identifier of its installation",
        )
        .value_parser(value_parser!(u64)),
        Arg::new("known-hosts")
            .long("known-hosts")
            .value_name("FILE")
            .value_parser(value_parser!(PathBuf))
            .help("Keys of the SSH host, as in a known_hosts file"),
        text(
            "ssh-port",
            "NUMBER",
            "Port of the SSH host, if it is not 22",
        )
        .value_parser(value_parser!(u16)),
    ]
}

/// Request, read before anything is opened.
pub(super) enum CredentialRequest {
    Add {
        owner: OwnerName,
        url: RepoUrl,
        value: CredentialSource,
    },
    Change {
        id: CredentialId,
        url: Option<RepoUrl>,
        value: Option<CredentialSource>,
    },
    List {
        owner: Option<OwnerName>,
        url: Option<RepoUrl>,
    },
    Remove {
        id: CredentialId,
    },
    Rotate,
}

impl CredentialRequest {
    pub fn read(name: &str, matches: &ArgMatches, forges: &ForgeHosts) -> Result<Self, String> {
        let given = |name: &str| matches.try_get_one::<String>(name).ok().flatten();
        let owner = given("owner")
            .map(|text| OwnerName::new(text).map_err(|error| format!("--owner: {error}")));
        let url = given("url")
            .map(|text| RepoUrl::parse_at(text, forges).map_err(|error| format!("--url: {error}")));
        let (owner, url) = (owner.transpose()?, url.transpose()?);
        let id = || *matches.get_one("id").expect("clap demands it");
        Ok(match name {
            "add" => Self::Add {
                owner: owner.expect("clap demands it"),
                url: url.expect("clap demands it"),
                value: CredentialSource::of(matches)?.expect("the kind has a default"),
            },
            "change" => {
                let value = CredentialSource::of(matches)?;
                if url.is_none() && value.is_none() {
                    return Err(
                        "no change was requested: set --url, or --kind and the new value"
                            .to_owned(),
                    );
                }
                Self::Change {
                    id: id(),
                    url,
                    value,
                }
            }
            "list" => Self::List { owner, url },
            "remove" => Self::Remove { id: id() },
            _ => Self::Rotate,
        })
    }
}
