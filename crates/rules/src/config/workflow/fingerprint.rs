//! Identifies a workflow by a digest. A plan stores the digest of its workflow, so that no other workflow applies it
//! (P5).

use super::{EnvValue, OutputFilter, Shell, Stage, Step, Workflow};
use crate::model::Sha256Digest;

impl Workflow {
    /// Returns a digest of the steps of plan, apply and policy check. The name and the other stages are not part of it.
    /// Every version of Lockkeeper must compute the same digest, so its input contains no text that is made for people
    /// or for programs.
    ///
    /// The steps of the policy check produce the verdicts of a plan, so a verdict of other steps is stale. They count only if
    /// the plan is checked (`is_checked`), and the built-in ones never: plans of versions without policy checks stay valid.
    pub fn fingerprint(&self, is_checked: bool) -> Sha256Digest {
        let mut text = String::new();
        for (name, stage) in [("plan", &self.plan), ("apply", &self.apply)] {
            add(&mut text, &["stage", name]);
            add_stage(&mut text, stage);
        }
        if is_checked && self.policy_check != Self::builtin().policy_check {
            add(&mut text, &["stage", "policy_check"]);
            add_stage(&mut text, &self.policy_check);
        }
        Sha256Digest::of(text.as_bytes())
    }
}

fn add_stage(text: &mut String, stage: &Stage) {
    for step in &*stage.steps {
        match step {
            Step::Builtin { step, extra_args } => {
                add(text, &["builtin", step.as_str()]);
                for argument in extra_args {
                    add(text, &["argument", argument]);
                }
            }
            Step::Run(step) => {
                add_command(text, "run", &step.command, &step.shell);
                for filter in &step.output {
                    add_filter(text, filter);
                }
                if let Some(set) = &step.policy_set {
                    add(text, &["policy_set", set.as_str()]);
                }
            }
            Step::Env(step) => match &step.value {
                EnvValue::Literal(value) => add(text, &["env", &step.name, value]),
                EnvValue::Printed { command, shell } => {
                    add(text, &["env", &step.name]);
                    add_command(text, "printed", command, shell);
                }
            },
            Step::Multienv(step) => {
                add_command(text, "multienv", &step.command, &step.shell);
                add(text, &["shown", if step.is_shown { "yes" } else { "no" }]);
            }
        }
    }
}

fn add_command(text: &mut String, what: &str, command: &str, shell: &Shell) {
    add(text, &[what, command, &shell.program]);
    for argument in &shell.args {
        add(text, &["argument", argument]);
    }
}

fn add_filter(text: &mut String, filter: &OutputFilter) {
    match filter {
        OutputFilter::Hide => add(text, &["filter", "hide"]),
        OutputFilter::StripRefreshing => add(text, &["filter", "strip_refreshing"]),
        OutputFilter::Redact(pattern) => add(text, &["filter", "redact", pattern.as_str()]),
    }
}

/// Adds the words with their lengths, so that no two lists of words give the same text.
fn add(text: &mut String, words: &[&str]) {
    for word in words {
        text.push_str(&word.len().to_string());
        text.push(':');
        text.push_str(word);
        text.push(';');
    }
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use regex::Regex;

    use super::super::{Builtin, EnvStep, MultienvStep, RunStep, WorkflowOrigin};
    use super::*;

    fn of_plan(steps: Vec<Step>) -> Workflow {
        Workflow {
            plan: Stage {
                steps: steps.into(),
            },
            ..Workflow::clone(&Workflow::builtin())
        }
    }

    fn run(command: &str, output: Vec<OutputFilter>) -> Step {
        Step::Run(RunStep {
            command: command.to_owned(),
            shell: Shell::default(),
            output,
            policy_set: None,
        })
    }

    #[test]
    fn workflows_that_do_different_things_differ() {
        let bash = Shell {
            program: "bash".to_owned(),
            args: vec!["-c".to_owned()],
        };
        let env = |name: &str, value| {
            Step::Env(EnvStep {
                name: name.to_owned(),
                value,
            })
        };
        let literal = |value: &str| EnvValue::Literal(value.to_owned());
        let init = |extra: &[&str]| Step::Builtin {
            step: Builtin::Init,
            extra_args: extra.iter().map(|&argument| argument.to_owned()).collect(),
        };
        let multienv = |is_shown| MultienvStep {
            command: "a".to_owned(),
            shell: Shell::default(),
            is_shown,
        };
        let mut all = vec![
            of_plan(vec![]),
            of_plan(vec![init(&[])]),
            of_plan(vec![init(&["a"])]),
            of_plan(vec![init(&["a", "b"])]),
            of_plan(vec![init(&["a b"])]),
            of_plan(vec![run("a", vec![])]),
            of_plan(vec![run("a", vec![]), run("a", vec![])]),
            of_plan(vec![run("a\n", vec![])]),
            of_plan(vec![run("a", vec![OutputFilter::Hide])]),
            of_plan(vec![run("a", vec![OutputFilter::StripRefreshing])]),
            of_plan(vec![run(
                "a",
                vec![OutputFilter::Redact(Regex::new("a").unwrap())],
            )]),
            of_plan(vec![Step::Run(RunStep {
                command: "a".to_owned(),
                shell: bash,
                output: vec![],
                policy_set: None,
            })]),
            of_plan(vec![Step::Run(RunStep {
                command: "a".to_owned(),
                shell: Shell::default(),
                output: vec![],
                policy_set: Some("a".parse().unwrap()),
            })]),
            of_plan(vec![env("A", literal("b"))]),
            of_plan(vec![env("Ab", literal(""))]),
            of_plan(vec![env(
                "A",
                EnvValue::Printed {
                    command: "b".to_owned(),
                    shell: Shell::default(),
                },
            )]),
            of_plan(vec![Step::Multienv(multienv(true))]),
            of_plan(vec![Step::Multienv(multienv(false))]),
        ];
        all.push(Workflow {
            apply: Stage::default(),
            ..Workflow::clone(&Workflow::builtin())
        });
        for steps in [vec![], vec![run("a", vec![])]] {
            all.push(Workflow {
                policy_check: Stage {
                    steps: steps.into(),
                },
                ..Workflow::clone(&Workflow::builtin())
            });
        }
        let prints: BTreeSet<String> = all
            .iter()
            .map(|workflow| workflow.fingerprint(true).to_string())
            .collect();
        assert_eq!(prints.len(), all.len());
    }

    #[test]
    fn the_name_and_the_stages_without_plans_make_no_difference() {
        let builtin = Workflow::builtin();
        let other = Workflow {
            name: "other".to_owned(),
            origin: WorkflowOrigin::Repository,
            import: Stage::default(),
            state_rm: Stage::default(),
            ..Workflow::clone(&builtin)
        };
        let other = Arc::new(other);
        for is_checked in [true, false] {
            let print = builtin.fingerprint(is_checked);
            assert_eq!(other.fingerprint(is_checked), print);
        }
        let with_check = Workflow {
            policy_check: Stage::default(),
            ..Workflow::clone(&builtin)
        };
        assert_eq!(with_check.fingerprint(false), builtin.fingerprint(false));
        assert_ne!(with_check.fingerprint(true), builtin.fingerprint(true));
    }

    #[test]
    fn the_built_in_workflow_is_known_again_by_the_next_version() {
        insta::assert_snapshot!(
            Workflow::builtin().fingerprint(true),
            @"112258d5e0ddd0a44d7da1ec26a2d17620721c7f99b7f2558e0590f24d65f7db"
        );
    }
}
