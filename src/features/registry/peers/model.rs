//! Peers as this deployment knows them.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chrono::{DateTime, Utc};
use lockkeeper_registry::names::{InvalidNamePattern, NamePattern, RegistryName};
use lockkeeper_registry::records::DeploymentName;
use lockkeeper_registry::signed_note::NoteVerifier;
use lockkeeper_registry::tlog::{TreeEdge, TreeHead};
use lockkeeper_registry::versions::VersionKey;
use url::Url;

use super::super::namespaces::Visibility;
use crate::model::{Sha256Digest, text_enum, text_type};
use crate::seal::{Binding, SealedText};
use crate::secret::Secret;

text_enum! {
    /// State of a peer, which decides what is exchanged with it.
    pub enum PeerState {
        /// A member told its name. Nothing is exchanged until an administrator approves it.
        Proposed = "proposed",
        /// Records of this deployment count if another member relays them. Nothing is exchanged with it.
        Approved = "approved",
        /// Records and packages are exchanged with it.
        Joined = "joined",
        /// An administrator has stopped the exchange.
        Suspended = "suspended",
        /// The deployment made more takedowns than allowed, no matter who sent them. Nothing is merged until an administrator agrees.
        Braked = "braked",
        /// The log of the deployment was cut, forked or changed. Nothing is merged any more.
        Diverged = "diverged",
        /// An administrator has removed it. Versions that came from it stay.
        Removed = "removed",
    }
}

impl PeerState {
    /// Returns true if records that the peer has signed count here.
    pub fn is_maker(self) -> bool {
        matches!(self, Self::Approved | Self::Joined | Self::Braked)
    }

    /// Returns true if somebody here has accepted names of the peer and has not removed it since.
    pub fn is_accepted(self) -> bool {
        !matches!(self, Self::Proposed | Self::Removed)
    }

    /// Returns true if the peer may read what is shared with it.
    pub fn may_read(self) -> bool {
        matches!(self, Self::Joined | Self::Braked | Self::Diverged)
    }

    /// Returns true if packages are requested from the peer. All of them are verified.
    pub fn has_packages(self) -> bool {
        matches!(self, Self::Joined | Self::Braked | Self::Diverged)
    }
}

/// Address of a deployment: `https`, or `http` on this machine. Nothing but an administrator chooses one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerUrl(Url);

/// A text is not the address of a deployment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the address of a deployment is like https://mods.example.com, without a user, a query or a fragment. `http` is \
     possible on the same machine only"
)]
pub struct InvalidPeerUrl;

impl PeerUrl {
    /// Maximum length in bytes, as it is stored.
    const MAX: usize = 500;

    /// Returns true if requests to the address are encrypted. All others go to this machine.
    pub fn is_encrypted(&self) -> bool {
        self.0.scheme() == "https"
    }

    /// Returns true if this is the usual address of the deployment with a name: a deployment gets its name from its host.
    pub(in crate::features::registry) fn is_address_of(&self, name: &str) -> bool {
        self.to_string() == format!("https://{name}")
    }

    /// Returns the address of something below the deployment. `path` has no leading slash.
    pub fn join(&self, path: &str) -> Url {
        let mut url = self.0.clone();
        let base = url.path().trim_end_matches('/').to_owned();
        url.set_path(&format!("{base}/{path}"));
        url
    }
}

impl FromStr for PeerUrl {
    type Err = InvalidPeerUrl;

    fn from_str(text: &str) -> Result<Self, InvalidPeerUrl> {
        let url = Url::parse(text).map_err(|_| InvalidPeerUrl)?;
        let is_local = match url.host() {
            Some(url::Host::Domain(name)) => name == "localhost",
            Some(url::Host::Ipv4(address)) => IpAddr::from(address).is_loopback(),
            Some(url::Host::Ipv6(address)) => IpAddr::from(address).is_loopback(),
            None => return Err(InvalidPeerUrl),
        };
        let is_plain = url.username().is_empty()
            && url.password().is_none()
            && url.query().is_none()
            && url.fragment().is_none()
            // A letter in a path can become six characters, and what is stored has to be read again.
            && url.as_str().len() <= Self::MAX;
        match url.scheme() {
            "https" if is_plain => Ok(Self(url)),
            "http" if is_plain && is_local => Ok(Self(url)),
            _ => Err(InvalidPeerUrl),
        }
    }
}

impl fmt::Display for PeerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.0.as_str().trim_end_matches('/'))
    }
}

text_type!(PeerUrl);

/// Patterns of names, stored as lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamePatterns(Vec<NamePattern>);

