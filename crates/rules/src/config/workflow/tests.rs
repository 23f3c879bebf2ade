//! Tests every form of a step, and the messages for invalid steps.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::*;
use crate::config::yaml::{FileReader, KeyDoc, YamlErrors, mapping, read};

mapping! {
    /// Keys of a file that has only workflows.
    struct WorkflowFileMapping("the file") {
        workflows: BTreeMap<String, WorkflowMapping> = KeyDoc {
            default: "none",
            meaning: "Workflows by name.",
            example: "{quick: {plan: {steps: [plan]}}}",
        },
    }
}

fn parse(text: &str, version: FileVersion) -> Result<Vec<Arc<Workflow>>, YamlErrors> {
    let mut reader = FileReader::default();
    let node = read(text)
        .expect("the text is YAML")
        .expect("the text is not empty");
    let workflows = reader.mapping::<WorkflowFileMapping>(&node).map(|file| {
        read_workflows(
            &mut reader,
            &file.workflows,
            version,
            PolicyStage::Runs,
            WorkflowOrigin::Server,
        )
    });
    let workflows = workflows.unwrap_or_default().into_values().collect();
    if reader.problems.is_empty() {
        Ok(workflows)
    } else {
        Err(YamlErrors::new("f.yaml", text, reader.problems))
    }
}

fn with_step(step: &str) -> String {
    format!("workflows: {{w: {{plan: {{steps: [{step}]}}}}}}")
}

fn step(text: &str) -> Step {
    let workflows = parse(&with_step(text), FileVersion::Three)
        .unwrap_or_else(|errors| panic!("{text}: {errors}"));
    workflows[0].plan.steps[0].clone()
}

