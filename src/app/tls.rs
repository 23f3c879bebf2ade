//! Serves TLS (`--ssl-cert-file`, `--ssl-key-file`) and reloads its certificate. Programs that only write files renew
//! certificates every few weeks. So the server checks the files while it runs. Open connections continue.

use std::io;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tracing::{info, warn};

use crate::config::server::TlsFiles;
use crate::model::Sha256Digest;

/// Time limit of a handshake. Later clients get no answer.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Maximum number of concurrent handshakes. More clients wait, and their time limit counts meanwhile.
const HANDSHAKES: usize = 256;
/// Time between two checks of the files.
const LOOK_EVERY: Duration = Duration::from_secs(30);

/// Current certificate and its key.
pub(super) struct Certificate {
    files: TlsFiles,
    current: RwLock<Current>,
    handshakes: Semaphore,
}

struct Current {
    config: Arc<ServerConfig>,
    /// Digest of both files at the last check, even if they were refused.
    seen: Result<Sha256Digest, String>,
}

impl Certificate {
    /// Reads the certificate and its key.
    pub fn open(files: TlsFiles) -> anyhow::Result<Self> {
        let texts = read(&files)?;
        let config = Arc::new(parse(&texts)?);
        let current = RwLock::new(Current {
            config,
            seen: Ok(digest(&texts)),
        });
        Ok(Self {
            files,
            current,
            handshakes: Semaphore::new(HANDSHAKES),
        })
    }

    /// Performs the TLS handshake with a client.
    pub async fn handshake(&self, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        let handshake = async {
            let _place = self.handshakes.acquire().await.map_err(io::Error::other)?;
            TlsAcceptor::from(self.config()).accept(stream).await
        };
        tokio::time::timeout(HANDSHAKE, handshake).await?
    }

    fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(
            &self
                .current
                .read()
                .unwrap_or_else(PoisonError::into_inner)
                .config,
        )
    }

    /// Reads the files again. Returns true if a new certificate is in effect from now on. Each error in the files is
    /// returned only once.
    pub fn reload(&self) -> anyhow::Result<bool> {
        let texts = read(&self.files);
        let seen = texts
            .as_ref()
            .map(digest)
            .map_err(|error| format!("{error:#}"));
        let current = &mut *self.current.write().unwrap_or_else(PoisonError::into_inner);
        if current.seen == seen {
            return Ok(false);
        }
        current.seen = seen;
        current.config = Arc::new(parse(&texts?)?);
        Ok(true)
    }

    /// Checks the files periodically, for as long as it is polled.
    pub async fn watch(self: Arc<Self>) {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let own = Arc::clone(&self);
            match tokio::task::spawn_blocking(move || own.reload()).await {
                Ok(Ok(false)) | Err(_) => {}
                Ok(Ok(true)) => info!(
                    "The certificate of the web server has changed; new connections use the new one"
                ),
                Ok(Err(error)) => {
                    warn!(
                        error = format!("{error:#}"),
                        "Cannot use the new certificate; the old one stays in effect"
                    );
                }
            }
        }
    }
}

type Texts = [Vec<u8>; 2];

fn read(files: &TlsFiles) -> anyhow::Result<Texts> {
    let read = |path: &Path, flag| {
        std::fs::read(path).with_context(|| format!("cannot read `{}` (--{flag})", path.display()))
    };
    Ok([
        read(&files.certificate, "ssl-cert-file")?,
        read(&files.key, "ssl-key-file")?,
    ])
}

fn digest(texts: &Texts) -> Sha256Digest {
    Sha256Digest::of(&texts.concat())
}

