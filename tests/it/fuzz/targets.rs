//! Fuzz targets: everything that reads text which others write. A target must not panic, overflow the stack or run
//! forever. Used by cargo-fuzz (`fuzz_targets/`) and by the tests (`tests/it/fuzz.rs`).

use std::collections::BTreeMap;
use std::io::{Cursor, Read, Write as _};

use flate2::Compression;
use flate2::write::GzEncoder;
use gix_hash::ObjectId;
use lockkeeper::config::repo::{Patterns, RepoConfig, RepoPermissions};
use lockkeeper::config::repos::ServerRepos;
use lockkeeper::discovery::{
    self, Autodiscover, FileTree, Input, ModuleGraph, SearchSettings, VersionConstraint,
    module_interface, remote_calls, terragrunt,
};
use lockkeeper::features::accounts::{PushCommand, PushRequest};
use lockkeeper::features::registry::{
    CheckedDiff, JoinFault, PackageContents, PageFault, PeerUrl, PeerWalk, check_join,
    check_members, check_page, check_push, import_line, package_contents, readme_html,
};
use lockkeeper::model::{BranchName, ChangeKind, ChangedFile, Distribution, RepoPath};
use lockkeeper::secret::Secret;
use lockkeeper::workflow::parse_manifest;
use lockkeeper_accounts::access::AccessControl;
use lockkeeper_accounts::blobs::{AccountSequence, StarLabels};
use lockkeeper_accounts::config_text::ConfigText;
use lockkeeper_accounts::email::AccountEmail;
use lockkeeper_accounts::external_ids::{ExternalId, ExternalIdKey};
use lockkeeper_accounts::findings::{
    check_access, check_defaults, check_external_ids, check_user_branch,
};
use lockkeeper_accounts::refs::AllUsersRef;
use lockkeeper_accounts::ssh_keys::KeyRules;
use lockkeeper_accounts::watches::Watch;
use lockkeeper_registry::dirhash::DirHash;
use lockkeeper_registry::git_archive::read_git_archive;
use lockkeeper_registry::go_mod::{MAX_REQUIRED, parse_go_mod, required_modules};
use lockkeeper_registry::go_zip::{check_go_zip, select_go_files, write_go_zip};
use lockkeeper_registry::limits::ArchiveLimits;
use lockkeeper_registry::names::{
    NamePattern, NamePrefix, RegistryName, escape_path, escape_version, unescape_path,
    unescape_version,
};
use lockkeeper_registry::records::{DeploymentName, LogId, Record, RecordTime};
use lockkeeper_registry::signed_note::{NoteSigner, NoteVerifier, open_note, sign_note};
use lockkeeper_registry::tags::{TagName, TagPattern};
use lockkeeper_registry::tf_archive::{TfFile, check_tf_archive, write_tf_archive};
use lockkeeper_registry::tlog::{
    LogHash, Tile, TreeEdge, TreeHead, parse_data_record, parse_record, record_hash,
};
use lockkeeper_registry::tree::{TreeFile, TreeMode};
use lockkeeper_registry::versions::{GoVersion, ModuleVersion, VersionKey};

/// A function that reads text.
pub type Target = fn(&str);

/// Every target, by the name of its corpus.
pub const ALL: [(&str, Target); 15] = [
    ("repo_config", repo_config),
    ("server_config", server_config),
    ("patterns", patterns),
    ("version_constraint", version_constraint),
    ("hcl", hcl),
    ("terragrunt", terragrunt),
    ("accounts", accounts),
    ("accounts_push", accounts_push),
    ("registry_archives", registry_archives),
    ("registry_code", registry_code),
    ("registry_foreign", registry_foreign),
    ("registry_names", registry_names),
    ("registry_pages", registry_pages),
    ("registry_peers", registry_peers),
    ("registry_texts", registry_texts),
];

/// Reads the configuration file of a repository. Its errors are formatted, because they are shown.
pub fn repo_config(text: &str) {
    if let Err(errors) = RepoConfig::parse("atlantis.yaml", text, &RepoPermissions::default()) {
        assert!(!errors.to_string().is_empty(), "an error says something");
    }
}

