//! The rules that a push to `All-Users` has to follow.

use std::collections::BTreeMap;

use super::{AccountFindings, Problem};
use crate::access::{AccessControl, Capability};
use crate::account_config::AccountConfig;
use crate::config_text::{ConfigText, KeyPath};
use crate::email::AccountEmail;
use crate::external_ids::{ExternalId, HashedPassword, NoteName};
use crate::notes::NoteFault;
use crate::preferences::Preferences;
use crate::refs::{AccountId, AllUsersRef};
use crate::ssh_keys::{AuthorizedKeys, KeyRules};
use crate::text::{nearest, quoted, shown};
use crate::watches::Watches;

/// Maximum number of files in a branch.
pub const MAX_BRANCH_FILES: usize = 100;

/// Maximum size of all files of a user branch in bytes.
const MAX_BRANCH_BYTES: usize = 1024 * 1024;

/// Maximum number of external IDs of an account.
const MAX_EXTERNAL_IDS: usize = 100;

/// Files with a meaning. Others are kept as they are.
const FILES: [&str; 4] = [
    AccountConfig::FILE,
    Preferences::FILE,
    Watches::FILE,
    AuthorizedKeys::FILE,
];

/// Checks all files of a user branch, by their paths. `external_ids` are those of the account. An `account.config` that
/// cannot be read is an error, because it may lock the account out. Of everything else, only the parts with problems
/// are unusable.
pub fn check_user_branch(
    files: &BTreeMap<String, Vec<u8>>,
    external_ids: &[ExternalId],
    rules: KeyRules,
) -> AccountFindings {
    check_branch(files, Some(external_ids), rules)
}

/// Checks all files of a user branch but for the preferred address, because the external IDs of the account are not
/// known.
pub fn check_user_branch_alone(
    files: &BTreeMap<String, Vec<u8>>,
    rules: KeyRules,
) -> AccountFindings {
    check_branch(files, None, rules)
}

fn check_branch(
    files: &BTreeMap<String, Vec<u8>>,
    external_ids: Option<&[ExternalId]>,
    rules: KeyRules,
) -> AccountFindings {
    let mut findings = AccountFindings::default();
    findings.add("user branch", unusable(check_sizes(files)));
    for (path, content) in files {
        let config = || ConfigText::parse(content);
        let checked = match path.as_str() {
            AccountConfig::FILE => config().map(|text| check_properties(&text, external_ids)),
            Preferences::FILE => config().map(|text| Preferences::read(&text).1),
            Watches::FILE => config().map(|text| Watches::read(&text).1),
            AuthorizedKeys::FILE => AuthorizedKeys::parse(content).map(|keys| keys.problems(rules)),
            path => Ok(check_other_file(path, content, &FILES)),
        };
        let mut problems = checked.unwrap_or_else(|problem| vec![problem]);
        if path != AccountConfig::FILE {
            problems = unusable(problems);
        }
        findings.add_in(path, content, problems);
    }
    findings
}

/// Checks all files of `refs/users/default`, by their paths. Only the preferences have a meaning there.
pub fn check_defaults(files: &BTreeMap<String, Vec<u8>>) -> AccountFindings {
    let mut findings = AccountFindings::default();
    findings.add("user branch", unusable(check_sizes(files)));
    if let Some(content) = files.get(Preferences::FILE) {
        let problems = match ConfigText::parse(content) {
            Ok(text) => Preferences::read(&text).1,
            Err(problem) => vec![problem],
        };
        findings.add_in(Preferences::FILE, content, unusable(problems));
    }
    findings
}

fn unusable(problems: Vec<Problem>) -> Vec<Problem> {
    let problems = problems.into_iter();
    problems.map(Problem::into_unusable).collect()
}

