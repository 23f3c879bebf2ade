//! Tests of submodules and of files in LFS.

use async_trait::async_trait;
use lockkeeper::git::{Remote, Submodule, SubmoduleAdmission, SubmoduleRules};
use lockkeeper::model::{RepoId, Sha256Digest};

use super::*;

/// Allows repositories of `acme` as submodules, and others if the owner of the parent gave the credential.
struct OfAcme;

#[async_trait]
impl SubmoduleRules for OfAcme {
    async fn admission(&self, repo: &RepoId, by_owner: bool) -> SubmoduleAdmission {
        match repo.owner() {
            "acme" => SubmoduleAdmission::Admitted,
            "down" => SubmoduleAdmission::Unknown("nobody answers".to_owned()),
            _ if by_owner => SubmoduleAdmission::Admitted,
            _ => SubmoduleAdmission::Refused(format!("{repo} is not acme's")),
        }
    }
}

impl World {
    /// Creates another repository, with one commit that has these files and submodules. Returns the commit.
    async fn repository(
        &self,
        name: &str,
        files: &str,
        modules: &[(&str, &str, &CommitSha)],
    ) -> CommitSha {
        self.sh(&format!(
            "git init -q --bare -b main srv/{name}.git && rm -rf other && git init -q -b main other"
        ))
        .await;
        let write = files.split_whitespace().map(|file| {
            let (path, text) = file.split_once('=').unwrap();
            format!("mkdir -p $(dirname {path}) && printf {text} > {path}\n")
        });
        let write: String = write.collect::<Vec<_>>().concat();
        let commit = self
            .sh(&format!(
                "cd other\n{write}git add -A\n{}{COMMIT}",
                submodules(modules)
            ))
            .await;
        self.sh(&format!(
            "cd other && git push -q ../srv/{name}.git HEAD:main"
        ))
        .await;
        commit.parse().unwrap()
    }

    /// Pushes a pull request with these submodules.
    async fn pull_with(&self, modules: &[(&str, &str, &CommitSha)]) -> (CommitSha, CommitSha) {
        let base = self
            .sh("cd work && git rev-parse main")
            .await
            .parse()
            .unwrap();
        let start = "cd work && git checkout -q --detach main && git rm -rqf --ignore-unmatch .gitmodules lib";
        let script = format!("{start}\n{}{COMMIT}", submodules(modules));
        let head = self.sh(&script).await.parse().unwrap();
        self.push("refs/pull/12/head").await;
        (base, head)
    }

    async fn bring(&self, commit: &CommitSha) -> Result<Vec<Submodule>, GitError> {
        let (url, credentials) = (
            self.url(),
            GitCredentials::new(USER.into(), Secret::new(PASSWORD)),
        );
        let remote = Remote {
            url: &url,
            credentials: Some(&credentials),
            deadline: Duration::from_mins(1),
        };
        self.mirror()
            .bring_submodules(&remote, commit, &OfAcme)
            .await
    }

    async fn with_submodules(&self, commits: &(CommitSha, CommitSha)) -> Checkout {
        let checkout = self.checkout(commits).await;
        let submodules = self.bring(&commits.1).await.unwrap();
        self.mirror()
            .place_submodules(&checkout, &submodules)
            .await
            .unwrap();
        checkout
    }
}

const COMMIT: &str = "git commit -q --allow-empty -m change && git rev-parse HEAD";

/// Returns the lines of a script that adds the submodules.
fn submodules(modules: &[(&str, &str, &CommitSha)]) -> String {
    let one = |(path, url, commit): &(&str, &str, &CommitSha)| {
        format!(
            "printf '[submodule \"{path}\"]\\n\\tpath = {path}\\n\\turl = {url}\\n' >> .gitmodules && git add .gitmodules\n\
             git update-index --add --cacheinfo 160000,{commit},{path}\n"
        )
    };
    modules.iter().map(one).collect::<Vec<_>>().concat()
}