/// Reads the configuration file of the server.
pub fn server_config(text: &str) {
    if let Err(errors) = ServerRepos::parse("repos.yaml", text) {
        assert!(!errors.to_string().is_empty(), "an error says something");
    }
}

/// Reads a list of patterns from the first line, and matches the paths in the other lines.
pub fn patterns(text: &str) {
    let (list, paths) = text.split_once('\n').unwrap_or((text, ""));
    let Ok(patterns) = Patterns::from_flag(list) else {
        return;
    };
    for path in paths.lines().filter_map(|line| RepoPath::new(line).ok()) {
        for dir in [RepoPath::root(), path.parent()] {
            if patterns.matching(&dir, &path).is_some() {
                assert!(
                    patterns.reach(&dir).contains(&path),
                    "{list:?} matches {path} beyond its reach"
                );
            }
        }
    }
}

/// Reads a constraint from the first line, and matches the versions in the other lines. The displayed form must mean
/// the same.
pub fn version_constraint(text: &str) {
    let (constraint, versions) = text.split_once('\n').unwrap_or((text, ""));
    let Ok(constraint) = constraint.parse::<VersionConstraint>() else {
        return;
    };
    let again: VersionConstraint = constraint
        .to_string()
        .parse()
        .expect("what is shown can be read");
    for version in versions.lines().filter_map(|line| line.parse().ok()) {
        assert_eq!(
            constraint.matches(&version),
            again.matches(&version),
            "{constraint} and {version}"
        );
    }
}

/// Looks for a workspace and modules in code.
pub fn hcl(text: &str) {
    let path = |name: &str| RepoPath::new(name).expect("a constant");
    let changed = ChangedFile {
        path: path("a/main.tf"),
        previous: None,
        kind: ChangeKind::Modified,
    };
    let tree = FileTree::new([path("a/main.tf"), path("a/more.tofu")]);
    let base = BranchName::new("main").expect("a constant");
    for distribution in [Distribution::Terraform, Distribution::OpenTofu] {
        let settings = SearchSettings {
            distribution,
            ..SearchSettings::default()
        };
        let read = |_: &RepoPath| Some(text.to_owned());
        let changed = [changed.clone()];
        let modules = ModuleGraph::build(&tree, &settings.file_list, &read)
            .expect("two files are not too many");
        let input = Input {
            tree: &tree,
            changed: &changed,
            config: None,
            base: &base,
            autodiscover: &Autodiscover::default(),
            modules: Some(&modules),
            settings: &settings,
            read: &read,
        };
        let projects = discovery::discover(&input).expect("one project is not too many");
        assert_eq!(
            projects.len(),
            1,
            "the directory is a project, whatever is in its code"
        );
    }
}

/// Returns the files in a text, each after a line `=== path`.
fn files_in(text: &str) -> BTreeMap<RepoPath, &str> {
    let parts = text.split("=== ").filter_map(|part| part.split_once('\n'));
    let files = parts.filter_map(|(name, text)| Some((RepoPath::new(name).ok()?, text)));
    files.take(50).collect()
}

/// Reads files, each after a line `=== path`, as a Terragrunt tree.
pub fn terragrunt(text: &str) {
    let files = files_in(text);
    let tree = FileTree::new(files.keys().cloned());
    let read = |file: &RepoPath| {
        assert!(
            tree.has_file(file),
            "{file} is not in the tree and was read"
        );
        files.get(file).map(|text| (*text).to_owned())
    };
    let found = terragrunt::units(&tree, &read);
    let changed: Vec<&RepoPath> = files.keys().collect();
    let concerned = terragrunt::concerned(&found, &tree, &changed, &|_| true);
    for (dir, chain) in concerned {
        assert!(found.unit(&dir).is_some(), "{dir} is no unit");
        assert!(!chain.to_string().is_empty(), "a reason says something");
    }
}

