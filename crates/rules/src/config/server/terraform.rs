//! Settings for the programs that run the code: versions, time limits and variables.

use std::fmt;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use semver::Version;
use url::Url;

use super::environment::PassEnvironment;
use super::reader::{ReadResult, SettingReader};
use crate::model::Distribution;

/// Number of parallel runs for `--parallel-pool-size 0`, the default of the table (reference 10).
const PARALLEL: NonZeroUsize = NonZeroUsize::new(15).expect("15 is not 0");

/// Programs that run the code, and their limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TerraformConfig {
    /// Program for projects that choose none.
    pub distribution: Distribution,
    /// Version for projects that choose none. `None` stands for the program on the `PATH`.
    pub version: Option<Version>,
    /// Folder of programs of other versions, named like `terraform1.9.8`; absolute. `None` stands for `bin` in the
    /// data folder.
    pub bin_dir: Option<PathBuf>,
    /// Sources of missing programs. `None`: nothing is downloaded.
    pub downloads: Option<Mirrors>,
    /// True if projects share packages of providers.
    pub provider_cache: bool,
    /// Time after which a run is stopped.
    pub run_timeout: Duration,
    /// Time that a stopping server waits for runs before it interrupts them.
    pub shutdown_grace: Duration,
    /// Maximum number of projects that run at the same time.
    pub parallel: NonZeroUsize,
    /// Maximum number of these projects in one repository. `None` stands for no lower limit.
    pub parallel_per_repo: Option<NonZeroUsize>,
    /// Variables of the server that child processes get.
    pub environment: PassEnvironment,
}

impl TerraformConfig {
    pub(super) fn read(reader: &mut SettingReader<'_>) -> ReadResult<Self> {
        let distribution = reader.choice("default-tf-distribution");
        let fix = "write a full version, such as `1.9.8`";
        let version = reader.parsed("default-tf-version", parse_version, fix);
        let bin_dir = reader.path("tf-bin-dir");
        let downloads = read_downloads(reader);
        let provider_cache = reader.switch("use-tf-plugin-cache");
        let run_timeout = reader.duration("run-timeout");
        let shutdown_grace = reader.duration("shutdown-grace");
        let parallel = reader.number::<usize>("parallel-pool-size");
        let parallel_per_repo = reader.number::<usize>("parallel-repo-size");
        let environment = PassEnvironment::read(reader);
        Ok(Self {
            distribution: distribution?.expect("the program has a default"),
            version: version?,
            bin_dir,
            downloads: downloads?,
            provider_cache: provider_cache?,
            run_timeout: run_timeout?,
            shutdown_grace: shutdown_grace?,
            parallel: parallel?.and_then(NonZeroUsize::new).unwrap_or(PARALLEL),
            parallel_per_repo: parallel_per_repo?.and_then(NonZeroUsize::new),
            environment: environment?,
        })
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

fn parse_version(text: &str) -> Result<Version, String> {
    Version::parse(text.strip_prefix('v').unwrap_or(text))
        .map_err(|_| format!("`{text}` is not a version"))
}
