//! Reads the machine-readable form of a plan file (`show -json`) as a stream and keeps only the list of resources.
//! Values of attributes are skipped, so nothing sensitive is ever held.

use std::fmt;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use serde::de::{IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::scratch;
use crate::model::{PlanChanges, PlannedAction, ResourceChange};

/// Maximum number of bytes of `show -json`: a plan of 2,000 small resources has 1.2 MB.
pub(super) const MAX_BYTES: u64 = 64 * 1024 * 1024;

/// List of resources of a plan, or the reason that there is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResourceList {
    /// The tool showed the plan.
    Listed(PlanChanges),
    /// No step has written a plan file.
    NoFile,
    /// The tool does not support `show -json`; Terraform does since 0.12.
    TooOld,
    /// The tool did not show the file, or its output cannot be read. The text is a clause for people.
    Failed(String),
}

/// Reason that `show -json` cannot be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum ShownError {
    #[error(
        "the machine-readable form of the plan has more than {} MiB. Split the project, or plan parts of it with \
         `-target`",
        MAX_BYTES / 1024 / 1024
    )]
    TooLarge,
    #[error("the machine-readable form of the plan has an unexpected format ({0})")]
    Json(#[from] serde_json::Error),
    #[error("cannot read the machine-readable form of the plan from the disk of this server")]
    Disk(#[from] std::io::Error),
}

/// Reads a file with the output of `show -json`.
pub(super) fn read(file: &Path) -> Result<PlanChanges, ShownError> {
    let file = scratch::open(file)?
        .ok_or(std::io::ErrorKind::NotFound)
        .map_err(std::io::Error::from)?;
    if file.metadata()?.len() > MAX_BYTES {
        return Err(ShownError::TooLarge);
    }
    let mut text = BufReader::new(file.take(MAX_BYTES));
    skip_warnings(&mut text)?;
    Ok(parse(text)?)
}

/// Skips warnings that OpenTofu prints about its own configuration on standard output, before the document. The text
/// from the first brace at the start of a line must be the document and nothing else.
fn skip_warnings(text: &mut impl BufRead) -> std::io::Result<()> {
    let mut line = Vec::new();
    while text.fill_buf()?.first().is_some_and(|first| *first != b'{') {
        line.clear();
        text.read_until(b'\n', &mut line)?;
    }
    Ok(())
}

fn parse(json: impl Read) -> serde_json::Result<PlanChanges> {
    let plan: Plan = serde_json::from_reader(json)?;
    let mut resources = plan.resource_changes.0;
    resources.extend(plan.action_invocations.0);
    Ok(PlanChanges {
        resources,
        outputs: plan.output_changes.0,
    })
}

/// The document. `format_version` distinguishes a plan from other JSON.
#[derive(Deserialize)]
struct Plan {
    #[serde(rename = "format_version")]
    _format_version: String,
    #[serde(default)]
    resource_changes: Resources,
    #[serde(default)]
    action_invocations: Invocations,
    #[serde(default)]
    output_changes: Outputs,
}

#[derive(Deserialize)]
struct RawResource {
    address: String,
    #[serde(default)]
    mode: Option<String>,
    #[serde(default)]
    previous_address: Option<String>,
    #[serde(default)]
    deposed: Option<String>,
    change: RawChange,
}

#[derive(Deserialize)]
struct RawChange {
    actions: Vec<String>,
    #[serde(default)]
    importing: Option<IgnoredAny>,
}

impl RawResource {
    /// Converts to an entry of the list; `None` for resources that the text of the plan does not show either.
    fn entry(self) -> Option<ResourceChange> {
        let imported = self.change.importing.is_some();
        let words: Vec<&str> = self.change.actions.iter().map(String::as_str).collect();
        let action = match *words {
            ["no-op"] if imported => PlannedAction::Import,
            ["no-op"] if self.previous_address.is_some() => PlannedAction::Move,
            ["no-op"] => return None,
            // Data sources leave the state without a line in the text of the plan.
            ["delete"] if self.mode.as_deref() == Some("data") => return None,
            ["delete"] => PlannedAction::Destroy,
            ["delete", "create"] | ["create", "delete"] => PlannedAction::Replace,
            ["forget"] => PlannedAction::Forget,
            ["create", "forget"] | ["forget", "create"] => PlannedAction::ReplaceForgotten,
            ["update"] => PlannedAction::Update,
            ["create"] => PlannedAction::Create,
            ["read"] => PlannedAction::Read,
            _ => PlannedAction::Unknown,
        };
        let Self {
            address,
            deposed,
            previous_address: previous,
            ..
        } = self;
        Some(ResourceChange {
            address,
            deposed,
            previous,
            action,
            imported,
        })
    }
}

#[derive(Deserialize)]
struct RawInvocation {
    address: String,
}

/// Entries of `resource_changes` that have an effect. Other entries are dropped while streaming.
#[derive(Default)]
struct Resources(Vec<ResourceChange>);

/// Entries of `action_invocations`, each with the action `Invoke`.
#[derive(Default)]
struct Invocations(Vec<ResourceChange>);

/// Number of entries in `output_changes` other than `no-op`.
#[derive(Default)]
struct Outputs(u32);

impl<'de> Deserialize<'de> for Resources {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer
            .deserialize_any(EntryVisitor(RawResource::entry))
            .map(Self)
    }
}

