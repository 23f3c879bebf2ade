//! Membership: two deployments exchange keys and tokens over a one-time word.
//!
//! Each administrator gives the address of the other deployment, so no deployment ever sends requests to an address that
//! another one has chosen. Both see the fingerprints of both keys and compare them.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chrono::TimeDelta;
use lockkeeper_registry::records::DeploymentName;
use lockkeeper_registry::signed_note::{NoteSigner, NoteVerifier};
use serde::{Deserialize, Serialize};

use super::super::namespaces::Visibility;
use super::super::service::Registry;
use super::client::{ClientFault, MAX_REFUSAL, PeerClient, json_place};
use super::model::{
    Invitation, InvitationId, NamePatterns, Peer, PeerUrl, is_token, is_word, new_token, new_word,
    secret_hash,
};
use super::server::is_refusal;
use super::store::{JoinOutcome, JoinedPeer};
use crate::config::parse_duration;
use crate::model::Cause;
use crate::seal::Keyring;
use crate::secret::Secret;
use crate::store::Store;

/// Usual time after which an invitation ends.
pub(in crate::features::registry) const INVITATION_TIME: &str = "24h";

/// Maximum time after which an invitation ends. There is a maximum number of them, so ones that last for months would keep
/// others out.
const MAX_INVITATION_TIME: Duration = Duration::from_hours(7 * 24);

/// Parses the time after which an invitation ends.
pub(in crate::features::registry) fn invitation_time(text: &str) -> Result<Duration, String> {
    let time = parse_duration(text)?;
    if time > MAX_INVITATION_TIME {
        return Err(format!(
            "`{text}` is longer than 7 days, the maximum for an invitation"
        ));
    }
    Ok(time)
}

/// Reason why a deployment was not invited.
pub(in crate::features::registry) const TOO_MANY_INVITATIONS: &str =
    "there are too many invitations. Withdraw some of them, or wait until they have expired";

/// An invitation of another deployment.
#[derive(Clone, Debug)]
pub struct NewInvitation {
    /// Address of the invited deployment.
    pub url: PeerUrl,
    /// Names that it may read.
    pub shares: NamePatterns,
    /// Names for which its records count.
    pub accepts: NamePatterns,
    /// Readers of its names here.
    pub visibility: Visibility,
    /// Time after which the invitation ends.
    pub expires: Duration,
}

/// A deployment to join, with what is exchanged with it.
#[derive(Clone, Debug)]
pub struct JoinRequest {
    /// Address of the deployment that has invited this one.
    pub url: PeerUrl,
    /// One-time word of the invitation.
    pub word: Secret,
    /// Names that it may read.
    pub shares: NamePatterns,
    /// Names for which its records count.
    pub accepts: NamePatterns,
    /// Readers of its names here.
    pub visibility: Visibility,
}

/// Reason why a deployment did not join.
#[derive(Debug, thiserror::Error)]
pub enum JoinFault {
    /// The text is no word.
    #[error("the word is not one that `peers invite` printed. Copy all of it")]
    Word,
    /// The invitation was used or has expired, or there was none.
    #[error(
        "there is no invitation with this word. It was used, or it has expired. Ask for another one"
    )]
    NoInvitation,
    /// The other side refused, with the reason of a deployment.
    #[error("{0}")]
    Refused(String),
    /// The other side did not answer as a deployment does. The text has nothing of its answer but a known refusal.
    #[error("{0}")]
    Remote(String),
    /// A key is not one of this deployment name.
    #[error("the key is not one of this deployment")]
    Key,
    /// The deployment would join itself.
    #[error(
        "the other deployment has the name of this one. Two deployments never have the same name"
    )]
    Same,
    /// The name belongs to a peer with another key. The other side shows only the first `MAX_REFUSAL` characters (`client.rs`).
    #[error(
        "this name belongs to a peer with another key, even after that peer was removed. If your deployment has lost its key, \
         set it up again with a new database and another --registry-name, then join"
    )]
    OtherKey,
    /// The list of peers is full.
    #[error("there are {} peers, which is the maximum", Peer::MAX)]
    TooMany,
    /// The other side has answered with a key and a token, and this one cannot add it.
    #[error(
        "{0}. The other deployment has used the word, and may list this one as joined already. Ask it for another word \
         before you try again"
    )]
    OneSided(String),
    /// The database could not be read or written.
    #[error("the database failed")]
    Database(#[from] sqlx::Error),
}

