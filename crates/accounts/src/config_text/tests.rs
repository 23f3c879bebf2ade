use proptest::prelude::*;

use super::*;
use crate::testing::fixed_seed;

fn config(text: &str) -> ConfigText {
    ConfigText::parse(text.as_bytes()).unwrap()
}

fn list(config: &ConfigText) -> Vec<String> {
    let entries = config.entries().map(|entry| {
        let path = KeyPath {
            section: entry.section,
            subsection: entry.subsection,
            key: entry.key,
        };
        match entry.value {
            None => path.to_string(),
            Some(value) => format!("{path}={value}"),
        }
    });
    entries.collect()
}

#[test]
fn a_text_is_read_as_git_reads_it() {
    let text = "\u{feff}top = 1\n[A]Key=one ; note\n\tkEy = \" two # \" x \\\n  y\n[a \"S\\\"ub\"] k\n\
                [a.SUB]k = \\t\\\"\\\\\\n\r\n[a.b \"C\"]\r\n  empty=\r\n[a] KEY = three";
    assert_eq!(
        list(&config(text)),
        [
            ".top=1",
            "a.Key=one",
            "a.kEy= two #  x   y",
            "a.S\"ub.k",
            "a.sub.k=\t\"\\\n",
            "a.b.C.empty=",
            "a.KEY=three",
        ]
    );
    let config = config(text);
    let value = config.value(KeyPath::new("A", "KEY")).unwrap();
    assert_eq!((value.value, value.line), (Some("three"), 9));
    assert_eq!(config.values(KeyPath::new("a", "key")).count(), 3);
    assert_eq!(config.value(KeyPath::within("a", "s\"ub", "k")), None);
}

#[test]
fn an_include_is_a_section_like_any_other() {
    let text = "[include]\n\tpath = other\n[includeIf \"onbranch:x\"]\n\tpath = more\n";
    assert_eq!(
        list(&config(text)),
        ["include.path=other", "includeif.onbranch:x.path=more"]
    );
}

#[test]
fn an_invalid_text_has_an_error_with_its_line() {
    for (text, line) in [
        ("[a]\nk # c\n", 2),
        ("[a]\n\nk l = v\n", 3),
        ("[a]\nk[b]\n", 2),
        ("[a]\nk = \"x\n\"\n", 2),
        ("[a]\r\nk = \\x\r\n", 2),
        ("[a \"b\" ]\n", 1),
        ("[a\n]\n", 1),
        ("\n[a \"b\n\"]\n", 2),
        ("[a_b]\n", 1),
        ("[]\n", 1),
        ("[a]\n1k = v\n", 2),
        ("[a]\nk = \0\n", 2),
        ("[a", 1),
    ] {
        let error = ConfigText::parse(text.as_bytes()).unwrap_err();
        assert_eq!(error.line, Some(line), "{text:?}: {error}");
    }
    let error = ConfigText::parse(b"[a]\nk = \xff\n").unwrap_err();
    assert_eq!(
        error.to_string(),
        "line 2: the text is not UTF-8; save the file as UTF-8"
    );
    let error = ConfigText::parse(&vec![b'\n'; ConfigText::MAX_BYTES + 1]).unwrap_err();
    assert!(error.to_string().contains("65536 bytes"), "{error}");
}

#[test]
fn integers_are_plain_digits_and_booleans_are_gits() {
    let config = config("[a]\nt\nt=yes\nt=ON\nt=2\nf=\nf=no\nf=0\nx=1k\nx=-1\nx=+1\nx=\nn=80\n");
    let all = |key| config.values(KeyPath::new("a", key));
    assert!(all("t").all(|entry| entry.boolean() == Ok(true)));
    assert!(all("f").all(|entry| entry.boolean() == Ok(false)));
    assert!(all("x").all(|entry| entry.integer().is_err()));
    assert_eq!(all("n").next().unwrap().integer(), Ok(80));
    assert!(all("t").next().unwrap().integer().is_err());
    assert!(all("x").next().unwrap().boolean().is_err());
}

