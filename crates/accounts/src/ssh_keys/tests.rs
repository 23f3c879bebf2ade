use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use proptest::prelude::*;

use super::*;
use crate::findings::Severity;
use crate::testing::fixed_seed;

const RULES: KeyRules = KeyRules { min_rsa_bits: 2048 };
const ED25519: &str =
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIH4PWjuUaTknk9rXvmtxjmDRUDFgFsCqFUh7wG5XWKdd john@laptop";
const ECDSA: &str = "ecdsa-sha2-nistp256 AAAAE2VjZHNhLXNoYTItbmlzdHAyNTYAAAAIbmlzdHAyNTYAAABBBGyR38MlvwdIM/kfZdonHZKYMi/7Kf/EQ4ZGabEamlaU1VDOpqbtZAxwvmQ7mgX8D1SMVKuiAO3dbAcFtJDLwdY= john@laptop";
const RSA_2048: &str = "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABAQCyEF6heFPTZ0MyO1hFXTQr/eBO1Xlvvx6//KDT6w/znA/+/JI9a4KWRXiyDDzhDK6G3sJ0XFBsOcYh1PMtsCN1xRQgGQB1UEU8ss52hw420qUFcQie4VmfkNY7KdrETcGLKBZtj1wntq7xNQqZC/13I6RkBhauHBh5HF2tYJY3gieYhr8clIwbc0NYGHPXhoA8tqO1Ub62bh3U//I+hZP3FwcqgPs9AhrgxCpt0iGfE2w59zKFloIAtK0+8bv/u1uljGHa83cj3bnNKW0jLuNs7Hu4NTS3PX9GWaaG0UW7V+7/CinSHOQug7a/SP0h9Lm0mYKTsjiBZTFt19ixKuw7 john@laptop";
const RSA_1024: &str = "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAAAgQDazV0nSs5YJOGYZysqB6ija2P31tYzTh/cBiT/VTg9Sl2a9TIJ7q2ARW2joD8iq/TVBy2sCsneHyknWjg5OoLEHxScd2MN+408mgQghHxFDZ+f/k6ubplFK1Qy7X/cZ1KsBjRGwMbewxW/lav7/Lf2Fc1mM/O7Q6mupB70ffb0Ew== john@laptop";
const DSA: &str = "ssh-dss AAAAB3NzaC1kc3MAAACBAIDxGaAUgeBeUWYFIYQhlC+r9Q41NtlYD/WrnyOw6Z4WmL+MMH09fCqcU/EHR4Cvi7UM9Jf7qrAZjC37Xt2ntQQflzK7ekmvP4WbXPeEeJAljHzHmvGSwuDqS+WkVAjgJkXPZe8uwMR6N0jwid4WyzcnTRPhlxchD5GVGvfPshBHAAAAFQCLIDDsn25kMJm+JaDkjiV6y8cWbQAAAIB/2OAuIxvRzf3Jx/rCeqCF1BpWplXkyrB2TrvdG3N6BQlFCNLYbbO3BhtgpVTvP8PFZkcPYe5vHw+q4MYZuIwIeujRs2thPYT89HhcfffVm75EMu3AW7irULZhHnopyWKbB8fGmXKTOE0IWEgwqUrGbAESRT0kg4e+lKEWdtPBdQAAAIBc/ODKp/Ym4R1HDACfVp7QHqwhnbFNbq8/7N4YbnJ4JNRTtT9J/anKlg046BRGXUI3uyHK1pPDPssQ8BFnsTeupXdBV7xAPUkuCjh7K5zE5CILM5T65NOGRHfBlmwFJI5QwUSCU+iG+mCq1TMUZCUNyzFfN5e3lAdO+0WK0mMQxQ== john@old";

fn file(lines: &[&str]) -> AuthorizedKeys {
    AuthorizedKeys::parse(lines.join("\n").as_bytes()).unwrap()
}

fn numbers(keys: &AuthorizedKeys) -> Vec<usize> {
    keys.keys(RULES).map(|(number, _)| number).collect()
}

