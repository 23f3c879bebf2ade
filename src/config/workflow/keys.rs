//! Keys of workflows and their steps (reference 6.2).

use super::Builtin;
use crate::config::yaml::{Key, Keys, Kind, words};

/// Keys of a workflow.
pub(in crate::config) static WORKFLOW: Keys = Keys::new(
    "a workflow",
    &[
        Key::new(
            "plan",
            STAGE_KIND,
            "`init`, `plan`",
            "Steps of a plan.",
            "{steps: [init, plan]}",
        ),
        Key::new(
            "apply",
            STAGE_KIND,
            "`apply`",
            "Steps of an apply.",
            "{steps: [apply]}",
        ),
        Key::new(
            "policy_check",
            STAGE_KIND,
            "`show`, `policy_check`",
            "Steps after a plan. Policies are not checked in this version yet.",
            "{steps: [show, policy_check]}",
        ),
        Key::new(
            "import",
            STAGE_KIND,
            "`init`, `import`",
            "Steps that import an existing resource into the state.",
            "{steps: [init, import]}",
        ),
        Key::new(
            "state_rm",
            STAGE_KIND,
            "`init`, `state_rm`",
            "Steps that remove a resource from the state.",
            "{steps: [init, state_rm]}",
        ),
    ],
);

const STAGE_KIND: Kind = Kind::Map(&STAGE);

/// Keys of a stage.
pub(super) static STAGE: Keys = Keys::new(
    "a stage",
    &[Key::new(
        "steps",
        Kind::List(&STEP_KIND),
        "the steps of the built-in workflow",
        "Steps in their order. `[]`: no steps, and the stage succeeds.",
        "[init, plan]",
    )],
);

static STEP_KIND: Kind = Kind::Any(&[Kind::Words(builtins), Kind::Map(&STEP)]);

fn builtins() -> Vec<&'static str> {
    words(Builtin::ALL, Builtin::as_str)
}

const ARGS: Kind = Kind::Map(&BUILTIN);

/// Keys of a step that is a mapping.
pub(super) static STEP: Keys = Keys::choice(
    "a step",
    &[
        Key::new(
            "init",
            ARGS,
            "",
            "`terraform init`.",
            "{extra_args: [-upgrade=false]}",
        ),
        Key::new(
            "plan",
            ARGS,
            "",
            "`terraform plan` into the plan file.",
            "{extra_args: [-lock-timeout=60s]}",
        ),
        Key::new(
            "show",
            ARGS,
            "",
            "The plan file as JSON, in `$SHOWFILE`.",
            "{extra_args: []}",
        ),
        Key::new(
            "policy_check",
            ARGS,
            "",
            "Check of policies. Not in this version yet.",
            "{extra_args: []}",
        ),
        Key::new(
            "apply",
            ARGS,
            "",
            "`terraform apply` of the plan file.",
            "{extra_args: [-parallelism=5]}",
        ),
        Key::new(
            "import",
            ARGS,
            "",
            "`terraform import`.",
            "{extra_args: [-lock=false]}",
        ),
        Key::new(
            "state_rm",
            ARGS,
            "",
            "`terraform state rm`.",
            "{extra_args: [-lock=false]}",
        ),
        Key::new(
            "run",
            Kind::Any(&[Kind::Text, Kind::Map(&RUN)]),
            "",
            "Your own command: the command line, or a mapping.",
            "make plan",
        ),
        Key::new(
            "env",
            Kind::Map(&ENV),
            "",
            "A variable for later steps of this stage.",
            "{name: TF_VAR_region, value: eu-west-1}",
        ),
        Key::new(
            "multienv",
            Kind::Any(&[Kind::Text, Kind::Map(&MULTIENV)]),
            "",
            "Variables for later steps of this stage: a command that prints `NAME=value,…`.",
            "./variables.sh",
        ),
    ],
);

/// Keys of the options of an `init`, `plan` or other step of Lockkeeper.
pub(super) static BUILTIN: Keys = Keys::new(
    "a built-in step",
    &[Key::new(
        "extra_args",
        Kind::List(&Kind::Text),
        "none",
        "Additional arguments. `$NAME` and `${NAME}` are replaced by variables.",
        "[-lock-timeout=60s]",
    )],
);

const SHELL: Key = Key::new(
    "shell",
    Kind::Text,
    "`sh`",
    "Shell that runs the command.",
    "bash",
);

/// The key `shellArgs` of steps and hooks.
pub(in crate::config) const SHELL_ARGS: Key = Key::new(
    "shellArgs",
    Kind::Any(&[Kind::Text, Kind::List(&Kind::Text)]),
    "`-c`",
    "Arguments of the shell, before the command; a text is split at spaces. Needs `shell`.",
    "[-e, -c]",
);

/// Keys of a `run` step.
pub(super) static RUN: Keys = Keys::new(
    "`run`",
    &[
        Key::new(
            "command",
            Kind::Text,
            Key::REQUIRED,
            "Command line for the shell.",
            "make plan",
        ),
        Key::new(
            "output",
            Kind::Any(&[Kind::Words(outputs), Kind::List(&OUTPUT_ITEM)]),
            "`show`",
            "Filters for the output that comments show, applied in order.",
            "[strip_refreshing, {filter_regex: 'password=\\S+'}]",
        ),
        SHELL,
        SHELL_ARGS,
    ],
);

fn outputs() -> Vec<&'static str> {
    super::output::WORDS.to_vec()
}

static OUTPUT_ITEM: Kind = Kind::Any(&[Kind::Words(outputs), Kind::Map(&FILTER)]);

/// Keys of an item of `output`.
pub(super) static FILTER: Keys = Keys::new(
    "an item of `output`",
    &[Key::new(
        "filter_regex",
        Kind::Any(&[Kind::Text, Kind::List(&Kind::Text)]),
        Key::REQUIRED,
        "Matches are replaced by the first group, `<redacted>` and the second group.",
        "'(token=)\\S+'",
    )],
);

/// Keys of an `env` step.
pub(super) static ENV: Keys = Keys::new(
    "`env`",
    &[
        Key::new(
            "name",
            Kind::Text,
            Key::REQUIRED,
            "Name of the variable.",
            "TF_VAR_region",
        ),
        Key::new(
            "value",
            Kind::Text,
            "none",
            "Value of the variable. Set either this or `command`.",
            "eu-west-1",
        ),
        Key::new(
            "command",
            Kind::Text,
            "none",
            "Command that prints the value; the line break at the end is removed.",
            "cat region.txt",
        ),
        SHELL,
        SHELL_ARGS,
    ],
);

/// Keys of a `multienv` step.
pub(super) static MULTIENV: Keys = Keys::new(
    "`multienv`",
    &[
        Key::new(
            "command",
            Kind::Text,
            Key::REQUIRED,
            "Command that prints `NAME=value,…`.",
            "./variables.sh",
        ),
        Key::new(
            "output",
            Kind::Words(|| vec!["show", "hide"]),
            "`show`",
            "Show the names of the variables in comments; values are never shown.",
            "hide",
        ),
        SHELL,
        SHELL_ARGS,
    ],
);
