//! Reads reports in the form of `JUnit`, as checkov, trivy, tflint and others write them.
//!
//! `JUnit` knows no severity, so each failure denies. A test that is skipped denies as well, because comments in the code of a pull
//! request skip the checks of checkov. A test that ended with an error was not evaluated, and neither was the set.
//!
//! Some tools write only the tests that failed, so a suite without tests passes, if it says that it has some. A report that counts
//! no test at all says nothing about its checks, and was not evaluated. One that declares more failures than it has is damaged.
//!
//! trivy counts dozens of tests that passed if it could not use the plan, so its report about a plan needs a test that failed.

use lockkeeper_model::model::Sha256Digest;
use quick_xml::XmlVersion;
use quick_xml::escape::resolve_predefined_entity;
use quick_xml::events::{BytesRef, BytesStart, Event};
use quick_xml::reader::Reader;

use crate::bounded::add_to_digest;
use crate::findings::{FindingPlace, MAX_READ, PolicyFinding, ReadError, input, one_line};

/// Maximum depth of elements.
const MAX_DEPTH: usize = 64;
/// Maximum number of attributes of an element.
const MAX_ATTRIBUTES: usize = 64;
/// Maximum size of the text that is kept of one test, in bytes. The rest has only a digest.
const MAX_TEXT: usize = 64 << 10;
/// Endings of files with code, which tflint writes instead of the name of a class.
const CODE: [&str; 5] = [".tf", ".tofu", ".tf.json", ".tfvars", ".hcl"];

/// Reads a report in the form of `JUnit`.
pub fn read(text: &str) -> Result<Vec<PolicyFinding>, ReadError> {
    let text = input(text)?;
    let mut reader = Reader::from_str(text);
    let mut report = JunitReport::default();
    loop {
        match reader
            .read_event()
            .map_err(|error| not_junit(&error.to_string()))?
        {
            Event::Start(start) => report.open(&start)?,
            Event::Empty(start) => {
                report.open(&start)?;
                report.close()?;
            }
            Event::End(_) => report.close()?,
            Event::Text(text) => {
                let text = text.xml10_content();
                report.text(&text.map_err(|error| not_junit(&error.to_string()))?)?;
            }
            Event::CData(text) => {
                let text = text.xml10_content();
                report.text(&text.map_err(|error| not_junit(&error.to_string()))?)?;
            }
            Event::GeneralRef(reference) => report.text(&resolve(&reference)?)?,
            Event::DocType(_) => return Err(not_junit("it has a document type")),
            Event::Comment(_) | Event::Decl(_) | Event::PI(_) => {}
            Event::Eof => return report.end(),
        }
    }
}

