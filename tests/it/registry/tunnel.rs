//! A proxy that leads every host to one server, so that clients use a real name and the usual port.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_util::task::AbortOnDropHandle;

/// A proxy of HTTP that knows only `CONNECT`.
pub struct Tunnel {
    address: SocketAddr,
    _task: AbortOnDropHandle<()>,
}

impl Tunnel {
    /// Opens a proxy to the server at this address.
    pub async fn to(server: SocketAddr) -> Self {
        Self::open(server, None).await
    }

    /// Opens a proxy that leads every host to these routes, over TLS.
    pub async fn answering(router: Router, tls: TlsAcceptor) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self::open(server, Some(tls)).await
    }

    async fn open(server: SocketAddr, tls: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(connect(client, server, tls.clone()));
            }
        });
        Self {
            address,
            _task: AbortOnDropHandle::new(task),
        }
    }

    /// Returns the address of the proxy, for `HTTPS_PROXY`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

/// Returns the TLS side of a host that has this certificate and key.
pub fn acceptor(certificate: &str, key: &str) -> TlsAcceptor {
    let certificates = CertificateDer::pem_slice_iter(certificate.as_bytes());
    let certificates = certificates.map(Result::unwrap).collect();
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(certificates, key)
        .unwrap();
    TlsAcceptor::from(Arc::new(config))
}

async fn connect(
    client: TcpStream,
    server: SocketAddr,
    tls: Option<TlsAcceptor>,
) -> std::io::Result<()> {
    let mut client = BufReader::new(client);
    let mut line = String::new();
    if client.read_line(&mut line).await? == 0 {
        // The client has changed its mind.
        return Ok(());
    }
    assert!(line.starts_with("CONNECT "), "{line}");
    while line.trim() != "" {
        line.clear();
        client.read_line(&mut line).await?;
    }
    client.write_all(b"HTTP/1.1 200 Connected\r\n\r\n").await?;
    let mut server = TcpStream::connect(server).await?;
    match tls {
        None => copy_bidirectional(&mut client, &mut server).await?,
        Some(tls) => copy_bidirectional(&mut tls.accept(client).await?, &mut server).await?,
    };
    Ok(())
}
