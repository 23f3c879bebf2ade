//! Builds the annotations of a commit: the findings of policy checks that name a file and a line.
//!
//! Findings come from programs that read the code of a pull request. So paths that may leave the repository are left out,
//! every text is bounded and has only visible characters, and nothing is shown that a comment would not show. Longer evidence
//! and the output of tools stay in the comment, which knows the workflows that hide them.

use lockkeeper_policy::findings::{FindingLevel, PolicyFinding};
use lockkeeper_policy::verdict::Verdict;

use super::escape::{code, shorten, visible};
use super::status;
use crate::model::{AnnotationLevel, AnnotationSet, LineAnnotation, ProjectKey, RepoPath};

/// Maximum number of annotations of a commit. GitHub takes 50 with each request.
const MOST: usize = 100;
/// Maximum length of a heading in characters. GitHub takes 255.
const LONGEST_TITLE: usize = 200;
/// Maximum length of each part of a text, in characters. GitHub takes 64 KB for the whole text.
const LONGEST_PART: usize = 1000;
/// Maximum number of projects that the summary names.
const MOST_PROJECTS: usize = 10;

/// Policy checks of the plan of one project.
#[derive(Clone, Copy, Debug)]
pub struct CheckedProject<'a> {
    /// Project that was planned.
    pub project: &'a ProjectKey,
    /// Verdicts of its policy sets.
    pub verdicts: &'a [Verdict],
}

