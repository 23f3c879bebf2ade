//! Writes the hidden last line of comments (design section 8), so that programs need not read prose.
//!
//! If a command has several comments, only the last one has the whole line. The others say in its place which part
//! they are, so that each can be found again.
//!
//! The line is an HTML comment around one JSON object. Values come from pull requests, so nothing inside may end the
//! comment: `--`, `<` and `>` are written as `\u…`. The length is limited: of very many projects only the first are
//! listed, and `"truncated":true` says so.

use crate::model::{
    CommandId, CommandKind, CommandOutcome, CommitSha, PlanCounts, ProjectKey, ProjectName,
    ProjectOutcome, RepoPath, Subject, WorkspaceName,
};

const OPEN: &str = "<!-- lockkeeper ";
const CLOSE: &str = " -->";
/// Version of the shape of the object.
const VERSION: u32 = 1;

/// Facts about a comment for programs. The fields are written in this order.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct MachineLine {
    /// Version of the shape of the object.
    pub v: u32,
    /// Requested command; left out if nobody requested one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<CommandKind>,
    /// Event that the comment reports without a request: `closed`, `lock_lost`, `lock_idle`, `lock_expired`,
    /// `not_merged`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event: Option<String>,
    /// Id of the command that the comment belongs to.
    pub id: CommandId,
    /// Number of this comment among several, from 1; left out if there is only one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<u32>,
    /// Number of comments; left out if there is only one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parts: Option<u32>,
    /// Number of the pull request.
    pub pull: Subject,
    /// Newest commit of the pull request when the command ran; `null` if it was not looked up.
    pub head: Option<CommitSha>,
    /// Outcome of the command.
    pub outcome: CommandOutcome,
    /// Reason of a refusal that has nothing to do with a project.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// True if projects were left out because there are too many.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
    /// Projects of the command, each with directory, workspace and name.
    pub projects: Vec<MachineProject>,
}

/// Entry of one project in the line.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct MachineProject {
    /// Name from the repository configuration.
    pub name: Option<ProjectName>,
    /// Directory of the project.
    pub dir: RepoPath,
    /// Workspace of the project.
    pub workspace: WorkspaceName,
    /// Outcome of the project; `null` if the command does nothing with it (`explain`).
    pub outcome: Option<ProjectOutcome>,
    /// Numbers of the plan; `null` if not known.
    pub plan: Option<PlanCounts>,
}

impl MachineProject {
    /// Creates the entry of a project with its outcome.
    pub fn new(key: &ProjectKey, outcome: ProjectOutcome, plan: Option<PlanCounts>) -> Self {
        Self {
            outcome: Some(outcome),
            plan,
            ..Self::concerned(key)
        }
    }

    /// Creates the entry of a project whose names alone are known.
    pub fn concerned(key: &ProjectKey) -> Self {
        let ProjectKey {
            name,
            dir,
            workspace,
        } = key.clone();
        Self {
            name,
            dir,
            workspace,
            outcome: None,
            plan: None,
        }
    }
}

/// Hidden last line of a comment that another one continues, with the fields of [`MachineLine`] that tell comments
/// apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct PartLine {
    v: u32,
    /// Id of the command that the comment belongs to.
    pub id: CommandId,
    /// Number of this comment among those of the command, from 1.
    #[serde(default = "one")]
    pub part: u32,
    /// Number of comments of the command.
    #[serde(default = "one")]
    pub parts: u32,
}

fn one() -> u32 {
    1
}

impl PartLine {
    /// Creates the line of one part of several, from 1.
    pub fn new(id: CommandId, part: u32, parts: u32) -> Self {
        Self {
            v: VERSION,
            id,
            part,
            parts,
        }
    }

    /// Reads the hidden line of any comment, the last one of its command or not.
    pub fn find(comment: &str) -> Option<Self> {
        serde_json::from_str(json_of(comment)?).ok()
    }
}

impl std::fmt::Display for PartLine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{OPEN}{}{CLOSE}", escaped(self))
    }
}

impl MachineLine {
    /// Creates a line without projects.
    pub fn new(
        command: CommandKind,
        id: CommandId,
        pull: Subject,
        outcome: CommandOutcome,
    ) -> Self {
        Self {
            v: VERSION,
            command: Some(command),
            event: None,
            id,
            part: None,
            parts: None,
            pull,
            head: None,
            outcome,
            reason: None,
            truncated: false,
            projects: Vec::new(),
        }
    }