/// Checks all files of `refs/meta/config`, by their paths. Every member of a group has to exist.
pub fn check_access(
    files: &BTreeMap<String, Vec<u8>>,
    exists: impl Fn(AccountId) -> bool,
) -> AccountFindings {
    let (access, mut findings) = AccessControl::read(files);
    findings.add("branch", check_sizes(files));
    let unknown = access.groups().members_with_lines();
    let unknown = unknown.filter(|(account, _)| !exists(*account));
    let problems = unknown.map(|(account, line)| {
        let what = format!("account {account} does not exist");
        let fix = "write the number of an account, or remove the line";
        Problem::error(line, what, fix)
    });
    findings.add(AccessControl::GROUPS_FILE, problems);
    if !access.names_administrators() {
        let name = Capability::AdministrateServer.as_str();
        let what = format!("no group has the capability `{name}`");
        let fix = format!("add `{name} = group Administrators` below `[capability]`");
        findings.add(AccessControl::RULES_FILE, [Problem::error(None, what, fix)]);
    }
    for (path, content) in files {
        let known = [AccessControl::RULES_FILE, AccessControl::GROUPS_FILE];
        if !known.contains(&path.as_str()) && path != AccessControl::RIGHTS_FILE {
            findings.add(path, check_other_file(path, content, &known));
        }
    }
    findings
}

fn check_sizes(files: &BTreeMap<String, Vec<u8>>) -> Vec<Problem> {
    let mut problems = Vec::new();
    if files.len() > MAX_BRANCH_FILES {
        let what = format!("there are {} files", files.len());
        let fix = format!("keep at most {MAX_BRANCH_FILES}");
        problems.push(Problem::limit(files.len(), what, fix));
    }
    let bytes: usize = files.values().map(Vec::len).sum();
    if bytes > MAX_BRANCH_BYTES {
        let what = format!("the files have {bytes} bytes");
        let fix = format!("keep them below {MAX_BRANCH_BYTES} bytes");
        problems.push(Problem::limit(bytes, what, fix));
    }
    problems
}

/// Checks a file without a meaning. `known` are the names of those with one.
fn check_other_file(path: &str, content: &[u8], known: &[&str]) -> Vec<Problem> {
    let mut problems = Vec::new();
    if content.len() > ConfigText::MAX_BYTES {
        let what = format!("the file has {} bytes", content.len());
        let fix = format!("keep it below the limit of {} bytes", ConfigText::MAX_BYTES);
        problems.push(Problem::limit(content.len(), what, fix));
    }
    if let Some(near) = nearest(path, known.iter().copied()) {
        let fix = format!("did you mean `{near}`?");
        problems.push(Problem::warning(None, "the file has no meaning", fix));
    }
    problems
}

fn check_properties(text: &ConfigText, external_ids: Option<&[ExternalId]>) -> Vec<Problem> {
    let (config, mut problems) = AccountConfig::read(text);
    let (Some(preferred), Some(external_ids)) = (config.preferred_email, external_ids) else {
        return problems;
    };
    let emails: Vec<&AccountEmail> = external_ids
        .iter()
        .filter_map(|id| id.email.as_ref())
        .collect();
    if !emails.iter().any(|email| email.key() == preferred.key()) {
        let mut known: Vec<&str> = emails.iter().map(|email| email.as_str()).collect();
        known.sort_unstable();
        known.dedup();
        let fix = if known.is_empty() {
            "link an external ID with this address first".to_owned()
        } else {
            format!(
                "use one of {}, or link an external ID with this address first",
                quoted(&known)
            )
        };
        let what = format!(
            "`{}` is on no external ID of the account",
            shown(preferred.as_str())
        );
        let line = AccountConfig::preferred_email_line(text);
        problems.push(Problem::error(line, what, fix).into_unusable());
    }
    problems
}