#[tokio::test]
async fn submodules_and_theirs_are_files_of_the_checkout() {
    let world = World::new().await;
    let inner = world.repository("acme/inner", "f=inner", &[]).await;
    let lib = world
        .repository(
            "acme/lib",
            "a/f=lib",
            &[("deep/inner", "../inner.git", &inner)],
        )
        .await;
    let commits = world
        .pull_with(&[("lib/x", &format!("{}/acme/lib", world.server.url), &lib)])
        .await;
    let checkout = world.with_submodules(&commits).await;
    assert_eq!(
        (
            read(&checkout, "lib/x/a/f"),
            read(&checkout, "lib/x/deep/inner/f")
        ),
        ("lib".into(), "inner".into())
    );
    // Changes of a run are undone. Its new files stay, and they do not count as files of the repository.
    std::fs::write(checkout.path.join("lib/x/a/f"), "changed").unwrap();
    std::fs::write(checkout.path.join("lib/x/made"), "made").unwrap();
    let again = world.with_submodules(&commits).await;
    assert_eq!(
        (read(&again, "lib/x/a/f"), read(&again, "lib/x/made")),
        ("lib".into(), "made".into())
    );
    assert_eq!(
        world
            .mirror()
            .untracked(&again, IgnoredFiles::Listed)
            .await
            .unwrap()
            .paths,
        []
    );
    // Another commit of the submodule, and a link that a run left at its path.
    let newer = world.repository("acme/lib2", "a/f=newer", &[]).await;
    let commits = world.pull_with(&[("lib/x", "../lib2.git", &newer)]).await;
    std::fs::remove_dir_all(checkout.path.join("lib")).unwrap();
    symlink(world.path("srv"), checkout.path.join("lib")).unwrap();
    let moved = world.with_submodules(&commits).await;
    assert_eq!(
        (read(&moved, "lib/x/a/f"), read(&moved, "lib/x/made")),
        ("newer".into(), "(NotFound)".into())
    );
    assert!(!world.path("srv/x").exists());
    // Leftovers of an older commit are not used by a newer one, even if the submodule is the same. States stay.
    for (file, text) in [
        ("a/x_override.tf", "of before"),
        ("terraform.tfstate", "of now"),
    ] {
        std::fs::write(checkout.path.join("lib/x").join(file), text).unwrap();
    }
    let commits = world.pull_with(&[("lib/x", "../lib2", &newer)]).await;
    let moved = world.with_submodules(&commits).await;
    assert_eq!(
        ["a/f", "a/x_override.tf", "terraform.tfstate"]
            .map(|file| read(&moved, &format!("lib/x/{file}"))),
        ["newer", "(NotFound)", "of now"]
    );
    std::fs::remove_file(moved.path.join("lib/x/terraform.tfstate")).unwrap();
    // Files of an older commit of the same submodule belong to that commit, regardless of their names.
    let with = world
        .repository(
            "acme/lib3",
            "a/.terraform.lock.hcl=old terraform.tfstate=old",
            &[],
        )
        .await;
    let then = format!("cd other && git rm -rq . && printf x > f && git add f && {COMMIT}");
    let gone: CommitSha = world.sh(&then).await.parse().unwrap();
    world
        .sh("cd other && git push -q ../srv/acme/lib3.git HEAD:main")
        .await;
    let there = world
        .with_submodules(&world.pull_with(&[("lib/x", "../lib3", &with)]).await)
        .await;
    assert_eq!(read(&there, "lib/x/terraform.tfstate"), "old");
    let moved = world
        .with_submodules(&world.pull_with(&[("lib/x", "../lib3", &gone)]).await)
        .await;
    let files = ["f", "a/.terraform.lock.hcl", "terraform.tfstate"]
        .map(|file| read(&moved, &format!("lib/x/{file}")));
    assert_eq!(files, ["x", "(NotFound)", "(NotFound)"]);
    // Without submodules, no file of them is left.
    let commits = world.pull_with(&[]).await;
    let without = world.with_submodules(&commits).await;
    assert!(!without.path.join("lib").exists());
}

