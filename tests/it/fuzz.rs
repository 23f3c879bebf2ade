//! Feeds hostile text to everything that reads text: a short run of the fuzz targets of `fuzz/`, on any compiler.
//!
//! Texts are made from the corpus of each target by seeded mutations, so a run can be repeated: the seed is printed,
//! and a failure names the number of the text. `make chaos` runs longer; `cargo fuzz` searches better, where it is
//! available.

mod targets;

use std::fs;
use std::panic::catch_unwind;
use std::path::Path;
use std::time::{Duration, Instant};

use lockkeeper::features::accounts::PushRequest;
use lockkeeper::features::registry::{PackageContents, import_line, readme_html};
use lockkeeper::workflow::parse_manifest;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use targets::{ALL, Target, is_harmless};

/// Maximum length of a text. Longer texts find nothing new and take longer.
const MAX_BYTES: usize = 20_000;

/// Pieces of text that have a meaning for one of the readers.
const WORDS: [&str; 40] = [
    "\n",
    "  ",
    "- ",
    ": ",
    "{",
    "}",
    "[",
    "]",
    "(",
    ")",
    "\"",
    "'",
    "${",
    "%{",
    "*",
    "**",
    "&a ",
    "*a",
    "<<E\n",
    "!",
    "!!",
    "/",
    "../",
    "\\",
    "#",
    "|",
    ">",
    "~> 1.",
    ">= 99999999999",
    "\u{0}",
    "\u{feff}",
    "é",
    "null",
    "true",
    "-1",
    "1e999",
    "local.x",
    "find_in_parent_folders()",
    "projects:\n",
    "=== a/terragrunt.hcl\n",
];

/// Duration and seed of a run.
struct Options {
    seed: u64,
    /// Number of texts for each target. A longer run is limited by time instead.
    texts: u64,
    time: Option<Duration>,
}

impl Options {
    /// Options of the run that is part of every test run.
    const SHORT: Self = Self {
        seed: 3,
        texts: 200,
        time: None,
    };

    /// Reads the options of `make chaos`: `--seconds`, shared by all targets and at most a minute in total, and
    /// `--seed`.
    fn parse(text: &str) -> Self {
        let words: Vec<&str> = text.split_whitespace().collect();
        let value = |flag: &str| {
            let at = words.iter().position(|word| *word == flag)?;
            words.get(at + 1)?.parse::<u64>().ok()
        };
        let seconds = value("--seconds").unwrap_or(60).min(60);
        Self {
            seed: value("--seed").unwrap_or(Self::SHORT.seed),
            texts: u64::MAX,
            time: Some(share(seconds)),
        }
    }
}

/// Returns the share of the time for each target.
fn share(seconds: u64) -> Duration {
    Duration::from_secs(seconds) / u32::try_from(ALL.len()).expect("a few")
}

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "the only way to hand something to a test"
)]
fn no_text_makes_a_reader_panic() {
    let options =
        std::env::var("LOCKKEEPER_CHAOS").map_or(Options::SHORT, |text| Options::parse(&text));
    let failed: Vec<String> = ALL
        .iter()
        .filter_map(|(name, target)| run(name, *target, &options))
        .collect();
    assert_eq!(failed, [""; 0], "a reader panicked; its text is above");
}

/// Runs one target. On failure it prints how to repeat the text.
#[expect(
    clippy::print_stdout,
    reason = "a seed that nobody sees repeats nothing"
)]
fn run(name: &str, target: Target, options: &Options) -> Option<String> {
    let corpus = corpus(name);
    let Options { seed, texts, time } = *options;
    println!("fuzz {name}: seed {seed}");
    let begun = Instant::now();
    let mut count = 0;
    while count < texts && time.is_none_or(|time| begun.elapsed() < time) {
        let text = text(&corpus, seed, count);
        if catch_unwind(|| target(&text)).is_err() {
            println!("fuzz {name}: seed {seed}, text {count}:\n{text:?}");
            return Some(format!("{name}, seed {seed}, text {count}"));
        }
        count += 1;
    }
    println!(
        "fuzz {name}: {count} texts in {} ms",
        begun.elapsed().as_millis()
    );
    None
}

fn corpus(name: &str) -> Vec<String> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .map(|dir| dir.join("fuzz/corpus").join(name));
    let dir = dir
        .into_iter()
        .find(|dir| dir.is_dir())
        .expect("every target has a corpus");
    let mut files: Vec<_> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    files
        .iter()
        .map(|file| fs::read_to_string(file).unwrap())
        .collect()
}

