//! Resolves paths that expressions make. The place of the checkout is unknown here and must not matter, so an
//! invented directory stands for it.

use crate::model::{InvalidPath, RepoPath};

/// Invented directory of the checkout in absolute paths.
pub(super) const ROOT: &str = "/(checkout)";

/// Returns the absolute path of a file or directory in the repository.
pub(super) fn absolute(path: &RepoPath) -> String {
    if path.is_root() {
        ROOT.to_owned()
    } else {
        format!("{ROOT}/{path}")
    }
}

/// Returns the path in the repository that a text names: relative to a directory, or absolute. The error is one
/// clause.
pub(super) fn resolve(text: &str, base: &RepoPath) -> Result<RepoPath, String> {
    let (from, rest) = match text.strip_prefix(ROOT) {
        Some(rest) if rest.is_empty() || rest.starts_with('/') => (RepoPath::root(), rest),
        _ if text.starts_with(['/', '~']) => {
            return Err(format!("`{}` is not in this repository", short(text)));
        }
        _ => (base.clone(), text),
    };
    if rest.contains(ROOT) {
        return Err(format!(
            "`{}` depends on the directory of the checkout",
            short(text)
        ));
    }
    from.join(rest).map_err(|invalid| match invalid {
        InvalidPath::Leaves(_) => format!("`{}` is not in this repository", short(text)),
        InvalidPath::Control(_) | InvalidPath::TooLong => "it is not a path".to_owned(),
    })
}

/// Shortens and cleans a text for an error message.
pub(super) fn short(text: &str) -> String {
    const MAX: usize = 120;
    let text = text
        .strip_prefix(ROOT)
        .map_or(text, |rest| rest.trim_start_matches('/'));
    let clean: String = text
        .chars()
        .map(|c| if c.is_control() || c == '`' { '?' } else { c })
        .collect();
    if clean.chars().count() > MAX {
        format!("{}…", clean.chars().take(MAX).collect::<String>())
    } else {
        clean
    }
}

/// Returns the path from one directory to another.
pub(super) fn relative(from: &RepoPath, to: &RepoPath) -> String {
    let parts = |path: &RepoPath| -> Vec<String> {
        if path.is_root() {
            vec![]
        } else {
            path.as_str().split('/').map(str::to_owned).collect()
        }
    };
    let (from, to) = (parts(from), parts(to));
    let common = from
        .iter()
        .zip(&to)
        .take_while(|(one, two)| one == two)
        .count();
    let up = std::iter::repeat_n("..", from.len() - common);
    let path: Vec<&str> = up.chain(to[common..].iter().map(String::as_str)).collect();
    if path.is_empty() {
        ".".to_owned()
    } else {
        path.join("/")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn path(text: &str) -> RepoPath {
        text.parse().unwrap()
    }

    #[test]
    fn paths_stay_in_the_repository() {
        let base = path("a/b");
        for (text, expected) in [
            ("../c", "a/c"),
            ("c", "a/b/c"),
            ("../..", "."),
            ("/(checkout)/x/../y", "y"),
        ] {
            assert_eq!(resolve(text, &base), Ok(path(expected)), "{text}");
        }
        for text in [
            "../../..",
            "/etc/passwd",
            "~/x",
            "/(checkout)/..",
            "/(checkout)x",
            "a/(checkout)/b",
            "a\nb",
        ] {
            assert!(resolve(text, &base).is_err(), "{text}");
        }
    }

    #[test]
    fn a_relative_path_leads_from_one_directory_to_the_other() {
        for (from, to, expected) in [
            (".", "a/b", "a/b"),
            ("a/b", ".", "../.."),
            ("a/b", "a/c/d", "../c/d"),
            ("a", "a", "."),
        ] {
            assert_eq!(relative(&path(from), &path(to)), expected);
        }
    }

    proptest! {
        #[test]
        fn relative_and_resolve_belong_together(from in "[ab](/[ab]){0,3}", to in "[ab](/[ab]){0,3}") {
            let (from, to) = (path(&from), path(&to));
            prop_assert_eq!(resolve(&relative(&from, &to), &from), Ok(to.clone()));
            prop_assert_eq!(resolve(&absolute(&to), &from), Ok(to));
        }
    }
}
