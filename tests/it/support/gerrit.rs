//! `All-Users` of a Gerrit server, as a copy with `git clone --mirror` has it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use gix_object::Kind;
use lockkeeper_accounts::objects::GitObject;
use sha1::{Digest as _, Sha1};

use crate::accounts::run;

/// Key that the server accepts.
pub const KEY: &str =
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIH4PWjuUaTknk9rXvmtxjmDRUDFgFsCqFUh7wG5XWKdd";
const RSA_1024: &str = "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAAAgQDazV0nSs5YJOGYZysqB6ija2P31tYzTh/cBiT/VTg9Sl2a9TIJ7q2ARW2joD8iq/TVBy2sCsneHyknWjg5OoLEHxScd2MN+408mgQghHxFDZ+f/k6ubplFK1Qy7X/cZ1KsBjRGwMbewxW/lav7/Lf2Fc1mM/O7Q6mupB70ffb0Ew==";
/// Password as the description of the format shows it.
const PASSWORD: &str = "bcrypt:4:LCbmSBDivK/hhGVQMfkDpA==:XcWn0pKYSVU/UJgOvhidkEtmqCp6oKB7";

pub const ANN: u32 = 1_000_000;
pub const BEN: u32 = 1_000_001;
pub const CYD: u32 = 1_000_002;
/// Account with an empty directory.
pub const NEW: u32 = 1_000_003;
/// Account that was deleted. An external ID still names it.
pub const GONE: u32 = 1_000_009;

