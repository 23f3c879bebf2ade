//! Long lists in pages: each page ends with a cursor, at which the next page begins.

/// Entries of one page of an API.
pub(crate) const PAGE: i64 = 500;

/// Returns where the rest of a list begins, if there may be a rest.
pub(crate) fn next_of<T>(read: &[T], key: impl Fn(&T) -> String) -> Option<String> {
    let full = i64::try_from(read.len()).is_ok_and(|count| count >= PAGE);
    read.last().filter(|_| full).map(key)
}

/// Returns true if there may be more rows than were read.
pub(crate) fn is_full(read: usize, most: i64) -> bool {
    usize::try_from(most).is_ok_and(|most| read >= most)
}