/// Patterns of names cannot be used together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidNamePatterns {
    /// The list has more than [`NamePatterns::MAX`] patterns.
    #[error("there are more than {} patterns of names", NamePatterns::MAX)]
    TooMany,
    /// One of them is none.
    #[error(transparent)]
    Pattern(#[from] InvalidNamePattern),
}

impl NamePatterns {
    /// Maximum number of patterns.
    pub const MAX: usize = 64;

    /// Checks the number of patterns.
    pub fn new(patterns: Vec<NamePattern>) -> Result<Self, InvalidNamePatterns> {
        if patterns.len() > Self::MAX {
            return Err(InvalidNamePatterns::TooMany);
        }
        Ok(Self(patterns))
    }

    /// Returns the pattern of all names.
    ///
    /// # Panics
    ///
    /// Never, because `*` is a pattern.
    pub(super) fn everything() -> Self {
        Self(vec!["*".parse().expect("`*` is a pattern of names")])
    }

    /// Returns true if a pattern has the name.
    pub fn matches(&self, name: &RegistryName) -> bool {
        self.0.iter().any(|pattern| pattern.matches(name))
    }

    /// Returns true if a pattern has the name and only names of this set, such as a namespace. Only such a pattern is about
    /// names that belong to an owner here, or that are not for everyone. A wider one can be meant for other names.
    pub fn name_it(&self, name: &RegistryName, set: &NamePattern) -> bool {
        let mut patterns = self.0.iter();
        patterns.any(|pattern| pattern.names_within(name, set))
    }

    /// Returns true if a pattern has the name and not all names of its kind.
    pub fn single_out(&self, name: &RegistryName) -> bool {
        let mut narrow = self.0.iter().filter(|pattern| !pattern.is_for_all());
        narrow.any(|pattern| pattern.matches(name))
    }

    /// Returns the patterns in the order in which they were given.
    pub fn iter(&self) -> std::slice::Iter<'_, NamePattern> {
        self.0.iter()
    }
}

impl<'a> IntoIterator for &'a NamePatterns {
    type Item = &'a NamePattern;
    type IntoIter = std::slice::Iter<'a, NamePattern>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl fmt::Display for NamePatterns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, pattern) in self.0.iter().enumerate() {
            if number > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{pattern}")?;
        }
        Ok(())
    }
}

impl FromStr for NamePatterns {
    type Err = InvalidNamePatterns;

    fn from_str(text: &str) -> Result<Self, InvalidNamePatterns> {
        if text.lines().count() > Self::MAX {
            return Err(InvalidNamePatterns::TooMany);
        }
        let patterns: Result<Vec<NamePattern>, _> = text.lines().map(str::parse).collect();
        Ok(Self(patterns?))
    }
}

text_type!(NamePatterns);

/// Progress of a walk through the log of a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerWalk {
    /// Number of the walk, which changes when it begins again from the first record.
    pub number: i64,
    /// Tree over the records that were merged. Its size is the last ID.
    pub edge: TreeEdge,
    /// Signed head that the walk has to meet when it comes there.
    pub head: Option<TreeHead>,
    /// Longest tree whose records were merged, in this walk or an earlier one. Every page of a walk fits it (R5). It has
    /// only records that were here, so the peer cannot make it up.
    pub met: Option<TreeHead>,
    /// Digest of what the peer shares.
    pub sharing: String,
}

impl PeerWalk {
    /// Returns the last ID that was merged, or 0.
    pub fn last_id(&self) -> u64 {
        self.edge.size()
    }

    /// Returns the last ID that was merged in this walk or an earlier one, or 0.
    pub fn seen(&self) -> u64 {
        self.met.map_or(0, |met| met.size).max(self.last_id())
    }
}

