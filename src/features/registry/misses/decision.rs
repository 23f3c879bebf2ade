//! Decides what happens when a version of a name is missing, and says why.

use lockkeeper_registry::names::{NameKind, RegistryName};

use crate::config::server::{MissRules, OnMiss};

/// Facts about a name that decide who may have versions of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::features::registry) struct MissFacts<'a> {
    /// Prefix of the namespace that has the name, or has it in other case ([`covers_in_any_case`]).
    pub namespace: Option<&'a str>,
    /// True if records of a deployment that has joined count for the name.
    pub is_of_peers: bool,
}

/// Decision about a name, and the reason for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::features::registry) struct MissDecision {
    /// Behaviour for versions that are missing.
    pub action: OnMiss,
    /// Reason for the behaviour.
    pub reason: MissReason,
}

/// Reason for a decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::features::registry) enum MissReason {
    /// The name is in the namespace with this prefix, or differs only in case from names in it. Only its owner publishes
    /// there.
    Namespace(String),
    /// A rule of the operator matches. The text is the rule.
    Rule(String),
    /// No rule matches, so the default for the kind counts.
    Default,
}

/// Decides about a name. Nothing from elsewhere stands in for a name in a namespace (R6), but its owner may publish at another
/// deployment.
pub(in crate::features::registry) fn decide(
    name: &RegistryName,
    facts: MissFacts<'_>,
    rules: &MissRules,
) -> MissDecision {
    let action = rules.action_for(name);
    let may_fetch = matches!(action, OnMiss::Background | OnMiss::Wait);
    if let Some(prefix) = facts.namespace
        && !(facts.is_of_peers && may_fetch)
    {
        return MissDecision {
            action: OnMiss::Never,
            reason: MissReason::Namespace(prefix.to_owned()),
        };
    }
    MissDecision {
        action,
        reason: match rules.rule_for(name) {
            Some(rule) => MissReason::Rule(rule.to_string()),
            None => MissReason::Default,
        },
    }
}

/// Returns true if a namespace has the name, or has it in other case. Hosts of repositories often take both for one, so
/// the other spelling could pass for the name.
pub(in crate::features::registry) fn covers_in_any_case(
    (kind, prefix): (NameKind, &str),
    name: &RegistryName,
) -> bool {
    let text = name.as_str();
    kind == name.kind()
        && text
            .get(..prefix.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(prefix))
        && matches!(text.as_bytes().get(prefix.len()), None | Some(b'/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_comes_before_rules_and_a_rule_before_the_default() {
        let prefix = "github.com/Acme";
        let rules = MissRules::new(vec![
            "go github.com/acme/...=wait".parse().unwrap(),
            "go example.com/...=refuse".parse().unwrap(),
        ]);
        let decide = |name: &str, is_of_peers| {
            let name = name.parse().unwrap();
            let is_covered = covers_in_any_case((NameKind::Go, prefix), &name);
            let facts = MissFacts {
                namespace: is_covered.then_some(prefix),
                is_of_peers,
            };
            decide(&name, facts, &rules)
        };
        let of_namespace = MissDecision {
            action: OnMiss::Never,
            reason: MissReason::Namespace(prefix.to_owned()),
        };
        for name in [
            "go github.com/Acme/net",
            "go github.com/acme/net",
            "go github.com/acme",
        ] {
            assert_eq!(decide(name, false), of_namespace, "{name}");
        }
        let by_rule = |action, rule: &str| MissDecision {
            action,
            reason: MissReason::Rule(rule.to_owned()),
        };
        // The owner publishes it at another deployment.
        assert_eq!(
            decide("go github.com/acme/net", true),
            by_rule(OnMiss::Wait, "go github.com/acme/...=wait")
        );
        assert_eq!(
            decide("go example.com/net", false),
            by_rule(OnMiss::Refuse, "go example.com/...=refuse")
        );
        for (name, action) in [
            ("go github.com/acmeother/net", OnMiss::Background),
            ("module acme/vpc/aws", OnMiss::Wait),
        ] {
            let reason = MissReason::Default;
            assert_eq!(
                decide(name, false),
                MissDecision { action, reason },
                "{name}"
            );
        }
    }
}
