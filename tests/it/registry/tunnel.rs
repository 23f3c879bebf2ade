//! A proxy that leads every host to one server, so that clients use a real name and the usual port.

use std::net::SocketAddr;

use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::task::AbortOnDropHandle;

/// A proxy of HTTP that knows only `CONNECT`.
pub struct Tunnel {
    address: SocketAddr,
    _task: AbortOnDropHandle<()>,
}

impl Tunnel {
    /// Opens a proxy to the server at this address.
    pub async fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(connect(client, server));
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

async fn connect(client: TcpStream, server: SocketAddr) -> std::io::Result<()> {
    let mut client = BufReader::new(client);
    let mut line = String::new();
    client.read_line(&mut line).await?;
    assert!(line.starts_with("CONNECT "), "{line}");
    while line.trim() != "" {
        line.clear();
        client.read_line(&mut line).await?;
    }
    client.write_all(b"HTTP/1.1 200 Connected\r\n\r\n").await?;
    let mut server = TcpStream::connect(server).await?;
    copy_bidirectional(&mut client, &mut server).await?;
    Ok(())
}