#[tokio::test]
async fn a_submodule_from_elsewhere_is_refused_with_the_way_out() {
    let world = World::new().await;
    let lib = world.repository("acme/lib", "f=lib", &[]).await;
    let secret = world.repository("secret/lib", "f=secret", &[]).await;
    let gone: CommitSha = "ab".repeat(20).parse().unwrap();
    let local = format!("file://{}", world.path("srv/acme/lib.git").display());
    let cases = [
        (local.as_str(), &lib, "begins with `file:`"),
        ("ext::sh -c x", &lib, "not valid"),
        (
            "https://evil.example/acme/lib.git",
            &lib,
            "not to the host and port",
        ),
        (
            "../../secret/lib.git",
            &secret,
            "github.com/secret/lib is not acme's",
        ),
        ("../lib.git", &gone, "does not have the commit"),
        ("../none.git", &lib, "turn off `--checkout-submodules`"),
    ];
    for (url, commit, expected) in cases {
        let commits = world.pull_with(&[("lib/x", url, commit)]).await;
        assert_eq!(
            world.fetch(Some(&commits.1)).await.unwrap().wanted,
            Head::Present
        );
        let error = world.bring(&commits.1).await.unwrap_err().to_string();
        assert!(
            error.contains("the submodule `lib/x` of github.com/acme/infra")
                && error.contains(expected),
            "{error}"
        );
        assert!(!error.contains(PASSWORD), "{error}");
    }
    let many: Vec<String> = (0..51).map(|n| format!("lib/x{n}")).collect();
    let many: Vec<_> = many
        .iter()
        .map(|path| (path.as_str(), "../lib.git", &lib))
        .collect();
    let commits = world.pull_with(&many).await;
    assert_eq!(
        world.fetch(Some(&commits.1)).await.unwrap().wanted,
        Head::Present
    );
    assert!(
        world
            .bring(&commits.1)
            .await
            .unwrap_err()
            .to_string()
            .contains("more than 50 submodules")
    );
}

#[tokio::test]
async fn the_credential_of_an_owner_is_told_from_that_of_the_server() {
    let world = World::new().await;
    let secret = world.repository("secret/lib", "f=secret", &[]).await;
    let commits = world
        .pull_with(&[("lib/x", "../../secret/lib.git", &secret)])
        .await;
    assert_eq!(
        world.fetch(Some(&commits.1)).await.unwrap().wanted,
        Head::Present
    );
    assert!(matches!(
        world.bring(&commits.1).await,
        Err(GitError::Other { .. })
    ));
    let (url, own) = (
        world.url(),
        GitCredentials::new(USER.into(), Secret::new(PASSWORD)),
    );
    let given = GitCredentials {
        of_owner: true,
        ..own
    };
    let remote = Remote {
        url: &url,
        credentials: Some(&given),
        deadline: Duration::from_mins(1),
    };
    let brought = world
        .mirror()
        .bring_submodules(&remote, &commits.1, &OfAcme)
        .await
        .unwrap();
    assert_eq!(brought.len(), 1);
    // A submodule that is already here stays hidden from another credential of an owner.
    let narrower = GitCredentials {
        password: Secret::new("of another owner"),
        ..given.clone()
    };
    let narrow = Remote {
        credentials: Some(&narrower),
        ..remote
    };
    let error = world
        .mirror()
        .bring_submodules(&narrow, &commits.1, &OfAcme)
        .await
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("cannot read github.com/secret/lib"),
        "{error}"
    );
    assert!(
        world
            .mirror()
            .bring_submodules(&remote, &commits.1, &OfAcme)
            .await
            .is_ok()
    );
    // A submodule that is here by a credential of the owner is checked again when that credential is gone.
    assert!(matches!(
        world.bring(&commits.1).await,
        Err(GitError::Other { .. })
    ));
    let commits = world
        .pull_with(&[("lib/x", "../../down/lib.git", &secret)])
        .await;
    assert_eq!(
        world.fetch(Some(&commits.1)).await.unwrap().wanted,
        Head::Present
    );
    let error = world.bring(&commits.1).await.unwrap_err();
    assert!(
        matches!(error, GitError::Unreachable { .. }),
        "it is tried again: {error}"
    );
}

