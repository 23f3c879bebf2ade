//! Checks HTTP passwords, and remembers the last right one of each account.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use hmac::{Hmac, KeyInit as _, Mac as _};
use lockkeeper_accounts::external_ids::{ExternalId, HashedPassword, StoredPassword};
use lockkeeper_accounts::refs::AccountId;
use sha2::Sha256;

use super::actions::CHOSEN_PASSWORD_COST;

/// Maximum number of accounts whose password is remembered.
const MOST: usize = 1_000;

/// Passwords that were right. A page consists of several requests, and the hash of a password that people choose is slow
/// on purpose.
pub(super) struct VerifiedPasswords {
    /// Random key of this process.
    key: [u8; 32],
    /// Authentication code of a password together with its stored hash.
    codes: Mutex<HashMap<AccountId, Vec<u8>>>,
}

impl Default for VerifiedPasswords {
    fn default() -> Self {
        Self {
            key: rand::random(),
            codes: Mutex::default(),
        }
    }
}

impl VerifiedPasswords {
    /// Returns true if the password was right a while ago, and is the same as then.
    pub fn recalls(&self, username: &ExternalId, password: &str) -> bool {
        let codes = self.codes.lock().unwrap_or_else(PoisonError::into_inner);
        match (codes.get(&username.account), &username.password) {
            (Some(known), Some(stored)) => self.code(stored, password).verify_slice(known).is_ok(),
            (None, _) | (_, None) => false,
        }
    }

    /// Returns true if this is the password, and remembers it then. A wrong one takes as long as for a user name that does
    /// not exist, unless the hash is an imported one with a higher cost.
    pub async fn verify(&self, username: &ExternalId, password: &str) -> bool {
        let Some(stored) = &username.password else {
            pretend(password).await;
            return false;
        };
        let (hashed, given) = (stored.decode().ok(), password.to_owned());
        let is_right = tokio::task::spawn_blocking(move || {
            let is_right = hashed.as_ref().is_some_and(|hashed| hashed.verify(&given));
            if !is_right && hashed.is_none_or(|hashed| hashed.cost() < CHOSEN_PASSWORD_COST) {
                hash(&given);
            }
            is_right
        });
        if !is_right.await.unwrap_or(false) {
            return false;
        }
        let code = self.code(stored, password);
        let mut codes = self.codes.lock().unwrap_or_else(PoisonError::into_inner);
        if codes.len() >= MOST {
            codes.clear();
        }
        codes.insert(username.account, code.finalize().into_bytes().to_vec());
        true
    }

    /// Returns a number that changes with the password.
    pub fn mark(&self, stored: &StoredPassword) -> u64 {
        let code = self.code(stored, "").finalize().into_bytes();
        let first: [u8; 8] = std::array::from_fn(|at| code[at]);
        u64::from_le_bytes(first)
    }

    #[expect(clippy::expect_used, reason = "a key of any length is fine")]
    fn code(&self, stored: &StoredPassword, password: &str) -> Hmac<Sha256> {
        let mut code = <Hmac<Sha256>>::new_from_slice(&self.key).expect("a key of any length");
        code.update(stored.expose().as_bytes());
        code.update(b"\n");
        code.update(password.as_bytes());
        code
    }
}

/// Takes as long as a wrong password of an account, so that nobody learns which user names exist.
pub(super) async fn pretend(password: &str) {
    let password = password.to_owned();
    tokio::task::spawn_blocking(move || hash(&password))
        .await
        .ok();
}

fn hash(password: &str) {
    let _hashed = HashedPassword::new(password, CHOSEN_PASSWORD_COST, [0; 16]);
}
