//! `lockkeeper registry peers (invite | invitations | withdraw | join | list | show | change | approve | suspend | resume |
//! remove)`.

use std::time::Duration;

use anyhow::Context as _;
use lockkeeper_registry::names::NamePattern;
use lockkeeper_registry::records::DeploymentName;
use lockkeeper_registry::signed_note::NoteVerifier;

use super::super::namespaces::Visibility;
use super::super::peers::{
    INVITATION_TIME, Invitation, InvitationId, InvitationView, JoinRequest, NamePatterns,
    NewInvitation, OpenInvitationView, Peer, PeerChange, PeerTerms, PeerUrl, PeerView,
    PeerWithConflicts, TOO_MANY_INVITATIONS, UnchangedPeer, change_peer, conflicts_with,
    fingerprint, invitation_time, invite, join, terms_text,
};
use super::{RegistryFlags, cause, log_key};
use crate::clock::{Clock as _, SystemClock};
use crate::config::size::{self, ByteSize};
use crate::kit::term::{
    DatabaseFlags, ExitResult, ExitStatus, OutputFormat, Terminal, Usage, safe, time,
};
use crate::secret::Secret;
use crate::store::Store;

#[derive(clap::Subcommand)]
pub(in crate::features::registry) enum PeersArgs {
    /// Invite another deployment, and print a one-time word
    ///
    /// Send the word to the administrator of the other deployment, over a channel that nobody else reads. `lockkeeper
    /// registry peers join` uses it. Then compare the fingerprints that both commands show.
    Invite {
        /// Address of the other deployment, as in `https://mods.example.org`
        #[arg(long, value_name = "URL")]
        url: PeerUrl,
        #[command(flatten)]
        terms: TermsArgs,
        /// Time after which the word cannot be used any more, at most 7d
        #[arg(long, value_name = "TIME", default_value = INVITATION_TIME, value_parser = lifetime)]
        expires: Duration,
        #[command(flatten)]
        format: OutputFormat,
        #[command(flatten)]
        database: DatabaseFlags,
    },
    /// Show the invitations that nobody has used yet, without their words
    Invitations {
        #[command(flatten)]
        format: OutputFormat,
        #[command(flatten)]
        database: DatabaseFlags,
    },
    /// End an invitation, so that nobody can join with its word
    ///
    /// Exit code 1: there is no such invitation, or it was used or has expired.
    Withdraw {
        /// Identifier, as `invitations` shows it
        #[arg(value_name = "ID")]
        id: InvitationId,
        #[command(flatten)]
        format: OutputFormat,
        #[command(flatten)]
        database: DatabaseFlags,
    },
    /// Join a deployment that has invited this one
    ///
    /// Keys and tokens are exchanged over HTTPS. Compare the fingerprints with the other administrator.
    ///
    /// Exit code 1: the other deployment does not answer, or refuses the word.
    Join {
        /// Address of the other deployment, as in `https://mods.example.com`
        #[arg(value_name = "URL")]
        url: PeerUrl,
        /// File with the word that `peers invite` has printed there
        #[arg(long, value_name = "FILE")]
        word_file: String,
        #[command(flatten)]
        terms: TermsArgs,
        #[command(flatten)]
        format: OutputFormat,
        #[command(flatten)]
        server: RegistryFlags,
    },
    /// Show all peers with their states and their lag
    List {
        #[command(flatten)]
        format: OutputFormat,
        #[command(flatten)]
        database: DatabaseFlags,
    },
    /// Show a peer, with everything that it sent and that does not count here
    ///
    /// Exit code 1: there is no such peer.
    Show {
        #[command(flatten)]
        peer: PeerArgs,
    },
    /// Change what is exchanged with a peer
    ///
    /// What is given replaces all earlier patterns. The logs of all peers are read again from the first record, and all
    /// packages that are still there are requested again.
    ///
    /// Exit code 1: there is no such peer.
    #[command(group(clap::ArgGroup::new("change").required(true).multiple(true)
        .args(["share", "accept", "visibility", "max_versions", "max_bytes"])))]
    Change {
        /// Names that the peer may read, as in 'module acme/*'. May be given several times
        #[arg(long, value_name = "NAMES")]
        share: Vec<NamePattern>,
        /// Names for which its records count. May be given several times
        #[arg(long, value_name = "NAMES")]
        accept: Vec<NamePattern>,
        /// Readers of its names that belong to nobody here: public or owner
        #[arg(long, value_name = "WORD")]
        visibility: Option<Visibility>,
        /// Maximum number of versions that its records may add here, counted from the beginning
        #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(..=PeerTerms::MAX_VERSIONS))]
        max_versions: Option<u64>,
        /// Maximum size of all packages of these versions, as in 200GiB
        #[arg(long, value_name = "SIZE")]
        max_bytes: Option<ByteSize>,
        #[command(flatten)]
        peer: PeerArgs,
    },
    /// Let the records of a proposed deployment count, if others relay them
    ///
    /// Compare its fingerprint with its administrator first. To exchange packages and records directly, invite it.
    ///
    /// Names that are accepted here are private: other peers only read those that a narrower --share names, until
    /// `lockkeeper registry peers change NAME --visibility public`.
    ///
    /// Exit code 1: there is no such proposal.
    Approve {
        /// Names for which its records count, as in 'module acme/*'. May be given several times
        #[arg(long, value_name = "NAMES", required = true)]
        accept: Vec<NamePattern>,
        #[command(flatten)]
        peer: PeerArgs,
    },
    /// Stop the exchange with a peer for a while
    ///
    /// Exit code 1: there is no such peer, or the exchange with it is stopped.
    Suspend {
        #[command(flatten)]
        peer: PeerArgs,
    },
    /// Go on with a peer that was suspended, braked or has diverged
    ///
    /// After a brake, you agree to the next 1,000 takedowns of the deployment, for a day. After a divergence, everything
    /// that was seen of its log is forgotten. Find out first what has happened. All logs are read again from the first
    /// record, and packages that the peer has not sent are requested again.
    ///
    /// Exit code 1: there is no such peer, or the exchange with it is not stopped.
    Resume {
        #[command(flatten)]
        peer: PeerArgs,
    },
    /// End the exchange with a peer for good
    ///
    /// Its tokens end at once. Versions that came from it stay, and so does its name: only a deployment with the same key can join
    /// under it again.
    ///
    /// Exit code 1: there is no such peer.
    Remove {
        #[command(flatten)]
        peer: PeerArgs,
    },
}

