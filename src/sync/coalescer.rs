//! Shares one fetch between all waiting tasks. While a fetch of a repository runs, other tasks wait for their turn.
//! The task with the next turn fetches for all of them, and they receive its result. A sync is a fetch of everything:
//! its result covers the tasks that came before it last requested the refs from the forge.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::git::{Fetched, GitError, Head, RefList, RefName, RefSelection, RefusedRef};
use crate::model::{CommitSha, RepoId};

/// Waiting tasks of each repository.
#[derive(Default)]
pub(super) struct RequestCoalescer(Mutex<HashMap<RepoId, Arc<Mutex<PendingFetches>>>>);

type SharedFetch = Arc<Result<Vec<(RefName, Option<CommitSha>)>, GitError>>;

#[derive(Default)]
struct PendingFetches {
    next: u64,
    /// Refs that each waiting task needs.
    waiting: BTreeMap<u64, Vec<RefName>>,
    /// Results for the tasks that a fetch included.
    brought: BTreeMap<u64, SharedFetch>,
}

impl RequestCoalescer {
    /// Registers a task, so that the next fetch of any task includes these refs.
    pub(super) fn enter(&self, repo: &RepoId, refs: &[RefName]) -> FetchTicket {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let tasks = Arc::clone(waiting.entry(repo.clone()).or_default());
        let mut open = locked(&tasks);
        let number = open.next;
        open.next += 1;
        open.waiting.insert(number, refs.to_vec());
        drop(open);
        FetchTicket {
            tasks,
            number,
            refs: refs.to_vec(),
        }
    }

    /// Returns the tasks that wait now, for a sync that has not yet requested the refs from the forge.
    pub(super) fn waiting_tasks(&self, repo: &RepoId) -> WaitingTasks {
        let waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let tasks = waiting.get(repo).map(Arc::clone);
        let tickets = tasks
            .as_ref()
            .map(|tasks| locked(tasks).waiting.keys().copied().collect());
        WaitingTasks {
            tasks,
            tickets: tickets.unwrap_or_default(),
        }
    }
}

/// Tasks that a sync includes.
#[derive(Default)]
pub(super) struct WaitingTasks {
    tasks: Option<Arc<Mutex<PendingFetches>>>,
    tickets: BTreeSet<u64>,
}

impl WaitingTasks {
    /// Gives the forge's refs to the included tasks that still wait and need no other refs than those of the sync. A
    /// task that needs a ref that git refused fetches for itself and gets the reason.
    pub(super) fn finish(&self, wanted: &RefSelection, there: &RefList, refused: &[RefusedRef]) {
        let Some(tasks) = &self.tasks else { return };
        let mut tasks = locked(tasks);
        let PendingFetches {
            waiting, brought, ..
        } = &mut *tasks;
        let along = waiting
            .iter()
            .filter(|(ticket, _)| self.tickets.contains(*ticket));
        let is_refused = |name: &RefName| refused.iter().any(|refused| refused.name == *name);
        let along = along.filter(|(_, refs)| {
            refs.iter()
                .all(|name| wanted.includes(name) && !is_refused(name))
        });
        brought.extend(along.map(|(ticket, refs)| {
            let refs = refs
                .iter()
                .map(|name| (name.clone(), there.get(name).cloned()));
            (*ticket, Arc::new(Ok(refs.collect())))
        }));
    }
}

fn locked(tasks: &Mutex<PendingFetches>) -> MutexGuard<'_, PendingFetches> {
    tasks.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Registration of a waiting task, until it is dropped.
pub struct FetchTicket {
    tasks: Arc<Mutex<PendingFetches>>,
    number: u64,
    refs: Vec<RefName>,
}

/// Tasks that a fetch includes, and their refs.
pub struct IncludedTasks {
    tickets: BTreeSet<u64>,
    /// Refs to fetch, without duplicates.
    pub refs: Vec<RefName>,
}

impl FetchTicket {
    /// Returns the result of a fetch that began after this registration, or `None` if there was none.
    pub fn brought(&self) -> Option<Result<Fetched, GitError>> {
        let brought = locked(&self.tasks).brought.remove(&self.number)?;
        Some(match &*brought {
            Ok(refs) => {
                let ours = refs
                    .iter()
                    .filter(|(name, _)| self.refs.contains(name))
                    .cloned()
                    .collect();
                Ok(Fetched {
                    refs: ours,
                    refused: Vec::new(),
                    wanted: Head::NotAsked,
                })
            }
            Err(error) => Err(error.clone()),
        })
    }

    /// Includes all tasks that wait now in a fetch.
    pub fn include(&self) -> IncludedTasks {
        let tasks = locked(&self.tasks);
        let refs: BTreeSet<&RefName> = tasks.waiting.values().flatten().collect();
        IncludedTasks {
            tickets: tasks.waiting.keys().copied().collect(),
            refs: refs.into_iter().cloned().collect(),
        }
    }

