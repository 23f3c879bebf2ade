//! Lists the released versions, and knows the addresses of their files.

use std::collections::HashMap;
use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};
use semver::Version;
use serde::Deserialize;
use tokio::sync::Mutex;
use url::Url;

use super::DownloadError;
use super::download::Platform;
use super::fetch::{ReleaseClient, shown};
use crate::clock::Clock;
use crate::model::Distribution;

/// Age at which a list is fetched again. A new release is used within an hour.
const FRESH: TimeDelta = TimeDelta::hours(1);
/// Maximum size of a list. Terraform's has some 6 MB.
const MAX_LIST_BYTES: u64 = 64 << 20;
/// Address of the list of OpenTofu releases.
const TOFU_LIST: &str = "https://get.opentofu.org/tofu/api.json";
/// Parent address of the files of OpenTofu.
const TOFU_FILES: &str = "https://github.com/opentofu/opentofu/releases/download";
/// Parent address of the files of conftest.
const CONFTEST_FILES: &str = "https://github.com/open-policy-agent/conftest/releases/download";
/// Parent address of the list and the files of Terraform.
const TERRAFORM: &str = "https://releases.hashicorp.com";

/// Addresses of the lists of releases, and of the files of each version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sources {
    terraform: Url,
    tofu_list: Url,
    tofu_files: Url,
    conftest_files: Url,
}

/// Addresses of the files of one version of conftest on one platform.
pub(super) struct ConftestFiles {
    /// Name of the archive, as the list of checksums has it.
    pub archive_name: String,
    pub archive: Url,
    pub sums: Url,
}

/// Addresses of the files of one version on one platform.
pub(super) struct ReleaseFiles {
    /// Name of the archive, as the list of checksums has it.
    pub archive_name: String,
    pub archive: Url,
    pub sums: Url,
    pub signature: Url,
}

impl Sources {
    /// Creates the sources. `None` stands for the servers of the makers. A mirror of Terraform has the layout of
    /// releases.hashicorp.com. One of OpenTofu has `api.json` as get.opentofu.org has it, and the files of each
    /// version in a directory such as `v1.9.0`.
    ///
    /// # Panics
    ///
    /// Never: the makers' addresses are constants.
    pub fn new(terraform: Option<&Url>, tofu: Option<&Url>) -> Self {
        let known = |text: &str| Url::parse(text).expect("the makers' addresses are URLs");
        Self {
            terraform: terraform.cloned().unwrap_or_else(|| known(TERRAFORM)),
            tofu_list: tofu.map_or_else(|| known(TOFU_LIST), |base| below(base, &["api.json"])),
            tofu_files: tofu.cloned().unwrap_or_else(|| known(TOFU_FILES)),
            conftest_files: known(CONFTEST_FILES),
        }
    }

    /// Sets the parent address of the files of conftest, which has a directory such as `v0.62.0` for each version.
    #[must_use]
    pub fn with_conftest(self, conftest_files: Url) -> Self {
        Self {
            conftest_files,
            ..self
        }
    }

    pub(super) fn conftest(&self, version: &Version, platform: &Platform) -> ConftestFiles {
        let folder = below(&self.conftest_files, &[&format!("v{version}")]);
        let archive_name = conftest_archive(version, platform);
        ConftestFiles {
            archive: below(&folder, &[&archive_name]),
            sums: below(&folder, &["checksums.txt"]),
            archive_name,
        }
    }

    fn list(&self, distribution: Distribution) -> Url {
        match distribution {
            Distribution::Terraform => below(&self.terraform, &["terraform", "index.json"]),
            Distribution::OpenTofu => self.tofu_list.clone(),
        }
    }

    pub(super) fn files(
        &self,
        distribution: Distribution,
        version: &Version,
        platform: &Platform,
    ) -> ReleaseFiles {
        let archive_name = archive_name(distribution, version, platform);
        let sums = format!("{}_{version}_SHA256SUMS", distribution.program());
        let (signature, folder) = match distribution {
            Distribution::Terraform => (
                format!("{sums}.sig"),
                below(&self.terraform, &["terraform", &version.to_string()]),
            ),
            Distribution::OpenTofu => (
                format!("{sums}.gpgsig"),
                below(&self.tofu_files, &[&format!("v{version}")]),
            ),
        };
        let file = |name: &str| below(&folder, &[name]);
        ReleaseFiles {
            archive: file(&archive_name),
            sums: file(&sums),
            signature: file(&signature),
            archive_name,
        }
    }
}

/// Returns the name of an archive, such as `terraform_1.9.8_linux_amd64.zip`.
fn archive_name(distribution: Distribution, version: &Version, platform: &Platform) -> String {
    format!("{}_{version}_{platform}.zip", distribution.program())
}