#[tokio::test]
async fn a_submodule_is_not_looked_for_where_the_forge_leads_on_to() {
    let world = World::new().await;
    let lib = world.repository("acme/lib", "f=lib", &[]).await;
    let commits = world.pull_with(&[("lib/x", "../lib.git", &lib)]).await;
    assert_eq!(
        world.fetch(Some(&commits.1)).await.unwrap().wanted,
        Head::Present
    );
    let front = GitServer::redirecting_to(&world.server).await;
    let url = format!("{}/acme/infra.git", front.url);
    let remote = Remote {
        url: &url,
        credentials: None,
        deadline: Duration::from_mins(1),
    };
    let error = world
        .mirror()
        .bring_submodules(&remote, &commits.1, &OfAcme)
        .await
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("redirects github.com/acme/lib") && error.contains("Fix `.gitmodules`"),
        "{error}"
    );
}

#[tokio::test]
async fn files_kept_with_lfs_have_their_content_and_one_that_is_missing_is_named() {
    let world = World::new().await;
    assert!(
        world
            .git
            .lfs_version()
            .await
            .unwrap()
            .starts_with("git-lfs/")
    );
    let content = "kept elsewhere\n".repeat(100);
    let id = Sha256Digest::of(content.as_bytes()).to_string();
    let write = |file: &str, id: &str| {
        let pointer = format!(
            "version https://git-lfs.github.com/spec/v1\noid sha256:{id}\nsize {}\n",
            content.len()
        );
        std::fs::create_dir_all(world.path("work/a")).unwrap();
        std::fs::write(world.path("work").join(file), pointer).unwrap();
    };
    write("a/x.bin", &id);
    std::fs::write(
        world.path("work/.gitattributes"),
        "*.bin filter=lfs diff=lfs merge=lfs -text\n",
    )
    .unwrap();
    // The settings of the repository for LFS have no effect.
    std::fs::write(
        world.path("work/.lfsconfig"),
        "[lfs]\n\turl = http://evil.invalid/lfs\n\tfetchexclude = a\n",
    )
    .unwrap();
    world
        .server
        .log
        .lock()
        .unwrap()
        .lfs
        .insert(id, content.clone());
    let commits = world.pull("").await;
    let (url, credentials) = (
        world.url(),
        GitCredentials::new(USER.into(), Secret::new(PASSWORD)),
    );
    let remote = Remote {
        url: &url,
        credentials: Some(&credentials),
        deadline: Duration::from_mins(1),
    };
    for _ in 0..2 {
        let checkout = world.checkout(&commits).await;
        assert!(
            read(&checkout, "a/x.bin").starts_with("version "),
            "no filter has run"
        );
        let files = world.mirror().bring_lfs(&remote, &commits.1).await.unwrap();
        world.mirror().place_lfs(&checkout, files).await.unwrap();
        assert_eq!(read(&checkout, "a/x.bin"), content);
        // The second time, the contents are here already.
        world.server.log.lock().unwrap().lfs.clear();
    }
    write("a/gone.bin", &"ab".repeat(32));
    let commits = world.pull("").await;
    assert_eq!(
        world.fetch(Some(&commits.1)).await.unwrap().wanted,
        Head::Present
    );
    let error = world
        .mirror()
        .bring_lfs(&remote, &commits.1)
        .await
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("does not have the content of `a/gone.bin`")
            && error.contains("git lfs push --all"),
        "{error}"
    );
    assert!(!error.contains(PASSWORD), "{error}");
}

const MIRROR: &str = "data/mirrors/github.com/acme/infra.git";