#[test]
fn a_number_is_a_place_that_stays() {
    let invalid = format!("# INVALID {RSA_1024}");
    let mut keys = file(&["# mine", ED25519, "", "# DELETED", &invalid, RSA_2048]);
    assert_eq!(numbers(&keys), [1, 4]);
    assert_eq!(keys.add(ED25519, RULES), Ok(1));
    assert_eq!(
        keys.add(&format!("from=\"10.0.0.1\" {RSA_2048} home"), RULES),
        Ok(4)
    );
    assert_eq!(keys.add(ECDSA, RULES), Ok(5));
    let deleted = [1, 1, 0, 6].map(|number| keys.delete(number).unwrap());
    assert_eq!(deleted, [true, false, false, false]);
    assert_eq!(
        keys.to_string(),
        format!("# mine\n# DELETED\n\n# DELETED\n{invalid}\n{RSA_2048}\n{ECDSA}\n")
    );
    assert_eq!(keys.problems(RULES), []);
    assert_eq!(keys.add(ED25519, RULES), Ok(6));
}

#[test]
fn a_key_that_expires_as_in_gerrit_is_a_comment_with_a_warning() {
    let expiring = format!("# EXPIRES 2030-12-31T00:00:00Z {ED25519}");
    let keys = file(&[&expiring, RSA_2048]);
    assert_eq!(numbers(&keys), [1]);
    let problems = keys.problems(RULES);
    assert_eq!(problems.len(), 1);
    assert_eq!(problems[0].severity, Severity::Warning);
    assert_eq!(
        problems[0].to_string(),
        "line 1: `# EXPIRES` makes the key a comment; write `expiry-time=\"20301231Z\"` in front of the key instead"
    );
}

#[test]
fn line_breaks_stay_as_they_are() {
    let mut keys = AuthorizedKeys::parse(format!("{ED25519}\r\n  {ECDSA}  ").as_bytes()).unwrap();
    assert_eq!(numbers(&keys), [1, 2]);
    keys.delete(2).unwrap();
    keys.add(ECDSA, RULES).unwrap();
    assert_eq!(
        keys.as_str(),
        format!("{ED25519}\r\n  # DELETED  \r\n{ECDSA}\r\n")
    );
}

#[test]
fn a_key_has_its_parts() {
    let line = format!("expiry-time=\"20301231\",from=\"10.0.0.0/8,::1\"  {ED25519} and more");
    let key = AccountSshKey::parse(&line, RULES).unwrap();
    assert_eq!(key.algorithm(), "ssh-ed25519");
    assert_eq!(key.comment(), "john@laptop and more");
    assert!(key.encoded().starts_with("AAAAC3Nza"));
    assert_ne!(*key.options(), KeyOptions::default());
}

#[test]
fn a_line_that_is_no_key_is_refused_with_a_reason() {
    let broken = ED25519.replace("AAAAC3", "AAAAC4");
    let options = format!("command=\"a b\" {ED25519}");
    let flag = format!("restrict {ED25519}");
    let certificate = "ssh-ed25519-cert-v01@openssh.com AAAA";
    let keys = file(&[
        DSA,
        RSA_1024,
        &broken,
        "ssh-ed25519",
        &options,
        &flag,
        certificate,
        "hello world",
    ]);
    let problems: Vec<String> = keys
        .problems(RULES)
        .iter()
        .map(ToString::to_string)
        .collect();
    let types = "write the whole line of the `.pub` file, with one of `ssh-ed25519`, `ecdsa-sha2-nistp256`, `ecdsa-sha2-nistp384`, `ecdsa-sha2-nistp521`, \
                 `ssh-rsa`, `sk-ssh-ed25519@openssh.com`, `sk-ecdsa-sha2-nistp256@openssh.com`, \
                 or begin a comment with `#`";
    assert_eq!(
        problems,
        [
            "line 1: DSA keys are not accepted; make a new one with `ssh-keygen -t ed25519`".to_owned(),
            "line 2: the RSA key has 1024 bits, fewer than 2048; make a new one with `ssh-keygen -t ed25519`".to_owned(),
            "line 3: the key cannot be decoded; copy the whole line of the `.pub` file".to_owned(),
            "line 4: the key cannot be decoded; copy the whole line of the `.pub` file".to_owned(),
            "line 5: the option `command` is not supported; remove it; only `from=\"…\"` and `expiry-time=\"…\"` are".to_owned(),
            "line 6: the option `restrict` is not supported; remove it; only `from=\"…\"` and `expiry-time=\"…\"` are".to_owned(),
            format!("line 7: `ssh-ed25519-cert-v01@openssh.com` is not a type of key; {types}"),
            format!("line 8: `hello` is not a type of key; {types}"),
        ]
    );
    let small = KeyRules { min_rsa_bits: 1024 };
    assert!(AccountSshKey::parse(RSA_1024, small).is_ok());
    let mut keys = AuthorizedKeys::default();
    assert!(keys.add(&format!("{ED25519}\n{ECDSA}"), RULES).is_err());
    assert!(keys.add("# DELETED", RULES).is_err());
    assert_eq!(keys, AuthorizedKeys::default());
}

