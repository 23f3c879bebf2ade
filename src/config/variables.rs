//! Names of the variables of the server's environment: which ones are never handed over, and which ones stay readable.

/// Beginnings of the names of the server's own settings, secrets among them.
const OF_SERVER: [&str; 2] = ["LOCKKEEPER_", "ATLANTIS_"];

/// Settings of the server under names that many programs know.
const WELL_KNOWN: [&str; 2] = ["DATABASE_URL", PGPASSWORD];

/// Password of the database where its URL has none. It is taken out of the environment although the driver would read it
/// there.
pub(crate) const PGPASSWORD: &str = "PGPASSWORD";

/// Variables that stay where every program with the right to look can read them (`/proc/PID/environ`): what libraries in
/// the process of the server read by themselves. Everything else may be a secret.
const KEPT: &[&str] = &[
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LANGUAGE",
    "TZ",
    "TMPDIR",
    "TMP",
    "TEMP",
    "HOSTNAME",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "ALL_PROXY",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "all_proxy",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "RUST_BACKTRACE",
    "NOTIFY_SOCKET",
    "INVOCATION_ID",
    "JOURNAL_STREAM",
];

/// Beginnings of names that stay as well: locale, what the PostgreSQL driver reads, and by what the program itself is loaded.
const KEPT_PREFIXES: [&str; 3] = ["LC_", "PG", "LD_"];

/// Whether a variable is a setting of the server, in upper or lower case. Nothing that runs gets it.
pub(crate) fn is_of_server(name: &str) -> bool {
    let upper = name.to_ascii_uppercase();
    WELL_KNOWN.contains(&upper.as_str()) || OF_SERVER.iter().any(|prefix| upper.starts_with(prefix))
}

/// Whether a variable stays in the environment of the server's process, where other processes of its user can read it.
pub(crate) fn stays(name: &str) -> bool {
    name != PGPASSWORD
        && (KEPT.contains(&name) || KEPT_PREFIXES.iter().any(|prefix| name.starts_with(prefix)))
}
