//! Shares of tokens in what is limited for all clients, so that no token keeps the others from it: not with slow downloads, and
//! not with many requests.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::Semaphore;

use super::TokenId;

/// Places of each token that has one at this moment.
#[derive(Debug)]
pub(super) struct TokenShares {
    places: usize,
    tokens: Mutex<HashMap<TokenId, Weak<Semaphore>>>,
}

impl TokenShares {
    /// Creates shares with a number of places for each token.
    pub fn new(places: usize) -> Self {
        Self {
            places,
            tokens: Mutex::default(),
        }
    }

    /// Returns the places of a token.
    pub fn of(&self, token: TokenId) -> Arc<Semaphore> {
        let mut tokens = self.tokens.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(places) = tokens.get(&token).and_then(Weak::upgrade) {
            return places;
        }
        tokens.retain(|_, places| places.strong_count() > 0);
        let places = Arc::new(Semaphore::new(self.places));
        tokens.insert(token, Arc::downgrade(&places));
        places
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_have_places_of_their_own_while_they_use_them() {
        let shares = TokenShares::new(1);
        let [one, two] = ["1", "2"].map(|digit| {
            let text = digit.repeat(32);
            text.parse::<TokenId>().unwrap()
        });
        let taken = shares.of(one).try_acquire_owned().unwrap();
        assert!(shares.of(one).try_acquire_owned().is_err());
        let other = shares.of(two).try_acquire_owned().unwrap();
        drop((taken, other));
        assert_eq!(shares.of(one).available_permits(), 1);
        assert_eq!(
            shares.tokens.lock().unwrap().len(),
            1,
            "nobody has the other"
        );
    }
}
