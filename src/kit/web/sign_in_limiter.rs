//! Slows down password guessing. People who know their password hardly notice.
//!
//! - *Per address*: [`FREE_FAILURES`] wrong passwords are free. Each further one makes the address wait, one second at
//!   first and twice as long every time, [`LONGEST_WAIT`] at most. A password from an address that has to wait is not
//!   checked. An hour without a wrong password ends the wait. The same wrong password again counts once, because it
//!   reveals nothing: a script with an old password locks nobody out.
//! - *In total*: [`FAILURE_BURST`] wrong passwords, and one more every [`FAILURE_REFILL`]. Beyond that limit the server
//!   only checks passwords from addresses where somebody has signed in within a day. Guesses from many addresses
//!   therefore do not lock out the people who work here.
//!
//! An IPv6 address stands for its network of 64 bits, which belongs to one person. The memory is bounded. Of the
//! addresses with wrong passwords the oldest are forgotten, which the limit in total makes up for. Addresses with
//! right passwords can only be added by people with a password. Each replica counts separately.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, PoisonError};

use chrono::{DateTime, TimeDelta, Utc};
use sha2::{Digest, Sha256};

/// Number of wrong passwords of one address without a wait, because people mistype.
pub const FREE_FAILURES: u32 = 10;
/// Longest time that an address has to wait after a wrong password.
pub const LONGEST_WAIT: TimeDelta = TimeDelta::minutes(5);
/// Time after which the wrong passwords of an address are forgotten.
const FORGOTTEN: TimeDelta = TimeDelta::hours(1);
/// Number of wrong passwords that all addresses together may send at once.
pub const FAILURE_BURST: i32 = 200;
/// Time after which one more wrong password is allowed.
pub const FAILURE_REFILL: TimeDelta = TimeDelta::seconds(3);
/// Time after a wrong password in which it is not checked again.
const STILL_WRONG: TimeDelta = TimeDelta::minutes(1);
/// Time after a sign-in during which an address is trusted.
const TRUSTED: TimeDelta = TimeDelta::hours(24);
/// Maximum number of remembered addresses. One takes about 200 bytes.
const MOST: usize = 8192;
/// Number of wrong passwords of an address that are recognized when they are repeated.
const REMEMBERED: usize = 4;

/// Number of locks for the checks of passwords.
const TURNS: usize = 64;

/// Address of a client; of IPv6 only its network. `None` is a connection without an address.
type ClientNetwork = Option<IpAddr>;

/// Limits the rate of sign-ins with wrong passwords.
#[derive(Debug)]
pub(crate) struct SignInLimiter {
    state: Mutex<LimiterState>,
    /// Addresses share these locks.
    turns: [tokio::sync::Mutex<()>; TURNS],
    /// Random, so that nobody can choose an address that shares the lock of somebody else.
    places: RandomState,
}

impl Default for SignInLimiter {
    fn default() -> Self {
        Self {
            state: Mutex::default(),
            turns: std::array::from_fn(|_| tokio::sync::Mutex::default()),
            places: RandomState::new(),
        }
    }
}

#[derive(Debug, Default)]
struct LimiterState {
    /// Addresses with wrong passwords: the newer half, and the older one.
    wrong: HashMap<ClientNetwork, FailedSignIns>,
    wrong_before: HashMap<ClientNetwork, FailedSignIns>,
    /// Time of the last sign-in from an address.
    right: HashMap<ClientNetwork, DateTime<Utc>>,
    /// Time when all wrong passwords so far are paid for.
    paid_at: DateTime<Utc>,
}

#[derive(Clone, Debug)]
struct FailedSignIns {
    count: u32,
    last: DateTime<Utc>,
    waits_until: DateTime<Utc>,
    /// The newest wrong passwords.
    passwords: [Option<WrongPassword>; REMEMBERED],
}

#[derive(Clone, Copy, Debug)]
struct WrongPassword {
    digest: [u8; 32],
    checked_at: DateTime<Utc>,
}

