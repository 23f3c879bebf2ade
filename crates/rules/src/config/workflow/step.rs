//! Reads one step: a word, or a mapping with one key (reference 6.2).

use lockkeeper_policy::sets::SetName;

use super::keys::{BuiltinMapping, EnvMapping, MultienvMapping, RunMapping, StepMapping};
use super::{Builtin, EnvStep, EnvValue, MultienvStep, RunStep, Shell, Step, output};
use crate::config::yaml::{
    self, Field, FilePosition, FileReader, FromYaml, KeyShape, Located, Mapping, OneOrMany, Shaped,
    TextOr, Vocabulary, YamlNode, YamlValue, quoted, shown, words,
};
use crate::model::text_enum;

const RUN_HELP: &str = "write `run: COMMAND`, or `run: {command: COMMAND}` with its other keys";
const ENV_HELP: &str = "write `env: {name: NAME, value: VALUE}`, or `command` in place of `value`";
const MULTIENV_HELP: &str = "write `multienv: COMMAND`; the command prints `NAME=value,…`";

text_enum! {
    /// Values of `output` of a `multienv` step.
    pub(in crate::config) enum NamesDisplay {
        /// Comments show the names of the variables.
        Show = "show",
        /// Comments do not show them.
        Hide = "hide",
    }
}

impl Vocabulary for NamesDisplay {
    fn words() -> Vec<&'static str> {
        words(Self::ALL, Self::as_str)
    }
}

fn builtins() -> Vec<&'static str> {
    words(Builtin::ALL, Builtin::as_str)
}

impl Shaped for Step {
    const SHAPE: KeyShape = KeyShape::Any(&[KeyShape::Words(builtins), StepMapping::SHAPE]);
}

/// Reads a step. Returns `None` if the node is not a step.
pub(super) fn read(reader: &mut FileReader, node: &YamlNode) -> Option<Step> {
    match &node.value {
        YamlValue::Scalar(_, word) => read_word(reader, node.place, word),
        YamlValue::Map(entries) => match &**entries {
            [(key, _)] => read_entry(reader, key, &yaml::as_written(node)?),
            entries => {
                refuse_entries(reader, node.place, entries);
                None
            }
        },
        YamlValue::Null | YamlValue::List(_) => {
            reader.wrong_kind(node, "a step", "a word or a mapping");
            None
        }
    }
}

fn read_word(reader: &mut FileReader, place: FilePosition, word: &str) -> Option<Step> {
    if let Ok(step) = word.trim().parse() {
        return Some(Step::Builtin {
            step,
            extra_args: Vec::new(),
        });
    }
    let word = word.trim();
    let (what, help) = match form_of(word) {
        Some(form) => (format!("`{word}` needs a value"), form.to_owned()),
        None => (
            format!("`{}` is not a step", shown(word)),
            help_for(reader, word, builtins().into_iter()),
        ),
    };
    reader.problem(place, what, help);
    None
}

/// Returns the form of a step that needs a value, by its key.
fn form_of(word: &str) -> Option<&'static str> {
    let StepMapping {
        run, env, multienv, ..
    } = yaml::without_entries();
    let forms = [
        (run.name(), RUN_HELP),
        (env.name(), ENV_HELP),
        (multienv.name(), MULTIENV_HELP),
    ];
    forms
        .into_iter()
        .find(|(key, _)| *key == word)
        .map(|(_, form)| form)
}

fn help_for(
    reader: &FileReader,
    word: &str,
    known: impl Iterator<Item = &'static str> + Clone,
) -> String {
    reader.nearest(word, known.clone()).map_or_else(
        || {
            format!(
                "write `run: …` for your own command; the other steps are {}",
                quoted(known)
            )
        },
        |meant| format!("did you mean `{meant}`?"),
    )
}

fn refuse_entries(reader: &mut FileReader, place: FilePosition, entries: &[(Located, YamlNode)]) {
    let keys = || entries.iter().map(|(key, _)| key.text.as_str());
    let is_known = |key: &str| StepMapping::KEYS.find(key).is_some();
    let help = match keys().find(|key| form_of(key).is_some()) {
        Some(key) if form_of(key) == Some(ENV_HELP) => ENV_HELP.to_owned(),
        Some(key) if keys().any(|other| !is_known(other)) => {
            format!("write the other keys into a mapping: `{key}: {{command: …}}`")
        }
        Some(_) | None => "begin every step with its own `-`".to_owned(),
    };
    let what = match entries {
        [] => "a step has no key".to_owned(),
        entries => format!(
            "a step has one key, not {}",
            quoted(entries.iter().map(|(key, _)| shown(&key.text)))
        ),
    };
    reader.problem(place, what, help);
}

