//! Host names and addresses of the pages and the API: `--atlantis-url`, the listener, `--web-hosts`.
//!
//! A browser sends the name in its address bar. An attacker can point their own name at this server (DNS rebinding).
//! Their page and the answers of this server are then one origin for the browser. So the server answers only requests
//! for known names.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use url::{Host, Url};

/// Maximum length of a host name, with the dots (RFC 1035).
const LONGEST: usize = 253;

/// A word of the list is not a host name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is neither a host name nor an address")]
pub struct InvalidWebHost(String);

/// Names and addresses of the web server. Ports are not compared: they distinguish nobody, and containers and proxies
/// change them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WebHosts {
    known: BTreeSet<String>,
}

impl WebHosts {
    /// Collects the names that the administrator listed, and the address of the listener.
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

    /// Returns true if the value of `Host` (or `:authority`) names this server. `local` is the address that accepted
    /// the connection, which is useful if the listener accepts all addresses.
    pub fn knows(&self, authority: &str, local: Option<IpAddr>) -> bool {
        // Nearly all requests have a name as it is listed. To parse it takes longer than the check.
        if plain_name(authority).is_some_and(|name| self.known.contains(name)) {
            return true;
        }
        host_of(authority).is_some_and(|host| {
            self.known.contains(&host)
                || local.is_some_and(|local| of_address(local.to_canonical()) == host)
        })
    }
}

/// Returns `host` of `host` or `host:port`, as it is written.
fn plain_name(authority: &str) -> Option<&str> {
    let (name, port) = authority.split_once(':').unwrap_or((authority, "0"));
    let is_port = port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_ok();
    is_port.then_some(name)
}

/// Returns the host of `host`, `host:port` or `[::1]:port`. Returns `None` for any other form.
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

/// Returns the canonical spelling of a name or an address, with or without brackets.
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