impl SignInLimiter {
    /// Waits for the turn of an address, for a check that takes time. Passwords from one address are checked one after the
    /// other, so that of several guesses sent at once, each counts before the next is checked.
    pub async fn turn(&self, address: Option<IpAddr>) -> tokio::sync::MutexGuard<'_, ()> {
        let hash = self.places.hash_one(network(address));
        let place = usize::try_from(hash % TURNS as u64).unwrap_or_default();
        self.turns[place].lock().await
    }

    /// Returns how long the address has to wait before its password is checked. `None`: no wait.
    pub fn wait(&self, address: Option<IpAddr>, now: DateTime<Utc>) -> Option<TimeDelta> {
        let network = network(address);
        let state = &mut *self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let own = state
            .wrong_of(network, now)
            .map_or(TimeDelta::zero(), |wrong| wrong.waits_until - now);
        let is_trusted = state
            .right
            .get(&network)
            .is_some_and(|at| now - *at < TRUSTED);
        let in_all = if is_trusted {
            TimeDelta::zero()
        } else {
            state.paid_at - now - FAILURE_REFILL * (FAILURE_BURST - 1)
        };
        Some(own.max(in_all)).filter(|wait| *wait > TimeDelta::zero())
    }

    /// Returns true if this very password was wrong within the last minute, so that it need not be checked again.
    pub fn was_wrong(&self, address: Option<IpAddr>, given: &str, now: DateTime<Utc>) -> bool {
        let state = &mut *self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let digest: [u8; 32] = Sha256::digest(given).into();
        let wrong = state.wrong_of(network(address), now);
        let mut passwords = wrong.iter().flat_map(|wrong| wrong.passwords).flatten();
        passwords.any(|known| known.digest == digest && now - known.checked_at < STILL_WRONG)
    }

    /// Records that somebody signed in from an address.
    pub fn record_success(&self, address: Option<IpAddr>, now: DateTime<Utc>) {
        let state = &mut *self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.right.len() >= MOST {
            state.right.retain(|_, at| now - *at < TRUSTED);
        }
        if state.right.len() < MOST {
            state.right.insert(network(address), now);
        }
    }

    /// Counts a wrong password. Returns the number of wrong passwords from the address so far, if this one is new.
    pub fn record_failure(
        &self,
        address: Option<IpAddr>,
        given: &str,
        now: DateTime<Utc>,
    ) -> Option<u32> {
        let network = network(address);
        let digest: [u8; 32] = Sha256::digest(given).into();
        let state = &mut *self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let before = state.wrong_of(network, now);
        if before.is_some()
            && let Some(known) = state.password_of(network, digest)
        {
            // Each check takes time, so that the next one comes in a minute at the earliest.
            known.checked_at = now;
            return None;
        }
        let (count, mut passwords) = before.map_or((0, [None; REMEMBERED]), |wrong| {
            (wrong.count, wrong.passwords)
        });
        let count = count.saturating_add(1);
        passwords.rotate_right(1);
        passwords[0] = Some(WrongPassword {
            digest,
            checked_at: now,
        });
        let wrong = FailedSignIns {
            count,
            last: now,
            waits_until: now + wait_after(count),
            passwords,
        };
        if state.wrong.len() >= MOST / 2 {
            state.wrong_before = std::mem::take(&mut state.wrong);
        }
        state.wrong.insert(network, wrong);
        state.paid_at = state.paid_at.max(now) + FAILURE_REFILL;
        Some(count)
    }
}

impl LimiterState {
    fn wrong_of(&self, network: ClientNetwork, now: DateTime<Utc>) -> Option<FailedSignIns> {
        let wrong = self
            .wrong
            .get(&network)
            .or_else(|| self.wrong_before.get(&network))?;
        (now - wrong.last < FORGOTTEN).then(|| wrong.clone())
    }

    /// Returns a wrong password of an address that is remembered.
    fn password_of(
        &mut self,
        network: ClientNetwork,
        digest: [u8; 32],
    ) -> Option<&mut WrongPassword> {
        let wrong = match self.wrong.get_mut(&network) {
            Some(wrong) => wrong,
            None => self.wrong_before.get_mut(&network)?,
        };
        let mut known = wrong.passwords.iter_mut().flatten();
        known.find(|known| known.digest == digest)
    }
}

fn network(address: Option<IpAddr>) -> ClientNetwork {
    const NETWORK: u128 = u128::MAX << 64;
    Some(match address?.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from(u128::from(address) & NETWORK)),
        address @ IpAddr::V4(_) => address,
    })
}

