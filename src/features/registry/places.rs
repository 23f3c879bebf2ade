//! Places for work that is limited for all clients, with a share for each token, so that none keeps the others from it: not with
//! slow downloads, and not with many requests.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};

use super::TokenId;

/// Places of all clients, and those of each token among them.
#[derive(Debug)]
pub(super) struct ClientPlaces {
    all: Arc<Semaphore>,
    share: usize,
    /// Places of tokens that have one at this moment.
    of_tokens: Mutex<HashMap<TokenId, Weak<Semaphore>>>,
    /// Places of all requests without a token.
    of_anonymous: Arc<Semaphore>,
}

impl ClientPlaces {
    /// Creates a number of places, and the number that one token can have. Requests without a token have the share of one.
    pub fn new(all: usize, share: usize) -> Self {
        Self {
            all: Arc::new(Semaphore::new(all)),
            share,
            of_tokens: Mutex::default(),
            of_anonymous: Arc::new(Semaphore::new(share)),
        }
    }

    /// Lets requests without a token have this number of places together.
    pub fn with_anonymous(self, share: usize) -> Self {
        Self {
            of_anonymous: Arc::new(Semaphore::new(share)),
            ..self
        }
    }

    /// Returns what a request has to take a place of, its share first.
    pub fn of(&self, token: Option<TokenId>) -> Vec<Arc<Semaphore>> {
        let share = match token {
            Some(token) => self.of_token(token),
            None => Arc::clone(&self.of_anonymous),
        };
        vec![share, Arc::clone(&self.all)]
    }

    fn of_token(&self, token: TokenId) -> Arc<Semaphore> {
        let tokens = self.of_tokens.lock();
        let mut tokens = tokens.unwrap_or_else(PoisonError::into_inner);
        if let Some(places) = tokens.get(&token).and_then(Weak::upgrade) {
            return places;
        }
        tokens.retain(|_, places| places.strong_count() > 0);
        let places = Arc::new(Semaphore::new(self.share));
        tokens.insert(token, Arc::downgrade(&places));
        places
    }
}

/// Takes a place of each, in order.
///
/// # Errors
///
/// Somebody has closed one of them.
pub(super) async fn take_all(
    places: Vec<Arc<Semaphore>>,
) -> Result<Vec<OwnedSemaphorePermit>, AcquireError> {
    let mut taken = Vec::new();
    for place in places {
        taken.push(place.acquire_owned().await?);
    }
    Ok(taken)
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[test]
    fn tokens_have_places_of_their_own_while_they_use_them() {
        let places = ClientPlaces::new(3, 1).with_anonymous(2);
        let [one, two] = ["1", "2"].map(|digit| {
            let text = digit.repeat(32);
            Some(text.parse::<TokenId>().unwrap())
        });
        let take = |token| take_all(places.of(token)).now_or_never();
        let of_one = take(one).unwrap().unwrap();
        assert!(take(one).is_none());
        let of_nobody = take(None).unwrap().unwrap();
        let of_two = take(two).unwrap().unwrap();
        assert!(take(None).is_none(), "all places are taken");
        drop((of_one, of_nobody, of_two));
        assert!(take(one).is_some());
        assert_eq!(
            places.of_tokens.lock().unwrap().len(),
            1,
            "nobody has the other"
        );
    }
}
