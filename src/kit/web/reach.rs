//! Limits accounts to owners: the routes that such an account may use, and the data that it sees there.
//!
//! Fail closed, by name:
//! - *a forgotten route is refused*: the guard lets a limited account only through to the routes whose row in the table
//!   of routes admits it ([`RouteAccess::and_limited`](super::RouteAccess::and_limited)). Each of them shows and changes
//!   only data of the account's owners, and what is public. Its handler asks [`VisibleScope`] before it shows something and
//!   [`WebState::permit`] before it changes something;
//! - *one place decides*: both end in `authz`, which looks up who has claimed the repository.

use std::sync::Arc;

use axum::extract::{FromRequestParts, Request};
use axum::http::request::Parts;

use super::auth::WebUser;
use super::routes::GuardedRoutes;
use super::{WebError, WebState};
use crate::authz::Resource;
use crate::config::access::{AccessScope, WebAccount};
use crate::model::{Concern, OwnerId, OwnerName, RepoId};
use crate::store::{Owner, OwnerOverview};

/// Lets a limited account through only to the routes that admit such accounts.
pub(super) async fn check(routes: &GuardedRoutes, request: Request) -> Result<Request, WebError> {
    if routes.admits_limited(&request) {
        return Ok(request);
    }
    let (mut parts, body) = request.into_parts();
    let scope = VisibleScope::from_request_parts(&mut parts, &routes.web).await?;
    scope.require_access(&Resource::Server).await?;
    Ok(Request::from_parts(parts, body))
}

/// Data that the user of a request may see.
pub(crate) struct VisibleScope {
    web: Arc<WebState>,
    who: WebUser,
    /// Owners that the account is limited to. `None`: the whole server.
    owners: Option<Vec<OwnerName>>,
    /// Entry of the account in the file, if the account is limited.
    account: Option<WebAccount>,
    /// Verb phrase of the request for a refusal.
    verb: &'static str,
}

impl FromRequestParts<Arc<WebState>> for VisibleScope {
    type Rejection = WebError;

    async fn from_request_parts(parts: &mut Parts, web: &Arc<WebState>) -> Result<Self, WebError> {
        let who = WebUser::from_request_parts(parts, web).await?;
        let (owners, account) = match web.accounts.now().scope_of(&who.name) {
            AccessScope::Whole => (None, None),
            AccessScope::Limited(account) => (
                Some(account.owners.iter().cloned().collect()),
                Some(account.clone()),
            ),
            AccessScope::Unknown => (Some(Vec::new()), None),
        };
        let verb = if parts.method.is_safe() {
            "see this"
        } else {
            "do this"
        };
        Ok(Self {
            web: Arc::clone(web),
            who,
            owners,
            account,
            verb,
        })
    }
}

impl VisibleScope {
    /// Maximum number of owners on a page.
    pub const MOST_OWNERS: i64 = 2_000;

    /// Returns the owners that the account is limited to. `None`: the whole server.
    pub fn owners(&self) -> Option<&[OwnerName]> {
        self.owners.as_deref()
    }

    /// Returns true if the account is unchanged since the request came. Streams check it, because the account may be
    /// removed, get another password, or be limited to other owners meanwhile.
    pub async fn still_holds(&self) -> bool {
        if let Some((account, mark)) = self.who.account {
            let now = self.web.passwords.mark(account).await;
            if !matches!(now, Ok(Some(now)) if now == mark) {
                return false;
            }
        }
        match self.web.accounts.now().scope_of(&self.who.name) {
            AccessScope::Whole => self.owners.is_none(),
            AccessScope::Limited(account) => self.account.as_ref() == Some(account),
            AccessScope::Unknown => false,
        }
    }

    /// Fails if the account may not see the resource.
    pub async fn require_access(&self, on: &Resource<'_>) -> Result<(), WebError> {
        if self.owners.is_none() {
            return Ok(());
        }
        match self.web.authority.within(&self.who.name, on).await? {
            Ok(()) => Ok(()),
            Err(outside) => {
                tracing::info!(who = self.who.name, %on, "Refused access to data outside of the owners of the account");
                Err(WebError::outside(
                    &outside.message(&self.who.name, self.verb),
                ))
            }
        }
    }