/// Returns the name of an archive of conftest, such as `conftest_0.62.0_Linux_x86_64.tar.gz`.
fn conftest_archive(version: &Version, platform: &Platform) -> String {
    let os = match platform.os {
        "linux" => "Linux",
        "darwin" => "Darwin",
        other => other,
    };
    let arch = match platform.arch {
        "amd64" => "x86_64",
        other => other,
    };
    format!("conftest_{version}_{os}_{arch}.tar.gz")
}

fn below(base: &Url, path: &[&str]) -> Url {
    let mut url = base.clone();
    if let Ok(mut segments) = url.path_segments_mut() {
        segments.pop_if_empty().extend(path);
    }
    url
}

/// Cache of the lists of releases.
pub(super) struct Lists {
    clock: Arc<dyn Clock>,
    /// Known list of each distribution. The lock is held during a fetch, so that concurrent tasks fetch a list once.
    known: HashMap<Distribution, Mutex<Option<KnownReleases>>>,
}

struct KnownReleases {
    versions: Arc<[Version]>,
    since: DateTime<Utc>,
}

impl std::fmt::Debug for Lists {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lists").finish_non_exhaustive()
    }
}

impl Lists {
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        let known =
            [Distribution::Terraform, Distribution::OpenTofu].map(|one| (one, Mutex::default()));
        Self {
            clock,
            known: known.into(),
        }
    }

    /// Lists the versions for a platform, sorted. If the list cannot be fetched, an older one is used.
    pub async fn get(
        &self,
        web: &ReleaseClient,
        sources: &Sources,
        distribution: Distribution,
        platform: &Platform,
    ) -> Result<Arc<[Version]>, DownloadError> {
        let mut known = self.known[&distribution].lock().await;
        let now = self.clock.now();
        if let Some(known) = known.as_ref().filter(|known| now - known.since < FRESH) {
            return Ok(Arc::clone(&known.versions));
        }
        match fetch(web, &sources.list(distribution), distribution, platform).await {
            Ok(versions) => {
                let versions: Arc<[Version]> = versions.into();
                *known = Some(KnownReleases {
                    versions: Arc::clone(&versions),
                    since: now,
                });
                Ok(versions)
            }
            Err(error) => known
                .as_ref()
                .map(|known| Arc::clone(&known.versions))
                .ok_or(error),
        }
    }
}

async fn fetch(
    web: &ReleaseClient,
    url: &Url,
    distribution: Distribution,
    platform: &Platform,
) -> Result<Vec<Version>, DownloadError> {
    let bytes = web.bytes(url, MAX_LIST_BYTES).await?;
    let (platform, reason_url) = (platform.clone(), shown(url));
    let read = move || read(&bytes, distribution, &platform);
    let read = tokio::task::spawn_blocking(read).await;
    let reason = match read {
        Ok(Ok(versions)) => return Ok(versions),
        Ok(Err(error)) => error.to_string(),
        Err(_) => "reading was interrupted".to_owned(),
    };
    Err(DownloadError::List {
        url: reason_url,
        reason,
    })
}

fn read(
    bytes: &[u8],
    distribution: Distribution,
    platform: &Platform,
) -> serde_json::Result<Vec<Version>> {
    let files: Vec<(String, Vec<String>)> = match distribution {
        Distribution::Terraform => serde_json::from_slice::<TerraformList>(bytes)?.files(),
        Distribution::OpenTofu => serde_json::from_slice::<TofuList>(bytes)?.files(),
    };
    let version = |(text, files): (String, Vec<String>)| {
        let version = Version::parse(&text).ok()?;
        files
            .contains(&archive_name(distribution, &version, platform))
            .then_some(version)
    };
    let mut versions: Vec<Version> = files.into_iter().filter_map(version).collect();
    versions.sort();
    Ok(versions)
}

/// Format of `index.json` of releases.hashicorp.com.
#[derive(Deserialize)]
struct TerraformList {
    versions: HashMap<String, TerraformRelease>,
}

#[derive(Deserialize)]
struct TerraformRelease {
    #[serde(default)]
    builds: Vec<TerraformBuild>,
}

#[derive(Deserialize)]
struct TerraformBuild {
    filename: String,
}

impl TerraformList {
    fn files(self) -> Vec<(String, Vec<String>)> {
        let names = |release: TerraformRelease| {
            release
                .builds
                .into_iter()
                .map(|build| build.filename)
                .collect()
        };
        self.versions
            .into_iter()
            .map(|(version, release)| (version, names(release)))
            .collect()
    }
}

/// Format of `api.json` of get.opentofu.org.
#[derive(Deserialize)]
struct TofuList {
    versions: Vec<TofuRelease>,
}