/// State of the reader.
#[derive(Debug, Default)]
struct JunitReport {
    /// Elements that are open, from the root.
    open: Vec<JunitElement>,
    /// Suites that are open, from the outermost.
    suites: Vec<JunitSuite>,
    /// Test that is open.
    case: JunitCase,
    /// True if there is a test, or a suite that says that it has some.
    evaluated: bool,
    /// True if only a test that failed shows that something was evaluated.
    needs_failure: bool,
    /// True after the end of the root.
    ended: bool,
    findings: Vec<PolicyFinding>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum JunitElement {
    Suite,
    Case,
    /// `failure`, `error` or `skipped` of a test.
    Problem,
    /// Any other element, which says nothing about results.
    Other,
}

/// Numbers of problems in a suite, with those of its own suites.
#[derive(Debug, Default)]
struct JunitSuite {
    /// Name, which is the file in a report of trivy.
    name: String,
    /// True if trivy says that it is about a plan as JSON.
    is_about_plan: bool,
    declared: u64,
    seen: u64,
}

#[derive(Debug, Default)]
struct JunitCase {
    name: String,
    class: String,
    file: String,
    line: String,
    problem: Option<JunitProblem>,
}

#[derive(Debug, Default)]
struct JunitProblem {
    is_error: bool,
    is_skipped: bool,
    message: String,
    text: String,
    /// Digest of further messages, and of text that is too long to be kept.
    others: Option<Sha256Digest>,
}

/// Attributes of an element that this program reads.
#[derive(Debug, Default)]
struct JunitAttributes {
    name: String,
    value: String,
    class: String,
    file: String,
    line: String,
    message: String,
    tests: Option<u64>,
    failures: Option<u64>,
    errors: Option<u64>,
}

impl JunitReport {
    fn open(&mut self, start: &BytesStart<'_>) -> Result<(), ReadError> {
        if self.ended {
            return Err(not_junit("it has a second root"));
        }
        if self.open.len() == MAX_DEPTH {
            return Err(not_junit("its elements are nested too deep"));
        }
        let name = start.local_name();
        let name = String::from_utf8_lossy(name.as_ref()).into_owned();
        let parent = self.open.last().copied();
        let element = match (parent, name.as_str()) {
            (None, "testsuites") | (None | Some(JunitElement::Suite), "testsuite") => {
                let attributes = JunitAttributes::of(start)?;
                self.evaluated |= attributes.tests.is_some_and(|tests| tests > 0);
                let (failures, errors) = (attributes.failures, attributes.errors);
                self.suites.push(JunitSuite {
                    name: attributes.name,
                    is_about_plan: false,
                    declared: failures.unwrap_or(0).saturating_add(errors.unwrap_or(0)),
                    seen: 0,
                });
                JunitElement::Suite
            }
            (Some(JunitElement::Suite), "testcase") => {
                let attributes = JunitAttributes::of(start)?;
                self.evaluated = true;
                self.case = JunitCase {
                    name: attributes.name,
                    class: attributes.class,
                    file: attributes.file,
                    line: attributes.line,
                    problem: None,
                };
                JunitElement::Case
            }
            (Some(JunitElement::Case), "failure" | "error" | "skipped") => {
                let attributes = JunitAttributes::of(start)?;
                if name != "skipped"
                    && let Some(suite) = self.suites.last_mut()
                {
                    suite.seen += 1;
                }
                // trivy writes two failures for one test.
                let problem = self.case.problem.get_or_insert_default();
                problem.is_error |= name == "error";
                problem.is_skipped |= name == "skipped";
                if problem.message.is_empty() {
                    problem.message = attributes.message;
                } else if !attributes.message.is_empty() {
                    add_to_digest(&mut problem.others, &attributes.message);
                }
                JunitElement::Problem
            }
            (None, _) => return Err(not_junit(&format!("its root is `{name}`"))),
            (_, "testsuites" | "testsuite" | "testcase" | "failure" | "error" | "skipped") => {
                return Err(not_junit(&format!("`{name}` is at a wrong place")));
            }
            (Some(JunitElement::Other), "property") => {
                let attributes = JunitAttributes::of(start)?;
                if let Some(suite) = self.suites.last_mut() {
                    suite.is_about_plan |=
                        attributes.name == "type" && attributes.value == "terraformplan";
                }
                JunitElement::Other
            }
            (Some(_), _) => JunitElement::Other,
        };
        self.open.push(element);
        Ok(())
    }

    fn close(&mut self) -> Result<(), ReadError> {
        match self.open.pop() {
            Some(JunitElement::Suite) => self.close_suite()?,
            Some(JunitElement::Case) => {
                let case = std::mem::take(&mut self.case);
                let suite = self.suites.last().filter(|_| self.is_of_trivy());
                if let Some(finding) = case.finding(suite)? {
                    if self.findings.len() == MAX_READ {
                        return Err(ReadError::TooMany);
                    }
                    self.findings.push(finding);
                }
            }
            Some(JunitElement::Problem | JunitElement::Other) => {}
            None => return Err(not_junit("an element ends that did not begin")),
        }
        self.ended = self.open.is_empty();
        Ok(())
    }

