//! Reads what the steps of a workflow report about policies (`custom_policy_check`, reference 13.3).
//!
//! A step that names a set (`policy_set`) reports about it. The other `run` steps with an output belong to the other sets in
//! their order: the n-th step to the n-th set of the server that steps check, so that the order does not depend on the
//! project. A step whose set does not concern the project does not run. A set without a step, and a step without a set, are
//! errors: somebody would believe that something was checked.

use std::cmp::Ordering;
use std::collections::HashMap;

use lockkeeper_policy::findings::PolicyFinding;
use lockkeeper_policy::sets::{PolicyEngine, ReportFormat, SetName};
use lockkeeper_policy::{conftest, junit, plain, sarif};

use super::{DefinedSet, PolicyEvaluation};
use crate::config::workflow::{OutputFilter, RunStep, Step};
use crate::model::Sha256Digest;

/// Output of a step that evaluates a set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::workflow) struct StepReport {
    /// Standard output, and for [`ReportFormat::Text`] everything that was printed.
    pub raw: String,
    /// Digest of everything that was printed, if control characters were taken out of `raw`.
    pub unclean: Option<Sha256Digest>,
    /// The text after the filters that redact. Findings come from it.
    pub text: String,
    /// Text for comments, without what filters hide.
    pub shown: String,
    /// True if the command ended with exit code 0.
    pub succeeded: bool,
    /// True if the command printed more than was kept.
    pub is_cut: bool,
}

/// Purpose of a step in the stage `policy_check`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::workflow) enum StepRole {
    /// Runs as in any stage. If it fails, the stage fails.
    Plain,
    /// Reports about a set, in this format.
    Report(SetName, ReportFormat),
    /// Would report about a set that steps do not check in this project. It does not run.
    Skipped(SetName),
    /// Seems to report, but there is no set for it.
    Excess,
}

/// Purposes of the steps of a stage.
#[derive(Debug)]
pub(in crate::workflow) struct StepRoles {
    /// Purpose of each step.
    roles: Vec<StepRole>,
    /// Number of steps with an output that name no set.
    unnamed: usize,
    /// Sets that steps check, and that no step names.
    free: Vec<SetName>,
}

/// Returns the formats of the sets that steps check.
pub(in crate::workflow) fn formats(sets: &[DefinedSet]) -> HashMap<SetName, ReportFormat> {
    sets.iter()
        .filter_map(|(set, _)| match set.engine {
            PolicyEngine::Steps(format) => Some((set.name.clone(), format)),
            PolicyEngine::Conftest | PolicyEngine::Embedded => None,
        })
        .collect()
}

impl StepRoles {
    /// Decides about the steps of a stage. `all` are the sets of the server that steps check, in their order, and `concerned`
    /// those of them that concern the project.
    pub fn new(
        all: &[SetName],
        concerned: &HashMap<SetName, ReportFormat>,
        stage: &[Step],
    ) -> Self {
        let named: Vec<&SetName> = stage.iter().filter_map(Step::policy_set).collect();
        let free: Vec<SetName> = all
            .iter()
            .filter(|set| !named.contains(set))
            .cloned()
            .collect();
        let of_set = |set: &SetName| match concerned.get(set) {
            Some(format) => StepRole::Report(set.clone(), *format),
            None => StepRole::Skipped(set.clone()),
        };
        let (mut roles, mut unnamed) = (Vec::new(), 0);
        for step in stage {
            roles.push(match step {
                Step::Run(run) => match &run.policy_set {
                    Some(set) => of_set(set),
                    None if free.is_empty() || has_no_output(run) => StepRole::Plain,
                    None => {
                        unnamed += 1;
                        free.get(unnamed - 1).map_or(StepRole::Excess, of_set)
                    }
                },
                Step::Builtin { .. } | Step::Env(_) | Step::Multienv(_) => StepRole::Plain,
            });
        }
        Self {
            roles,
            unnamed,
            free,
        }
    }

    /// Returns the purpose of the step at a position, from 0.
    pub fn of(&self, at: usize) -> &StepRole {
        &self.roles[at]
    }

    /// Evaluates a set with the output of its step.
    pub fn evaluated(
        &self,
        set: &SetName,
        format: ReportFormat,
        report: Option<&StepReport>,
    ) -> PolicyEvaluation {
        match (self.problem(set), report) {
            (None, Some(report)) => PolicyEvaluation {
                found: findings(format, report),
                output: report.shown.clone(),
                tool: tool(format, &report.text),
            },
            (Some(why), _) => PolicyEvaluation::missing(why, ""),
            (None, None) => PolicyEvaluation::missing(
                "no step of the stage `policy_check` has reported about this set. Plan again",
                "",
            ),
        }
    }

