use lockkeeper_model::model::Sha256Digest;
use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;

use super::*;
use crate::names::NameKind;
use crate::signed_note::NoteSigner;
use crate::testing::{content, deployment, fixed_seed, notice, record, signing_key};
use crate::tlog::{format_data_record, parse_data_record};

/// Returns a record and its text, in which the signature is left out.
fn written(key: &str, change: RecordChange) -> (Record, String) {
    let record = record(
        &key.parse().unwrap(),
        change,
        &deployment("net.example.com"),
        17,
    );
    let text = record.to_string();
    let (unsigned, _) = text.split_once("signature ").unwrap();
    (record.clone(), unsigned.to_owned())
}

/// Returns the error of a record that was changed at one place.
fn error(text: &str, from: &str, to: &str) -> String {
    assert!(text.contains(from), "{from}");
    Record::parse(text.replacen(from, to, 1).as_bytes())
        .unwrap_err()
        .to_string()
}

#[test]
fn an_added_module_has_its_hash_and_its_packages() {
    let mut content = content(NameKind::Module, 5);
    content.commit = Some("ab".repeat(20).parse().unwrap());
    let (record, text) = written("module acme/vpc/aws 1.2.3", RecordChange::Add(content));
    assert_eq!(
        text,
        "add module acme/vpc/aws 1.2.3\n\
         files h1:BQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQU=\n\
         package e77b9a9ae9e30b0dbdb6f510a264ef9de781501d7b6b92ae89eb059c5ab743db 5 package.zip\n\
         commit abababababababababababababababababababab\n\
         time 2026-11-03T10:00:00Z\n\
         maker net.example.com 17\n"
    );
    assert_eq!(Record::parse(record.to_string().as_bytes()), Ok(record));
}

#[test]
fn a_record_of_a_version_that_was_fetched_says_so() {
    let fetched = |change| {
        let (record, _) = written("module acme/vpc/aws 1.2.3", change);
        let committed: RecordTime = "2025-01-02T03:04:05Z".parse().unwrap();
        let key = signing_key(&deployment("net.example.com"));
        let record = record.unsigned.fetched(Some(committed)).sign(&key);
        assert_eq!(record.fetched(), Some(committed));
        assert_eq!(
            Record::parse(record.to_string().as_bytes()),
            Ok(record.clone())
        );
        let lines: Vec<String> = record.to_string().lines().map(str::to_owned).collect();
        let at = lines.iter().position(|line| line.starts_with("fetched "));
        assert_eq!(
            lines[at.unwrap()..at.unwrap() + 2],
            ["fetched 2025-01-02T03:04:05Z", "time 2026-11-03T10:00:00Z"]
        );
        record.to_string()
    };
    fetched(RecordChange::Add(content(NameKind::Module, 5)));
    fetched(RecordChange::Deprecate(notice("old")));
    let text = fetched(RecordChange::Delete(TakedownKind::Mistake, notice("no")));
    // It is signed like everything else.
    let published = text.replacen("fetched 2025-01-02T03:04:05Z\n", "", 1);
    let published = Record::parse(published.as_bytes()).unwrap();
    let key = signing_key(&deployment("net.example.com"));
    published.verify(&[key.verifier().clone()]).unwrap_err();
    assert_eq!(
        error(&text, "fetched 2025-01-02T", "fetched 2025x01-02T"),
        "line 2: a time is written as `2026-11-03T10:00:00Z`, from 1970 to 9999"
    );
}

#[test]
fn an_added_go_module_has_the_lines_of_go_sum() {
    let change = RecordChange::Add(content(NameKind::Go, 5));
    let (record, text) = written("go example.com/M/v2 v2.0.0-rc.1", change);
    assert_eq!(
        text,
        "add go example.com/M/v2 v2.0.0-rc.1\n\
         example.com/M/v2 v2.0.0-rc.1 h1:BQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQU=\n\
         example.com/M/v2 v2.0.0-rc.1/go.mod h1:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n\
         package e77b9a9ae9e30b0dbdb6f510a264ef9de781501d7b6b92ae89eb059c5ab743db 5 package.zip\n\
         time 2026-11-03T10:00:00Z\n\
         maker net.example.com 17\n"
    );
    assert_eq!(Record::parse(record.to_string().as_bytes()), Ok(record));
}