/// Returns a text by its number. The first ones are the unchanged corpus.
fn text(corpus: &[String], seed: u64, number: u64) -> String {
    let mut rng = StdRng::seed_from_u64(seed.wrapping_mul(1_000_003).wrapping_add(number));
    if let Some(text) = usize::try_from(number)
        .ok()
        .and_then(|number| corpus.get(number))
    {
        return text.clone();
    }
    let mut bytes = corpus[rng.random_range(0..corpus.len())]
        .clone()
        .into_bytes();
    for _ in 0..rng.random_range(1..8) {
        mutate(&mut bytes, corpus, &mut rng);
    }
    bytes.truncate(MAX_BYTES);
    String::from_utf8_lossy(&bytes).into_owned()
}

fn mutate(bytes: &mut Vec<u8>, corpus: &[String], rng: &mut StdRng) {
    let at = rng.random_range(0..=bytes.len());
    let end = (at + rng.random_range(0..40)).min(bytes.len());
    match rng.random_range(0..7) {
        0 if at < bytes.len() => bytes[at] ^= 1 << rng.random_range(0..8),
        1 => drop(bytes.drain(at..end)),
        2 => {
            let copy = bytes[at..end].repeat(rng.random_range(1..20));
            bytes.splice(at..at, copy);
        }
        3 => {
            let other = corpus[rng.random_range(0..corpus.len())].as_bytes();
            let from = rng.random_range(0..=other.len());
            bytes.truncate(at);
            bytes.extend_from_slice(&other[from..]);
        }
        4 => {
            let word = WORDS[rng.random_range(0..WORDS.len())].repeat(rng.random_range(1..200));
            bytes.splice(at..at, word.into_bytes());
        }
        5 => bytes.truncate(at),
        _ => {
            let word = WORDS[rng.random_range(0..WORDS.len())];
            bytes.splice(at..end, word.bytes());
        }
    }
}

/// Other pages are made from these, so most of them get past the first checks.
#[test]
fn the_pages_of_the_corpus_are_those_of_the_log_of_a_peer() {
    let mut sizes: Vec<usize> = corpus("registry_pages")
        .iter()
        .map(|text| targets::read_page(text).unwrap().items.len())
        .collect();
    sizes.sort_unstable();
    assert_eq!(sizes, [3, 4, 5]);
}

/// Others are made from these, so most of them get past the first checks.
#[test]
fn each_text_of_a_peer_in_the_corpus_is_read_by_one_reader() {
    let readers = |text: &String| {
        [
            targets::read_push(text).is_ok(),
            targets::read_join(text).is_ok(),
            targets::read_members(text).is_ok_and(|members| members.len() == 2),
        ]
    };
    let mut read: Vec<[bool; 3]> = corpus("registry_peers").iter().map(readers).collect();
    read.sort_unstable();
    assert_eq!(
        read,
        [
            [false, false, true],
            [false, true, false],
            [true, false, false]
        ]
    );
}

/// Others are made from these, so most of them have something to read.
#[test]
fn foreign_texts_of_the_corpus_have_something_to_read() {
    let texts = corpus("registry_foreign");
    let count = |has: &dyn Fn(&String) -> bool| texts.iter().filter(|text| has(text)).count();
    let pages = |text: &String| import_line("example.com/acme/net/v2", text).is_some();
    let readmes = |text: &String| readme_html(text).contains("<table>");
    let manifests = |text: &String| parse_manifest(text).is_ok_and(|modules| modules.len() == 1);
    // A package with a README, an input and a submodule.
    let packages = |text: &String| {
        let [root, below, go] = targets::read_packages(text).map(|read| read.and_then(Result::ok));
        let has_readme =
            |contents: Option<PackageContents>| contents.is_some_and(|of| of.readme.is_some());
        let is_full = root.as_ref().is_some_and(|contents| {
            !contents.interface.inputs.is_empty() && !contents.parts.is_empty()
        });
        is_full && [root, below, go].into_iter().all(has_readme)
    };
    assert_eq!(
        [
            count(&pages),
            count(&readmes),
            count(&manifests),
            count(&packages)
        ],
        [1; 4]
    );
}