    /// Returns the owners of a list: the requested one, or all that the account may see. `None`: the list is not
    /// limited.
    pub async fn narrowed(&self, asked: Option<&str>) -> Result<Option<Vec<Owner>>, WebError> {
        let asked = asked.map(str::trim).filter(|asked| !asked.is_empty());
        let names = match (asked, &self.owners) {
            (Some(asked), _) => {
                let name = OwnerName::new(asked).map_err(|_| WebError::no_such_owner(asked))?;
                self.require_access(&Resource::Owner(&name)).await?;
                let owner = self
                    .web
                    .store
                    .owner_get(&name)
                    .await?
                    .ok_or_else(|| WebError::no_such_owner(asked))?;
                return Ok(Some(vec![owner]));
            }
            (None, None) => return Ok(None),
            (None, Some(names)) => names,
        };
        let mut owners = Vec::new();
        for name in names {
            // An owner that was not added yet has no data.
            owners.extend(self.web.store.owner_get(name).await?);
        }
        Ok(Some(owners))
    }

    /// Returns the owners that the account may see.
    pub async fn owners_seen(&self) -> Result<Vec<OwnerOverview>, WebError> {
        Ok(match &self.owners {
            None => self.web.store.owner_overview(Self::MOST_OWNERS).await?,
            Some(names) => self.web.store.owner_overview_of(names).await?,
        })
    }

    /// Returns the names of the owners to which a list can be limited.
    pub async fn owners_to_choose(&self) -> Result<Vec<String>, WebError> {
        let owners = self.owners_seen().await?;
        let names = owners
            .iter()
            .map(|overview| overview.owner.name.to_string());
        Ok(names.collect())
    }

    /// Returns the repositories of a list, limited in the same way as [`Self::narrowed`].
    pub async fn repos(&self, asked: Option<&str>) -> Result<Option<Vec<RepoId>>, WebError> {
        let Some(owners) = self.narrowed(asked).await? else {
            return Ok(None);
        };
        Ok(Some(self.claimed(&owners).await?))
    }

    /// Returns the subjects of an event list, limited in the same way as [`Self::narrowed`]: the owners, and the
    /// repositories that they claim at this moment.
    pub async fn concerns(&self, asked: Option<&str>) -> Result<Option<Vec<Concern>>, WebError> {
        let Some(owners) = self.narrowed(asked).await? else {
            return Ok(None);
        };
        let repos = self.claimed(&owners).await?.into_iter().map(Concern::Repo);
        Ok(Some(
            owners
                .into_iter()
                .map(|owner| Concern::Owner(owner.name))
                .chain(repos)
                .collect(),
        ))
    }

    async fn claimed(&self, owners: &[Owner]) -> Result<Vec<RepoId>, WebError> {
        let mut repos = Vec::new();
        for owner in owners {
            repos.extend(self.web.store.claim_repos(owner.id).await?);
        }
        Ok(repos)
    }
}

/// Returns the filters with which a list is read, one query for each: every owner, or one query without a filter.
pub(crate) fn each(owners: Option<Vec<Owner>>) -> Vec<Option<OwnerId>> {
    owners.map_or_else(
        || vec![None],
        |owners| owners.into_iter().map(|owner| Some(owner.id)).collect(),
    )
}

/// Returns the first `most` of the rows that were read by [`each`], in one order. The rows after them are found again
/// when all are read from after the last of these.
pub(crate) fn first_of<T, K: Ord>(mut all: Vec<T>, most: i64, key: impl Fn(&T) -> K) -> Vec<T> {
    all.sort_by_key(key);
    all.truncate(usize::try_from(most).unwrap_or(usize::MAX));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_several_owners_go_on_where_the_first_part_ended() {
        let (net, dns) = ([1, 4, 6, 7], [2, 3, 5]);
        let part = |after: i32| {
            let of = |all: &[i32]| {
                all.iter()
                    .copied()
                    .filter(|n| *n > after)
                    .take(3)
                    .collect::<Vec<_>>()
            };
            first_of([of(&net), of(&dns)].concat(), 3, |n| *n)
        };
        assert_eq!(
            [part(0), part(3), part(6)],
            [vec![1, 2, 3], vec![4, 5, 6], vec![7]]
        );
    }
}
