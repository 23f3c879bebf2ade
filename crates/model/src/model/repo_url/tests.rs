//! Tests that spellings of one repository are equal, that two repositories differ, and that other texts are refused.

use proptest::prelude::*;
use proptest::sample::select;

use super::*;

fn normal(text: &str) -> String {
    RepoUrl::parse(text).map_or_else(|refused| refused.to_string(), |url| url.to_string())
}

fn at(text: &str, hosts: &[&str]) -> Result<String, RepoUrlFault> {
    let hosts = ForgeHosts::with(hosts.iter().map(|host| host.parse().unwrap()));
    RepoUrl::parse_at(text, &hosts)
        .map(|url| url.to_string())
        .map_err(|refused| refused.fault)
}

#[test]
fn every_way_to_write_a_repository_ends_in_one() {
    for text in [
        "https://github.com/acme/infra",
        "https://github.com/acme/infra.git",
        "https://github.com/acme/infra/",
        "https://github.com/acme/infra.git/",
        "HTTPS://GitHub.COM/Acme/Infra.GIT",
        "https://github.com:443/acme/infra",
        "https://github.com:/acme/infra",
        "https://github.com./acme/infra",
        "https://www.github.com/acme/infra",
        "https://ann@github.com/acme/infra",
        "https://x-access-token@github.com/acme/infra",
        "https://github%2ecom/%61cme/infr%61%2egit",
        "https://ｇｉｔｈｕｂ.com/acme/infra",
        "  https://github.com/acme/infra ",
        "http://github.com/acme/infra",
        "http://github.com:80/acme/infra",
        "ssh://git@github.com/acme/infra.git",
        "ssh://github.com:22/acme/infra",
        "ssh://git@github.com:2222/acme/infra",
        "ssh://git@ssh.github.com:443/acme/infra.git",
        "git+ssh://git@github.com/acme/infra",
        "ssh+git://git@github.com/acme/infra",
        "git@github.com:acme/infra.git",
        "git@GITHUB.com:/Acme/infra/",
        "github.com:acme/infra",
        "org-12345678901234567890@github.com:acme/infra",
        "git://github.com/acme/infra",
        "git://github.com:9418/acme/infra.git",
    ] {
        assert_eq!(normal(text), "https://github.com/acme/infra", "{text}");
    }
}

#[test]
fn an_address_may_be_repeated_unless_something_in_it_could_be_a_secret() {
    for fine in [
        "",
        "github.com",
        "https://github.com/acme/infra",
        "git@github.com:acme/infra",
        "ssh://git@host:22/a/b",
    ] {
        assert!(!RepoUrl::may_hold_secret(fine), "{fine}");
    }
    for secret in [
        "ann:pw@host/a",
        "https://ann%3apw%40host/a",
        "ssh://ann@host/a",
        "https://host/a?key=1",
        "ghp_0123456789abcdef",
    ] {
        assert!(RepoUrl::may_hold_secret(secret), "{secret}");
    }
}