impl<'de> Deserialize<'de> for Invocations {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let entry = |raw: RawInvocation| {
            let (address, action) = (raw.address, PlannedAction::Invoke);
            Some(ResourceChange {
                address,
                deposed: None,
                previous: None,
                action,
                imported: false,
            })
        };
        deserializer.deserialize_any(EntryVisitor(entry)).map(Self)
    }
}

impl<'de> Deserialize<'de> for Outputs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(CountOutputs).map(Self)
    }
}

/// Visitor that reads a list and keeps the result of the function for each entry.
struct EntryVisitor<R>(fn(R) -> Option<ResourceChange>);

impl<'de, R: Deserialize<'de>> Visitor<'de> for EntryVisitor<R> {
    type Value = Vec<ResourceChange>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of changes")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Vec::new())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut kept = Vec::new();
        while let Some(raw) = list.next_element::<R>()? {
            kept.extend(self.0(raw));
        }
        Ok(kept)
    }
}

struct CountOutputs;

impl<'de> Visitor<'de> for CountOutputs {
    type Value = u32;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("changes of outputs by name")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(0)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut outputs: A) -> Result<Self::Value, A::Error> {
        let mut changes = 0_u32;
        while let Some((_, change)) = outputs.next_entry::<IgnoredAny, RawChange>()? {
            changes = changes.saturating_add(u32::from(change.actions != ["no-op"]));
        }
        Ok(changes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::plan_output::disagreement;

    /// Plan of Terraform 1.11.4, shortened.
    const PLAN: &str = r#"{"format_version":"1.2","planned_values":{"root_module":{"x":[[["secret"]]]}},
        "resource_drift":[{"address":"terraform_data.drift","change":{"actions":["update"]}}],
        "resource_changes":[
          {"address":"data.a.b","mode":"data","change":{"actions":["read"]}},
          {"address":"data.a.c","mode":"data","change":{"actions":["delete"]}},
          {"address":"t.cbd","mode":"managed","change":{"actions":["create","delete"],"before":{"secret":"hunter2"}}},
          {"address":"t.rep","change":{"actions":["delete","create"]}},
          {"address":"t.same","change":{"actions":["no-op"]}},
          {"address":"t.each[\"a\"]","deposed":"07a1","change":{"actions":["delete"]}},
          {"address":"t.forget","change":{"actions":["forget"]}},
          {"address":"t.imp","change":{"actions":["no-op"],"importing":{"id":"hunter2"}}},
          {"address":"t.imp2","change":{"actions":["update"],"importing":{"id":"b"}}},
          {"address":"t.mv2","previous_address":"t.mv","change":{"actions":["no-op"]}},
          {"address":"t.new","change":{"actions":["create"],"importing":null}},
          {"address":"t.odd","change":{"actions":["dance"]}}],
        "action_invocations":[{"address":"action.a.b","type":"a"}],
        "output_changes":{"o":{"actions":["update"]},"p":{"actions":["no-op"]}},"errored":false}"#;

    #[test]
    fn the_list_has_what_the_text_shows_and_no_values() {
        let changes = parse(PLAN.as_bytes()).unwrap();
        let lines: Vec<String> = changes
            .resources
            .iter()
            .map(|change| {
                format!(
                    "{} {} {}",
                    change.action.verb(),
                    change.address,
                    change.imported
                )
            })
            .collect();
        assert_eq!(
            lines,
            [
                "read data.a.b false",
                "replace t.cbd false",
                "replace t.rep false",
                "destroy t.each[\"a\"] false",
                "forget t.forget false",
                "import t.imp true",
                "update t.imp2 true",
                "move t.mv2 false",
                "create t.new false",
                "change in an unknown way t.odd false",
                "invoke action.a.b false",
            ]
        );
        assert_eq!(changes.outputs, 1);
        assert_eq!(
            changes.counts().to_string(),
            "Plan: 2 to import, 3 to add, 1 to change, 3 to destroy, 1 to forget."
        );
        assert!(!format!("{changes:?}").contains("hunter2"));
    }

    #[test]
    fn what_is_no_plan_is_not_read_as_an_empty_one() {
        for json in [
            "",
            "{}",
            "[]",
            "null",
            "{\"resource_changes\":[]}",
            "{\"format_version\":\"1.2\"} x",
            "a plan",
        ] {
            assert!(parse(json.as_bytes()).is_err(), "{json}");
        }
        let twice = r#"{"format_version":"1.2","resource_changes":[],"resource_changes":[]}"#;
        assert!(parse(twice.as_bytes()).is_err());
        let empty = r#"{"format_version":"1.2","resource_changes":null,"output_changes":null}"#;
        assert!(parse(empty.as_bytes()).unwrap().is_empty());
    }

    /// The fixtures are the output of the tools for plans of every kind, without progress and values: `plan
    /// -no-color` (or `-json`) and `show -json`.
    #[test]
    fn the_text_of_every_tool_agrees_with_its_file() {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/plans");
        let mut names = Vec::new();
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "txt") {
                let name = path.file_stem().unwrap().to_string_lossy().into_owned();
                let text = std::fs::read_to_string(&path).unwrap();
                let changes = read(&path.with_extension("json")).unwrap();
                assert_eq!(disagreement(&text, &changes), None, "{name}");
                for lost in changes
                    .resources
                    .iter()
                    .filter(|change| change.action.is_marked())
                {
                    let without = PlanChanges {
                        resources: changes
                            .resources
                            .iter()
                            .filter(|other| *other != lost)
                            .cloned()
                            .collect(),
                        ..changes.clone()
                    };
                    let hides =
                        lost.action != PlannedAction::Forget || text.contains(" to forget.");
                    assert_eq!(
                        disagreement(&text, &without).is_some(),
                        hides,
                        "{name} without {}",
                        lost.address
                    );
                }
                names.push(name);
            }
        }
        assert!(names.len() > 25, "{names:?}");
    }

    #[test]
    fn a_warning_before_the_document_is_no_part_of_it() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let warning = "\nWarning: Unable to open CLI configuration file\n\nIt does not exist.\n";
        for (before, is_read) in [
            ("", true),
            (warning, true),
            ("{\"format_version\":\"1.2\"}\n", false),
            ("{}\n", false),
        ] {
            std::fs::write(file.path(), format!("{before}{PLAN}")).unwrap();
            assert_eq!(read(file.path()).is_ok(), is_read, "{before}");
        }
        std::fs::write(file.path(), warning).unwrap();
        assert!(read(file.path()).is_err());
    }

    #[test]
    fn a_form_that_is_too_large_is_not_read() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(MAX_BYTES + 1).unwrap();
        assert_eq!(
            read(file.path()).unwrap_err().to_string(),
            "the machine-readable form of the plan has more than 64 MiB. Split the project, or plan parts of it with \
             `-target`"
        );
    }
}
