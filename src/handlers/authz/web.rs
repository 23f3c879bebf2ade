//! The pages and the API: `--web-allow`.

use super::{Decision, Denial};
use crate::config::access::{Action, Identity, WebRules};

/// What the list says. There is one account for all who use the pages, so nobody has to be asked.
pub fn by_rules(rules: &WebRules, who: &Identity, action: Action) -> Decision {
    if rules.allows(action) {
        return Decision::Granted;
    }
    Decision::Denied(Box::new(Denial {
        who: who.clone(),
        action,
        rule: format!("`--web-allow={rules}` is what the pages and the API of this server may be used for"),
        actual: format!("`{action}` is not among it"),
        who_can: vec![format!("Whoever operates the server can add `{action}` to the list.")],
    }))
}