/// Reads the text as each file of an account, as an external ID, and its lines as everything that stands in a line.
pub fn accounts(text: &str) {
    let rules = KeyRules { min_rsa_bits: 2048 };
    let bytes = text.as_bytes();
    for file in [
        "account.config",
        "preferences.config",
        "watch.config",
        "authorized_keys",
        "notes",
    ] {
        let files = BTreeMap::from([(file.to_owned(), bytes.to_vec())]);
        for findings in [
            check_user_branch(&files, &[], rules),
            check_defaults(&files),
        ] {
            assert!(
                findings.is_accepted() || !findings.lines().is_empty(),
                "a refusal says why"
            );
        }
    }
    for file in [AccessControl::RULES_FILE, AccessControl::GROUPS_FILE] {
        let files = BTreeMap::from([(file.to_owned(), bytes.to_vec())]);
        let (access, findings) = AccessControl::read(&files);
        let has_groups = file == AccessControl::GROUPS_FILE;
        assert!(
            has_groups || access.administrators().next().is_none(),
            "rules without groups make nobody an administrator: {:?}",
            findings.lines()
        );
        drop(check_access(&files, |_| true));
    }
    if let Ok(config) = ConfigText::parse(bytes) {
        assert_eq!(config.as_str(), text, "what is read stays the same");
        if let (Some(id), _) = ExternalId::read(&config) {
            let note = [(id.key.note_name(), bytes)];
            drop(check_external_ids(note, |account| account == id.account));
        }
    }
    drop((AccountSequence::parse(bytes), StarLabels::parse(bytes)));
    for line in text.lines() {
        if let Ok(name) = line.parse::<AllUsersRef>() {
            assert_eq!(name.to_string(), line);
        }
        if let Ok(watch) = line.parse::<Watch>() {
            assert_eq!(watch.to_string().parse::<Watch>().as_ref(), Ok(&watch));
        }
        drop((line.parse::<ExternalIdKey>(), line.parse::<AccountEmail>()));
    }
}

/// Returns the bodies of two pushes to `All-Users`, in which `\0` stands for that byte: the text, and one with its lines, each
/// behind its length. What follows an empty line is the pack.
pub fn push_bodies(text: &str) -> [Vec<u8>; 2] {
    let text = text.replace("\\0", "\0");
    let (lines, pack) = text.split_once("\n\n").unwrap_or((&text, ""));
    let mut body = Vec::new();
    for line in lines.lines().filter(|line| !line.is_empty()) {
        let line = &line[..line.floor_char_boundary(60_000)];
        body.extend(format!("{:04x}{line}\n", line.len() + 5).bytes());
    }
    body.extend_from_slice(b"0000");
    body.extend_from_slice(pack.as_bytes());
    [text.into_bytes(), body]
}

/// Reads the text as the body of a push to `All-Users`, and its lines as those of one. A push that is written as it was read
/// is the same push.
pub fn accounts_push(text: &str) {
    for body in push_bodies(text) {
        match PushRequest::read(&body) {
            Ok(request) => {
                assert!(body.ends_with(request.pack), "the pack is the rest");
                let again = written_push(&request);
                assert_eq!(PushRequest::read(&again), Ok(request));
            }
            Err(error) => assert!(!error.to_string().is_empty(), "an error says something"),
        }
    }
}

fn written_push(request: &PushRequest<'_>) -> Vec<u8> {
    let mut body = Vec::new();
    let capabilities = [
        ("atomic", request.is_atomic),
        ("side-band-64k", request.has_side_band),
        ("report-status", request.wants_report),
    ];
    let capabilities = capabilities.into_iter().filter(|(_, is_set)| *is_set);
    let capabilities: Vec<&str> = capabilities.map(|(name, _)| name).collect();
    for (index, PushCommand { name, old, new }) in request.commands.iter().enumerate() {
        let id = |id: Option<ObjectId>| id.map_or_else(|| "0".repeat(40), |id| id.to_string());
        let mut line = format!("{} {} {name}", id(*old), id(*new));
        if index == 0 {
            line.extend(["\0", &capabilities.join(" ")]);
        }
        body.extend(format!("{:04x}{line}", line.len() + 4).bytes());
    }
    body.extend_from_slice(b"0000");
    body.extend_from_slice(request.pack);
    body
}

