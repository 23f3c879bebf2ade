//! A deployment that joins like others, with a key of its own, and then lies: it forks, cuts and replays its log, floods
//! those who read it, sends other bytes than its records say, and pushes records that do not count.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use axum::body::Body;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use axum::{Json, Router};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use lockkeeper::clock::{Clock as _, SystemClock};
use lockkeeper::model::{Reason, Sha256Digest};
use lockkeeper_registry::dirhash::hash_files;
use lockkeeper_registry::records::{
    Checksums, LogId, PackageFile, PackageFiles, Record, RecordChange, RecordMaker, RecordNotice,
    RecordTime, TakedownKind, UnsignedRecord, VersionContent,
};
use lockkeeper_registry::signed_note::{NoteSigner, sign_note};
use lockkeeper_registry::tlog::{TreeEdge, record_hash};
use lockkeeper_registry::versions::VersionKey;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_util::task::AbortOnDropHandle;

use crate::registry::world::archive;

/// Name of the deployment.
pub const NAME: &str = "mallory.example.com";
/// Name of an honest deployment, whose records it makes up.
const FORGED: &str = super::world::DEPLOYMENTS[1];
/// Names for which its records count.
pub const NAMES: &str = "module mallory/*";
/// Last part but one of all names whose pushes are refused.
pub const REFUSED: &str = "flood";
/// Number of bytes of an answer that nobody reads to its end.
const FLOOD: usize = 13 << 20;

/// Way in which a deployment lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lie {
    /// Another record at the end of the log, under a signed head.
    Fork,
    /// A log with fewer records.
    Cut,
    /// The first page again.
    Replay,
    /// A page without an end.
    Flood,
    /// Packages with other bytes than the recorded ones.
    WrongBytes,
    /// A page that cannot be read.
    Garbage,
}

impl Lie {
    pub const ALL: [Self; 6] = [
        Self::Fork,
        Self::Cut,
        Self::Replay,
        Self::Flood,
        Self::WrongBytes,
        Self::Garbage,
    ];

    /// Returns true if nothing of the deployment is merged any more after the lie.
    pub fn diverges(self) -> bool {
        match self {
            Self::Fork | Self::Cut | Self::Replay => true,
            Self::Flood | Self::WrongBytes | Self::Garbage => false,
        }
    }

    /// Returns the names of two counters: of such lies, and of those that were noticed.
    pub fn counted_as(self) -> [&'static str; 2] {
        match self {
            Self::Fork => ["lies told: fork", "lies noticed: fork"],
            Self::Cut => ["lies told: cut", "lies noticed: cut"],
            Self::Replay => ["lies told: replay", "lies noticed: replay"],
            Self::Flood => ["lies told: flood", "lies noticed: flood"],
            Self::WrongBytes => ["lies told: wrong bytes", "lies noticed: wrong bytes"],
            Self::Garbage => ["lies told: garbage", "lies noticed: garbage"],
        }
    }
}

/// Content of a push.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostilePush {
    /// A text that is no push.
    Rubbish,
    /// A record that another deployment seems to have made.
    Forged,
    /// A record with the signature of another key.
    BadSignature,
    /// A record about a name for which its records do not count.
    OtherName,
    /// A takedown of such a name.
    Takedown,
    /// The last record of its log, again and again.
    Own,
}

impl HostilePush {
    pub const ALL: [Self; 6] = [
        Self::Rubbish,
        Self::Forged,
        Self::BadSignature,
        Self::OtherName,
        Self::Takedown,
        Self::Own,
    ];

    /// Returns the statuses of possible answers, if the deployment does not have too many requests. Nothing that the hostile
    /// one has signed counts while its log has diverged.
    pub fn statuses(self) -> &'static [u16] {
        match self {
            Self::Rubbish | Self::Forged => &[422],
            Self::BadSignature => &[422, 403],
            Self::OtherName | Self::Takedown => &[403],
            Self::Own => &[200, 202, 403],
        }
    }

    /// Returns the name of the counter of such pushes that were decided about.
    pub fn counted_as(self) -> &'static str {
        match self {
            Self::Rubbish => "pushes refused: rubbish",
            Self::Forged => "pushes refused: forged",
            Self::BadSignature => "pushes refused: bad signature",
            Self::OtherName => "pushes refused: other name",
            Self::Takedown => "pushes refused: takedown",
            Self::Own => "pushes answered: own record",
        }
    }

    /// Returns true if the deployment can push this before it has published anything.
    pub fn is_always_there(self) -> bool {
        self != Self::Own
    }
}

/// The deployment, with a listener on loopback.
pub struct HostilePeer {
    /// Address for those who read its log.
    pub url: String,
    liar: Arc<Mutex<Liar>>,
    _serving: AbortOnDropHandle<()>,
}

