use std::os::unix::fs::symlink;
use std::path::PathBuf;

use insta::assert_snapshot;
use lockkeeper_registry::dirhash::{hash_files, hash_go_mod};
use lockkeeper_registry::go_zip::{GoModuleFiles, write_go_zip};
use nix::sys::stat::Mode;
use tempfile::TempDir;

use super::*;
use crate::features::registry::blobs::LowSpace;
use crate::features::registry::input::read_key;

/// A directory with these files, and one for packages.
struct PackagingFixture(TempDir);

impl PackagingFixture {
    fn new(files: &[(&str, &str)]) -> Self {
        let fixture = Self(tempfile::tempdir().unwrap());
        std::fs::create_dir_all(fixture.staging()).unwrap();
        std::fs::create_dir_all(fixture.dir()).unwrap();
        for (path, text) in files {
            let path = fixture.dir().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        fixture
    }

    fn dir(&self) -> PathBuf {
        self.0.path().join("source")
    }

    fn staging(&self) -> PathBuf {
        self.0.path().join("staging")
    }

    async fn read(&self, kind: NameKind) -> Result<SourceDirectory, PackagingError> {
        let git = vec![("PATH".into(), "/usr/bin:/bin".into())];
        SourceDirectory::read(&self.dir(), kind, git).await
    }

    async fn pack(&self, key: &str) -> Result<CheckedPackage, PackagingError> {
        let key = read_key(key).unwrap();
        let source = self.read(key.kind()).await?;
        CheckedPackage::of_directory(key, source, &self.staging()).await
    }

    /// Returns the reason why the directory is no package.
    async fn refusal(&self, key: &str) -> String {
        let error = anyhow::Error::new(self.pack(key).await.unwrap_err());
        let text = format!("{error:#}");
        assert_eq!(
            std::fs::read_dir(self.staging()).unwrap().count(),
            0,
            "{text}"
        );
        let here = self.0.path().canonicalize().unwrap();
        text.replace(&here.display().to_string(), "…")
    }
}

const VPC: &str = "acme/vpc/aws@1.2.3";

#[tokio::test]
async fn a_package_has_the_files_of_a_module_and_nothing_of_its_tools() {
    let fixture = PackagingFixture::new(&[
        ("main.tf", "module \"a\" {\n  source = \"./modules/a\"\n}\n"),
        ("modules/a/main.tf", "# a\n"),
        ("README.md", "# VPC\n"),
        (".git/config", "[core]\n"),
        (".terraform/modules/modules.json", "{}"),
        ("examples/x/.terraform/lock", ""),
        ("terraform.tfstate", "secret"),
        ("terraform.tfstate.backup", "secret"),
    ]);
    symlink("modules/a", fixture.dir().join("linked")).unwrap();
    let source = fixture.read(NameKind::Module).await.unwrap();
    let left_out = source.left_out().iter();
    let left_out: Vec<String> = left_out
        .map(|file| format!("{}: {}\n", file.path, file.reason))
        .collect();
    assert_snapshot!(left_out.concat(), @"
    .terraform: it is a working directory of Terraform
    examples/x/.terraform: it is a working directory of Terraform
    terraform.tfstate: it is a state, which can have secrets
    terraform.tfstate.backup: it is a state, which can have secrets
    ");
    let package = fixture.pack(VPC).await.unwrap();
    let expected = [
        ("README.md", b"# VPC\n".as_slice()),
        ("linked/main.tf", b"# a\n"),
        (
            "main.tf",
            b"module \"a\" {\n  source = \"./modules/a\"\n}\n",
        ),
        ("modules/a/main.tf", b"# a\n"),
    ];
    let files = hash_files(expected).unwrap();
    assert_eq!(package.content.checksums, Checksums::Module { files });
    assert_eq!((package.content.commit, package.go_mod), (None, None));
    let again = fixture.pack(VPC).await.unwrap();
    assert_eq!(again.staged.digest, package.staged.digest);
    let files: Vec<_> = package.content.packages.iter().collect();
    assert_eq!(
        (&files[0].digest, files[0].size),
        (&package.staged.digest, package.staged.size)
    );
    assert_eq!(files[0].name.as_str(), "module.tar.gz");
}

#[tokio::test]
async fn files_that_are_no_module_are_refused() {
    assert_snapshot!(PackagingFixture::new(&[]).refusal(VPC).await, @"the package has no file");
    let fixture = PackagingFixture::new(&[("README.md", ""), ("main.hcl", "")]);
    assert_snapshot!(fixture.refusal(VPC).await, @"the package has no file with code: none of its names ends with `.tf`, `.tf.json`, `.tofu` or `.tofu.json`");
    let fixture = PackagingFixture::new(&[
        ("main.tf", "module \"a\" {\n  source = \"../network\"\n}\n"),
        (
            "modules/a/main.tf",
            "module \"b\" {\n  source = \"../b\"\n}\n",
        ),
        (
            "examples/a/main.tf",
            "module \"b\" {\n  source = \"../../../b\"\n}\n",
        ),
    ]);
    assert_snapshot!(fixture.refusal(VPC).await, @"the module uses `../network`, which is outside of the package; the module in `modules/a` uses `../b`, which is not in the package. Publish a directory that has all modules which it uses, or use published ones");
    let fixture = PackagingFixture::new(&[("main.tf", ""), ("Main.tf", "")]);
    assert_snapshot!(fixture.refusal(VPC).await, @r#""main.tf": the path differs from "Main.tf" only in case"#);
    let fixture = PackagingFixture::new(&[("main.tf", "")]);
    symlink("/etc/passwd", fixture.dir().join("link")).unwrap();
    assert_snapshot!(fixture.refusal(VPC).await, @r#""link": the link leads out of the repository"#);
    let fixture = PackagingFixture::new(&[("main.tf", "")]);
    nix::unistd::mkfifo(&fixture.dir().join("pipe"), Mode::S_IRWXU).unwrap();
    assert_snapshot!(fixture.refusal(VPC).await, @"`…/source/pipe` is neither a file nor a directory nor a link. Remove it");
    let fixture = PackagingFixture::new(&[("main.tf", "")]);
    std::fs::remove_dir_all(fixture.dir()).unwrap();
    std::fs::write(fixture.dir(), "").unwrap();
    let error = fixture.pack(VPC).await.unwrap_err().to_string();
    assert!(error.ends_with("is not a directory"), "{error}");
}

#[tokio::test]
async fn the_memory_of_a_directory_is_limited() {
    let fixture = PackagingFixture::new(&[("main.tf", "")]);
    // It has no blocks on the disk.
    let file = File::create(fixture.dir().join("large")).unwrap();
    file.set_len(TF_LIMITS.unpacked).unwrap();
    drop(file);
    // Exactly the limit is allowed for the directory, and the package has too high a ratio.
    assert_snapshot!(fixture.refusal(VPC).await, @"the archive unpacks to more than 100 times its size");
    std::fs::write(fixture.dir().join("one"), "x").unwrap();
    assert_snapshot!(fixture.refusal(VPC).await, @"the files of `…/source` have more than 536870912 bytes");
}

#[tokio::test]
async fn a_go_module_is_packed_as_go_does_it() {
    let fixture = PackagingFixture::new(&[
        ("go.mod", "module example.com/net\n\ngo 1.24\n"),
        ("net.go", "package net\n"),
        ("sub/go.mod", "module example.com/net/sub\n"),
        ("sub/sub.go", "package sub\n"),
        ("vendor/x/x.go", "package x\n"),
        (".hg/store", ""),
    ]);
    symlink("net.go", fixture.dir().join("link.go")).unwrap();
    let source = fixture.read(NameKind::Go).await.unwrap();
    let by_go = source.left_out_by_go();
    let left_out = source.left_out().iter().chain(&by_go);
    let left_out: Vec<String> = left_out
        .map(|file| format!("{}: {}\n", file.path, file.reason))
        .collect();
    assert_snapshot!(left_out.concat(), @"
    sub: it belongs to another module
    link.go: it is a link
    vendor/x/x.go: it is vendored
    ");
    let package = fixture.pack("example.com/net@v1.2.3").await.unwrap();
    let go_mod = b"module example.com/net\n\ngo 1.24\n".as_slice();
    let files = [
        ("example.com/net@v1.2.3/go.mod", go_mod),
        ("example.com/net@v1.2.3/net.go", b"package net\n"),
    ];
    let checksums = Checksums::Go {
        zip: hash_files(files).unwrap(),
        go_mod: hash_go_mod(go_mod),
    };
    assert_eq!(package.content.checksums, checksums);
    assert_eq!(package.go_mod.as_deref(), Some(go_mod));
    let files: Vec<_> = package.content.packages.iter().collect();
    assert_eq!(files[0].name.as_str(), "module.zip");
}

#[tokio::test]
async fn a_go_mod_file_names_the_module() {
    let with = |text: &str| PackagingFixture::new(&[("go.mod", text), ("net.go", "package net\n")]);
    let fixture = with("module example.com/net\n");
    assert_snapshot!(fixture.refusal("example.com/net/v2@v2.0.0").await, @"the go.mod file is that of the module `example.com/net`, and the version is one of `example.com/net/v2`. Write `module example.com/net/v2`, or publish it under the other name");
    assert_snapshot!(fixture.refusal("example.com/net@v2.0.0+incompatible").await, @"`v2.0.0+incompatible` is a version of a module without a go.mod file, and the package has one. Publish it as `example.com/net/v2`, and write `module example.com/net/v2`");
    assert_snapshot!(fixture.refusal("example.com/net@v1.0.0-20231399000000-abcdefabcdef").await, @"`v1.0.0-20231399000000-abcdefabcdef`: the pseudo-version has a time that does not exist");
    assert_snapshot!(with("go 1.24\n").refusal("example.com/net@v1.0.0").await, @"the go.mod file has no `module` line. Write `module example.com/net`");
    let comment = "x".repeat(1 << 20);
    let large = with(&format!("module example.com/net\n// {comment}\n"));
    assert_snapshot!(large.refusal("example.com/net@v1.0.0").await, @"the go.mod file has more than 1048576 bytes. Remove requirements and comments that the module does not need");
    assert_snapshot!(with("module (\n").refusal("example.com/net@v1.0.0").await, @"the go.mod file has an error in line 2");
    let without = PackagingFixture::new(&[("net.go", "package net\n")]);
    assert_snapshot!(without.refusal("example.com/net/v2@v2.0.0").await, @"a module with a major version in its path has a go.mod file. Write one with `module example.com/net/v2`");
    for key in [
        "example.com/net@v1.0.0",
        "example.com/net@v2.0.0+incompatible",
    ] {
        let package = without.pack(key).await.unwrap();
        assert_eq!(
            package.go_mod.as_deref(),
            Some(b"module example.com/net\n".as_slice())
        );
    }
    let package = without.pack("gopkg.in/net.v2@v2.0.0").await.unwrap();
    assert_eq!(
        package.go_mod.as_deref(),
        Some(b"module gopkg.in/net.v2\n".as_slice())
    );
}

#[test]
fn a_disk_without_space_says_nothing_about_a_commit() {
    let low = LowSpace {
        free: 0,
        kept: 1 << 30,
    };
    let fault = CommitFault::from(PackagingError::from(BlobError::from(low)));
    assert!(!fault.is_of_commit());
    assert_eq!(
        fault.to_string(),
        "the disk where packages arrive has only 0 B free, and 1 GiB are reserved for the rest of the server"
    );
}

#[tokio::test]
async fn an_upload_is_a_package_of_exactly_its_version() {
    let fixture = PackagingFixture::new(&[]);
    let stage = |content: &[u8]| {
        let content = content.to_vec();
        let write = |file: &mut File| {
            let written = std::io::Write::write_all(file, &content);
            written.map_err(|error| PackagingError::Zip(GoZipError::Io(error)))
        };
        StagedBlob::write_in(&fixture.staging(), write).unwrap().1
    };
    let zip = |key: &str, files: Vec<(&str, &[u8])>| {
        let key = read_key(key).unwrap();
        let (path, version) = key.as_go().unwrap();
        let files = GoModuleFiles {
            files,
            omitted: Vec::new(),
        };
        let mut zip = std::io::Cursor::new(Vec::new());
        write_go_zip(path, version, &files, &mut zip).unwrap();
        zip.into_inner()
    };
    let go_mod: (&str, &[u8]) = ("go.mod", b"module example.com/net\n");
    let right = zip("example.com/net@v1.2.3", vec![go_mod]);
    let key = || read_key("example.com/net@v1.2.3").unwrap();
    let (package, ()) = CheckedPackage::of_upload(key(), stage(&right), RepoPath::root(), ())
        .await
        .unwrap();
    assert_eq!(
        package.staged.digest,
        crate::model::Sha256Digest::of(&right)
    );
    let other = zip("example.com/net@v1.2.4", vec![go_mod]);
    let empty = zip("example.com/net@v1.2.3", Vec::new());
    for (content, part) in [
        (other, "does not begin with"),
        (empty, "no file"),
        (Vec::new(), "not a zip file"),
        (b"PK".to_vec(), "not a zip file"),
    ] {
        let error = CheckedPackage::of_upload(key(), stage(&content), RepoPath::root(), ())
            .await
            .unwrap_err();
        assert!(error.to_string().contains(part), "{error}");
        assert!(!error.is_internal() && error.exceeded().is_none());
    }
    let module = || read_key(VPC).unwrap();
    let error = CheckedPackage::of_upload(module(), stage(&right), RepoPath::root(), ())
        .await
        .unwrap_err();
    assert!(
        error.to_string().starts_with("not a tar.gz archive"),
        "{error}"
    );
    assert_eq!(std::fs::read_dir(fixture.staging()).unwrap().count(), 1);
    drop(package);
    assert_eq!(std::fs::read_dir(fixture.staging()).unwrap().count(), 0);
}
