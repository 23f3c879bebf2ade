use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use super::*;
use crate::config::repos::Decider;
use crate::model::{CheckState, MergeObstacle};

const WORDS: SentenceNames<'_> = SentenceNames {
    author: "alice",
    base: "main",
    executable: "lockkeeper",
    status_name: "lockkeeper",
};

fn demands(list: &[Requirement]) -> Demands {
    let by = Decider::Server {
        file: "repos.yaml".into(),
        line: 4,
        id: "/.*/".to_owned(),
    };
    let mut demands = Demands::default();
    for requirement in list {
        demands.add(*requirement, &by);
    }
    demands
}

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// Returns the newest commit of the pull.
fn head() -> CommitSha {
    CommitSha::new(&"de".repeat(20)).unwrap()
}

fn older() -> CommitSha {
    CommitSha::new(&"ab".repeat(20)).unwrap()
}

fn told(list: &[Requirement], facts: &RequirementFacts) -> String {
    let mut text = String::new();
    for one in unmet(&demands(list), &head(), facts, &WORDS) {
        writeln!(text, "{}", one.message).unwrap();
        for hint in one.hints {
            writeln!(text, "  * {hint}").unwrap();
        }
    }
    text
}

fn approval(approval: Approval) -> String {
    told(
        &[Requirement::Approved],
        &RequirementFacts {
            approval: Fact::Known(approval),
            ..RequirementFacts::default()
        },
    )
}

fn by(all: &[(&str, Option<CommitSha>)]) -> BTreeMap<String, Option<CommitSha>> {
    all.iter()
        .map(|(login, commit)| ((*login).to_owned(), commit.clone()))
        .collect()
}

#[test]
fn an_approval_of_somebody_else_is_enough() {
    let by = by(&[("bob", Some(head())), ("dave", Some(older()))]);
    let given = Approval {
        by,
        asking: set(&["carol"]),
        ..Approval::default()
    };
    assert_eq!(approval(given), "");
}