/// Another deployment that this one exchanges with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Name of the deployment and of its log.
    pub name: DeploymentName,
    /// Address that an administrator has given.
    pub url: PeerUrl,
    /// Public key of its log and its records.
    pub verifier: NoteVerifier,
    /// Earlier keys, with which records in the log may be signed.
    pub old_verifiers: Vec<NoteVerifier>,
    /// State, which decides what is exchanged.
    pub state: PeerState,
    /// Time of the last change of the state.
    pub state_since: DateTime<Utc>,
    /// Token for requests to the peer.
    pub sealed_token: Option<SealedText>,
    /// Names that the peer may read.
    pub shares: NamePatterns,
    /// Names for which records that the peer has made count.
    pub accepts: NamePatterns,
    /// Readers of names that came from the peer and that belong to nobody here.
    pub visibility: Visibility,
    /// Patterns that were accepted as private, and that nobody has opened since. Their names stay private, no matter what
    /// `accepts` has.
    pub closed: NamePatterns,
    /// Progress in its log.
    pub walk: PeerWalk,
    /// Newest size of its log that was seen.
    pub seen_size: u64,
    /// Time of the last page.
    pub succeeded_at: Option<DateTime<Utc>>,
    /// Last time at which everything was merged.
    pub complete_at: Option<DateTime<Utc>>,
    /// Reason of the current failure, and the time of its beginning.
    pub error: Option<(String, DateTime<Utc>)>,
    /// Number of records of this walk that do not count here.
    pub skipped: u64,
    /// Reason of the last one.
    pub skipped_last: Option<String>,
    /// Number of packages that were not the recorded ones.
    pub wrong_packages: u64,
    /// Takedowns that it has made and that were merged here since a time, no matter who sent them.
    pub takedowns: u64,
    /// Time from which they are counted.
    pub takedowns_since: Option<DateTime<Utc>>,
    /// Number of further takedowns to which an administrator has agreed.
    pub agreed: u64,
    /// Time of this agreement, which ends after a day.
    pub agreed_at: Option<DateTime<Utc>>,
    /// Last time at which its log was read again because it shares something else.
    pub again_at: Option<DateTime<Utc>>,
    /// Number of versions that its records have added here, without those that it has fetched from repositories.
    pub versions: u64,
    /// Number of bytes of their packages.
    pub bytes: u64,
    /// Number of versions that it has fetched from repositories, and that its records have added here.
    pub fetched_versions: u64,
    /// Number of bytes of their packages.
    pub fetched_bytes: u64,
    /// Number of its records that were passed over because of the limits, since all logs were read again.
    pub limited: u64,
    /// Limits for each of the two kinds of versions.
    pub limits: PeerLimits,
    /// Progress of telling it about records that are made here.
    pub pushes: PeerPushes,
    /// Login of the person who added the peer.
    pub added_by: String,
    /// Time of the addition.
    pub added_at: DateTime<Utc>,
}

/// Beginning of the note that earlier records come later, because a peer shares something else.
pub(super) const SHARES_OTHER: &str = "what it shares has changed again";

impl Peer {
    /// Maximum number of peers, because lists show all of them.
    pub const MAX: i64 = 100;

    /// Returns true if the last attempt to read its log failed. A peer that shares something else, and whose log is not read
    /// again yet, does nothing wrong.
    pub fn is_failing(&self) -> bool {
        let error = self.error.as_ref();
        error.is_some_and(|(why, _)| !why.starts_with(SHARES_OTHER))
    }

    /// Returns the number of records that are not merged yet.
    pub fn lag_records(&self) -> u64 {
        self.seen_size.saturating_sub(self.walk.last_id())
    }

    /// Returns the seconds since everything was merged.
    pub fn lag_seconds(&self, now: DateTime<Utc>) -> u64 {
        let since = self.complete_at.unwrap_or(self.added_at);
        u64::try_from((now - since).num_seconds()).unwrap_or(0)
    }

    /// Returns the place that the sealed token belongs to.
    pub(super) fn binding(name: &DeploymentName) -> Binding {
        Binding::new(&["token of a peer of the registry", name.as_str()])
    }
}

/// Limits for everything that a deployment may add here. Takedowns of versions that are here do not count, and versions that
/// were taken down count on.
/// The database has the limits of a new peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerLimits {
    /// Maximum number of versions.
    pub versions: u64,
    /// Maximum number of bytes of their packages.
    pub bytes: u64,
}

/// Progress of telling a peer about records that are made here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerPushes {
    /// Last record of the log here that the peer needs not be told of any more, or 0.
    pub last_id: u64,
    /// Number of failed attempts in a row.
    pub attempts: u64,
    /// Time of the next attempt after a failure.
    pub next_at: Option<DateTime<Utc>>,
    /// Reason of the last failure, until the peer answers again.
    pub error: Option<String>,
    /// Number of records that were given up. The peer finds them in the log.
    pub given_up: u64,
}

/// A version with two contents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerConflict {
    /// Version with two contents. The one here stays.
    pub key: VersionKey,
    /// Peer that sent the other one.
    pub peer: DeploymentName,
    /// Record of the other content.
    pub record: String,
    /// Time at which it was seen first.
    pub since: DateTime<Utc>,
}

/// Identifier of an invitation: the beginning of the hash of its word. Nobody finds the word with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvitationId(String);