    /// Returns the line for one of several comments; for the only comment nothing is added.
    #[must_use]
    pub fn of_part(&self, part: u32, parts: u32) -> Self {
        let several = parts > 1;
        Self {
            part: several.then_some(part),
            parts: several.then_some(parts),
            ..self.clone()
        }
    }

    /// Drops projects from the end until the line has at most `limit` bytes.
    #[must_use]
    pub fn within(mut self, limit: usize) -> Self {
        let sizes: Vec<usize> = self
            .projects
            .iter()
            .map(|project| escaped(project).len() + 1)
            .collect();
        let listed: usize = sizes.iter().sum();
        if self.to_string().len() <= limit {
            return self;
        }
        self.truncated = true;
        let mut room = limit.saturating_sub(self.to_string().len() - listed.saturating_sub(1));
        let fits = |size: &&usize| room.checked_sub(**size).map(|rest| room = rest).is_some();
        let kept = sizes.iter().take_while(fits).count();
        self.projects.truncate(kept);
        self
    }

    /// Reads the line of a comment. Only the last line that is not empty counts: the text above may quote a pull
    /// request.
    pub fn find(comment: &str) -> Option<Self> {
        serde_json::from_str(json_of(comment)?).ok()
    }
}

/// Returns the JSON of the hidden line of a comment, written by any release.
fn json_of(comment: &str) -> Option<&str> {
    let last = comment.lines().rev().find(|line| !line.trim().is_empty())?;
    last.trim_end().strip_prefix(OPEN)?.strip_suffix(CLOSE)
}

impl std::fmt::Display for MachineLine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{OPEN}{}{CLOSE}", escaped(self))
    }
}

/// Writes a value as JSON that cannot end an HTML comment.
fn escaped(value: &impl serde::Serialize) -> String {
    let json = serde_json::to_string(value)
        .expect("texts, numbers and lists can always be written as JSON");
    json.replace("--", r"\u002d\u002d")
        .replace('<', r"\u003c")
        .replace('>', r"\u003e")
}