fn read_entry(reader: &mut FileReader, key: &Located, step: &StepMapping) -> Option<Step> {
    let builtins = [
        (Builtin::Init, &step.init),
        (Builtin::Plan, &step.plan),
        (Builtin::Show, &step.show),
        (Builtin::PolicyCheck, &step.policy_check),
        (Builtin::Apply, &step.apply),
        (Builtin::Import, &step.import),
        (Builtin::StateRm, &step.state_rm),
    ];
    if let Some((builtin, field)) = builtins
        .into_iter()
        .find(|(_, field)| field.written_at().is_some())
    {
        read_builtin(reader, builtin, field)
    } else if step.run.written_at().is_some() {
        read_run(reader, &step.run).map(Step::Run)
    } else if step.env.written_at().is_some() {
        read_env(reader, key, &step.env).map(Step::Env)
    } else if step.multienv.written_at().is_some() {
        read_multienv(reader, &step.multienv).map(Step::Multienv)
    } else {
        let help = help_for(reader, &key.text, StepMapping::KEYS.names());
        let what = format!("`{}` is not a step", shown(&key.text));
        reader.problem(key.place, what, help);
        None
    }
}

fn read_builtin(
    reader: &mut FileReader,
    step: Builtin,
    field: &Field<BuiltinMapping>,
) -> Option<Step> {
    let Some(node) = field.node() else {
        return Some(Step::Builtin {
            step,
            extra_args: Vec::new(),
        });
    };
    if !matches!(node.value, YamlValue::Map(_)) {
        let help = format!("write `{step}: {{extra_args: […]}}`, or `{step}` alone");
        reader.problem(node.place, format!("`{step}` takes a mapping"), help);
        return None;
    }
    let options = field.read(reader)?;
    let args = options.extra_args.read(reader).unwrap_or_default();
    let extra_args = args
        .iter()
        .filter_map(|arg| without_nul(reader, arg))
        .collect();
    Some(Step::Builtin { step, extra_args })
}

fn read_run(reader: &mut FileReader, field: &Field<TextOr<RunMapping>>) -> Option<RunStep> {
    match read_either(reader, field, RUN_HELP)? {
        TextOr::Text(command) => Some(RunStep {
            command: check_source(reader, &command, &format!("`{}`", field.name()))?,
            shell: Shell::default(),
            output: Vec::new(),
            policy_set: None,
        }),
        TextOr::Mapping(run) => {
            let shell = read_shell(reader, &run.shell, &run.shell_args);
            let output = output::read(reader, &run.output);
            let policy_set = run.policy_set.read(reader);
            let policy_set = policy_set.and_then(|name| read_set_name(reader, &name));
            Some(RunStep {
                command: read_command(reader, &run, &run.command)?,
                shell,
                output,
                policy_set,
            })
        }
    }
}

/// Reads the name of a policy set.
pub(in crate::config) fn read_set_name(reader: &mut FileReader, name: &Located) -> Option<SetName> {
    let refuse = |error| {
        reader.problem(
            name.place,
            format!("{error}: `{}`", shown(&name.text)),
            "use a word such as `network`",
        );
    };
    SetName::parse(&name.text).map_err(refuse).ok()
}

fn read_multienv(
    reader: &mut FileReader,
    field: &Field<TextOr<MultienvMapping>>,
) -> Option<MultienvStep> {
    match read_either(reader, field, MULTIENV_HELP)? {
        TextOr::Text(command) => Some(MultienvStep {
            command: check_source(reader, &command, &format!("`{}`", field.name()))?,
            shell: Shell::default(),
            is_shown: true,
        }),
        TextOr::Mapping(multienv) => {
            let shell = read_shell(reader, &multienv.shell, &multienv.shell_args);
            let output = multienv.output.read(reader);
            Some(MultienvStep {
                command: read_command(reader, &multienv, &multienv.command)?,
                shell,
                is_shown: output != Some(NamesDisplay::Hide),
            })
        }
    }
}

/// Reads the short or the long form of a step with a command.
fn read_either<M: FromYaml>(
    reader: &mut FileReader,
    field: &Field<TextOr<M>>,
    help: &str,
) -> Option<TextOr<M>> {
    if let Some(place) = field.written_at().filter(|_| !field.is_set()) {
        reader.problem(place, format!("`{}` has no command", field.name()), help);
    }
    field.read(reader)
}