fn parse([certificate, key]: &Texts) -> anyhow::Result<ServerConfig> {
    let chain = CertificateDer::pem_slice_iter(certificate).collect::<Result<Vec<_>, _>>();
    let chain = chain.context("--ssl-cert-file is not a certificate in PEM")?;
    ensure!(
        !chain.is_empty(),
        "--ssl-cert-file does not contain a certificate"
    );
    let key =
        PrivateKeyDer::from_pem_slice(key).context("--ssl-key-file is not a private key in PEM")?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder =
        ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.context("cannot set up TLS")?.with_no_client_auth();
    let mut config = builder
        .with_single_cert(chain, key)
        .context("the certificate and the key do not match")?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use axum::Router;
    use axum::extract::ConnectInfo;
    use axum::routing::get;
    use tokio::net::TcpListener;
    use tokio_util::sync::CancellationToken;
    use tokio_util::task::AbortOnDropHandle;

    use super::super::connections::{ConnectionAdmission, ConnectionLimits, WebServer};
    use super::*;
    use crate::config::server::TrustedProxies;
    use crate::telemetry::Metrics;

    const ONE: [&str; 2] = [
        include_str!("../../tests/it/support/tls/one.cert.pem"),
        include_str!("../../tests/it/support/tls/one.key.pem"),
    ];
    const TWO: [&str; 2] = [
        include_str!("../../tests/it/support/tls/two.cert.pem"),
        include_str!("../../tests/it/support/tls/two.key.pem"),
    ];

    fn write(dir: &Path, [certificate, key]: [&str; 2]) -> TlsFiles {
        let files = TlsFiles {
            certificate: dir.join("cert.pem"),
            key: dir.join("key.pem"),
        };
        std::fs::write(&files.certificate, certificate).unwrap();
        std::fs::write(&files.key, key).unwrap();
        files
    }

    /// Returns the answer to a client that trusts only this certificate.
    async fn ask(
        address: SocketAddr,
        name: &str,
        certificate: &str,
    ) -> Result<String, reqwest::Error> {
        let root = reqwest::Certificate::from_pem(certificate.as_bytes())?;
        let client = reqwest::Client::builder()
            .tls_certs_only([root])
            .resolve(name, address)
            .no_proxy()
            .build()?;
        let url = format!("https://{name}:{}/", address.port());
        client.get(url).send().await?.text().await
    }

    #[tokio::test]
    async fn a_certificate_that_changes_is_used_for_new_connections() {
        let dir = tempfile::tempdir().unwrap();
        let certificate = Arc::new(Certificate::open(write(dir.path(), ONE)).unwrap());
        let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        let whose =
            |ConnectInfo(peer): ConnectInfo<SocketAddr>| async move { peer.ip().to_string() };
        let admission = ConnectionAdmission::new(
            ConnectionLimits::within(1024),
            TrustedProxies::default(),
            Metrics::default(),
        );
        let router = Router::new().route("/", get(whose));
        let server = WebServer::new(router, Some(Arc::clone(&certificate)), admission);
        let _serving =
            AbortOnDropHandle::new(tokio::spawn(server.serve(socket, CancellationToken::new())));
        assert_eq!(ask(address, "one.test", ONE[0]).await.unwrap(), "127.0.0.1");
        assert!(ask(address, "two.test", TWO[0]).await.is_err());
        assert!(!certificate.reload().unwrap());
        write(dir.path(), TWO);
        assert!(certificate.reload().unwrap());
        assert_eq!(ask(address, "two.test", TWO[0]).await.unwrap(), "127.0.0.1");
        // Half of a renewal is no valid certificate, so the previous one stays in effect.
        write(dir.path(), [ONE[0], TWO[1]]);
        assert!(certificate.reload().is_err());
        assert!(
            !certificate.reload().unwrap(),
            "an unchanged certificate is reported once"
        );
        assert_eq!(ask(address, "two.test", TWO[0]).await.unwrap(), "127.0.0.1");
    }

    #[test]
    fn what_is_wrong_with_the_files_is_said() {
        let dir = tempfile::tempdir().unwrap();
        for (texts, expected) in [
            ([ONE[0], TWO[1]], "the certificate and the key do not match"),
            (
                ["", ONE[1]],
                "--ssl-cert-file does not contain a certificate",
            ),
            ([ONE[0], "x"], "--ssl-key-file is not a private key in PEM"),
        ] {
            let error = Certificate::open(write(dir.path(), texts)).err().unwrap();
            assert!(error.to_string().starts_with(expected), "{error:#}");
        }
    }
}
