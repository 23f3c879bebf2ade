//! `lockkeeper healthcheck [--url URL]`: checks that the server on this machine is alive. For health checks of
//! containers, so that an image needs no other program for it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use anyhow::{Context as _, ensure};

use crate::config::server::{RawSettings, SETTINGS};
use crate::kit::term::{
    ExitResult, ExitStatus, SubcommandArgs, Terminal, block_on, environment, settings_file,
};

/// Time limit of the request; a slower server is not healthy.
const DEADLINE: Duration = Duration::from_secs(5);

/// Check that the server on this machine is alive
#[derive(clap::Parser)]
pub(super) struct HealthcheckArgs {
    /// URL to request [default: /healthz at `LOCKKEEPER_BIND_ADDRESS` and `LOCKKEEPER_PORT`]
    #[arg(long)]
    url: Option<String>,
}

impl SubcommandArgs for HealthcheckArgs {
    fn run(self, terminal: &mut Terminal<'_>) -> ExitResult {
        let url = match self.url {
            Some(url) => url,
            None => local_url(&settings_file::add(environment::read()?).0),
        };
        block_on(check_health(&url))??;
        terminal.line(format_args!("{url}: the server is alive"))?;
        Ok(ExitStatus::Success)
    }
}

async fn check_health(url: &str) -> anyhow::Result<()> {
    // The certificate does not cover the address of this machine, and the request contains nothing secret.
    let client = reqwest::Client::builder()
        .timeout(DEADLINE)
        .no_proxy()
        .tls_danger_accept_invalid_certs(true)
        .build()
        .context("cannot create an HTTP client")?;
    let answer = client
        .get(url)
        .send()
        .await
        .with_context(|| format!("cannot reach {url}"))?;
    ensure!(
        answer.status().is_success(),
        "{url} returned {}",
        answer.status()
    );
    Ok(())
}

/// Returns the URL of the server's listener as seen from this machine.
fn local_url(raw: &RawSettings) -> String {
    let address = text(raw, "bind-address")
        .parse()
        .unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
    let address = match address {
        IpAddr::V4(address) if address.is_unspecified() => Ipv4Addr::LOCALHOST.to_string(),
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) if address.is_unspecified() => format!("[{}]", Ipv6Addr::LOCALHOST),
        IpAddr::V6(address) => format!("[{address}]"),
    };
    let scheme = if text(raw, "ssl-cert-file").is_empty() {
        "http"
    } else {
        "https"
    };
    format!("{scheme}://{address}:{}/healthz", text(raw, "port"))
}

/// Returns the value of a variable, or the default.
fn text<'a>(raw: &'a RawSettings, flag: &str) -> &'a str {
    let setting = SETTINGS
        .iter()
        .find(|setting| setting.flag == flag)
        .expect("the flag is in the table");
    let default = || setting.default_text(crate::config::server::Compat::None);
    raw.given(setting)
        .map(|given| given.text)
        .or_else(default)
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn the_server_is_asked_where_it_listens() {
        for (address, port, expected) in [
            ("", "", "http://127.0.0.1:4141/healthz"),
            ("10.0.0.7", "80", "http://10.0.0.7:80/healthz"),
            ("::", "tcp://10.0.0.1:80", "http://[::1]:4141/healthz"),
        ] {
            let variables = [
                ("LOCKKEEPER_BIND_ADDRESS", address),
                ("ATLANTIS_PORT", port),
            ];
            let variables = variables
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into();
            assert_eq!(
                local_url(&RawSettings {
                    variables,
                    ..RawSettings::default()
                }),
                expected
            );
        }
    }

    /// A server that answers one request.
    fn answer_once(status: &'static str) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/healthz", listener.local_addr().unwrap());
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.read(&mut [0; 4096]).unwrap();
            write!(
                stream,
                "HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
            )
            .unwrap();
        });
        url
    }

    #[tokio::test]
    async fn only_a_good_answer_is_healthy() {
        assert!(check_health(&answer_once("200 OK")).await.is_ok());
        let url = answer_once("503 Service Unavailable");
        assert_eq!(
            check_health(&url).await.unwrap_err().to_string(),
            format!("{url} returned 503 Service Unavailable")
        );
        assert!(check_health("http://127.0.0.1:1/healthz").await.is_err());
    }
}