/// Returns the annotations of a commit with the plans of these projects, worst first. `name` is `--vcs-status-name`. `quiet`
/// leaves out sets that passed.
pub fn annotations(
    name: &str,
    url: String,
    quiet: bool,
    projects: &[CheckedProject<'_>],
) -> AnnotationSet {
    let mut lines: Vec<LineAnnotation> = projects
        .iter()
        .flat_map(|checked| {
            let shown = checked
                .verdicts
                .iter()
                .filter(move |verdict| !quiet || verdict.is_failed());
            shown.flat_map(move |verdict| {
                let findings = verdict.findings.iter();
                findings.filter_map(move |finding| line(&checked.project.dir, verdict, finding))
            })
        })
        .collect();
    // Several projects and workspaces can have the same finding in a file that they share.
    lines.sort();
    lines.dedup();
    let found = lines.len();
    let title = title(&lines);
    lines.truncate(MOST);
    AnnotationSet {
        name: status::annotations_context(name),
        title,
        summary: summary(name, found, projects),
        url,
        lines,
    }
}

/// Returns the annotation of a finding; `None` if it names no line of the repository.
fn line(dir: &RepoPath, verdict: &Verdict, finding: &PolicyFinding) -> Option<LineAnnotation> {
    let place = finding.place.as_ref()?;
    // GitHub's numbers of lines have 32 bits with a sign.
    let line = place
        .line
        .filter(|line| *line > 0 && i32::try_from(*line).is_ok())?;
    let level = match (&finding.waived, &finding.level) {
        (Some(_), _) => AnnotationLevel::Notice,
        (None, FindingLevel::Deny | FindingLevel::RequireApproval { .. }) => {
            AnnotationLevel::Failure
        }
        (None, FindingLevel::Warn) => AnnotationLevel::Warning,
    };
    let title = if finding.rule.is_empty() {
        format!("Policy set {}", verdict.set)
    } else {
        format!("Policy set {}: {}", verdict.set, finding.rule)
    };
    Some(LineAnnotation {
        level,
        path: path_in_repository(dir, &place.file)?,
        line,
        title: shorten(&one_line(&title), LONGEST_TITLE),
        message: message(finding),
    })
}

/// Returns the path of a file from the root of the repository. Programs name files from the directory of the project or
/// from the root; a path that begins with the directory of the project counts as one from the root. `None`: nobody knows the
/// file, because the path is absolute, an address, or leaves the repository.
fn path_in_repository(dir: &RepoPath, file: &str) -> Option<RepoPath> {
    if file.starts_with('/') || file.contains(['\\', ':']) {
        return None;
    }
    let from_root = RepoPath::new(file).ok().filter(|path| dir.contains(path));
    let path = match from_root {
        Some(path) => path,
        None => dir.join(file).ok()?,
    };
    (!path.is_root() && path != *dir).then_some(path)
}

fn message(finding: &PolicyFinding) -> String {
    let mut text = shorten(&visible(&finding.message), LONGEST_PART);
    let mut add = |label: &str, value: &str| {
        if !value.trim().is_empty() {
            text.push('\n');
            text.push_str(label);
            text.push_str(&shorten(&one_line(value), LONGEST_PART));
        }
    };
    add(
        "Resource: ",
        finding.resource.as_deref().unwrap_or_default(),
    );
    if let Some(waiver) = &finding.waived {
        let until = format!("{} until {}", waiver.owner, waiver.until);
        add("Waived by ", &format!("{until}: {}", waiver.reason));
    } else if let FindingLevel::RequireApproval { count, .. } = &finding.level {
        add("Approvals needed: ", &count.to_string());
    }
    add("See ", finding.link.as_deref().unwrap_or_default());
    text
}

fn one_line(text: &str) -> String {
    visible(text)
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
}

fn title(lines: &[LineAnnotation]) -> String {
    let count = |level| lines.iter().filter(|line| line.level == level).count();
    let parts: Vec<String> = [
        (count(AnnotationLevel::Failure), "violation"),
        (count(AnnotationLevel::Warning), "hint"),
        (count(AnnotationLevel::Notice), "waived finding"),
    ]
    .into_iter()
    .filter(|(number, _)| *number > 0)
    .map(|(number, noun)| counted(number, noun))
    .collect();
    if parts.is_empty() {
        "No findings in lines of files".to_owned()
    } else {
        parts.join(", ")
    }
}

/// Returns the summary as Markdown.
fn summary(name: &str, found: usize, projects: &[CheckedProject<'_>]) -> String {
    let mut names: Vec<String> = projects
        .iter()
        .take(MOST_PROJECTS)
        .map(|checked| code(&checked.project.status_id()))
        .collect();
    if projects.len() > MOST_PROJECTS {
        names.push(format!("{} more", projects.len() - MOST_PROJECTS));
    }
    if names.is_empty() {
        names.push("no project".to_owned());
    }
    let limit = if found > MOST {
        format!(" Only the {MOST} worst of {found} are shown here.")
    } else {
        String::new()
    };
    let decides = code(status::policy_context(name).as_str());
    format!(
        "Findings of policy checks that name a line, in the newest plans of {}.{limit}\n\n\
         This check only shows them beside the code, and is neutral: the status {decides} says if the policies passed. The \
         comments with the plans have all findings, and the people who can approve them.",
        names.join(", ")
    )
}

fn counted(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use lockkeeper_policy::findings::{AppliedWaiver, FindingPlace};
    use lockkeeper_policy::sets::{SetDigest, SetName};
    use lockkeeper_policy::verdict::VerdictOutcome;
    use proptest::prelude::*;

    use super::*;
    use crate::model::Sha256Digest;

    fn at(finding: PolicyFinding, file: &str, line: u32) -> PolicyFinding {
        PolicyFinding {
            place: Some(FindingPlace {
                file: file.to_owned(),
                line: Some(line),
            }),
            ..finding
        }
    }

    fn verdict(findings: Vec<PolicyFinding>) -> Verdict {
        let failed = findings.iter().any(PolicyFinding::is_violation);
        Verdict {
            set: SetName::parse("basics").unwrap(),
            definition: SetDigest(Sha256Digest::of(b"definition")),
            outcome: if failed {
                VerdictOutcome::Failed
            } else {
                VerdictOutcome::Passed
            },
            origin: String::new(),
            content: None,
            tool: None,
            findings,
            more_findings: 0,
            items: Vec::new(),
            notes: Vec::new(),
            output: "a secret in the output".to_owned(),
        }
    }

    fn project(dir: &str) -> ProjectKey {
        ProjectKey::of_dir(RepoPath::new(dir).unwrap())
    }

    fn made(dir: &str, quiet: bool, findings: Vec<PolicyFinding>) -> AnnotationSet {
        let (project, verdicts) = (project(dir), [verdict(findings)]);
        let checked = CheckedProject {
            project: &project,
            verdicts: &verdicts,
        };
        annotations("lockkeeper", "https://x/".to_owned(), quiet, &[checked])
    }

    #[test]
    fn paths_are_those_of_the_repository() {
        for (dir, file, expected) in [
            ("network", "main.tf", Some("network/main.tf")),
            ("network", "./a/../main.tf", Some("network/main.tf")),
            ("network", "network/main.tf", Some("network/main.tf")),
            ("network", "../modules/vpc/x.tf", Some("modules/vpc/x.tf")),
            ("network", "networks/x.tf", Some("network/networks/x.tf")),
            (".", "main.tf", Some("main.tf")),
            (".", "a/main.tf", Some("a/main.tf")),
            ("network", "../../etc/passwd", None),
            (".", "../x.tf", None),
            ("network", "/etc/passwd", None),
            ("network", "/network/main.tf", None),
            ("network", "C:\\main.tf", None),
            ("network", "git::https:/github.com/acme/vpc/main.tf", None),
            ("network", "..", None),
            ("network", ".", None),
            ("network", "network", None),
            ("network", "a\nb.tf", None),
            (".", "", None),
        ] {
            let dir = RepoPath::new(dir).unwrap();
            let path = path_in_repository(&dir, file);
            let path = path.as_ref().map(RepoPath::as_str);
            assert_eq!(path, expected, "{dir} {file}");
        }
        let long = "x".repeat(RepoPath::MAX_BYTES + 1);
        assert_eq!(path_in_repository(&RepoPath::root(), &long), None);
    }

    #[test]
    fn findings_without_a_line_have_no_annotation() {
        let nowhere = PolicyFinding::deny("r", "nowhere");
        let mut no_line = at(PolicyFinding::deny("r", "no line"), "main.tf", 1);
        no_line.place.as_mut().unwrap().line = None;
        let zero = at(PolicyFinding::deny("r", "line 0"), "main.tf", 0);
        let far = at(PolicyFinding::deny("r", "far"), "main.tf", u32::MAX);
        let set = made("network", false, vec![nowhere, no_line, zero, far]);
        assert!(set.lines.is_empty(), "{:?}", set.lines);
        assert_eq!(set.title, "No findings in lines of files");
    }

    #[test]
    fn levels_are_those_of_findings_and_texts_are_those_of_comments() {
        let waived = PolicyFinding {
            waived: Some(AppliedWaiver {
                reason: "The website is public.".to_owned(),
                owner: "alice".to_owned(),
                until: "2026-12-31".to_owned(),
            }),
            ..at(PolicyFinding::deny("main.deny", "public"), "a.tf", 1)
        };
        let deny = PolicyFinding {
            resource: Some("aws_s3_bucket.b".to_owned()),
            link: Some("https://docs.example.com/1".to_owned()),
            evidence: Some("a secret in the evidence".to_owned()),
            ..at(PolicyFinding::deny("CKV_1", "open\u{202e} port"), "b.tf", 7)
        };
        let asks = PolicyFinding::require_approval(2, Vec::new(), "", "look at this");
        let set = made(
            "network",
            false,
            vec![
                waived,
                at(PolicyFinding::warn("main.warn", "no tag"), "a.tf", 2),
                deny,
                at(asks, "a.tf", 9),
            ],
        );
        let of = |level, path: &str, line, title: &str, message: &str| LineAnnotation {
            level,
            path: RepoPath::new(path).unwrap(),
            line,
            title: title.to_owned(),
            message: message.to_owned(),
        };
        assert_eq!(
            set.lines,
            [
                of(
                    AnnotationLevel::Failure,
                    "network/a.tf",
                    9,
                    "Policy set basics",
                    "look at this\nApprovals needed: 2"
                ),
                of(
                    AnnotationLevel::Failure,
                    "network/b.tf",
                    7,
                    "Policy set basics: CKV_1",
                    "open[U+202E] port\nResource: aws_s3_bucket.b\nSee https://docs.example.com/1"
                ),
                of(
                    AnnotationLevel::Warning,
                    "network/a.tf",
                    2,
                    "Policy set basics: main.warn",
                    "no tag"
                ),
                of(
                    AnnotationLevel::Notice,
                    "network/a.tf",
                    1,
                    "Policy set basics: main.deny",
                    "public\nWaived by alice until 2026-12-31: The website is public."
                ),
            ]
        );
        assert_eq!(set.title, "2 violations, 1 hint, 1 waived finding");
        assert_eq!(set.name.as_str(), "lockkeeper/policy_findings");
        assert!(
            set.summary.contains("`network/default`")
                && set.summary.contains("`lockkeeper/policy_check`"),
            "{}",
            set.summary
        );
        assert!(!format!("{set:?}").contains("secret"), "{set:?}");
    }

    #[test]
    fn quiet_servers_leave_out_sets_that_passed() {
        let hint = || at(PolicyFinding::warn("r", "no tag"), "a.tf", 2);
        assert_eq!(made("a", false, vec![hint()]).lines.len(), 1);
        assert_eq!(made("a", true, vec![hint()]).lines.len(), 0);
        let violation = at(PolicyFinding::deny("r", "public"), "a.tf", 3);
        assert_eq!(made("a", true, vec![hint(), violation]).lines.len(), 2);
    }

    #[test]
    fn the_worst_findings_are_kept_and_each_once() {
        let hints = (1..=150).map(|line| at(PolicyFinding::warn("r", "no tag"), "a.tf", line));
        let last = at(PolicyFinding::deny("r", "public"), "z.tf", 3);
        let findings: Vec<PolicyFinding> = hints.chain([last]).collect();
        let verdicts = [verdict(findings)];
        let project = project("network");
        let checked = CheckedProject {
            project: &project,
            verdicts: &verdicts,
        };
        let projects = [checked; 12];
        let set = annotations("lockkeeper", String::new(), false, &projects);
        assert_eq!(set.lines.len(), MOST);
        assert_eq!(set.lines[0].path.as_str(), "network/z.tf");
        assert_eq!(set.title, "1 violation, 150 hints");
        assert!(
            set.summary
                .contains("Only the 100 worst of 151 are shown here.")
                && set.summary.contains(", 2 more."),
            "{}",
            set.summary
        );
    }

    proptest! {
        #[test]
        fn texts_and_paths_stay_within_the_limits_of_github(
            text in ".{0,3000}",
            file in "([a-z./\\\\:]|\\.\\./){0,40}",
            dir in "[a-z]{1,3}(/[a-z]{1,3}){0,2}",
            line in any::<u32>(),
        ) {
            let finding = PolicyFinding {
                resource: Some(text.clone()),
                link: Some(text.clone()),
                ..at(PolicyFinding::deny(text.clone(), text), &file, line)
            };
            for line in made(&dir, false, vec![finding]).lines {
                prop_assert!(line.title.chars().count() <= 255);
                prop_assert!(!line.title.contains('\n'));
                prop_assert!(line.message.len() <= 64 << 10);
                let path = line.path.as_str();
                prop_assert!(!path.starts_with('/') && !path.split('/').any(|part| matches!(part, ".." | ".")), "{}", path);
                prop_assert!(line.line >= 1);
            }
        }
    }
}
