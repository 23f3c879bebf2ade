//! Workflows: the steps of a plan, an apply or an import (reference 6).
//!
//! The administrator defines workflows. A repository can define its own if the administrator allows that. No text of
//! a pull is ever inserted into a workflow.

mod fingerprint;
mod keys;
mod output;
mod reader;
mod step;

use std::sync::{Arc, LazyLock};

use lockkeeper_policy::sets::SetName;
use regex::Regex;

use crate::model::text_enum;

pub(super) use keys::{SHELL, SHELL_ARGS, WorkflowMapping};
pub(super) use reader::{FileVersion, PolicyStage, read_workflows};
pub(super) use step::{read_command, read_set_name, read_shell};

/// The steps of every stage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Workflow {
    /// Name that projects use for the workflow.
    pub name: String,
    /// File that defines the workflow.
    pub origin: WorkflowOrigin,
    /// Stage that makes a plan.
    pub plan: Stage,
    /// Stage that applies a plan.
    pub apply: Stage,
    /// Stage that checks a plan against policies, after the stage `plan` of the same run.
    pub policy_check: Stage,
    /// Stage that imports an existing resource into the state.
    pub import: Stage,
    /// Stage that removes a resource from the state.
    pub state_rm: Stage,
}

/// File that defines a workflow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkflowOrigin {
    /// The file of the server, or this program.
    Server,
    /// The file of a repository, which a pull request can change.
    Repository,
}

/// The steps of one stage, in order. A stage without steps does nothing and succeeds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stage {
    pub steps: Arc<[Step]>,
}

/// One step of a stage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// A step that is built into Lockkeeper.
    Builtin {
        /// Command or action of the step.
        step: Builtin,
        /// Arguments of the configuration; `$VAR` and `${VAR}` in them are replaced.
        extra_args: Vec<String>,
    },
    /// A command of the workflow's author.
    Run(RunStep),
    /// A variable for the following steps.
    Env(EnvStep),
    /// Variables for the following steps, printed by a command.
    Multienv(MultienvStep),
}

text_enum! {
    /// Steps that are built into Lockkeeper.
    pub enum Builtin {
        /// `init`.
        Init = "init",
        /// `plan` into the plan file.
        Plan = "plan",
        /// `show` of the plan file as JSON.
        Show = "show",
        /// A check of that JSON against policies.
        PolicyCheck = "policy_check",
        /// `apply` of the plan file.
        Apply = "apply",
        /// `import`.
        Import = "import",
        /// `state rm`.
        StateRm = "state_rm",
    }
}

/// A program that runs a command: the program, its arguments, then the command as the last argument.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shell {
    /// The program, found on the `PATH`.
    pub program: String,
    /// Arguments before the command.
    pub args: Vec<String>,
}

impl Default for Shell {
    fn default() -> Self {
        Self {
            program: "sh".to_owned(),
            args: vec!["-c".to_owned()],
        }
    }
}

/// A `run` step: a command of the workflow's author.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunStep {
    /// Source for the shell.
    pub command: String,
    /// Program that runs the command, with its arguments.
    pub shell: Shell,
    /// Filters for the output before it becomes part of a comment, in order. The page of the run shows the full
    /// output.
    pub output: Vec<OutputFilter>,
    /// Policy set that the output is about. Only steps of the stage `policy_check` have one.
    pub policy_set: Option<SetName>,
}

/// An `env` step: one variable for the following steps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnvStep {
    /// Name of the variable.
    pub name: String,
    /// Value of the variable.
    pub value: EnvValue,
}

/// Source of the value of a variable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EnvValue {
    /// A value of the configuration.
    Literal(String),
    /// Output of a command, without the line break at its end.
    Printed {
        /// Source for the shell.
        command: String,
        /// Program that runs the command, with its arguments.
        shell: Shell,
    },
}

/// A `multienv` step: variables that a command prints.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MultienvStep {
    /// Source for the shell; the command prints `NAME=value,…`.
    pub command: String,
    /// Program that runs the command, with its arguments.
    pub shell: Shell,
    /// True if the comment names the variables.
    pub is_shown: bool,
}

/// A filter for the output of a step before it becomes part of a comment (reference 6.3).
#[derive(Debug, Clone)]
pub enum OutputFilter {
    /// Hides the whole output, unless the step fails.
    Hide,
    /// Hides everything up to the last line about refreshing, like the built-in `plan`.
    StripRefreshing,
    /// Replaces each match by its first group, `<redacted>`, and its second group.
    Redact(Regex),
}

