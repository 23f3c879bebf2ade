//! `lockkeeper registry namespaces (add | list | change | remove)`.

use anyhow::Context as _;
use lockkeeper_registry::names::NamePrefix;
use serde_json::{Value, json};

use super::super::namespaces::{
    AddNamespace, ChangeNamespace, ForeignVersions, RegistryNamespace, RemoveNamespace, Visibility,
};
use super::{cause, prefix};
use crate::kit::term::{DatabaseFlags, ExitResult, ExitStatus, OutputFormat, Terminal, safe, time};
use crate::model::OwnerName;

#[derive(clap::Subcommand)]
pub(in crate::features::registry) enum NamespacesArgs {
    /// Add a namespace for an owner
    ///
    /// A namespace of Terraform modules is a word such as acme. One of Go modules is the beginning of their paths, such as
    /// example.com/net, and includes everything below it. Only tokens with a scope for its names publish there.
    ///
    /// Exit code 1: there is no such owner, the namespace is within another one or includes it, or there are versions of
    /// others below it.
    Add {
        /// The namespace, as in acme or example.com/net
        #[arg(value_name = "PREFIX", value_parser = prefix)]
        prefix: NamePrefix,
        /// Owner of the namespace, as `lockkeeper owners list` shows it
        #[arg(long, value_name = "NAME")]
        owner: OwnerName,
        /// public: for every token that reads everything, and all runs; owner: for tokens whose scopes name it, and runs
        /// in repositories of the owner
        #[arg(long, value_name = "WORD", default_value = "public")]
        visibility: Visibility,
        /// Make versions below the namespace that came from other deployments or from repositories those of the owner, as they
        /// are
        #[arg(long)]
        adopt: bool,
        #[command(flatten)]
        format: OutputFormat,
        #[command(flatten)]
        database: DatabaseFlags,
    },
    /// Show all namespaces with their owners
    List {
        #[command(flatten)]
        format: OutputFormat,
        #[command(flatten)]
        database: DatabaseFlags,
    },
    /// Give a namespace to another owner, or to other readers
    ///
    /// Exit code 1: there is no such namespace or owner.
    #[command(group(clap::ArgGroup::new("change").required(true).multiple(true).args(["owner", "visibility"])))]
    Change {
        /// The namespace, as in acme or example.com/net
        #[arg(value_name = "PREFIX", value_parser = prefix)]
        prefix: NamePrefix,
        /// New owner of the namespace, as `lockkeeper owners list` shows it
        #[arg(long, value_name = "NAME")]
        owner: Option<OwnerName>,
        /// public: for every token that reads everything, and all runs; owner: for tokens whose scopes name it, and runs
        /// in repositories of the owner
        #[arg(long, value_name = "WORD")]
        visibility: Option<Visibility>,
        #[command(flatten)]
        format: OutputFormat,
        #[command(flatten)]
        database: DatabaseFlags,
    },
    /// Remove a namespace without versions
    ///
    /// Exit code 1: there is no such namespace, or a version was published in it.
    Remove {
        /// The namespace, as in acme or example.com/net
        #[arg(value_name = "PREFIX", value_parser = prefix)]
        prefix: NamePrefix,
        #[command(flatten)]
        format: OutputFormat,
        #[command(flatten)]
        database: DatabaseFlags,
    },
}