/// A text is not the identifier of an invitation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "an invitation has an identifier of {} digits and letters from a to f",
    InvitationId::LENGTH
)]
pub struct InvalidInvitationId;

impl InvitationId {
    /// Length of an identifier in characters. The store knows it as well.
    const LENGTH: usize = 16;

    /// Returns the identifier of the invitation with this hash.
    pub(super) fn of(word: &Sha256Digest) -> Self {
        Self(word.as_str().chars().take(Self::LENGTH).collect())
    }

    /// Returns the text of the identifier.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for InvitationId {
    type Err = InvalidInvitationId;

    fn from_str(text: &str) -> Result<Self, InvalidInvitationId> {
        let is_digit = |c: char| matches!(c, '0'..='9' | 'a'..='f');
        if text.len() == Self::LENGTH && text.chars().all(is_digit) {
            Ok(Self(text.to_owned()))
        } else {
            Err(InvalidInvitationId)
        }
    }
}

impl fmt::Display for InvitationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// An invitation that nobody has used yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invitation {
    /// Identifier, by which people name the invitation.
    pub id: InvitationId,
    /// Address of the invited deployment.
    pub url: PeerUrl,
    /// Names that it may read.
    pub shares: NamePatterns,
    /// Names for which its records count.
    pub accepts: NamePatterns,
    /// Readers of its names here.
    pub visibility: Visibility,
    /// Login of the person who invited it.
    pub created_by: String,
    /// Time at which somebody invited it. `None`: an earlier release did not store it.
    pub created_at: Option<DateTime<Utc>>,
    /// End of the invitation.
    pub expires_at: DateTime<Utc>,
}

/// Length of the random part of a word or token in base64: 32 bytes.
const RANDOM_LENGTH: usize = 43;
const WORD_BEGINNING: &str = "lki_";
const TOKEN_BEGINNING: &str = "lkp_";

fn random(beginning: &str) -> Secret {
    let random: [u8; 32] = rand::random();
    Secret::new(&format!("{beginning}{}", URL_SAFE_NO_PAD.encode(random)))
}

fn is_random(text: &str, beginning: &str) -> bool {
    let rest = text.strip_prefix(beginning);
    rest.is_some_and(|rest| {
        let is_allowed = |c: u8| c.is_ascii_alphanumeric() || c == b'-' || c == b'_';
        rest.len() == RANDOM_LENGTH && rest.bytes().all(is_allowed)
    })
}

/// Makes a one-time word.
pub(super) fn new_word() -> Secret {
    random(WORD_BEGINNING)
}

/// Makes a token with which a peer presents itself.
pub(super) fn new_token() -> Secret {
    random(TOKEN_BEGINNING)
}

/// Returns true if a text has the form of a one-time word.
pub(super) fn is_word(text: &str) -> bool {
    is_random(text, WORD_BEGINNING)
}

/// Returns true if a text has the form of a token of a peer.
pub(super) fn is_token(text: &str) -> bool {
    is_random(text, TOKEN_BEGINNING)
}

/// Returns the hash by which a word or a token is found. Both have 256 random bits, so the hash needs no salt.
pub(super) fn secret_hash(text: &str) -> Sha256Digest {
    Sha256Digest::of(text.as_bytes())
}

