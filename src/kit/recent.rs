//! A map of limited size that forgets what was not used lately.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;

/// Map of at most `limit` bytes, as its user counts them.
///
/// New and used entries are in one half. When that is full, the other half is forgotten and takes its place. So an entry
/// that is used often stays, and nothing has to be sorted.
pub(crate) struct RecentMap<K, V> {
    used: HashMap<K, KeptValue<V>>,
    before: HashMap<K, KeptValue<V>>,
    bytes: usize,
    limit: usize,
}

struct KeptValue<V> {
    value: V,
    bytes: usize,
}

impl<K: Eq + Hash, V: Clone> RecentMap<K, V> {
    pub fn new(limit: usize) -> Self {
        Self {
            used: HashMap::new(),
            before: HashMap::new(),
            bytes: 0,
            limit,
        }
    }

    /// Returns a copy of a value.
    pub fn get<Q: Eq + Hash + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        if let Some(entry) = self.used.get(key) {
            return Some(entry.value.clone());
        }
        let (key, entry) = self.before.remove_entry(key)?;
        let value = entry.value.clone();
        self.insert(key, entry.value, entry.bytes);
        Some(value)
    }

    /// Keeps a value that takes about this many bytes. One that takes more than an eighth of all is not kept.
    pub fn insert(&mut self, key: K, value: V, bytes: usize) {
        self.remove(&key);
        if bytes > self.limit / 8 {
            return;
        }
        if self.bytes + bytes > self.limit / 2 {
            self.before = std::mem::take(&mut self.used);
            self.bytes = 0;
        }
        self.bytes += bytes;
        self.used.insert(key, KeptValue { value, bytes });
    }

    /// Forgets the value of a key.
    pub fn remove<Q: Eq + Hash + ?Sized>(&mut self, key: &Q)
    where
        K: Borrow<Q>,
    {
        if let Some(entry) = self.used.remove(key) {
            self.bytes -= entry.bytes;
        }
        self.before.remove(key);
    }

    /// Empties the map and its count of bytes.
    pub fn clear(&mut self) {
        self.used.clear();
        self.before.clear();
        self.bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn used_entries_stay_and_the_size_is_limited() {
        let mut map = RecentMap::new(1000);
        map.insert(0, "used", 100);
        for key in 1..100 {
            map.insert(key, "once", 100);
            assert_eq!(map.get(&0), Some("used"), "{key}");
            assert!(map.used.len() + map.before.len() <= 10);
        }
        assert_eq!((map.get(&1), map.get(&99)), (None, Some("once")));
        map.insert(99, "again", 50);
        assert_eq!(map.get(&99), Some("again"));
        map.remove(&99);
        assert_eq!(map.get(&99), None);
        map.insert(7, "large", 126);
        assert_eq!(map.get(&7), None);
        map.clear();
        assert_eq!((map.get(&0), map.bytes), (None, 0));
    }
}
