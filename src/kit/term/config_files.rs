//! Reads the files that are part of the configuration. `config` itself uses no disk.

use std::io::{Error, Result};
use std::path::Path;

use crate::config::read_text;
use crate::config::server::{HostsFile, RawSettings, SETTINGS, ServerRepos, secret_files_of_hosts};
use crate::secret::Secret;

/// Settings that name a file which is part of the configuration, with its maximum size in bytes.
const PARTS: [(&str, usize); 2] = [
    ("repo-config", ServerRepos::MAX_BYTES),
    ("gh-hosts-file", HostsFile::MAX_BYTES),
];

/// Adds the texts of the files that settings name.
pub(crate) fn add(mut raw: RawSettings) -> RawSettings {
    for (flag, most) in PARTS {
        let setting = SETTINGS.iter().find(|setting| setting.flag == flag);
        if let Some(given) = setting.and_then(|setting| raw.given(setting)) {
            let text = read_file(&raw.absolute(given.text.trim()), most)
                .map_err(|error| error.to_string());
            raw.files.insert(flag.to_owned(), text);
        }
    }
    raw
}

/// Adds the secrets in the files that the file of `--gh-hosts-file` names, after [`add`].
pub(crate) fn add_secrets(mut raw: RawSettings) -> RawSettings {
    for path in secret_files_of_hosts(&raw) {
        let secret = read_secret(&path).map_err(|error| error.to_string());
        raw.secret_files.insert(path, secret);
    }
    raw
}

fn read_secret(path: &Path) -> Result<Secret> {
    let most = HostsFile::MAX_SECRET_BYTES;
    let text = read_file(path, most)?;
    if text.len() > most {
        return Err(Error::other(format!("it is larger than {most} bytes")));
    }
    Ok(Secret::new(&text))
}

fn read_file(path: &Path, most: usize) -> Result<String> {
    read_text(std::fs::File::open(path)?, most)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn files_that_are_part_of_the_configuration_are_read() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("repos.yaml"), "repos: []\n").unwrap();
        std::fs::write(
            dir.path().join("large.yaml"),
            " ".repeat(ServerRepos::MAX_BYTES * 2),
        )
        .unwrap();
        std::fs::write(dir.path().join("binary.yaml"), [0xff, 0xfe]).unwrap();
        let length = |file: &str| {
            let flags = BTreeMap::from([("repo-config".to_owned(), vec![file.to_owned()])]);
            let raw = RawSettings {
                flags,
                working_dir: dir.path().to_owned(),
                ..RawSettings::default()
            };
            add(raw).files["repo-config"]
                .as_ref()
                .map(String::len)
                .map_err(String::clone)
        };
        assert_eq!(length("repos.yaml"), Ok(10));
        assert_eq!(length("large.yaml"), Ok(ServerRepos::MAX_BYTES + 1));
        assert_eq!(
            length("binary.yaml"),
            Err("line 1 is not UTF-8; save the file as UTF-8".to_owned())
        );
        for file in ["absent.yaml", "."] {
            assert!(length(file).is_err(), "{file}");
        }
        assert!(add(RawSettings::default()).files.is_empty());
    }

    #[test]
    fn the_secrets_that_the_file_of_hosts_names_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let hosts =
            "hosts: [{token_file: token, webhook_secret_file: absent, app: {key_file: large}}]";
        let large = " ".repeat(HostsFile::MAX_SECRET_BYTES + 1);
        for (name, text) in [
            ("hosts.yaml", hosts),
            ("token", "ghp_x\n"),
            ("large", &large),
        ] {
            std::fs::write(dir.path().join(name), text).unwrap();
        }
        let flags = BTreeMap::from([("gh-hosts-file".to_owned(), vec!["hosts.yaml".to_owned()])]);
        let raw = add_secrets(add(RawSettings {
            flags,
            working_dir: dir.path().to_owned(),
            ..RawSettings::default()
        }));
        let read = |name: &str| raw.secret_files[&dir.path().join(name)].clone();
        assert_eq!(read("token"), Ok(Secret::new("ghp_x")));
        assert_eq!(
            read("large"),
            Err("it is larger than 65536 bytes".to_owned())
        );
        assert!(read("absent").is_err());
        assert_eq!(raw.secret_files.len(), 3);
    }
}