    fn close_suite(&mut self) -> Result<(), ReadError> {
        let is_of_trivy = self.is_of_trivy();
        let suite = self.suites.pop().unwrap_or_default();
        if suite.declared > suite.seen {
            return Err(not_junit(&format!(
                "a suite has {} failures and errors, but declares {}",
                suite.seen, suite.declared
            )));
        }
        self.needs_failure |= is_of_trivy && suite.is_about_plan;
        if let Some(outer) = self.suites.last_mut() {
            outer.seen += suite.seen;
        }
        Ok(())
    }

    /// Returns true in a report that the template of trivy wrote.
    fn is_of_trivy(&self) -> bool {
        self.suites.first().is_some_and(|root| root.name == "trivy")
    }

    fn text(&mut self, text: &str) -> Result<(), ReadError> {
        match self.open.last() {
            Some(JunitElement::Problem) => {
                let problem = self.case.problem.get_or_insert_default();
                if problem.text.len() + text.len() <= MAX_TEXT {
                    problem.text.push_str(text);
                } else {
                    add_to_digest(&mut problem.others, text);
                }
                Ok(())
            }
            None if !text.trim().is_empty() => Err(not_junit("it has text outside of its root")),
            Some(JunitElement::Suite | JunitElement::Case | JunitElement::Other) | None => Ok(()),
        }
    }

    fn end(self) -> Result<Vec<PolicyFinding>, ReadError> {
        if !self.ended {
            return Err(not_junit("it ends before its root does"));
        }
        if !self.evaluated {
            return Err(ReadError::NotEvaluated(
                "the report counts no test, so nothing shows that any check was evaluated. checkov writes such a report if it \
                 cannot read its input, or has no check for it. tflint writes one if it finds nothing: let it write SARIF"
                    .to_owned(),
            ));
        }
        if self.needs_failure && self.findings.is_empty() {
            return Err(ReadError::NotEvaluated(
                "trivy found nothing, and counts tests that passed if it cannot use the plan, too. Let it write SARIF, with a \
                 check that finds something in each plan (`--config-check`)"
                    .to_owned(),
            ));
        }
        Ok(self.findings)
    }
}

impl JunitCase {
    /// Returns the finding of a test that did not pass. `of_trivy` is its suite, if trivy wrote the report.
    fn finding(self, of_trivy: Option<&JunitSuite>) -> Result<Option<PolicyFinding>, ReadError> {
        let Some(problem) = self.problem else {
            return Ok(None);
        };
        let text = problem.text.trim();
        let first_line = text.lines().next().unwrap_or_default();
        let message = [problem.message.as_str(), first_line, self.name.as_str()]
            .into_iter()
            .find(|text| !text.trim().is_empty())
            .unwrap_or_default();
        if problem.is_error {
            return Err(ReadError::NotEvaluated(format!(
                "the check `{}` ended with an error: {}",
                one_line(&self.name, 200),
                one_line(message, 500)
            )));
        }
        let result = result_of_tflint(&self.name, &self.class, text);
        if result == Some(TflintResult::Error) {
            return Err(ReadError::NotEvaluated(format!(
                "tflint failed: {}",
                one_line(message, 500)
            )));
        }
        if let Some(TflintResult::Issue { rule, range }) = result {
            let lines = range.strip_prefix(&self.class).unwrap_or_default();
            let place = FindingPlace {
                file: self.class.clone(),
                line: number_before(lines.trim_start_matches(':'), ','),
            };
            let start = format!("{range}: ");
            let message = problem.message.strip_prefix(&start).unwrap_or(message);
            let finding = PolicyFinding {
                place: Some(place),
                evidence: Some(text.to_owned()),
                other: problem.others,
                ..PolicyFinding::deny(rule, message)
            };
            return Ok(Some(finding.clean()));
        }
        let message = if problem.is_skipped {
            format!("The code skips this check, which has no effect here: {message}")
        } else {
            message.to_owned()
        };
        let (resource, place) = match of_trivy {
            // trivy writes the plan as code, and its places are in that code, which nobody has.
            Some(suite) if suite.is_about_plan => (None, None),
            // The class is the kind of the check, and the text begins with the place: `main.tf:9:14:`.
            Some(suite) => {
                let lines = text.strip_prefix(&suite.name).unwrap_or_default();
                let place = FindingPlace {
                    file: suite.name.clone(),
                    line: number_before(lines.trim_start_matches(':'), ':'),
                };
                (None, Some(place))
            }
            None => where_is(&self.class, &self.file, &self.line, text),
        };
        let finding = PolicyFinding {
            resource,
            place,
            link: link_of_checkov(text).map(str::to_owned),
            evidence: Some(text.to_owned()),
            other: problem.others,
            ..PolicyFinding::deny(rule_of(&self.name), message)
        };
        Ok(Some(finding.clean()))
    }
}

/// Test of tflint that failed.
#[derive(Debug, PartialEq, Eq)]
enum TflintResult<'a> {
    /// Finding of a rule, with its place as `main.tf:12,1-16`.
    Issue { rule: &'a str, range: &'a str },
    /// tflint could not do its work.
    Error,
}