fn wait_after(count: u32) -> TimeDelta {
    match count.checked_sub(FREE_FAILURES) {
        None | Some(0) => TimeDelta::zero(),
        Some(beyond) => TimeDelta::seconds(1 << (beyond - 1).min(20)).min(LONGEST_WAIT),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: DateTime<Utc> = DateTime::from_timestamp(1_800_000_000, 0).unwrap();

    #[expect(
        clippy::unnecessary_wraps,
        reason = "the address of a request may not be known"
    )]
    fn ip(text: &str) -> Option<IpAddr> {
        Some(text.parse().unwrap())
    }

    #[test]
    fn a_wrong_password_is_not_checked_again_for_a_minute() {
        let (limiter, script) = (SignInLimiter::default(), ip("192.0.2.1"));
        assert!(!limiter.was_wrong(script, "old", START));
        limiter.record_failure(script, "old", START);
        let soon = START + TimeDelta::seconds(59);
        assert!(limiter.was_wrong(script, "old", soon));
        assert!(!limiter.was_wrong(script, "new", soon));
        assert!(!limiter.was_wrong(ip("192.0.2.2"), "old", soon));
        // It may be right by then. If not, the next minute begins.
        let later = START + STILL_WRONG;
        assert!(!limiter.was_wrong(script, "old", later));
        assert_eq!(limiter.record_failure(script, "old", later), None);
        assert!(limiter.was_wrong(script, "old", later + TimeDelta::seconds(59)));
        assert!(!limiter.was_wrong(script, "old", later + STILL_WRONG));
    }

    #[test]
    fn each_wrong_password_of_an_address_costs_more_than_the_one_before() {
        let (limiter, mallory, mut now) = (SignInLimiter::default(), ip("192.0.2.1"), START);
        let mut waits = Vec::new();
        for guess in 0..22 {
            assert_eq!(limiter.wait(mallory, now), None);
            assert_eq!(
                limiter.record_failure(mallory, &format!("guess {guess}"), now),
                Some(guess + 1)
            );
            let wait = limiter.wait(mallory, now).unwrap_or_default();
            waits.push(wait.num_seconds());
            now += wait;
        }
        assert_eq!(waits[..10], [0; 10]);
        assert_eq!(
            waits[10..],
            [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]
        );
        assert_eq!(
            limiter.wait(ip("192.0.2.2"), now),
            None,
            "nobody else waits"
        );
        let later = now + FORGOTTEN;
        assert_eq!(
            (
                limiter.wait(mallory, later),
                limiter.record_failure(mallory, "again", later)
            ),
            (None, Some(1))
        );
    }

    #[test]
    fn the_same_wrong_password_counts_once() {
        let (limiter, script) = (SignInLimiter::default(), ip("192.0.2.1"));
        assert_eq!(limiter.record_failure(script, "old", START), Some(1));
        assert!((0..1000).all(|_| limiter.record_failure(script, "old", START).is_none()));
        assert_eq!(limiter.wait(script, START), None);
    }

    #[test]
    fn guessing_from_many_addresses_is_slow_too_and_locks_out_nobody_who_works_here() {
        let limiter = SignInLimiter::default();
        let kim = ip("198.51.100.7");
        limiter.record_success(kim, START);
        let bots = (0..20_000_u32).map(|number| Some(IpAddr::from(number.to_be_bytes())));
        let heard = bots.filter(|bot| {
            let is_heard = limiter.wait(*bot, START).is_none();
            if is_heard {
                limiter.record_failure(*bot, "guess", START);
            }
            is_heard
        });
        assert_eq!(heard.count(), usize::try_from(FAILURE_BURST).unwrap());
        let stranger = ip("203.0.113.9");
        assert_eq!(
            (limiter.wait(stranger, START), limiter.wait(kim, START)),
            (Some(FAILURE_REFILL), None)
        );
        assert_eq!(limiter.wait(stranger, START + FAILURE_REFILL), None);
        assert!(
            limiter.wait(kim, START + TRUSTED).is_none(),
            "the wrong ones are paid for by then"
        );
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let limiter = SignInLimiter::default();
        for number in 0..20_000_u32 {
            let address = Some(IpAddr::from(number.to_be_bytes()));
            limiter.record_failure(address, "guess", START);
            limiter.record_success(address, START);
        }
        let state = limiter.state.lock().unwrap();
        assert!(state.wrong.len() + state.wrong_before.len() <= MOST && state.right.len() <= MOST);
    }

    #[test]
    fn a_network_of_ipv6_counts_as_one_address() {
        let limiter = SignInLimiter::default();
        for host in 0..=FREE_FAILURES {
            limiter.record_failure(
                ip(&format!("2001:db8:1:2::{host:x}")),
                &format!("guess {host}"),
                START,
            );
        }
        assert!(limiter.wait(ip("2001:db8:1:2:ffff::1"), START).is_some());
        assert_eq!(limiter.wait(ip("2001:db8:1:3::1"), START), None);
        assert_eq!(
            limiter.record_failure(ip("::ffff:192.0.2.1"), "x", START),
            Some(1)
        );
        assert_eq!(limiter.record_failure(ip("192.0.2.1"), "x", START), None);
    }
}
