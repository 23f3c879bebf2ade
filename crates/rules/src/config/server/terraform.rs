//! Settings for the programs that run the code: versions and downloads.

use std::fmt;
use std::path::PathBuf;

use semver::Version;
use url::Url;

use super::reader::{ReadResult, SettingReader};
use super::section::section;
use crate::model::Distribution;

section! {
    /// Programs that run the code.
    pub struct TerraformConfig in Terraform {
        /// Program for projects that do not name one.
        pub distribution: Distribution =
            choice("default-tf-distribution", "NAME", &["terraform", "opentofu"])
                .also(&["tf-distribution"])
                .or("terraform"),

        /// Version for projects that do not name one.
        pub version: Option<Version> =
            text("default-tf-version", "VERSION").or_derived("the one on PATH") => read_version,

        /// Folder with programs of other versions, named like terraform1.9.8 or tofu1.10.0.
        pub bin_dir: Option<PathBuf> =
            path("tf-bin-dir", "FOLDER").or_derived("<data dir>/bin").as_other_files_in_runs(),

        /// Sources of missing programs. `None`: nothing is downloaded.
        pub downloads: Option<Mirrors> = read_downloads from {
            /// Download missing versions of Terraform and OpenTofu that projects need into <data dir>/bin, and
            /// verify the signatures of their publishers.
            switch("tf-download").or("true"),

            /// Mirror to download Terraform from, laid out like releases.hashicorp.com.
            text("tf-download-url", "URL").or_derived("https://releases.hashicorp.com"),

            /// Mirror to download OpenTofu from: the list of releases as api.json, and the files of each version in
            /// a folder such as v1.9.0.
            text("tofu-download-url", "URL").or_derived("its releases on GitHub"),
        },

        /// Cache packages of providers in `plugin-cache` of the data directory for all projects; safe for concurrent runs.
        pub provider_cache: bool = switch("use-tf-plugin-cache").or("true"),
    }
}

/// Servers from which programs are downloaded, instead of those of their makers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mirrors {
    /// `--tf-download-url`, laid out like releases.hashicorp.com.
    pub terraform: Option<MirrorUrl>,
    /// `--tofu-download-url`: `api.json`, and the files of each version in a folder such as `v1.9.0`.
    pub opentofu: Option<MirrorUrl>,
}

/// The address of a mirror, which may contain a password.
#[derive(Clone, PartialEq, Eq)]
pub struct MirrorUrl(pub Url);

impl fmt::Debug for MirrorUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MirrorUrl({})", self.0.host_str().unwrap_or_default())
    }
}

fn read_downloads(reader: &mut SettingReader<'_>) -> ReadResult<Option<Mirrors>> {
    const FIX: &str = "write the URL of a mirror, such as `https://mirror.example.com/hashicorp`";
    let is_allowed = reader.switch("tf-download");
    let terraform = reader.parsed("tf-download-url", parse_mirror, FIX);
    let opentofu = reader.parsed("tofu-download-url", parse_mirror, FIX);
    let mirrors = Mirrors {
        terraform: terraform?,
        opentofu: opentofu?,
    };
    Ok(is_allowed?.then_some(mirrors))
}

/// Parses the address of a mirror. Errors do not repeat the text, because it may contain a password.
fn parse_mirror(text: &str) -> Result<MirrorUrl, &'static str> {
    let url = Url::parse(text).map_err(|_| "the text is not a URL")?;
    if !matches!(url.scheme(), "http" | "https")
        || url.query().is_some()
        || url.fragment().is_some()
    {
        return Err("the URL is not that of a folder on a web server");
    }
    Ok(MirrorUrl(url))
}

fn read_version(reader: &mut SettingReader<'_>, flag: &'static str) -> ReadResult<Option<Version>> {
    reader.parsed(flag, parse_version, "write a full version, such as `1.9.8`")
}

fn parse_version(text: &str) -> Result<Version, String> {
    Version::parse(text.strip_prefix('v').unwrap_or(text))
        .map_err(|_| format!("`{text}` is not a version"))
}
