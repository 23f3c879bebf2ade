//! Tests `docs/configuration.md`: generates its tables, parses its examples, and computes its results.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use super::{hosts_tables, mappings, repo_schema, repo_tables, server_schema, server_tables};
use crate::config::generated_docs::{compare_block, read};
use crate::config::repo::RepoConfig;
use crate::config::repos::{RepoRules, ServerRepos};
use crate::config::server::{HostsFile, SETTINGS, SettingsFile};
use crate::config::yaml::Mapping;
use crate::config::{repo, repos};
use crate::model::ProjectKey;

fn page() -> String {
    read("docs/configuration.md")
}

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

#[test]
fn the_tables_of_the_pages_are_those_of_the_readers() {
    for (page, mark, expected) in [
        ("docs/configuration.md", "repo-keys", repo_tables()),
        ("docs/configuration.md", "server-keys", server_tables()),
        ("docs/install.md", "hosts-keys", hosts_tables()),
    ] {
        compare_block(page, mark, &expected);
    }
}

/// A default that names a flag without effect would be wrong.
#[test]
fn every_flag_that_is_the_default_of_a_key_is_a_setting() {
    for key in [repo::RepoFileMapping::KEYS, repos::ServerFileMapping::KEYS]
        .into_iter()
        .flat_map(mappings)
        .flat_map(|keys| keys.list)
    {
        for flag in key
            .doc
            .default
            .split('`')
            .filter_map(|word| word.strip_prefix("--"))
        {
            assert!(
                SETTINGS.iter().any(|setting| setting.flag == flag),
                "{}: --{flag}",
                key.name
            );
        }
    }
}

/// Returns the text between the fences, each with the words after its opening fence.
fn blocks(page: &str) -> Vec<(&str, &str)> {
    let between = page.split("\n```").skip(1).step_by(2);
    between
        .map(|block| block.split_once('\n').expect("a block has lines"))
        .collect()
}

fn rules(repos: &ServerRepos) -> RepoRules {
    repos.rules(&"github.com/acme/infra".parse().unwrap())
}

fn result(rules: &RepoRules, config: &RepoConfig, dir: &str) -> String {
    let project = rules.project(Some(config), &ProjectKey::of_dir(dir.parse().unwrap()));
    let mut text = format!(
        "workflow: `{}` ({})\n",
        project.workflow.value.name, project.workflow.by
    );
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
                repos = ServerRepos::parse("repos.yaml", text)
                    .unwrap_or_else(|errors| panic!("{errors}"));
                assert!(of_server.is_valid(&json(text)), "{text}");
            }
            // Uses the permissions of the server's file above it.
            "yaml repo" => {
                config = RepoConfig::parse("lockkeeper.yaml", text, rules(&repos).permissions())
                    .unwrap_or_else(|errors| panic!("{errors}"));
                assert!(of_repo.is_valid(&json(text)), "{text}");
            }
            kind => {
                let dir = kind
                    .strip_prefix("text result ")
                    .unwrap_or_else(|| panic!("`{kind}` is not tested"));
                let expected = result(&rules(&repos), &config, dir);
                assert!(
                    text.trim() == expected.trim(),
                    "the result for {dir} is\n{expected}"
                );
            }
        }
        count += 1;
    }
    assert!(count > 5, "the examples were not found");
}

/// Returns the README and all pages.
fn pages() -> Vec<PathBuf> {
    let docs = std::fs::read_dir(root().join("docs"))
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let mut pages: Vec<PathBuf> = docs
        .filter(|path| path.extension().is_some_and(|ending| ending == "md"))
        .collect();
    pages.push(root().join("README.md"));
    pages.sort();
    pages
}

#[test]
fn every_yaml_in_the_documentation_is_what_its_fence_says() {
    let mut count = 0;
    for path in pages() {
        let page = std::fs::read_to_string(&path).unwrap();
        let mut repos = ServerRepos::default();
        for (kind, text) in blocks(&page)
            .into_iter()
            .filter(|(kind, _)| kind.starts_with("yaml"))
        {
            let read = match kind {
                "yaml server" => ServerRepos::parse("repos.yaml", text)
                    .map(|read| repos = read)
                    .map_err(|errors| errors.to_string()),
                "yaml repo" => {
                    RepoConfig::parse("lockkeeper.yaml", text, rules(&repos).permissions())
                        .map(drop)
                        .map_err(|errors| errors.to_string())
                }
                "yaml settings" => {
                    let (_, problems) = SettingsFile::parse("server.yaml", text);
                    if problems.is_empty() {
                        Ok(())
                    } else {
                        Err(format!("{problems:?}"))
                    }
                }
                "yaml hosts" => HostsFile::named("hosts.yaml", text)
                    .check()
                    .map_err(|errors| errors.to_string()),
                "yaml prometheus" => serde_saphyr::from_str::<serde_json::Value>(text)
                    .map(drop)
                    .map_err(|error| error.to_string()),
                "yaml waivers" => lockkeeper_policy::waivers::read(text)
                    .map(drop)
                    .map_err(|error| error.to_string()),
                other => Err(format!("`{other}`: say whose file it is")),
            };
            assert_eq!(read, Ok(()), "{}:\n{text}", path.display());
            count += 1;
        }
    }
    assert!(count > 12, "only {count} examples were found");
}