/// Reads the required command of a mapping.
pub(in crate::config) fn read_command<M: Mapping>(
    reader: &mut FileReader,
    mapping: &M,
    command: &Field<Located>,
) -> Option<String> {
    let key = command.name();
    let help = format!("write `{key}:` and the command to run");
    let text = reader.required(mapping, command, &help)?;
    check_source(reader, &text, &format!("`{key}` of {}", M::KEYS.of))
}

fn check_source(reader: &mut FileReader, text: &Located, what: &str) -> Option<String> {
    if text.text.trim().is_empty() {
        reader.problem(
            text.place,
            format!("{what} is empty"),
            "write the command to run",
        );
        return None;
    }
    without_nul(reader, text)
}

/// Refuses a zero byte, because no program can receive it in an argument.
fn without_nul(reader: &mut FileReader, text: &Located) -> Option<String> {
    if text.text.contains('\0') {
        let what = format!("`{}` contains a zero byte", shown(&text.text));
        reader.problem(text.place, what, "write `\\\\0` for the two characters");
        return None;
    }
    Some(text.text.clone())
}

/// Reads `shell` and `shellArgs` from a mapping that has a command.
pub(in crate::config) fn read_shell(
    reader: &mut FileReader,
    shell: &Field<Located>,
    shell_args: &Field<OneOrMany<Located>>,
) -> Shell {
    let (program, args) = (shell.read(reader), read_args(reader, shell_args));
    let default = Shell::default();
    match (program, args) {
        (None, Some(_)) => {
            let place = shell_args.place().expect("it has arguments");
            reader.problem(
                place,
                "`shellArgs` needs `shell`".to_owned(),
                "add `shell: sh`",
            );
            default
        }
        (None, None) => default,
        (Some(program), _) if program.text.trim().is_empty() => {
            reader.problem(
                program.place,
                "`shell` is empty".to_owned(),
                "name a program, such as `bash`",
            );
            default
        }
        (Some(program), args) => {
            let program = without_nul(reader, &program).unwrap_or_default();
            Shell {
                program: program.trim().to_owned(),
                args: args.unwrap_or(default.args),
            }
        }
    }
}

fn read_args(reader: &mut FileReader, field: &Field<OneOrMany<Located>>) -> Option<Vec<String>> {
    match field.read(reader)? {
        OneOrMany::One(text) => {
            let text = without_nul(reader, &text)?;
            Some(text.split_whitespace().map(str::to_owned).collect())
        }
        OneOrMany::Many(texts) => Some(
            texts
                .iter()
                .filter_map(|text| without_nul(reader, text))
                .collect(),
        ),
    }
}

fn read_env(reader: &mut FileReader, key: &Located, field: &Field<EnvMapping>) -> Option<EnvStep> {
    let is_mapping = |node: &YamlNode| matches!(node.value, YamlValue::Map(_));
    if !field.node().is_some_and(is_mapping) {
        let place = field.node().map_or(key.place, |node| node.place);
        reader.problem(place, "`env` takes a mapping".to_owned(), ENV_HELP);
        return None;
    }
    let env = field.read(reader)?;
    let name = read_name(reader, &env);
    let value = read_value(reader, &env);
    Some(EnvStep {
        name: name?,
        value: value?,
    })
}

fn read_name(reader: &mut FileReader, env: &EnvMapping) -> Option<String> {
    let name = reader.required(env, &env.name, ENV_HELP)?;
    let is_fine = |text: &str| {
        text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
            && text.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
    };
    if !is_fine(&name.text) {
        let what = format!("`{}` cannot be the name of a variable", shown(&name.text));
        reader.problem(
            name.place,
            what,
            "use letters, digits and `_`, and do not begin with a digit",
        );
        return None;
    }
    Some(name.text)
}

fn read_value(reader: &mut FileReader, env: &EnvMapping) -> Option<EnvValue> {
    let shell = read_shell(reader, &env.shell, &env.shell_args);
    match (env.value.is_set(), env.command.is_set()) {
        (true, false) => {
            if let Some(place) = env.shell.place() {
                reader.problem(
                    place,
                    "`shell` needs `command`".to_owned(),
                    "remove it: a `value` is not run",
                );
            }
            let text = env.value.read(reader)?;
            without_nul(reader, &text).map(EnvValue::Literal)
        }
        (false, true) => {
            let command = read_command(reader, env, &env.command)?;
            Some(EnvValue::Printed { command, shell })
        }
        (true, true) => {
            reader.problem(
                env.place(),
                "`env` has both `value` and `command`".to_owned(),
                "keep one of the two",
            );
            None
        }
        (false, false) => {
            let what = "`env` has neither `value` nor `command`".to_owned();
            reader.problem(
                env.place(),
                what,
                "write one of them; for an empty text, write `value: ''`",
            );
            None
        }
    }
}