/// Names that are exchanged with a peer.
#[derive(Clone, clap::Args)]
pub(in crate::features::registry) struct TermsArgs {
    /// Names that the other deployment may read, as in '*' or 'module acme/*'. May be given several times. A pattern that
    /// is wider than a namespace leaves it out if only its owner reads it [default: none]
    #[arg(long, value_name = "NAMES")]
    share: Vec<NamePattern>,
    /// Names for which its records count here. May be given several times. A pattern that is wider than a namespace of an
    /// owner here leaves it out [default: none]
    #[arg(long, value_name = "NAMES")]
    accept: Vec<NamePattern>,
    /// Readers of its names that belong to nobody here. public: everyone who reads public namespaces; owner: tokens whose
    /// scopes name them
    #[arg(long, value_name = "WORD", default_value = "public")]
    visibility: Visibility,
}

/// Name of a peer.
#[derive(Clone, clap::Args)]
pub(in crate::features::registry) struct PeerArgs {
    /// Name of the peer, as `list` shows it
    #[arg(value_name = "NAME")]
    name: DeploymentName,
    #[command(flatten)]
    format: OutputFormat,
    #[command(flatten)]
    database: DatabaseFlags,
}

fn lifetime(text: &str) -> Result<Duration, String> {
    invitation_time(text).map_err(|error| format!("{error}: write 12h or 7d"))
}