#[test]
fn a_deletion_has_its_kind_and_its_reason() {
    let notice = RecordNotice {
        replacement: Some("go example.com/m v1.0.1".parse().unwrap()),
        ..notice("leaks a key")
    };
    let change = RecordChange::Delete(TakedownKind::Security, notice);
    let (record, text) = written("go example.com/m v1.0.0", change);
    assert_eq!(
        text,
        "delete go example.com/m v1.0.0\n\
         time 2026-11-03T10:00:00Z\n\
         takedown security\n\
         reason leaks a key\n\
         replacement example.com/m v1.0.1\n\
         maker net.example.com 17\n"
    );
    assert_eq!(Record::parse(record.to_string().as_bytes()), Ok(record));
}

#[test]
fn a_fault_names_its_line() {
    let key = "module acme/vpc/aws 1.2.3";
    let add = written(key, RecordChange::Add(content(NameKind::Module, 5)))
        .0
        .to_string();
    let hash = "h1:BQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQU=";
    for (from, to, expected) in [
        (
            "add",
            "Add",
            "line 1: a record begins with `add`, `deprecate` or `delete`",
        ),
        (
            "add ",
            "add  ",
            "line 1: a name begins with its kind, `module` or `go`, and a space",
        ),
        (
            "acme/vpc",
            "Acme/vpc",
            "line 1: the value is written as `module acme/vpc/aws 1.2.3`",
        ),
        (
            "1.2.3",
            "1.2.3+a",
            "line 1: the value is written as `module acme/vpc/aws 1.2.3`",
        ),
        (
            "1.2.3\n",
            "v1.2.3\n",
            "line 1: a version of a module has no leading `v`: write `1.2.3`",
        ),
        (
            "files ",
            "file ",
            "line 2: the line should begin with `files `",
        ),
        (
            hash,
            "h1:BQU=",
            "line 2: a hash of files is `h1:` and the Base64 of 32 bytes",
        ),
        (
            "QU=",
            "QV=",
            "line 2: a hash of files is `h1:` and the Base64 of 32 bytes",
        ),
        (" 5 ", " 05 ", "line 3: the value is written as `5`"),
        (" 5 ", " -5 ", "line 3: invalid digit found in string"),
        (
            " 5 ",
            " 1099511627777 ",
            "line 3: the package `package.zip` is larger than a terabyte",
        ),
        (" 5 package.zip", "", "line 3: the line has too few words"),
        (
            "package.zip",
            "a/b",
            "line 3: a package is named by at most 128 letters, digits and `-._+~`, with a letter or digit first and last",
        ),
        ("time", "size", "line 4: the line should begin with `time `"),
        (
            "03T10",
            "31T10",
            "line 4: a time is written as `2026-11-03T10:00:00Z`, from 1970 to 9999",
        ),
        (
            "T10:00:00",
            "T10:00:60",
            "line 4: a time is written as `2026-11-03T10:00:00Z`, from 1970 to 9999",
        ),
        (
            "time",
            "\ntime",
            "line 4: the line should begin with `time `",
        ),
        (
            "time",
            "reason why\ntime",
            "line 4: the line should begin with `time `",
        ),
        (
            "net.",
            "Net.",
            "line 5: a deployment is named like a host, in lower case and with at most 253 bytes",
        ),
        (
            " 17",
            " 0",
            "line 5: an ID is a number from 1 to 9223372036854775807",
        ),
        (
            " 17",
            " +17",
            "line 5: an ID is a number from 1 to 9223372036854775807",
        ),
        (" 17", "", "line 5: the line has too few words"),
        (
            "signature ",
            "signature A",
            "line 6: a signature is the Base64 of 64 bytes",
        ),
        (
            "17\n",
            "17\r\n",
            "line 5: an ID is a number from 1 to 9223372036854775807",
        ),
    ] {
        assert_eq!(error(&add, from, to), expected, "{from} → {to}");
    }
    assert_eq!(
        Record::parse(format!("{add}more\n").as_bytes())
            .unwrap_err()
            .line,
        7
    );
    for (bytes, expected) in [
        (b"".as_slice(), "line 1: a line feed is missing"),
        (b"add module a/b/c 1.0.0", "line 1: a line feed is missing"),
        (b"a\nb\n\xff", "line 3: the line is not text in UTF-8"),
    ] {
        assert_eq!(Record::parse(bytes).unwrap_err().to_string(), expected);
    }
    let long = Record::parse(&vec![b'\n'; MAX_RECORD_BYTES + 1]).unwrap_err();
    assert_eq!(
        long.to_string(),
        format!(
            "line {}: the record has more than 32768 bytes",
            MAX_RECORD_BYTES + 1
        )
    );
}

