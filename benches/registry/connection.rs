//! Sends requests over connections of HTTP/1.1 with as little work as possible, so that the figures are those of the
//! server and not those of a client library.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;

use crate::stats::Samples;

/// Time before the measurement starts, so that connections are open and everything was read once.
const WARM_UP: Duration = Duration::from_millis(300);
/// Duration of a measurement.
const MEASURED: Duration = Duration::from_millis(1_500);

/// Answers to one kind of request.
#[derive(Debug)]
pub struct Load {
    /// Time of each request.
    pub latency: Samples,
    /// Answers in a second.
    pub rate: f64,
}

/// A connection that sends one request after the other.
pub struct HttpConnection(BufReader<TcpStream>);

impl HttpConnection {
    async fn open(address: &str) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(address).await;
        Self::new(stream.with_context(|| format!("cannot connect to {address}"))?)
    }

    /// Connects from an address of this machine, as a client of its own.
    pub async fn open_from(from: IpAddr, to: SocketAddr) -> anyhow::Result<Self> {
        let socket = TcpSocket::new_v4()?;
        socket.bind((from, 0).into())?;
        Self::new(socket.connect(to).await?)
    }

    fn new(stream: TcpStream) -> anyhow::Result<Self> {
        stream.set_nodelay(true)?;
        Ok(Self(BufReader::with_capacity(64 * 1024, stream)))
    }

    /// Sends a request whose answer has content. Returns the size of its body in bytes.
    async fn send(&mut self, request: &[u8]) -> anyhow::Result<u64> {
        let (status, size) = self.ask(request).await?;
        ensure!(status == 200, "the answer has status {status}");
        Ok(size)
    }

    /// Sends a request and reads the answer. Returns its status, and the size of its body in bytes.
    pub async fn ask(&mut self, request: &[u8]) -> anyhow::Result<(u16, u64)> {
        self.0.write_all(request).await?;
        let mut line = Vec::new();
        self.0.read_until(b'\n', &mut line).await?;
        let begin = String::from_utf8_lossy(&line).trim_end().to_owned();
        let status = begin.strip_prefix("HTTP/1.1 ");
        let status = status.and_then(|rest| rest.get(..3)?.parse::<u16>().ok());
        let status = status.with_context(|| format!("the answer begins with `{begin}`"))?;
        let mut length = None;
        loop {
            line.clear();
            self.0.read_until(b'\n', &mut line).await?;
            ensure!(line.ends_with(b"\n"), "the answer ends in its headers");
            let text = String::from_utf8_lossy(&line);
            let Some((name, value)) = text.trim_end().split_once(':') else {
                break;
            };
            if name.eq_ignore_ascii_case("content-length") {
                length = Some(value.trim().parse::<u64>()?);
            }
        }
        let length = length.context("the answer does not tell its length")?;
        let mut body = (&mut self.0).take(length);
        let read = tokio::io::copy_buf(&mut body, &mut tokio::io::sink()).await?;
        ensure!(read == length, "the answer ends after {read} bytes");
        Ok((status, length))
    }
}

/// Returns the text of a request for a path.
pub fn request(address: &str, path: &str, token: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\n\r\n")
}

/// Returns the size of the body of an answer in bytes.
pub async fn size(address: &str, request: &str) -> anyhow::Result<u64> {
    let mut connection = HttpConnection::open(address).await?;
    connection.send(request.as_bytes()).await
}

/// Sends a request again and again over a number of connections.
pub async fn load(address: &str, request: &str, connections: usize) -> anyhow::Result<Load> {
    let begin = Instant::now() + WARM_UP;
    let end = begin + MEASURED;
    let mut running = JoinSet::new();
    for _ in 0..connections {
        let (address, request) = (address.to_owned(), request.to_owned());
        running.spawn(async move {
            let mut connection = HttpConnection::open(&address).await?;
            let mut samples = Vec::new();
            loop {
                let since = Instant::now();
                if since >= end {
                    return anyhow::Ok(samples);
                }
                connection.send(request.as_bytes()).await?;
                if since >= begin {
                    samples.push(since.elapsed());
                }
            }
        });
    }
    let mut latency = Samples::default();
    while let Some(samples) = running.join_next().await {
        latency.extend(samples??);
    }
    let count = u32::try_from(latency.count())?;
    Ok(Load {
        rate: f64::from(count) / MEASURED.as_secs_f64(),
        latency,
    })
}