/// Reads the text that tflint writes since 0.54: `Rule: NAME` and `Range: FILE:LINE,COLUMN-COLUMN` at the end of a finding, and
/// `Summary: TEXT` instead of the rule at the end of an error. The message before them can have any text, so the name of the
/// test must agree. `None` for other tools.
fn result_of_tflint<'a>(name: &str, class: &str, text: &'a str) -> Option<TflintResult<'a>> {
    if name == "application_error" && class == "(application)" {
        return Some(TflintResult::Error);
    }
    let (head, range) = text.rsplit_once("\nRange: ")?;
    if let Some((_, rule)) = head.rsplit_once("\nRule: ")
        && name
            .strip_prefix(rule)
            .is_some_and(|rest| rest.is_empty() || rest.strip_prefix(' ') == Some(range))
    {
        return Some(TflintResult::Issue { rule, range });
    }
    let (_, summary) = head.rsplit_once("\nSummary: ")?;
    (summary == name).then_some(TflintResult::Error)
}

/// Returns the number at the beginning of a text, which ends at this character.
fn number_before(text: &str, end: char) -> Option<u32> {
    text.split_once(end)?.0.parse().ok()
}

/// Returns the link in the lines that checkov writes before the code: `Guideline: https://…`.
fn link_of_checkov(text: &str) -> Option<&str> {
    let mut lines = head_of_checkov(text);
    lines.find_map(|line| line.strip_prefix("Guideline: "))
}

/// Returns the lines that checkov writes before the code: the resource, the file with its lines, and the guideline.
fn head_of_checkov(text: &str) -> impl Iterator<Item = &str> {
    let is_checkov = text.starts_with("Resource: ");
    text.lines()
        .take_while(move |line| is_checkov && !line.trim().is_empty())
}

/// Returns the resource and the place of a test. checkov writes the file and the resource into the class, older versions of
/// tflint only the file.
fn where_is(
    class: &str,
    file: &str,
    line: &str,
    text: &str,
) -> (Option<String>, Option<FindingPlace>) {
    let place = |file: &str, line: &str| FindingPlace {
        file: file.trim_start_matches('/').to_owned(),
        line: line.trim().parse().ok(),
    };
    if file.is_empty() && CODE.iter().any(|ending| class.ends_with(ending)) {
        let line = text.strip_prefix("line ").unwrap_or_default();
        let digits = line
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(line.len());
        return (None, Some(place(class, &line[..digits])));
    }
    let resource = match class.strip_prefix(file) {
        Some(rest) if !file.is_empty() => rest.strip_prefix('.').unwrap_or(rest),
        Some(_) | None => class,
    };
    // checkov writes lines only into the text: `File: /main.tf: 9-12`.
    let start = format!("File: {file}: ");
    let line = head_of_checkov(text)
        .find_map(|head| number_before(head.strip_prefix(&start)?, '-'))
        .map_or_else(|| line.to_owned(), |line| line.to_string());
    let place = (!file.is_empty()).then(|| place(file, &line));
    (Some(resource.to_owned()), place)
}