impl JoinFault {
    /// Returns true if a deployment refuses a join with this text, which is cut off where refusals are.
    pub(super) fn is_refusal(text: &str) -> bool {
        let known = [
            Self::NoInvitation,
            Self::Key,
            Self::Same,
            Self::OtherKey,
            Self::TooMany,
        ];
        known.iter().any(|fault| {
            let known: String = fault.to_string().chars().take(MAX_REFUSAL).collect();
            known.trim() == text
        })
    }

    /// Returns the failure for an answer that another service gives.
    fn not_a_deployment(why: &str) -> Self {
        Self::Remote(format!(
            "the address does not answer as a deployment does: {why}. Check the address"
        ))
    }
}

impl From<ClientFault> for JoinFault {
    fn from(fault: ClientFault) -> Self {
        let why = fault.to_string();
        match fault {
            ClientFault::Status(_, text) if Self::is_refusal(&text) => Self::Refused(why),
            ClientFault::Status(_, text) if !is_refusal(&text) => Self::not_a_deployment(&why),
            ClientFault::Status(..) | ClientFault::Away(_) | ClientFault::Wrong(_) => {
                Self::Remote(why)
            }
        }
    }
}

/// Body of a join, and of the answer, which leaves out the word.
#[derive(Serialize, Deserialize)]
pub(super) struct JoinBody {
    #[serde(default, skip_serializing_if = "String::is_empty")]
    word: String,
    name: DeploymentName,
    /// Public key of the log.
    key: String,
    /// Token that the sender of the body expects from the other one.
    token: String,
    /// Signature of all of it with the key. Without it, an invited deployment could take the place of another member, whose
    /// key is public.
    signature: String,
}

/// Returns the text that both sides sign. No record and no head of a log begins like it.
fn signed_text(word: &str, name: &DeploymentName, key: &str, token: &str) -> String {
    format!("lockkeeper registry join\n{word}\n{name}\n{key}\n{token}\n")
}

impl JoinBody {
    fn new(word: &str, signer: &NoteSigner, name: &DeploymentName, token: &Secret) -> Self {
        let key = signer.verifier().to_string();
        let text = signed_text(word, name, &key, token.expose());
        Self {
            word: word.to_owned(),
            name: name.clone(),
            key,
            token: token.expose().to_owned(),
            signature: STANDARD.encode(signer.sign(text.as_bytes())),
        }
    }

    /// Returns the key and the token of the sender, who knows the word and has signed with the key.
    fn read(&self, word: &str, own: &DeploymentName) -> Result<(NoteVerifier, Secret), JoinFault> {
        if self.name == *own {
            return Err(JoinFault::Same);
        }
        let verifier: NoteVerifier = self.key.parse().map_err(|_| JoinFault::Key)?;
        let signature = STANDARD
            .decode(&self.signature)
            .map_err(|_| JoinFault::Key)?;
        let text = signed_text(word, &self.name, &self.key, &self.token);
        let is_valid = verifier.name() == self.name.as_str()
            && is_token(&self.token)
            && verifier.verify(text.as_bytes(), &signature);
        if !is_valid {
            return Err(JoinFault::Key);
        }
        Ok((verifier, Secret::new(&self.token)))
    }
}

/// Reads the answer of a deployment that was joined with a word. Returns its name and its key, with which it has signed, and
/// the token for it.
pub fn check_join(
    answer: &[u8],
    word: &str,
    own: &DeploymentName,
) -> Result<(DeploymentName, NoteVerifier, Secret), JoinFault> {
    let answer: JoinBody = serde_json::from_slice(answer).map_err(|error| {
        let place = json_place(&error);
        JoinFault::not_a_deployment(&format!("its answer cannot be read ({place})"))
    })?;
    let (verifier, token) = answer.read(word, own)?;
    Ok((answer.name, verifier, token))
}