impl PartialEq for OutputFilter {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Hide, Self::Hide) | (Self::StripRefreshing, Self::StripRefreshing) => true,
            (Self::Redact(one), Self::Redact(two)) => one.as_str() == two.as_str(),
            (Self::Hide | Self::StripRefreshing | Self::Redact(_), _) => false,
        }
    }
}

impl Eq for OutputFilter {}

impl Workflow {
    /// Name of the workflow of a project that chooses none.
    pub const DEFAULT: &str = "default";

    /// Returns the workflow that is in effect if nobody defines `default` (reference 6.1).
    pub fn builtin() -> Arc<Self> {
        Arc::clone(&BUILTIN)
    }

    /// Returns true if parts of the output of plan, policy check and apply must appear on pages only, never in a
    /// comment.
    pub fn keeps_output_private(&self) -> bool {
        [&self.plan, &self.policy_check, &self.apply]
            .into_iter()
            .any(Stage::keeps_output_private)
    }

    /// Returns true if the built-in `apply` is a step of the apply stage, so that a plan file is required.
    pub fn applies_plan_file(&self) -> bool {
        self.apply.steps.iter().any(|step| {
            matches!(
                step,
                Step::Builtin {
                    step: Builtin::Apply,
                    ..
                }
            )
        })
    }

    /// Returns the unexpanded commands and arguments of all stages.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        let stages = [
            &self.plan,
            &self.apply,
            &self.policy_check,
            &self.import,
            &self.state_rm,
        ];
        stages
            .into_iter()
            .flat_map(|stage| &*stage.steps)
            .flat_map(Step::texts)
    }

    /// Returns true if plan, policy check or apply run a command of the workflow's author.
    pub fn runs_commands(&self) -> bool {
        let is_command = |step: &Step| match step {
            Step::Run(_) | Step::Multienv(_) => true,
            Step::Env(env) => matches!(env.value, EnvValue::Printed { .. }),
            Step::Builtin { .. } => false,
        };
        [&self.plan, &self.policy_check, &self.apply]
            .into_iter()
            .flat_map(|stage| &*stage.steps)
            .any(is_command)
    }
}

impl Step {
    /// Returns the policy set that the step names.
    pub fn policy_set(&self) -> Option<&SetName> {
        match self {
            Self::Run(step) => step.policy_set.as_ref(),
            Self::Builtin { .. } | Self::Env(_) | Self::Multienv(_) => None,
        }
    }

    fn texts(&self) -> Vec<&str> {
        match self {
            Self::Builtin { extra_args, .. } => extra_args.iter().map(String::as_str).collect(),
            Self::Run(RunStep { command, .. }) | Self::Multienv(MultienvStep { command, .. }) => {
                vec![command]
            }
            Self::Env(EnvStep {
                value: EnvValue::Literal(text) | EnvValue::Printed { command: text, .. },
                ..
            }) => {
                vec![text]
            }
        }
    }
}

impl Stage {
    /// Creates a stage of built-in steps without further arguments.
    pub fn of(steps: &[Builtin]) -> Self {
        let step = |step: &Builtin| Step::Builtin {
            step: *step,
            extra_args: Vec::new(),
        };
        Self {
            steps: steps.iter().map(step).collect(),
        }
    }

    /// Returns the policy sets that steps name.
    pub fn policy_sets(&self) -> impl Iterator<Item = &SetName> {
        self.steps.iter().filter_map(Step::policy_set)
    }

    /// Returns true if parts of the stage's output must appear on pages only, never in a comment.
    pub fn keeps_output_private(&self) -> bool {
        let is_private =
            |filter: &OutputFilter| matches!(filter, OutputFilter::Hide | OutputFilter::Redact(_));
        self.steps
            .iter()
            .any(|step| matches!(step, Step::Run(step) if step.output.iter().any(is_private)))
    }
}

static BUILTIN: LazyLock<Arc<Workflow>> = LazyLock::new(|| {
    Arc::new(Workflow {
        name: Workflow::DEFAULT.to_owned(),
        origin: WorkflowOrigin::Server,
        plan: Stage::of(&[Builtin::Init, Builtin::Plan]),
        apply: Stage::of(&[Builtin::Apply]),
        policy_check: Stage::of(&[Builtin::Show, Builtin::PolicyCheck]),
        import: Stage::of(&[Builtin::Init, Builtin::Import]),
        state_rm: Stage::of(&[Builtin::Init, Builtin::StateRm]),
    })
});

#[cfg(test)]
mod tests;