/// Limits of archives, low enough that no text takes long.
const ARCHIVE_LIMITS: ArchiveLimits = ArchiveLimits {
    packed: 1 << 20,
    unpacked: 16 << 20,
    entries: 1_000,
    ratio: 100,
};

/// Reads bytes, written in hexadecimal digits, as the package of a Go module, as that of a module of Terraform, as the tar
/// file in one, and as an archive of git. Everything that is not a digit is passed over.
pub fn registry_archives(text: &str) {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let bytes = hex::decode(&digits[..digits.len() / 2 * 2]).expect("an even number of digits");
    let path = "example.com/m".parse().expect("a constant");
    let version = "v1.0.0".parse().expect("a constant");
    let visit = |name: &str, content: &mut dyn Read| {
        assert!(
            !name.split('/').any(|part| matches!(part, "" | "." | "..")),
            "{name:?} is not below the module"
        );
        content.read_to_end(&mut Vec::new()).map(drop)
    };
    if let Err(error) = check_go_zip(&path, &version, Cursor::new(&bytes), &ARCHIVE_LIMITS, visit) {
        assert!(!error.to_string().is_empty(), "an error says something");
    }
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(&bytes).expect("memory takes everything");
    let gzip = gzip.finish().expect("memory takes everything");
    for packed in [&bytes, &gzip] {
        if let Err(error) = check_tf_archive(Cursor::new(packed), &ARCHIVE_LIMITS, visit) {
            assert!(!error.to_string().is_empty(), "an error says something");
        }
    }
    if let Ok(files) = read_git_archive(bytes.as_slice(), ARCHIVE_LIMITS.unpacked) {
        let size: usize = files.iter().map(|file| file.content.len()).sum();
        assert!(size as u64 <= ARCHIVE_LIMITS.unpacked, "{size} bytes");
    }
}

/// Maximum number of inputs of a module, and of characters of each of their texts with the sign that it was cut off.
const MAX_INPUTS: usize = 300;
const MAX_SHOWN: usize = 1_001;

/// Reads the text as the code of a module on its page, as code that uses modules, and as the requirements of a Go module.
pub fn registry_code(text: &str) {
    let files = ["data.tf.json", "main.tf", "more.tofu"];
    let files = files.map(|name| RepoPath::new(name).expect("a constant"));
    let interface = module_interface(&files, &|_| Some(text.to_owned()));
    assert!(interface.inputs.len() <= MAX_INPUTS && interface.outputs.len() <= MAX_INPUTS);
    for input in &interface.inputs {
        let texts = [&input.value_type, &input.default, &input.description];
        for shown in texts.into_iter().flatten().chain([&input.name]) {
            assert!(shown.chars().count() <= MAX_SHOWN, "{shown}");
        }
    }
    for unread in &interface.unread {
        assert!(
            unread.line > 0 && !unread.what.is_empty(),
            "an error says something"
        );
    }
    for file in &files {
        for call in remote_calls(file, text) {
            assert!(!call.source.starts_with(['.', '/']), "{call:?} is a path");
        }
    }
    let required = required_modules(text.as_bytes()).unwrap_or_default();
    assert!(required.len() <= MAX_REQUIRED);
}

/// Path of the module that is looked for in a page, and path of a package with files of the text.
const FOREIGN_PATH: &str = "example.com/acme/net/v2";

/// Maximum number of bytes of HTML that a README becomes, and of submodules and examples on a page.
const MAX_HTML: usize = 2 << 20;
const MAX_PARTS: usize = 200;

/// Elements that a README can become.
const ELEMENTS: [&str; 22] = [
    "a",
    "blockquote",
    "br",
    "code",
    "em",
    "h3",
    "h4",
    "h5",
    "h6",
    "hr",
    "li",
    "ol",
    "p",
    "pre",
    "s",
    "strong",
    "table",
    "td",
    "th",
    "thead",
    "tr",
    "ul",
];

/// Beginnings of the attributes of links. The rest is the address.
const LINKS: [&str; 2] = [
    "rel=\"nofollow noreferrer\" href=\"http://",
    "rel=\"nofollow noreferrer\" href=\"https://",
];

