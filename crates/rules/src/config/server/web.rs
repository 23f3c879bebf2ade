//! Settings of the web server: its addresses and its users.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use url::Url;

use super::github::web_url;
use super::hosts::WebHosts;
use super::proxies::TrustedProxies;
use super::reader::{ReadResult, SettingReader};
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

/// Settings of the web server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebConfig {
    /// Address and port to listen on; port 0 takes any free one.
    pub listen: SocketAddr,
    /// URL at which people reach the server. It ends with a slash; join relative paths to it.
    pub public_url: Url,
    /// Access to the pages.
    pub auth: WebAccess,
    /// Certificate and key, if the server does TLS itself.
    pub tls: Option<TlsFiles>,
    /// Names and addresses that requests may use.
    pub hosts: WebHosts,
    /// Proxies that tell the server where a request comes from.
    pub trusted_proxies: TrustedProxies,
}

impl WebConfig {
    pub(super) fn read(reader: &mut SettingReader<'_>) -> ReadResult<Self> {
        let listen = read_listen(reader);
        let given_url = reader.parsed(
            "atlantis-url",
            web_url,
            "write the URL people use, such as `https://locks.example.com`",
        );
        let auth = read_auth(reader);
        let tls = read_tls(reader);
        let trusted_proxies = read_proxies(reader);
        let hosts = reader.list("web-hosts");
        let (listen, given_url) = (listen?, given_url?);
        let public_url = match given_url {
            Some(url) => url,
            None => default_url(reader, listen.port(), matches!(tls, Ok(Some(_))))?,
        };
        let hosts = WebHosts::new(&public_url, listen, &hosts).or_else(|problem| {
            let fix =
                "write names or addresses without a port, such as `lockkeeper.internal`, separated by commas";
            reader.refuse("web-hosts", problem.to_string(), fix)
        });
        Ok(Self {
            listen,
            public_url,
            auth: auth?,
            tls: tls?,
            hosts: hosts?,
            trusted_proxies: trusted_proxies?,
        })
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

fn read_proxies(reader: &mut SettingReader<'_>) -> ReadResult<TrustedProxies> {
    let flag = "trusted-proxies";
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
