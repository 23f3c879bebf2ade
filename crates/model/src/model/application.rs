//! Applications: registered projects, as requested by the API or on the command line. Both requests are read here, so
//! that they have the same rules and the same messages.

use std::fmt;

use super::path::RepoPath;
use super::project::{ProjectName, WorkspaceName};
use super::pull::BranchName;
use super::repo_url::{ForgeHosts, RepoUrl};
use super::text::text_enum;

text_enum! {
    /// Field of a request.
    pub enum ApplicationField {
        /// URL of the repository.
        Url = "url",
        /// Branch of the repository.
        Branch = "branch",
        /// Directory with the code.
        Dir = "dir",
        /// Workspace of the application.
        Workspace = "workspace",
        /// Name of the application.
        Name = "name",
        /// Permission for a branch other than the default one.
        AnyBranch = "any_branch",
    }
}

/// Problem of a field, and the correct form of its value, in sentences.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApplicationProblem {
    /// Field with the problem.
    pub field: ApplicationField,
    /// Description of the problem, in sentences.
    pub text: String,
}

/// A registered project: a directory of a branch of a repository, in a workspace. No two have the same four values.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct ApplicationSpec {
    /// URL of the repository.
    pub url: RepoUrl,
    /// Branch of the repository.
    pub branch: BranchName,
    /// Directory with the code.
    pub dir: RepoPath,
    /// Workspace of the application.
    pub workspace: WorkspaceName,
    /// Name that people use, if there is one.
    pub name: Option<ProjectName>,
    /// True if the branch may differ from the default branch of the repository. Only the account of the whole server
    /// allows that.
    pub any_branch: bool,
}

impl ApplicationSpec {
    /// Returns the title beside the repository: `network (branch main)`. The title is the name, or else the
    /// directory. The workspace follows unless it is the default one.
    #[must_use]
    pub fn title(&self) -> String {
        let called = self
            .name
            .as_ref()
            .map_or_else(|| self.dir.to_string(), ToString::to_string);
        let workspace = if self.workspace == WorkspaceName::default() {
            String::new()
        } else {
            format!(", workspace {}", self.workspace)
        };
        format!("{called} (branch {}{workspace})", self.branch)
    }
}

impl fmt::Display for ApplicationSpec {
    /// Formats the application for the audit log and for logs:
    /// `https://github.com/acme/infra branch main dir net workspace default (net)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} branch {} dir {} workspace {}",
            self.url, self.branch, self.dir, self.workspace
        )?;
        self.name
            .as_ref()
            .map_or(Ok(()), |name| write!(f, " ({name})"))?;
        if self.any_branch {
            f.write_str(", even if it is not the default branch")
        } else {
            Ok(())
        }
    }
}

/// Changes of an application. `None` leaves a field as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ApplicationChange {
    /// New repository URL, if it changes.
    pub url: Option<RepoUrl>,
    /// New branch, if it changes.
    pub branch: Option<BranchName>,
    /// New directory, if it changes.
    pub dir: Option<RepoPath>,
    /// New workspace, if it changes.
    pub workspace: Option<WorkspaceName>,
    /// New name, if it changes. `Some(None)` removes it.
    pub name: Option<Option<ProjectName>>,
    /// Permission for a branch other than the default one. Without a new value, the permission stays only if the
    /// repository and the branch stay.
    pub any_branch: Option<bool>,
}

impl ApplicationChange {
    /// Returns the application with the changes.
    #[must_use]
    pub fn of(&self, spec: &ApplicationSpec) -> ApplicationSpec {
        let is_moved = self.url.as_ref().is_some_and(|url| *url != spec.url)
            || self
                .branch
                .as_ref()
                .is_some_and(|branch| *branch != spec.branch);
        ApplicationSpec {
            any_branch: self.any_branch.unwrap_or(spec.any_branch && !is_moved),
            url: self.url.as_ref().unwrap_or(&spec.url).clone(),
            branch: self.branch.as_ref().unwrap_or(&spec.branch).clone(),
            dir: self.dir.as_ref().unwrap_or(&spec.dir).clone(),
            workspace: self.workspace.as_ref().unwrap_or(&spec.workspace).clone(),
            name: self.name.as_ref().unwrap_or(&spec.name).clone(),
        }
    }
}

