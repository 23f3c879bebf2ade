//! Verifies that a mirror has the refs that the forge advertises, with a checksum over the names and ids of all refs
//! on both sides. Refs that git refused are known gaps: they are left out on both sides and reported.

use crate::git::{GitError, Mirror, RefList, RefSelection, RefusedRef, Remote, without_refused};

/// Result of the comparison.
pub(super) enum VerifyResult {
    /// Both sides have these refs, except those that git refused here.
    Same(RefList, Vec<RefusedRef>),
    /// The refs differ even after a second sync; the text describes the difference.
    Differs(String),
}

/// Compares the mirror with the forge. Somebody may push between the fetch and the comparison. So after a difference
/// the mirror is synced and compared again. `before_look` is called each time before the forge is asked.
pub(super) async fn verify(
    mirror: &Mirror,
    remote: &Remote<'_>,
    wanted: &RefSelection,
    mut before_look: impl FnMut(),
) -> Result<VerifyResult, GitError> {
    before_look();
    if let same @ VerifyResult::Same(..) = compare(mirror, remote, wanted).await? {
        return Ok(same);
    }
    mirror.sync(remote, wanted).await?;
    before_look();
    compare(mirror, remote, wanted).await
}

async fn compare(
    mirror: &Mirror,
    remote: &Remote<'_>,
    wanted: &RefSelection,
) -> Result<VerifyResult, GitError> {
    let (advertised, refused) = (mirror.advertised(remote, wanted).await?, mirror.refused());
    // A gap counts only while the forge names the very commit that was refused.
    let there = without_refused(&advertised, &refused);
    let here = mirror.refs().await?.selected(wanted);
    if here.checksum() == there.checksum() {
        let still = refused
            .into_iter()
            .filter(|one| advertised.get(&one.name) == Some(&one.commit))
            .collect();
        return Ok(VerifyResult::Same(there, still));
    }
    Ok(VerifyResult::Differs(difference(&here, &there)))
}

/// Describes the difference and names at most one ref of each kind: the forge may have thousands.
fn difference(here: &RefList, there: &RefList) -> String {
    let missing: Vec<_> = there
        .iter()
        .filter(|(name, _)| here.get(name).is_none())
        .collect();
    let gone: Vec<_> = here
        .iter()
        .filter(|(name, _)| there.get(name).is_none())
        .collect();
    let moved: Vec<_> = there
        .iter()
        .filter(|(name, id)| here.get(name).is_some_and(|ours| ours != *id))
        .collect();
    let sorts = [
        ("missing here", missing),
        ("deleted there", gone),
        ("at another commit", moved),
    ];
    let named = sorts.iter().filter_map(|(what, refs)| {
        let (name, _) = refs.first()?;
        Some(format!("{} {what}, as {name}", refs.len()))
    });
    let (ours, theirs) = (here.checksum(), there.checksum());
    let named = named.collect::<Vec<_>>().join("; ");
    format!(
        "the fetched references ({ours}) differ from those that the forge advertises ({theirs}): {named}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::git::RefName;

    fn refs(list: &[(&str, char)]) -> RefList {
        let one = |(name, id): &(&str, char)| {
            (
                RefName::new(name).unwrap(),
                id.to_string().repeat(40).parse().unwrap(),
            )
        };
        list.iter().map(one).collect()
    }

    #[test]
    fn a_difference_is_counted_and_one_of_each_sort_named() {
        let here = refs(&[
            ("refs/heads/a", 'a'),
            ("refs/heads/b", 'b'),
            ("refs/heads/old", 'c'),
        ]);
        let there = refs(&[
            ("refs/heads/a", 'd'),
            ("refs/heads/b", 'b'),
            ("refs/heads/new", 'e'),
            ("refs/heads/other", 'e'),
        ]);
        let text = difference(&here, &there);
        let (_, named) = text.split_once("): ").unwrap();
        assert_eq!(
            named,
            "2 missing here, as refs/heads/new; 1 deleted there, as refs/heads/old; 1 at another commit, as \
             refs/heads/a"
        );
    }
}
