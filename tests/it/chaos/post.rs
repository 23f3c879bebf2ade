//! Delivers GitHub's webhooks to the servers, as badly as a network does: late, twice, out of order, to the server
//! that a load balancer picks, and sometimes not at all.
//!
//! The seed and the number of a delivery decide its fate. The order in which deliveries are made does not matter.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use lockkeeper::emulator::{EmulatedDelivery, Emulator};
use rand::RngExt;
use tokio::task::JoinSet;
use tokio_util::task::AbortOnDropHandle;
use url::Url;
use uuid::Uuid;

use super::schedule;
use crate::support::server::{LOOK, within};

/// Time after which GitHub gives up on a receiver.
const PATIENCE: Duration = Duration::from_secs(10);

/// A webhook that is being delivered.
#[derive(Clone, Debug)]
pub struct Letter {
    /// The delivery that GitHub sends.
    pub delivery: EmulatedDelivery,
    /// True if the delivery never arrives.
    pub lost: bool,
    /// Number of answers with 2xx.
    pub accepted: usize,
    /// All other answers and errors.
    pub trouble: Vec<String>,
}

/// Delivers the webhooks of one world.
#[derive(Clone)]
pub struct Postman {
    seed: u64,
    world: u64,
    client: reqwest::Client,
    /// Addresses of `/events`, one per server.
    urls: Arc<Mutex<Vec<Url>>>,
    letters: Arc<Mutex<BTreeMap<Uuid, Letter>>>,
    under_way: Arc<Mutex<JoinSet<()>>>,
}

/// Fate of a delivery.
struct Fate {
    lost: bool,
    copies: Vec<(Duration, usize)>,
}

impl Postman {
    /// Creates a postman for one world.
    pub fn new(seed: u64, world: u64) -> Self {
        let client = reqwest::Client::builder()
            .no_proxy()
            .timeout(PATIENCE)
            .pool_max_idle_per_host(0);
        Self {
            seed,
            world,
            client: client.build().expect("a client can be built"),
            urls: Arc::default(),
            letters: Arc::default(),
            under_way: Arc::default(),
        }
    }

    /// Stores the new address of server `n`.
    pub fn moved(&self, n: usize, url: Url) {
        let mut urls = self.urls.lock().unwrap();
        match urls.get_mut(n) {
            Some(known) => *known = url,
            None => urls.push(url),
        }
    }

    /// Returns the address of server `n`, counted modulo the number of servers, without a slash at the end.
    pub fn url(&self, n: usize) -> String {
        let urls = self.urls.lock().unwrap();
        urls[n % urls.len()]
            .as_str()
            .trim_end_matches("/events")
            .to_owned()
    }

    /// Returns a client that sends requests without a proxy.
    pub fn client(&self) -> &reqwest::Client {
        &self.client
    }

    /// Takes deliveries from GitHub until the handle is dropped.
    pub fn work(&self, github: &Emulator) -> AbortOnDropHandle<()> {
        let (postman, github) = (self.clone(), github.clone());
        let mut changes = github.changes();
        AbortOnDropHandle::new(tokio::spawn(async move {
            loop {
                postman.collect(&github);
                // An event enters the queue a moment after the world has changed.
                tokio::time::timeout(LOOK, changes.changed()).await.ok();
            }
        }))
    }

    fn collect(&self, github: &Emulator) {
        while let Some(delivery) = github.lose_next() {
            let (id, fate) = (delivery.id, self.fate(&delivery));
            let letter = Letter {
                delivery,
                lost: fate.lost,
                accepted: 0,
                trouble: Vec::new(),
            };
            self.letters().insert(id, letter);
            for (delay, server) in fate.copies {
                let postman = self.clone();
                self.under_way.lock().unwrap().spawn(async move {
                    tokio::time::sleep(delay).await;
                    postman.bring(id, server).await;
                });
            }
        }
    }

    /// Decides the fate of a delivery: one in thirty is lost, one in eight comes twice, one in three late.
    fn fate(&self, delivery: &EmulatedDelivery) -> Fate {
        let number = delivery.id.as_u64_pair().1;
        let mut rng = schedule::rng(self.seed, self.world, number);
        if rng.random_ratio(1, 30) {
            return Fate {
                lost: true,
                copies: Vec::new(),
            };
        }
        let copies = if rng.random_ratio(1, 8) { 2 } else { 1 };
        let mut delay = || {
            Duration::from_millis(if rng.random_ratio(1, 3) {
                rng.random_range(0..1500)
            } else {
                0
            })
        };
        let delays: Vec<Duration> = (0..copies).map(|_| delay()).collect();
        Fate {
            lost: false,
            copies: delays
                .into_iter()
                .map(|delay| (delay, rng.random_range(0..64)))
                .collect(),
        }
    }

    async fn bring(&self, id: Uuid, server: usize) {
        let url = {
            let urls = self.urls.lock().unwrap();
            urls[server % urls.len()].clone()
        };
        let recorded = self.letters()[&id].delivery.recorded.clone();
        let headers = recorded.headers.iter();
        let request = headers.fold(self.client.post(url), |request, (name, value)| {
            request.header(name, value)
        });
        let answer = request.body(recorded.body_bytes()).send().await;
        let mut letters = self.letters();
        let letter = letters.get_mut(&id).expect("letters are never forgotten");
        match answer {
            Ok(answer) if answer.status().is_success() => letter.accepted += 1,
            Ok(answer) => letter.trouble.push(answer.status().to_string()),
            Err(error) => letter.trouble.push(error.without_url().to_string()),
        }
    }

    /// Waits until no delivery is under way. Then it redelivers those that no server has accepted, as people do who
    /// look at GitHub's list of failed deliveries. Returns true if everything has arrived.
    pub async fn bring_the_rest(&self, github: &Emulator) -> bool {
        for round in 0..40 {
            self.collect(github);
            self.idle(github).await;
            let rest: Vec<Uuid> = self
                .letters()
                .values()
                .filter(|l| !l.lost && l.accepted == 0)
                .map(|l| l.delivery.id)
                .collect();
            if rest.is_empty() {
                return true;
            }
            for id in rest {
                self.bring(id, round).await;
            }
        }
        false
    }

    /// Returns true if no delivery is under way or waits.
    pub fn is_idle(&self, github: &Emulator) -> bool {
        let mut under_way = self.under_way.lock().unwrap();
        while under_way.try_join_next().is_some() {}
        under_way.is_empty() && github.held().is_empty()
    }

    async fn idle(&self, github: &Emulator) {
        within("the end of all deliveries under way", async {
            while !self.is_idle(github) {
                tokio::time::sleep(LOOK).await;
            }
        })
        .await;
    }

    /// Returns all deliveries so far.
    pub fn all(&self) -> Vec<Letter> {
        self.letters().values().cloned().collect()
    }

    fn letters(&self) -> MutexGuard<'_, BTreeMap<Uuid, Letter>> {
        self.letters.lock().unwrap()
    }
}