/// Checks external IDs with the names of their notes. They have to be all of them, or all that share an account or an
/// address with a changed one. A note that is no external ID of an account has no effect, so it takes nothing from others.
pub fn check_external_ids<'a>(
    notes: impl IntoIterator<Item = (NoteName, &'a [u8])>,
    exists: impl Fn(AccountId) -> bool,
) -> AccountFindings {
    let mut findings = AccountFindings::default();
    let mut by_email: BTreeMap<String, Vec<ExternalId>> = BTreeMap::new();
    let mut by_account: BTreeMap<AccountId, usize> = BTreeMap::new();
    let mut usernames: BTreeMap<AccountId, Vec<NoteName>> = BTreeMap::new();
    for (name, content) in notes {
        let file = name.to_string();
        let text = match ConfigText::parse(content) {
            Ok(text) => text,
            Err(problem) => {
                findings.add_in(&file, content, [problem.into_unusable()]);
                continue;
            }
        };
        let (external_id, problems) = ExternalId::read(&text);
        findings.add_in(&file, content, unusable(problems));
        let Some(external_id) = external_id else {
            continue;
        };
        let is_there = exists(external_id.account);
        let problems = check_external_id(name, &text, &external_id, is_there);
        findings.add_in(&file, content, unusable(problems));
        if !is_there || external_id.key.note_name() != name {
            continue;
        }
        *by_account.entry(external_id.account).or_default() += 1;
        if external_id.key.as_username().is_some() {
            usernames.entry(external_id.account).or_default().push(name);
        }
        if let Some(email) = &external_id.email {
            by_email.entry(email.key()).or_default().push(external_id);
        }
    }
    for (email, ids) in by_email {
        if ids.iter().all(|id| id.account == ids[0].account) {
            continue;
        }
        let owners = ids
            .iter()
            .map(|id| format!("`{}` of account {}", shown(id.key.as_str()), id.account));
        let owners: Vec<String> = owners.collect();
        let what = format!(
            "`{}` belongs to several accounts: {}",
            shown(&email),
            owners.join(", ")
        );
        let fix = "leave it on the external IDs of one account";
        findings.add(
            &ids[0].key.note_name().to_string(),
            [Problem::error(None, what, fix)],
        );
    }
    // A password that is replaced or removed is that of the only user name.
    for (account, names) in usernames.iter().filter(|(_, names)| names.len() > 1) {
        let what = format!("account {account} has {} user names", names.len());
        let fix = "keep one of them";
        findings.add(&names[1].to_string(), [Problem::error(None, what, fix)]);
    }
    for (account, number) in by_account {
        if number > MAX_EXTERNAL_IDS {
            let what = format!("account {account} has {number} external IDs");
            let fix = format!("keep at most {MAX_EXTERNAL_IDS}");
            let problem = Problem::limit(number, what, fix).into_unusable();
            findings.add(&AllUsersRef::ExternalIds.to_string(), [problem]);
        }
    }
    findings
}

fn check_external_id(
    name: NoteName,
    text: &ConfigText,
    external_id: &ExternalId,
    exists: bool,
) -> Vec<Problem> {
    let key = &external_id.key;
    let line_of = |name| {
        let entry = text.value(KeyPath::within("externalId", key.as_str(), name));
        entry.map(|entry| entry.line)
    };
    let mut problems = Vec::new();
    if key.note_name() != name {
        let what = format!(
            "the note has the key `{}` of another name",
            shown(key.as_str())
        );
        let fix = format!("rename it to {}", key.note_name());
        problems.push(Problem::error(None, what, fix));
    }
    if !exists {
        let what = format!("account {} does not exist", external_id.account);
        let fix = "write the number of an account, or remove the note";
        problems.push(Problem::error(line_of("accountId"), what, fix));
    }
    if let (Some(password), Some(_)) = (&external_id.password, key.as_username()) {
        match password.decode() {
            Err(error) => {
                let fix = "generate a new password, or remove the line";
                problems.push(Problem::error(line_of("password"), error.to_string(), fix));
            }
            Ok(decoded) if decoded.cost() > HashedPassword::MAX_COST => {
                let what = format!(
                    "nobody can sign in with a password of cost {}",
                    decoded.cost()
                );
                let fix = format!("use at most {}", HashedPassword::MAX_COST);
                problems.push(Problem::warning(line_of("password"), what, fix));
            }
            Ok(_) => {}
        }
    }
    problems
}

