//! Which program runs the code, for how long, and with which variables.

use std::fmt;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use semver::Version;
use url::Url;

use super::environment::PassEnvironment;
use super::reader::{Read, Reader};
use crate::model::Distribution;

/// `--parallel-pool-size` where it says 0, as the table has it (reference 10).
const PARALLEL: NonZeroUsize = NonZeroUsize::new(15).expect("15 is not 0");

/// How code is run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TerraformConfig {
    /// Program where a project says nothing.
    pub distribution: Distribution,
    /// Version where a project says nothing; `None` is the one on PATH.
    pub version: Option<Version>,
    /// Programs of other versions, named like `terraform1.9.8`; absolute. `None`: `bin` in the data folder.
    pub bin_dir: Option<PathBuf>,
    /// Where programs come from that are not here; `None`: nothing is downloaded.
    pub downloads: Option<Mirrors>,
    /// Whether projects share packages of providers.
    pub provider_cache: bool,
    /// A project's run is stopped after this time.
    pub run_timeout: Duration,
    /// How long a stopping server waits for runs before it interrupts them.
    pub shutdown_grace: Duration,
    /// How many projects run at the same time at most.
    pub parallel: NonZeroUsize,
    /// How many of them in one repository; `None` is as many as there are.
    pub parallel_per_repo: Option<NonZeroUsize>,
    /// Which of the server's variables children get.
    pub environment: PassEnvironment,
}

impl TerraformConfig {
    pub(super) fn read(reader: &mut Reader<'_>) -> Read<Self> {
        let distribution = reader.choice("default-tf-distribution");
        let fix = "write a version in full, such as `1.9.8`";
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

/// Servers to download programs from, instead of those of their makers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mirrors {
    /// `--tf-download-url`, laid out like releases.hashicorp.com.
    pub terraform: Option<MirrorUrl>,
    /// `--tofu-download-url`: `api.json`, and the files of each version in a folder such as `v1.9.0`.
    pub opentofu: Option<MirrorUrl>,
}

/// The address of a mirror, in which a password may stand.
#[derive(Clone, PartialEq, Eq)]
pub struct MirrorUrl(pub Url);

impl fmt::Debug for MirrorUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MirrorUrl({})", self.0.host_str().unwrap_or_default())
    }
}

fn read_downloads(reader: &mut Reader<'_>) -> Read<Option<Mirrors>> {
    const FIX: &str =
        "write the address of a mirror, such as `https://mirror.example.com/hashicorp`";
    let is_allowed = reader.switch("tf-download");
    let terraform = reader.parsed("tf-download-url", parse_mirror, FIX);
    let opentofu = reader.parsed("tofu-download-url", parse_mirror, FIX);
    let mirrors = Mirrors {
        terraform: terraform?,
        opentofu: opentofu?,
    };
    Ok(is_allowed?.then_some(mirrors))
}

/// What was written is not repeated: it may hold a password.
fn parse_mirror(text: &str) -> Result<MirrorUrl, &'static str> {
    let url = Url::parse(text).map_err(|_| "this is not a URL")?;
    if !matches!(url.scheme(), "http" | "https")
        || url.query().is_some()
        || url.fragment().is_some()
    {
        return Err("this is not the address of a folder on a web server");
    }
    Ok(MirrorUrl(url))
}

fn parse_version(text: &str) -> Result<Version, String> {
    Version::parse(text.strip_prefix('v').unwrap_or(text))
        .map_err(|_| format!("`{text}` is not a version"))
}
