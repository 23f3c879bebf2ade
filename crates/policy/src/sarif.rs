//! Reads SARIF 2.1.0, as checkov, trivy, tflint and others write it.
//!
//! - A result denies if its level is `error`, and is a hint if its level is `warning`, `note` or `none`. A result without a level
//!   takes that of its rule, and denies if there is none: what nobody rated is not harmless.
//! - A result that is suppressed counts like any other. Comments in the code of a pull request suppress results, and its author
//!   must not switch policies off. Waivers on a trusted branch do.
//! - A run that says that it failed, or that has no list of results, was not evaluated. Neither was an empty run of checkov or
//!   trivy, which write the same log if they cannot read their input, and then even succeed.

use std::borrow::Cow;
use std::collections::HashMap;

use percent_encoding::percent_decode_str;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize, Serializer};

use crate::bounded::{Bounded, FirstOf, FirstWithDigest, add_to_digest};
use crate::findings::{
    FindingLevel, FindingPlace, MAX_READ, PolicyFinding, ReadError, input, one_line,
};

/// Name of the second run of tflint, whose results are its own errors.
const ERRORS_OF_TFLINT: &str = "tflint-errors";
/// Maximum number of runs of tools in one log.
const MAX_RUNS: usize = 20;
/// Maximum number of invocations of a run, and of notifications of an invocation.
const MAX_NOTES: usize = 1000;
/// Maximum number of arguments of a message.
const MAX_ARGUMENTS: usize = 20;
/// Maximum size of a message with its arguments, in bytes, because a placeholder can be repeated. The rest has only a digest.
const MAX_FILLED: usize = 64 << 10;

