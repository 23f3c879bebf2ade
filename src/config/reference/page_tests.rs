//! `docs/configuration.md`: its tables are generated, its examples are read, its results are computed.

use std::fmt::Write as _;

use super::{repo_schema, repo_tables, server_schema, server_tables};
use crate::config::repo::RepoConfig;
use crate::config::repos::{RepoRules, ServerRepos};
use crate::model::ProjectKey;

fn page() -> String {
    std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/configuration.md")).unwrap()
}

#[test]
fn the_tables_of_the_page_are_those_of_the_readers() {
    let page = page();
    for (mark, expected) in [("repo-keys", repo_tables()), ("server-keys", server_tables())] {
        let (_, rest) = page.split_once(&format!("<!-- {mark}:begin -->\n")).expect("the page has the mark");
        let (block, _) = rest.split_once(&format!("<!-- {mark}:end -->")).expect("the page has the mark");
        assert!(
            block.trim() == expected.trim(),
            "put this between the marks {mark} in docs/configuration.md:\n{expected}"
        );
    }
}

/// What is between the fences, with the words after the opening one.
fn blocks(page: &str) -> Vec<(&str, &str)> {
    let between = page.split("\n```").skip(1).step_by(2);
    between.map(|block| block.split_once('\n').expect("a block has lines")).collect()
}

fn rules(repos: &ServerRepos) -> RepoRules {
    repos.rules(&"github.com/acme/infra".parse().unwrap())
}

fn result(rules: &RepoRules, config: &RepoConfig, dir: &str) -> String {
    let project = rules.project(Some(config), &ProjectKey::of_dir(dir.parse().unwrap()));
    let mut text = format!("workflow: `{}` ({})\n", project.workflow.value.name, project.workflow.by);
    writeln!(text, "plan: {}", project.plan_requirements).unwrap();
    writeln!(text, "apply: {}", project.apply_requirements).unwrap();
    writeln!(text, "lock: {}", project.lock).unwrap();
    text
}

#[test]
fn every_example_of_the_page_is_read_and_every_result_is_what_follows() {
    let page = page();
    let schemas = [repo_schema(), server_schema()];
    let [of_repo, of_server] = schemas.map(|schema| jsonschema::draft202012::new(&schema).unwrap());
    let json = |text: &str| serde_saphyr::from_str::<serde_json::Value>(text).unwrap();
    let (mut repos, mut config, mut count) = (ServerRepos::default(), RepoConfig::default(), 0);
    for (kind, text) in blocks(&page) {
        match kind {
            "yaml server" => {
                repos = ServerRepos::parse("repos.yaml", text).unwrap_or_else(|errors| panic!("{errors}"));
                assert!(of_server.is_valid(&json(text)), "{text}");
            }
            // With the permissions of the server's file before it.
            "yaml repo" => {
                config = RepoConfig::parse("lockkeeper.yaml", text, rules(&repos).permissions())
                    .unwrap_or_else(|errors| panic!("{errors}"));
                assert!(of_repo.is_valid(&json(text)), "{text}");
            }
            kind => {
                let dir = kind.strip_prefix("text result ").unwrap_or_else(|| panic!("`{kind}` is not tested"));
                let expected = result(&rules(&repos), &config, dir);
                assert!(text.trim() == expected.trim(), "the result for {dir} is\n{expected}");
            }
        }
        count += 1;
    }
    assert!(count > 5, "the examples were not found");
}