    /// Returns the reason why no output is known to be about a set.
    fn problem(&self, set: &SetName) -> Option<String> {
        let is_of_set = |role: &&StepRole| matches!(role, StepRole::Report(of, _) if of == set);
        let own = self.roles.iter().filter(is_of_set).count();
        if own > 1 {
            return Some(
                "several steps of the stage `policy_check` name this set. An administrator must join them".to_owned(),
            );
        }
        if own == 1 && !self.free.contains(set) {
            return None;
        }
        let counts = format!(
            "the stage `policy_check` has {} with an output for {}",
            counted(self.unnamed, "`run` step"),
            counted(self.free.len(), "policy set")
        );
        let order = self.unnamed.cmp(&self.free.len());
        match (order, own) {
            (Ordering::Greater, _) => Some(format!(
                "{counts}, so it is unclear which of them checks this set. An administrator must name the set in its step \
                 (`policy_set: {set}`), or write `output: hide` for each step that checks nothing"
            )),
            (Ordering::Less | Ordering::Equal, 0) => Some(format!(
                "{counts}, so none of them checks this set. An administrator must add a step for it, or name the set in its \
                 step (`policy_set: {set}`)"
            )),
            (Ordering::Less | Ordering::Equal, _) => None,
        }
    }
}

/// Returns true for a step whose output is hidden, such as one that only prepares a file for others.
fn has_no_output(step: &RunStep) -> bool {
    step.output
        .iter()
        .any(|filter| matches!(filter, OutputFilter::Hide))
}

fn counted(count: usize, noun: &str) -> String {
    let end = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{end}")
}

/// Reads the findings of a report. Texts that filters make equal stay different findings, because approvals cover findings.
fn findings(format: ReportFormat, report: &StepReport) -> Result<Vec<PolicyFinding>, String> {
    let StepReport {
        raw,
        unclean,
        text,
        succeeded,
        ..
    } = report;
    if report.is_cut {
        return Err(
            "the step printed more than is kept, and a failure may be in the rest. Let the step print less, then plan again"
                .to_owned(),
        );
    }
    let read = |text: &str| {
        let read = match format {
            ReportFormat::Text => plain::read(text, *succeeded),
            ReportFormat::Conftest => conftest::read(text),
            ReportFormat::Sarif => sarif::read(text),
            ReportFormat::Junit => junit::read(text),
        };
        read.map_err(|error| {
            format!(
                "the output of the step cannot be used: {error}. Correct the step, then plan again"
            )
        })
    };
    let mut found = read(text)?;
    if raw != text {
        let before = read(raw)?;
        if violations(&before) != violations(&found) {
            return Err(
                "the filters of the step (`output`) change the number of its violations. An administrator must correct them"
                    .to_owned(),
            );
        }
        let before = before.iter().filter(|finding| finding.is_violation());
        let after = found.iter_mut().filter(|finding| finding.is_violation());
        for (finding, before) in after.zip(before) {
            let before = before.identity();
            if before != finding.identity() {
                finding.tell_apart(&before);
            }
        }
    }
    if let Some(digest) = unclean {
        for finding in &mut found {
            finding.tell_apart(digest.as_str());
        }
    }
    if !succeeded && !found.iter().any(PolicyFinding::is_violation) {
        return Err(
            "the step failed, but its report has no violation. Look at the page of the run, and correct the step"
                .to_owned(),
        );
    }
    Ok(found)
}

/// Returns the programs that a report names.
fn tool(format: ReportFormat, text: &str) -> Option<String> {
    match format {
        ReportFormat::Sarif => sarif::tools(text),
        ReportFormat::Text | ReportFormat::Conftest | ReportFormat::Junit => None,
    }
}