#[test]
fn every_form_of_a_step_is_read() {
    let forms = [
        "init",
        "plan",
        "show",
        "policy_check",
        "apply",
        "import",
        "state_rm",
        "init: {extra_args: [-upgrade=false, 7]}",
        "plan: ",
        "plan: {}",
        "run: make plan",
        "run: 7",
        "run: {command: make}",
        "run: {command: make, shell: bash}",
        "run: {command: make, shell: bash, shellArgs: '-e  -c'}",
        "run: {command: make, shell: bash, shellArgs: [-e, -c a]}",
        "run: {command: make, output: show}",
        "run: {command: make, output: hide}",
        "run: {command: make, output: strip_refreshing}",
        "run: {command: make, output: [strip_refreshing, {filter_regex: '(a)b'}, {filter_regex: [c, d]}, hide]}",
        "env: {name: A, value: b}",
        "env: {name: A, value: ''}",
        "env: {name: A, value: 1.10}",
        "env: {name: A, command: date, shell: sh, shellArgs: -ec}",
        "multienv: ./vars",
        "multienv: {command: ./vars}",
        "multienv: {command: ./vars, output: hide, shell: sh}",
        "multienv: {command: ./vars, output: show}",
    ];
    let told: Vec<_> = forms
        .iter()
        .map(|form| format!("{form} => {:?}\n", step(form)))
        .collect();
    insta::assert_snapshot!(told.concat(), @r#"
    init => Builtin { step: Init, extra_args: [] }
    plan => Builtin { step: Plan, extra_args: [] }
    show => Builtin { step: Show, extra_args: [] }
    policy_check => Builtin { step: PolicyCheck, extra_args: [] }
    apply => Builtin { step: Apply, extra_args: [] }
    import => Builtin { step: Import, extra_args: [] }
    state_rm => Builtin { step: StateRm, extra_args: [] }
    init: {extra_args: [-upgrade=false, 7]} => Builtin { step: Init, extra_args: ["-upgrade=false", "7"] }
    plan:  => Builtin { step: Plan, extra_args: [] }
    plan: {} => Builtin { step: Plan, extra_args: [] }
    run: make plan => Run(RunStep { command: "make plan", shell: Shell { program: "sh", args: ["-c"] }, output: [], policy_set: None })
    run: 7 => Run(RunStep { command: "7", shell: Shell { program: "sh", args: ["-c"] }, output: [], policy_set: None })
    run: {command: make} => Run(RunStep { command: "make", shell: Shell { program: "sh", args: ["-c"] }, output: [], policy_set: None })
    run: {command: make, shell: bash} => Run(RunStep { command: "make", shell: Shell { program: "bash", args: ["-c"] }, output: [], policy_set: None })
    run: {command: make, shell: bash, shellArgs: '-e  -c'} => Run(RunStep { command: "make", shell: Shell { program: "bash", args: ["-e", "-c"] }, output: [], policy_set: None })
    run: {command: make, shell: bash, shellArgs: [-e, -c a]} => Run(RunStep { command: "make", shell: Shell { program: "bash", args: ["-e", "-c a"] }, output: [], policy_set: None })
    run: {command: make, output: show} => Run(RunStep { command: "make", shell: Shell { program: "sh", args: ["-c"] }, output: [], policy_set: None })
    run: {command: make, output: hide} => Run(RunStep { command: "make", shell: Shell { program: "sh", args: ["-c"] }, output: [Hide], policy_set: None })
    run: {command: make, output: strip_refreshing} => Run(RunStep { command: "make", shell: Shell { program: "sh", args: ["-c"] }, output: [StripRefreshing], policy_set: None })
    run: {command: make, output: [strip_refreshing, {filter_regex: '(a)b'}, {filter_regex: [c, d]}, hide]} => Run(RunStep { command: "make", shell: Shell { program: "sh", args: ["-c"] }, output: [StripRefreshing, Redact(Regex("(a)b")), Redact(Regex("c")), Redact(Regex("d")), Hide], policy_set: None })
    env: {name: A, value: b} => Env(EnvStep { name: "A", value: Literal("b") })
    env: {name: A, value: ''} => Env(EnvStep { name: "A", value: Literal("") })
    env: {name: A, value: 1.10} => Env(EnvStep { name: "A", value: Literal("1.10") })
    env: {name: A, command: date, shell: sh, shellArgs: -ec} => Env(EnvStep { name: "A", value: Printed { command: "date", shell: Shell { program: "sh", args: ["-ec"] } } })
    multienv: ./vars => Multienv(MultienvStep { command: "./vars", shell: Shell { program: "sh", args: ["-c"] }, is_shown: true })
    multienv: {command: ./vars} => Multienv(MultienvStep { command: "./vars", shell: Shell { program: "sh", args: ["-c"] }, is_shown: true })
    multienv: {command: ./vars, output: hide, shell: sh} => Multienv(MultienvStep { command: "./vars", shell: Shell { program: "sh", args: ["-c"] }, is_shown: false })
    multienv: {command: ./vars, output: show} => Multienv(MultienvStep { command: "./vars", shell: Shell { program: "sh", args: ["-c"] }, is_shown: true })
    "#);
}

const NO_STEPS: &[&str] = &[
    "run",
    "env",
    "multienv",
    "pln",
    "terraform fmt",
    "[init]",
    "~",
    "{}",
    "{init: , plan: }",
    "{run: make, shell: bash}",
    "{env: {name: A, value: b}, run: make}",
    "{name: A, env: B}",
    "pln: {extra_args: []}",
    "colour: blue",
    "plan: -lock=false",
    "plan: {extra_arg: []}",
    "plan: {extra_args: -lock=false}",
    r#"plan: {extra_args: ["\0"]}"#,
    "run: ",
    "run: ''",
    "run: [make]",
    r#"run: "a\0b""#,
    "run: {}",
    "run: {command: ' '}",
    "run: {comand: make}",
    "run: {command: make, shellArgs: -c}",
    "run: {command: make, shell: ''}",
    "run: {command: make, shell: sh, shellArgs: {a: b}}",
    "run: {command: make, shell: sh, shellArgs: [[a]]}",
    "run: {command: make, output: hidden}",
    "run: {command: make, output: [strip_refresing, 7]}",
    "run: {command: make, output: filter_regex}",
    "run: {command: make, output: {filter_regex: a}}",
    "run: {command: make, output: [{filter_regex: '('}]}",
    "run: {command: make, output: [{filter_regex: [a, '[']}]}",
    "run: {command: make, output: [{filter_regex: }]}",
    "run: {command: make, output: [{filter: a}]}",
    "run: {command: make, output: [{filter_regex: {a: b}}]}",
    "env: A",
    "env: {value: b}",
    "env: {name: A}",
    "env: {name: A, value: b, command: c}",
    "env: {name: 1A, value: b}",
    "env: {name: A=B, value: b}",
    "env: {name: A, value: b, shell: sh}",
    "env: {name: A, vale: b}",
    "multienv: ",
    "multienv: {output: show}",
    "multienv: {command: a, output: strip_refreshing}",
];

#[test]
fn what_is_no_step_is_told_with_a_way_out() {
    let mut told = String::new();
    for form in NO_STEPS {
        for problem in parse(&with_step(form), FileVersion::Three)
            .expect_err(form)
            .problems()
        {
            writeln!(told, "{form} => {} => {}", problem.what, problem.help).unwrap();
        }
    }
    insta::assert_snapshot!(told, @r#"
    run => `run` needs a value => write `run: COMMAND`, or `run: {command: COMMAND}` with its other keys
    env => `env` needs a value => write `env: {name: NAME, value: VALUE}`, or `command` in place of `value`
    multienv => `multienv` needs a value => write `multienv: COMMAND`; the command prints `NAME=value,…`
    pln => `pln` is not a step => did you mean `plan`?
    terraform fmt => `terraform fmt` is not a step => write `run: …` for your own command; the other steps are `init`, `plan`, `show`, `policy_check`, `apply`, `import`, `state_rm`
    [init] => a step must be a word or a mapping, not a list => write a word or a mapping here
    ~ => a step must be a word or a mapping, not nothing => write a word or a mapping here
    {} => a step has no key => begin every step with its own `-`
    {init: , plan: } => a step has one key, not `init`, `plan` => begin every step with its own `-`
    {run: make, shell: bash} => a step has one key, not `run`, `shell` => write the other keys into a mapping: `run: {command: …}`
    {env: {name: A, value: b}, run: make} => a step has one key, not `env`, `run` => write `env: {name: NAME, value: VALUE}`, or `command` in place of `value`
    {name: A, env: B} => a step has one key, not `name`, `env` => write `env: {name: NAME, value: VALUE}`, or `command` in place of `value`
    pln: {extra_args: []} => `pln` is not a step => did you mean `plan`?
    colour: blue => `colour` is not a step => write `run: …` for your own command; the other steps are `init`, `plan`, `show`, `policy_check`, `apply`, `import`, `state_rm`, `run`, `env`, `multienv`
    plan: -lock=false => `plan` takes a mapping => write `plan: {extra_args: […]}`, or `plan` alone
    plan: {extra_arg: []} => `extra_arg` is not a key of a built-in step => did you mean `extra_args`?
    plan: {extra_args: -lock=false} => `extra_args` must be a list, not `-lock=false` => write a list here
    plan: {extra_args: ["\0"]} => `�` contains a zero byte => write `\\0` for the two characters
    run:  => `run` has no command => write `run: COMMAND`, or `run: {command: COMMAND}` with its other keys
    run: '' => `run` is empty => write the command to run
    run: [make] => `run` must be a text, not a list => write a text here
    run: "a\0b" => `a�b` contains a zero byte => write `\\0` for the two characters
    run: {} => `run` has no `command` => write `command:` and the command to run
    run: {command: ' '} => `command` of `run` is empty => write the command to run
    run: {comand: make} => `run` has no `command` => write `command:` and the command to run
    run: {comand: make} => `comand` is not a key of `run` => did you mean `command`?
    run: {command: make, shellArgs: -c} => `shellArgs` needs `shell` => add `shell: sh`
    run: {command: make, shell: ''} => `shell` is empty => name a program, such as `bash`
    run: {command: make, shell: sh, shellArgs: {a: b}} => `shellArgs` must be a text or a list, not a mapping => write a text or a list here
    run: {command: make, shell: sh, shellArgs: [[a]]} => an item of `shellArgs` must be a text, not a list => write a text here
    run: {command: make, output: hidden} => `hidden` is not a valid value of `output` => did you mean `hide`?
    run: {command: make, output: [strip_refresing, 7]} => `strip_refresing` is not a valid value of `output` => did you mean `strip_refreshing`?
    run: {command: make, output: [strip_refresing, 7]} => `7` is not a valid value of `output` => write one of `show`, `hide`, `strip_refreshing`, or `{filter_regex: …}` in a list
    run: {command: make, output: filter_regex} => `filter_regex` is not a valid value of `output` => write `{filter_regex: …}`, with the expression to redact
    run: {command: make, output: {filter_regex: a}} => `output` must be a word or a list, not a mapping => write it as an item of a list: `output: [{filter_regex: …}]`
    run: {command: make, output: [{filter_regex: '('}]} => `(` is not a regular expression: unclosed group => see https://docs.rs/regex/#syntax; the syntax is almost that of Go
    run: {command: make, output: [{filter_regex: [a, '[']}]} => `[` is not a regular expression: unclosed character class => see https://docs.rs/regex/#syntax; the syntax is almost that of Go
    run: {command: make, output: [{filter_regex: }]} => an item of `output` has no `filter_regex` => write `{filter_regex: …}`, with the expression to redact
    run: {command: make, output: [{filter: a}]} => an item of `output` has no `filter_regex` => write `{filter_regex: …}`, with the expression to redact
    run: {command: make, output: [{filter: a}]} => `filter` is not a key of an item of `output` => the keys of an item of `output` are `filter_regex`
    run: {command: make, output: [{filter_regex: {a: b}}]} => `filter_regex` must be a text or a list, not a mapping => write a text or a list here
    env: A => `env` takes a mapping => write `env: {name: NAME, value: VALUE}`, or `command` in place of `value`
    env: {value: b} => `env` has no `name` => write `env: {name: NAME, value: VALUE}`, or `command` in place of `value`
    env: {name: A} => `env` has neither `value` nor `command` => write one of them; for an empty text, write `value: ''`
    env: {name: A, value: b, command: c} => `env` has both `value` and `command` => keep one of the two
    env: {name: 1A, value: b} => `1A` cannot be the name of a variable => use letters, digits and `_`, and do not begin with a digit
    env: {name: A=B, value: b} => `A=B` cannot be the name of a variable => use letters, digits and `_`, and do not begin with a digit
    env: {name: A, value: b, shell: sh} => `shell` needs `command` => remove it: a `value` is not run
    env: {name: A, vale: b} => `env` has neither `value` nor `command` => write one of them; for an empty text, write `value: ''`
    env: {name: A, vale: b} => `vale` is not a key of `env` => did you mean `value`?
    multienv:  => `multienv` has no command => write `multienv: COMMAND`; the command prints `NAME=value,…`
    multienv: {output: show} => `multienv` has no `command` => write `command:` and the command to run
    multienv: {command: a, output: strip_refreshing} => `strip_refreshing` is not a value of `output` => write one of `show`, `hide`
    "#);
}

#[test]
fn stages_that_are_not_written_have_their_default_steps_and_empty_ones_none() {
    for text in [
        "workflows: {w: }",
        "workflows: {w: {}}",
        "workflows: {w: {plan: , apply: {}, import: {steps: }}}",
    ] {
        let workflows = parse(text, FileVersion::Three).unwrap();
        assert_eq!(
            *workflows[0],
            Workflow {
                name: "w".to_owned(),
                ..Workflow::clone(&Workflow::builtin())
            },
            "{text}"
        );
    }
    let text = "workflows: {w: {plan: {steps: []}, apply: {steps: [init, apply]}}}";
    let workflows = parse(text, FileVersion::Three).unwrap();
    assert_eq!(workflows[0].plan, Stage::default());
    assert_eq!(
        workflows[0].apply,
        Stage::of(&[Builtin::Init, Builtin::Apply])
    );
    assert_eq!(workflows[0].state_rm, Workflow::builtin().state_rm);
}

#[test]
fn what_is_no_workflow_is_told() {
    let many = format!(
        "workflows: {{w: {{plan: {{steps: [{}]}}}}}}",
        "plan, ".repeat(201)
    );
    let texts = [
        ("[]", "workflows: []"),
        ("a text", "workflows: {w: plan}"),
        ("a list", "workflows: {w: [plan]}"),
        ("a stage", "workflows: {w: {pln: {steps: []}}}"),
        ("steps alone", "workflows: {w: {steps: []}}"),
        ("a list of steps", "workflows: {w: {plan: [init]}}"),
        ("a step", "workflows: {w: {plan: {steps: init}}}"),
        ("step", "workflows: {w: {plan: {step: [init]}}}"),
        ("a name", "workflows: {'': {}}"),
        ("201 steps", &many),
    ];
    let mut told = String::new();
    for (shown, text) in texts {
        for problem in parse(text, FileVersion::Three).expect_err(shown).problems() {
            writeln!(told, "{shown} => {} => {}", problem.what, problem.help).unwrap();
        }
    }
    insta::assert_snapshot!(told, @"
    [] => `workflows` must be a mapping, not a list => write a mapping here
    a text => a workflow must be a mapping, not `plan` => write a mapping here
    a list => a workflow must be a mapping, not a list => write a mapping here
    a stage => `pln` is not a key of a workflow => did you mean `plan`?
    steps alone => `steps` is not a key of a workflow => the keys of a workflow are `plan`, `apply`, `policy_check`, `import`, `state_rm`
    a list of steps => a stage must be a mapping, not a list => write a mapping here
    a step => `steps` must be a list, not `init` => write a list here
    step => `step` is not a key of a stage => did you mean `steps`?
    a name => `` cannot be the name of a workflow => use 1 to 255 characters, and no line breaks
    201 steps => there are 201 steps; the maximum is 200 => put the commands into a script and run the script
    ");
}

#[test]
fn mistakes_in_steps_are_shown_where_they_are() {
    let text = "workflows:\n  w:\n    plan:\n      steps:\n        - int\n        - run: {command: make, output: [{filter_regex: '(a'}]}\n";
    insta::assert_snapshot!(parse(text, FileVersion::Three).unwrap_err(), @"
    error: `int` is not a step
     --> f.yaml:5:11
      |
    5 |         - int
      |           ^^^
      = help: did you mean `init`?

    error: `(a` is not a regular expression: unclosed group
     --> f.yaml:6:56
      |
    6 |         - run: {command: make, output: [{filter_regex: '(a'}]}
      |                                                        ^^^^
      = help: see https://docs.rs/regex/#syntax; the syntax is almost that of Go
    ");
}

#[test]
fn a_command_that_version_2_would_change_is_refused_there() {
    for (command, is_fine) in [
        ("make plan", true),
        ("'make  plan'", false),
        (r#"'echo "a b"'"#, false),
        (r"echo a\ b", false),
        ("'echo $A | tee x'", true),
        (r#"'echo "a'"#, false),
    ] {
        let text = with_step(&format!("{{run: {command}}}"));
        assert_eq!(parse(&text, FileVersion::Two).is_ok(), is_fine, "{command}");
        assert!(parse(&text, FileVersion::Three).is_ok(), "{command}");
        // Version 2 changes only commands of plan and apply.
        assert!(
            parse(&text.replace("plan:", "import:"), FileVersion::Two).is_ok(),
            "{command}"
        );
    }
    let told = parse(&with_step(r#"run: 'echo "a b"'"#), FileVersion::Two).unwrap_err();
    insta::assert_snapshot!(told, @r#"
    error: version 2 of the file would not run this command as written: `echo "a b"`
     --> f.yaml:1:32
      |
    1 | workflows: {w: {plan: {steps: [run: 'echo "a b"']}}}
      |                                ^
      = help: write `version: 3`, which runs commands as they are written
    "#);
}

#[test]
fn expressions_have_limits() {
    let many: Vec<String> = (0..201)
        .map(|number| format!("{{filter_regex: a{number}}}"))
        .collect();
    let large = "{filter_regex: '(\\w{100}){100}'}".to_owned();
    let told = [many.join(", "), large].map(|items| {
        let text = with_step(&format!("{{run: {{command: make, output: [{items}]}}}}"));
        let errors = parse(&text, FileVersion::Three).unwrap_err();
        errors
            .problems()
            .map(|problem| format!("{} => {}", problem.what, problem.help))
            .collect::<Vec<_>>()
            .join("\n")
    });
    insta::assert_snapshot!(told.join("\n"), @r"
    the file has more than 200 different regular expressions => join some of them with `|`
    `(\w{100}){100}` is not a regular expression: Compiled regex exceeds size limit of 262144 bytes. => see https://docs.rs/regex/#syntax; the syntax is almost that of Go
    ");
}

#[test]
fn a_step_names_the_policy_set_that_it_checks() {
    let text = "workflows: {w: {policy_check: {steps: [show, {run: {command: a, policy_set: x y}}, {run: b}]}}}";
    let workflows = parse(text, FileVersion::Three).unwrap();
    let sets: Vec<Option<&str>> = workflows[0]
        .policy_check
        .steps
        .iter()
        .map(|step| step.policy_set().map(SetName::as_str))
        .collect();
    assert_eq!(sets, [None, Some("x y"), None]);
    let mut told = String::new();
    for stage in [
        "plan: {steps: [run: {command: a, policy_set: x}]}",
        "apply: {steps: [run: {command: a, policy_set: x}]}",
        "policy_check: {steps: [{run: {command: a, policy_set: x}}, {run: {command: b, policy_set: x}}]}",
    ] {
        let text = format!("workflows: {{w: {{{stage}}}}}");
        for problem in parse(&text, FileVersion::Three)
            .expect_err(stage)
            .problems()
        {
            writeln!(told, "{} => {}", problem.what, problem.help).unwrap();
        }
    }
    insta::assert_snapshot!(told, @"
    `policy_set` has no meaning in the stage `plan` => remove it, or move the step into the stage `policy_check`
    `policy_set` has no meaning in the stage `apply` => remove it, or move the step into the stage `policy_check`
    two steps name the policy set `x` => let one step check the set: join the commands with `&&`
    ");
}
