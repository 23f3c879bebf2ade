//! Keys of workflows and their steps (reference 6.2).

use super::Step;
use super::output::OutputFilters;
use super::step::NamesDisplay;
use crate::config::yaml::{KeyDoc, Located, OneOrMany, TextOr, mapping};

mapping! {
    /// Keys of a workflow.
    pub(in crate::config) struct WorkflowMapping("a workflow") {
        plan: StageMapping = KeyDoc {
            default: "`init`, `plan`",
            meaning: "Steps of a plan.",
            example: "{steps: [init, plan]}",
        },
        apply: StageMapping = KeyDoc {
            default: "`apply`",
            meaning: "Steps of an apply.",
            example: "{steps: [apply]}",
        },
        policy_check: StageMapping = KeyDoc {
            default: "`show`, `policy_check`",
            meaning: "Steps that check a plan against policies, if the project has policy checks. In the repository's file: needs \
                      `custom_policy_check` in `allowed_overrides`.",
            example: "{steps: [show, policy_check]}",
        },
        import: StageMapping = KeyDoc {
            default: "`init`, `import`",
            meaning: "Steps that import an existing resource into the state.",
            example: "{steps: [init, import]}",
        },
        state_rm: StageMapping = KeyDoc {
            default: "`init`, `state_rm`",
            meaning: "Steps that remove a resource from the state.",
            example: "{steps: [init, state_rm]}",
        },
    }
}

mapping! {
    /// Keys of a stage.
    pub(in crate::config) struct StageMapping("a stage") {
        steps: Vec<Step> = KeyDoc {
            default: "the steps of the built-in workflow",
            meaning: "Steps in their order. `[]`: no steps, and the stage succeeds.",
            example: "[init, plan]",
        },
    }
}

mapping! {
    /// Keys of a step that is a mapping.
    pub(in crate::config) struct StepMapping("a step") {
        init: BuiltinMapping = KeyDoc {
            default: "",
            meaning: "`terraform init`.",
            example: "{extra_args: [-upgrade=false]}",
        },
        plan: BuiltinMapping = KeyDoc {
            default: "",
            meaning: "`terraform plan` into the plan file.",
            example: "{extra_args: [-lock-timeout=60s]}",
        },
        show: BuiltinMapping = KeyDoc {
            default: "",
            meaning: "The plan file as JSON, in `$SHOWFILE`.",
            example: "{extra_args: []}",
        },
        policy_check: BuiltinMapping = KeyDoc {
            default: "",
            meaning: "Check of the plan against the policy sets, except those with `engine: steps`. `extra_args` are for conftest.",
            example: "{extra_args: [--all-namespaces]}",
        },
        apply: BuiltinMapping = KeyDoc {
            default: "",
            meaning: "`terraform apply` of the plan file.",
            example: "{extra_args: [-parallelism=5]}",
        },
        import: BuiltinMapping = KeyDoc {
            default: "",
            meaning: "`terraform import`.",
            example: "{extra_args: [-lock=false]}",
        },
        state_rm: BuiltinMapping = KeyDoc {
            default: "",
            meaning: "`terraform state rm`.",
            example: "{extra_args: [-lock=false]}",
        },
        run: TextOr<RunMapping> = KeyDoc {
            default: "",
            meaning: "Your own command: the command line, or a mapping.",
            example: "make plan",
        },
        env: EnvMapping = KeyDoc {
            default: "",
            meaning: "A variable for later steps of this stage.",
            example: "{name: TF_VAR_region, value: eu-west-1}",
        },
        multienv: TextOr<MultienvMapping> = KeyDoc {
            default: "",
            meaning: "Variables for later steps of this stage: a command that prints `NAME=value,…`.",
            example: "./variables.sh",
        },
    }
    exactly_one: true,
}

mapping! {
    /// Keys of the options of an `init`, `plan` or other step of Lockkeeper.
    pub(in crate::config) struct BuiltinMapping("a built-in step") {
        extra_args: Vec<Located> = KeyDoc {
            default: "none",
            meaning: "Additional arguments. `$NAME` and `${NAME}` are replaced by variables.",
            example: "[-lock-timeout=60s]",
        },
    }
}

/// Documentation of `shell` of steps and hooks.
pub(in crate::config) const SHELL: KeyDoc = KeyDoc {
    default: "`sh`",
    meaning: "Shell that runs the command.",
    example: "bash",
};

/// Documentation of `shellArgs` of steps and hooks.
pub(in crate::config) const SHELL_ARGS: KeyDoc = KeyDoc {
    default: "`-c`",
    meaning: "Arguments of the shell, before the command; a text is split at spaces. Needs `shell`.",
    example: "[-e, -c]",
};

mapping! {
    /// Keys of a `run` step.
    pub(in crate::config) struct RunMapping("`run`") {
        command: Located = KeyDoc {
            default: KeyDoc::REQUIRED,
            meaning: "Command line for the shell.",
            example: "make plan",
        },
        output: OutputFilters = KeyDoc {
            default: "`show`",
            meaning: "Filters for the output that comments show, applied in order.",
            example: "[strip_refreshing, {filter_regex: 'password=\\S+'}]",
        },
        policy_set: Located = KeyDoc {
            default: "by the order of the steps",
            meaning: "Policy set that the output is about, in the stage `policy_check`. Not a key of Atlantis.",
            example: "trivy",
        },
        shell: Located = SHELL,
        shell_args as "shellArgs": OneOrMany<Located> = SHELL_ARGS,
    }
}

mapping! {
    /// Keys of an item of `output`.
    pub(in crate::config) struct FilterMapping("an item of `output`") {
        filter_regex: OneOrMany<Located> = KeyDoc {
            default: KeyDoc::REQUIRED,
            meaning: "Matches are replaced by the first group, `<redacted>` and the second group.",
            example: "'(token=)\\S+'",
        },
    }
}

mapping! {
    /// Keys of an `env` step.
    pub(in crate::config) struct EnvMapping("`env`") {
        name: Located = KeyDoc {
            default: KeyDoc::REQUIRED,
            meaning: "Name of the variable.",
            example: "TF_VAR_region",
        },
        value: Located = KeyDoc {
            default: "none",
            meaning: "Value of the variable. Set either this or `command`.",
            example: "eu-west-1",
        },
        command: Located = KeyDoc {
            default: "none",
            meaning: "Command that prints the value; the line break at the end is removed.",
            example: "cat region.txt",
        },
        shell: Located = SHELL,
        shell_args as "shellArgs": OneOrMany<Located> = SHELL_ARGS,
    }
}

mapping! {
    /// Keys of a `multienv` step.
    pub(in crate::config) struct MultienvMapping("`multienv`") {
        command: Located = KeyDoc {
            default: KeyDoc::REQUIRED,
            meaning: "Command that prints `NAME=value,…`.",
            example: "./variables.sh",
        },
        output: NamesDisplay = KeyDoc {
            default: "`show`",
            meaning: "Show the names of the variables in comments; values are never shown.",
            example: "hide",
        },
        shell: Located = SHELL,
        shell_args as "shellArgs": OneOrMany<Located> = SHELL_ARGS,
    }
}
