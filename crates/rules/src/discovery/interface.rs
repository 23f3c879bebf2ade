//! Reads the inputs and outputs of a module: the `variable` and `output` blocks in the code of its directory.
//!
//! Values are shown as they are written, because nothing is evaluated. Files that do not parse are named, and the others
//! count all the same: Terraform reports the errors.

use hcl_edit::Decorate as _;
use hcl_edit::structure::{Attribute, Body};

use super::code::{self, CodeBudget, UnreadFile};
use crate::model::{Distribution, RepoPath};

/// Maximum number of inputs and of outputs that are kept; nobody writes that many.
const MOST: usize = 300;

/// Maximum number of characters of a value or description. The rest is cut off.
const MAX_CHARS: usize = 1_000;

/// Maximum number of files that are named because they cannot be read.
const MOST_UNREAD: usize = 20;

/// Input of a module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModuleInput {
    /// Name of the variable.
    pub name: String,
    /// Type as it is written. `None`: any.
    pub value_type: Option<String>,
    /// Default as it is written. `None`: a value is required.
    pub default: Option<String>,
    /// Description by the author.
    pub description: Option<String>,
    /// True if tools do not show the value.
    pub is_sensitive: bool,
}

/// Output of a module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModuleOutput {
    /// Name of the output.
    pub name: String,
    /// Description by the author.
    pub description: Option<String>,
    /// True if tools do not show the value.
    pub is_sensitive: bool,
}

/// Inputs and outputs of a module, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModuleInterface {
    /// Inputs: first the required ones.
    pub inputs: Vec<ModuleInput>,
    /// Outputs, which other code may use.
    pub outputs: Vec<ModuleOutput>,
    /// Files that cannot be read, so that something may be missing. Files in JSON are among them.
    pub unread: Vec<UnreadFile>,
}

/// Returns the inputs and outputs of a module. `files` are the files directly in its directory, sorted. `read` returns
/// the text of one of them, and `None` if it cannot be read. Files that are too large are skipped.
pub fn module_interface(
    files: &[RepoPath],
    read: &dyn Fn(&RepoPath) -> Option<String>,
) -> ModuleInterface {
    let mut budget = CodeBudget::of_dir();
    let mut found = ModuleInterface::default();
    for file in code::native(files, Distribution::OpenTofu) {
        // Most files of a module have neither word.
        let text = budget.text_with(&["variable", "output"], || read(file));
        if let Some(text) = text {
            match code::parse(file, code::unmarked(&text)) {
                Ok(body) => found.add(&body),
                Err(unread) => found.unread.push(unread),
            }
        }
    }
    let in_json = code::json(files, Distribution::OpenTofu);
    found.unread.extend(in_json.map(|file| UnreadFile {
        file: file.clone(),
        line: 1,
        what: "JSON is not read for this page".to_owned(),
    }));
    found.inputs.sort_by(|one, other| {
        (one.default.is_some(), &one.name).cmp(&(other.default.is_some(), &other.name))
    });
    found
        .outputs
        .sort_by(|one, other| one.name.cmp(&other.name));
    found.unread.truncate(MOST_UNREAD);
    found.inputs.truncate(MOST);
    found.outputs.truncate(MOST);
    found
}

impl ModuleInterface {
    /// Names files that nobody has read because they are too large.
    pub fn add_too_large(&mut self, files: Vec<RepoPath>) {
        let unread = files.into_iter().map(|file| UnreadFile {
            file,
            line: 1,
            what: "the file is too large for this page".to_owned(),
        });
        self.unread.extend(unread);
        self.unread.truncate(MOST_UNREAD);
    }

    fn add(&mut self, body: &Body) {
        for block in body.get_blocks("variable") {
            let Some(name) = block.labels.first() else {
                continue;
            };
            let body = &block.body;
            self.inputs.push(ModuleInput {
                name: shortened(name.as_str()),
                value_type: body.get_attribute("type").map(written),
                default: body.get_attribute("default").map(written),
                description: text_of(body, "description"),
                is_sensitive: is_true(body, "sensitive"),
            });
        }
        for block in body.get_blocks("output") {
            let Some(name) = block.labels.first() else {
                continue;
            };
            self.outputs.push(ModuleOutput {
                name: shortened(name.as_str()),
                description: text_of(&block.body, "description"),
                is_sensitive: is_true(&block.body, "sensitive"),
            });
        }
    }
}

