//! Shares one fetch between all waiting tasks. While a fetch of a repository runs, other tasks wait for their turn.
//! The task with the next turn fetches for all of them, and they receive its result. A sync is a fetch of everything:
//! its result covers the tasks that came before it last requested the refs from the forge.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::git::{Fetched, GitError, Head, RefList, RefName, RefSelection, RefusedRef};
use crate::model::{CommitSha, RepoId};

/// Waiting tasks of each repository.
#[derive(Default)]
pub(super) struct RequestCoalescer(Mutex<HashMap<RepoId, Arc<Mutex<WaitingBoard>>>>);

type SharedFetch = Arc<Result<Vec<(RefName, Option<CommitSha>)>, GitError>>;

#[derive(Default)]
struct WaitingBoard {
    next: u64,
    /// Refs that each waiting task needs.
    waiting: BTreeMap<u64, Vec<RefName>>,
    /// Results for the tasks that a fetch included.
    brought: BTreeMap<u64, SharedFetch>,
}

impl RequestCoalescer {
    /// Registers a task, so that the next fetch of any task includes these refs.
    pub(super) fn enter(&self, repo: &RepoId, refs: &[RefName]) -> FetchTicket {
        let mut flights = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let board = Arc::clone(flights.entry(repo.clone()).or_default());
        let mut open = locked(&board);
        let number = open.next;
        open.next += 1;
        open.waiting.insert(number, refs.to_vec());
        drop(open);
        FetchTicket {
            board,
            number,
            refs: refs.to_vec(),
        }
    }

    /// Returns the tasks that wait now, for a sync that has not yet requested the refs from the forge.
    pub(super) fn aboard(&self, repo: &RepoId) -> WaitingTasks {
        let flights = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let board = flights.get(repo).map(Arc::clone);
        let tickets = board
            .as_ref()
            .map(|board| locked(board).waiting.keys().copied().collect());
        WaitingTasks {
            board,
            tickets: tickets.unwrap_or_default(),
        }
    }
}

/// Tasks that a sync includes.
#[derive(Default)]
pub(super) struct WaitingTasks {
    board: Option<Arc<Mutex<WaitingBoard>>>,
    tickets: BTreeSet<u64>,
}

impl WaitingTasks {
    /// Gives the forge's refs to the included tasks that still wait and need no other refs than those of the sync. A
    /// task that needs a ref that git refused fetches for itself and gets the reason.
    pub(super) fn landed(&self, wanted: &RefSelection, there: &RefList, refused: &[RefusedRef]) {
        let Some(board) = &self.board else { return };
        let mut board = locked(board);
        let WaitingBoard {
            waiting, brought, ..
        } = &mut *board;
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

fn locked(board: &Mutex<WaitingBoard>) -> MutexGuard<'_, WaitingBoard> {
    board.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Registration of a waiting task, until it is dropped.
pub struct FetchTicket {
    board: Arc<Mutex<WaitingBoard>>,
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
        let brought = locked(&self.board).brought.remove(&self.number)?;
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
    pub fn board(&self) -> IncludedTasks {
        let board = locked(&self.board);
        let refs: BTreeSet<&RefName> = board.waiting.values().flatten().collect();
        IncludedTasks {
            tickets: board.waiting.keys().copied().collect(),
            refs: refs.into_iter().cloned().collect(),
        }
    }

    /// Gives the result to the included tasks that still wait. A task that needs a ref that git refused fetches for
    /// itself.
    pub fn landed(&self, boarded: &IncludedTasks, result: &Result<Fetched, GitError>) {
        let brought: SharedFetch = Arc::new(match result {
            Ok(fetched) => Ok(fetched.refs.clone()),
            Err(error) => Err(error.clone()),
        });
        let mut board = locked(&self.board);
        let along = boarded
            .tickets
            .iter()
            .filter(|ticket| **ticket != self.number);
        let refused = result.as_ref().map_or(&[][..], |fetched| &fetched.refused);
        let is_refused = |name: &RefName| refused.iter().any(|(refused, _)| refused == name);
        let takes = |refs: &Vec<RefName>| !refs.iter().any(is_refused);
        let along: Vec<u64> = along
            .copied()
            .filter(|ticket| board.waiting.get(ticket).is_some_and(takes))
            .collect();
        board.brought.extend(
            along
                .into_iter()
                .map(|ticket| (ticket, Arc::clone(&brought))),
        );
    }
}

impl Drop for FetchTicket {
    fn drop(&mut self) {
        let mut board = locked(&self.board);
        board.waiting.remove(&self.number);
        board.brought.remove(&self.number);
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

    #[expect(clippy::unnecessary_wraps, reason = "it is what a flight comes to")]
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
        let (flights, repo) = (RequestCoalescer::default(), "h/acme/infra".parse().unwrap());
        let [first, second] =
            [["main", "a"], ["main", "b"]].map(|wanted| flights.enter(&repo, &refs(&wanted)));
        let boarded = first.board();
        let late = flights.enter(&repo, &refs(&["main"]));
        assert_eq!(boarded.refs, refs(&["a", "b", "main"]));
        first.landed(&boarded, &brought(&["a", "b", "main"]));
        assert_eq!(
            names(&second.brought().unwrap().unwrap()),
            ["refs/heads/b", "refs/heads/main"]
        );
        assert!(
            second.brought().is_none() && late.brought().is_none() && first.brought().is_none()
        );
        let other = flights.enter(&"h/acme/other".parse().unwrap(), &refs(&["x"]));
        assert_eq!(other.board().refs, refs(&["x"]));
    }

    #[test]
    fn a_sync_takes_along_who_came_before_it_and_wants_what_it_brings() {
        let (flights, repo) = (RequestCoalescer::default(), "h/acme/infra".parse().unwrap());
        flights
            .aboard(&repo)
            .landed(&RefSelection::default(), &RefList::default(), &[]);
        let [main, gone, gone_too] =
            ["main", "gone", "main"].map(|name| flights.enter(&repo, &refs(&[name])));
        let pull = flights.enter(&repo, &[RefName::new("refs/pull/1/head").unwrap()]);
        let refused = flights.enter(&repo, &refs(&["main", "bad"]));
        drop(gone_too);
        let aboard = flights.aboard(&repo);
        let late = flights.enter(&repo, &refs(&["main"]));
        let there: RefList = refs(&["main"])
            .into_iter()
            .map(|name| (name, "b".repeat(40).parse().unwrap()))
            .collect();
        let bad = RefusedRef {
            name: refs(&["bad"]).remove(0),
            commit: "b".repeat(40).parse().unwrap(),
            why: String::new(),
        };
        aboard.landed(
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
        let (flights, repo) = (RequestCoalescer::default(), "h/acme/infra".parse().unwrap());
        let [first, second, gone] =
            ["a", "b", "c"].map(|name| flights.enter(&repo, &refs(&[name])));
        let boarded = first.board();
        drop(gone);
        first.landed(
            &boarded,
            &Err(GitError::Unreachable {
                doing: "fetch".to_owned(),
                message: "away".to_owned(),
            }),
        );
        assert!(matches!(
            second.brought(),
            Some(Err(GitError::Unreachable { .. }))
        ));
        assert_eq!(first.board().refs, refs(&["a", "b"]));
        assert!(locked(&first.board).brought.is_empty());
    }
}
