//! `approve_policies [-d DIR] [-w WORKSPACE] [-p PROJECT] [--verbose] [--policy-set NAME] [--clear-policy-approval]`

use std::fmt;

use chrono::{DateTime, Utc};

use super::Command;
use super::flags::{Arguments, CommandFlag};
use super::mistake::CommandFault;
use super::printer::Printer;
use super::spec::{CommandName, GrammarRow, Operands, WordRules};
use super::target::{CommandTarget, DIR, PROJECT, VERBOSE, WORKSPACE};

static POLICY_SET: CommandFlag = CommandFlag {
    long: "policy-set",
    short: None,
    value: Some("NAME"),
    about: "Only the policy set of this name.",
};
static CLEAR: CommandFlag = CommandFlag {
    long: "clear-policy-approval",
    short: None,
    value: None,
    about: "Remove the existing approvals instead of adding one.",
};

/// The `approve_policies` command, which lets plans be applied although they violate policies.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ApprovePoliciesCommand {
    /// Projects whose policies are approved.
    pub target: CommandTarget,
    /// True if the reply carries the full log.
    pub verbose: bool,
    /// Name of the only policy set to approve, never empty; `None` means all of them.
    pub policy_set: Option<String>,
    /// True if the command withdraws approvals.
    pub clear: bool,
    /// Number of the author's account on the forge, if the forge named it. It is not a part of the text: a login can
    /// be given up and taken by somebody else, so an approval must not hang on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub person: Option<u64>,
    /// Time when the comment was written, if the forge named it. It is not a part of the text: the comment may be
    /// delivered later, after a plan that its author has not seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub written_at: Option<DateTime<Utc>>,
}

pub(super) static SPEC: GrammarRow = GrammarRow {
    name: CommandName::ApprovePolicies,
    about: "Approve plans that violate policies. Only owners of the policies can do this.",
    operands: Operands::None,
    flags: &[&DIR, &WORKSPACE, &PROJECT, &VERBOSE, &POLICY_SET, &CLEAR],
    extra: false,
    note: "",
    examples: &[],
    build,
};

fn build(arguments: &Arguments, rules: &WordRules<'_>) -> Result<Command, CommandFault> {
    Ok(Command::ApprovePolicies(ApprovePoliciesCommand {
        target: CommandTarget::read(arguments, rules)?,
        verbose: arguments.switch(&VERBOSE),
        policy_set: arguments.value(&POLICY_SET).map(|word| word.text.clone()),
        clear: arguments.switch(&CLEAR),
        person: None,
        written_at: None,
    }))
}

impl fmt::Display for ApprovePoliciesCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut printer = Printer::new(CommandName::ApprovePolicies);
        self.target.print(&mut printer);
        printer.switch(&VERBOSE, self.verbose);
        if let Some(name) = &self.policy_set {
            printer.value(&POLICY_SET, name);
        }
        printer.switch(&CLEAR, self.clear);
        printer.finish(f)
    }
}