#[test]
fn an_edit_leaves_the_rest_alone() {
    let path = KeyPath::new("a", "k");
    let edited = |text: &str, edit: &dyn Fn(&mut ConfigText) -> Result<(), Problem>| {
        let mut config = config(text);
        edit(&mut config).unwrap();
        config.to_string()
    };
    let set = |text: &str| edited(text, &|config| config.set(path, "new # value"));
    assert_eq!(set(""), "[a]\n\tk = \"new # value\"\n");
    assert_eq!(set("# c"), "# c\n[a]\n\tk = \"new # value\"\n");
    assert_eq!(
        set("[A]\n  K = v ; why\n"),
        "[A]\n  K = \"new # value\" ; why\n"
    );
    assert_eq!(set("[a]\nk\n"), "[a]\nk = \"new # value\"\n");
    assert_eq!(set("[a]\nk=\n"), "[a]\nk=\"new # value\"\n");
    assert_eq!(
        set("[a]\nk = 1 \\\n 2 # c\nl"),
        "[a]\nk = \"new # value\" # c\nl"
    );
    assert_eq!(set("[a] # c\r\n"), "[a] # c\r\n\tk = \"new # value\"\r\n");
    assert_eq!(
        set("[a] [b]\nk = 1\n"),
        "[a]\n\tk = \"new # value\"\n [b]\nk = 1\n"
    );
    assert_eq!(set("[a] l = 1\\"), "[a] l = 1\\\n\n\tk = \"new # value\"\n");

    let unset = |text: &str| edited(text, &|config| config.unset(path));
    assert_eq!(
        unset("[a]\n\tk = v # c\n\tl = 1\n# d\n"),
        "[a]\n\tl = 1\n# d\n"
    );
    assert_eq!(unset("[a] k = v # c\r\n\tl\r\n"), "[a]\r\n\tl\r\n");
    assert_eq!(unset("[a]\nk = 1 \\\n2\n[b]\n[a]k"), "[a]\n[b]\n[a]");

    let values =
        |text: &str, values: &[&str]| edited(text, &|config| config.set_values(path, values));
    let three = "[a]\n  k = 1 # one\n  k = 2 # two\n  k = 3 # three\n";
    assert_eq!(
        values(three, &["1", "3"]),
        "[a]\n  k = 1 # one\n  k = 3 # three\n"
    );
    assert_eq!(
        values(three, &["1", "2", "x", "3"]),
        "[a]\n  k = 1 # one\n  k = 2 # two\n  k = x\n  k = 3 # three\n"
    );
    assert_eq!(values("[a] k = 1\n", &["0", "1"]), "[a]\n\tk = 0\n k = 1\n");

    let removed = |text: &str| edited(text, &|config| config.remove_section("a", None));
    assert_eq!(
        removed("# a\n[a]\nk\n# in\n\n# b\n[b]\n[A]k=1"),
        "# a\n# b\n[b]\n"
    );
    assert_eq!(
        removed("[a \"x\"]\nk\n[z] [a]\nk\n[b]"),
        "[a \"x\"]\nk\n[z] [b]"
    );
}

#[test]
fn a_key_that_git_could_not_read_is_not_written() {
    let mut text = config("[a]\nk = 1\n");
    let before = text.clone();
    assert!(text.set(KeyPath::within("a", "x\ny", "k"), "1").is_err());
    assert!(text.set(KeyPath::new("a", "k k"), "1").is_err());
    assert!(text.set(KeyPath::new("a", "k"), "\0").is_err());
    let long = "x".repeat(ConfigText::MAX_BYTES);
    assert!(text.set(KeyPath::new("a", "k"), &long).is_err());
    assert_eq!(text, before);
}

proptest! {
    #![proptest_config(fixed_seed())]

    #[test]
    fn no_text_makes_it_panic(text in "[\\[\\]a-c.=\"\\\\ \t\r\n#;0-2é\u{feff}\0]{0,60}") {
        if let Ok(config) = ConfigText::parse(text.as_bytes()) {
            prop_assert_eq!(config.to_string(), text);
        }
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
        drop(ConfigText::parse(&bytes));
    }
}
