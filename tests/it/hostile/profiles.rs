//! Attacks of code in one directory on the credentials that the administrator gave only to another one.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use super::ordinary;
use crate::e2e::world::World;

/// Configuration with profiles. A profile belongs to a directory, regardless of the names of the projects.
const REPOS: &str = r"
environment_profiles:
  prod:
    plan: [CLOUD_TOKEN=PROD_READ, AWS_SHARED_CREDENTIALS_FILE=PROD_READ_FILE]
    apply: [CLOUD_TOKEN=PROD_WRITE, AWS_SHARED_CREDENTIALS_FILE=PROD_WRITE_FILE]
  dev:
    plan: [CLOUD_TOKEN=DEV_READ, AWS_SHARED_CREDENTIALS_FILE=DEV_READ_FILE]
    apply: [CLOUD_TOKEN=DEV_WRITE, AWS_SHARED_CREDENTIALS_FILE=DEV_WRITE_FILE]
repos:
- id: /.*/
  workflow: spied
  environment_profile: [{dir: prod, profile: prod}, {dir: dev, profile: dev}]
workflows:
  spied:
    plan: {steps: [run: sh ./spy.sh plan, init, plan]}
    apply: {steps: [run: sh ./spy.sh apply, apply]}
";

const OWN: &str = "version: 3\nprojects:\n- {dir: prod, name: plain}\n- {dir: dev, name: dev}\n- {dir: plain, name: prod}\n";

const STAGES: [&str; 4] = ["PROD_READ", "PROD_WRITE", "DEV_READ", "DEV_WRITE"];

/// Returns a script that searches its own environment, the environments of all processes while the runs of the other
/// directories are there, and every credential file.
fn spy(report: &Path, secrets: &Path) -> String {
    let (report, secrets, stages) = (report.display(), secrets.display(), STAGES.join(" "));
    format!(
        r#"#!/bin/sh
me=${{PWD##*/}}-$1
all="prod-$1 dev-$1 plain-$1"
meet() {{
  : >"{report}/$1-$me"
  for other in $all; do until [ -e "{report}/$1-$other" ]; do sleep 0.05; done; done
}}
meet began
{{ env; cat /proc/[0-9]*/environ | tr '\0' '\n'; for stage in {stages}; do cat {secrets}/"$stage"_FILE; done; }} 2>/dev/null |
  grep -o 'the-secret-[A-Z_]*' | sort -u >"{report}/found-$me"
meet ended
"#
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_project_finds_the_credentials_of_its_own_profile_and_stage() {
    let secrets = tempfile::tempdir().unwrap();
    let put = |name: &str, text: &str, mode| {
        let path = secrets.path().join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        path.display().to_string()
    };
    std::fs::set_permissions(secrets.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let repos = put("repos.yaml", REPOS, 0o644);
    // Even a wildcard does not give the variables of a profile to others.
    let mut settings = ordinary()
        .flag(&format!("--repo-config={repos}"))
        .flag("--pass-environment=*");
    for stage in STAGES {
        let file = put(
            &format!("{stage}_FILE"),
            &format!("the-secret-{stage}_FILE\n"),
            0o644,
        );
        settings = settings
            .variable(stage, &format!("the-secret-{stage}"))
            .variable(&format!("{stage}_FILE"), &file);
    }
    let world = World::start_with(settings, |_| vec![("main.tf", String::new())]).await;
    let report = world.dir.path().join("report");
    std::fs::create_dir(&report).unwrap();
    std::fs::set_permissions(&report, std::fs::Permissions::from_mode(0o777)).unwrap();
    let spy = spy(&report, secrets.path());
    let code = "resource \"terraform_data\" \"it\" {}\n";
    let files: Vec<(String, &str)> = ["prod", "dev", "plain"]
        .iter()
        .flat_map(|dir| {
            [
                (format!("{dir}/main.tf"), code),
                (format!("{dir}/spy.sh"), spy.as_str()),
            ]
        })
        .chain([("atlantis.yaml".to_owned(), OWN)])
        .collect();
    let files: Vec<(&str, &str)> = files
        .iter()
        .map(|(path, text)| (path.as_str(), *text))
        .collect();
    let pull = world.open("feature", &files).await;
    let found = |stage: &str| {
        ["prod", "dev", "plain"].map(|dir| {
            let text =
                std::fs::read_to_string(report.join(format!("found-{dir}-{stage}"))).unwrap();
            text.lines()
                .map(|line| line.trim_start_matches("the-secret-").to_owned())
                .collect::<BTreeSet<_>>()
        })
    };
    let set = |names: &[&str]| {
        names
            .iter()
            .map(|&name| name.to_owned())
            .collect::<BTreeSet<_>>()
    };

    let said = world.answer(pull).await;
    assert!(
        said.outcome().starts_with("autoplan success"),
        "{}{}",
        said.outcome(),
        said.text
    );
    let plans = [
        set(&["PROD_READ", "PROD_READ_FILE"]),
        set(&["DEV_READ", "DEV_READ_FILE"]),
        set(&[]),
    ];
    assert_eq!(found("plan"), plans);
    let said = world.ask(pull, "lockkeeper apply").await;
    assert!(
        said.outcome().starts_with("apply success"),
        "{}{}",
        said.outcome(),
        said.text
    );
    let applies = [
        set(&["PROD_WRITE", "PROD_WRITE_FILE"]),
        set(&["DEV_WRITE", "DEV_WRITE_FILE"]),
        set(&[]),
    ];
    assert_eq!(found("apply"), applies);
    world
        .finish(&["#1 dev default", "#1 plain default", "#1 prod default"])
        .await;
}
