use axum::body::Bytes;
use axum::extract::DefaultBodyLimit;
use axum::routing::{get, post};
use tokio::net::TcpSocket;
use tokio::sync::Semaphore;

use super::*;
use crate::config::server::TrustedProxies;
use crate::telemetry::Metrics;

/// A server with these limits. All limits that a test does not set are out of reach.
struct World {
    address: SocketAddr,
    metrics: Metrics,
    /// Requests for `/slow` that are being answered.
    begun: Arc<Semaphore>,
    /// Permits to finish a request for `/slow`.
    go: Arc<Semaphore>,
    ended: CancellationToken,
    serving: AbortOnDropHandle<()>,
}

fn far_away() -> ConnectionLimits {
    let far = Duration::from_hours(1);
    ConnectionLimits {
        headers: far,
        idle: far,
        idle_of_proxies: far,
        blocked: far,
        ..ConnectionLimits::within(1024)
    }
}

async fn start(limits: ConnectionLimits) -> World {
    let [begun, go] = [0; 2].map(|permits| Arc::new(Semaphore::new(permits)));
    let (ended, metrics) = (CancellationToken::new(), Metrics::default());
    let slow = [Arc::clone(&begun), Arc::clone(&go)];
    let endless = || {
        Body::from_stream(futures::stream::repeat_with(|| {
            Ok::<_, io::Error>(vec![0; 65536])
        }))
    };
    let router = Router::new()
        .route(
            "/",
            get(async |ConnectInfo(peer): ConnectInfo<SocketAddr>| peer.ip().to_string()),
        )
        .route("/refuses", post(async || "not read"))
        .route(
            "/echo",
            post(async |body: Bytes| body).layer(DefaultBodyLimit::disable()),
        )
        .route("/endless", get(async move || endless()))
        .route("/slow", get(async move || answer_slowly(slow).await));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let admission = ConnectionAdmission::new(limits, TrustedProxies::default(), metrics.clone());
    let serving = WebServer::new(router, None, admission).serve(listener, ended.clone());
    World {
        address,
        metrics,
        begun,
        go,
        ended,
        serving: AbortOnDropHandle::new(tokio::spawn(serving)),
    }
}

async fn answer_slowly([begun, go]: [Arc<Semaphore>; 2]) -> &'static str {
    begun.add_permits(1);
    go.acquire().await.unwrap().forget();
    "at last"
}

impl World {
    async fn connect(&self) -> TcpStream {
        self.connect_from("127.0.0.1").await
    }

    async fn connect_from(&self, from: &str) -> TcpStream {
        let socket = TcpSocket::new_v4().unwrap();
        socket
            .bind(SocketAddr::new(from.parse().unwrap(), 0))
            .unwrap();
        socket.connect(self.address).await.unwrap()
    }

    /// Opens a connection on which a request for `/slow` is being answered.
    async fn ask_slowly(&self, from: &str) -> TcpStream {
        let mut stream = self.connect_from(from).await;
        send(&mut stream, "GET /slow HTTP/1.1\r\nhost: x\r\n\r\n").await;
        self.begun.acquire().await.unwrap().forget();
        stream
    }

    fn counted(&self, line: &str) -> bool {
        self.metrics.render().lines().any(|other| other == line)
    }
}

async fn send(stream: &mut TcpStream, text: &str) {
    stream.write_all(text.as_bytes()).await.unwrap();
}

