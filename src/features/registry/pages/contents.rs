//! Reads what a package tells about itself: its README, and inputs and outputs of a module.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read, Seek};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lockkeeper_registry::go_zip::{GO_LIMITS, check_go_zip};
use lockkeeper_registry::records::PackageFile;
use lockkeeper_registry::tf_archive::{TF_LIMITS, check_tf_archive};
use lockkeeper_registry::versions::VersionKey;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::super::RegistryError;
use super::super::blobs::{Blobs, blocking};
use super::readme;
use crate::discovery::{ModuleInterface, module_interface};
use crate::kit::recent::RecentMap;
use crate::model::{RepoPath, Sha256Digest};

/// Maximum number of bytes of a README on a page.
const MAX_README: u64 = 256 << 10;

/// Maximum number of bytes of a code file, and of all that are read.
const MAX_CODE_FILE: u64 = 512 << 10;
const MAX_CODE: u64 = 4 << 20;

/// Maximum number of bytes of packages in memory.
const KEPT_BYTES: usize = 32 << 20;

/// Longest wait for the packages in front.
const PLACE_TIME: Duration = Duration::from_secs(5);

/// Longest wait for a package that comes from an object store. It goes on after that, for the next visitor.
const OPEN_TIME: Duration = Duration::from_secs(3);

/// Maximum number of packages that are read at a time. Large ones take seconds.
const AT_ONCE: usize = 1;

/// Maximum number of submodules and examples on a page.
const MAX_PARTS: usize = 200;

/// Texts in a package.
#[derive(Debug, Default)]
pub struct PackageContents {
    /// HTML of the README.
    pub readme: Option<String>,
    /// Inputs and outputs of a Terraform module.
    pub interface: ModuleInterface,
    /// Directories below `modules` and `examples` with code.
    pub parts: Vec<String>,
}

/// Texts in packages that were read lately. A package never changes.
pub(super) struct ContentsReader {
    kept: Arc<Mutex<KeptContents>>,
    places: Arc<Semaphore>,
}

/// By the package and the directory of the module in it, which two modules can share.
type KeptContents = RecentMap<(Sha256Digest, RepoPath), Arc<PackageContents>>;

/// Reason why the page of a version tells nothing about its package.
#[derive(Debug)]
pub(super) enum Unread {
    /// Others are being read. Later, the page tells more.
    Busy,
    /// The store has no such package.
    Missing,
    /// The package cannot be read.
    Failed(RegistryError),
}

impl ContentsReader {
    pub fn new() -> Self {
        Self {
            kept: Arc::new(Mutex::new(RecentMap::new(KEPT_BYTES))),
            places: Arc::new(Semaphore::new(AT_ONCE)),
        }
    }

    /// Returns the texts in the package of a version.
    pub async fn read(
        &self,
        blobs: &Blobs,
        key: &VersionKey,
        package: &PackageFile,
    ) -> Result<Arc<PackageContents>, Unread> {
        let module_dir = package.name.module_dir().unwrap_or_else(RepoPath::root);
        let kept_as = (package.digest.clone(), module_dir);
        if let Some(contents) = self.kept(&kept_as) {
            return Ok(contents);
        }
        let place = Arc::clone(&self.places).acquire_owned();
        let place = timeout(PLACE_TIME, place).await.map_err(|_| Unread::Busy)?;
        let place = place.map_err(|_| Unread::Busy)?;
        // Somebody else may have read it meanwhile.
        if let Some(contents) = self.kept(&kept_as) {
            return Ok(contents);
        }
        let file = timeout(
            OPEN_TIME,
            blobs.open_file(&package.digest, Some(package.size)),
        )
        .await;
        let file = file.map_err(|_| Unread::Busy)?;
        let file = file.map_err(|error| Unread::Failed(error.into()))?;
        let file = file.ok_or(Unread::Missing)?;
        let (of, kept) = (key.clone(), Arc::clone(&self.kept));
        // The place is free when the work ends, not when the person leaves, and the work is not lost then.
        let contents = blocking(move || {
            let contents = Arc::new(package_contents(&of, &kept_as.1, file)?);
            let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
            kept.insert(kept_as, Arc::clone(&contents), contents.bytes());
            drop(kept);
            drop(place);
            Ok::<_, String>(contents)
        });
        contents.await.map_err(|error| {
            let what = format!("the package of {key}: {error}");
            Unread::Failed(RegistryError::Damaged(what))
        })
    }