/// Watches with operators of Gerrit. The one in line 4 can be used.
pub const WATCHES: &str = "[project \"infra\"]
\tnotify = branch:main AND file:^docs/.* [ALL]
\tnotify = message:foo [ALL]
\tnotify = (branch:main OR branch:stable) -owner:self [SUBMITTED_CHANGES]
\tnotify = branch:^release/.* [ALL_COMMENTS]
\tnotify = visibleto:ben [NEW_CHANGES]
\tnotify = \"message:\\\"some words\\\" [ALL]\"
\tnotify = NOT status:merged [ALL]
\tnotify = branch:main [REVIEWS, ALL]
\tnotify = branch:main
[project \"docs\"]
\tnotify = owner:cyd [ALL]
";

/// Parts of the repository that tests change before they write it.
pub struct Gerrit {
    /// Files of each account.
    pub users: BTreeMap<u32, Vec<(&'static str, String)>>,
    /// Contents of external IDs, by path.
    pub notes: BTreeMap<String, String>,
    /// Next free account number.
    pub sequence: u32,
}

/// Returns the path of the note for this key, with the folders of Gerrit.
fn note_path(key: &str) -> String {
    let name = hex::encode(Sha1::digest(key));
    format!("{}/{}", &name[..2], &name[2..])
}

impl Gerrit {
    /// Returns what people have after some years. Much of it has no effect in Lockkeeper.
    pub fn after_years() -> Self {
        let keys = format!(
            "ssh-dss AAAAB3NzaC1kc3MAAACBAIDxGaAUgeBeUWYFIYQhlC+r9Q41 ben@old\n{RSA_1024} ben@desk\n# DELETED\n\
             # INVALID ssh-rsa AAAAB3 ben@lost\n{KEY} ben@laptop\nssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAA ben@cut\n\
             # EXPIRES 2030-12-31T00:00:00Z {KEY} ben@guest\n"
        );
        let text = str::to_owned;
        let users = [
            (
                ANN,
                vec![
                    (
                        "account.config",
                        text(
                            "[account]\n\tfullName = Ann\n\tpreferredEmail = ann@example.com\n\tdisplayName = Annie\n",
                        ),
                    ),
                    ("preferences.config", text("[diff]\n\tcontext = -1\n")),
                    (
                        "watch.config",
                        text(
                            "[project \"infra\"]\n\tnotify = * [ALL_COMMENTS]\n\tnotify = branch:main [NEW_CHANGES, NEW_PATCHSETS]\n",
                        ),
                    ),
                    ("authorized_keys", format!("{KEY} ann@laptop\n")),
                ],
            ),
            (
                BEN,
                vec![
                    (
                        "account.config",
                        text("[account]\n\tfullName = Ben\n\tpreferredEmail = ben@example.com\n"),
                    ),
                    (
                        "preferences.config",
                        text(
                            "[general]\n\tchangesPerPage = 200\n\ttheme = SOLARIZED\n[diff]\n\tcontext = 5000\n\ttabSize = 4\n\
                             \tsyntaxHighlighting = false\n",
                        ),
                    ),
                    ("watch.config", text(WATCHES)),
                    ("authorized_keys", keys),
                ],
            ),
            (
                CYD,
                vec![
                    (
                        "account.config",
                        text(
                            "[account]\n\tfullName = Cyd\n\tpreferredEmail = boss@example.com\n\tactive = false\n",
                        ),
                    ),
                    ("preferences.config", text("[general]\n\ttheme DARK\n")),
                    (
                        "watch.config",
                        text("[project \"infra\"\n\tnotify = * [ALL]\n"),
                    ),
                ],
            ),
            (NEW, Vec::new()),
        ];
        let mut gerrit = Self {
            users: users.into_iter().collect(),
            notes: BTreeMap::new(),
            sequence: GONE + 1,
        };
        let password = format!("\tpassword = {PASSWORD}\n");
        for (key, account, rest) in [
            ("gerrit:ann", ANN, "\temail = ann@example.com\n"),
            ("username:ann", ANN, password.as_str()),
            ("mailto:ann@example.com", ANN, "\temail = ann@example.com\n"),
            ("https://openid.example.com/ann", ANN, ""),
            ("gerrit:ben", BEN, "\temail = ben\n"),
            ("username:ben", BEN, "\tpassword = plain-old-secret\n"),
            ("mailto:ben@example.com", BEN, "\temail = ben@example.com\n"),
            ("mailto:cyd@example.com", CYD, "\temail = cyd@example.com\n"),
            ("jdoe", CYD, ""),
            ("gerrit:gone", GONE, "\temail = ann@example.com\n"),
        ] {
            gerrit.link(key, key, account, rest);
        }
        // A server for which `Cyd` and `cyd` are one name.
        gerrit.link("username:cyd", "username:Cyd", CYD, "");
        gerrit.link("gerrit:cyd", "gerrit:Cyd", CYD, "");
        let broken = "[externalId \"gerrit:broken\"\n\taccountId = 1000000\n".to_owned();
        gerrit.notes.insert(note_path("gerrit:broken"), broken);
        gerrit
    }

    /// Adds an external ID, in the note for `name`.
    pub fn link(&mut self, name: &str, key: &str, account: u32, rest: &str) {
        let text = format!("[externalId \"{key}\"]\n\taccountId = {account}\n{rest}");
        self.notes.insert(note_path(name), text);
    }

    /// Replaces a file of an account.
    pub fn put(&mut self, account: u32, file: &'static str, text: &str) {
        let files = self.users.entry(account).or_default();
        files.retain(|(name, _)| *name != file);
        files.push((file, text.to_owned()));
    }

    /// Writes a bare repository.
    pub fn write(&self, dir: &Path) {
        let mut stream = Stream::default();
        for (number, files) in &self.users {
            let name = format!("refs/users/{:02}/{number}", number % 100);
            let first = stream.commit(&name, "Create Account", [], None);
            if *number == CYD {
                // A change that was submitted twice at the same time.
                stream.commit(&name, "Merge Change", [], Some(first - 1));
            }
            if !files.is_empty() {
                let files = files.iter().map(|(path, text)| (*path, text.as_str()));
                stream.commit(&name, "Update Account", files, None);
            }
        }
        let defaults = "[general]\n\tchangesPerPage = 5\n[my \"Changes\"]\n\turl = \"#/dashboard/self\"\n[diff]\n\ttabSize = 4\n";
        let rules = "[access]\n\tinheritFrom = All-Projects\n[submit]\n\taction = cherry pick\n\
                     [access \"refs/users/${shardeduserid}\"]\n\texclusiveGroupPermissions = read push submit\n\
                     \tread = group Registered Users\n\tpush = group Registered Users\n\
                     \tlabel-Code-Review = -2..+2 group Registered Users\n\tsubmit = group Registered Users\n\
                     [access \"refs/groups/*\"]\n\tread = group Administrators\n";
        let uuid = "5057f3cbd3519d6ab69364429a89ffdffba50f73";
        let groups = format!("# UUID\tGroup Name\n#\n{uuid}\tAdministrators\n");
        let group = "[group]\n\tname = Administrators\n\tid = 1\n\townerGroupUuid = 5057f3cb\n";
        let draft = "{\"comments\": []}\n";
        for (name, files) in [
            ("refs/users/default", vec![("preferences.config", defaults)]),
            (
                "refs/meta/config",
                vec![("project.config", rules), ("groups", groups.as_str())],
            ),
            (
                "refs/groups/50/5057f3cbd3519d6ab69364429a89ffdffba50f73",
                vec![("group.config", group), ("members", "1000000\n")],
            ),
            (
                "refs/meta/group-names",
                vec![("d2/e80ad0ec43a07ee6b2e4e9c2ee5eb9e1b3ed24", group)],
            ),
            (
                "refs/draft-comments/17/17/1000000",
                vec![("7d94e1c9ca1c05d2b51a8fa9d6f2a1f1c5a5e1b4", draft)],
            ),
            ("refs/users/57/1000856", Vec::new()),
        ] {
            stream.commit(name, "Update", files, None);
        }
        let notes = self.notes.iter();
        let notes = notes.map(|(path, text)| (path.as_str(), text.as_str()));
        stream.commit("refs/meta/external-ids", "Update external IDs", notes, None);
        let sequence = self.sequence.to_string();
        let blobs = [
            ("refs/sequences/accounts", sequence.as_str()),
            ("refs/sequences/changes", "21"),
            ("refs/sequences/groups", "2"),
            ("refs/starred-changes/17/17/1000000", "star"),
            ("refs/starred-changes/18/18/1000001", "star\nignore"),
            ("refs/starred-changes/19/19/1000009", "star"),
            ("refs/starred-changes/20/20/1000001", "reviewed/1\nstar"),
        ];
        let mut refs = "create refs/users/self refs/users/00/1000000\n".to_owned();
        for (name, text) in blobs {
            stream.blob(text);
            let id = GitObject::new(Kind::Blob, text.as_bytes().to_vec()).id;
            writeln!(refs, "create {name} {id}").unwrap();
        }
        let dir = dir.to_str().unwrap();
        let git = |args: &[&str], input: &str| {
            let said = run("git", args, input);
            assert_eq!(said.code, 0, "{args:?}: {}", said.err);
        };
        git(&["init", "--quiet", "--bare", dir], "");
        git(&["-C", dir, "fast-import", "--quiet"], &stream.text);
        git(&["-C", dir, "update-ref", "--stdin"], &refs);
    }
}

/// Input of `git fast-import`.
#[derive(Default)]
struct Stream {
    text: String,
    commits: usize,
}

impl Stream {
    /// Adds a commit to a branch, and returns its number.
    fn commit<'a>(
        &mut self,
        name: &str,
        message: &str,
        files: impl IntoIterator<Item = (&'a str, &'a str)>,
        merged: Option<usize>,
    ) -> usize {
        self.commits += 1;
        let number = self.commits;
        let text = &mut self.text;
        writeln!(text, "commit {name}\nmark :{number}").unwrap();
        // Each account is a day older than the next one.
        let at = 1_577_836_800 + 86_400 * number;
        writeln!(
            text,
            "committer Gerrit Code Review <gerrit@example.com> {at} +0000"
        )
        .unwrap();
        writeln!(text, "data {}\n{message}", message.len()).unwrap();
        if let Some(merged) = merged {
            writeln!(text, "merge :{merged}").unwrap();
        }
        for (path, content) in files {
            writeln!(
                text,
                "M 100644 inline {path}\ndata {}\n{content}",
                content.len()
            )
            .unwrap();
        }
        number
    }

    fn blob(&mut self, content: &str) {
        writeln!(self.text, "blob\ndata {}\n{content}", content.len()).unwrap();
    }
}
