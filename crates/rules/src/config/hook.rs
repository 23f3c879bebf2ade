//! Hooks: commands that the administrator runs before or after a command on a pull (reference 5.3, 6.9).

use super::workflow::{SHELL_ARGS, Shell, read_command, read_shell};
use super::yaml::{
    DocumentedKey, Fields, FileReader, KeyShape, Located, MappingKeys, YamlNode, YamlValue,
    list_of, shown,
};
use crate::model::CommandKind;

/// A shell command that runs once before or after a command on a pull, in the root of the checkout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hook {
    /// Source for the shell.
    pub command: String,
    /// Program that runs the command, with its arguments.
    pub shell: Shell,
    /// Name of the hook in its status. `None` stands for its position in the list.
    pub description: Option<String>,
    /// Commands that the hook runs for. An empty list stands for all commands.
    pub commands: Vec<CommandKind>,
}

impl Hook {
    /// Returns true if the hook runs for the command. A hook for `plan` also runs for a plan that a push triggers.
    pub fn is_for(&self, command: CommandKind) -> bool {
        let is_named = |command| self.commands.contains(&command);
        let is_plan = command == CommandKind::Autoplan && is_named(CommandKind::Plan);
        self.commands.is_empty() || is_named(command) || is_plan
    }
}

/// Keys of a hook.
pub(in crate::config) static HOOK: MappingKeys = MappingKeys::new(
    "a hook",
    &[
        DocumentedKey::new(
            "run",
            KeyShape::Text,
            DocumentedKey::REQUIRED,
            "Command line for the shell.",
            "./generate.sh",
        ),
        DocumentedKey::new(
            "description",
            KeyShape::Text,
            "its place in the list",
            "Description of the hook in its status.",
            "Generate the configuration",
        ),
        DocumentedKey::new(
            "shell",
            KeyShape::Text,
            "`sh`",
            "Shell that runs the command.",
            "bash",
        ),
        SHELL_ARGS,
        DocumentedKey::new(
            "commands",
            KeyShape::Any(&[KeyShape::Text, KeyShape::List(&KeyShape::Text)]),
            "all",
            "Commands for which the hook runs, with commas between them or as a list. `plan` includes the plan of a push, `autoplan` is only that.",
            "'plan, apply'",
        ),
    ],
);

/// Commands of Atlantis that this version does not have. A hook never runs for them.
const ELSEWHERE: [&str; 2] = ["approve_policies", "policy_check"];

/// Reads a list of hooks from an entry of the server's file. Leaves out a hook that names only commands of
/// `ELSEWHERE`.
pub(in crate::config) fn read_hooks(
    reader: &mut FileReader,
    fields: &Fields<'_>,
    key: &str,
) -> Vec<Hook> {
    let nodes = reader.list(fields, key).unwrap_or_default();
    nodes
        .iter()
        .filter_map(|node| read_hook(reader, node))
        .collect()
}

fn read_hook(reader: &mut FileReader, node: &YamlNode) -> Option<Hook> {
    let fields = reader.fields(node, &HOOK)?;
    let shell = read_shell(reader, &fields);
    let description = reader
        .text(&fields, "description")
        .map(|text| text.text.trim().to_owned());
    let commands = read_commands(reader, &fields);
    let command = read_command(reader, node, &fields, "run", "a hook")?;
    let description = description.filter(|text| !text.is_empty());
    Some(Hook {
        command,
        shell,
        description,
        commands: commands?,
    })
}

/// Reads `commands`. Returns `None` if none of the listed commands exists here, so that the hook never runs.
fn read_commands(reader: &mut FileReader, fields: &Fields<'_>) -> Option<Vec<CommandKind>> {
    let Some(node) = fields.get("commands") else {
        return Some(Vec::new());
    };
    let texts: Vec<Located> = list_of(node)
        .iter()
        .filter_map(|item| reader.text_of(item, "an item of `commands`"))
        .collect();
    let is_list = matches!(node.value, YamlValue::List(_));
    let split = |text: &Located| -> Vec<Located> {
        let words = text.text.split(if is_list { '\n' } else { ',' });
        let located = |word: &str| Located {
            place: text.place,
            text: word.trim().to_owned(),
        };
        words
            .map(located)
            .filter(|word| !word.text.is_empty())
            .collect()
    };
    let words: Vec<Located> = texts.iter().flat_map(split).collect();
    let commands: Vec<CommandKind> = words
        .iter()
        .filter_map(|word| read_command_kind(reader, word))
        .collect();
    (words.is_empty() || !commands.is_empty()).then_some(commands)
}

fn read_command_kind(reader: &mut FileReader, word: &Located) -> Option<CommandKind> {
    if let Some(classic) = CommandKind::ALL
        .iter()
        .find(|kind| kind.classic_name() == word.text)
    {
        return Some(*classic);
    }
    let here: Vec<&str> = CommandKind::ALL.iter().map(|kind| kind.as_str()).collect();
    if !here.contains(&word.text.as_str()) && ELSEWHERE.contains(&word.text.as_str()) {
        let sentence = format!(
            "this version has no command `{}`, so the hook never runs for it",
            shown(&word.text)
        );
        reader.warnings.push((word.place.line, sentence));
        return None;
    }
    reader.word_of(word, "a command", &here)
}
