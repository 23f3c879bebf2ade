//! Keys of workflows and their steps (reference 6.2).

use super::Builtin;
use crate::config::yaml::{DocumentedKey, KeyShape, MappingKeys, words};

/// Keys of a workflow.
pub(in crate::config) static WORKFLOW: MappingKeys = MappingKeys::new(
    "a workflow",
    &[
        DocumentedKey::new(
            "plan",
            STAGE_KIND,
            "`init`, `plan`",
            "Steps of a plan.",
            "{steps: [init, plan]}",
        ),
        DocumentedKey::new(
            "apply",
            STAGE_KIND,
            "`apply`",
            "Steps of an apply.",
            "{steps: [apply]}",
        ),
        DocumentedKey::new(
            "policy_check",
            STAGE_KIND,
            "`show`, `policy_check`",
            "Steps after a plan. Policies are not checked in this version yet.",
            "{steps: [show, policy_check]}",
        ),
        DocumentedKey::new(
            "import",
            STAGE_KIND,
            "`init`, `import`",
            "Steps that import an existing resource into the state.",
            "{steps: [init, import]}",
        ),
        DocumentedKey::new(
            "state_rm",
            STAGE_KIND,
            "`init`, `state_rm`",
            "Steps that remove a resource from the state.",
            "{steps: [init, state_rm]}",
        ),
    ],
);

const STAGE_KIND: KeyShape = KeyShape::Map(&STAGE);

/// Keys of a stage.
pub(super) static STAGE: MappingKeys = MappingKeys::new(
    "a stage",
    &[DocumentedKey::new(
        "steps",
        KeyShape::List(&STEP_KIND),
        "the steps of the built-in workflow",
        "Steps in their order. `[]`: no steps, and the stage succeeds.",
        "[init, plan]",
    )],
);

static STEP_KIND: KeyShape = KeyShape::Any(&[KeyShape::Words(builtins), KeyShape::Map(&STEP)]);

fn builtins() -> Vec<&'static str> {
    words(Builtin::ALL, Builtin::as_str)
}

const ARGS: KeyShape = KeyShape::Map(&BUILTIN);

/// Keys of a step that is a mapping.
pub(super) static STEP: MappingKeys = MappingKeys::choice(
    "a step",
    &[
        DocumentedKey::new(
            "init",
            ARGS,
            "",
            "`terraform init`.",
            "{extra_args: [-upgrade=false]}",
        ),
        DocumentedKey::new(
            "plan",
            ARGS,
            "",
            "`terraform plan` into the plan file.",
            "{extra_args: [-lock-timeout=60s]}",
        ),
        DocumentedKey::new(
            "show",
            ARGS,
            "",
            "The plan file as JSON, in `$SHOWFILE`.",
            "{extra_args: []}",
        ),
        DocumentedKey::new(
            "policy_check",
            ARGS,
            "",
            "Check of policies. Not in this version yet.",
            "{extra_args: []}",
        ),
        DocumentedKey::new(
            "apply",
            ARGS,
            "",
            "`terraform apply` of the plan file.",
            "{extra_args: [-parallelism=5]}",
        ),
        DocumentedKey::new(
            "import",
            ARGS,
            "",
            "`terraform import`.",
            "{extra_args: [-lock=false]}",
        ),
        DocumentedKey::new(
            "state_rm",
            ARGS,
            "",
            "`terraform state rm`.",
            "{extra_args: [-lock=false]}",
        ),
        DocumentedKey::new(
            "run",
            KeyShape::Any(&[KeyShape::Text, KeyShape::Map(&RUN)]),
            "",
            "Your own command: the command line, or a mapping.",
            "make plan",
        ),
        DocumentedKey::new(
            "env",
            KeyShape::Map(&ENV),
            "",
            "A variable for later steps of this stage.",
            "{name: TF_VAR_region, value: eu-west-1}",
        ),
        DocumentedKey::new(
            "multienv",
            KeyShape::Any(&[KeyShape::Text, KeyShape::Map(&MULTIENV)]),
            "",
            "Variables for later steps of this stage: a command that prints `NAME=value,…`.",
            "./variables.sh",
        ),
    ],
);

/// Keys of the options of an `init`, `plan` or other step of Lockkeeper.
pub(super) static BUILTIN: MappingKeys = MappingKeys::new(
    "a built-in step",
    &[DocumentedKey::new(
        "extra_args",
        KeyShape::List(&KeyShape::Text),
        "none",
        "Additional arguments. `$NAME` and `${NAME}` are replaced by variables.",
        "[-lock-timeout=60s]",
    )],
);

const SHELL: DocumentedKey = DocumentedKey::new(
    "shell",
    KeyShape::Text,
    "`sh`",
    "Shell that runs the command.",
    "bash",
);

/// The key `shellArgs` of steps and hooks.
pub(in crate::config) const SHELL_ARGS: DocumentedKey = DocumentedKey::new(
    "shellArgs",
    KeyShape::Any(&[KeyShape::Text, KeyShape::List(&KeyShape::Text)]),
    "`-c`",
    "Arguments of the shell, before the command; a text is split at spaces. Needs `shell`.",
    "[-e, -c]",
);

/// Keys of a `run` step.
pub(super) static RUN: MappingKeys = MappingKeys::new(
    "`run`",
    &[
        DocumentedKey::new(
            "command",
            KeyShape::Text,
            DocumentedKey::REQUIRED,
            "Command line for the shell.",
            "make plan",
        ),
        DocumentedKey::new(
            "output",
            KeyShape::Any(&[KeyShape::Words(outputs), KeyShape::List(&OUTPUT_ITEM)]),
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

static OUTPUT_ITEM: KeyShape = KeyShape::Any(&[KeyShape::Words(outputs), KeyShape::Map(&FILTER)]);

/// Keys of an item of `output`.
pub(super) static FILTER: MappingKeys = MappingKeys::new(
    "an item of `output`",
    &[DocumentedKey::new(
        "filter_regex",
        KeyShape::Any(&[KeyShape::Text, KeyShape::List(&KeyShape::Text)]),
        DocumentedKey::REQUIRED,
        "Matches are replaced by the first group, `<redacted>` and the second group.",
        "'(token=)\\S+'",
    )],
);

/// Keys of an `env` step.
pub(super) static ENV: MappingKeys = MappingKeys::new(
    "`env`",
    &[
        DocumentedKey::new(
            "name",
            KeyShape::Text,
            DocumentedKey::REQUIRED,
            "Name of the variable.",
            "TF_VAR_region",
        ),
        DocumentedKey::new(
            "value",
            KeyShape::Text,
            "none",
            "Value of the variable. Set either this or `command`.",
            "eu-west-1",
        ),
        DocumentedKey::new(
            "command",
            KeyShape::Text,
            "none",
            "Command that prints the value; the line break at the end is removed.",
            "cat region.txt",
        ),
        SHELL,
        SHELL_ARGS,
    ],
);

/// Keys of a `multienv` step.
pub(super) static MULTIENV: MappingKeys = MappingKeys::new(
    "`multienv`",
    &[
        DocumentedKey::new(
            "command",
            KeyShape::Text,
            DocumentedKey::REQUIRED,
            "Command that prints `NAME=value,…`.",
            "./variables.sh",
        ),
        DocumentedKey::new(
            "output",
            KeyShape::Words(|| vec!["show", "hide"]),
            "`show`",
            "Show the names of the variables in comments; values are never shown.",
            "hide",
        ),
        SHELL,
        SHELL_ARGS,
    ],
);