/// Fields as a person or program wrote them. `None` means that a field is absent.
#[derive(Clone, Copy, Debug, Default)]
pub struct ApplicationFields<'a> {
    /// Repository, in any spelling.
    pub url: Option<&'a str>,
    /// Name of the branch.
    pub branch: Option<&'a str>,
    /// Directory. A new application without one uses the root.
    pub dir: Option<&'a str>,
    /// Workspace. A new application without one uses `default`.
    pub workspace: Option<&'a str>,
    /// Name. An empty text means no name.
    pub name: Option<&'a str>,
    /// Permission for a branch other than the default one. A new application without a value has no such permission.
    pub any_branch: Option<bool>,
}

/// Maximum length of a branch. Forges accept no longer ones, and the length still fits an index of PostgreSQL beside
/// an address and a directory.
const LONGEST_BRANCH: usize = 255;

impl ApplicationFields<'_> {
    /// Returns a new application, or all problems of the fields.
    pub fn spec(&self, forges: &ForgeHosts) -> Result<ApplicationSpec, Vec<ApplicationProblem>> {
        let (change, mut problems) = self.read(forges);
        for (field, said) in [
            (ApplicationField::Url, self.url),
            (ApplicationField::Branch, self.branch),
        ] {
            if said.is_none() {
                problems.push(problem(field, "It is missing."));
            }
        }
        let ApplicationChange {
            url,
            branch,
            dir,
            workspace,
            name,
            any_branch,
        } = change;
        match (url, branch) {
            (Some(url), Some(branch)) if problems.is_empty() => Ok(ApplicationSpec {
                url,
                branch,
                dir: dir.unwrap_or_else(RepoPath::root),
                workspace: workspace.unwrap_or_default(),
                name: name.flatten(),
                any_branch: any_branch.unwrap_or_default(),
            }),
            _ => Err(problems),
        }
    }

    /// Returns a change of an application, or all problems of the fields.
    pub fn change(
        &self,
        forges: &ForgeHosts,
    ) -> Result<ApplicationChange, Vec<ApplicationProblem>> {
        let (change, problems) = self.read(forges);
        if problems.is_empty() {
            Ok(change)
        } else {
            Err(problems)
        }
    }

    fn read(&self, forges: &ForgeHosts) -> (ApplicationChange, Vec<ApplicationProblem>) {
        let mut problems = Vec::new();
        let found = &mut problems;
        let change = ApplicationChange {
            url: read(found, ApplicationField::Url, self.url, |text| {
                RepoUrl::parse_at(text, forges)
            }),
            branch: read(found, ApplicationField::Branch, self.branch, branch),
            dir: read(found, ApplicationField::Dir, self.dir, RepoPath::new),
            workspace: read(
                found,
                ApplicationField::Workspace,
                self.workspace,
                WorkspaceName::new,
            ),
            name: read(found, ApplicationField::Name, self.name, name),
            any_branch: self.any_branch,
        };
        (change, problems)
    }
}

fn read<T, E: fmt::Display>(
    problems: &mut Vec<ApplicationProblem>,
    field: ApplicationField,
    said: Option<&str>,
    parse: impl Fn(&str) -> Result<T, E>,
) -> Option<T> {
    let read = said.map(parse)?;
    read.map_err(|error| problems.push(problem(field, &format!("{error}."))))
        .ok()
}

fn branch(text: &str) -> Result<BranchName, String> {
    if text.len() > LONGEST_BRANCH {
        return Err(format!("a branch has at most {LONGEST_BRANCH} bytes"));
    }
    BranchName::new(text).map_err(|error| error.to_string())
}

fn name(text: &str) -> Result<Option<ProjectName>, super::project::InvalidName> {
    if text.is_empty() {
        Ok(None)
    } else {
        ProjectName::new(text).map(Some)
    }
}