/// Returns the rule in the name of a test: `[HIGH][CKV_AWS_20] Bucket is public` of checkov, `[HIGH] AVD-AWS-0086` of trivy.
fn rule_of(name: &str) -> &str {
    let mut rest = name.trim();
    let mut words = Vec::new();
    while let Some((word, tail)) = rest
        .strip_prefix('[')
        .and_then(|inner| inner.split_once(']'))
    {
        words.push(word.trim());
        rest = tail.trim_start();
    }
    match words[..] {
        [_, rule, ..] => rule,
        [_] if !rest.is_empty() => rest,
        [] | [_] => name,
    }
}

impl JunitAttributes {
    fn of(start: &BytesStart<'_>) -> Result<Self, ReadError> {
        let mut attributes = Self::default();
        for (n, attribute) in start.attributes().enumerate() {
            if n == MAX_ATTRIBUTES {
                return Err(not_junit("an element has too many attributes"));
            }
            let attribute = attribute.map_err(|error| not_junit(&error.to_string()))?;
            let value = attribute
                .normalized_value(XmlVersion::Implicit1_0)
                .map_err(|error| not_junit(&error.to_string()))?
                .into_owned();
            match attribute.key.as_ref() {
                b"name" => attributes.name = value,
                b"value" => attributes.value = value,
                b"classname" => attributes.class = value,
                b"file" => attributes.file = value,
                b"line" => attributes.line = value,
                b"message" => attributes.message = value,
                b"tests" => attributes.tests = number(&value)?,
                b"failures" => attributes.failures = number(&value)?,
                b"errors" => attributes.errors = number(&value)?,
                _ => {}
            }
        }
        Ok(attributes)
    }
}

fn number(text: &str) -> Result<Option<u64>, ReadError> {
    if text.trim().is_empty() {
        return Ok(None);
    }
    let number = text.trim().parse::<u64>();
    number
        .map(Some)
        .map_err(|_| not_junit(&format!("`{text}` is not a number of tests")))
}

/// Returns the text of a reference such as `&amp;` or `&#65;`. A report has no others, because it declares none.
fn resolve(reference: &BytesRef<'_>) -> Result<String, ReadError> {
    let character = reference
        .resolve_char_ref()
        .map_err(|error| not_junit(&error.to_string()))?;
    if let Some(character) = character {
        return Ok(character.to_string());
    }
    let name = reference
        .decode()
        .map_err(|error| not_junit(&error.to_string()))?;
    resolve_predefined_entity(&name)
        .map(str::to_owned)
        .ok_or_else(|| not_junit(&format!("it has the unknown reference `&{name};`")))
}