struct Liar {
    signer: NoteSigner,
    records: Vec<String>,
    /// Packages by their digests.
    packages: HashMap<String, Vec<u8>>,
    lie: Option<Lie>,
    /// Number of versions that were ever published, also of those that are not in the log any more.
    published: u64,
    /// Number of pushes so far, so that each has a version of its own.
    pushed: u64,
    /// Token for the deployment that it has joined.
    token: String,
}

type Shared = Arc<Mutex<Liar>>;

impl HostilePeer {
    pub async fn open() -> Self {
        let liar = Shared::new(Mutex::new(Liar {
            signer: NoteSigner::from_seed(NAME, &[9; 32]).expect("the name is valid"),
            records: Vec::new(),
            packages: HashMap::new(),
            lie: None,
            published: 0,
            pushed: 0,
            token: String::new(),
        }));
        let listener = TcpListener::bind("127.0.0.1:0")
            .await
            .expect("a port is free");
        let address = listener.local_addr().expect("a listener has an address");
        let router = Router::new()
            .route("/registry/peer/v1/diff", get(diff))
            .route("/registry/peer/v1/members", get(members))
            .route("/registry/peer/v1/packages/{digest}", get(package))
            .with_state(Arc::clone(&liar));
        let serving = tokio::spawn(async move {
            axum::serve(listener, router)
                .await
                .expect("it serves until the world ends");
        });
        Self {
            url: format!("http://{address}"),
            liar,
            _serving: AbortOnDropHandle::new(serving),
        }
    }

    /// Joins a deployment that has invited this one.
    pub async fn join(&self, client: &reqwest::Client, address: &str, word: &str) {
        let token = format!("lkp_{}", "m".repeat(43));
        let body = {
            let liar = self.liar();
            let key = liar.signer.verifier().to_string();
            let text = format!("lockkeeper registry join\n{word}\n{NAME}\n{key}\n{token}\n");
            let signature = STANDARD.encode(liar.signer.sign(text.as_bytes()));
            json!({"word": word, "name": NAME, "key": key, "token": token, "signature": signature})
        };
        let url = format!("{address}/registry/peer/v1/join");
        let answer = client.post(url).json(&body).send().await;
        let answer = answer.expect("the deployment has just started");
        let status = answer.status();
        let text = answer.text().await.unwrap_or_default();
        assert_eq!(status, StatusCode::OK, "{text}");
        let answer: Value = serde_json::from_str(&text).expect("an answer is JSON");
        let token = answer["token"].as_str().expect("an answer has a token");
        token.clone_into(&mut self.liar().token);
    }

    /// Sends a push to the deployment that it has joined, at one of its addresses. Returns the status of the answer.
    pub async fn push(
        &self,
        client: &reqwest::Client,
        address: &str,
        push: HostilePush,
    ) -> Option<u16> {
        let (token, body) = {
            let mut liar = self.liar();
            (liar.token.clone(), liar.push(push)?)
        };
        let url = format!("{address}/registry/peer/v1/versions");
        let request = client.post(url).bearer_auth(token).body(body);
        let answer = request.send().await.ok()?;
        Some(answer.status().as_u16())
    }

    /// Publishes a version. Returns it, and the number of records of the log.
    pub fn publish(&self) -> (VersionKey, u64) {
        let mut liar = self.liar();
        let key = liar.publish();
        (key, liar.records.len() as u64)
    }

    /// Lies from now on.
    pub fn lie(&self, lie: Lie) {
        let mut liar = self.liar();
        if lie == Lie::Fork {
            liar.records.pop();
            liar.publish();
        }
        liar.lie = Some(lie);
    }

    /// Shows the log as it is from now on, and sends the recorded bytes.
    pub fn stop_lying(&self) {
        self.liar().lie = None;
    }

    fn liar(&self) -> MutexGuard<'_, Liar> {
        self.liar.lock().expect("no handler panics")
    }
}

/// Adds a version with one file.
fn added(text: &str, package: &[u8]) -> RecordChange {
    let package = PackageFile {
        name: "module.tar.gz".parse().expect("the name is valid"),
        digest: Sha256Digest::of(package),
        size: package.len() as u64,
    };
    let files = hash_files([("main.tf", text.as_bytes())]);
    RecordChange::Add(VersionContent {
        checksums: Checksums::Module {
            files: files.expect("the file is named well"),
        },
        packages: PackageFiles::new(vec![package]).expect("it is one package"),
        commit: None,
    })
}

impl Liar {
    fn publish(&mut self) -> VersionKey {
        self.published += 1;
        let key = format!("module mallory/m/aws 1.{}.0", self.published);
        let key: VersionKey = key.parse().expect("the version is valid");
        let text = format!("output \"number_{}\" {{}}\n", self.published);
        let files = [("main.tf", text.as_bytes())];
        let bytes = archive(&key, &files);
        let change = added(&text, &bytes);
        self.packages
            .insert(Sha256Digest::of(&bytes).to_string(), bytes);
        let record = self.record(&key, change, NAME, &self.signer);
        self.records.push(record.to_string());
        key
    }

