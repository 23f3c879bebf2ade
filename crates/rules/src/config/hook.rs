//! Hooks: commands that the administrator runs before or after a command on a pull (reference 5.3, 6.9).

use super::workflow::{SHELL, SHELL_ARGS, Shell, read_command, read_shell};
use super::yaml::{Field, FileReader, KeyDoc, Located, OneOrMany, YamlNode, mapping};
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

mapping! {
    /// Keys of a hook.
    pub(in crate::config) struct HookMapping("a hook") {
        run: Located = KeyDoc {
            default: KeyDoc::REQUIRED,
            meaning: "Command line for the shell.",
            example: "./generate.sh",
        },
        description: Located = KeyDoc {
            default: "its place in the list",
            meaning: "Description of the hook in its status.",
            example: "Generate the configuration",
        },
        shell: Located = SHELL,
        shell_args as "shellArgs": OneOrMany<Located> = SHELL_ARGS,
        commands: OneOrMany<Located> = KeyDoc {
            default: "all",
            meaning: "Commands for which the hook runs, with commas between them or as a list. `plan` includes the plan of \
                      a push, `autoplan` is only that.",
            example: "'plan, apply'",
        },
    }
}

/// A command that Atlantis knows, although no comment can have it and no hook runs for it: the check of policies is a
/// part of a plan.
const PART_OF_PLAN: &str = "policy_check";

/// Reads a list of hooks from an entry of the server's file. Leaves out a hook that names only `policy_check`.
pub(in crate::config) fn read_hooks(
    reader: &mut FileReader,
    hooks: &Field<Vec<HookMapping>>,
) -> Vec<Hook> {
    let nodes = hooks.items(reader).unwrap_or_default();
    nodes
        .iter()
        .filter_map(|node| read_hook(reader, node))
        .collect()
}

fn read_hook(reader: &mut FileReader, node: &YamlNode) -> Option<Hook> {
    let hook: HookMapping = reader.mapping(node)?;
    let shell = read_shell(reader, &hook.shell, &hook.shell_args);
    let description = hook
        .description
        .read(reader)
        .map(|text| text.text.trim().to_owned());
    let commands = read_commands(reader, &hook.commands);
    let command = read_command(reader, &hook, &hook.run)?;
    let description = description.filter(|text| !text.is_empty());
    Some(Hook {
        command,
        shell,
        description,
        commands: commands?,
    })
}

/// Reads `commands`. Returns `None` if the hook never runs, because the list has no command of a comment or push.
fn read_commands(
    reader: &mut FileReader,
    commands: &Field<OneOrMany<Located>>,
) -> Option<Vec<CommandKind>> {
    let words: Vec<Located> = match commands.read(reader) {
        None => Vec::new(),
        Some(OneOrMany::Many(words)) => words,
        Some(OneOrMany::One(Located { place, text })) => {
            let located = |word: &str| Located {
                place,
                text: word.to_owned(),
            };
            text.split(',').map(located).collect()
        }
    };
    let words: Vec<Located> = words
        .into_iter()
        .map(|word| Located {
            text: word.text.trim().to_owned(),
            ..word
        })
        .filter(|word| !word.text.is_empty())
        .collect();
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
    if word.text == PART_OF_PLAN {
        let sentence = format!(
            "`{PART_OF_PLAN}` is a part of every plan and not a command, so the hook never runs for it: write `plan`"
        );
        reader.warnings.push((word.place.line, sentence));
        return None;
    }
    let here: Vec<&str> = CommandKind::ALL.iter().map(|kind| kind.as_str()).collect();
    reader.word_of(word, "a command", &here)
}