/// Creates an invitation. Returns its word, which is printed once, or `None` if there are too many.
pub(in crate::features::registry) async fn invite(
    store: &Store,
    new: NewInvitation,
    cause: &Cause,
) -> Result<Option<Secret>, sqlx::Error> {
    let word = new_word();
    let hash = secret_hash(word.expose());
    let expires = TimeDelta::from_std(new.expires).unwrap_or(TimeDelta::days(1));
    let now = store.now();
    let invitation = Invitation {
        id: InvitationId::of(&hash),
        url: new.url,
        shares: new.shares,
        accepts: new.accepts,
        visibility: new.visibility,
        created_by: cause.actor.login.clone(),
        created_at: Some(now),
        expires_at: now + expires,
    };
    let is_invited = store.registry_invite(&hash, &invitation, cause).await?;
    Ok(is_invited.then_some(word))
}

/// Uses an invitation of another deployment. Returns the new peer.
pub(in crate::features::registry) async fn join(
    registry: &Registry,
    keys: &Keyring,
    request: JoinRequest,
    cause: &Cause,
) -> anyhow::Result<Result<Peer, JoinFault>> {
    if !is_word(request.word.expose()) {
        return Ok(Err(JoinFault::Word));
    }
    let (store, own) = (registry.store(), registry.name());
    // Once the word is sent, the other side may have joined.
    if !store.registry_peer_has_place(&request.url).await? {
        return Ok(Err(JoinFault::TooMany));
    }
    let (word, token) = (request.word.expose(), new_token());
    let body = JoinBody::new(word, &registry.deployment.signer, own, &token);
    let read = match PeerClient::new()?.join(&request.url, &body).await {
        Ok(answer) => check_join(&answer, word, own),
        Err(fault) => Err(fault.into()),
    };
    let (name, theirs, their_token) = match read {
        Ok(read) => read,
        Err(fault) => return Ok(Err(fault)),
    };
    let new = JoinedPeer {
        sealed_token: keys.seal(&their_token, &Peer::binding(&name)),
        token_hash: secret_hash(token.expose()),
        name,
        url: request.url,
        verifier: theirs,
        shares: request.shares,
        accepts: request.accepts,
        visibility: request.visibility,
    };
    let why = match store.registry_peer_join(&new, None, cause).await? {
        JoinOutcome::Joined => None,
        JoinOutcome::OtherKey => Some(format!(
            "{} belongs to a peer with another key here, even after that peer was removed",
            new.name
        )),
        JoinOutcome::NoInvitation => Some(JoinFault::NoInvitation.to_string()),
        JoinOutcome::TooMany => Some(JoinFault::TooMany.to_string()),
    };
    if let Some(why) = why {
        return Ok(Err(JoinFault::OneSided(why)));
    }
    let peer = store.registry_peer(&new.name).await?;
    Ok(Ok(peer.ok_or(sqlx::Error::RowNotFound)?))
}

fn joined(outcome: &JoinOutcome) -> Result<(), JoinFault> {
    match outcome {
        JoinOutcome::Joined => Ok(()),
        JoinOutcome::OtherKey => Err(JoinFault::OtherKey),
        JoinOutcome::NoInvitation => Err(JoinFault::NoInvitation),
        JoinOutcome::TooMany => Err(JoinFault::TooMany),
    }
}