/// Reads until the server closes the connection; an error counts as the end.
async fn all(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    drop(stream.read_to_end(&mut bytes).await);
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Reads up to and including this text.
async fn until(stream: &mut TcpStream, end: &str) -> String {
    let mut bytes = Vec::new();
    while !bytes.ends_with(end.as_bytes()) {
        bytes.push(stream.read_u8().await.unwrap());
    }
    String::from_utf8(bytes).unwrap()
}

#[tokio::test]
async fn requests_follow_each_other_on_one_connection() {
    let world = start(far_away()).await;
    let mut stream = world.connect_from("127.0.0.9").await;
    for _ in 0..3 {
        send(&mut stream, "GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
        assert!(
            until(&mut stream, "127.0.0.9")
                .await
                .starts_with("HTTP/1.1 200 OK\r\n")
        );
        send(
            &mut stream,
            "POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\n\r\nhello",
        )
        .await;
        assert!(
            until(&mut stream, "hello")
                .await
                .starts_with("HTTP/1.1 200 OK\r\n")
        );
    }
    assert!(world.counted("lockkeeper_http_connections 1"));
}

#[tokio::test]
async fn headers_that_do_not_come_to_their_end_are_not_waited_for() {
    let world = start(ConnectionLimits {
        headers: Duration::from_millis(200),
        ..far_away()
    })
    .await;
    let (mut silent, mut unfinished, mut trickling) = (
        world.connect().await,
        world.connect().await,
        world.connect().await,
    );
    send(&mut unfinished, "GET / HTTP/1.1\r\nhost: x\r\nx-").await;
    // Each byte on its own is in time.
    let trickle = async {
        send(&mut trickling, "GET / HTTP/1.1\r\nx: ").await;
        while trickling.write_all(b"x").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let ((), first, second) = tokio::join!(trickle, all(&mut silent), all(&mut unfinished));
    assert_eq!((first.as_str(), second.as_str()), ("", ""));
    assert!(
        world.counted("lockkeeper_http_connections_closed_total{reason=\"too_slow\"} 3"),
        "{}",
        world.metrics.render()
    );
}

#[tokio::test]
async fn a_connection_without_another_request_is_closed_and_that_is_no_fault() {
    let world = start(ConnectionLimits {
        idle: Duration::ZERO,
        ..far_away()
    })
    .await;
    let mut stream = world.connect().await;
    send(&mut stream, "GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
    assert!(all(&mut stream).await.ends_with("\r\n\r\n127.0.0.1"));
    assert!(!world.metrics.render().contains("connections_closed_total{"));
}

#[tokio::test]
async fn an_answer_that_nobody_takes_is_broken_off() {
    let world = start(ConnectionLimits {
        blocked: Duration::from_millis(200),
        ..far_away()
    })
    .await;
    let mut stream = world.connect().await;
    send(&mut stream, "GET /endless HTTP/1.1\r\nhost: x\r\n\r\n").await;
    while !world.counted("lockkeeper_http_connections_closed_total{reason=\"too_slow\"} 1") {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(all(&mut stream).await.starts_with("HTTP/1.1 200 OK"));
}

#[tokio::test]
async fn an_answer_before_the_body_arrives_although_the_body_is_still_sent() {
    let world = start(far_away()).await;
    let mut stream = world.connect().await;
    send(
        &mut stream,
        "POST /refuses HTTP/1.1\r\nhost: x\r\ncontent-length: 20000000\r\n\r\n",
    )
    .await;
    assert!(
        until(&mut stream, "not read")
            .await
            .starts_with("HTTP/1.1 200 OK\r\n")
    );
    let mut other = world.connect().await;
    send(
        &mut other,
        "POST /refuses HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000\r\n\r\n",
    )
    .await;
    other.write_all(&vec![b' '; 1_000_000]).await.unwrap();
    assert!(all(&mut other).await.ends_with("not read"));
}

#[tokio::test]
async fn idle_connections_give_way_and_requests_that_are_answered_do_not() {
    let world = start(ConnectionLimits {
        in_all: 20,
        per_address: 10,
        ..far_away()
    })
    .await;
    let mut asking = world.ask_slowly("127.0.0.2").await;
    let mut uploading = world.connect_from("127.0.0.2").await;
    send(
        &mut uploading,
        "POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\n\r\nhel",
    )
    .await;
    let mut idle = Vec::new();
    for number in 0..200 {
        idle.push(
            world
                .connect_from(&format!("127.0.1.{}", number % 40 + 1))
                .await,
        );
    }
    let mut visitor = world.connect().await;
    send(
        &mut visitor,
        "GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n",
    )
    .await;
    assert!(all(&mut visitor).await.ends_with("127.0.0.1"));
    assert_eq!(all(&mut idle[0]).await, "", "the oldest has given way");
    assert_eq!(
        all(&mut uploading).await,
        "",
        "a body that does not come to its end gives way, too"
    );
    world.go.add_permits(1);
    assert!(
        until(&mut asking, "at last")
            .await
            .starts_with("HTTP/1.1 200 OK")
    );
}

#[tokio::test]
async fn one_address_gets_no_more_than_its_share_and_others_still_get_theirs() {
    let world = start(ConnectionLimits {
        in_all: 20,
        per_address: 3,
        ..far_away()
    })
    .await;
    let asking = [(); 3].map(|()| world.ask_slowly("127.0.0.2"));
    let asking = futures::future::join_all(asking).await;
    assert_eq!(all(&mut world.connect_from("127.0.0.2").await).await, "");
    assert!(world.counted("lockkeeper_http_connections_closed_total{reason=\"address\"} 1"));
    let mut other = world.connect_from("127.0.0.3").await;
    send(&mut other, "GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
    assert!(
        until(&mut other, "127.0.0.3")
            .await
            .starts_with("HTTP/1.1 200 OK")
    );
    drop(asking);
}

#[tokio::test]
async fn requests_under_way_are_answered_at_the_end_and_idle_connections_closed() {
    let world = start(far_away()).await;
    let (mut idle, mut asking) = (world.connect().await, world.ask_slowly("127.0.0.1").await);
    send(&mut idle, "GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
    until(&mut idle, "127.0.0.1").await;
    world.ended.cancel();
    assert_eq!(all(&mut idle).await, "");
    world.go.add_permits(1);
    let answer = all(&mut asking).await;
    assert!(
        answer.contains("connection: close") && answer.ends_with("at last"),
        "{answer}"
    );
    drop((idle, asking));
    world.serving.await.unwrap();
}