/// Returns true if a README can become an element with these attributes, and nothing comes after the last quote.
pub fn is_harmless(name: &str, attributes: &str) -> bool {
    let value = |beginning: &str| {
        let rest = attributes.strip_prefix(beginning)?;
        rest.strip_suffix('"').filter(|value| !value.contains('"'))
    };
    let is_link = || LINKS.iter().any(|link| value(link).is_some());
    let is_number = || {
        value("start=\"").is_some_and(|number| number.bytes().all(|digit| digit.is_ascii_digit()))
    };
    ELEMENTS.contains(&name)
        && match name {
            "a" => attributes.is_empty() || is_link(),
            "ol" => attributes.is_empty() || is_number(),
            "pre" => attributes.is_empty() || attributes == "class=\"excerpt\"",
            _ => attributes.is_empty(),
        }
}

fn assert_harmless(html: &str) {
    assert!(html.len() <= MAX_HTML, "{} bytes", html.len());
    for tag in html.split('<').skip(1) {
        let (tag, _) = tag.split_once('>').expect("a tag has an end");
        let tag = tag.trim_start_matches('/');
        let (name, attributes) = tag.split_once(' ').unwrap_or((tag, ""));
        assert!(is_harmless(name, attributes), "<{tag}>");
    }
}

/// Makes packages of the files in a text, each after a line `=== path`, and returns what they tell about themselves: the
/// package of a module of Terraform, the same as if the module were in a directory of it, and the package of a Go module.
/// `None`: no package can have these files.
pub fn read_packages(text: &str) -> [Option<Result<PackageContents, String>>; 3] {
    let files = files_in(text);
    let of_module = files.iter().map(|(path, content)| TfFile {
        path: path.as_str().into(),
        content: content.as_bytes(),
        is_executable: false,
    });
    let of_module: Vec<TfFile<'_>> = of_module.collect();
    let of_go = files.iter().map(|(path, content)| TreeFile {
        path: path.as_str().as_bytes(),
        mode: TreeMode::File,
        content: content.as_bytes(),
    });
    let of_go: Vec<TreeFile<'_>> = of_go.collect();
    let module = "module acme/net/aws 1.0.0".parse().expect("a constant");
    let go: VersionKey = format!("go {FOREIGN_PATH} v2.0.0")
        .parse()
        .expect("a constant");
    let (mut archive, mut zip) = (Vec::<u8>::new(), Cursor::new(Vec::new()));
    let archive = write_tf_archive(&of_module, &mut archive)
        .ok()
        .map(|_| archive);
    let selected = select_go_files(&of_go, "").ok();
    let written = selected.and_then(|selected| {
        let (path, version) = go.as_go()?;
        write_go_zip(path, version, &selected, &mut zip).ok()
    });
    let below = RepoPath::new("modules/a").expect("a constant");
    let read = |dir: &RepoPath| {
        let archive = archive.as_ref()?;
        Some(package_contents(&module, dir, Cursor::new(archive)))
    };
    [
        read(&RepoPath::root()),
        read(&below),
        written.map(|_| package_contents(&go, &RepoPath::root(), zip)),
    ]
}

/// Reads the text as everything that others write who have nothing to do with this server: the page of a host of Go modules,
/// a README, the files of a package and a whole one, and the list of modules that the code of a pull request may have changed.
pub fn registry_foreign(text: &str) {
    if let Some(line) = import_line(FOREIGN_PATH, text) {
        let rest = FOREIGN_PATH.strip_prefix(line.root.as_str());
        assert!(
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/')),
            "{line:?} is about another module"
        );
        assert!(
            !line.directory.split('/').any(|part| part.starts_with('.')),
            "{line:?} is not below its repository"
        );
        assert_ne!(line.kind, "mod", "a proxy is no repository");
        assert!(text.contains(&line.address), "{line:?} is made up");
    }
    assert_harmless(&readme_html(text));
    let module = "module acme/net/aws 1.0.0".parse().expect("a constant");
    let whole = package_contents(&module, &RepoPath::root(), Cursor::new(text.as_bytes()));
    let read = read_packages(text).into_iter().flatten();
    for contents in read.chain([whole]) {
        match contents {
            Ok(contents) => {
                assert_harmless(contents.readme.as_deref().unwrap_or_default());
                assert!(contents.parts.len() <= MAX_PARTS);
                let interface = &contents.interface;
                assert!(interface.inputs.len() <= MAX_INPUTS);
                assert!(interface.outputs.len() <= MAX_INPUTS);
            }
            Err(why) => assert!(!why.is_empty(), "an error says something"),
        }
    }
    match parse_manifest(text) {
        Ok(installed) => {
            assert!(installed.is_sorted(), "{installed:?}");
            for module in installed {
                assert!(
                    !module.version.is_empty() && !module.source.contains("//"),
                    "{module:?}"
                );
            }
        }
        Err(error) => assert!(!error.to_string().is_empty(), "an error says something"),
    }
}