#[test]
fn a_fault_of_a_notice_names_its_line() {
    let change = RecordChange::Delete(TakedownKind::Mistake, notice("an old one"));
    let delete = written("module acme/vpc/aws 1.2.3", change).0.to_string();
    let reason = "line 4: a reason is one line without control characters or spaces in excess";
    for (from, to, expected) in [
        (
            "mistake",
            "whim",
            "line 3: a takedown is `legal`, `security` or `mistake`",
        ),
        (
            "takedown mistake\n",
            "",
            "line 3: the line should begin with `takedown `",
        ),
        ("an old", "an  old", reason),
        ("an old", "an\u{7}old", reason),
        ("an old one", "", reason),
        (
            "maker",
            "replacement acme/vpc/aws 1.2.3\nmaker",
            "line 5: the replacement is another version of the same kind",
        ),
        (
            "maker",
            "replacement acme/vpc 1.2.3\nmaker",
            "line 5: a module is named by three parts, `<namespace>/<name>/<system>`",
        ),
    ] {
        assert_eq!(error(&delete, from, to), expected, "{from} → {to}");
    }
}

#[test]
fn a_time_has_one_form() {
    let time = "2026-11-03T10:00:00Z";
    assert_eq!(time.parse::<RecordTime>().unwrap().to_string(), time);
    for other in [
        "2026-11- 03T10:00:00Z",
        "2026-11-3T10:00:00Z",
        "+2026-11-03T10:00:00Z",
        "2026-11-03T23:59:60Z",
        "2026-11-03T10:00:00+00:00",
    ] {
        assert!(other.parse::<RecordTime>().is_err(), "{other}");
    }
}

#[test]
fn the_parts_of_a_record_belong_together() {
    let key: VersionKey = "go example.com/m v1.0.0".parse().unwrap();
    let new = |change| {
        let maker = RecordMaker {
            deployment: deployment("a"),
            id: LogId::FIRST,
        };
        let time = RecordTime::new(chrono::DateTime::UNIX_EPOCH).unwrap();
        UnsignedRecord::new(key.clone(), change, time, maker).unwrap_err()
    };
    assert_eq!(
        new(RecordChange::Add(content(NameKind::Module, 1))),
        InconsistentRecord::Checksums
    );
    for other in ["go example.com/m v1.0.0", "module acme/vpc/aws 1.2.3"] {
        let notice = RecordNotice {
            replacement: Some(other.parse().unwrap()),
            ..notice("old")
        };
        assert_eq!(
            new(RecordChange::Deprecate(notice)),
            InconsistentRecord::Replacement
        );
    }
}

#[test]
fn only_the_maker_can_sign_a_record() {
    let maker = deployment("net.example.com");
    let (record, _) = written(
        "go example.com/m v1.0.0",
        RecordChange::Deprecate(notice("old")),
    );
    let key = signing_key(&maker).verifier().clone();
    let replaced = NoteSigner::from_seed(maker.as_str(), &[7; 32]).unwrap();
    let replaced = replaced.verifier().clone();
    let known = [replaced.clone(), key.clone()];
    assert_eq!(record.verify(&known), Ok(()));
    // The same bytes of a key under another name do not count.
    let other = signing_key(&deployment("other")).verifier().clone();
    for known in [vec![], vec![replaced], vec![other]] {
        assert_eq!(
            record.verify(&known).unwrap_err().to_string(),
            "the record of go example.com/m v1.0.0 is not signed by net.example.com"
        );
    }
    let changed = record.to_string().replace("v1.0.0", "v1.0.1");
    let changed = Record::parse(changed.as_bytes()).unwrap();
    assert!(changed.verify(&[key]).is_err());
}

