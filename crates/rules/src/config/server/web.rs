//! Settings of the web server: its addresses and its users.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use url::Url;

use super::github::web_url;
use super::hosts::WebHosts;
use super::proxies::TrustedProxies;
use super::reader::{ReadResult, SettingReader};
use super::section::section;
use crate::secret::Secret;

/// Access to the pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WebAccess {
    /// Every visitor may look, but not change anything unless another setting allows it.
    Open,
    /// Users need a password (HTTP Basic).
    Basic {
        /// Name of the user.
        username: String,
        /// Password of the user.
        password: Secret,
    },
}

/// Files for TLS, in PEM. The server reads them again when they change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// Certificate of the server, followed by its chain.
    pub certificate: PathBuf,
    /// Private key of the certificate.
    pub key: PathBuf,
}

section! {
    /// Settings of the web server: its addresses and its users.
    pub struct WebConfig in Web {
        /// Address and port to listen on; port 0 takes any free one.
        pub listen: SocketAddr = read_listen from {
            /// Port to listen on; 0 takes any free one.
            number("port", "NUMBER", 0, 65535).or("4141"),

            /// Address to listen on.
            text("bind-address", "ADDRESS").or("0.0.0.0"),
        },

        /// URL at which people reach the server. It ends with a slash; join relative paths to it.
        pub public_url: Url = read_public_url from {
            /// URL at which people reach this server; it may have a path.
            text("atlantis-url", "URL")
                .also(&["public-url"])
                .or_derived("http://<host name>:<port>; with a certificate https"),
        },

        /// Access to the pages.
        pub auth: WebAccess = read_auth from {
            /// Require --web-username and --web-password for the pages. Without it, pages and API are read-only and
            /// do not show the output of runs.
            switch("web-basic-auth"),

            /// User name for the pages.
            text("web-username", "NAME").or_with_compat("lockkeeper", "atlantis"),

            /// Password for the pages, at least 16 characters; there is no default.
            secret("web-password", "PASSWORD"),
        },

        /// Certificate and key, if the server does TLS itself.
        pub tls: Option<TlsFiles> = read_tls from {
            /// Certificate chain (PEM) for https, together with --ssl-key-file; read again when it changes.
            path("ssl-cert-file", "FILE").must_exist().fixed_in_runs("the certificate"),

            /// Private key (PEM) of that certificate.
            path("ssl-key-file", "FILE").must_exist().hidden_from_runs("the private key"),
        },

        /// Additional host names and addresses of the pages and the API, such as `lockkeeper.internal`. Those of
        /// --atlantis-url and of the listener are known. Requests for other hosts are answered with 421.
        pub hosts: WebHosts = list("web-hosts", "NAMES") => read_hosts,

        /// Proxies whose `X-Forwarded-For` is trusted for the address of the client, as in `10.0.0.0/8,::1`. The
        /// audit log contains that address. Not set: the address of the connection. Other clients can have 64
        /// connections at most.
        pub trusted_proxies: TrustedProxies = list("trusted-proxies", "NETWORKS") => read_proxies,
    }
}

impl WebConfig {
    /// Returns the URL at which people reach the server, without a slash at the end.
    pub fn base_url(&self) -> &str {
        self.public_url.as_str().trim_end_matches('/')
    }
}

fn read_listen(reader: &mut SettingReader<'_>) -> ReadResult<SocketAddr> {
    let port = reader.number::<u16>("port");
    let address = reader.parsed(
        "bind-address",
        parse_address,
        "write an IP address such as `127.0.0.1` or `::`",
    );
    let (port, address) = (port?, address?);
    Ok(SocketAddr::new(
        address.expect("the address has a default"),
        port.expect("the port has a default"),
    ))
}

fn parse_address(text: &str) -> Result<IpAddr, String> {
    text.parse()
        .map_err(|_| format!("`{text}` is not an IP address"))
}

/// Reads both files or none (reference 10.4).
fn read_tls(reader: &mut SettingReader<'_>) -> ReadResult<Option<TlsFiles>> {
    match (reader.path("ssl-cert-file"), reader.path("ssl-key-file")) {
        (None, None) => Ok(None),
        (Some(certificate), Some(key)) => Ok(Some(TlsFiles { certificate, key })),
        (Some(_), None) => reader.refuse(
            "ssl-key-file",
            "missing, but there is a certificate",
            "name the file with the private key of the certificate",
        ),
        (None, Some(_)) => reader.refuse(
            "ssl-cert-file",
            "missing, but there is a private key",
            "name the file with the certificate of the key",
        ),
    }
}

pub(super) fn read_public_url(reader: &mut SettingReader<'_>) -> ReadResult<Url> {
    let fix = "write the URL people use, such as `https://locks.example.com`";
    if let Some(url) = reader.parsed("atlantis-url", web_url, fix)? {
        return Ok(url);
    }
    let port = read_listen(reader)?.port();
    let is_tls = matches!(read_tls(reader), Ok(Some(_)));
    default_url(reader, port, is_tls)
}

/// Returns `http://<host name>:<port>` (reference 10.1), with `https` if there is a certificate.
fn default_url(reader: &mut SettingReader<'_>, port: u16, is_tls: bool) -> ReadResult<Url> {
    let host = match reader.raw().hostname.as_str() {
        "" => "localhost",
        name => name,
    };
    let scheme = if is_tls { "https" } else { "http" };
    match web_url(&format!("{scheme}://{host}:{port}")) {
        Ok(url) => Ok(url),
        Err(_) => reader.refuse(
            "atlantis-url",
            format!("not set, and the name of this machine, `{host}`, does not give a valid URL"),
            "set it to the URL that people use",
        ),
    }
}

fn read_hosts(reader: &mut SettingReader<'_>, flag: &'static str) -> ReadResult<WebHosts> {
    let (listen, public_url) = (read_listen(reader)?, read_public_url(reader)?);
    WebHosts::new(&public_url, listen, &reader.list(flag)).or_else(|problem| {
        let fix = "write names or addresses without a port, such as `lockkeeper.internal`, separated by commas";
        reader.refuse(flag, problem.to_string(), fix)
    })
}

fn read_proxies(reader: &mut SettingReader<'_>, flag: &'static str) -> ReadResult<TrustedProxies> {
    let fix = "write addresses, or networks such as `10.0.0.0/8`, separated by commas";
    TrustedProxies::new(&reader.list(flag))
        .or_else(|problem| reader.refuse(flag, problem.to_string(), fix))
}

fn read_auth(reader: &mut SettingReader<'_>) -> ReadResult<WebAccess> {
    let named = reader.given("web-username").is_some();
    let username = reader.text("web-username").unwrap_or_default();
    let password = reader.secret("web-password");
    match (reader.switch("web-basic-auth")?, password) {
        (true, Some(password)) => {
            reader.long_enough("web-password", &password)?;
            Ok(WebAccess::Basic { username, password })
        }
        (true, None) => reader.refuse(
            "web-password",
            "missing, but --web-basic-auth is set; there is no default password",
            "set LOCKKEEPER_WEB_PASSWORD",
        ),
        (false, None) if !named => Ok(WebAccess::Open),
        (false, _) => reader.refuse(
            "web-basic-auth",
            "not set, but a user name or password for the pages is set, which would have no effect",
            "set --web-basic-auth, or remove --web-username and --web-password",
        ),
    }
}