fn patterns(given: Vec<NamePattern>) -> Result<NamePatterns, Usage> {
    NamePatterns::new(given).map_err(Usage::new)
}

impl PeersArgs {
    pub(super) async fn run(self, terminal: &mut Terminal<'_>) -> ExitResult {
        match self {
            Self::Invite {
                url,
                terms,
                expires,
                format,
                database,
            } => {
                let store = database.open().await?;
                let new = NewInvitation {
                    url,
                    shares: patterns(terms.share)?,
                    accepts: patterns(terms.accept)?,
                    visibility: terms.visibility,
                    expires,
                };
                print_invitation(&store, new, format, terminal).await
            }
            Self::Invitations { format, database } => {
                let open = database.open().await?.registry_invitations().await;
                let open = open.context("the invitations cannot be read")?;
                if open.is_empty() && !format.is_json() {
                    terminal.line("There are no open invitations.")?;
                }
                for invitation in &open {
                    show_invitation(invitation, format, terminal)?;
                }
                Ok(ExitStatus::Success)
            }
            Self::Withdraw {
                id,
                format,
                database,
            } => {
                let store = database.open().await?;
                let withdrawn = store.registry_invitation_withdraw(&id, &cause("")).await;
                let withdrawn = withdrawn.context("the invitation was not withdrawn")?;
                let Some(invitation) = withdrawn else {
                    terminal.note(format_args!(
                        "error: there is no open invitation {id}. `lockkeeper registry peers invitations` lists all of them"
                    ));
                    return Ok(ExitStatus::Failure);
                };
                show_invitation(&invitation, format, terminal)
            }
            Self::Join {
                url,
                word_file,
                terms,
                format,
                server,
            } => {
                let word = std::fs::read_to_string(&word_file);
                let word =
                    word.with_context(|| format!("cannot read `{word_file}` (--word-file)"))?;
                let request = JoinRequest {
                    url,
                    word: Secret::new(word.trim()),
                    shares: patterns(terms.share)?,
                    accepts: patterns(terms.accept)?,
                    visibility: terms.visibility,
                };
                print_join(&server, request, format, terminal).await
            }
            Self::List { format, database } => {
                let peers = database.open().await?.registry_peers().await;
                let peers = peers.context("the peers cannot be read")?;
                if peers.is_empty() && !format.is_json() {
                    terminal.line("There are no peers yet. Invite one with `lockkeeper registry peers invite`.")?;
                }
                for peer in &peers {
                    show(peer, format, terminal)?;
                }
                Ok(ExitStatus::Success)
            }
            Self::Show { peer } => peer.show(terminal).await,
            Self::Change {
                share,
                accept,
                visibility,
                max_versions,
                max_bytes,
                peer,
            } => {
                let given = |given: Vec<NamePattern>| {
                    let is_given = !given.is_empty();
                    is_given.then(|| patterns(given)).transpose()
                };
                let terms = PeerTerms {
                    shares: given(share)?,
                    accepts: given(accept)?,
                    visibility,
                    max_versions,
                    max_bytes: max_bytes.map(ByteSize::bytes),
                };
                peer.change(&PeerChange::Terms(terms), terminal).await
            }
            Self::Approve { accept, peer } => {
                let change = PeerChange::Approve(patterns(accept)?);
                peer.change(&change, terminal).await
            }
            Self::Suspend { peer } => peer.change(&PeerChange::Suspend, terminal).await,
            Self::Resume { peer } => peer.change(&PeerChange::Resume, terminal).await,
            Self::Remove { peer } => peer.change(&PeerChange::Remove, terminal).await,
        }
    }
}

