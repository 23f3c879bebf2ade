//! Workflows: which steps make a plan, an apply, an import (reference 6). They are the operator's, or a repository's
//! where the operator allows that; nothing of a pull is ever spliced into them.

mod fingerprint;
mod keys;
mod output;
mod reader;
mod step;

use std::sync::{Arc, LazyLock};

use regex::Regex;

use crate::model::text_enum;

pub(super) use keys::{SHELL_ARGS, WORKFLOW};
pub(super) use reader::{FileVersion, read_workflows};
pub(super) use step::{read_command, read_shell};

/// The steps of every stage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Workflow {
    /// What projects call it by.
    pub name: String,
    /// Makes a plan.
    pub plan: Stage,
    /// Carries it out.
    pub apply: Stage,
    /// Looks at it.
    pub policy_check: Stage,
    /// Takes something that exists into the state.
    pub import: Stage,
    /// Takes something out of the state.
    pub state_rm: Stage,
}

/// The steps of one stage, in their order. None: the stage succeeds and does nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stage {
    /// The steps.
    pub steps: Arc<[Step]>,
}

/// One step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// A step that Lockkeeper knows how to do.
    Builtin {
        /// Which.
        step: Builtin,
        /// Arguments of the configuration; `$VAR` and `${VAR}` in them are replaced.
        extra_args: Vec<String>,
    },
    /// A command of its author.
    Run(RunStep),
    /// A variable for the steps that follow.
    Env(EnvStep),
    /// Variables for the steps that follow, printed by a command.
    Multienv(MultienvStep),
}

text_enum! {
    /// The steps that Lockkeeper knows how to do.
    pub enum Builtin {
        /// `init`.
        Init = "init",
        /// `plan` into the plan file.
        Plan = "plan",
        /// The plan file as JSON.
        Show = "show",
        /// Policies against that.
        PolicyCheck = "policy_check",
        /// `apply` of the plan file.
        Apply = "apply",
        /// `import`.
        Import = "import",
        /// `state rm`.
        StateRm = "state_rm",
    }
}

/// What a command is handed to: the program, its arguments, then the command as the last one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shell {
    /// The program, found along the search path.
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

/// `run`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunStep {
    /// Source for the shell.
    pub command: String,
    /// The shell.
    pub shell: Shell,
    /// What becomes of the output before it is part of a comment, in this order. The page of the run has all of it.
    pub output: Vec<OutputFilter>,
}

/// `env`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnvStep {
    /// Name of the variable.
    pub name: String,
    /// Its value.
    pub value: EnvValue,
}

/// Where the value of a variable comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EnvValue {
    /// From the configuration.
    Literal(String),
    /// What a command prints, without the line break at its end.
    Printed {
        /// Source for the shell.
        command: String,
        /// The shell.
        shell: Shell,
    },
}

/// `multienv`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MultienvStep {
    /// Source for the shell; it prints `NAME=value,…`.
    pub command: String,
    /// The shell.
    pub shell: Shell,
    /// Whether the comment names the variables.
    pub is_shown: bool,
}

/// What is done to the output of a step before it is part of a comment (reference 6.3).
#[derive(Debug, Clone)]
pub enum OutputFilter {
    /// Nothing of it is left, unless the step fails.
    Hide,
    /// As with the built-in `plan`: nothing up to the last line about refreshing.
    StripRefreshing,
    /// Each match becomes its first group, `<redacted>`, and its second group.
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
    /// Name of the workflow that holds where nobody chooses one.
    pub const DEFAULT: &str = "default";

    /// The workflow that holds where nobody defines one (reference 6.1).
    pub fn builtin() -> Arc<Self> {
        Arc::clone(&BUILTIN)
    }

    /// Whether parts of what plan and apply print are to be on pages only and in no comment.
    pub fn keeps_output_private(&self) -> bool {
        self.plan.keeps_output_private() || self.apply.keeps_output_private()
    }

    /// Whether the built-in `apply` is among the steps that apply, so that there has to be a plan file.
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

    /// The commands and arguments of all stages, as they are written.
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

    /// Whether plan or apply run a command of their author.
    pub fn runs_commands(&self) -> bool {
        let is_command = |step: &Step| match step {
            Step::Run(_) | Step::Multienv(_) => true,
            Step::Env(env) => matches!(env.value, EnvValue::Printed { .. }),
            Step::Builtin { .. } => false,
        };
        self.plan
            .steps
            .iter()
            .chain(&*self.apply.steps)
            .any(is_command)
    }
}

impl Step {
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
    /// Built-in steps without further arguments.
    pub fn of(steps: &[Builtin]) -> Self {
        let step = |step: &Builtin| Step::Builtin {
            step: *step,
            extra_args: Vec::new(),
        };
        Self {
            steps: steps.iter().map(step).collect(),
        }
    }

    /// Whether parts of what it prints are to be on pages only and in no comment.
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
        plan: Stage::of(&[Builtin::Init, Builtin::Plan]),
        apply: Stage::of(&[Builtin::Apply]),
        policy_check: Stage::of(&[Builtin::Show, Builtin::PolicyCheck]),
        import: Stage::of(&[Builtin::Init, Builtin::Import]),
        state_rm: Stage::of(&[Builtin::Init, Builtin::StateRm]),
    })
});

#[cfg(test)]
mod tests;