/// Returns a text that exactly one comment contains: part `part` (from 1) of the `parts` comments of a command. With
/// this text the comment is found again, so that it is never posted twice (P2).
pub fn marker(id: CommandId, part: u32, parts: u32) -> String {
    if parts > 1 {
        format!(r#""id":"{id}","part":{part},"#)
    } else {
        format!(r#""id":"{id}","pull":"#)
    }
}

/// Returns true if the comment contains the marker. Only the hidden line counts, because the text above may quote a
/// pull request, and so the marker of another part. Texts inside the line have no unescaped quotation mark.
pub fn has_marker(comment: &str, marker: &str) -> bool {
    json_of(comment).is_some_and(|json| json.contains(marker))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use uuid::Uuid;

    use super::*;

    fn id() -> CommandId {
        CommandId::from(Uuid::from_u64_pair(0x7000, 0x8000_0000_0000_0001))
    }

    fn line() -> MachineLine {
        let key = ProjectKey::of_dir(RepoPath::root());
        let counts = PlanCounts {
            add: 1,
            ..PlanCounts::default()
        };
        MachineLine {
            head: Some("a1".repeat(20).parse().unwrap()),
            projects: vec![MachineProject::new(
                &key,
                ProjectOutcome::Planned,
                Some(counts),
            )],
            ..MachineLine::new(
                CommandKind::Plan,
                id(),
                Subject::pull(12),
                CommandOutcome::Success,
            )
        }
    }

    #[test]
    fn the_line_is_as_the_design_shows_it() {
        insta::assert_snapshot!(line(), @r#"<!-- lockkeeper {"v":1,"command":"plan","id":"00000000-0000-7000-8000-000000000001","pull":12,"head":"a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1","outcome":"success","projects":[{"name":null,"dir":".","workspace":"default","outcome":"planned","plan":{"add":1,"change":0,"destroy":0,"import":0,"forget":0}}]} -->"#);
        let refused = MachineLine {
            reason: Some("draft".to_owned()),
            ..MachineLine::new(
                CommandKind::Apply,
                id(),
                Subject::pull(12),
                CommandOutcome::Refused,
            )
        };
        insta::assert_snapshot!(refused.of_part(2, 3), @r#"<!-- lockkeeper {"v":1,"command":"apply","id":"00000000-0000-7000-8000-000000000001","part":2,"parts":3,"pull":12,"head":null,"outcome":"refused","reason":"draft","projects":[]} -->"#);
    }

    #[test]
    fn only_the_last_line_of_a_comment_counts() {
        let quoted = format!("{}\nRan Plan", line());
        assert_eq!(MachineLine::find(&quoted), None);
        assert_eq!(
            MachineLine::find(&format!("{quoted}\n{}\n\n", line().of_part(1, 2))),
            Some(line().of_part(1, 2))
        );
        assert_eq!(MachineLine::find(""), None);
    }

    #[test]
    fn a_marker_finds_its_own_part_only() {
        let of_part = |n: u32, parts: u32| {
            if n == parts {
                line().of_part(n, parts).to_string()
            } else {
                PartLine::new(id(), n, parts).to_string()
            }
        };
        for (part, parts) in [(1, 1), (1, 12), (2, 12), (11, 12), (12, 12)] {
            let found: Vec<u32> = (1..=parts)
                .filter(|n| has_marker(&of_part(*n, parts), &marker(id(), part, parts)))
                .collect();
            assert_eq!(found, [part]);
        }
        for (part, parts) in [(1, 1), (1, 2), (2, 2)] {
            assert_eq!(
                PartLine::find(&of_part(part, parts)),
                Some(PartLine::new(id(), part, parts))
            );
        }
        assert_eq!(
            MachineLine::find(&of_part(1, 2)),
            None,
            "only the last part has the outcome"
        );
    }

    #[test]
    fn a_marker_counts_only_in_the_hidden_line() {
        let (first, second) = (line().of_part(1, 2), line().of_part(2, 2));
        let wanted = marker(id(), 2, 2);
        for quoted in [format!("+ note = {wanted}"), second.to_string()] {
            assert!(
                !has_marker(&format!("{quoted}\n\n{first}"), &wanted),
                "{quoted}"
            );
            assert!(
                !has_marker(&quoted.replace("-->", "--> x"), &wanted),
                "{quoted}"
            );
        }
        let reason = MachineLine {
            reason: Some(wanted.clone()),
            ..first
        };
        assert!(!has_marker(&reason.to_string(), &wanted), "{reason}");
        assert!(has_marker(&format!("part 2\n\n{second}\n"), &wanted));
    }

    proptest! {
        #[test]
        fn any_line_is_read_back_and_cannot_end_early(
            dir in "[a-z<>!\"\\\\é -]{0,30}", ws in "[a-z<>-]{1,9}", pull in 0..i64::MAX, reason in proptest::option::of(any::<String>()),
            parts in 1u32..4, counts in proptest::option::of(any::<(u32, u32)>()),
        ) {
            let Ok(workspace) = WorkspaceName::new(&ws) else { return Ok(()) };
            let key = ProjectKey { dir: dir.parse().unwrap(), workspace, name: None };
            let plan = counts.map(|(add, forget)| PlanCounts { add, forget, ..PlanCounts::default() });
            let line = MachineLine {
                reason,
                projects: vec![MachineProject::new(&key, ProjectOutcome::Failed, plan)],
                ..MachineLine::new(CommandKind::Autoplan, id(), Subject::pull(pull), CommandOutcome::Failure)
            }.of_part(1, parts);
            let text = line.to_string();
            prop_assert_eq!(text.matches("--").count(), 2, "{}", text);
            prop_assert_eq!(text.lines().count(), 1);
            prop_assert_eq!(MachineLine::find(&format!("x\n\n{text}")), Some(line));
        }

        #[test]
        fn a_line_keeps_its_limit_and_says_what_it_left_out(count in 0usize..60, limit in 400usize..6000) {
            let projects: Vec<MachineProject> = vec![line().projects[0].clone(); count];
            let full = MachineLine { projects, ..line() };
            let cut = full.clone().within(limit);
            prop_assert!(cut.to_string().len() <= limit);
            prop_assert_eq!(cut.truncated, cut.projects.len() < count);
            prop_assert_eq!(cut == full, full.to_string().len() <= limit);
        }
    }
}