#[derive(Deserialize)]
struct TofuRelease {
    id: String,
    #[serde(default)]
    files: Vec<String>,
}

impl TofuList {
    fn files(self) -> Vec<(String, Vec<String>)> {
        self.versions
            .into_iter()
            .map(|release| (release.id, release.files))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn platform() -> Platform {
        Platform {
            os: "linux",
            arch: "amd64",
        }
    }

    #[test]
    fn files_are_where_the_makers_and_their_mirrors_have_them() {
        let mirror = Url::parse("https://mirror.example.com/hashi/").unwrap();
        let shown = |sources: Sources| {
            [Distribution::Terraform, Distribution::OpenTofu]
                .map(|distribution| {
                    let files = sources.files(distribution, &Version::new(1, 9, 8), &platform());
                    format!(
                        "{}\n{}\n{}\n{}",
                        sources.list(distribution),
                        files.archive,
                        files.sums,
                        files.signature
                    )
                })
                .join("\n")
        };
        insta::assert_snapshot!(shown(Sources::new(None, None)), @"
        https://releases.hashicorp.com/terraform/index.json
        https://releases.hashicorp.com/terraform/1.9.8/terraform_1.9.8_linux_amd64.zip
        https://releases.hashicorp.com/terraform/1.9.8/terraform_1.9.8_SHA256SUMS
        https://releases.hashicorp.com/terraform/1.9.8/terraform_1.9.8_SHA256SUMS.sig
        https://get.opentofu.org/tofu/api.json
        https://github.com/opentofu/opentofu/releases/download/v1.9.8/tofu_1.9.8_linux_amd64.zip
        https://github.com/opentofu/opentofu/releases/download/v1.9.8/tofu_1.9.8_SHA256SUMS
        https://github.com/opentofu/opentofu/releases/download/v1.9.8/tofu_1.9.8_SHA256SUMS.gpgsig
        ");
        insta::assert_snapshot!(shown(Sources::new(Some(&mirror), Some(&mirror))), @"
        https://mirror.example.com/hashi/terraform/index.json
        https://mirror.example.com/hashi/terraform/1.9.8/terraform_1.9.8_linux_amd64.zip
        https://mirror.example.com/hashi/terraform/1.9.8/terraform_1.9.8_SHA256SUMS
        https://mirror.example.com/hashi/terraform/1.9.8/terraform_1.9.8_SHA256SUMS.sig
        https://mirror.example.com/hashi/api.json
        https://mirror.example.com/hashi/v1.9.8/tofu_1.9.8_linux_amd64.zip
        https://mirror.example.com/hashi/v1.9.8/tofu_1.9.8_SHA256SUMS
        https://mirror.example.com/hashi/v1.9.8/tofu_1.9.8_SHA256SUMS.gpgsig
        ");
    }

    #[test]
    fn conftest_is_where_its_makers_have_it() {
        let arm = Platform {
            os: "darwin",
            arch: "arm64",
        };
        let sources = Sources::new(None, None);
        let [intel, arm] = [platform(), arm].map(|platform| {
            let files = sources.conftest(&Version::new(0, 62, 0), &platform);
            format!("{} {}", files.archive, files.sums)
        });
        let folder = "https://github.com/open-policy-agent/conftest/releases/download/v0.62.0";
        assert_eq!(
            intel,
            format!("{folder}/conftest_0.62.0_Linux_x86_64.tar.gz {folder}/checksums.txt")
        );
        assert_eq!(
            arm,
            format!("{folder}/conftest_0.62.0_Darwin_arm64.tar.gz {folder}/checksums.txt")
        );
    }

    #[test]
    fn versions_without_a_build_for_the_platform_are_left_out() {
        let build = |version: &str, platform: &str| {
            format!(
                r#""{version}":{{"builds":[{{"os":"x","filename":"terraform_{version}_{platform}.zip"}}]}}"#
            )
        };
        let builds = [
            build("1.10.0", "linux_amd64"),
            build("1.9.8", "linux_amd64"),
            build("1.9.9", "darwin_arm64"),
        ];
        let list = format!(
            r#"{{"name":"terraform","versions":{{{},"odd":{{}}}}}}"#,
            builds.join(",")
        );
        let shown = |versions: Vec<Version>| {
            versions
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join(" ")
        };
        assert_eq!(
            shown(read(list.as_bytes(), Distribution::Terraform, &platform()).unwrap()),
            "1.9.8 1.10.0"
        );
        let list = r#"{"versions":[{"id":"1.9.0","files":["tofu_1.9.0_linux_amd64.zip"]},{"id":"1.8.0","files":[]}]}"#;
        assert_eq!(
            shown(read(list.as_bytes(), Distribution::OpenTofu, &platform()).unwrap()),
            "1.9.0"
        );
    }
}