#[tokio::test]
async fn submodules_that_no_checkout_has_and_nobody_has_used_for_a_day_go() {
    let world = World::new().await;
    let other = world.repository("acme/other", "f=other", &[]).await;
    let used = world.repository("acme/lib", "f=used", &[]).await;
    let newer = "cd other && printf newer > f && git commit -qam newer && git push -q ../srv/acme/lib.git HEAD:main";
    let newer: CommitSha = world
        .sh(&format!("{newer} && git rev-parse HEAD"))
        .await
        .parse()
        .unwrap();
    let commits = world.pull_with(&[("lib/x", "../lib.git", &used)]).await;
    world.with_submodules(&commits).await;
    let to_newer = world
        .pull_with(&[
            ("lib/x", "../lib.git", &newer),
            ("lib/y", "../other.git", &other),
        ])
        .await;
    assert_eq!(
        world.fetch(Some(&to_newer.1)).await.unwrap().wanted,
        Head::Present
    );
    assert_eq!(world.bring(&to_newer.1).await.unwrap().len(), 2);
    let there = async |commit: &CommitSha, module: &str| {
        let script = format!(
            "git --git-dir={MIRROR}/modules/acme%2F{module}.git cat-file -e {commit}^{{tree}}"
        );
        world
            .sh(&format!("{script} 2> /dev/null && echo yes || echo no"))
            .await
            == "yes"
    };
    world.mirror().maintain().await.unwrap();
    assert!(
        there(&newer, "lib").await && there(&other, "other").await,
        "they were used just now"
    );
    world
        .sh(&format!(
            "touch -d '2 days ago' {MIRROR}/modules/*/lockkeeper-commits/*"
        ))
        .await;
    world
        .sh(&format!("mkdir {MIRROR}/modules/acme%2Fgone.git.old~"))
        .await;
    world.mirror().maintain().await.unwrap();
    assert!(there(&used, "lib").await, "the checkout has it");
    assert!(!there(&newer, "lib").await);
    assert_eq!(
        world.sh(&format!("ls {MIRROR}/modules")).await,
        "acme%2Flib.git"
    );
    assert_eq!(
        world
            .sh(&format!("ls {MIRROR}/modules/*/lockkeeper-commits"))
            .await,
        used.as_str()
    );

    let checkout = world.with_submodules(&to_newer).await;
    assert_eq!(
        (read(&checkout, "lib/x/f"), read(&checkout, "lib/y/f")),
        ("newer".into(), "other".into())
    );
    // The mirror has the other commits now, and may delete the earlier ones.
    world
        .sh(&format!(
            "touch -d '2 days ago' {MIRROR}/modules/*/lockkeeper-commits/*"
        ))
        .await;
    world.mirror().maintain().await.unwrap();
    assert!(
        there(&newer, "lib").await && there(&other, "other").await && !there(&used, "lib").await
    );
    world.mirror().remove_pull(PULL).await.unwrap();
    world.mirror().maintain().await.unwrap();
    assert_eq!(
        world.sh(&format!("ls {MIRROR}/modules")).await,
        "",
        "no checkout has anything"
    );
}

#[tokio::test]
async fn a_submodule_of_which_only_a_part_is_left_is_fetched_again() {
    let world = World::new().await;
    let lib = world.repository("acme/lib", "a/f=lib", &[]).await;
    let commits = world.pull_with(&[("lib/x", "../lib.git", &lib)]).await;
    assert_eq!(
        world.fetch(Some(&commits.1)).await.unwrap().wanted,
        Head::Present
    );
    world.bring(&commits.1).await.unwrap();
    // The state after a kill between any two steps of the maintenance.
    let module = format!("{MIRROR}/modules/acme%2Flib.git");
    world.sh(&format!("rm {module}/lockkeeper-commits/*")).await;
    world
        .sh(&format!(
            "git --git-dir={module} update-ref -d refs/lockkeeper/{lib}"
        ))
        .await;
    let tree = world
        .sh(&format!("git --git-dir={module} rev-parse {lib}^{{tree}}"))
        .await;
    world
        .sh(&format!(
            "rm -f {module}/objects/{}/{}",
            &tree[..2],
            &tree[2..]
        ))
        .await;
    let checkout = world.with_submodules(&commits).await;
    assert_eq!(read(&checkout, "lib/x/a/f"), "lib");
}