impl super::PeerExchange {
    /// Answers a deployment that joins with a word.
    pub(super) async fn accept(&self, body: &JoinBody) -> Result<JoinBody, JoinFault> {
        let (store, own) = (self.registry.store(), self.registry.name());
        if !is_word(&body.word) {
            return Err(JoinFault::NoInvitation);
        }
        let word = secret_hash(&body.word);
        let invitation = store.registry_invitation(&word).await?;
        let invitation = invitation.ok_or(JoinFault::NoInvitation)?;
        let (verifier, token) = body.read(&body.word, own)?;
        let ours = new_token();
        let new = JoinedPeer {
            name: body.name.clone(),
            url: invitation.url,
            verifier,
            sealed_token: self.keys.seal(&token, &Peer::binding(&body.name)),
            token_hash: secret_hash(ours.expose()),
            shares: invitation.shares,
            accepts: invitation.accepts,
            visibility: invitation.visibility,
        };
        let cause = Cause::new(super::by_peer(&body.name), "used an invitation");
        let outcome = store.registry_peer_join(&new, Some(&word), &cause).await?;
        joined(&outcome)?;
        let signer = &self.registry.deployment.signer;
        let answer = JoinBody::new(&body.word, signer, own, &ours);
        Ok(JoinBody {
            word: String::new(),
            ..answer
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::super::pull::MembersBody;
    use super::*;
    use crate::features::registry::testing::{fixed_seed, texts_of};

    const THEIRS: &str = "two.example.com";

    fn own() -> DeploymentName {
        "one.example.com".parse().unwrap()
    }

    fn signer(seed: u8) -> NoteSigner {
        NoteSigner::from_seed(THEIRS, &[seed; 32]).unwrap()
    }

    fn read(sent: &Value, word: &str) -> Result<(NoteVerifier, Secret), JoinFault> {
        let body: JoinBody = serde_json::from_value(sent.clone()).unwrap();
        body.read(word, &own())
    }

    #[test]
    fn an_invitation_ends_after_a_week_at_most() {
        for (text, hours) in [(INVITATION_TIME, 24), ("12h", 12), ("7d", 168)] {
            assert_eq!(invitation_time(text), Ok(Duration::from_hours(hours)));
        }
        for text in ["7d1s", "366d"] {
            let refused = invitation_time(text).unwrap_err();
            assert_eq!(
                refused,
                format!("`{text}` is longer than 7 days, the maximum for an invitation")
            );
        }
        invitation_time("soon").unwrap_err();
    }

    #[test]
    fn a_join_is_read_as_it_was_signed_and_not_otherwise() {
        let (word, token, signer) = (new_word(), new_token(), signer(7));
        let name = THEIRS.parse().unwrap();
        let body = JoinBody::new(word.expose(), &signer, &name, &token);
        let sent = serde_json::to_value(&body).unwrap();
        let (key, presented) = read(&sent, word.expose()).unwrap();
        assert_eq!((&key, &presented), (signer.verifier(), &token));
        let other_key = self::signer(8).verifier().to_string();
        for (field, value) in [
            ("name", "three.example.com"),
            ("key", other_key.as_str()),
            ("key", "x"),
            ("token", new_token().expose()),
            ("token", "x"),
            ("signature", ""),
            ("signature", "%"),
            ("signature", STANDARD.encode([0_u8; 64]).as_str()),
        ] {
            let mut changed = sent.clone();
            changed[field] = value.into();
            let refused = read(&changed, word.expose());
            assert!(matches!(refused, Err(JoinFault::Key)), "{field} {value}");
        }
        let refused = read(&sent, new_word().expose());
        assert!(matches!(refused, Err(JoinFault::Key)), "another word");
        let mut ours = sent;
        ours["name"] = own().as_str().into();
        let refused = read(&ours, word.expose());
        assert!(matches!(refused, Err(JoinFault::Same)), "our own name");
    }

    /// Pieces of what others send.
    const PIECES: &[&str] = &[
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        "\"",
        "\\u0000",
        "null",
        "1e999",
        "\"word\":",
        "\"name\":",
        "\"key\":",
        "\"token\":",
        "\"signature\":",
        "\"members\":",
        "\"url\":",
        "\"two.example.com\"",
    ];

    proptest! {
        #![proptest_config(fixed_seed())]

        #[test]
        fn no_text_is_a_join_or_makes_its_reader_panic(text in texts_of(PIECES)) {
            if let Ok(body) = serde_json::from_str::<JoinBody>(&text) {
                prop_assert!(body.read("", &own()).is_err());
            }
            drop(serde_json::from_str::<MembersBody>(&text));
        }

        #[test]
        fn no_fields_are_a_join_without_the_word(
            key in ".{0,40}|two\\.example\\.com\\+[0-9a-f]{8}\\+[A-Za-z0-9+/]{43}=",
            token in ".{0,20}|lkp_[A-Za-z0-9_-]{43}",
            signature in ".{0,40}|[A-Za-z0-9+/]{86}==",
        ) {
            let sent = json!({"name": THEIRS, "key": key, "token": token, "signature": signature});
            prop_assert!(matches!(read(&sent, "lki_"), Err(JoinFault::Key)));
        }
    }
}