    /// Makes a record in the name of a deployment.
    fn record(
        &self,
        key: &VersionKey,
        change: RecordChange,
        maker: &str,
        signer: &NoteSigner,
    ) -> Record {
        let id = i64::try_from(self.records.len()).expect("a small log") + 1;
        let maker = RecordMaker {
            deployment: maker.parse().expect("the name is valid"),
            id: LogId::new(id).expect("it is positive"),
        };
        let time = RecordTime::new(SystemClock.now()).expect("it is this century");
        let record = UnsignedRecord::new(key.clone(), change, time, maker);
        record.expect("the change is one of a module").sign(signer)
    }

    /// Returns the body of a push. `None`: there is no record yet.
    fn push(&mut self, push: HostilePush) -> Option<String> {
        self.pushed += 1;
        let number = self.pushed;
        let key = |namespace: &str| -> VersionKey {
            let key = format!("module {namespace}/{REFUSED}/aws 1.{number}.0");
            key.parse().expect("the version is valid")
        };
        let (ours, others) = (key("mallory"), key("acme"));
        let add = || added("output \"flood\" {}\n", b"flood");
        let record = match push {
            HostilePush::Rubbish => return Some("{\"name\": [".repeat(1000)),
            HostilePush::Forged => self.record(&others, add(), FORGED, &self.signer),
            HostilePush::BadSignature => {
                let other = NoteSigner::from_seed(NAME, &[8; 32]).expect("the name is valid");
                self.record(&ours, add(), NAME, &other)
            }
            HostilePush::OtherName => self.record(&others, add(), NAME, &self.signer),
            HostilePush::Takedown => {
                let reason = Reason::read("mine").expect("it is short");
                let notice = RecordNotice {
                    reason: reason.expect("it is not empty"),
                    replacement: None,
                };
                let change = RecordChange::Delete(TakedownKind::Security, notice);
                self.record(&others, change, NAME, &self.signer)
            }
            HostilePush::Own => {
                let last = self.records.last()?;
                Record::parse(last.as_bytes()).expect("it was signed")
            }
        };
        let key = record.key();
        let (name, version) = (key.name().to_string(), key.version());
        let body = json!({"name": name, "version": version, "record": record.to_string()});
        Some(body.to_string())
    }

    /// Returns the page with all records after one.
    fn page(&self, after: usize) -> Value {
        let mut edge = TreeEdge::default();
        for record in &self.records {
            edge.add(record_hash(record.as_bytes()))
                .expect("a small log");
        }
        let head = sign_note(&edge.head().to_string(), &[&self.signer]);
        let (size, none) = (self.records.len(), Vec::<Value>::new());
        let added = (1..).zip(&self.records).skip(after);
        let added: Vec<Value> = added
            .map(|(id, record): (usize, &String)| json!({"id": id, "record": record}))
            .collect();
        json!({
            "after": after, "id": size, "size": size,
            "head": head.expect("a head is a text"), "proof": none, "sharing": "all",
            "added": added, "deprecated": none, "deleted": none, "withheld": none,
        })
    }

    fn answer(&self, after: usize) -> Response {
        let size = self.records.len();
        let end = |size: usize| {
            let text = format!("The log has {size} records.\n");
            (StatusCode::CONFLICT, text).into_response()
        };
        match self.lie {
            Some(Lie::Cut) => end(size.saturating_sub(1)),
            Some(Lie::Replay) => Json(self.page(0)).into_response(),
            Some(Lie::Flood) => Body::from(vec![b' '; FLOOD]).into_response(),
            Some(Lie::Garbage) => Json(json!({"after": "nothing"})).into_response(),
            Some(Lie::Fork | Lie::WrongBytes) | None if after <= size => {
                Json(self.page(after)).into_response()
            }
            Some(Lie::Fork | Lie::WrongBytes) | None => end(size),
        }
    }
}

async fn diff(
    State(liar): State<Shared>,
    Query(query): Query<HashMap<String, String>>,
) -> Response {
    let after = query.get("after").and_then(|after| after.parse().ok());
    let liar = liar.lock().expect("no handler panics");
    match after {
        Some(after) => liar.answer(after),
        None => StatusCode::BAD_REQUEST.into_response(),
    }
}

async fn members() -> Json<Value> {
    Json(json!({"members": []}))
}

async fn package(State(liar): State<Shared>, Path(digest): Path<String>) -> Response {
    let liar = liar.lock().expect("no handler panics");
    let Some(bytes) = liar.packages.get(&digest) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let mut bytes = bytes.clone();
    if liar.lie == Some(Lie::WrongBytes) {
        bytes.reverse();
    }
    bytes.into_response()
}