#[test]
fn an_approval_of_another_commit_does_not_count_unless_somebody_says_so() {
    let all = [
        by(&[("bob", Some(older()))]),
        by(&[("bob", Some(older())), ("carol", None)]),
        (0..12)
            .map(|n| (format!("p{n:02}"), Some(older())))
            .collect(),
    ];
    let all = all.map(|by| Approval {
        by,
        asking: set(&["dave"]),
        ..Approval::default()
    });
    for given in &all {
        let facts = RequirementFacts {
            approval: Fact::Known(given.clone()),
            ..RequirementFacts::default()
        };
        assert_eq!(told(&[Requirement::ApprovedOnce], &facts), "");
        assert_eq!(
            told(&[Requirement::ApprovedOnce, Requirement::Approved], &facts),
            approval(given.clone())
        );
    }
    insta::assert_snapshot!(all.map(approval).join("\n"), @"
    `approved` is required (line 4 of the server's `repos.yaml`, for `/.*/`), and nobody has approved the head commit `dededede` of the pull request; 1 approval is of an older commit (`abababab`, by `bob`); `dave` asks for changes.
      * Somebody other than the author `alice` must review the head commit `dededede` and approve it; then run the command again.
      * Or ask an administrator to change that line to `approved: {stale: true}`, so that approvals of older commits count.

    `approved` is required (line 4 of the server's `repos.yaml`, for `/.*/`), and nobody has approved the head commit `dededede` of the pull request; 2 approvals are of older commits (`abababab`, by `bob`; unknown, by `carol`); `dave` asks for changes.
      * Somebody other than the author `alice` must review the head commit `dededede` and approve it; then run the command again.
      * Or ask an administrator to change that line to `approved: {stale: true}`, so that approvals of older commits count.

    `approved` is required (line 4 of the server's `repos.yaml`, for `/.*/`), and nobody has approved the head commit `dededede` of the pull request; 12 approvals are of older commits (`abababab`, by `p00`; `abababab`, by `p01`; `abababab`, by `p02`; `abababab`, by `p03`; `abababab`, by `p04`; `abababab`, by `p05`; `abababab`, by `p06`; `abababab`, by `p07`; `abababab`, by `p08`; `abababab`, by `p09`; 2 more); `dave` asks for changes.
      * Somebody other than the author `alice` must review the head commit `dededede` and approve it; then run the command again.
      * Or ask an administrator to change that line to `approved: {stale: true}`, so that approvals of older commits count.
    ");
    let nobody = RequirementFacts {
        approval: Fact::Known(Approval::default()),
        ..RequirementFacts::default()
    };
    insta::assert_snapshot!(told(&[Requirement::ApprovedOnce], &nobody), @"
    `approved: {stale: true}` is required (line 4 of the server's `repos.yaml`, for `/.*/`), and nobody has approved the pull request.
      * Somebody other than the author `alice` must approve the pull request; then run the command again.
    ");
}

#[test]
fn whoever_looked_without_approving_is_named() {
    let all = [
        Approval::default(),
        Approval {
            asking: set(&["bob"]),
            dismissed: set(&["carol", "dave"]),
            ..Approval::default()
        },
        Approval {
            onlookers: set(&["eve`s"]),
            ..Approval::default()
        },
        Approval {
            asking: (0..12).map(|n| format!("p{n:02}")).collect(),
            ..Approval::default()
        },
    ];
    insta::assert_snapshot!(all.map(approval).join("\n"), @"
    `approved` is required (line 4 of the server's `repos.yaml`, for `/.*/`), and nobody has approved the pull request.
      * Somebody other than the author `alice` must approve the pull request; then run the command again.

    `approved` is required (line 4 of the server's `repos.yaml`, for `/.*/`), and nobody has approved the pull request; `bob` asks for changes; `carol` and `dave` reviewed it, but the review was dismissed.
      * Somebody other than the author `alice` must approve the pull request; then run the command again.

    `approved` is required (line 4 of the server's `repos.yaml`, for `/.*/`), and nobody has approved the pull request; `eve's` approved it, but has no write access to this public repository.
      * Somebody other than the author `alice` must approve the pull request; then run the command again.

    `approved` is required (line 4 of the server's `repos.yaml`, for `/.*/`), and nobody has approved the pull request; `p00`, `p01`, `p02`, `p03`, `p04`, `p05`, `p06`, `p07`, `p08`, `p09` and 2 more ask for changes.
      * Somebody other than the author `alice` must approve the pull request; then run the command again.
    ");
}

#[test]
fn an_approval_for_another_base_branch_does_not_count() {
    let all = [
        Approval {
            before_base: set(&["bob"]),
            ..Approval::default()
        },
        Approval {
            by: by(&[("dave", Some(older()))]),
            before_base: set(&["bob", "carol"]),
            ..Approval::default()
        },
    ];
    let once = RequirementFacts {
        approval: Fact::Known(all[0].clone()),
        ..RequirementFacts::default()
    };
    assert_ne!(told(&[Requirement::ApprovedOnce], &once), "");
    insta::assert_snapshot!(all.map(approval).join("\n"), @"
    `approved` is required (line 4 of the server's `repos.yaml`, for `/.*/`), and nobody has approved the pull request; the approval by `bob` was given before the base branch changed to `main`.
      * Ask for a new review: somebody other than the author `alice` must approve the pull request with its present base branch `main`; then run the command again.

    `approved` is required (line 4 of the server's `repos.yaml`, for `/.*/`), and nobody has approved the head commit `dededede` of the pull request; 1 approval is of an older commit (`abababab`, by `dave`); the approvals by `bob` and `carol` were given before the base branch changed to `main`.
      * Somebody other than the author `alice` must review the head commit `dededede` and approve it; then run the command again.
      * Or ask an administrator to change that line to `approved: {stale: true}`, so that approvals of older commits count.
    ");
    let newer = Approval {
        by: by(&[("dave", Some(head()))]),
        before_base: set(&["bob"]),
        ..Approval::default()
    };
    assert_eq!(approval(newer), "");
}

fn merging(mergeability: Mergeability, in_head: u64) -> String {
    let base = Fact::Known(BaseGap {
        in_head,
        in_planned: 0,
        is_merged: true,
    });
    told(
        &[Requirement::Mergeable],
        &RequirementFacts {
            mergeability: Fact::Known(mergeability),
            base,
            ..RequirementFacts::default()
        },
    )
}

fn but_for(up_to_date: bool) -> Mergeability {
    Mergeability::ButFor {
        statuses: set(&["lockkeeper/apply"]),
        up_to_date,
    }
}

#[test]
fn what_lockkeeper_itself_has_yet_to_do_does_not_stand_in_the_way() {
    for (mergeability, in_head) in [
        (Mergeability::Yes, 3),
        (but_for(false), 3),
        (but_for(true), 0),
    ] {
        assert_eq!(merging(mergeability, in_head), "");
    }
    assert!(merging(but_for(true), 1).contains("it does not contain the newest commits of `main`"));
    let facts = RequirementFacts {
        mergeability: Fact::Known(but_for(true)),
        ..RequirementFacts::default()
    };
    assert!(
        told(&[Requirement::Mergeable], &facts)
            .contains("Lockkeeper cannot determine whether the base branch has newer commits")
    );
}

#[test]
fn every_obstacle_is_named_with_its_way_out() {
    let check = |name: &str, state| MergeObstacle::Check {
        name: name.to_owned(),
        state,
    };
    let all = [
        vec![MergeObstacle::Draft],
        vec![MergeObstacle::Conflicts],
        vec![MergeObstacle::Behind],
        vec![
            check("ci/test", CheckState::Missing),
            check("ci/lint", CheckState::Pending),
            check("ci/`x`", CheckState::Failed),
        ],
        vec![
            MergeObstacle::Approvals {
                wanted: 2,
                given: set(&["bob"]),
            },
            MergeObstacle::ChangesAsked(set(&["carol", "dave"])),
        ],
        vec![MergeObstacle::Approvals {
            wanted: 1,
            given: set(&[]),
        }],
        vec![MergeObstacle::Hidden {
            rule: "the classic protection of the branch".to_owned(),
            why: "it needs more".to_owned(),
        }],
        vec![MergeObstacle::Other("strange".to_owned())],
        vec![MergeObstacle::Unexplained],
    ];
    insta::assert_snapshot!(all.map(|all| merging(Mergeability::No(all), 0)).join("\n"), @"
    `mergeable` is required (line 4 of the server's `repos.yaml`, for `/.*/`), and the pull request cannot be merged: it is a draft.
      * Mark the pull request as ready for review; then run the command again.

    `mergeable` is required (line 4 of the server's `repos.yaml`, for `/.*/`), and the pull request cannot be merged: it conflicts with `main`.
      * Resolve the conflicts with `main` and push. Lockkeeper plans the push automatically.

    `mergeable` is required (line 4 of the server's `repos.yaml`, for `/.*/`), and the pull request cannot be merged: it does not contain the newest commits of `main`.
      * Merge `main` into the branch of the pull request, or rebase it, and push. Lockkeeper plans the push automatically.

    `mergeable` is required (line 4 of the server's `repos.yaml`, for `/.*/`), and the pull request cannot be merged: the required check `ci/test` has not been set; the required check `ci/lint` is pending; the required check `ci/'x'` failed.
      * Wait for the required checks; then run the command again.
      * Fix the failed checks; then run the command again.

    `mergeable` is required (line 4 of the server's `repos.yaml`, for `/.*/`), and the pull request cannot be merged: 2 approvals are required from people with write access, and there is only the approval of `bob`; `carol` and `dave` ask for changes.
      * Somebody with write access other than the author must approve the pull request; then run the command again.
      * The reviewer who requested changes must approve, or somebody must dismiss the review; then run the command again.

    `mergeable` is required (line 4 of the server's `repos.yaml`, for `/.*/`), and the pull request cannot be merged: 1 approval is required from people with write access, and nobody has approved.
      * Somebody with write access other than the author must approve the pull request; then run the command again.

    `mergeable` is required (line 4 of the server's `repos.yaml`, for `/.*/`), and the pull request cannot be merged: Lockkeeper cannot check the classic protection of the branch, because it needs more.
      * The merge box of the pull request shows the rule. If `lockkeeper/apply` is a required check of `main`, Lockkeeper cannot use the merge box, because it waits for this status; so Lockkeeper must check all other rules itself. An administrator of the repository can change the rule, extend Lockkeeper's permissions, or remove that check from the required checks.

    `mergeable` is required (line 4 of the server's `repos.yaml`, for `/.*/`), and the pull request cannot be merged: the forge calls it `strange`.
      * The merge box of the pull request shows what is missing. An administrator of the repository can change the rules of the branch.

    `mergeable` is required (line 4 of the server's `repos.yaml`, for `/.*/`), and the pull request cannot be merged: the forge calls it blocked, although all rules that it reports are met.
      * The merge box of the pull request shows what is missing. An administrator of the repository can change the rules of the branch.
    ");
}

#[test]
fn what_is_not_known_does_not_hold() {
    use Requirement::{Approved, Mergeable, Undiverged};
    let lost = || Fact::Unknown("github.com could not be reached.".to_owned());
    let facts = RequirementFacts {
        approval: lost(),
        mergeability: Fact::Known(Mergeability::NotKnownYet),
        base: Fact::Unknown("x".to_owned()),
    };
    insta::assert_snapshot!(told(&[Approved, Mergeable, Undiverged], &facts), @"
    `approved` is required (line 4 of the server's `repos.yaml`, for `/.*/`), and Lockkeeper cannot determine who has approved: github.com could not be reached.
      * Run the command again in a moment. If the error remains, ask an administrator of Lockkeeper for help.
    `mergeable` is required (line 4 of the server's `repos.yaml`, for `/.*/`), and the forge is still checking whether the pull request can be merged.
      * Run the command again in a minute.
    `undiverged` is required (line 4 of the server's `repos.yaml`, for `/.*/`), and Lockkeeper cannot determine whether the base branch has newer commits: x.
      * Run the command again in a moment. If the error remains, ask an administrator of Lockkeeper for help.
    ");
    for requirement in Requirement::ALL {
        assert_ne!(
            told(&[*requirement], &RequirementFacts::default()),
            "",
            "{requirement}"
        );
        let facts = RequirementFacts {
            approval: lost(),
            mergeability: Fact::Unknown(String::new()),
            base: Fact::Unknown(String::new()),
        };
        assert_ne!(told(&[*requirement], &facts), "", "{requirement}");
    }
}

fn gap(in_planned: u64, is_merged: bool) -> String {
    let base = Fact::Known(BaseGap {
        in_head: 7,
        in_planned,
        is_merged,
    });
    told(
        &[Requirement::Undiverged],
        &RequirementFacts {
            base,
            ..RequirementFacts::default()
        },
    )
}

#[test]
fn what_is_planned_has_to_contain_the_base_branch() {
    assert_eq!(gap(0, false) + &gap(0, true), "");
    insta::assert_snapshot!(format!("{}\n{}", gap(1, false), gap(3, true)), @"
    `undiverged` is required (line 4 of the server's `repos.yaml`, for `/.*/`), and `main` has 1 commit that the pull request does not contain.
      * Merge `main` into the branch of the pull request, or rebase it, and push. Lockkeeper plans the push automatically.

    `undiverged` is required (line 4 of the server's `repos.yaml`, for `/.*/`), and `main` has 3 commits that the planned merge does not contain.
      * Comment `lockkeeper plan` to plan the merge with the newest `main`. Check the new plan, then apply it.
    ");
}

#[test]
fn nothing_is_looked_up_that_nobody_demands() {
    assert_eq!(Needed::by(&Demands::default()), Needed::default());
    for approval in [Requirement::Approved, Requirement::ApprovedOnce] {
        assert_eq!(
            Needed::by(&demands(&[approval])),
            Needed {
                approval: true,
                ..Needed::default()
            }
        );
    }
    let needed = Needed::by(&demands(&[Requirement::Mergeable, Requirement::Undiverged]));
    assert_eq!(
        needed,
        Needed {
            approval: false,
            mergeability: true,
            base: true
        }
    );
    assert_eq!(told(&[], &RequirementFacts::default()), "");
}
