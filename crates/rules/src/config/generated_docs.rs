//! Compares generated parts of the documentation with the code, or writes them.

use std::path::{Path, PathBuf};

fn path_of(name: &str) -> PathBuf {
    // The manifest can be in a folder below the root of the project.
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .map(|dir| dir.join(name))
        .find(|path| path.exists())
        .expect("the file exists")
}

/// Reads a file of the project.
pub(super) fn read(name: &str) -> String {
    std::fs::read_to_string(path_of(name)).expect("the file can be read")
}

/// Compares a file with the expected text, or writes that text if `LOCKKEEPER_WRITE_DOCS` is set.
pub(super) fn compare(name: &str, expected: &str) {
    if std::env::var_os("LOCKKEEPER_WRITE_DOCS").is_some() {
        std::fs::write(path_of(name), expected).expect("the file can be written");
        return;
    }
    assert!(
        read(name) == expected,
        "{name} is out of date: run this test with LOCKKEEPER_WRITE_DOCS=1; expected:\n{expected}"
    );
}

/// Compares the text between the marks `<!-- mark:begin -->` and `<!-- mark:end -->`, or writes it.
pub(super) fn compare_block(name: &str, mark: &str, expected: &str) {
    let page = read(name);
    let (begin, end) = (
        format!("<!-- {mark}:begin -->\n"),
        format!("<!-- {mark}:end -->"),
    );
    let (head, rest) = page.split_once(&begin).expect("the page has the mark");
    let (_, tail) = rest.split_once(&end).expect("the page has the mark");
    compare(
        name,
        &format!("{head}{begin}\n{}\n\n{end}{tail}", expected.trim()),
    );
}