/// Reads each line as everything that has one spelling in the registry.
pub fn registry_names(text: &str) {
    fn same<T: std::str::FromStr + std::fmt::Display>(line: &str) {
        if let Ok(value) = line.parse::<T>() {
            assert_eq!(value.to_string(), line);
        }
    }
    for line in text.lines() {
        same::<NamePattern>(&line.to_ascii_lowercase());
        same::<GoVersion>(line);
        same::<LogId>(line);
        same::<RecordTime>(line);
        same::<DirHash>(line);
        same::<Tile>(line);
        same::<TreeEdge>(line);
        same::<TagPattern>(line);
        same::<NoteVerifier>(line);
        if let Ok(tag) = line.parse::<TagName>() {
            assert_eq!(tag.as_str(), line);
            let everything = TagPattern::of_dir("").expect("a constant");
            drop((tag.numbers(), tag.module_version(), tag.as_go()));
            drop(everything.version_of(&tag));
        }
        drop((line.parse::<ModuleVersion>(), line.parse::<NamePrefix>()));
        drop((line.parse::<RegistryName>(), NoteSigner::parse(line)));
        if let Ok(key) = line.parse::<VersionKey>() {
            let again = key.to_string().parse::<VersionKey>();
            assert_eq!(again.as_ref(), Ok(&key), "a version has one canonical text");
        }
        if let Ok(path) = unescape_path(line) {
            assert_eq!(escape_path(&path), line);
        }
        if let Ok(version) = unescape_version(line) {
            assert_eq!(escape_version(&version).as_deref(), Ok(line));
        }
    }
}

/// First records of the log of the peer whose pages are read.
const PEER_RECORDS: [&str; 4] = [
    include_str!("../../../fuzz/corpus/registry_texts/add_go"),
    include_str!("../../../fuzz/corpus/registry_texts/add_module"),
    include_str!("../../../fuzz/corpus/registry_texts/deprecate"),
    include_str!("../../../fuzz/corpus/registry_texts/delete"),
];

/// Returns the hashes of all records of the log of the peer.
fn peer_leaves() -> Vec<LogHash> {
    let newest = PEER_RECORDS[0].replace("v1.0.0", "v1.1.0");
    let records = PEER_RECORDS.into_iter().chain([newest.as_str()]);
    records
        .map(|record| record_hash(record.as_bytes()))
        .collect()
}

/// Reads the text as the first page of the log of a peer. `HEAD` stands for the head that the peer has signed.
pub fn read_page(text: &str) -> Result<CheckedDiff, PageFault> {
    let signer = NoteSigner::from_seed("mods.example.com", &[7; 32]).expect("a constant");
    let mut edge = TreeEdge::default();
    for leaf in peer_leaves() {
        edge.add(leaf).expect("a log can have five records");
    }
    let head = sign_note(&edge.head().to_string(), &[&signer]).expect("a head can be signed");
    let text = text.replacen("HEAD", &head.replace('\n', "\\n"), 1);
    let walk = PeerWalk {
        number: 1,
        edge: TreeEdge::default(),
        head: None,
        met: None,
        sharing: String::new(),
    };
    check_page(text.as_bytes(), &walk, signer.verifier())
}