/// Returns the fingerprint of a key, which both administrators compare.
pub fn fingerprint(key: &NoteVerifier) -> String {
    let digest = Sha256Digest::of(key.to_string().as_bytes()).to_string();
    let groups: Vec<&str> = (0..8).map(|at| &digest[at * 4..at * 4 + 4]).collect();
    groups.join(" ")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::features::registry::testing::{fixed_seed, texts_of};

    #[test]
    fn an_address_is_encrypted_or_on_this_machine() {
        for (text, shown) in [
            ("https://mods.example.com", "https://mods.example.com"),
            ("https://mods.example.com/", "https://mods.example.com"),
            (
                "https://example.com/lockkeeper",
                "https://example.com/lockkeeper",
            ),
            ("http://127.0.0.1:4141", "http://127.0.0.1:4141"),
            ("http://localhost:4141", "http://localhost:4141"),
            ("http://[::1]:4141", "http://[::1]:4141"),
        ] {
            let url: PeerUrl = text.parse().unwrap();
            assert_eq!(url.to_string(), shown);
            assert_eq!(url.join("x/y").as_str(), format!("{shown}/x/y"));
        }
        for (text, is_usual) in [
            ("https://mods.example.com", true),
            ("https://MODS.example.com:443/", true),
            // Another deployment can be at another port, or below another path.
            ("https://mods.example.com:8443", false),
            ("https://mods.example.com/lockkeeper", false),
            ("https://mods.example.org", false),
            ("http://localhost", false),
        ] {
            let url: PeerUrl = text.parse().unwrap();
            assert_eq!(url.is_address_of("mods.example.com"), is_usual, "{text}");
        }
        for text in [
            "",
            "mods.example.com",
            "http://mods.example.com",
            "http://10.0.0.1",
            "https://user@mods.example.com",
            "https://mods.example.com/?a=b",
            "https://mods.example.com/#a",
            "file:///etc/passwd",
            "ftp://localhost",
        ] {
            text.parse::<PeerUrl>().unwrap_err();
        }
    }

    #[test]
    fn an_address_is_as_long_as_it_is_stored() {
        let address =
            |letters: usize| format!("https://mods.example.com/{}", "\u{fc}".repeat(letters));
        let (short, long) = (address(79), address(80));
        assert!(long.len() < PeerUrl::MAX, "{}", long.len());
        let url: PeerUrl = short.parse().unwrap();
        assert_eq!(url.to_string().parse(), Ok(url));
        assert_eq!(long.parse::<PeerUrl>(), Err(InvalidPeerUrl));
    }

    #[test]
    fn only_a_pattern_that_names_them_is_about_owned_names() {
        let patterns: NamePatterns = "module *\ngo example.com/net/...".parse().unwrap();
        let name = |text: &str| text.parse().unwrap();
        let set = |text: &str| text.parse().unwrap();
        let (vpc, http) = (name("module acme/vpc/aws"), name("go example.com/net/http"));
        assert!(patterns.matches(&vpc));
        assert!(!patterns.name_it(&vpc, &set("module acme/*")));
        assert!(!patterns.name_it(&vpc, &set("*")));
        assert!(patterns.name_it(&http, &set("go example.com/net/...")));
        assert!(patterns.name_it(&http, &set("go example.com/...")));
        // The pattern has more names than the namespace.
        assert!(!patterns.name_it(&http, &set("go example.com/net/http/...")));
        assert!(!patterns.matches(&name("go example.com/other")));
        assert_eq!(patterns.to_string().parse::<NamePatterns>(), Ok(patterns));
        assert_eq!(
            vec!["*"; 65].join("\n").parse::<NamePatterns>(),
            Err(InvalidNamePatterns::TooMany)
        );
    }

    #[test]
    fn words_and_tokens_are_not_mixed_up() {
        let (word, token) = (new_word(), new_token());
        assert!(is_word(word.expose()) && !is_token(word.expose()));
        assert!(is_token(token.expose()) && !is_word(token.expose()));
        assert!(!is_word("lki_"));
    }

    /// Pieces of addresses and of patterns of names.
    const PIECES: &[&str] = &[
        "https://",
        "http://",
        "localhost",
        "127.0.0.1",
        "[::1]",
        "mods.example.com",
        ":8443",
        "/",
        "//",
        "/..",
        "%2e",
        "%",
        "\\",
        "@",
        "?",
        "#",
        "\u{fc}\u{fc}\u{fc}\u{fc}\u{fc}\u{fc}\u{fc}\u{fc}",
        "*",
        "module ",
        "go ",
        "acme/*",
        "example.com/...",
        "\n",
    ];

    proptest! {
        #![proptest_config(fixed_seed())]

        #[test]
        fn what_is_stored_of_a_peer_is_read_again(text in texts_of(PIECES)) {
            for text in [format!("https://mods.example.com/{text}"), text] {
                if let Ok(url) = text.parse::<PeerUrl>() {
                    let stored = url.to_string();
                    let read = stored.parse::<PeerUrl>();
                    prop_assert_eq!(read.map(|url| url.to_string()), Ok(stored));
                    let below = url.join("registry/peer/v1/diff");
                    prop_assert!(below.path().ends_with("/registry/peer/v1/diff"), "{below}");
                }
                if let Ok(patterns) = text.parse::<NamePatterns>() {
                    prop_assert_eq!(patterns.to_string().parse(), Ok(patterns));
                }
            }
        }

        #[test]
        fn no_text_is_a_word_or_a_token_by_chance(text in "(lk[ip]_)?[A-Za-z0-9_+/=-]{0,50}") {
            prop_assert!(!is_word(&text) || (text.len() == 47 && text.starts_with("lki_")));
            prop_assert!(!is_token(&text) || (text.len() == 47 && text.starts_with("lkp_")));
        }
    }
}
