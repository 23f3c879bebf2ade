//! Names of environment variables of the server: those that no child process gets, and those that stay readable.

/// Prefixes of the names of the server's own settings, including secrets.
const OF_SERVER: [&str; 2] = ["LOCKKEEPER_", "ATLANTIS_"];

/// Beginning of the names of variables with the credentials of object stores, followed by the usual names such as
/// `AWS_SECRET_ACCESS_KEY`. Runs get the usual variables, but none of these.
pub const STORE_VARIABLES: &str = "LOCKKEEPER_STORE_";

/// Settings of the server under names that many programs know.
const WELL_KNOWN: [&str; 2] = ["DATABASE_URL", PGPASSWORD];

/// Password of the database, for a URL without one. The server removes it from the environment, although the driver
/// could read it there.
pub const PGPASSWORD: &str = "PGPASSWORD";

/// Variables that stay in the environment of the process, where other programs of the same user can read them
/// (`/proc/PID/environ`). Libraries in the process read them directly. Every other variable may be a secret.
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

/// Prefixes of further names that stay: the locale, variables of the PostgreSQL driver, and variables of the dynamic
/// loader.
const KEPT_PREFIXES: [&str; 3] = ["LC_", "PG", "LD_"];

/// Returns true if the variable is a setting of the server, in upper or lower case. Child processes never get it.
pub fn is_of_server(name: &str) -> bool {
    let upper = name.to_ascii_uppercase();
    WELL_KNOWN.contains(&upper.as_str()) || OF_SERVER.iter().any(|prefix| upper.starts_with(prefix))
}

/// Returns true if the variable stays in the environment of the server's process, where other processes of its user
/// can read it.
pub fn stays(name: &str) -> bool {
    name != PGPASSWORD
        && (KEPT.contains(&name) || KEPT_PREFIXES.iter().any(|prefix| name.starts_with(prefix)))
}