async fn print_invitation(
    store: &Store,
    new: NewInvitation,
    format: OutputFormat,
    terminal: &mut Terminal<'_>,
) -> ExitResult {
    let key = log_key(store).await?;
    if new.url.is_address_of(key.name()) {
        let why =
            "--url is the address of this deployment itself. Give the address of the other one";
        return Err(Usage::new(why).into());
    }
    let invited = invite(store, new, &cause("")).await;
    let Some(word) = invited.context("the deployment was not invited")? else {
        terminal.note(format_args!("error: {TOO_MANY_INVITATIONS}"));
        return Ok(ExitStatus::Failure);
    };
    let json = serde_json::to_string(&InvitationView::new(&word, &key))?;
    format.print(terminal, || json, || word.expose().to_owned())?;
    if !format.is_json() {
        terminal.note(format_args!(
            "Fingerprint of {}: {}",
            key.name(),
            fingerprint(&key)
        ));
        terminal.note(
            "The word can be used once. Send it to the administrator of the other deployment.",
        );
    }
    Ok(ExitStatus::Success)
}

async fn print_join(
    server: &RegistryFlags,
    request: JoinRequest,
    format: OutputFormat,
    terminal: &mut Terminal<'_>,
) -> ExitResult {
    let (registry, keys) = server.open_with_keys().await?;
    let key = registry.verifier();
    match join(&registry, &keys, request, &cause("")).await? {
        Ok(peer) => {
            show(&peer, format, terminal)?;
            if !format.is_json() {
                note_fingerprints(key, &peer, terminal);
            }
            Ok(ExitStatus::Success)
        }
        Err(fault) => {
            terminal.note(safe(&format!("error: {fault}")));
            Ok(ExitStatus::Failure)
        }
    }
}

impl PeerArgs {
    /// Changes the peer, and prints it or the reason why it stays as it is.
    async fn change(&self, change: &PeerChange, terminal: &mut Terminal<'_>) -> ExitResult {
        let store = self.database.open().await?;
        let changed = change_peer(&store, &self.name, change, &cause("")).await;
        match changed.context("the peer was not changed")? {
            Ok(peer) => show(&peer, self.format, terminal),
            Err(refusal) => Ok(refused(&refusal, terminal)),
        }
    }

    async fn show(&self, terminal: &mut Terminal<'_>) -> ExitResult {
        let store = self.database.open().await?;
        let key = log_key(&store).await?;
        let Some(peer) = store.registry_peer(&self.name).await? else {
            return Ok(refused(
                &UnchangedPeer::UnknownPeer(self.name.to_string()),
                terminal,
            ));
        };
        let conflicts = conflicts_with(&store, &peer.name).await?;
        if self.format.is_json() {
            let now = SystemClock.now();
            let shown = PeerWithConflicts::read(&store, &peer, conflicts, now).await?;
            terminal.line(serde_json::to_string(&shown)?)?;
            return Ok(ExitStatus::Success);
        }
        terminal.line(text(&peer))?;
        for (what, patterns) in [("reads", &peer.shares), ("counts for", &peer.accepts)] {
            let patterns: Vec<String> = patterns.iter().map(ToString::to_string).collect();
            let shown = if patterns.is_empty() {
                "nothing".to_owned()
            } else {
                patterns.join(", ")
            };
            terminal.line(safe(&format!("  {what}: {shown}")))?;
        }
        terminal.line(safe(&format!(
            "  names that belong to nobody here: {}",
            peer.visibility
        )))?;
        let closed: Vec<String> = peer.closed.iter().map(ToString::to_string).collect();
        if !closed.is_empty() {
            let closed = closed.join(", ");
            terminal.line(safe(&format!(
                "  names that stay private: {closed} (to open them, accept them with `lockkeeper registry peers change \
                 {} --visibility public --accept`, which replaces all earlier patterns)",
                peer.name
            )))?;
        }
        terminal.line(safe(&format!(
            "  its records added {} of at most {} versions, with packages of {} of at most {}",
            peer.versions,
            peer.limits.versions,
            size::shown(peer.bytes),
            size::shown(peer.limits.bytes)
        )))?;
        if let (Some(why), 1..) = (&peer.skipped_last, peer.skipped) {
            terminal.line(safe(&format!(
                "  {} records do not count, the last one: {why}",
                peer.skipped
            )))?;
        }
        if peer.wrong_packages > 0 {
            terminal.line(safe(&format!(
                "  {} packages were not the recorded ones",
                peer.wrong_packages
            )))?;
        }
        if let Some(why) = &peer.pushes.error {
            terminal.line(safe(&format!(
                "  it was not notified of new records: {why}"
            )))?;
        }
        if peer.pushes.given_up > 0 {
            terminal.line(safe(&format!(
                "  notification was given up for {} records; the peer reads them from the log",
                peer.pushes.given_up
            )))?;
        }
        for conflict in conflicts {
            terminal.line(safe(&format!(
                "  conflict: {} has other content there, since {}",
                conflict.key,
                time(conflict.since)
            )))?;
        }
        note_fingerprints(&key, &peer, terminal);
        Ok(ExitStatus::Success)
    }
}