impl NamespacesArgs {
    pub(super) async fn run(self, terminal: &mut Terminal<'_>) -> ExitResult {
        match self {
            Self::Add {
                prefix,
                owner,
                visibility,
                adopt,
                format,
                database,
            } => {
                let store = database.open().await?;
                let cause = cause("");
                let foreign = if adopt {
                    ForeignVersions::Adopt
                } else {
                    ForeignVersions::Refuse
                };
                let added =
                    store.registry_namespace_add(&prefix, &owner, visibility, foreign, &cause);
                let refusal = match added.await.context("the namespace was not added")? {
                    AddNamespace::Added(namespace) => return show(&namespace, format, terminal),
                    AddNamespace::AlreadyThere(other) => {
                        format!("the namespace exists: {}", text(&other))
                    }
                    AddNamespace::Overlaps(other) => format!(
                        "{} and {} have names in common, so they have one owner: {}",
                        prefix.as_str(),
                        other.prefix.as_str(),
                        text(&other)
                    ),
                    AddNamespace::InUse(name) => format!(
                        "{0} has versions that {owner} has not published: they came from another deployment or from a \
                         repository. `lockkeeper registry show {0}` lists them. Choose another prefix, or make them versions of \
                         {owner}, as they are, with --adopt",
                        name.as_str()
                    ),
                    AddNamespace::NoOwner => no_owner(Some(&owner)),
                    AddNamespace::TooMany(most) => {
                        format!(
                            "there are {most} namespaces, which is the maximum. Remove some first"
                        )
                    }
                };
                terminal.note(safe(&format!("error: {refusal}")));
                Ok(ExitStatus::Failure)
            }
            Self::List { format, database } => {
                let namespaces = database.open().await?.registry_namespaces().await;
                let namespaces = namespaces.context("the namespaces cannot be read")?;
                if namespaces.is_empty() && !format.is_json() {
                    terminal.line(
                        "There are no namespaces yet. Add one with `lockkeeper registry namespaces add`.",
                    )?;
                }
                for namespace in &namespaces {
                    show(namespace, format, terminal)?;
                }
                Ok(ExitStatus::Success)
            }
            Self::Change {
                prefix,
                owner,
                visibility,
                format,
                database,
            } => {
                let store = database.open().await?;
                let cause = cause("");
                let changed =
                    store.registry_namespace_change(&prefix, owner.as_ref(), visibility, &cause);
                let refusal = match changed.await.context("the namespace was not changed")? {
                    ChangeNamespace::Changed(namespace) => {
                        return show(&namespace, format, terminal);
                    }
                    ChangeNamespace::NoOwner => no_owner(owner.as_ref()),
                    ChangeNamespace::NotFound => no_namespace(&prefix),
                };
                terminal.note(safe(&format!("error: {refusal}")));
                Ok(ExitStatus::Failure)
            }
            Self::Remove {
                prefix,
                format,
                database,
            } => {
                let store = database.open().await?;
                let removed = store.registry_namespace_remove(&prefix, &cause("")).await;
                let refusal = match removed.context("the namespace was not removed")? {
                    RemoveNamespace::Removed(namespace) => {
                        format.print(
                            terminal,
                            || json(&namespace),
                            || format!("Removed {}", text(&namespace)),
                        )?;
                        return Ok(ExitStatus::Success);
                    }
                    RemoveNamespace::InUse(name) => format!(
                        "the namespace stays, because {} has versions, and published versions are kept for good",
                        name.as_str()
                    ),
                    RemoveNamespace::NotFound => no_namespace(&prefix),
                };
                terminal.note(safe(&format!("error: {refusal}")));
                Ok(ExitStatus::Failure)
            }
        }
    }
}

fn no_owner(owner: Option<&OwnerName>) -> String {
    match owner {
        Some(owner) => {
            format!("no owner has the name `{owner}`. Add it with `lockkeeper owners add {owner}`")
        }
        None => "the owner of the namespace was removed in this moment. Try again".to_owned(),
    }
}

fn no_namespace(prefix: &NamePrefix) -> String {
    format!(
        "there is no namespace {}. `lockkeeper registry namespaces list` lists all of them",
        prefix.as_str()
    )
}

fn show(
    namespace: &RegistryNamespace,
    format: OutputFormat,
    terminal: &mut Terminal<'_>,
) -> ExitResult {
    format.print(terminal, || json(namespace), || text(namespace))?;
    Ok(ExitStatus::Success)
}

fn text(namespace: &RegistryNamespace) -> String {
    safe(&format!(
        "{} of {} ({}), added by {} on {}",
        namespace.prefix,
        namespace.owner,
        namespace.visibility,
        namespace.created_by,
        namespace.created_at.date_naive()
    ))
}

fn json(namespace: &RegistryNamespace) -> Value {
    json!({
        "kind": namespace.prefix.kind(),
        "prefix": namespace.prefix.as_str(),
        "owner": namespace.owner,
        "visibility": namespace.visibility,
        "created_by": namespace.created_by,
        "created_at": time(namespace.created_at),
    })
}