    /// Gives the result to the included tasks that still wait. A task that needs a ref that git refused fetches for
    /// itself.
    pub fn finish(&self, included: &IncludedTasks, result: &Result<Fetched, GitError>) {
        let brought: SharedFetch = Arc::new(match result {
            Ok(fetched) => Ok(fetched.refs.clone()),
            Err(error) => Err(error.clone()),
        });
        let mut tasks = locked(&self.tasks);
        let along = included
            .tickets
            .iter()
            .filter(|ticket| **ticket != self.number);
        let refused = result.as_ref().map_or(&[][..], |fetched| &fetched.refused);
        let is_refused = |name: &RefName| refused.iter().any(|(refused, _)| refused == name);
        let takes = |refs: &Vec<RefName>| !refs.iter().any(is_refused);
        let along: Vec<u64> = along
            .copied()
            .filter(|ticket| tasks.waiting.get(ticket).is_some_and(takes))
            .collect();
        tasks.brought.extend(
            along
                .into_iter()
                .map(|ticket| (ticket, Arc::clone(&brought))),
        );
    }
}

impl Drop for FetchTicket {
    fn drop(&mut self) {
        let mut tasks = locked(&self.tasks);
        tasks.waiting.remove(&self.number);
        tasks.brought.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refs(names: &[&str]) -> Vec<RefName> {
        names
            .iter()
            .map(|name| RefName::new(&format!("refs/heads/{name}")).unwrap())
            .collect()
    }

    #[expect(
        clippy::unnecessary_wraps,
        reason = "the result has the type of a fetch"
    )]
    fn brought(names: &[&str]) -> Result<Fetched, GitError> {
        let commit: CommitSha = "a".repeat(40).parse().unwrap();
        let refs = refs(names)
            .into_iter()
            .map(|name| (name, Some(commit.clone())))
            .collect();
        Ok(Fetched {
            refs,
            refused: Vec::new(),
            wanted: Head::Present,
        })
    }

    fn names(fetched: &Fetched) -> Vec<&str> {
        fetched.refs.iter().map(|(name, _)| name.as_str()).collect()
    }

    #[test]
    fn whoever_waits_is_taken_along_and_who_comes_later_is_not() {
        let (coalescer, repo) = (RequestCoalescer::default(), "h/acme/infra".parse().unwrap());
        let [first, second] =
            [["main", "a"], ["main", "b"]].map(|wanted| coalescer.enter(&repo, &refs(&wanted)));
        let included = first.include();
        let late = coalescer.enter(&repo, &refs(&["main"]));
        assert_eq!(included.refs, refs(&["a", "b", "main"]));
        first.finish(&included, &brought(&["a", "b", "main"]));
        assert_eq!(
            names(&second.brought().unwrap().unwrap()),
            ["refs/heads/b", "refs/heads/main"]
        );
        assert!(
            second.brought().is_none() && late.brought().is_none() && first.brought().is_none()
        );
        let other = coalescer.enter(&"h/acme/other".parse().unwrap(), &refs(&["x"]));
        assert_eq!(other.include().refs, refs(&["x"]));
    }

    #[test]
    fn a_sync_takes_along_who_came_before_it_and_wants_what_it_brings() {
        let (coalescer, repo) = (RequestCoalescer::default(), "h/acme/infra".parse().unwrap());
        coalescer
            .waiting_tasks(&repo)
            .finish(&RefSelection::default(), &RefList::default(), &[]);
        let [main, gone, gone_too] =
            ["main", "gone", "main"].map(|name| coalescer.enter(&repo, &refs(&[name])));
        let pull = coalescer.enter(&repo, &[RefName::new("refs/pull/1/head").unwrap()]);
        let refused = coalescer.enter(&repo, &refs(&["main", "bad"]));
        drop(gone_too);
        let waiting = coalescer.waiting_tasks(&repo);
        let late = coalescer.enter(&repo, &refs(&["main"]));
        let there: RefList = refs(&["main"])
            .into_iter()
            .map(|name| (name, "b".repeat(40).parse().unwrap()))
            .collect();
        let bad = RefusedRef {
            name: refs(&["bad"]).remove(0),
            commit: "b".repeat(40).parse().unwrap(),
            why: String::new(),
        };
        waiting.finish(
            &RefSelection {
                branches: true,
                ..RefSelection::default()
            },
            &there,
            &[bad],
        );
        assert!(refused.brought().is_none(), "nobody has told why");
        assert_eq!(
            names(&main.brought().unwrap().unwrap()),
            ["refs/heads/main"]
        );
        let gone = gone.brought().unwrap().unwrap();
        assert_eq!(
            (gone.refs.len(), gone.commit_of(&refs(&["gone"])[0])),
            (1, None)
        );
        assert!(
            late.brought().is_none() && pull.brought().is_none(),
            "nobody asked the forge for them"
        );
    }

    #[test]
    fn a_failure_is_shared_and_who_has_left_is_forgotten() {
        let (coalescer, repo) = (RequestCoalescer::default(), "h/acme/infra".parse().unwrap());
        let [first, second, gone] =
            ["a", "b", "c"].map(|name| coalescer.enter(&repo, &refs(&[name])));
        let included = first.include();
        drop(gone);
        first.finish(
            &included,
            &Err(GitError::Unreachable {
                doing: "fetch".to_owned(),
                message: "away".to_owned(),
            }),
        );
        assert!(matches!(
            second.brought(),
            Some(Err(GitError::Unreachable { .. }))
        ));
        assert_eq!(first.include().refs, refs(&["a", "b"]));
        assert!(locked(&first.tasks).brought.is_empty());
    }
}