    fn kept(&self, kept_as: &(Sha256Digest, RepoPath)) -> Option<Arc<PackageContents>> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.get(kept_as)
    }
}

impl PackageContents {
    /// Returns the rough number of bytes in memory.
    fn bytes(&self) -> usize {
        let readme = self.readme.as_ref().map_or(0, String::len);
        let inputs = self.interface.inputs.iter().map(|input| {
            let texts = [&input.value_type, &input.default, &input.description];
            200 + texts.into_iter().flatten().map(String::len).sum::<usize>()
        });
        let outputs = self.interface.outputs.iter();
        let outputs =
            outputs.map(|output| 100 + output.description.as_ref().map_or(0, String::len));
        let unread = self.interface.unread.iter();
        let unread = unread.map(|file| 100 + file.file.as_str().len() + file.what.len());
        let parts = self.parts.iter().map(|part| 50 + part.len());
        let lists = [
            inputs.sum::<usize>(),
            outputs.sum(),
            unread.sum(),
            parts.sum(),
        ];
        1_000 + readme + lists.iter().sum::<usize>()
    }
}

/// Texts that were found in an archive.
#[derive(Default)]
struct FoundTexts {
    readme: Option<String>,
    code: BTreeMap<RepoPath, String>,
    code_bytes: u64,
    /// Files that are too large, so that nobody reads them here.
    too_large: Vec<RepoPath>,
    parts: BTreeSet<String>,
}

/// Reads the texts in the package of a version, whose module is in a directory of it.
pub fn package_contents(
    key: &VersionKey,
    module_dir: &RepoPath,
    file: impl Read + Seek,
) -> Result<PackageContents, String> {
    let mut found = FoundTexts::default();
    let prefix = if module_dir.is_root() {
        String::new()
    } else {
        format!("{module_dir}/")
    };
    let visit = |path: &str, content: &mut dyn Read| match path.strip_prefix(&prefix) {
        Some(path) => found.visit(path, content),
        None => Ok(()),
    };
    match key.as_go() {
        Some((path, version)) => check_go_zip(path, version, file, &GO_LIMITS, visit)
            .map(drop)
            .map_err(|error| error.to_string())?,
        None => check_tf_archive(file, &TF_LIMITS, visit)
            .map(drop)
            .map_err(|error| error.to_string())?,
    }
    let files: Vec<RepoPath> = found.code.keys().cloned().collect();
    let mut interface = match key.as_go() {
        Some(_) => ModuleInterface::default(),
        None => module_interface(&files, &|path| found.code.get(path).cloned()),
    };
    interface.add_too_large(found.too_large);
    Ok(PackageContents {
        readme: found.readme.as_deref().map(readme::html),
        interface,
        parts: found.parts.into_iter().collect(),
    })
}

impl FoundTexts {
    fn visit(&mut self, path: &str, content: &mut dyn Read) -> io::Result<()> {
        match path.split('/').collect::<Vec<_>>()[..] {
            [name] if name.eq_ignore_ascii_case("README.md") => {
                self.readme = Some(text(content, MAX_README)?);
            }
            [name] if is_code(name) => self.add_code(name, content)?,
            [kind @ ("modules" | "examples"), part, name]
                if is_code(name) && self.parts.len() < MAX_PARTS =>
            {
                self.parts.insert(format!("{kind}/{part}"));
            }
            _ => {}
        }
        Ok(())
    }

    fn add_code(&mut self, name: &str, content: &mut dyn Read) -> io::Result<()> {
        let Ok(path) = RepoPath::new(name) else {
            return Ok(());
        };
        let left = MAX_CODE.saturating_sub(self.code_bytes).min(MAX_CODE_FILE);
        let text = text(content, left + 1)?;
        if text.len() as u64 > left {
            self.too_large.push(path);
        } else {
            self.code_bytes += text.len() as u64;
            self.code.insert(path, text);
        }
        Ok(())
    }
}

