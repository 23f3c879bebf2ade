//! The names and addresses by which pages and API may be asked for: `--atlantis-url`, the listener, `--web-hosts`.
//!
//! A browser sends the name in its address bar. A page of somebody else whose name is pointed at this server (DNS
//! rebinding) is one origin with the answers of this server to the browser, so only known names are answered.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use url::{Host, Url};

/// Longest name of a host (RFC 1035), with the dots.
const LONGEST: usize = 253;

/// A word of the list is no name of a host.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is neither a host name nor an address")]
pub struct InvalidWebHost(String);

/// Names and addresses of the web server. Ports are not compared: they tell nobody apart, and containers and proxies change them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WebHosts {
    known: BTreeSet<String>,
}

impl WebHosts {
    /// Collects what the operator named and where the server listens.
    pub fn new(
        public_url: &Url,
        listen: SocketAddr,
        named: &[impl AsRef<str>],
    ) -> Result<Self, InvalidWebHost> {
        let mut known: BTreeSet<String> = public_url
            .host()
            .map(|host| canonical(host.to_owned()))
            .into_iter()
            .collect();
        let address = listen.ip().to_canonical();
        if address.is_loopback() || address.is_unspecified() {
            known.insert("localhost".to_owned());
            known.extend(
                [
                    IpAddr::V4(Ipv4Addr::LOCALHOST),
                    IpAddr::V6(Ipv6Addr::LOCALHOST),
                ]
                .map(of_address),
            );
        }
        if !address.is_unspecified() {
            known.insert(of_address(address));
        }
        for word in named {
            let word = word.as_ref().trim();
            known.insert(host(word).ok_or_else(|| InvalidWebHost(word.to_owned()))?);
        }
        Ok(Self { known })
    }

    /// Whether the value of `Host` (or `:authority`) names this server. `local` is the address at which the connection was
    /// accepted, one of the listener's where it listens on all.
    pub fn knows(&self, authority: &str, local: Option<IpAddr>) -> bool {
        host_of(authority).is_some_and(|host| {
            self.known.contains(&host)
                || local.is_some_and(|local| of_address(local.to_canonical()) == host)
        })
    }
}

/// The host of `host`, `host:port`, `[::1]:port`; `None`: it is not of that form.
fn host_of(authority: &str) -> Option<String> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:[]".contains(&byte);
    if authority.len() > LONGEST + ":65535".len() || !authority.bytes().all(is_plain) {
        return None;
    }
    let url = Url::parse(&format!("http://{authority}/")).ok()?;
    match url.host()? {
        Host::Domain(name) => host(name),
        Host::Ipv4(address) => Some(of_address(IpAddr::V4(address))),
        Host::Ipv6(address) => Some(of_address(IpAddr::V6(address).to_canonical())),
    }
}

/// One spelling of a name or an address, with or without brackets.
fn host(text: &str) -> Option<String> {
    if let Ok(address) = text.parse::<Ipv6Addr>() {
        return Some(of_address(IpAddr::V6(address).to_canonical()));
    }
    if text.len() > LONGEST || text.contains(['*', '/', '%', '@']) {
        return None;
    }
    Host::parse(text.strip_suffix('.').unwrap_or(text))
        .ok()
        .map(canonical)
}

fn canonical(host: Host<String>) -> String {
    match host {
        Host::Domain(name) => name.to_ascii_lowercase(),
        Host::Ipv4(address) => of_address(IpAddr::V4(address)),
        Host::Ipv6(address) => of_address(IpAddr::V6(address).to_canonical()),
    }
}

fn of_address(address: IpAddr) -> String {
    address.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(url: &str, listen: &str, named: &[&str]) -> WebHosts {
        WebHosts::new(&url.parse().unwrap(), listen.parse().unwrap(), named).unwrap()
    }

    #[test]
    fn only_names_of_the_server_are_known() {
        let any = hosts(
            "https://Locks.Example/base/",
            "0.0.0.0:4141",
            &["lockkeeper.internal", "2001:db8::7"],
        );
        let local = Some("10.0.0.5".parse().unwrap());
        for known in [
            "locks.example",
            "LOCKS.example:4141",
            "locks.example.",
            "lockkeeper.internal:80",
            "[2001:db8::7]",
            "[2001:db8:0::7]:443",
            "localhost:4141",
            "127.0.0.1",
            "[::1]:4141",
            "10.0.0.5:4141",
            "[::ffff:10.0.0.5]",
        ] {
            assert!(any.knows(known, local), "{known}");
        }
        for foreign in [
            "",
            "evil.example",
            "evil.example:4141",
            "locks.example.evil.example",
            "evil-locks.example",
            "sub.locks.example",
            "localhost.evil.example",
            "10.0.0.6",
            "127.0.0.2",
            "locks.example@evil.example",
            "evil.example@locks.example",
            "locks.example:80@evil.example",
            "locks.example, evil.example",
            "locks.example/evil",
            "locks.example:port",
            "locks.example:123456",
            "[::1",
            ":4141",
            "*",
        ] {
            assert!(!any.knows(foreign, local), "{foreign}");
        }
        assert!(!any.knows("10.0.0.5", None));
    }

    #[test]
    fn a_server_at_one_address_is_not_localhost() {
        let one = hosts("https://locks.example", "192.0.2.7:443", &[]);
        assert!(
            one.knows("192.0.2.7", None)
                && !one.knows("localhost", None)
                && !one.knows("127.0.0.1", None)
        );
        let loopback = hosts("https://locks.example", "[::1]:443", &[]);
        assert!(loopback.knows("[::1]:443", None) && loopback.knows("localhost", None));
    }

    #[test]
    fn a_word_that_is_no_host_is_named() {
        let url: Url = "https://locks.example".parse().unwrap();
        for wrong in [
            "https://a.example",
            "a.example:80",
            "*.example",
            "a b",
            "@",
            "a/b",
        ] {
            let read = WebHosts::new(&url, "0.0.0.0:1".parse().unwrap(), &["fine.example", wrong]);
            assert_eq!(read, Err(InvalidWebHost(wrong.to_owned())), "{wrong}");
        }
    }
}