#[test]
fn nothing_comes_after_the_attributes_that_a_readme_can_have() {
    let link = "rel=\"nofollow noreferrer\" href=\"https://example.com/a\"";
    for (name, attributes) in [
        ("a", link),
        ("ol", "start=\"12\""),
        ("pre", "class=\"excerpt\""),
        ("p", ""),
    ] {
        assert!(is_harmless(name, attributes), "{name} {attributes}");
        let more = format!("{attributes} onclick=\"x()\"");
        assert!(!is_harmless(name, more.trim()), "{name} {more}");
    }
    for (name, attributes) in [
        ("script", ""),
        ("img", ""),
        ("p", link),
        ("a", "href=\"https://example.com\""),
        ("a", "rel=\"nofollow noreferrer\" href=\"javascript:x\""),
        ("a", "rel=\"nofollow noreferrer\" href=\"https://x"),
        ("ol", "start=\"1\" onmouseover=x"),
        ("ol", "start=\"x\""),
        ("pre", "class=\"other\""),
    ] {
        assert!(!is_harmless(name, attributes), "{name} {attributes}");
    }
}

/// Others are made from these, so most of their lines are read.
#[test]
fn the_pushes_of_the_corpus_are_pushes() {
    let commands = |body: Vec<u8>| PushRequest::read(&body).map(|push| push.commands.len());
    let mut read: Vec<_> = corpus("accounts_push")
        .iter()
        .map(|text| targets::push_bodies(text).map(|body| commands(body).ok()))
        .collect();
    read.sort();
    assert_eq!(
        read,
        [
            [None, Some(0)],
            [None, Some(1)],
            [None, Some(3)],
            [Some(3), None]
        ]
    );
}

#[test]
fn a_text_follows_from_its_seed_and_number() {
    let corpus = ["version: 3\n".to_owned()];
    assert_eq!(text(&corpus, 7, 0), corpus[0]);
    assert_eq!(text(&corpus, 7, 5), text(&corpus, 7, 5));
    assert_ne!(text(&corpus, 7, 5), text(&corpus, 8, 5));
}

#[test]
fn chaos_tells_how_long_and_from_which_seed() {
    let options = Options::parse("--seconds 10 --seed 9 --database both");
    assert_eq!((options.seed, options.time), (9, Some(share(10))));
    assert_eq!(Options::parse("").time, Some(share(60)));
    assert_eq!(
        Options::parse("--seconds 3600").time,
        Some(share(60)),
        "at most a minute in all"
    );
}

#[test]
fn all_targets_together_take_no_longer_than_asked() {
    let all: Duration = ALL.iter().map(|_| share(10)).sum();
    assert!(
        all <= Duration::from_secs(10) && all > Duration::from_secs(9),
        "{all:?}"
    );
}

/// cargo-fuzz needs another compiler, so nobody would notice a target that it cannot find.
#[test]
fn cargo_fuzz_has_every_target_and_no_other() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .map(|dir| dir.join("fuzz"));
    let here = here
        .into_iter()
        .find(|dir| dir.join("Cargo.toml").is_file())
        .expect("the folder of cargo-fuzz");
    let manifest = fs::read_to_string(here.join("Cargo.toml")).unwrap();
    let names = |dir: &str| {
        let stem = |entry: std::io::Result<fs::DirEntry>| {
            entry.unwrap().path().file_stem().unwrap().to_owned()
        };
        let mut names: Vec<_> = fs::read_dir(here.join(dir)).unwrap().map(stem).collect();
        names.sort();
        names
    };
    let mut all: Vec<&str> = ALL.iter().map(|(name, _)| *name).collect();
    all.sort_unstable();
    assert_eq!(
        (names("fuzz_targets"), names("corpus")),
        (all.iter().map(Into::into).collect(), names("fuzz_targets"))
    );
    assert_eq!(manifest.matches("[[bin]]").count(), ALL.len());
    for name in all {
        let bin = format!("[[bin]]\nname = \"{name}\"\npath = \"fuzz_targets/{name}.rs\"\n");
        assert!(manifest.contains(&bin), "{name} is not in the manifest");
        let target = fs::read_to_string(here.join(format!("fuzz_targets/{name}.rs"))).unwrap();
        let calls = format!("fuzz_target!(|text: &str| targets::{name}(text));");
        assert!(
            target.contains(&calls) && target.contains("tests/it/fuzz/targets.rs"),
            "{target}"
        );
    }
}