#[test]
fn the_normal_form_of_every_kind_of_host() {
    for (text, expected) in [
        (
            "git@gitlab.com:Group/Sub/Infra.git",
            "https://gitlab.com/group/sub/infra",
        ),
        (
            "https://ann@bitbucket.org/Team/Infra.git",
            "https://bitbucket.org/team/infra",
        ),
        (
            "ssh://git@altssh.bitbucket.org:443/team/infra.git",
            "https://bitbucket.org/team/infra",
        ),
        (
            "acme@acme.ghe.com:Net/Infra.git",
            "https://acme.ghe.com/net/infra",
        ),
        (
            "https://acme@dev.azure.com/Acme/Net/_git/Infra",
            "https://dev.azure.com/acme/net/_git/infra",
        ),
        (
            "https://dev.azure.com/acme/My%20Net/_git/infra",
            "https://dev.azure.com/acme/my%20net/_git/infra",
        ),
        (
            "https://dev.azure.com/acme/My Net/_git/infra",
            "https://dev.azure.com/acme/my%20net/_git/infra",
        ),
        (
            "https://dev.azure.com/acme/_git/infra",
            "https://dev.azure.com/acme/infra/_git/infra",
        ),
        (
            "git@ssh.dev.azure.com:v3/acme/net/infra",
            "https://dev.azure.com/acme/net/_git/infra",
        ),
        (
            "acme@vs-ssh.visualstudio.com:v3/acme/net/infra",
            "https://dev.azure.com/acme/net/_git/infra",
        ),
        (
            "https://Acme.visualstudio.com/net/_git/infra",
            "https://dev.azure.com/acme/net/_git/infra",
        ),
        (
            "https://acme.visualstudio.com/DefaultCollection/net/_git/infra",
            "https://dev.azure.com/acme/net/_git/infra",
        ),
        (
            "ssh://acme@acme.visualstudio.com:22/net/_ssh/infra",
            "https://dev.azure.com/acme/net/_git/infra",
        ),
        (
            "https://git.acme.com/Net/Infra.git",
            "https://git.acme.com/Net/Infra",
        ),
        (
            "git@git.acme.com:Net/Infra.git",
            "https://git.acme.com/Net/Infra",
        ),
        (
            "https://git.acme.com:8443/net/infra",
            "https://git.acme.com:8443/net/infra",
        ),
        (
            "http://git.acme.com:3000/net/infra",
            "https://git.acme.com:3000/net/infra",
        ),
        (
            "https://github.com:8443/Acme/infra",
            "https://github.com:8443/Acme/infra",
        ),
        (
            "https://Bücher.example/a/ü",
            "https://xn--bcher-kva.example/a/%C3%BC",
        ),
        (
            "https://XN--BCHER-KVA.example/a/%c3%bc",
            "https://xn--bcher-kva.example/a/%C3%BC",
        ),
        (
            "https://[2001:DB8:0::1]:8443/a/b",
            "https://[2001:db8::1]:8443/a/b",
        ),
        ("git@[::1]:a/b.git", "https://[::1]/a/b"),
        ("https://127.0.0.1:4141/a/b", "https://127.0.0.1:4141/a/b"),
        (
            "https://git.sr.ht/~ann/infra",
            "https://git.sr.ht/~ann/infra",
        ),
        ("https://git.acme.com/infra", "https://git.acme.com/infra"),
        (
            "https://git.acme.com/a%25b/c%2Bd",
            "https://git.acme.com/a%25b/c+d",
        ),
    ] {
        assert_eq!(normal(text), expected, "{text}");
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn what_is_refused_says_what_is_wrong_and_the_way_out() {
    insta::assert_snapshot!(
        [
            "",
            "/srv/git/infra.git",
            "./infra",
            "../infra:x",
            "C:\\git\\infra",
            "infra",
            "github.com/acme/infra",
            "file:///srv/git/infra",
            "file:/srv/git/infra",
            "ext::sh -c id",
            "s3://bucket/infra",
            "git::https://github.com/acme/infra",
            "https:/github.com/acme/infra",
            "https:///acme/infra",
            "https://git_hub/acme/infra",
            "https://github.com/acme/../infra",
            "https://github.com/./infra",
            "https://git.acme.com/a/%2e%2e/b",
            "https://git.acme.com/a/..git",
            "https://git.acme.com/a//b",
            "https://git.acme.com/a/b//",
            "https://git.acme.com/",
            "https://git.acme.com",
            "https://git.acme.com/a/.git",
            "https://git.acme.com/a/b.git.git",
            "https://git.acme.com/a%2Fb",
            "https://git.acme.com/a\\b",
            "https://git.acme.com/a/-b",
            "https://gitlab.com/a/b/-/tree/main",
            "https://git.acme.com/a/b\n",
            "https://git.acme.com/a/b%00",
            "https://git.acme.com/a/%zz",
            "https://git.acme.com/a/%ff",
            "https://git.acme.com/a/b?ref=main",
            "https://git.acme.com/a/b#readme",
            "https://git.acme.com:99999/a/b",
            "https://git.acme.com:0/a/b",
            "ssh://git@git.acme.com:2222/a/b",
            "git://git.acme.com:1/a/b",
            "https://github.com/acme/infra/tree/main",
            "https://github.com/acme",
            "https://dev.azure.com/acme/net/infra",
            "https://ann:hunter2@git.acme.com/a/b",
            "https://:hunter2@git.acme.com/a/b",
            "https://ghp_abcdefghijklmnopqrstuvwxyz0123456789@github.com/a/b",
            "https://0123456789abcdef0123456789abcdef01234567@git.acme.com/a/b",
            "https://git.acme.com/a/glpat-abcdefghijklmnopqrst",
            "ann:hunter2@git.acme.com:a/b",
            "ssh://git:hunter2@git.acme.com/a/b",
            "ghp_abcdefghijklmnopqrstuvwxyz0123456789",
        ]
        .map(normal)
        .join("\n"),
        @r"
    the text is not the address of a repository: it is empty; write for example `https://github.com/acme/infra`
    `/srv/git/infra.git` is not the address of a repository: it is a path on a machine; write the address under which the forge serves it, `https://host/owner/name`
    `./infra` is not the address of a repository: it is a path on a machine; write the address under which the forge serves it, `https://host/owner/name`
    `../infra:x` is not the address of a repository: it is a path on a machine; write the address under which the forge serves it, `https://host/owner/name`
    `C:\git\infra` is not the address of a repository: it is a path on a machine; write the address under which the forge serves it, `https://host/owner/name`
    `infra` is not the address of a repository: it is a path on a machine; write the address under which the forge serves it, `https://host/owner/name`
    `github.com/acme/infra` is not the address of a repository: it does not say how to reach the host; write `https://` before it
    `file:///srv/git/infra` is not the address of a repository: `file` addresses mean something else on every machine; write the address under which the forge serves it
    `file:/srv/git/infra` is not the address of a repository: `file` addresses mean something else on every machine; write the address under which the forge serves it
    `ext::sh -c id` is not the address of a repository: it is a path on a machine; write the address under which the forge serves it, `https://host/owner/name`
    `s3://bucket/infra` is not the address of a repository: its scheme is none of https, http, ssh and git; write `https://host/owner/name`
    `…://github.com/acme/infra` is not the address of a repository: its scheme is none of https, http, ssh and git; write `https://host/owner/name`
    `https:/github.com/acme/infra` is not the address of a repository: its host is not a host name; write `https://host/owner/name`
    `https:///acme/infra` is not the address of a repository: its host is not a host name; write `https://host/owner/name`
    `https://git_hub/acme/infra` is not the address of a repository: its host is not a host name; write `https://host/owner/name`
    `https://github.com/acme/../infra` is not the address of a repository: its path has `.` or `..` as a part; write the path without them
    `https://github.com/./infra` is not the address of a repository: its path has `.` or `..` as a part; write the path without them
    `https://git.acme.com/a/%2e%2e/b` is not the address of a repository: its path has `.` or `..` as a part; write the path without them
    `https://git.acme.com/a/..git` is not the address of a repository: its path has `.` or `..` as a part; write the path without them
    `https://git.acme.com/a//b` is not the address of a repository: its path is empty or has an empty part; write `https://host/owner/name`
    `https://git.acme.com/a/b//` is not the address of a repository: its path is empty or has an empty part; write `https://host/owner/name`
    `https://git.acme.com/` is not the address of a repository: its path is empty or has an empty part; write `https://host/owner/name`
    `https://git.acme.com` is not the address of a repository: its path is empty or has an empty part; write `https://host/owner/name`
    `https://git.acme.com/a/.git` is not the address of a repository: its path is empty or has an empty part; write `https://host/owner/name`
    `https://git.acme.com/a/b.git.git` is not the address of a repository: its name ends in `.git` twice; write it once or not at all
    `https://git.acme.com/a%2Fb` is not the address of a repository: its path has a backslash or an encoded slash, which forges read in different ways; write a plain slash
    `https://git.acme.com/a\b` is not the address of a repository: its path has a backslash or an encoded slash, which forges read in different ways; write a plain slash
    `https://git.acme.com/a/-b` is not the address of a repository: a part of its path begins with `-`, which no repository has; write the address without the text after the name
    `https://gitlab.com/a/b/-/tree/main` is not the address of a repository: a part of its path begins with `-`, which no repository has; write the address without the text after the name
    `https://git.acme.com/a/b` is not the address of a repository: it has a control character; remove it
    `https://git.acme.com/a/b%00` is not the address of a repository: it has a control character; remove it
    `https://git.acme.com/a/%zz` is not the address of a repository: its percent-encoding cannot be read; write `%25` for a plain percent sign
    `https://git.acme.com/a/%ff` is not the address of a repository: its percent-encoding cannot be read; write `%25` for a plain percent sign
    `https://git.acme.com/a/b` is not the address of a repository: it has a `?` or `#`, which is not part of the address of a repository; remove it and the text after it
    `https://git.acme.com/a/b` is not the address of a repository: it has a `?` or `#`, which is not part of the address of a repository; remove it and the text after it
    `https://git.acme.com:99999/a/b` is not the address of a repository: its port is not a number from 1 to 65535; leave it out if it is the default port
    `https://git.acme.com:0/a/b` is not the address of a repository: its port is not a number from 1 to 65535; leave it out if it is the default port
    `ssh://git@git.acme.com:2222/a/b` is not the address of a repository: port 2222 of ssh or git does not tell which forge it belongs to; write the https address of the repository
    `git://git.acme.com:1/a/b` is not the address of a repository: port 1 of ssh or git does not tell which forge it belongs to; write the https address of the repository
    `https://github.com/acme/infra/tree/main` is not the address of a repository: on this forge the address is `https://github.com/owner/name`; write it without the text before or after that
    `https://github.com/acme` is not the address of a repository: on this forge the address is `https://github.com/owner/name`; write it without the text before or after that
    `https://dev.azure.com/acme/net/infra` is not the address of a repository: on this forge the address is `https://dev.azure.com/organisation/project/_git/name`; write it without the text before or after that
    `https://…@git.acme.com/a/b` is not the address of a repository: it contains a password or a token, which would be stored and shown; remove it from the address, store it with `lockkeeper credentials add`, and replace it if others could read it
    `https://…@git.acme.com/a/b` is not the address of a repository: it contains a password or a token, which would be stored and shown; remove it from the address, store it with `lockkeeper credentials add`, and replace it if others could read it
    the text is not the address of a repository: it contains a password or a token, which would be stored and shown; remove it from the address, store it with `lockkeeper credentials add`, and replace it if others could read it
    `https://…@git.acme.com/a/b` is not the address of a repository: it contains a password or a token, which would be stored and shown; remove it from the address, store it with `lockkeeper credentials add`, and replace it if others could read it
    the text is not the address of a repository: it contains a password or a token, which would be stored and shown; remove it from the address, store it with `lockkeeper credentials add`, and replace it if others could read it
    `…@git.acme.com:a/b` is not the address of a repository: it contains a password or a token, which would be stored and shown; remove it from the address, store it with `lockkeeper credentials add`, and replace it if others could read it
    `ssh://…@git.acme.com/a/b` is not the address of a repository: it contains a password or a token, which would be stored and shown; remove it from the address, store it with `lockkeeper credentials add`, and replace it if others could read it
    the text is not the address of a repository: it is a path on a machine; write the address under which the forge serves it, `https://host/owner/name`
    "
    );
    assert_eq!(
        RepoUrl::parse(&format!("https://h.test/a/{}", "b".repeat(512)))
            .unwrap_err()
            .fault,
        RepoUrlFault::TooLong
    );
    assert_eq!(
        RepoUrl::parse(&"x".repeat(1 << 20))
            .unwrap_err()
            .to_string()
            .chars()
            .count(),
        187
    );
}

#[test]
fn a_host_the_server_works_for_is_a_forge() {
    let hosts = &["git.acme.com", "code.acme.com:3000"];
    assert_eq!(
        at("https://Git.Acme.com/Net/Infra.git", hosts).unwrap(),
        "https://git.acme.com/net/infra"
    );
    assert_eq!(
        at("ssh://git@git.acme.com:2222/Net/Infra", hosts).unwrap(),
        "https://git.acme.com/net/infra"
    );
    assert_eq!(
        at("git@code.acme.com:Net/Infra", hosts).unwrap(),
        "https://code.acme.com:3000/net/infra"
    );
    assert_eq!(
        at("ssh://code.acme.com:2222/net/infra", hosts).unwrap(),
        "https://code.acme.com:3000/net/infra"
    );
    assert_eq!(
        at("https://code.acme.com/Net/Infra", hosts).unwrap(),
        "https://code.acme.com/Net/Infra"
    );
    let two = &["h.test:3000", "h.test:3001"];
    assert_eq!(
        at("ssh://git@h.test:2222/a/b", two),
        Err(RepoUrlFault::SshPort(2222))
    );
    assert_eq!(at("git@h.test:a/b", two), Err(RepoUrlFault::SshPort(22)));
    assert_eq!(
        at("git@h.test.example:a/b", two).unwrap(),
        "https://h.test.example/a/b"
    );
}

#[test]
fn only_the_normal_form_is_taken_where_one_must_be_given() {
    assert_eq!(
        RepoUrl::normalised("https://github.com/acme/infra")
            .unwrap()
            .as_str(),
        "https://github.com/acme/infra"
    );
    assert_eq!(
        RepoUrl::normalised("git@github.com:Acme/infra.git")
            .unwrap_err()
            .to_string(),
        "`git@github.com:Acme/infra.git` is not the address of a repository: it is not in normal form; write \
         `https://github.com/acme/infra`"
    );
    assert!("https://github.com/acme/infra/".parse::<RepoUrl>().is_err());
}

#[test]
fn the_names_of_deliveries_and_addresses_stand_for_each_other() {
    for (name, url) in [
        ("github.com/acme/infra", "https://github.com/acme/infra"),
        (
            "gitlab.com/group/sub/infra",
            "https://gitlab.com/group/sub/infra",
        ),
        (
            "dev.azure.com/acme/my-net/infra",
            "https://dev.azure.com/acme/my-net/_git/infra",
        ),
        (
            "code.acme.com:3000/net/infra",
            "https://code.acme.com:3000/net/infra",
        ),
        ("git.acme.com/net/a_b.c", "https://git.acme.com/net/a_b.c"),
    ] {
        let repo: RepoId = name.parse().unwrap();
        assert_eq!(RepoUrl::of(&repo).unwrap().as_str(), url);
        assert_eq!(RepoUrl::of(&repo).unwrap().repo_id(), Some(repo));
    }
    // No repository of GitHub has such a name. Claims of them are kept and shown, but Lockkeeper does not work in
    // them.
    for url in [
        "https://git.acme.com/infra",
        "https://git.acme.com/net/%C3%BC",
        "https://git.acme.com/net/a+x",
    ] {
        assert_eq!(RepoUrl::parse(url).unwrap().repo_id(), None, "{url}");
    }
    assert_eq!(
        RepoUrl::parse("https://git.acme.com:8443/A/b")
            .unwrap()
            .host()
            .as_str(),
        "git.acme.com:8443"
    );
}

/// A repository, independent of its spelling.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Repository {
    host: &'static str,
    parts: Vec<String>,
}

const FORGES: &[&str] = &["github.com", "bitbucket.org", "gitlab.com", "code.acme.com"];

fn repositories() -> impl Strategy<Value = Repository> {
    let host = select(vec![
        "github.com",
        "bitbucket.org",
        "gitlab.com",
        "code.acme.com",
        "git.example.org",
        "xn--bcher-kva.example",
    ]);
    // The parts use few letters, so that names are often nearly the same. Upper case and blanks have a meaning only
    // on unknown hosts.
    let part = select(vec![
        "a", "b", "A", "a-b", "a.b", "a_b", "ü", "a b", "a%b", "a+b", "gitx", "git",
    ]);
    (host, prop::collection::vec(part, 2..4)).prop_map(|(host, mut parts)| {
        if matches!(host, "github.com" | "bitbucket.org") {
            parts.truncate(2);
        }
        let fold = FORGES.contains(&host);
        let parts = parts
            .iter()
            .map(|part| {
                if fold {
                    part.to_lowercase()
                } else {
                    (*part).to_owned()
                }
            })
            .collect();
        Repository { host, parts }
    })
}

/// Returns one spelling of a repository, chosen by numbers.
fn spelled(repository: &Repository, dice: &[u8]) -> String {
    let mut dice = dice.iter().copied().cycle();
    let mut roll = |sides: u8| dice.next().unwrap_or(0) % sides;
    let way = roll(6);
    let is_forge = FORGES.contains(&repository.host);
    let mut host = if repository.host.starts_with("xn--") && roll(2) == 0 {
        "bücher.example"
    } else {
        repository.host
    }
    .to_owned();
    if roll(2) == 0 {
        host = host.to_uppercase();
    }
    if roll(4) == 0 {
        host.push('.');
    }
    let mut parts = Vec::new();
    for part in &repository.parts {
        let part = if is_forge && roll(2) == 0 {
            part.to_uppercase()
        } else {
            part.clone()
        };
        parts.push(match roll(3) {
            0 => part
                .bytes()
                .map(|byte| format!("%{byte:02x}"))
                .collect::<Vec<_>>()
                .concat(),
            1 => part
                .bytes()
                .map(|byte| format!("%{byte:02X}"))
                .collect::<Vec<_>>()
                .concat(),
            _ => part.replace('%', "%25"),
        });
    }
    let path = parts.join("/")
        + if roll(2) == 0 { ".git" } else { "" }
        + if roll(2) == 0 { "/" } else { "" };
    let user = ["", "git@", "ann@"][usize::from(roll(3))];
    let any_port = if is_forge {
        ["", ":22", ":2222"]
    } else {
        ["", ":22", ":"]
    }[usize::from(roll(3))];
    match way {
        0 => format!(
            "https://{user}{host}{}/{path}",
            ["", ":443", ":", ":80"][usize::from(roll(4))]
        ),
        1 => format!(
            "http://{user}{host}{}/{path}",
            ["", ":80", ":443"][usize::from(roll(3))]
        ),
        2 => format!("ssh://{user}{host}{any_port}/{path}"),
        3 => format!("{user}{host}:{path}"),
        4 => format!("git://{host}{}/{path}", ["", ":9418"][usize::from(roll(2))]),
        _ => format!("{user}{host}:/{path}"),
    }
}

fn hosts() -> ForgeHosts {
    ForgeHosts::with(["code.acme.com".parse().unwrap()])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn two_spellings_are_equal_exactly_if_the_repositories_are(
        a in repositories(), b in repositories(), same: bool, x: [u8; 16], y: [u8; 16],
    ) {
        let b = if same { a.clone() } else { b };
        let (x, y) = (spelled(&a, &x), spelled(&b, &y));
        let first = RepoUrl::parse_at(&x, &hosts()).unwrap();
        let second = RepoUrl::parse_at(&y, &hosts()).unwrap();
        prop_assert_eq!(first == second, a == b, "{} {}", x, y);
    }

    #[test]
    fn normalising_again_changes_nothing(repository in repositories(), dice: [u8; 16]) {
        let url = RepoUrl::parse_at(&spelled(&repository, &dice), &hosts()).unwrap();
        prop_assert_eq!(&RepoUrl::normalised(url.as_str()).unwrap(), &url);
        prop_assert_eq!(&RepoUrl::parse_at(url.as_str(), &hosts()).unwrap(), &url);
    }

    #[test]
    fn no_text_breaks_the_parser_and_what_comes_out_is_normal(
        text in "\\PC{0,60}|(https://|ssh://|git@|)[a-zA-Z0-9.:/@%\\-_ü~\\[\\]]{0,40}\
                 |https?://(github\\.com|h|-?[a-zİK-]{1,4}\\.visualstudio\\.com)(:80|:443|:8443)?/[a-zİKẞ-]{1,9}/(_git/)?[a-zİKẞ-]{1,4}",
    ) {
        if let Ok(url) = RepoUrl::parse(&text) {
            prop_assert_eq!(&RepoUrl::normalised(url.as_str()).unwrap(), &url);
            prop_assert!(url.as_str().is_ascii() && url.as_str().len() <= RepoUrl::MAX_BYTES);
            let parts: Vec<&str> = url.halves().1.split('/').collect();
            prop_assert!(!parts.iter().any(|part| matches!(*part, "" | "." | "..") || part.strip_suffix(".git").is_some()));
            if let Some(repo) = url.repo_id() {
                prop_assert_eq!(RepoUrl::of(&repo).unwrap().repo_id(), Some(repo));
            }
        }
    }

    #[test]
    fn a_secret_is_never_repeated(
        user in "[a-z]{0,5}", secret in "zq[a-z0-9/:?#%@+.]{3,12}qz", way in select(vec!["https://", "ssh://", "http://", "", "foo://"]),
        rest in select(vec!["git.acme.com/a/b", "git.acme.com:a/b", "git.acme.com:2222/a/b", "", "/x"]),
    ) {
        let text = format!("{way}{user}:{secret}@{rest}");
        prop_assert!(RepoUrl::may_hold_secret(&text), "{}", text);
        let refused = RepoUrl::parse(&text).unwrap_err().to_string();
        prop_assert!(!refused.contains("zq") && !refused.contains("qz"), "{}", refused);
    }

    #[test]
    fn names_of_deliveries_come_back(path in "[a-z0-9][a-z0-9_-]{0,8}(/[a-z0-9][a-z0-9_-]{0,8}){1,3}") {
        let repo: RepoId = format!("git.acme.com/{path}").parse().unwrap();
        let url = RepoUrl::of(&repo).unwrap();
        prop_assert_eq!(url.repo_id(), Some(repo));
    }
}