#[test]
fn there_are_at_most_100_keys() {
    let lines = vec![ED25519; 100];
    let mut keys = file(&lines);
    assert_eq!(keys.problems(RULES), []);
    let error = keys.add(ECDSA, RULES).unwrap_err();
    assert_eq!(error.to_string(), "there are 101 keys; keep at most 100");
    assert_eq!(keys.delete(100), Ok(true));
    assert_eq!(keys.add(ECDSA, RULES), Ok(101));
}

proptest! {
    #![proptest_config(fixed_seed())]

    #[test]
    fn numbers_stay_under_add_and_delete(
        steps in proptest::collection::vec((0..3_usize, 0..6_usize), 0..12),
        start in "(# x\n|\n|# DELETED\n){0,4}",
    ) {
        let lines = [ED25519, ECDSA, RSA_2048];
        let mut keys = AuthorizedKeys::parse(start.as_bytes()).unwrap();
        let mut last = keys.slots().count();
        let mut expected: BTreeMap<usize, &str> = BTreeMap::new();
        for (line, number) in steps {
            if number == 0 {
                let known = expected.iter().find(|(_, known)| **known == lines[line]);
                let number = known.map_or(last + 1, |(number, _)| *number);
                prop_assert_eq!(keys.add(lines[line], RULES), Ok(number));
                expected.insert(number, lines[line]);
                last = last.max(number);
            } else {
                let is_there = expected.remove(&number).is_some();
                prop_assert_eq!(keys.delete(number), Ok(is_there));
            }
            let read = AuthorizedKeys::parse(keys.as_str().as_bytes()).unwrap();
            let slots: BTreeMap<usize, &str> = read
                .slots()
                .filter_map(|(number, slot)| match slot {
                    KeySlot::Key(line) => Some((number, line)),
                    KeySlot::Invalid(_) | KeySlot::Deleted => None,
                })
                .collect();
            prop_assert_eq!(&slots, &expected);
            prop_assert_eq!(read.slots().count(), last);
        }
    }

    #[test]
    fn no_text_makes_it_panic(text in "(ssh-rsa|ssh-ed25519|# INVALID |# DELETED|from=\"|[ \n\",=A-C/+é]){0,20}|.{0,30}") {
        let keys = AuthorizedKeys::parse(text.as_bytes()).unwrap();
        prop_assert_eq!(keys.as_str(), text);
        drop(keys.problems(RULES));
    }

    #[test]
    fn no_bytes_of_a_key_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..60), known in 0..3_usize) {
        let algorithm = [ED25519, ECDSA, RSA_2048][known].split(' ').next().unwrap();
        let mut blob = u32::try_from(algorithm.len()).unwrap().to_be_bytes().to_vec();
        blob.extend(algorithm.bytes());
        blob.extend(bytes);
        drop(AccountSshKey::parse(&format!("{algorithm} {}", STANDARD.encode(blob)), RULES));
    }
}
