//! Reads one step: a word, or a mapping with one key (reference 6.2).

use super::keys::{BUILTIN, ENV, MULTIENV, RUN, STEP};
use super::{Builtin, EnvStep, EnvValue, MultienvStep, RunStep, Shell, Step, output};
use crate::config::yaml::{
    Fields, FilePosition, FileReader, Located, YamlNode, YamlValue, quoted, shown,
};

const RUN_HELP: &str = "write `run: COMMAND`, or `run: {command: COMMAND}` with its other keys";
const ENV_HELP: &str = "write `env: {name: NAME, value: VALUE}`, or `command` in place of `value`";
const MULTIENV_HELP: &str = "write `multienv: COMMAND`; the command prints `NAME=value,…`";

/// Reads a step. Returns `None` if the node is not a step.
pub(super) fn read(reader: &mut FileReader, node: &YamlNode) -> Option<Step> {
    match &node.value {
        YamlValue::Scalar(_, word) => read_word(reader, node.place, word),
        YamlValue::Map(entries) => match entries.as_slice() {
            [(key, value)] => read_entry(reader, key, value),
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
    let help = match word.trim() {
        "run" => RUN_HELP.to_owned(),
        "env" => ENV_HELP.to_owned(),
        "multienv" => MULTIENV_HELP.to_owned(),
        word => help_for(reader, word, Builtin::ALL.iter().map(|step| step.as_str())),
    };
    let what = match word.trim() {
        word @ ("run" | "env" | "multienv") => format!("`{word}` needs a value"),
        word => format!("`{}` is not a step", shown(word)),
    };
    reader.problem(place, what, help);
    None
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
    let help = match keys().find(|key| matches!(*key, "run" | "env" | "multienv")) {
        Some("env") => ENV_HELP.to_owned(),
        Some(key) if keys().any(|other| other != key && STEP.names().all(|name| name != other)) => {
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

fn read_entry(reader: &mut FileReader, key: &Located, value: &YamlNode) -> Option<Step> {
    match key.text.as_str() {
        "run" => read_run(reader, key, value).map(Step::Run),
        "env" => read_env(reader, value).map(Step::Env),
        "multienv" => read_multienv(reader, key, value).map(Step::Multienv),
        word => {
            if let Ok(step) = word.parse() {
                return read_builtin(reader, step, value);
            }
            let help = help_for(reader, word, STEP.names());
            reader.problem(key.place, format!("`{}` is not a step", shown(word)), help);
            None
        }
    }
}

fn read_builtin(reader: &mut FileReader, step: Builtin, value: &YamlNode) -> Option<Step> {
    if value.value == YamlValue::Null {
        return Some(Step::Builtin {
            step,
            extra_args: Vec::new(),
        });
    }
    if !matches!(value.value, YamlValue::Map(_)) {
        let help = format!("write `{step}: {{extra_args: […]}}`, or `{step}` alone");
        reader.problem(value.place, format!("`{step}` takes a mapping"), help);
        return None;
    }
    let fields = reader.fields(value, &BUILTIN)?;
    let args = reader.texts(&fields, "extra_args").unwrap_or_default();
    let extra_args = args
        .iter()
        .filter_map(|arg| without_nul(reader, arg))
        .collect();
    Some(Step::Builtin { step, extra_args })
}

fn read_run(reader: &mut FileReader, key: &Located, value: &YamlNode) -> Option<RunStep> {
    let YamlValue::Map(_) = value.value else {
        let command = read_source(reader, key, value, RUN_HELP)?;
        return Some(RunStep {
            command,
            shell: Shell::default(),
            output: Vec::new(),
        });
    };
    let fields = reader.fields(value, &RUN)?;
    let (shell, output) = (read_shell(reader, &fields), output::read(reader, &fields));
    let command = read_command(reader, value, &fields, "command", "`run`")?;
    Some(RunStep {
        command,
        shell,
        output,
    })
}

fn read_multienv(reader: &mut FileReader, key: &Located, value: &YamlNode) -> Option<MultienvStep> {
    let YamlValue::Map(_) = value.value else {
        let command = read_source(reader, key, value, MULTIENV_HELP)?;
        return Some(MultienvStep {
            command,
            shell: Shell::default(),
            is_shown: true,
        });
    };
    let fields = reader.fields(value, &MULTIENV)?;
    let shell = read_shell(reader, &fields);
    let output: Option<String> = reader.word(&fields, "output", &["show", "hide"]);
    let command = read_command(reader, value, &fields, "command", "`multienv`")?;
    Some(MultienvStep {
        command,
        shell,
        is_shown: output.as_deref() != Some("hide"),
    })
}

/// Reads the short form, which is only a command.
fn read_source(
    reader: &mut FileReader,
    key: &Located,
    value: &YamlNode,
    help: &str,
) -> Option<String> {
    if value.value == YamlValue::Null {
        reader.problem(key.place, format!("`{}` has no command", key.text), help);
        return None;
    }
    let text = reader.text_of(value, &format!("`{}`", key.text))?;
    check_source(reader, &text, &format!("`{}`", key.text))
}

/// Reads the command from a mapping that needs one. `of` names the mapping in messages.
pub(in crate::config) fn read_command(
    reader: &mut FileReader,
    node: &YamlNode,
    fields: &Fields<'_>,
    key: &str,
    of: &str,
) -> Option<String> {
    if fields.get(key).is_none() {
        reader.problem(
            node.place,
            format!("{of} has no `{key}`"),
            format!("write `{key}:` and the command to run"),
        );
        return None;
    }
    let text = reader.text(fields, key)?;
    check_source(reader, &text, &format!("`{key}` of {of}"))
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
pub(in crate::config) fn read_shell(reader: &mut FileReader, fields: &Fields<'_>) -> Shell {
    let (program, args) = (reader.text(fields, "shell"), read_args(reader, fields));
    let default = Shell::default();
    match (program, args) {
        (None, Some(_)) => {
            let place = fields.place("shellArgs").expect("it has arguments");
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

fn read_args(reader: &mut FileReader, fields: &Fields<'_>) -> Option<Vec<String>> {
    let node = fields.get("shellArgs")?;
    if let YamlValue::Scalar(_, text) = &node.value {
        let text = without_nul(
            reader,
            &Located {
                place: node.place,
                text: text.clone(),
            },
        )?;
        return Some(text.split_whitespace().map(str::to_owned).collect());
    }
    if !matches!(node.value, YamlValue::List(_)) {
        reader.wrong_kind(node, "`shellArgs`", "a text or a list");
        return None;
    }
    let texts = reader.texts(fields, "shellArgs")?;
    Some(
        texts
            .iter()
            .filter_map(|text| without_nul(reader, text))
            .collect(),
    )
}

fn read_env(reader: &mut FileReader, node: &YamlNode) -> Option<EnvStep> {
    if !matches!(node.value, YamlValue::Map(_)) {
        reader.problem(node.place, "`env` takes a mapping".to_owned(), ENV_HELP);
        return None;
    }
    let fields = reader.fields(node, &ENV)?;
    let name = read_name(reader, node, &fields);
    let value = read_value(reader, node, &fields);
    Some(EnvStep {
        name: name?,
        value: value?,
    })
}

fn read_name(reader: &mut FileReader, node: &YamlNode, fields: &Fields<'_>) -> Option<String> {
    if fields.get("name").is_none() {
        reader.problem(node.place, "`env` has no `name`".to_owned(), ENV_HELP);
    }
    let name = reader.text(fields, "name")?;
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

fn read_value(reader: &mut FileReader, node: &YamlNode, fields: &Fields<'_>) -> Option<EnvValue> {
    let shell = read_shell(reader, fields);
    match (fields.get("value"), fields.get("command")) {
        (Some(_), None) => {
            if let Some(place) = fields.place("shell") {
                reader.problem(
                    place,
                    "`shell` needs `command`".to_owned(),
                    "remove it: a `value` is not run",
                );
            }
            let text = reader.text(fields, "value")?;
            without_nul(reader, &text).map(EnvValue::Literal)
        }
        (None, Some(_)) => {
            let command = read_command(reader, node, fields, "command", "`env`")?;
            Some(EnvValue::Printed { command, shell })
        }
        (Some(_), Some(_)) => {
            reader.problem(
                node.place,
                "`env` has both `value` and `command`".to_owned(),
                "keep one of the two",
            );
            None
        }
        (None, None) => {
            let what = "`env` has neither `value` nor `command`".to_owned();
            reader.problem(
                node.place,
                what,
                "write one of them; for an empty text, write `value: ''`",
            );
            None
        }
    }
}
