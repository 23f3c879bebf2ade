//! Adds the settings of the `--config` file to those of flags and environment.

use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use crate::config::server::{RawSettings, SETTINGS, SettingsFile, StartupProblem};

/// Adds the settings of the file, if one is named. Also returns the problems of the file.
pub(crate) fn add(raw: RawSettings) -> (RawSettings, Vec<StartupProblem>) {
    let setting = SETTINGS.iter().find(|setting| setting.flag == "config");
    let given = setting
        .and_then(|setting| raw.given(setting))
        .map(|given| raw.absolute(given.text.trim()));
    let Some(path) = given else {
        return (raw, Vec::new());
    };
    match read(&path) {
        Ok((settings_file, problems)) => (
            RawSettings {
                settings_file,
                ..raw
            },
            problems,
        ),
        Err(error) => {
            let what = format!("`{}` cannot be read: {error}", path.display());
            let fix = "check the path, and that the account of the server may read the file";
            (raw, vec![StartupProblem::with("config", what, fix)])
        }
    }
}

fn read(path: &Path) -> std::io::Result<(SettingsFile, Vec<StartupProblem>)> {
    let file = std::fs::File::open(path)?;
    let everybody_reads = file.metadata()?.permissions().mode() & 0o004 != 0;
    let mut text = String::new();
    // One byte more than allowed shows that the file is too large.
    file.take(SettingsFile::MAX_BYTES as u64 + 1)
        .read_to_string(&mut text)?;
    let (file, problems) = SettingsFile::parse(&path.display().to_string(), &text);
    Ok((
        if everybody_reads {
            file.readable_by_all()
        } else {
            file
        },
        problems,
    ))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs::Permissions;

    use super::*;

    fn raw(dir: &Path, file: &str) -> RawSettings {
        let variables = BTreeMap::from([("ATLANTIS_CONFIG".to_owned(), file.to_owned())]);
        RawSettings {
            variables,
            working_dir: dir.to_owned(),
            ..RawSettings::default()
        }
    }

    #[test]
    fn the_file_that_is_named_is_read() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("s.yaml"), "port: 80\nprot: 81\n").unwrap();
        let (raw, problems) = add(raw(dir.path(), "s.yaml"));
        let port = SETTINGS
            .iter()
            .find(|setting| setting.flag == "port")
            .unwrap();
        assert_eq!(raw.given(port).map(|given| given.text), Some("80"));
        assert_eq!(problems.len(), 1);
        assert_eq!(add(RawSettings::default()).1, []);
    }

    #[test]
    fn a_file_that_cannot_be_read_is_a_problem() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("binary"), [0xff]).unwrap();
        for file in ["absent", ".", "binary"] {
            let told = add(raw(dir.path(), file))
                .1
                .first()
                .map(ToString::to_string)
                .unwrap();
            assert!(
                told.starts_with("--config (LOCKKEEPER_CONFIG): `/")
                    && told.contains("cannot be read"),
                "{told}"
            );
        }
    }

    #[test]
    fn it_is_noticed_that_everybody_can_read_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s.yaml");
        std::fs::write(&path, "gh-token: x\n").unwrap();
        let seen = [0o644, 0o640].map(|mode| {
            std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            read(&path).unwrap().0
        });
        let closed = seen[1].clone();
        assert!(seen[0] == closed.clone().readable_by_all() && seen[0] != closed);
    }
}