#[derive(Deserialize)]
struct SarifLog {
    version: String,
    runs: Bounded<SarifRun, MAX_RUNS>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SarifRun {
    tool: SarifTool,
    results: Option<Bounded<SarifResult, MAX_READ>>,
    invocations: Option<Bounded<SarifInvocation, MAX_RUNS>>,
    external_property_file_references: Option<SarifExternal>,
}

#[derive(Deserialize)]
struct SarifTool {
    driver: SarifComponent,
    extensions: Option<Bounded<SarifComponent, MAX_RUNS>>,
}

#[derive(Deserialize)]
struct SarifComponent {
    name: Option<String>,
    version: Option<String>,
    /// Key of checkov, whose name can be changed by a flag.
    organization: Option<String>,
    rules: Option<Bounded<SarifRule, MAX_READ>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SarifRule {
    id: String,
    short_description: Option<SarifText>,
    help_uri: Option<String>,
    default_configuration: Option<SarifConfiguration>,
}

#[derive(Deserialize)]
struct SarifText {
    text: Option<String>,
}

#[derive(Deserialize)]
struct SarifConfiguration {
    level: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SarifInvocation {
    execution_successful: Option<bool>,
    tool_execution_notifications: Option<Bounded<SarifNotification, MAX_NOTES>>,
    tool_configuration_notifications: Option<Bounded<SarifNotification, MAX_NOTES>>,
}

#[derive(Deserialize)]
struct SarifNotification {
    level: Option<String>,
    message: Option<SarifText>,
}

/// Parts of a run that are in other files.
#[derive(Deserialize)]
struct SarifExternal {
    results: Option<IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SarifResult {
    rule_id: Option<String>,
    rule_index: Option<i64>,
    rule: Option<SarifRuleReference>,
    level: Option<String>,
    kind: Option<String>,
    baseline_state: Option<String>,
    message: SarifMessage,
    locations: Option<FirstWithDigest<Box<SarifLocation>>>,
    suppressions: Option<FirstOf<SarifSuppression>>,
}

#[derive(Deserialize)]
struct SarifRuleReference {
    id: Option<String>,
    index: Option<i64>,
}

#[derive(Deserialize)]
struct SarifMessage {
    text: Option<String>,
    /// Name of a text of the rule.
    id: Option<String>,
    /// Values for the placeholders of the text.
    arguments: Option<Bounded<String, MAX_ARGUMENTS>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SarifLocation {
    physical_location: Option<SarifPhysicalLocation>,
    logical_locations: Option<FirstWithDigest<SarifLogicalLocation>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SarifPhysicalLocation {
    artifact_location: Option<SarifArtifact>,
    region: Option<SarifRegion>,
}

#[derive(Deserialize)]
struct SarifArtifact {
    uri: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SarifRegion {
    start_line: Option<i64>,
    snippet: Option<SarifText>,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct SarifLogicalLocation {
    fully_qualified_name: Option<String>,
    name: Option<String>,
}

impl SarifLocation {
    /// Returns the address of the file, as the tool writes it.
    fn uri(&self) -> Option<&str> {
        let physical = self.physical_location.as_ref()?;
        physical.artifact_location.as_ref()?.uri.as_deref()
    }

    /// Returns the code at the place.
    fn snippet(&self) -> Option<&str> {
        let region = self.physical_location.as_ref()?.region.as_ref()?;
        region.snippet.as_ref()?.text.as_deref()
    }
}

/// Writes what tells locations apart. The line counts only if there is no resource: it changes with every line above.
impl Serialize for SarifLocation {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let physical = self.physical_location.as_ref();
        let file = self.uri();
        let line = physical.and_then(|place| place.region.as_ref()?.start_line);
        let logical = self.logical_locations.as_ref();
        let resource = logical.and_then(|list| list.first.as_ref());
        let others = logical.and_then(|list| list.others.as_ref());
        let line = line.filter(|_| resource.is_none());
        (file, line, resource, others, self.snippet()).serialize(serializer)
    }
}

#[derive(Deserialize)]
struct SarifSuppression {
    justification: Option<String>,
}

/// Reads a log in the form of SARIF.
pub fn read(text: &str) -> Result<Vec<PolicyFinding>, ReadError> {
    let text = input(text)?;
    let log: SarifLog =
        serde_json::from_str(text).map_err(|error| not_sarif(&error.to_string()))?;
    if log.version != "2.1.0" {
        return Err(not_sarif(&format!("the version is `{}`", log.version)));
    }
    if log.runs.0.is_empty() {
        return Err(ReadError::NotEvaluated(
            "the log has no run of a tool".to_owned(),
        ));
    }
    let mut findings = Vec::new();
    for run in log.runs.0 {
        let tool = one_line(run.tool.driver.name.as_deref().unwrap_or("the tool"), 100);
        check_run(&run, &tool)?;
        let rules = RulesOfRun::new(&run.tool);
        let Some(results) = run.results else {
            return Err(ReadError::NotEvaluated(format!("{tool} wrote no results")));
        };
        let is_trivy = run.tool.driver.name.as_deref() == Some("Trivy");
        if results.0.is_empty() && is_checkov(&run.tool.driver) {
            return Err(ReadError::NotEvaluated(
                "checkov found nothing, and writes the same SARIF if it cannot read its input. Let it count its checks: \
                 `checkov --output junitxml`, and `format: junit` in the policy set"
                    .to_owned(),
            ));
        }
        if results.0.is_empty() && is_trivy {
            return Err(ReadError::NotEvaluated(
                "trivy found nothing, and writes the same SARIF if it cannot read its input. Give it a check that finds \
                 something in each plan (`--config-check`), with the severity LOW"
                    .to_owned(),
            ));
        }
        for result in results.0 {
            if !is_current(&result)? {
                continue;
            }
            if findings.len() == MAX_READ {
                return Err(ReadError::TooMany);
            }
            let rule = rules.of(&result);
            let has_no_code = is_trivy && is_about_plan(&result);
            let mut finding = finding(result, rule)?;
            if has_no_code && let Some(place) = finding.place.take() {
                add_to_digest(&mut finding.other, &place);
            }
            findings.push(finding);
        }
    }
    Ok(findings)
}

/// Returns the tools of a log with their versions, such as `Checkov 3.2.0`, for people. `None` if it names none.
pub fn tools(text: &str) -> Option<String> {
    let log: SarifLog = serde_json::from_str(input(text).ok()?).ok()?;
    let mut tools: Vec<String> = Vec::new();
    for run in log.runs.0 {
        let SarifComponent { name, version, .. } = run.tool.driver;
        let version = version.unwrap_or_default();
        let tool = one_line(&format!("{} {version}", name.unwrap_or_default()), 100);
        if !tool.is_empty() && !tools.contains(&tool) && !tool.starts_with(ERRORS_OF_TFLINT) {
            tools.push(tool);
        }
    }
    (!tools.is_empty()).then(|| tools.join(", "))
}

/// Checks that a run came to its end.
fn check_run(run: &SarifRun, tool: &str) -> Result<(), ReadError> {
    let external = run.external_property_file_references.as_ref();
    if external.is_some_and(|external| external.results.is_some()) {
        return Err(ReadError::NotEvaluated(format!(
            "{tool} wrote its results into another file"
        )));
    }
    for invocation in run.invocations.iter().flat_map(|list| &list.0) {
        let error = [
            &invocation.tool_execution_notifications,
            &invocation.tool_configuration_notifications,
        ]
        .into_iter()
        .flatten()
        .flat_map(|list| &list.0)
        .find(|note| note.level.as_deref() == Some("error"));
        if error.is_some() || invocation.execution_successful == Some(false) {
            let message = error.and_then(|note| note.message.as_ref()?.text.as_deref());
            return Err(failed(tool, message));
        }
    }
    if tool == ERRORS_OF_TFLINT {
        let first = run.results.as_ref().and_then(|results| results.0.first());
        if let Some(result) = first {
            return Err(failed("tflint", result.message.text.as_deref()));
        }
    }
    Ok(())
}

fn is_checkov(driver: &SarifComponent) -> bool {
    driver.name.as_deref() == Some("Checkov")
        || driver.organization.as_deref() == Some("bridgecrew")
}

/// Returns true for a result of trivy about a plan as JSON. trivy writes the plan as code, and its places are in that code, which
/// nobody has.
fn is_about_plan(result: &SarifResult) -> bool {
    let text = result.message.text.as_deref().unwrap_or_default();
    text.lines().nth(1) == Some("Type: terraformplan")
}

fn failed(tool: &str, message: Option<&str>) -> ReadError {
    ReadError::NotEvaluated(match message {
        Some(message) => format!("{tool} failed: {}", one_line(message, 500)),
        None => format!("{tool} failed"),
    })
}

/// Rules of a run by their identifiers, and those of the tool itself by their position.
struct RulesOfRun<'a> {
    by_id: HashMap<&'a str, &'a SarifRule>,
    of_driver: &'a [SarifRule],
}

impl<'a> RulesOfRun<'a> {
    fn new(tool: &'a SarifTool) -> Self {
        let of_driver = rules_of(&tool.driver);
        let extensions = tool.extensions.iter().flat_map(|list| &list.0);
        let mut by_id = HashMap::new();
        for rule in of_driver.iter().chain(extensions.flat_map(rules_of)) {
            by_id.entry(rule.id.as_str()).or_insert(rule);
        }
        Self { by_id, of_driver }
    }

    fn of(&self, result: &SarifResult) -> Option<&'a SarifRule> {
        let reference = result.rule.as_ref();
        let id = result
            .rule_id
            .as_deref()
            .or_else(|| reference?.id.as_deref());
        if let Some(id) = id {
            return self.by_id.get(id).copied();
        }
        let index = result.rule_index.or_else(|| reference?.index)?;
        self.of_driver.get(usize::try_from(index).ok()?)
    }
}

fn rules_of(component: &SarifComponent) -> &[SarifRule] {
    match &component.rules {
        Some(rules) => &rules.0,
        None => &[],
    }
}

/// Returns true if the result is about something that is wrong now.
fn is_current(result: &SarifResult) -> Result<bool, ReadError> {
    if result.baseline_state.as_deref() == Some("absent") {
        return Ok(false);
    }
    match result.kind.as_deref() {
        None | Some("fail" | "open" | "review") => Ok(true),
        Some("pass" | "notApplicable" | "informational") => Ok(false),
        Some(other) => Err(not_sarif(&format!("a result has the kind `{other}`"))),
    }
}

fn finding(result: SarifResult, rule: Option<&SarifRule>) -> Result<PolicyFinding, ReadError> {
    let level = level_of(&result, rule)?;
    let (message, mut evidence) = texts_of(&result.message, rule);
    let suppression = result.suppressions.and_then(|list| list.0);
    if let Some(suppression) = suppression {
        let why = suppression.justification.unwrap_or_default();
        let note = format!("The code suppresses this result, which has no effect here. {why}");
        evidence = Some(match evidence {
            Some(text) => format!("{text}\n{note}"),
            None => note,
        });
    }
    let (location, others) = match result.locations {
        Some(list) => (list.first, list.others),
        None => (None, None),
    };
    let mut other = None;
    if let Some(location) = &location {
        // checkov names no resource, so the code tells results apart.
        if let Some(code) = location.snippet().filter(|code| !code.is_empty()) {
            add_to_digest(&mut other, code);
        }
        if let Some(uri) = location.uri().filter(|uri| uri.contains('%')) {
            add_to_digest(&mut other, uri);
        }
    }
    let (physical, logical) = match location {
        Some(location) => (location.physical_location, location.logical_locations),
        None => (None, None),
    };
    let (logical, more_logical) = match logical {
        Some(list) => (list.first, list.others),
        None => (None, None),
    };
    for digest in [&others, &more_logical].into_iter().flatten() {
        add_to_digest(&mut other, digest);
    }
    let SarifMessage {
        text,
        id: text_id,
        arguments,
    } = &result.message;
    let arguments = arguments.as_ref().map(|list| &list.0);
    if text_id.is_some() || arguments.is_some_and(|list| !list.is_empty()) {
        add_to_digest(&mut other, &(text, text_id, arguments));
    }
    let named = result.rule_id.or_else(|| result.rule?.id);
    let id = named.unwrap_or_else(|| rule.map(|rule| rule.id.clone()).unwrap_or_default());
    let finding = PolicyFinding {
        resource: logical.and_then(|logical| logical.fully_qualified_name.or(logical.name)),
        place: physical.and_then(place_of),
        link: rule.and_then(|rule| rule.help_uri.clone()),
        evidence,
        other,
        ..PolicyFinding::new(level, id, message)
    };
    Ok(finding.clean())
}

fn level_of(result: &SarifResult, rule: Option<&SarifRule>) -> Result<FindingLevel, ReadError> {
    let read = |level: &str| match level {
        "error" => Ok(FindingLevel::Deny),
        "warning" | "note" | "none" => Ok(FindingLevel::Warn),
        other => Err(not_sarif(&format!("a result has the level `{other}`"))),
    };
    let of_rule = rule
        .and_then(|rule| rule.default_configuration.as_ref()?.level.as_deref())
        .map_or(Ok(FindingLevel::Deny), read)?;
    let of_result = result.level.as_deref().map(read).transpose()?;
    // "Open" and "review" mean that the tool could not decide. Both have the level `none`.
    if matches!(result.kind.as_deref(), Some("open" | "review")) {
        return Ok(FindingLevel::Deny);
    }
    let level = of_result.unwrap_or_else(|| of_rule.clone());
    // checkov gives up the level of a result that is suppressed.
    let suppressed = result
        .suppressions
        .as_ref()
        .is_some_and(|list| list.0.is_some());
    Ok(if suppressed {
        level.min(of_rule)
    } else {
        level
    })
}

/// Returns the message, and a longer text if there is one. The message of trivy has several lines, which begin with a table.
fn texts_of(message: &SarifMessage, rule: Option<&SarifRule>) -> (String, Option<String>) {
    let arguments = message
        .arguments
        .as_ref()
        .map_or(&[][..], |list| list.0.as_slice());
    let text = filled(message.text.as_deref().unwrap_or_default(), arguments);
    let trimmed = text.trim();
    let (is_empty, has_lines) = (trimmed.is_empty(), trimmed.contains('\n'));
    let short = rule
        .and_then(|rule| rule.short_description.as_ref()?.text.as_deref())
        .map(str::trim)
        .filter(|short| !short.is_empty());
    match short {
        short if is_empty => {
            let arguments = arguments.join(", ");
            (
                short.unwrap_or_default().to_owned(),
                Some(arguments).filter(|text| !text.is_empty()),
            )
        }
        Some(short) if has_lines => (short.to_owned(), Some(text)),
        Some(_) | None => (text, None),
    }
}

/// Puts arguments into a text: `{0}` stands for the first one, and `{{` for a brace. Without arguments nothing is replaced,
/// because many tools do not know of placeholders.
fn filled(text: &str, arguments: &[String]) -> String {
    if arguments.is_empty() {
        return text.to_owned();
    }
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(['{', '}']) {
        out.push_str(before);
        let brace = &rest[before.len()..=before.len()];
        let digits = after.bytes().take(3).take_while(u8::is_ascii_digit).count();
        let argument = after[digits..].strip_prefix('}').and_then(|rest| {
            let argument = arguments.get(after[..digits].parse::<usize>().ok()?)?;
            Some((argument.as_str(), rest))
        });
        let (part, after) = match argument {
            Some(found) if brace == "{" => found,
            // A brace is written twice.
            Some(_) | None => (brace, after.strip_prefix(brace).unwrap_or(after)),
        };
        out.push_str(part);
        rest = after;
        if out.len() > MAX_FILLED {
            return out;
        }
    }
    out.push_str(rest);
    out
}

fn place_of(location: SarifPhysicalLocation) -> Option<FindingPlace> {
    let uri = location.artifact_location?.uri?;
    // Some tools write the path itself, so an address that cannot be decoded is kept.
    let uri = percent_decode_str(&uri)
        .decode_utf8()
        .unwrap_or(Cow::Borrowed(&uri));
    let file = uri.strip_prefix("file://").unwrap_or(&uri);
    let file = file.strip_prefix("./").unwrap_or(file);
    let line = location.region.and_then(|region| region.start_line);
    Some(FindingPlace {
        file: file.to_owned(),
        line: line.and_then(|line| u32::try_from(line).ok()),
    })
}

fn not_sarif(problem: &str) -> ReadError {
    ReadError::Format {
        format: "a SARIF 2.1.0 log",
        problem: one_line(problem, 500),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    const CHECKOV: &str = r#"{
  "$schema": "https://raw.githubusercontent.com/oasis-tcs/sarif-spec/main/sarif-schema-2.1.0.json",
  "version": "2.1.0",
  "runs": [{
    "tool": {"driver": {
      "name": "Checkov",
      "version": "3.2.0",
      "informationUri": "https://checkov.io",
      "rules": [{
        "id": "CKV_AWS_20",
        "name": "S3 Bucket has an ACL defined which allows public READ access.",
        "shortDescription": {"text": "S3 Bucket has an ACL defined which allows public READ access."},
        "defaultConfiguration": {"level": "error"},
        "helpUri": "https://docs.example.com/s3_1"
      }],
      "organization": "bridgecrew"
    }},
    "results": [{
      "ruleId": "CKV_AWS_20",
      "ruleIndex": 0,
      "level": "error",
      "attachments": [],
      "message": {"text": "S3 Bucket has an ACL defined which allows public READ access."},
      "locations": [{"physicalLocation": {
        "artifactLocation": {"uri": "prod/main.tf"},
        "region": {"startLine": 7, "endLine": 9, "snippet": {"text": "resource"}}
      }}]
    }, {
      "ruleId": "CKV_AWS_20",
      "ruleIndex": 0,
      "level": "warning",
      "message": {"text": "S3 Bucket has an ACL defined which allows public READ access."},
      "suppressions": [{"kind": "inSource", "justification": "we know"}]
    }]
  }]
}"#;

    fn with_run(run: &Value) -> String {
        json!({"version": "2.1.0", "runs": [run]}).to_string()
    }

    fn with_result(result: &Value) -> String {
        with_run(&json!({"tool": {"driver": {"name": "t"}}, "results": [result]}))
    }

    fn level_of_result(result: &Value) -> Option<FindingLevel> {
        let findings = read(&with_result(result)).unwrap();
        findings.first().map(|finding| finding.level.clone())
    }

    #[test]
    fn results_of_checkov_are_read() {
        let message = "S3 Bucket has an ACL defined which allows public READ access.";
        let found = PolicyFinding {
            place: Some(FindingPlace {
                file: "prod/main.tf".to_owned(),
                line: Some(7),
            }),
            link: Some("https://docs.example.com/s3_1".to_owned()),
            ..PolicyFinding::deny("CKV_AWS_20", message)
        };
        let findings = read(CHECKOV).unwrap();
        assert!(findings[0].other.is_some(), "the code tells results apart");
        let shown = PolicyFinding {
            other: None,
            ..findings[0].clone()
        };
        assert_eq!(shown, found);
        assert_eq!(findings[1].level, FindingLevel::Deny);
        let evidence = findings[1].evidence.as_deref().unwrap();
        assert!(evidence.ends_with("we know"), "{evidence}");
        assert_eq!(findings.len(), 2);
    }

    #[test]
    fn a_log_names_its_tools() {
        assert_eq!(tools(CHECKOV).as_deref(), Some("Checkov 3.2.0"));
        let log = |drivers: Value| {
            let drivers = drivers.as_array().unwrap().iter();
            let runs: Vec<Value> = drivers
                .map(|driver| json!({"tool": {"driver": driver}, "results": []}))
                .collect();
            json!({"version": "2.1.0", "runs": runs}).to_string()
        };
        let two = json!([{"name": "a"}, {"name": "a"}, {"name": "b", "version": "2\n1"}, {},
            {"name": "tflint-errors", "version": "1"}]);
        assert_eq!(tools(&log(two)).as_deref(), Some("a, b 2 1"));
        for text in [&*log(json!([{}])), &*log(json!([])), "{}", "", "text"] {
            assert_eq!(tools(text), None, "{text}");
        }
    }

    #[test]
    fn results_of_trivy_have_the_title_as_their_message() {
        let text = "Artifact: main.tf\nType: terraform\nVulnerability AVD-AWS-0086\nSeverity: HIGH\nMessage: No public access block";
        let run = json!({
            "tool": {"driver": {"name": "Trivy", "rules": [{
                "id": "AVD-AWS-0086",
                "shortDescription": {"text": "Public access is not blocked"},
                "defaultConfiguration": {"level": "error"},
                "helpUri": "https://avd.example.com/avd-aws-0086"
            }]}},
            "results": [{
                "ruleId": "AVD-AWS-0086",
                "ruleIndex": 0,
                "level": "error",
                "message": {"text": text},
                "locations": [{
                    "physicalLocation": {
                        "artifactLocation": {"uri": "main.tf", "uriBaseId": "ROOTPATH"},
                        "region": {"startLine": 1, "startColumn": 1, "endLine": 3, "endColumn": 1}
                    },
                    "message": {"text": "main.tf"}
                }]
            }],
            "columnKind": "utf16CodeUnits",
            "originalUriBaseIds": {"ROOTPATH": {"uri": "file:///work/"}}
        });
        let findings = read(&with_run(&run)).unwrap();
        assert_eq!(findings[0].message, "Public access is not blocked");
        assert_eq!(findings[0].evidence.as_deref(), Some(text));
        assert_eq!(findings[0].rule, "AVD-AWS-0086");
    }

    #[test]
    fn an_empty_run_of_checkov_is_not_evaluated() {
        for driver in [
            json!({"name": "Checkov"}),
            json!({"name": "Own name", "organization": "bridgecrew"}),
        ] {
            let read = read(&with_run(
                &json!({"tool": {"driver": driver}, "results": []}),
            ));
            assert!(matches!(read, Err(ReadError::NotEvaluated(_))), "{read:?}");
        }
    }

    #[test]
    fn files_are_decoded_and_stay_different() {
        let of = |uri: &str, code: &str| {
            let place = json!({
                "artifactLocation": {"uri": uri},
                "region": {"startLine": 1, "snippet": {"text": code}}
            });
            let locations = json!([{"physicalLocation": place}]);
            let result = json!({"message": {"text": "m"}, "locations": locations});
            read(&with_result(&result)).unwrap().remove(0)
        };
        let mut found: Vec<String> = Vec::new();
        for (uri, code, file) in [
            ("prod%20eu/m%C3%A4in.tf", "", "prod eu/mäin.tf"),
            ("prod eu/mäin.tf", "", "prod eu/mäin.tf"),
            ("prod eu/mäin.tf", "a", "prod eu/mäin.tf"),
            ("prod eu/mäin.tf", "b", "prod eu/mäin.tf"),
            ("100%.tf", "", "100%.tf"),
            ("%FF.tf", "", "%FF.tf"),
            ("file:///prod%2Feu/a.tf", "", "/prod/eu/a.tf"),
        ] {
            let finding = of(uri, code);
            let identity = finding.identity();
            assert_eq!(finding.place.unwrap().file, file);
            assert!(!found.contains(&identity), "{uri} {code}");
            found.push(identity);
        }
    }

    #[test]
    fn errors_of_tflint_are_no_results() {
        let log = |errors: Value| {
            json!({"version": "2.1.0", "runs": [
                {"tool": {"driver": {"name": "tflint", "rules": []}}, "results": []},
                {"tool": {"driver": {"name": "tflint-errors"}}, "results": errors},
            ]})
            .to_string()
        };
        assert_eq!(read(&log(json!([]))), Ok(vec![]));
        let error = json!([{"ruleId": "application_error", "level": "error", "message": {"text": "no plugin"}}]);
        let not_evaluated = ReadError::NotEvaluated("tflint failed: no plugin".to_owned());
        assert_eq!(read(&log(error)), Err(not_evaluated));
    }

    #[test]
    fn levels_are_those_of_results_then_those_of_rules_then_errors() {
        let message = json!({"text": "m"});
        for (level, expected) in [
            ("error", FindingLevel::Deny),
            ("warning", FindingLevel::Warn),
            ("note", FindingLevel::Warn),
            ("none", FindingLevel::Warn),
        ] {
            let result = json!({"level": level, "message": message});
            assert_eq!(level_of_result(&result), Some(expected), "{level}");
        }
        let unrated = json!({"message": message});
        assert_eq!(level_of_result(&unrated), Some(FindingLevel::Deny));
        let run = json!({
            "tool": {"driver": {"rules": [{"id": "r", "defaultConfiguration": {"level": "note"}}]}},
            "results": [{"ruleIndex": 0, "message": message}, {"rule": {"id": "r"}, "message": message}]
        });
        let findings = read(&with_run(&run)).unwrap();
        assert_eq!(
            findings,
            [PolicyFinding::warn("r", "m"), PolicyFinding::warn("r", "m")]
        );
    }

    #[test]
    fn results_that_differ_in_any_location_are_different() {
        let at = |file: &str, line: u32| {
            json!({"physicalLocation": {
                "artifactLocation": {"uri": file},
                "region": {"startLine": line}
            }})
        };
        let of = |names: &[&str]| {
            let names: Vec<Value> = names.iter().map(|name| json!({"name": name})).collect();
            json!({"logicalLocations": names})
        };
        let lists = [
            json!([]),
            json!([at("a.tf", 1)]),
            json!([at("a.tf", 2)]),
            json!([at("a.tf", 1), at("a.tf", 2)]),
            json!([at("a.tf", 1), at("a.tf", 3)]),
            json!([at("a.tf", 1), at("b.tf", 2)]),
            json!([at("a.tf", 1), at("b.tf", 2), at("c.tf", 3)]),
            json!([at("a.tf", 1), of(&["a"])]),
            json!([of(&["a"])]),
            json!([of(&["a", "b"])]),
            json!([of(&["a", "c"])]),
            json!([of(&["a"]), of(&["b"])]),
        ];
        let found: Vec<PolicyFinding> = lists
            .iter()
            .map(|list| {
                let result = json!({"message": {"text": "m"}, "locations": list});
                read(&with_result(&result)).unwrap().remove(0)
            })
            .collect();
        for (n, finding) in found.iter().enumerate() {
            assert!(!found[..n].contains(finding), "{}", lists[n]);
        }
    }

    #[test]
    fn the_message_has_its_arguments() {
        let run = |message: &Value| {
            json!({
                "tool": {"driver": {"rules": [{
                    "id": "r",
                    "shortDescription": {"text": "short"},
                }]}},
                "results": [{"ruleId": "r", "message": message}],
            })
        };
        let read_one = |message: &Value| read(&with_run(&run(message))).unwrap().remove(0);
        for (message, expected) in [
            (
                json!({"text": "{0} is {1}", "arguments": ["a", "b"]}),
                "a is b",
            ),
            (json!({"text": "{1}{0}{1}", "arguments": ["a", "b"]}), "bab"),
            (
                json!({"text": "{{0}} {2} {x} {", "arguments": ["a"]}),
                "{0} {2} {x} {",
            ),
            (json!({"text": "{0} {{}}"}), "{0} {{}}"),
            (json!({"id": "open", "arguments": ["a"]}), "short"),
        ] {
            assert_eq!(read_one(&message).message, expected, "{message}");
        }
        let many = json!({"text": "{0}".repeat(10_000), "arguments": ["x".repeat(10_000)]});
        assert!(read_one(&many).other.is_some());
    }

    #[test]
    fn results_that_differ_in_their_arguments_are_different() {
        let messages = [
            json!({"text": "{0} is public"}),
            json!({"text": "{0} is public", "arguments": ["a"]}),
            json!({"text": "{0} is public", "arguments": ["b"]}),
            json!({"text": "it is public", "arguments": ["a"]}),
            json!({"text": "it is public", "arguments": ["b"]}),
            json!({"text": "it is public", "id": "a"}),
            json!({"text": "it is public", "id": "b"}),
            json!({"arguments": ["a, b"]}),
            json!({"arguments": ["a", "b"]}),
        ];
        let found: Vec<String> = messages
            .iter()
            .map(|message| {
                let result = json!({"ruleId": "r", "message": message});
                read(&with_result(&result)).unwrap().remove(0).identity()
            })
            .collect();
        for (n, identity) in found.iter().enumerate() {
            assert!(!found[..n].contains(identity), "{}", messages[n]);
        }
    }

    #[test]
    fn only_results_that_are_wrong_now_are_findings() {
        let message = json!({"text": "m"});
        for kind in ["pass", "notApplicable", "informational"] {
            let result = json!({"kind": kind, "level": "none", "message": message});
            assert_eq!(level_of_result(&result), None, "{kind}");
        }
        for kind in ["open", "review"] {
            let result = json!({"kind": kind, "level": "none", "message": message});
            assert_eq!(level_of_result(&result), Some(FindingLevel::Deny), "{kind}");
        }
        for (state, is_found) in [("absent", false), ("new", true), ("unchanged", true)] {
            let result = json!({"baselineState": state, "level": "error", "message": message});
            assert_eq!(level_of_result(&result).is_some(), is_found, "{state}");
        }
    }

    #[test]
    fn runs_that_failed_or_have_no_results_are_not_evaluated() {
        let tool = json!({"driver": {"name": "t"}});
        let note = json!([{"level": "error", "message": {"text": "no network"}}]);
        for run in [
            json!({"tool": tool}),
            json!({"tool": tool, "results": null}),
            json!({"tool": tool, "results": [], "externalPropertyFileReferences": {"results": [{}]}}),
            json!({"tool": tool, "results": [], "invocations": [{"executionSuccessful": false}]}),
            json!({"tool": tool, "results": [], "invocations": [
                {"executionSuccessful": true, "toolExecutionNotifications": note}]}),
            json!({"tool": tool, "results": [], "invocations": [
                {"executionSuccessful": true, "toolConfigurationNotifications": note}]}),
        ] {
            let read = read(&with_run(&run));
            assert!(matches!(read, Err(ReadError::NotEvaluated(_))), "{run}");
        }
        let no_runs = json!({"version": "2.1.0", "runs": []}).to_string();
        assert!(matches!(read(&no_runs), Err(ReadError::NotEvaluated(_))));
        let fine =
            json!({"tool": tool, "results": [], "invocations": [{"executionSuccessful": true}]});
        assert_eq!(read(&with_run(&fine)), Ok(vec![]));
    }

    #[test]
    fn other_outputs_are_errors() {
        for text in [
            "Error: no such directory".to_owned(),
            "{}".to_owned(),
            "[]".to_owned(),
            json!({"version": "2.0.0", "runs": []}).to_string(),
            json!({"version": "2.1.0"}).to_string(),
            json!({"version": "2.1.0", "runs": [{}]}).to_string(),
            with_result(&json!({})),
            with_result(&json!("text")),
            with_result(&json!({"message": {"text": "m"}, "level": "fatal"})),
            with_result(&json!({"message": {"text": "m"}, "kind": "strange"})),
            format!("{CHECKOV} trailing"),
        ] {
            let error = read(&text).unwrap_err();
            assert!(matches!(error, ReadError::Format { .. }), "{text}: {error}");
        }
        let many = vec![json!({"message": {}}); MAX_READ + 1];
        let run = json!({"tool": {"driver": {}}, "results": many});
        assert!(read(&with_run(&run)).is_err());
        assert_eq!(read(""), Err(ReadError::Empty));
    }

    proptest! {
        #[test]
        fn damaged_logs_never_panic_and_never_pass(end in 0..CHECKOV.len(), other in ".{0,3}") {
            let end = CHECKOV.floor_char_boundary(end);
            prop_assert!(read(&CHECKOV[..end]).is_err());
            drop(read(&format!("{}{other}{}", &CHECKOV[..end], &CHECKOV[end..])));
        }
    }
}