fn is_code(name: &str) -> bool {
    [".tf", ".tofu", ".tf.json", ".tofu.json"]
        .iter()
        .any(|end| name.ends_with(end))
}

/// Reads the beginning of a file. What is not UTF-8 is replaced.
fn text(content: &mut dyn Read, most: u64) -> io::Result<String> {
    let mut bytes = Vec::new();
    content.take(most).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use lockkeeper_registry::tf_archive::{TfFile, write_tf_archive};
    use proptest::prelude::*;

    use super::*;
    use crate::features::registry::testing::{fixed_seed, texts_of};

    /// Pieces of the code of a module.
    const PIECES: &[&str] = &[
        "variable",
        " \"a\" ",
        "output",
        "{\n",
        "}\n",
        "type = ",
        "default = ",
        "description = ",
        "sensitive = true\n",
        "list(object({ a = string }))\n",
        "<<-E\n",
        "\nE\n",
        "\"${var.a}\"\n",
        "[",
        "]",
        "(",
        ")",
        "\"",
        "${",
        "%{",
        "#",
        "/*",
        "\u{feff}",
    ];

    fn contents(files: &[(&str, &[u8])]) -> PackageContents {
        let files: Vec<TfFile<'_>> = files
            .iter()
            .map(|(path, content)| TfFile {
                path: (*path).into(),
                content,
                is_executable: false,
            })
            .collect();
        let mut package = tempfile::tempfile().unwrap();
        write_tf_archive(&files, &mut package).unwrap();
        let key = "module acme/vpc/aws 1.0.0".parse().unwrap();
        package_contents(&key, &RepoPath::root(), package).unwrap()
    }

    #[test]
    fn texts_of_a_package_are_read_up_to_their_limits() {
        // The limit is in the middle of a letter.
        let readme = format!("x{}", "\u{fc}".repeat(300 << 10));
        let mut code = String::new();
        for number in 0..1_000 {
            writeln!(
                code,
                "variable \"v{number}\" {{}}\noutput \"o{number}\" {{}}"
            )
            .unwrap();
        }
        let large = "# variable\n".repeat(60 << 10);
        let parts: Vec<String> = (0..300)
            .map(|number| format!("modules/m{number}/main.tf"))
            .collect();
        let mut files: Vec<(&str, &[u8])> = vec![
            ("README.md", readme.as_bytes()),
            ("main.tf", code.as_bytes()),
            ("large.tf", large.as_bytes()),
        ];
        files.extend(parts.iter().map(|part| (part.as_str(), &b""[..])));
        let contents = contents(&files);
        let readme = contents.readme.unwrap();
        assert!(readme.len() as u64 <= MAX_README + 100, "{}", readme.len());
        assert!(readme.ends_with("\u{fffd}</p>\n"));
        assert_eq!(contents.interface.inputs.len(), 300);
        assert_eq!(contents.interface.outputs.len(), 300);
        assert_eq!(contents.interface.unread[0].file.as_str(), "large.tf");
        assert_eq!(contents.parts.len(), MAX_PARTS);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: fixed_seed().cases / 4, ..fixed_seed() })]

        #[test]
        fn any_texts_are_read(
            readme in proptest::collection::vec(any::<u8>(), 0..200),
            (code, other) in (texts_of(PIECES), texts_of(PIECES)),
        ) {
            let files = [
                ("README.md", readme.as_slice()),
                ("main.tf", code.as_bytes()),
                ("other.tofu", other.as_bytes()),
                ("data.tf.json", readme.as_slice()),
            ];
            let contents = contents(&files);
            prop_assert!(contents.readme.is_some());
            let interface = &contents.interface;
            let mut unread = interface.unread.iter();
            prop_assert!(unread.any(|unread| unread.file.as_str() == "data.tf.json"));
            prop_assert!(interface.unread.iter().all(|unread| !unread.what.is_empty()));
        }
    }
}