fn not_junit(problem: &str) -> ReadError {
    ReadError::Format {
        format: "a report in the form of JUnit",
        problem: one_line(problem, 500),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CHECKOV: &str = r#"<?xml version="1.0" ?>
<testsuites disabled="0" errors="0" failures="1" tests="3" time="0.0">
	<testsuite disabled="0" errors="0" failures="1" name="terraform scan" skipped="1" tests="3" time="0">
		<properties>
			<property name="directory" value="['.']"/>
		</properties>
		<testcase name="[NONE][CKV_AWS_18] Ensure the S3 bucket has access logging enabled" classname="/main.tf.aws_s3_bucket.logs" file="/main.tf"/>
		<testcase name="[NONE][CKV_AWS_20] S3 Bucket has an ACL &amp; is public" classname="/main.tf.aws_s3_bucket.logs" file="/main.tf">
			<failure type="failure" message="S3 Bucket has an ACL &amp; is public">
Resource: aws_s3_bucket.logs
File: /main.tf: 1-3
Guideline: https://docs.example.com/s3_1

		1 | resource &quot;aws_s3_bucket&quot; <![CDATA["logs" {]]></failure>
		</testcase>
		<testcase name="[NONE][CKV_AWS_21] Versioning" classname="/main.tf.aws_s3_bucket.logs" file="/main.tf">
			<skipped type="skipped" message="we know"/>
		</testcase>
	</testsuite>
</testsuites>"#;

    #[test]
    fn a_report_of_checkov_is_read() {
        let findings = read(CHECKOV).unwrap();
        let place = Some(FindingPlace {
            file: "main.tf".to_owned(),
            line: Some(1),
        });
        let public = &findings[0];
        assert_eq!(public.rule, "CKV_AWS_20");
        assert_eq!(public.message, "S3 Bucket has an ACL & is public");
        assert_eq!(public.resource.as_deref(), Some("aws_s3_bucket.logs"));
        assert_eq!(public.place, place);
        let link = public.link.as_deref();
        assert_eq!(link, Some("https://docs.example.com/s3_1"));
        let evidence = public.evidence.as_deref().unwrap();
        assert!(
            evidence.starts_with("Resource: aws_s3_bucket.logs\n"),
            "{evidence}"
        );
        assert!(
            evidence.ends_with("resource \"aws_s3_bucket\" \"logs\" {"),
            "{evidence}"
        );
        let skipped = &findings[1];
        assert!(skipped.is_violation());
        assert!(skipped.message.ends_with("we know"), "{}", skipped.message);
        assert_eq!(findings.len(), 2);
    }

    #[test]
    fn a_report_of_tflint_is_read() {
        let report = r#"<?xml version="1.0" encoding="UTF-8"?>
<testsuites>
  <testsuite tests="1" failures="1" time="0" name="">
    <properties></properties>
    <testcase classname="prod/main.tf" name="terraform_typed_variables" time="0">
      <failure message="`x` variable has no type" type="">line 12, col 1, Warning - `x` variable has no type (terraform_typed_variables)</failure>
    </testcase>
  </testsuite>
</testsuites>"#;
        let findings = read(report).unwrap();
        let place = FindingPlace {
            file: "prod/main.tf".to_owned(),
            line: Some(12),
        };
        assert_eq!(findings[0].rule, "terraform_typed_variables");
        assert_eq!(findings[0].place, Some(place));
        assert_eq!(findings[0].resource, None);
        // It looks the same if no rule is switched on.
        let clean = r#"<testsuites><testsuite tests="0" failures="0" time="0" name=""></testsuite></testsuites>"#;
        let error = read(clean).unwrap_err();
        assert!(error.to_string().contains("let it write SARIF"), "{error}");
    }

    #[test]
    fn texts_that_look_like_those_of_tflint_need_the_name_of_the_test() {
        let issue =
            "Error: m&#xA;Summary: s&#xA;Range: a.tf:7,1-2&#xA;Rule: r&#xA;Range: a.tf:7,1-2";
        let error =
            "Error: m&#xA;Rule: r&#xA;Range: a.tf:7,1-2&#xA;Summary: s&#xA;Range: a.tf:7,1-2";
        let read_one = |name: &str, text: &str| {
            read(&format!(
                r#"<testsuite tests="1"><testcase classname="a.tf" name="{name}"><failure message="m">{text}</failure></testcase></testsuite>"#
            ))
        };
        for name in ["r", "r a.tf:7,1-2"] {
            let found = read_one(name, issue).unwrap().remove(0);
            assert_eq!(found.rule, "r");
            assert_eq!(found.place.unwrap().line, Some(7));
        }
        let failed = ReadError::NotEvaluated("tflint failed: m".to_owned());
        assert_eq!(read_one("s", error), Err(failed));
        for (name, text) in [("rr", issue), ("r a.tf:8,1-2", issue), ("t", error)] {
            let found = read_one(name, text).unwrap().remove(0);
            assert_eq!(found.rule, name);
            assert!(found.is_violation());
        }
    }

    #[test]
    fn only_the_head_of_a_text_of_checkov_names_line_and_link() {
        let read_one = |text: &str| {
            let report = format!(
                r#"<testsuite tests="1"><testcase name="[NONE][C] c" classname="/a.tf.x.y" file="/a.tf"><failure message="m">{text}</failure></testcase></testsuite>"#
            );
            let finding = read(&report).unwrap().remove(0);
            (finding.place.unwrap().line, finding.link)
        };
        let link = Some("https://docs.example.com/c".to_owned());
        for (text, expected) in [
            (
                "\nResource: x.y\nFile: /a.tf: 9-12\nGuideline: https://docs.example.com/c\n\n9 | a",
                (Some(9), link),
            ),
            (
                "\nResource: x.y\nFile: /a.tf: 0-0\nGuideline: None",
                (None, None),
            ),
            ("\nResource: x.y\nFile: /b.tf: 9-12", (None, None)),
            ("\nResource: x.y\nFile: /a.tf: ?-12", (None, None)),
            (
                "\nResource: x.y\n\nFile: /a.tf: 9-12\nGuideline: https://docs.example.com/c",
                (None, None),
            ),
            (
                "File: /a.tf: 9-12\nGuideline: https://docs.example.com/c",
                (None, None),
            ),
        ] {
            assert_eq!(read_one(text), expected, "{text}");
        }
    }

    #[test]
    fn a_report_of_trivy_is_read() {
        let report = r#"<?xml version="1.0" ?>
<testsuites>
	<testsuite tests="1" failures="2" time="" name="main.tf">
        <testcase classname="terraform" name="[HIGH] AVD-AWS-0086" time="">
            <failure message="Public access is not blocked" type="description">&quot;No block&quot;</failure>
            <failure message="" type="severity">HIGH</failure>
        </testcase>
	</testsuite>
</testsuites>"#;
        let findings = read(report).unwrap();
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].rule, "AVD-AWS-0086");
        assert_eq!(findings[0].message, "Public access is not blocked");
        assert_eq!(findings[0].evidence.as_deref(), Some("\"No block\"HIGH"));
    }

    #[test]
    fn tests_that_differ_in_any_text_are_different() {
        let found = |problems: &str| {
            let report = format!(
                r#"<testsuite tests="1"><testcase name="a">{problems}</testcase></testsuite>"#
            );
            read(&report).unwrap().remove(0)
        };
        let long = "x".repeat(MAX_TEXT);
        let problems = [
            r#"<failure message="a"/>"#.to_owned(),
            r#"<failure message="a"/><failure message="b"/>"#.to_owned(),
            r#"<failure message="a"/><failure message="c"/>"#.to_owned(),
            format!(r#"<failure message="a">{long}</failure>"#),
            format!(r#"<failure message="a">{long}</failure><failure>b</failure>"#),
            format!(r#"<failure message="a">{long}</failure><failure>c</failure>"#),
            format!(r#"<failure message="a">{long}b</failure>"#),
            format!(r#"<failure message="a">{long}c</failure>"#),
        ];
        let found: Vec<PolicyFinding> = problems.iter().map(|text| found(text)).collect();
        for (n, finding) in found.iter().enumerate() {
            assert!(!found[..n].contains(finding), "{n}");
        }
    }

    #[test]
    fn nothing_evaluated_is_an_error() {
        for report in [
            "<testsuites/>",
            "<testsuites></testsuites>",
            "<testsuite/>",
            "<testsuites><testsuite name=\"a\"/></testsuites>",
            "<testsuite tests=\"0\"/>",
            "<testsuite failures=\"0\"/>",
            "<testsuites tests=\"0\" failures=\"0\" errors=\"0\"></testsuites>",
            "<testsuites tests=\"0\"><testsuite tests=\"0\"/><testsuite tests=\"0\"/></testsuites>",
            r#"<testsuite tests="1"><testcase name="a"><error message="crash"/></testcase></testsuite>"#,
        ] {
            let read = read(report);
            assert!(
                matches!(read, Err(ReadError::NotEvaluated(_))),
                "{report}: {read:?}"
            );
        }
        assert_eq!(read("\n"), Err(ReadError::Empty));
    }

    #[test]
    fn a_report_that_counts_a_test_was_evaluated() {
        for report in [
            r#"<testsuite tests="3"/>"#,
            r#"<testsuites tests="1" failures="0"><testsuite tests="0"/></testsuites>"#,
            r#"<testsuites><testsuite tests="0"/><testsuite tests="2" failures="0"/></testsuites>"#,
            r#"<testsuite><testcase name="a"/></testsuite>"#,
            r#"<testsuites tests="0"><testsuite><testcase name="a"/></testsuite></testsuites>"#,
        ] {
            assert_eq!(read(report), Ok(vec![]), "{report}");
        }
    }

    #[test]
    fn other_outputs_are_errors() {
        let deep = format!("<testsuite>{}", "<testsuite>".repeat(10_000));
        let wide: Vec<String> = (0..1000).map(|n| format!("a{n}=\"\" ")).collect();
        let wide = wide.concat();
        let wide = format!("<testsuite {wide}/>");
        for report in [
            "Error: no such directory",
            "{}",
            "<html></html>",
            "<testsuite tests=\"1\">",
            "<testsuite tests=\"1\"><testcase></testsuite>",
            "<testsuite tests=\"1\"/><testsuite tests=\"1\"/>",
            "<testsuite tests=\"1\"/> text",
            "text <testsuite tests=\"1\"/>",
            "</testsuite>",
            "<testsuite tests=\"one\"/>",
            "<testsuite tests=\"1\" tests=\"2\"/>",
            "<testsuite failures=\"1\"/>",
            "<testsuite errors=\"1\" tests=\"1\"><testcase/></testsuite>",
            "<testsuites failures=\"1\"><testsuite tests=\"1\"><testcase/></testsuite></testsuites>",
            "<testsuite tests=\"1\"><failure/></testsuite>",
            "<testsuite tests=\"1\"><x><testcase><failure/></testcase></x></testsuite>",
            "<testsuite tests=\"1\"><testcase><x><failure/></x></testcase></testsuite>",
            "<!DOCTYPE a [<!ENTITY b \"c\">]><testsuite tests=\"1\"/>",
            "<testsuite tests=\"1\"><testcase><failure>&b;</failure></testcase></testsuite>",
            "<testsuite tests=\"1\"><testcase name=\"&b;\"/></testsuite>",
            deep.as_str(),
            wide.as_str(),
        ] {
            let read = read(report);
            assert!(
                matches!(read, Err(ReadError::Format { .. })),
                "{report}: {read:?}"
            );
        }
    }

    #[test]
    fn nested_suites_add_up() {
        let report = r#"<testsuites failures="1"><testsuite failures="1"><testsuite tests="1" failures="1">
            <testcase name="a"><failure/></testcase></testsuite></testsuite></testsuites>"#;
        let findings = read(report).unwrap();
        assert_eq!(findings, [PolicyFinding::deny("a", "a")]);
    }

    proptest! {
        #[test]
        fn damaged_reports_never_panic_and_never_pass(end in 0..CHECKOV.len(), other in ".{0,3}") {
            let end = CHECKOV.floor_char_boundary(end);
            prop_assert!(read(&CHECKOV[..end]).is_err());
            drop(read(&format!("{}{other}{}", &CHECKOV[..end], &CHECKOV[end..])));
        }
    }
}
