//! Tests of checkouts of some directories only.

use super::*;

impl World {
    async fn sparse(&self, (base, head): &(CommitSha, CommitSha), dirs: &[&str]) -> Checkout {
        assert_eq!(self.fetch(Some(head)).await.unwrap().wanted, Head::Present);
        let (workspace, strategy) = (WorkspaceName::default(), CheckoutStrategy::Branch);
        let extent = Extent::of_dirs(dirs.iter().map(|dir| path(dir)));
        let wanted = CheckoutRequest {
            pull: PULL,
            workspace: &workspace,
            head,
            base,
            strategy,
            extent: &extent,
        };
        ready(self.mirror().prepare(&wanted).await.unwrap())
    }

    /// Returns the files on disk, and the changes according to git.
    async fn there(&self, checkout: &Checkout) -> (String, String) {
        let dir = checkout.path.display();
        let files = self
            .sh(&format!(
                "cd {dir} && find . -type f ! -name .git | sort | tr '\\n' ' '"
            ))
            .await;
        (
            files,
            self.sh(&format!("cd {dir} && git status --short")).await,
        )
    }
}

fn clean(files: &str) -> (String, String) {
    (files.to_owned(), String::new())
}

#[tokio::test]
async fn only_the_named_directories_and_files_on_the_way_are_there() {
    let world = World::new().await;
    let files = "a/f=1 a/b/f=1 a/b/c/f=1 a/x/f=1 q/f=1 q/r/f=1 [s]*/f=1 s/f=1";
    let commits = world.pull(files).await;
    let checkout = world.sparse(&commits, &["a/b"]).await;
    assert!(checkout.fresh);
    assert_eq!(checkout.extent, Extent::of_dirs([path("a/b")]));
    assert_eq!(
        world.there(&checkout).await,
        clean("./a/b/c/f ./a/b/f ./a/f ./main.tf")
    );
    assert_eq!(
        world
            .mirror()
            .untracked(&checkout, IgnoredFiles::Listed)
            .await
            .unwrap()
            .paths,
        []
    );
    let odd = world.sparse(&commits, &["[s]*"]).await;
    assert_eq!(
        world.there(&odd).await,
        clean("./[s]*/f ./a/b/c/f ./a/b/f ./a/f ./main.tf")
    );
    let listed = world.mirror().files(&commits.1).await.unwrap();
    let there: Vec<_> = listed
        .paths
        .iter()
        .filter(|file| odd.extent.has(file))
        .map(RepoPath::as_str)
        .collect();
    assert_eq!(there, ["[s]*/f", "a/b/c/f", "a/b/f", "a/f", "main.tf"]);
}

#[tokio::test]
async fn a_later_command_widens_a_checkout_and_none_narrows_it() {
    let world = World::new().await;
    let commits = world.pull("a/f=1 b/f=1 c/f=1").await;
    world.sparse(&commits, &["a"]).await;
    let wider = world.sparse(&commits, &["b"]).await;
    assert!(!wider.fresh);
    assert_eq!(world.there(&wider).await, clean("./a/f ./b/f ./main.tf"));
    let commits = world.pull("a/f=2 b/f=2 c/f=2").await;
    let moved = world.sparse(&commits, &["a"]).await;
    assert_eq!(
        (moved.fresh, read(&moved, "a/f"), read(&moved, "b/f")),
        (false, "2".to_owned(), "2".to_owned())
    );
    let whole = world.sparse(&commits, &["."]).await;
    assert_eq!((whole.fresh, &whole.extent), (false, &Extent::Whole));
    assert_eq!(
        world.there(&whole).await,
        clean("./a/f ./b/f ./c/f ./main.tf")
    );
    assert_eq!(
        world.there(&world.sparse(&commits, &["a"]).await).await.0,
        "./a/f ./b/f ./c/f ./main.tf"
    );
}

#[tokio::test]
async fn what_a_run_changed_in_a_sparse_checkout_is_undone_and_a_state_stays() {
    let world = World::new().await;
    let commits = world.pull("a/f=1 b/f=1").await;
    let checkout = world.sparse(&commits, &["a"]).await;
    std::fs::write(checkout.path.join("a/f"), "changed").unwrap();
    std::fs::create_dir(checkout.path.join("b")).unwrap();
    std::fs::write(
        checkout.path.join("b/f"),
        "where git thinks there is nothing",
    )
    .unwrap();
    std::fs::write(checkout.path.join("a/terraform.tfstate"), "state").unwrap();
    let again = world.sparse(&commits, &["a"]).await;
    assert_eq!(
        (again.fresh, read(&again, "a/f"), read(&again, "b/f")),
        (false, "1".to_owned(), "(NotFound)".to_owned())
    );
    assert_eq!(read(&again, "a/terraform.tfstate"), "state");
}

#[tokio::test]
async fn a_note_that_was_damaged_makes_the_checkout_anew() {
    let world = World::new().await;
    let commits = world.pull("a/f=1 b/f=1").await;
    world.sparse(&commits, &["a"]).await;
    std::fs::write(
        world
            .mirror()
            .dir()
            .join("worktrees/default/lockkeeper-dirs"),
        "../x\n",
    )
    .unwrap();
    let again = world.sparse(&commits, &["b"]).await;
    assert!(again.fresh);
    assert_eq!(world.there(&again).await, clean("./b/f ./main.tf"));
}
