//! Trusted proxies, which tell the server where a request comes from: `--trusted-proxies`.
//!
//! Every client can write anything into `X-Forwarded-For`. Each proxy appends the address that it saw. So the server
//! reads the list from its end, and stops at the first address that is not a trusted proxy.

use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;

/// Maximum number of addresses of one request that the server reads. It ignores the others.
const MOST_HOPS: usize = 16;

/// A word of the list is neither an address nor a network.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is neither an address nor a network")]
pub struct InvalidNetwork(String);

/// Networks with trusted proxies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrustedProxies(Vec<IpNet>);

impl TrustedProxies {
    /// Parses addresses and networks.
    pub fn new(words: &[impl AsRef<str>]) -> Result<Self, InvalidNetwork> {
        let network = |word: &str| {
            let one = || word.parse::<IpAddr>().ok().map(IpNet::from);
            word.parse::<IpNet>()
                .ok()
                .or_else(one)
                .ok_or_else(|| InvalidNetwork(word.to_owned()))
        };
        words
            .iter()
            .map(|word| network(word.as_ref().trim()))
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// Returns true if a trusted proxy has this address.
    pub fn trusts(&self, address: IpAddr) -> bool {
        self.0.iter().any(|network| network.contains(&address))
    }

    /// Returns the sender of a request that came from `peer` with these values of `X-Forwarded-For`. The sender is
    /// the first address, from the end, that is not a trusted proxy.
    pub fn client<'a>(&self, peer: IpAddr, forwarded: impl IntoIterator<Item = &'a str>) -> IpAddr {
        let mut client = peer.to_canonical();
        let hops: Vec<&str> = forwarded
            .into_iter()
            .flat_map(|value| value.split(','))
            .collect();
        for hop in hops.into_iter().rev().take(MOST_HOPS) {
            match address(hop.trim()) {
                Some(before) if self.trusts(client) => client = before,
                Some(_) | None => break,
            }
        }
        client
    }
}

/// Parses `192.0.2.1`, `192.0.2.1:80`, `2001:db8::1`, `[2001:db8::1]:80`.
fn address(text: &str) -> Option<IpAddr> {
    let with_port = || text.parse::<SocketAddr>().ok().map(|address| address.ip());
    text.parse::<IpAddr>()
        .ok()
        .or_else(with_port)
        .map(|address| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(proxies: &[&str], peer: &str, forwarded: &[&str]) -> String {
        let proxies = TrustedProxies::new(proxies).unwrap();
        proxies
            .client(peer.parse().unwrap(), forwarded.iter().copied())
            .to_string()
    }

    #[test]
    fn only_trusted_proxies_are_believed() {
        let trusted = ["10.0.0.0/8", "::1"];
        for (proxies, peer, forwarded, expected) in [
            (&[][..], "192.0.2.1", &["203.0.113.5"][..], "192.0.2.1"),
            (&trusted[..], "192.0.2.1", &["203.0.113.5"][..], "192.0.2.1"),
            (&trusted[..], "10.1.1.1", &[][..], "10.1.1.1"),
            (
                &trusted[..],
                "10.1.1.1",
                &["203.0.113.5"][..],
                "203.0.113.5",
            ),
            (
                &trusted[..],
                "::ffff:10.1.1.1",
                &["::ffff:203.0.113.5"][..],
                "203.0.113.5",
            ),
            // Text of the client itself comes before the address that the proxy saw.
            (
                &trusted[..],
                "10.1.1.1",
                &["127.0.0.1, 203.0.113.5"][..],
                "203.0.113.5",
            ),
            (
                &trusted[..],
                "10.1.1.1",
                &["203.0.113.5", "10.2.2.2, 10.3.3.3"][..],
                "203.0.113.5",
            ),
            (
                &trusted[..],
                "::1",
                &["[2001:db8::7]:4711"][..],
                "2001:db8::7",
            ),
            (&trusted[..], "::1", &["203.0.113.5:80"][..], "203.0.113.5"),
            // An invalid address ends the search. The last trusted address is the sender.
            (
                &trusted[..],
                "10.1.1.1",
                &["203.0.113.5, unknown"][..],
                "10.1.1.1",
            ),
            (
                &trusted[..],
                "10.1.1.1",
                &["<script>, 10.9.9.9"][..],
                "10.9.9.9",
            ),
            (&trusted[..], "10.1.1.1", &[""][..], "10.1.1.1"),
            (&trusted[..], "10.1.1.1", &["10.2.2.2"][..], "10.2.2.2"),
        ] {
            assert_eq!(
                client(proxies, peer, forwarded),
                expected,
                "{peer} {forwarded:?}"
            );
        }
        let endless = vec!["10.0.0.1"; 10_000].join(",");
        assert_eq!(
            client(&trusted, "10.1.1.1", &["203.0.113.5", &endless]),
            "10.0.0.1"
        );
    }

    #[test]
    fn a_word_that_is_no_network_is_named() {
        for wrong in ["10.0.0.0/33", "proxy.example", "", "10.0.0"] {
            assert_eq!(
                TrustedProxies::new(&["::1", wrong]),
                Err(InvalidNetwork(wrong.to_owned()))
            );
        }
        assert!(TrustedProxies::new(&[" 10.0.0.0/8 ", "::/0", "192.0.2.1"]).is_ok());
    }
}