/// Checks a tree of notes that cannot be read.
pub fn check_notes(faults: &[NoteFault]) -> AccountFindings {
    let mut findings = AccountFindings::default();
    let problems = faults.iter().map(NoteFault::to_problem);
    findings.add(&AllUsersRef::ExternalIds.to_string(), problems);
    findings
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::external_ids::ExternalIdKey;
    use crate::findings::Severity;
    use crate::testing::fixed_seed;

    const RULES: KeyRules = KeyRules { min_rsa_bits: 2048 };

    fn branch(files: &[(&str, &str)]) -> BTreeMap<String, Vec<u8>> {
        let files = files
            .iter()
            .map(|(path, text)| ((*path).to_owned(), text.as_bytes().to_vec()));
        files.collect()
    }

    fn external_id(key: &str, account: u32, email: Option<&str>) -> ExternalId {
        ExternalId {
            key: key.parse().unwrap(),
            account: AccountId::new(account).unwrap(),
            email: email.map(|email| email.parse().unwrap()),
            password: None,
        }
    }

    fn check_branch(files: &[(&str, &str)]) -> Vec<String> {
        let ids = [
            external_id("mailto:john@example.com", 5, Some("John@example.com")),
            external_id("github:1", 5, None),
        ];
        check_user_branch(&branch(files), &ids, RULES).lines()
    }

    #[test]
    fn every_file_is_optional() {
        assert_eq!(check_branch(&[]), [""; 0]);
        let files = [
            (
                "account.config",
                "[account]\n\tpreferredEmail = john@Example.com\n",
            ),
            ("preferences.config", "[diff]\n\ttabSize = 4\n"),
            ("watch.config", "[project \"x\"]\n\tnotify = * [ALL]\n"),
            ("authorized_keys", "# DELETED\n"),
            ("notes/mine.txt", "anything"),
        ];
        assert_eq!(check_branch(&files), [""; 0]);
    }

    #[test]
    fn without_external_ids_nothing_is_said_about_the_preferred_address() {
        let files = branch(&[
            (
                "account.config",
                "[account]\n\tpreferredEmail = john@example.com\n",
            ),
            ("preferences.config", "[diff]\n\ttabSize = wide\n"),
        ]);
        let lines = check_user_branch(&files, &[], RULES).lines();
        assert_eq!(lines.len(), 2, "{lines:?}");
        let alone = check_user_branch_alone(&files, RULES).lines();
        assert_eq!(alone, lines[1..], "{lines:?}");
    }

    #[test]
    fn the_examples_of_the_format_are_read() {
        let keys = [
            "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAAAgQCgug5VyMXQGnem2H1KVC4/HcRcD4zzBqSuJBRWVonSSoz3RoAZ7bWXCVVGwchtXwUURD689wFYdiPecOrWOUgeeyRq754YWRhU+W28vf8IZixgjCmiBhaL2gt3wff6pP+NXJpTSA4aeWE5DfNK5tZlxlSxqkKOS8JRSUeNQov5Tw== john.doe@example.com",
            "# DELETED",
            "# INVALID ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAAAgQDm5yP7FmEoqzQRDyskX+9+N0q9GrvZeh5RG52EUpE4ms/Ujm3ewV1LoGzc/lYKJAIbdcZQNJ9+06EfWZaIRA3oOwAPe1eCnX+aLr8E6Tw2gDMQOGc5e9HfyXpC2pDvzauoZNYqLALOG3y/1xjo7IH8GYRS2B7zO/Mf9DdCcCKSfw== john.doe@example.com",
            "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAAAgQCaS7RHEcZ/zjl9hkWkqnm29RNr2OQ/TZ5jk2qBVMH3BgzPsTsEs+7ag9tfD8OCj+vOcwm626mQBZoR2e3niHa/9gnHBHFtOrGfzKbpRjTWtiOZbB9HF+rqMVD+Dawo/oicX/dDg7VAgOFSPothe6RMhbgWf84UcK5aQd5eP5y+tQ== john.doe@example.com",
        ]
        .join("\n");
        let files = [
            (
                "account.config",
                "[account]\n  fullName = John Doe\n  preferredEmail = john.doe@example.com\n  status = OOO\n  active = false\n",
            ),
            (
                "preferences.config",
                "[general]\n  showSiteHeader = false\n[diff]\n  hideTopMenu = true\n[edit]\n  lineLength = 80\n",
            ),
            (
                "watch.config",
                "[project \"foo\"]\n  notify = * [ALL_COMMENTS]\n  notify = branch:master [ALL_COMMENTS, NEW_PATCHSETS]\n  \
                 notify = branch:master owner:self [SUBMITTED_CHANGES]\n",
            ),
            ("authorized_keys", &keys),
        ];
        let ids = [external_id("x:1", 5, Some("john.doe@example.com"))];
        let old_keys = KeyRules { min_rsa_bits: 1024 };
        assert_eq!(
            check_user_branch(&branch(&files), &ids, old_keys).lines(),
            [""; 0]
        );
        let keys = AuthorizedKeys::parse(keys.as_bytes()).unwrap();
        let numbers: Vec<usize> = keys.keys(old_keys).map(|(number, _)| number).collect();
        assert_eq!(numbers, [1, 4]);
    }

    #[test]
    fn all_problems_of_a_branch_are_found_at_once() {
        let files = [
            (
                "account.config",
                "[account]\n\tfulName = J\n\tpreferredEmail = x@example.com\n",
            ),
            ("preferences.config", "[diff]\n\ttabSize = 1k\n"),
            (
                "watch.config",
                "[project \"x\"]\n\tnotify = label:#1 [ALL]\n",
            ),
            ("authorized_keys", "hello\n"),
            ("authorised_keys", "hello\n"),
        ];
        let lines = check_branch(&files);
        let starts = [
            "error: account.config:3: `x@example.com` is on no external ID of the account; use one of `John@example.com`",
            "error: authorized_keys:1: `hello` is not a type of key",
            "error: preferences.config:2: `tabSize`: `1k` is not a number",
            "error: watch.config:2: `label:` has no types at its end",
            "warning: account.config:2: unknown key `fulName`; did you mean `fullName`?",
            "warning: authorised_keys: the file has no meaning; did you mean `authorized_keys`?",
        ];
        assert_eq!(lines.len(), starts.len(), "{lines:#?}");
        for (line, start) in lines.iter().zip(starts) {
            assert!(line.starts_with(start), "{line}");
        }
        assert_eq!(
            check_branch(&[("account.config", "[account\n")]),
            [
                "error: account.config:1: invalid section header; write `[section]` or `[section \"name\"]` in one line"
            ]
        );
        let none = check_user_branch(
            &branch(&[(
                "account.config",
                "[account]\n\tpreferredEmail = x@example.com\n",
            )]),
            &[],
            RULES,
        );
        assert!(
            none.lines()[0].ends_with("link an external ID with this address first"),
            "{none:?}"
        );
    }

    #[test]
    fn a_branch_has_limits() {
        let long = "x".repeat(65_537);
        assert_eq!(
            check_branch(&[("README", &long)]),
            ["error: README: the file has 65537 bytes; keep it below the limit of 65536 bytes"]
        );
        let many = (0..101)
            .map(|number| (number.to_string(), vec![b'x'; 11_000]))
            .collect();
        assert_eq!(
            check_user_branch(&many, &[], RULES).lines(),
            [
                "error: user branch: there are 101 files; keep at most 100",
                "error: user branch: the files have 1111000 bytes; keep them below 1048576 bytes",
            ]
        );
    }

    #[test]
    fn only_a_lost_state_is_no_matter_of_single_parts() {
        let severities = |files: &[(&str, &str)]| {
            let ids = [external_id("mailto:john@example.com", 5, None)];
            let findings = check_user_branch(&branch(files), &ids, RULES);
            let severities = findings.refusals().map(|finding| finding.problem.severity);
            severities.collect::<Vec<_>>()
        };
        let long = "x".repeat(65_537);
        let long = long.as_str();
        for files in [
            [("account.config", "[account]\nfullName = \"a\\nb\"\n")],
            [(
                "account.config",
                "[account]\npreferredEmail = x@example.com\n",
            )],
            [("account.config", "[account]\npreferredEmail = x\n")],
            [("authorized_keys", "hello")],
            [("watch.config", "[")],
            [("preferences.config", "[diff]\ncontext = all\n")],
            [("README", long)],
        ] {
            assert_eq!(severities(&files), [Severity::Unusable], "{}", files[0].1);
        }
        for text in ["[", "[account]\nactive = maybe\n", long] {
            assert_eq!(
                severities(&[("account.config", text)]),
                [Severity::Error],
                "{text}"
            );
        }
    }

    fn check(texts: &[(&str, &str)]) -> Vec<String> {
        let notes: Vec<(NoteName, &[u8])> = texts
            .iter()
            .map(|(key, text)| {
                (
                    key.parse::<ExternalIdKey>().unwrap().note_name(),
                    text.as_bytes(),
                )
            })
            .collect();
        check_external_ids(notes, |account| account.get() < 10).lines()
    }

    #[test]
    fn external_ids_follow_the_rules() {
        let password = "bcrypt:4:LCbmSBDivK/hhGVQMfkDpA==:XcWn0pKYSVU/UJgOvhidkEtmqCp6oKB7";
        let good = format!("[externalId \"username:j\"]\naccountId = 5\npassword = {password}\n");
        let expensive = good
            .replace("bcrypt:4", "bcrypt:31")
            .replace("username:j", "username:k");
        assert_eq!(
            check(&[
                ("username:j", &good),
                (
                    "mailto:j@x.de",
                    "[externalId \"mailto:j@x.de\"]\naccountId = 5\nemail = j@x.de\n"
                ),
                (
                    "github:1",
                    "[externalId \"github:1\"]\naccountId = 5\nemail = J@X.de\n"
                ),
                (
                    "ldap:x",
                    "[externalId \"ldap:x\"]\naccountId = 5\npassword = anything\n"
                ),
            ]),
            [""; 0]
        );
        let lines = check(&[
            ("x:1", "[externalId \"x:2\"]\naccountId = 5\n"),
            ("x:3", "[externalId \"x:3\"]\naccountId = 10\n"),
            ("x:4", "[externalId\n"),
            (
                "username:j",
                "[externalId \"username:j\"]\naccountId = 5\npassword = secret\n",
            ),
            ("username:k", &expensive),
        ]);
        let starts = [
            "the note has the key `x:2` of another name; rename it to ",
            "account 10 does not exist; write the number of an account, or remove the note",
            "invalid section header; ",
            "the password is not `bcrypt:<cost 4 to 31>:<base64 of 16 bytes>:<base64 of 24 bytes>`; ",
            "account 5 has 2 user names; keep one of them",
            "nobody can sign in with a password of cost 31; use at most 14",
        ];
        assert_eq!(lines.len(), starts.len(), "{lines:#?}");
        for (line, start) in lines.iter().zip(starts) {
            assert!(line.contains(start), "{line}");
        }
        assert!(
            lines.iter().all(|line| !line.contains("secret")),
            "{lines:?}"
        );
    }

    #[test]
    fn an_address_on_two_accounts_names_all_of_its_external_ids() {
        let lines = check(&[
            (
                "x:1",
                "[externalId \"x:1\"]\naccountId = 5\nemail = j@x.de\n",
            ),
            (
                "x:2",
                "[externalId \"x:2\"]\naccountId = 6\nemail = J@x.de\n",
            ),
            (
                "x:3",
                "[externalId \"x:3\"]\naccountId = 5\nemail = j@X.de\n",
            ),
            (
                "x:4",
                "[externalId \"x:4\"]\naccountId = 7\nemail = k@x.de\n",
            ),
        ]);
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(
            lines[0].ends_with(
                "`j@x.de` belongs to several accounts: `x:1` of account 5, `x:2` of account 6, `x:3` of account 5; \
                 leave it on the external IDs of one account"
            ),
            "{lines:?}"
        );
    }

    #[test]
    fn a_note_without_effect_takes_nothing_from_others() {
        let name = |key: &str| key.parse::<ExternalIdKey>().unwrap().note_name();
        let note = |key: &str, account: u32| {
            format!("[externalId \"{key}\"]\naccountId = {account}\nemail = j@x.de\n")
        };
        let (good, gone, moved) = (
            note("username:j", 5),
            note("x:1", 10),
            note("username:k", 5),
        );
        let elsewhere = note("x:2", 6);
        let several = format!("{}{}", note("x:3", 7), note("x:4", 7));
        let notes = [
            (name("username:j"), good.as_bytes()),
            (name("x:1"), gone.as_bytes()),
            (name("username:l"), moved.as_bytes()),
            (name("x:9"), elsewhere.as_bytes()),
            (name("x:3"), several.as_bytes()),
        ];
        let findings = check_external_ids(notes, |account| account.get() < 10);
        let unusable: Vec<&str> = findings
            .of(Severity::Unusable)
            .map(|finding| finding.problem.what.as_str())
            .collect();
        assert_eq!(
            unusable,
            [
                "account 10 does not exist",
                "the note has the key `username:k` of another name",
                "the note has the key `x:2` of another name",
                "there is a second `externalId` section",
            ]
        );
        assert_eq!(findings.refusals().count(), 4, "{:?}", findings.lines());
        let taken = [
            (name("username:j"), good.as_bytes()),
            (name("x:2"), elsewhere.as_bytes()),
        ];
        let findings = check_external_ids(taken, |_| true);
        assert_eq!(findings.of(Severity::Error).count(), 1);
    }

    #[test]
    fn an_account_has_at_most_100_external_ids() {
        let texts: Vec<(String, String)> = (0..101)
            .map(|number| {
                (
                    format!("x:{number}"),
                    format!("[externalId \"x:{number}\"]\naccountId = 5\n"),
                )
            })
            .collect();
        let texts: Vec<(&str, &str)> = texts
            .iter()
            .map(|(key, text)| (key.as_str(), text.as_str()))
            .collect();
        assert_eq!(
            check(&texts),
            ["error: refs/meta/external-ids: account 5 has 101 external IDs; keep at most 100"]
        );
        assert_eq!(check(&texts[1..]), [""; 0]);
        let faults = [NoteFault::NotANote("README".to_owned())];
        assert!(
            check_notes(&faults).lines()[0]
                .starts_with("error: refs/meta/external-ids: `README` is not a note")
        );
    }

    proptest! {
        #![proptest_config(fixed_seed())]

        #[test]
        fn no_bytes_make_it_panic(
            contents in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 5),
            text in "(\\[[a-z]{0,9}( \"x\")?\\]|[a-zA-Z]{1,9} = .{0,9}|.{0,9})(\n.{0,9}){0,3}",
        ) {
            let paths = FILES.into_iter().chain(["other"]);
            let files = paths.zip(contents.clone()).map(|(path, content)| (path.to_owned(), content)).collect();
            drop(check_user_branch(&files, &[], RULES).lines());
            let files = FILES.map(|path| (path.to_owned(), text.as_bytes().to_vec())).into();
            drop(check_user_branch(&files, &[], RULES).lines());
            let name = NoteName::from_bytes([0; 20]);
            drop(check_external_ids([(name, contents[0].as_slice()), (name, text.as_bytes())], |_| true).lines());
        }
    }
}