#[test]
fn packages_are_sorted_and_have_different_names() {
    let packages = |names: &[&str]| {
        let package = |name: &&str| PackageFile {
            name: name.parse().unwrap(),
            digest: Sha256Digest::of(b""),
            size: 0,
        };
        PackageFiles::new(names.iter().map(package).collect())
    };
    let sorted = packages(&["b.zip", "a.zip"]).unwrap();
    let names: Vec<&str> = sorted.iter().map(|package| package.name.as_str()).collect();
    assert_eq!(names, ["a.zip", "b.zip"]);
    assert_eq!(packages(&[]), Err(InvalidPackages::Number));
    assert_eq!(packages(&["a"; 65]), Err(InvalidPackages::Number));
    assert_eq!(
        packages(&["b", "A", "a"]).unwrap_err().to_string(),
        "two packages are named `a`"
    );
}

#[test]
fn the_longest_record_is_short_enough() {
    let path = |end: &str| format!("a.b/{}{end}", "c".repeat(508 - end.len()));
    let version = |end: &str| format!("v1.2.3-{}{end}", "d".repeat(121 - end.len()));
    let mut content = content(NameKind::Go, 1);
    content.commit = Some("ab".repeat(32).parse().unwrap());
    let packages = (10..10 + PackageFiles::MAX).map(|number| PackageFile {
        name: format!("{number}{}", "e".repeat(126)).parse().unwrap(),
        digest: Sha256Digest::of(b""),
        size: PackageFiles::MAX_SIZE,
    });
    content.packages = PackageFiles::new(packages.collect()).unwrap();
    let longest = RecordMaker {
        deployment: deployment(&vec!["f"; 127].join(".")),
        id: LogId::new(i64::MAX).unwrap(),
    };
    let key: VersionKey = format!("go {} {}", path(""), version("")).parse().unwrap();
    let other = format!("go {} {}", path("x"), version("x"))
        .parse()
        .unwrap();
    let notice = RecordNotice {
        reason: Reason::read(&"\u{1f512}".repeat(Reason::MAX_CHARS))
            .unwrap()
            .unwrap(),
        replacement: Some(other),
    };
    for change in [
        RecordChange::Add(content),
        RecordChange::Delete(TakedownKind::Security, notice),
    ] {
        let time = RecordTime::new(chrono::DateTime::UNIX_EPOCH).unwrap();
        let unsigned = UnsignedRecord::new(key.clone(), change, time, longest.clone()).unwrap();
        let record = unsigned
            .fetched(Some(time))
            .sign(&signing_key(&deployment("a")));
        assert!(record.to_string().len() <= MAX_RECORD_BYTES);
        assert_eq!(Record::parse(record.to_string().as_bytes()), Ok(record));
    }
}

/// Returns a strategy for keys of both kinds.
fn any_key() -> BoxedStrategy<VersionKey> {
    let module =
        "module [a-z]{1,3}/[a-z_]{0,2}[a-z]/[a-z0-9]{1,3} [0-9]\\.[0-9]\\.[0-9](-rc\\.[1-9])?";
    let go = "go [a-z]{1,3}\\.[a-z]{1,3}(/[A-Za-z]{2,3}){0,2}/v2 v2\\.[0-9]\\.[0-9](-rc\\.[1-9])?";
    // A name that Windows reserves is no element of a path.
    let parsed = |text: String| text.parse().ok();
    module
        .boxed()
        .prop_union(go.boxed())
        .prop_filter_map("no key", parsed)
        .boxed()
}