fn violations(findings: &[PolicyFinding]) -> usize {
    findings
        .iter()
        .filter(|finding| finding.is_violation())
        .count()
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;
    use crate::config::workflow::{Builtin, Shell};

    fn name(text: &str) -> SetName {
        SetName::parse(text).unwrap()
    }

    fn names(text: &str) -> Vec<SetName> {
        text.split_whitespace().map(name).collect()
    }

    fn report(text: &str, succeeded: bool) -> StepReport {
        StepReport {
            raw: text.to_owned(),
            unclean: None,
            text: text.to_owned(),
            shown: text.to_owned(),
            succeeded,
            is_cut: false,
        }
    }

    /// Returns `run` steps: `-` names no set, `hide` has no output, and any other word is the name of a set.
    fn stage(text: &str) -> Vec<Step> {
        let run = |word: &str| {
            Step::Run(RunStep {
                command: "x".to_owned(),
                shell: Shell::default(),
                output: if word == "hide" {
                    vec![OutputFilter::Hide]
                } else {
                    Vec::new()
                },
                policy_set: (!matches!(word, "-" | "hide")).then(|| name(word)),
            })
        };
        text.split_whitespace().map(run).collect()
    }

    fn roles(all: &str, concerned: &str, steps: &str) -> StepRoles {
        let concerned = names(concerned);
        let concerned = concerned.into_iter().map(|set| (set, ReportFormat::Text));
        StepRoles::new(&names(all), &concerned.collect(), &stage(steps))
    }

    #[test]
    fn a_step_belongs_to_the_set_that_it_names_or_to_the_next_one_of_the_server() {
        let mut told = String::new();
        for (all, concerned, steps) in [
            ("a b", "a b", "- -"),
            ("a b", "b", "- -"),
            ("a b", "b", "b"),
            ("a b", "a b", "b -"),
            ("a b", "a b", "- a"),
            ("a b", "a", "b a"),
            ("a b", "a b", "hide - hide -"),
            ("a", "a", "a -"),
            ("a", "a", "- -"),
            ("a", "", "- -"),
            ("", "", "- a"),
        ] {
            let roles = roles(all, concerned, steps);
            let of_steps: Vec<String> = roles
                .roles
                .iter()
                .map(|role| match role {
                    StepRole::Plain => "plain".to_owned(),
                    StepRole::Report(set, _) => format!("for {set}"),
                    StepRole::Skipped(set) => format!("not for {set}"),
                    StepRole::Excess => "excess".to_owned(),
                })
                .collect();
            let of_steps = of_steps.join(", ");
            writeln!(told, "{all} | {concerned} | {steps} => {of_steps}").unwrap();
        }
        insta::assert_snapshot!(told, @"
        a b | a b | - - => for a, for b
        a b | b | - - => not for a, for b
        a b | b | b => for b
        a b | a b | b - => for b, for a
        a b | a b | - a => for b, for a
        a b | a | b a => not for b, for a
        a b | a b | hide - hide - => plain, for a, plain, for b
        a | a | a - => for a, plain
        a | a | - - => for a, excess
        a |  | - - => not for a, excess
         |  | - a => plain, not for a
        ");
        let builtin = [Step::Builtin {
            step: Builtin::Show,
            extra_args: Vec::new(),
        }];
        let of_builtin = StepRoles::new(&names("a"), &HashMap::new(), &builtin);
        assert_eq!(of_builtin.of(0), &StepRole::Plain);
    }

    #[test]
    fn each_set_needs_its_own_output() {
        let fine = report("1 test, 1 passed", true);
        let mut told = String::new();
        for (all, steps, set) in [
            ("a b", "- -", "a"),
            ("a b", "- -", "b"),
            ("a b", "-", "a"),
            ("a b", "-", "b"),
            ("a", "- -", "a"),
            ("a b", "- - -", "b"),
            ("a b", "b", "a"),
            ("a b", "b - -", "b"),
            ("a b", "b b", "b"),
            ("a", "hide", "a"),
        ] {
            let found =
                roles(all, all, steps).evaluated(&name(set), ReportFormat::Text, Some(&fine));
            let found = found
                .found
                .map_or_else(|why| why, |_| "evaluated".to_owned());
            writeln!(told, "{all} | {steps} | {set} => {found}").unwrap();
        }
        insta::assert_snapshot!(told, @"
        a b | - - | a => evaluated
        a b | - - | b => evaluated
        a b | - | a => evaluated
        a b | - | b => the stage `policy_check` has 1 `run` step with an output for 2 policy sets, so none of them checks this set. An administrator must add a step for it, or name the set in its step (`policy_set: b`)
        a | - - | a => the stage `policy_check` has 2 `run` steps with an output for 1 policy set, so it is unclear which of them checks this set. An administrator must name the set in its step (`policy_set: a`), or write `output: hide` for each step that checks nothing
        a b | - - - | b => the stage `policy_check` has 3 `run` steps with an output for 2 policy sets, so it is unclear which of them checks this set. An administrator must name the set in its step (`policy_set: b`), or write `output: hide` for each step that checks nothing
        a b | b | a => the stage `policy_check` has 0 `run` steps with an output for 1 policy set, so none of them checks this set. An administrator must add a step for it, or name the set in its step (`policy_set: a`)
        a b | b - - | b => evaluated
        a b | b b | b => several steps of the stage `policy_check` name this set. An administrator must join them
        a | hide | a => the stage `policy_check` has 0 `run` steps with an output for 1 policy set, so none of them checks this set. An administrator must add a step for it, or name the set in its step (`policy_set: a`)
        ");
        let silent = roles("a", "a", "-").evaluated(&name("a"), ReportFormat::Text, None);
        assert!(silent.found.is_err());
    }

    #[test]
    fn a_report_in_sarif_names_its_tool() {
        let text = r#"{"version": "2.1.0", "runs": [{"tool": {"driver": {"name": "t", "version": "1.2"}}, "results": []}]}"#;
        let report = report(text, true);
        for (format, expected) in [
            (ReportFormat::Sarif, Some("t 1.2")),
            (ReportFormat::Text, None),
        ] {
            let evaluated = roles("a", "a", "-").evaluated(&name("a"), format, Some(&report));
            assert_eq!(evaluated.found, Ok(Vec::new()));
            assert_eq!(evaluated.tool.as_deref(), expected);
        }
    }

    #[test]
    fn a_failed_step_needs_a_violation_in_its_report() {
        let passed = r#"[{"filename": "p", "namespace": "main", "successes": 1}]"#;
        let failed = r#"[{"filename": "p", "namespace": "main", "successes": 0, "failures": [{"msg": "public"}]}]"#;
        for (text, succeeded, expected) in [
            (passed, true, Some(0)),
            (passed, false, None),
            (failed, false, Some(1)),
            (failed, true, Some(1)),
            ("", true, None),
            ("", false, None),
            ("checkov: command not found", false, None),
        ] {
            let found = findings(ReportFormat::Conftest, &report(text, succeeded));
            let count = found.ok().map(|found| violations(&found));
            assert_eq!(count, expected, "{text} {succeeded}");
        }
    }

    #[test]
    fn a_report_that_was_cut_or_loses_violations_to_filters_is_not_used() {
        let fine = report("1 test, 1 passed", true);
        assert!(findings(ReportFormat::Text, &fine).is_ok());
        let cut = StepReport {
            is_cut: true,
            ..fine.clone()
        };
        let error = findings(ReportFormat::Text, &cut).unwrap_err();
        assert!(error.contains("more than is kept"), "{error}");
        let filtered = |raw: &str, text: &str| StepReport {
            raw: raw.to_owned(),
            ..report(text, true)
        };
        let lost = filtered("FAIL - bucket is public", "<redacted> - bucket is public");
        let error = findings(ReportFormat::Text, &lost).unwrap_err();
        assert!(error.contains("the filters of the step"), "{error}");
        let redacted = filtered("FAIL - password=x", "FAIL - password=<redacted>");
        let found = findings(ReportFormat::Text, &redacted).unwrap();
        assert_eq!(violations(&found), 1);
        assert_eq!(
            found[0].evidence.as_deref(),
            Some("FAIL - password=<redacted>")
        );
    }

    #[test]
    fn violations_that_filters_make_equal_are_different() {
        let of = |raw: &str, unclean: &str| {
            let report = StepReport {
                raw: raw.to_owned(),
                unclean: (unclean != raw).then(|| Sha256Digest::of(unclean.as_bytes())),
                ..report("FAIL - user <redacted>", true)
            };
            let found = findings(ReportFormat::Text, &report).unwrap();
            found[0].identity()
        };
        let plain = of("FAIL - user <redacted>", "FAIL - user <redacted>");
        let bob = of("FAIL - user bob", "FAIL - user bob");
        let mallory = of("FAIL - user mallory", "FAIL - user mallory");
        let red = of("FAIL - user bob", "FAIL - user \u{1b}[31mbob");
        let all = [&plain, &bob, &mallory, &red];
        for (n, one) in all.iter().enumerate() {
            assert!(!all[..n].contains(one), "{n}");
        }
        assert_eq!(bob, of("FAIL - user bob", "FAIL - user bob"));
        // In a report with several findings, each has its own text.
        let log = |one: &str, other: &str| {
            format!(
                r#"[{{"namespace": "main", "successes": 0, "failures": [{{"msg": "{one}"}}, {{"msg": "{other}"}}]}}]"#
            )
        };
        let of = |raw: &str| {
            let report = StepReport {
                raw: raw.to_owned(),
                ..report(&log("x", "same"), true)
            };
            let found = findings(ReportFormat::Conftest, &report).unwrap();
            [found[0].identity(), found[1].identity()]
        };
        let (one, other) = (of(&log("a", "same")), of(&log("b", "same")));
        assert_ne!(one[0], other[0]);
        assert_eq!(one[1], other[1]);
    }
}
