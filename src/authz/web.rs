//! Decides for the pages and the API: `--web-allow`, and the accounts of `--web-accounts-file`.

use super::{AuthzError, Decision, Denial, Resource, owners};
use crate::config::access::{AccessScope, Action, Identity, WebAccounts, WebRules};
use crate::model::code_span;
use crate::store::Store;

/// Decides by three rules: the use of the pages at all, the permissions of the account, and the owners that the
/// account is limited to.
pub async fn by_web(
    store: &Store,
    rules: &WebRules,
    accounts: &WebAccounts,
    who: &Identity,
    action: Action,
    on: &Resource<'_>,
) -> Result<Decision, AuthzError> {
    if let Some(denial) = by_rules(rules, accounts, who, action) {
        return Ok(Decision::Denied(Box::new(denial)));
    }
    Ok(
        match owners::within(store, accounts, who.name(), on).await? {
            Ok(()) => Decision::Granted,
            Err(outside) => outside.denial(who, action),
        },
    )
}

/// Returns whether the account may do an action with any resource at all. Pages show their buttons by it.
pub fn offers(rules: &WebRules, accounts: &WebAccounts, name: &str, action: Action) -> bool {
    let own = match accounts.scope_of(name) {
        AccessScope::Whole => true,
        AccessScope::Limited(account) => account.may(action),
        AccessScope::Unknown => false,
    };
    own && rules.allows(action)
}

fn by_rules(
    rules: &WebRules,
    accounts: &WebAccounts,
    who: &Identity,
    action: Action,
) -> Option<Denial> {
    let denial = |rule: String, who_can: String| Denial {
        who: who.clone(),
        action,
        rule,
        actual: format!("`{action}` is not allowed"),
        who_can: vec![who_can],
    };
    if rules.is_anonymous() && !rules.allows(action) {
        let way_out = "An administrator can set --web-basic-auth and LOCKKEEPER_WEB_PASSWORD. Signed-in users can \
                       then do it.";
        return Some(denial(
            "the pages of this server have no sign-in, so they are read-only".to_owned(),
            way_out.to_owned(),
        ));
    }
    if !rules.allows(action) {
        return Some(denial(
            format!("the pages and the API of this server are limited by `--web-allow={rules}`"),
            if action.is_in_all() {
                format!("An administrator can add `{action}` to the list.")
            } else {
                format!(
                    "An administrator can add `{action}` to the list: `all` does not include it."
                )
            },
        ));
    }
    let AccessScope::Limited(account) = accounts.scope_of(who.name()) else {
        return None;
    };
    if account.may(action) {
        return None;
    }
    let name = code_span(&account.name);
    Some(denial(
        account.allow.as_ref().map_or_else(
            || format!("the line of {name} in --web-accounts-file has no `allow=`, so the account is read-only"),
            |own| format!("{name} is limited by `allow={own}`"),
        ),
        format!("An administrator can add `{action}` to its line in --web-accounts-file."),
    ))
}
