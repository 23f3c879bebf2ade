//! Tests of teams: their trees, and their members.

use lockkeeper::emulator::NewTeam;
use reqwest::Method;

use super::app::installation_token;
use super::rig::Rig;

async fn state(rig: &Rig, team: &str, login: &str) -> String {
    let answer = rig
        .get(&format!("/orgs/ACME/teams/{team}/memberships/{login}"))
        .await;
    match answer.status {
        200 => answer.body["state"].as_str().unwrap().to_owned(),
        status => format!("{status}: {}", answer.body["message"].as_str().unwrap()),
    }
}

#[tokio::test]
async fn members_of_child_teams_count_and_invitations_do_not_yet() {
    let rig = Rig::start().await;
    let github = &rig.github;
    github
        .set_team("acme", NewTeam::new("Engineering").with(&["grace"]))
        .unwrap();
    github
        .set_team(
            "acme",
            NewTeam::new("Platform Eng")
                .below("engineering")
                .with(&["Olga"])
                .inviting(&["ivan"]),
        )
        .unwrap();
    github
        .set_team(
            "acme",
            NewTeam::new("SRE")
                .below("platform-eng")
                .with(&["sam", "ivan"]),
        )
        .unwrap();
    for (team, login, expected) in [
        ("engineering", "grace", "active"),
        ("engineering", "olga", "active"),
        ("engineering", "sam", "active"),
        ("Platform-Eng", "OLGA", "active"),
        ("platform-eng", "ivan", "active"),
        ("platform-eng", "grace", "404: Not Found"),
        ("sre", "olga", "404: Not Found"),
        ("sre", "nobody", "404: Not Found"),
        ("no-such-team", "olga", "404: Not Found"),
    ] {
        assert_eq!(state(&rig, team, login).await, expected, "{team} {login}");
    }
    github
        .set_team("acme", NewTeam::new("SRE").below("platform-eng"))
        .unwrap();
    assert_eq!(state(&rig, "engineering", "sam").await, "404: Not Found");
    assert_eq!(state(&rig, "platform-eng", "ivan").await, "pending");
    rig.check();
}

#[tokio::test]
async fn the_teams_of_an_organisation_are_listed_in_pages_with_what_is_above_them() {
    let rig = Rig::start().await;
    rig.github
        .set_team("acme", NewTeam::new("Engineering"))
        .unwrap();
    rig.github
        .set_team("acme", NewTeam::new("SRE").below("engineering"))
        .unwrap();
    let all = rig.get("/orgs/acme/teams").await.body;
    assert_eq!(
        (&all[0]["slug"], &all[1]["parent"]["slug"]),
        (&"engineering".into(), &"engineering".into())
    );
    let second = rig.get("/orgs/acme/teams?per_page=1&page=2").await;
    assert_eq!(second.body[0]["name"], "SRE");
    assert_eq!(rig.get("/orgs/alice/teams").await.status, 404);
    let token = installation_token(&rig).await;
    assert_eq!(
        rig.send(Method::GET, "/orgs/acme/teams", Some(&token), None)
            .await
            .status,
        200
    );
    assert_eq!(
        rig.send(Method::GET, "/orgs/acme/teams", None, None)
            .await
            .status,
        401
    );
    rig.check();
}

#[tokio::test]
async fn teams_belong_to_organisations_and_form_no_rings() {
    let rig = Rig::start().await;
    let refused =
        |org: &str, team: NewTeam| rig.github.set_team(org, team).unwrap_err().to_string();
    assert!(refused("umbrella", NewTeam::new("SRE")).contains("owns a repository"));
    assert!(refused("acme", NewTeam::new("SRE").below("ops")).contains("has no team `ops`"));
    rig.github.set_team("acme", NewTeam::new("Ops")).unwrap();
    rig.github
        .set_team("acme", NewTeam::new("SRE").below("ops"))
        .unwrap();
    assert!(refused("acme", NewTeam::new("Ops").below("sre")).contains("as the parent of `ops`"));
    assert!(refused("acme", NewTeam::new("Ops").below("ops")).contains("as the parent of `ops`"));
}