/// Returns a strategy for changes of a version.
fn any_change(kind: NameKind) -> impl Strategy<Value = RecordChange> {
    let notice = ("[a-z]{1,5}( [a-zé`]{1,5}){0,3}", option::of(any_key()));
    let notice = notice.prop_map(move |(reason, replacement)| RecordNotice {
        reason: Reason::read(&reason).unwrap().unwrap(),
        replacement: replacement.filter(|key| key.kind() == kind),
    });
    let notice = notice.boxed();
    let packages = btree_map("[a-z0-9][a-z._~+-]{0,8}[a-z]", 0..1u64 << 40, 1..4);
    let parts = (
        any::<u8>(),
        packages,
        option::of("[0-9a-f]{40}|[0-9a-f]{64}"),
    );
    let content = parts.prop_map(move |(number, packages, commit)| VersionContent {
        packages: PackageFiles::new(
            packages
                .into_iter()
                .map(|(name, size)| PackageFile {
                    name: name.parse().unwrap(),
                    digest: Sha256Digest::of(name.as_bytes()),
                    size,
                })
                .collect(),
        )
        .unwrap(),
        commit: commit.map(|commit| commit.parse().unwrap()),
        ..content(kind, number)
    });
    let takedown = proptest::sample::select(TakedownKind::ALL);
    prop_oneof![
        content.prop_map(RecordChange::Add),
        notice.clone().prop_map(RecordChange::Deprecate),
        (takedown, notice).prop_map(|(kind, notice)| RecordChange::Delete(kind, notice)),
    ]
}

/// Returns a strategy for signed records.
fn any_record() -> impl Strategy<Value = Record> {
    let change = any_key().prop_flat_map(|key| {
        let change = any_change(key.kind());
        (Just(key), change)
    });
    let time = 0..253_402_300_800_i64;
    let times = (time.clone(), option::of(time));
    (change, times, "[a-z]{1,5}(\\.[a-z]{1,5})?", 1..=i64::MAX).prop_filter_map(
        "inconsistent",
        |((key, change), (time, fetched), name, id)| {
            let at =
                |time| RecordTime::new(chrono::DateTime::from_timestamp(time, 7).unwrap()).unwrap();
            let time = at(time);
            let maker = RecordMaker {
                deployment: deployment(&name),
                id: LogId::new(id).unwrap(),
            };
            let key_of_maker = signing_key(&maker.deployment);
            let unsigned = UnsignedRecord::new(key, change, time, maker).ok()?;
            Some(unsigned.fetched(fetched.map(at)).sign(&key_of_maker))
        },
    )
}

proptest! {
    #![proptest_config(fixed_seed())]

    #[test]
    fn a_record_that_is_written_is_read_alike(record in any_record()) {
        let text = record.to_string();
        let read = Record::parse(text.as_bytes()).unwrap();
        let key = signing_key(&record.maker().deployment);
        prop_assert_eq!(read.verify(&[key.verifier().clone()]), Ok(()));
        prop_assert_eq!(read, record);
        let leaf = format_data_record(&text).unwrap();
        prop_assert_eq!(parse_data_record(leaf.as_bytes()), Ok((text.as_str(), b"".as_slice())));
    }

    #[test]
    fn a_text_that_is_read_is_written_alike(
        record in any_record(), at in any::<prop::sample::Index>(), len in 0..3usize, with in "[ \na-z0-9:/.]{0,2}|."
    ) {
        // Few changed records are valid, and none may have a second spelling.
        let mut text: Vec<char> = record.to_string().chars().collect();
        let at = at.index(text.len());
        text.splice(at..(at + len).min(text.len()), with.chars());
        let text: String = text.into_iter().collect();
        if let Ok(read) = Record::parse(text.as_bytes()) {
            prop_assert_eq!(read.to_string(), text);
        }
    }

    #[test]
    fn every_prefix_of_a_record_is_refused(record in any_record(), cut in any::<prop::sample::Index>()) {
        let text = record.to_string();
        prop_assert!(Record::parse(&text.as_bytes()[..cut.index(text.len())]).is_err());
    }

    #[test]
    fn no_bytes_make_the_reader_panic(bytes in vec(any::<u8>(), 0..200), record in any_record(), at in any::<prop::sample::Index>()) {
        drop(Record::parse(&bytes));
        let mut text = record.to_string().into_bytes();
        let at = at.index(text.len());
        text.splice(at..at, bytes);
        drop(Record::parse(&text));
    }

    #[test]
    fn lines_in_any_order_make_no_reader_panic(
        lines in vec(proptest::sample::select(vec![
            "add", "delete go a.b v1.0.0", "add module a/b/c 1.0.0", "files h1:", "package", "package a 1 b", "time ",
            "takedown legal", "reason", "reason \u{2028}", "replacement a", "maker a 1", "signature ", "",
        ]), 0..8)
    ) {
        prop_assert!(Record::parse(lines.join("\n").as_bytes()).is_err());
    }
}