/// Returns a value as it is written.
fn written(attribute: &Attribute) -> String {
    let mut value = attribute.value.clone();
    value.decor_mut().clear();
    shortened(&value.to_string())
}

fn text_of(body: &Body, name: &str) -> Option<String> {
    let value = &body.get_attribute(name)?.value;
    let text = match value.as_heredoc_template() {
        Some(heredoc) => heredoc.template.to_string(),
        None => value.as_str()?.to_owned(),
    };
    Some(shortened(text.trim()))
}

fn is_true(body: &Body, name: &str) -> bool {
    let attribute = body.get_attribute(name);
    attribute.is_some_and(|attribute| attribute.value.as_bool() == Some(true))
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(MAX_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use insta::assert_debug_snapshot;

    use super::*;

    fn interface(files: &[(&str, &str)]) -> ModuleInterface {
        let paths: Vec<RepoPath> = files
            .iter()
            .map(|(path, _)| RepoPath::new(path).unwrap())
            .collect();
        module_interface(&paths, &|path| {
            let found = files.iter().find(|(name, _)| *name == path.as_str());
            found.map(|(_, text)| (*text).to_owned())
        })
    }

    #[test]
    fn inputs_and_outputs_are_shown_as_they_are_written() {
        let found = interface(&[
            (
                "main.tf",
                "resource \"x\" \"y\" {\n  output = 1\n}\noutput \"id\" {\n  value = 1\n}\n",
            ),
            (
                "variables.tf",
                "variable \"zones\" {\n  type = map(object({\n    name = string\n  }))\n  default = {} # none\n}\n\n\
                 variable \"cidr\" {\n  description = <<-EOT\n    Addresses of the network.\n  EOT\n  type = string\n  \
                 sensitive = true\n}\n",
            ),
        ]);
        assert_debug_snapshot!(found, @r#"
        ModuleInterface {
            inputs: [
                ModuleInput {
                    name: "cidr",
                    value_type: Some(
                        "string",
                    ),
                    default: None,
                    description: Some(
                        "Addresses of the network.",
                    ),
                    is_sensitive: true,
                },
                ModuleInput {
                    name: "zones",
                    value_type: Some(
                        "map(object({\n    name = string\n  }))",
                    ),
                    default: Some(
                        "{}",
                    ),
                    description: None,
                    is_sensitive: false,
                },
            ],
            outputs: [
                ModuleOutput {
                    name: "id",
                    description: None,
                    is_sensitive: false,
                },
            ],
            unread: [],
        }
        "#);
    }

    #[test]
    fn a_file_that_does_not_parse_is_named() {
        let found = interface(&[
            ("a.tf", "variable \"a\" {"),
            ("b.tf", "output \"b\" {}"),
            ("c.tf.json", "{}"),
        ]);
        let unread: Vec<_> = found.unread.iter().map(|file| file.file.as_str()).collect();
        assert_eq!(unread, ["a.tf", "c.tf.json"]);
        assert_eq!(found.outputs.len(), 1);
    }

    #[test]
    fn hostile_code_is_cut_off() {
        let long = format!(
            "variable \"a\" {{\n  default = \"{}\"\n}}\n",
            "é".repeat(5_000)
        );
        let found = interface(&[("a.tf", &long)]);
        assert_eq!(
            found.inputs[0].default.as_ref().unwrap().chars().count(),
            MAX_CHARS + 1
        );
        let many: Vec<String> = (0..2_000)
            .map(|n| format!("output \"o{n}\" {{}}\n"))
            .collect();
        assert_eq!(interface(&[("a.tf", &many.concat())]).outputs.len(), MOST);
        let nested = format!(
            "variable \"a\" {{\n default = {}{} }}",
            "[".repeat(100_000),
            "]".repeat(100_000)
        );
        assert_eq!(interface(&[("a.tf", &nested)]).unread.len(), 1);
        let names: Vec<String> = (0..100).map(|n| format!("{n:03}.tf.json")).collect();
        let files: Vec<(&str, &str)> = names.iter().map(|name| (&**name, "{}")).collect();
        assert_eq!(interface(&files).unread.len(), MOST_UNREAD);
    }
}