fn problem(field: ApplicationField, text: &str) -> ApplicationProblem {
    ApplicationProblem {
        field,
        text: text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIELDS: ApplicationFields<'_> = ApplicationFields {
        url: Some("git@github.com:Acme/infra.git"),
        branch: Some("main"),
        dir: None,
        workspace: None,
        name: None,
        any_branch: None,
    };

    #[test]
    fn that_any_branch_is_allowed_is_said_of_one_branch_of_one_repository() {
        let change = |fields: ApplicationFields<'_>| fields.change(&ForgeHosts::public()).unwrap();
        let spec = ApplicationFields {
            any_branch: Some(true),
            ..FIELDS
        }
        .spec(&ForgeHosts::public())
        .unwrap();
        assert!(spec.any_branch && !FIELDS.spec(&ForgeHosts::public()).unwrap().any_branch);
        let nothing = ApplicationFields::default();
        let same = ApplicationFields {
            branch: Some("main"),
            dir: Some("dns"),
            ..nothing
        };
        assert!(change(same).of(&spec).any_branch);
        for moved in [
            ApplicationFields {
                branch: Some("release"),
                ..nothing
            },
            ApplicationFields {
                url: Some("https://github.com/acme/dns"),
                ..nothing
            },
            ApplicationFields {
                any_branch: Some(false),
                ..nothing
            },
        ] {
            assert!(!change(moved).of(&spec).any_branch, "{moved:?}");
        }
        let both = ApplicationFields {
            branch: Some("release"),
            any_branch: Some(true),
            ..nothing
        };
        assert!(change(both).of(&spec).any_branch);
    }

    #[test]
    fn what_is_not_said_is_the_root_and_the_default_workspace() {
        let spec = FIELDS.spec(&ForgeHosts::public()).unwrap();
        assert_eq!(
            spec.to_string(),
            "https://github.com/acme/infra branch main dir . workspace default"
        );
        assert_eq!(spec.title(), ". (branch main)");
        let fields = ApplicationFields {
            dir: Some("/net/"),
            workspace: Some("prod"),
            name: Some("net"),
            ..FIELDS
        };
        let spec = fields.spec(&ForgeHosts::public()).unwrap();
        assert_eq!(
            spec.to_string(),
            "https://github.com/acme/infra branch main dir net workspace prod (net)"
        );
        assert_eq!(spec.title(), "net (branch main, workspace prod)");
    }

    #[test]
    fn a_change_leaves_what_is_not_said() {
        let spec = ApplicationFields {
            name: Some("net"),
            ..FIELDS
        }
        .spec(&ForgeHosts::public())
        .unwrap();
        let change =
            |fields: ApplicationFields<'_>| fields.change(&ForgeHosts::public()).unwrap().of(&spec);
        assert_eq!(change(ApplicationFields::default()), spec);
        let moved = change(ApplicationFields {
            dir: Some("dns"),
            name: Some(""),
            ..ApplicationFields::default()
        });
        assert_eq!(
            moved.to_string(),
            "https://github.com/acme/infra branch main dir dns workspace default"
        );
        assert_eq!(moved.name, None);
    }

    #[test]
    fn everything_that_is_wrong_is_told_at_once() {
        let long = "b".repeat(256);
        let fields = ApplicationFields {
            url: Some("https://ann:hunter2@github.com/acme/infra"),
            branch: Some(&long),
            dir: Some("../x"),
            workspace: Some("a b"),
            name: Some("é"),
            any_branch: None,
        };
        let problems = fields.spec(&ForgeHosts::public()).unwrap_err();
        let lines: Vec<_> = problems
            .iter()
            .map(|found| format!("{}: {}", found.field, found.text))
            .collect();
        insta::assert_snapshot!(lines.join("\n"), @r#"
        url: `https://…@github.com/acme/infra` is not the address of a repository: it contains a password or a token, which would be stored and shown; remove it from the address, store it with `lockkeeper credentials add`, and replace it if others could read it.
        branch: a branch has at most 255 bytes.
        dir: `../x` leaves the repository.
        workspace: invalid workspace "a b": it must not contain `$`, white space or control characters.
        name: invalid project name "é": 1 to 255 letters, digits, `-`, `_`, `.`, `~` or `/` are allowed.
        "#);
        let problems = ApplicationFields::default()
            .spec(&ForgeHosts::public())
            .unwrap_err();
        assert_eq!(
            problems,
            [
                problem(ApplicationField::Url, "It is missing."),
                problem(ApplicationField::Branch, "It is missing.")
            ]
        );
    }
}