#[tokio::test]
async fn files_kept_with_lfs_that_no_checkout_has_and_nobody_has_used_for_a_day_go() {
    let world = World::new().await;
    let (url, credentials) = (
        world.url(),
        GitCredentials::new(USER.into(), Secret::new(PASSWORD)),
    );
    let remote = Remote {
        url: &url,
        credentials: Some(&credentials),
        deadline: Duration::from_mins(1),
    };
    let bring = async |commits: &(CommitSha, CommitSha)| {
        assert_eq!(
            world.fetch(Some(&commits.1)).await.unwrap().wanted,
            Head::Present
        );
        world.mirror().bring_lfs(&remote, &commits.1).await.unwrap()
    };
    let (mut kept, mut pulls) = (Vec::new(), Vec::new());
    for name in ["used", "old", "fresh"] {
        let content = format!("{name} and kept elsewhere\n").repeat(100);
        let id = Sha256Digest::of(content.as_bytes()).to_string();
        let pointer = format!(
            "version https://git-lfs.github.com/spec/v1\noid sha256:{id}\nsize {}\n",
            content.len()
        );
        std::fs::create_dir_all(world.path("work/a")).unwrap();
        std::fs::write(world.path(&format!("work/a/{name}.bin")), pointer).unwrap();
        pulls.push(world.pull("").await);
        kept.push(world.path(&format!(
            "{MIRROR}/lfs/objects/{}/{}/{id}",
            &id[..2],
            &id[2..4]
        )));
        world.server.log.lock().unwrap().lfs.insert(id, content);
    }
    for commits in &pulls[..2] {
        bring(commits).await;
    }
    let checkout = world.checkout(&pulls[0]).await;
    world
        .mirror()
        .place_lfs(&checkout, bring(&pulls[0]).await)
        .await
        .unwrap();
    world
        .sh(&format!(
            "mkdir -p {MIRROR}/lfs/incomplete && echo half > {MIRROR}/lfs/incomplete/x"
        ))
        .await;
    world
        .sh(&format!(
            "find {MIRROR}/lfs -type f -exec touch -d '2 days ago' {{}} +"
        ))
        .await;
    bring(&pulls[2]).await;
    world.mirror().maintain().await.unwrap();
    let there: Vec<bool> = kept.iter().map(|file| file.exists()).collect();
    assert_eq!(there, [true, false, true]);
    assert!(!world.path(&format!("{MIRROR}/lfs/incomplete/x")).exists());

    let checkout = world.checkout(&pulls[1]).await;
    world
        .mirror()
        .place_lfs(&checkout, bring(&pulls[1]).await)
        .await
        .unwrap();
    assert!(read(&checkout, "a/old.bin").starts_with("old and kept elsewhere\n"));
    // Contents in use count as new. The checkout needs nothing of the previous commit any more.
    world
        .sh(&format!(
            "find {MIRROR}/lfs -type f -exec touch -d '2 days ago' {{}} +"
        ))
        .await;
    bring(&pulls[2]).await;
    world.mirror().maintain().await.unwrap();
    let there: Vec<bool> = kept.iter().map(|file| file.exists()).collect();
    assert_eq!(there, [false, true, true]);
}

#[tokio::test]
async fn without_the_program_for_lfs_it_is_said_how_to_get_it() {
    let world = World::new().await;
    world
        .sh("mkdir bin && ln -s $(command -v git) bin/git")
        .await;
    let settings = GitSettings::new(world.path("data"), world.path("bin"));
    let git = Git::new(GitSettings {
        env: [
            settings.env.clone(),
            vec![("GIT_EXEC_PATH".into(), world.path("bin").into())],
        ]
        .concat(),
        ..settings
    });
    let error = git.lfs_version().await.unwrap_err().to_string();
    assert!(
        error.contains("apt-get install git-lfs") && error.contains("remove --checkout-lfs"),
        "{error}"
    );
}