/// Reads the text as a page of the log of a peer, which has signed one head only.
pub fn registry_pages(text: &str) {
    match read_page(text) {
        Ok(page) => {
            let leaves: Vec<LogHash> = page.items.iter().map(|item| item.leaf).collect();
            assert!(
                peer_leaves().starts_with(&leaves),
                "a page was accepted that is not one of the log"
            );
        }
        Err(fault) => assert!(!fault.to_string().is_empty(), "an error says something"),
    }
}

/// Word and token of the only join that the peer has signed.
const JOIN_WORD: &str = "lki_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8";
const JOIN_TOKEN: &str = "lkp_ICEiIyQlJicoKSorLC0uLzAxMjM0NTY3ODk6Ozw9Pj8";

/// Maximum number of members that a peer may propose at a time.
const MAX_MEMBERS: usize = 100;

fn own_name() -> DeploymentName {
    "one.example.com".parse().expect("a constant")
}

/// Reads the text as a push of the peer.
pub fn read_push(text: &str) -> Result<Record, String> {
    let sender: PeerUrl = "https://mods.example.com".parse().expect("a constant");
    check_push(text.as_bytes(), &sender)
}

/// Reads the text as the answer of the peer to a join.
pub fn read_join(text: &str) -> Result<(DeploymentName, NoteVerifier, Secret), JoinFault> {
    check_join(text.as_bytes(), JOIN_WORD, &own_name())
}

/// Reads the text as the members that the peer knows.
pub fn read_members(text: &str) -> Result<Vec<(PeerUrl, NoteVerifier)>, String> {
    check_members(text.as_bytes(), &own_name())
}

/// Reads the text as a push of a peer, as its answer to a join and as the members that it knows.
pub fn registry_peers(text: &str) {
    match read_push(text) {
        Ok(record) => {
            // Other fields may have numbers and depths that this reader does not take.
            if let Ok(sent) = serde_json::from_str::<serde_json::Value>(text) {
                assert_eq!(sent["record"], record.to_string(), "a record has one text");
                assert_eq!(sent["name"], record.key().name().to_string());
                assert_eq!(sent["version"], record.key().version());
            }
        }
        Err(why) => assert!(!why.is_empty(), "an error says something"),
    }
    match read_join(text) {
        Ok((name, key, token)) => {
            let signer = NoteSigner::from_seed("mods.example.com", &[7; 32]).expect("a constant");
            assert_eq!(
                (name.as_str(), &key, token.expose()),
                (signer.name(), signer.verifier(), JOIN_TOKEN),
                "a join was accepted that nobody has signed"
            );
        }
        Err(fault) => assert!(!fault.to_string().is_empty(), "an error says something"),
    }
    match read_members(text) {
        Ok(members) => {
            assert!(members.len() <= MAX_MEMBERS);
            for (url, key) in members {
                let again = url.to_string().parse::<PeerUrl>();
                assert_eq!(again.map(|again| again.to_string()), Ok(url.to_string()));
                assert_ne!(key.name(), own_name().as_str());
            }
        }
        Err(why) => assert!(!why.is_empty(), "an error says something"),
    }
}

/// Reads the text as a record, as a signed note and the head in it, as the answer to a lookup, and as a `go.mod` file.
pub fn registry_texts(text: &str) {
    let bytes = text.as_bytes();
    match Record::parse(bytes) {
        Ok(record) => assert_eq!(record.to_string(), text, "a record has one spelling"),
        Err(error) => assert!(!error.reason.is_empty(), "an error says something"),
    }
    let signer = NoteSigner::from_seed("mods.example.com", &[7; 32]).expect("a constant");
    let known = [signer.verifier().clone()];
    if let Ok(note) = open_note(bytes, &known) {
        assert!(text.starts_with(&note.text) && !note.verified.is_empty());
    }
    if let Ok(head) = text.parse::<TreeHead>() {
        assert!(text.starts_with(&head.to_string()));
    }
    if let Ok((_, record, rest)) = parse_record(bytes) {
        assert!(record.ends_with('\n') && rest.len() < bytes.len());
    }
    drop((parse_data_record(bytes), parse_go_mod(bytes)));
}