/// Prints the reason why a peer stays as it is.
fn refused(refusal: &UnchangedPeer, terminal: &mut Terminal<'_>) -> ExitStatus {
    let end = match refusal {
        UnchangedPeer::UnknownPeer(_) | UnchangedPeer::UnknownProposal(_) => {
            "`lockkeeper registry peers list` lists all of them"
        }
        UnchangedPeer::OtherState(..) => "Nothing was changed",
    };
    terminal.note(format_args!("error: {refusal}. {end}"));
    ExitStatus::Failure
}

fn note_fingerprints(key: &NoteVerifier, peer: &Peer, terminal: &mut Terminal<'_>) {
    terminal.note(format_args!(
        "Fingerprint of {}: {}",
        key.name(),
        fingerprint(key)
    ));
    terminal.note(format_args!(
        "Fingerprint of {}: {}",
        peer.name,
        fingerprint(&peer.verifier)
    ));
    terminal.note("Compare both with the administrator of the other deployment.");
}

fn show(peer: &Peer, format: OutputFormat, terminal: &mut Terminal<'_>) -> ExitResult {
    let json = serde_json::to_string(&PeerView::new(peer, SystemClock.now()))?;
    format.print(terminal, || json, || text(peer))?;
    Ok(ExitStatus::Success)
}

fn show_invitation(
    invitation: &Invitation,
    format: OutputFormat,
    terminal: &mut Terminal<'_>,
) -> ExitResult {
    let json = serde_json::to_string(&OpenInvitationView::new(invitation))?;
    format.print(terminal, || json, || invitation_text(invitation))?;
    Ok(ExitStatus::Success)
}

fn invitation_text(invitation: &Invitation) -> String {
    let invited = match invitation.created_at {
        Some(at) => format!(" at {}", time(at)),
        None => String::new(),
    };
    safe(&format!(
        "{} for {}: invited by {}{invited}, ends at {}; {}",
        invitation.id,
        invitation.url,
        invitation.created_by,
        time(invitation.expires_at),
        terms_text(
            &invitation.shares,
            &invitation.accepts,
            invitation.visibility
        )
    ))
}

fn text(peer: &Peer) -> String {
    let progress = match peer.complete_at {
        Some(at) => format!("complete at {}", time(at)),
        None => "never complete".to_owned(),
    };
    let error = match &peer.error {
        Some((why, since)) if peer.is_failing() => {
            format!("; failing since {}: {why}", time(*since))
        }
        Some((note, _)) => format!("; note: {note}"),
        None => String::new(),
    };
    safe(&format!(
        "{} at {}: {} since {}; {} of {} records, {progress}{error}",
        peer.name,
        peer.url,
        peer.state,
        time(peer.state_since),
        peer.walk.last_id(),
        peer.seen_size,
    ))
}
