//! Attacks by strangers who reach the port and know no secret.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::header;
use futures::future::join_all;
use futures::stream;
use lockkeeper::context::Ctx;
use lockkeeper::http::{self, DeliveryLimits};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tower::ServiceExt as _;

use super::ordinary;
use crate::e2e::world::{World, resource};
use crate::support::bot::{Bot, WebhookRequest};
use crate::support::db::{Backend, story};
use crate::support::server::{WEBHOOK_SECRET, within};

story!(
    what_the_headers_refuse_is_refused_before_the_body_is_read,
    a_body_that_comes_too_slowly_is_refused_and_one_without_room_may_come_again,
);

const MIB: usize = 1024 * 1024;
/// Size of the largest accepted body, minus one byte.
const LARGE: usize = 25 * MIB - 1;
/// Well-formed signature that no secret made.
const FORGED: &str = "sha256=0000000000000000000000000000000000000000000000000000000000000000";

fn ping(id: &str) -> WebhookRequest {
    WebhookRequest::new(id, "ping", &json!({"zen": "Keep it logically awesome."}))
}

/// Returns the same headers, with a body that counts how often the server reads a part of it.
fn watched(delivery: WebhookRequest, parts: usize) -> (Request, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&asked);
    let part = move |_| {
        counter.fetch_add(1, Ordering::SeqCst);
        Ok::<_, Infallible>(Bytes::from(vec![b' '; MIB]))
    };
    let body = Body::from_stream(stream::iter((0..parts).map(part)));
    (delivery.into_request().map(|_| body), asked)
}

async fn what_the_headers_refuse_is_refused_before_the_body_is_read(backend: Backend) {
    let (bot, _) = Bot::talking(backend, &[]).await;
    let before = bot.deliveries().await;
    let mut twice = ping("d-1").into_request();
    let signature = twice.headers()["x-hub-signature-256"].clone();
    twice.headers_mut().append("x-hub-signature-256", signature);
    for (refused, expected) in [
        (ping("d-1").unsigned(), 401),
        (
            ping("d-1").unsigned().with(
                "x-hub-signature",
                "sha1=01dc10d0c83e72ed246219cdd91669667fe2ca59",
            ),
            401,
        ),
        (ping("d-1").with("x-hub-signature-256", "sha256=00"), 401),
        (
            ping("d-1").with("x-hub-signature-256", &FORGED.replace("sha256", "sha512")),
            401,
        ),
        (ping("d 1"), 400),
    ] {
        let (request, asked) = watched(refused, 24);
        let answer = http::webhook_router(Ctx::clone(&bot.replica.ctx))
            .oneshot(request)
            .await
            .unwrap();
        assert_eq!(
            (answer.status().as_u16(), asked.load(Ordering::SeqCst)),
            (expected, 0)
        );
        assert_eq!(
            answer.headers()[header::CONNECTION],
            "close",
            "nobody has to read the rest first"
        );
    }
    assert_eq!(
        http::webhook_router(Ctx::clone(&bot.replica.ctx))
            .oneshot(twice)
            .await
            .unwrap()
            .status(),
        401
    );
    // A signed body is read, up to the limit.
    let (request, asked) = watched(ping("d-1"), 30);
    let answer = http::webhook_router(Ctx::clone(&bot.replica.ctx))
        .oneshot(request)
        .await
        .unwrap();
    assert_eq!(
        (answer.status().as_u16(), asked.load(Ordering::SeqCst)),
        (413, 26)
    );
    assert_eq!(bot.deliveries().await, before);
    bot.end(&[]).await;
}

async fn a_body_that_comes_too_slowly_is_refused_and_one_without_room_may_come_again(
    backend: Backend,
) {
    let (bot, _) = Bot::talking(backend, &[]).await;
    let before = bot.deliveries().await;
    let limits = |in_flight| DeliveryLimits {
        in_flight,
        time: Duration::from_millis(200),
    };
    let unfinished = stream::iter([Ok::<_, Infallible>(Bytes::from("{"))]);
    let unfinished = Body::from_stream(futures::StreamExt::chain(unfinished, stream::pending()));
    let request = ping("d-1").into_request().map(|_| unfinished);
    let slow = http::webhook_router_with(Ctx::clone(&bot.replica.ctx), limits(256 * MIB))
        .oneshot(request)
        .await
        .unwrap();
    assert_eq!(
        (slow.status().as_u16(), &slow.headers()[header::CONNECTION]),
        (408, &"close".parse().unwrap())
    );

    let narrow = || http::webhook_router_with(Ctx::clone(&bot.replica.ctx), limits(2 * MIB));
    let large = WebhookRequest::raw("d-1", "star", "application/json", vec![b' '; 4 * MIB]);
    let full = narrow()
        .oneshot(large.clone().into_request())
        .await
        .unwrap();
    assert_eq!(
        (full.status().as_u16(), &full.headers()[header::RETRY_AFTER]),
        (503, &"30".parse().unwrap())
    );
    assert_eq!(bot.deliveries().await, before);
    assert_eq!(
        narrow()
            .oneshot(ping("d-2").into_request())
            .await
            .unwrap()
            .status(),
        200,
        "small ones are taken"
    );
    let again = http::webhook_router(Ctx::clone(&bot.replica.ctx))
        .oneshot(large.into_request())
        .await
        .unwrap();
    assert_eq!(again.status(), 200);
    bot.end(&[]).await;
}

/// Connects to the server from one of the addresses of this machine.
async fn connect(server: SocketAddr, from: &str) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket
        .bind(SocketAddr::new(from.parse().unwrap(), 0))
        .unwrap();
    within("a connection", socket.connect(server))
        .await
        .unwrap()
}

fn address(world: &World) -> SocketAddr {
    world
        .server
        .url()
        .trim_start_matches("http://")
        .parse()
        .unwrap()
}

/// Returns the headers of a delivery with a body of this length.
fn headers(server: SocketAddr, length: usize, signature: Option<&str>) -> String {
    let signature = signature
        .map(|value| format!("x-hub-signature-256: {value}\r\n"))
        .unwrap_or_default();
    format!(
        "POST /events HTTP/1.1\r\nhost: {server}\r\nx-github-event: ping\r\nx-github-delivery: d-1\r\n\
         content-type: application/json\r\ncontent-length: {length}\r\n{signature}\r\n"
    )
}

/// Reads the first line of the answer. The connection stays open.
async fn status(stream: &mut TcpStream) -> String {
    let mut line = Vec::new();
    while !line.ends_with(b"\r\n") {
        line.push(within("an answer", stream.read_u8()).await.unwrap());
    }
    String::from_utf8(line).unwrap().trim_end().to_owned()
}

/// Returns the peak memory of the process in bytes.
fn peak(world: &World) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{}/status", world.server.pid())).unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .unwrap();
    line.trim()
        .trim_end_matches(" kB")
        .parse::<usize>()
        .unwrap()
        * 1024
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixty_unsigned_deliveries_are_answered_although_their_bodies_never_come() {
    let mut world = World::start_with(ordinary(), |_| vec![("main.tf", String::new())]).await;
    let server = address(&world);
    let before = peak(&world);
    let announced = async |number: usize| {
        let mut stream = connect(server, "127.0.0.1").await;
        stream
            .write_all(headers(server, LARGE, None).as_bytes())
            .await
            .unwrap();
        assert_eq!(
            status(&mut stream).await,
            "HTTP/1.1 401 Unauthorized",
            "{number}"
        );
        stream
    };
    let mut streams = join_all((0..60).map(announced)).await;
    // A client that sends its body regardless gets no reader.
    let body = vec![b' '; LARGE];
    join_all(
        streams
            .iter_mut()
            .map(async |stream| drop(stream.write_all(&body).await)),
    )
    .await;
    let grown = peak(&world).saturating_sub(before);
    assert!(
        grown < 64 * MIB,
        "60 unsigned deliveries took {grown} bytes"
    );

    let mut large = connect(server, "127.0.0.1").await;
    large
        .write_all(headers(server, 25 * MIB + 1, Some(FORGED)).as_bytes())
        .await
        .unwrap();
    assert_eq!(status(&mut large).await, "HTTP/1.1 413 Payload Too Large");
    drop((streams, large));
    world.server.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forged_deliveries_that_do_not_come_to_their_end_have_a_bound_and_hold_up_no_small_one() {
    let mut world = World::start_with(ordinary(), |_| vec![("main.tf", String::new())]).await;
    let server = address(&world);
    let before = peak(&world);
    let body = vec![b' '; LARGE - 1];
    let attack = async |number: usize| {
        let mut stream = connect(server, "127.0.0.2").await;
        stream
            .write_all(headers(server, LARGE, Some(FORGED)).as_bytes())
            .await
            .unwrap();
        let sending = async { drop(stream.write_all(&body).await) };
        // The server stops reading bodies for which it has no memory.
        drop(tokio::time::timeout(Duration::from_secs(3), sending).await);
        (number, stream)
    };
    let streams = join_all((0..60).map(attack)).await;
    let grown = peak(&world).saturating_sub(before);
    assert!(grown < 300 * MIB, "forged deliveries took {grown} bytes");
    assert_eq!(signed(server, "127.0.0.1").await, "HTTP/1.1 200 OK");
    drop(streams);
    world.server.finish().await;
}

/// Sends a small signed delivery in pieces, and returns the status of the answer.
async fn signed(server: SocketAddr, from: &str) -> String {
    let delivery = ping("d-signed").signed_with(WEBHOOK_SECRET).into_request();
    let signature = delivery.headers()["x-hub-signature-256"]
        .to_str()
        .unwrap()
        .to_owned();
    let body = axum::body::to_bytes(delivery.into_body(), MIB)
        .await
        .unwrap();
    let head = headers(server, 0, Some(&signature))
        .replace("content-length: 0", "transfer-encoding: chunked");
    let mut stream = connect(server, from).await;
    stream.write_all(head.as_bytes()).await.unwrap();
    for piece in body.chunks(7) {
        stream
            .write_all(format!("{:x}\r\n", piece.len()).as_bytes())
            .await
            .unwrap();
        stream.write_all(piece).await.unwrap();
        stream.write_all(b"\r\n").await.unwrap();
    }
    stream.write_all(b"0\r\n\r\n").await.unwrap();
    status(&mut stream).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_idle_connections_stop_nothing() {
    // Most systems have this soft limit. One of the two servers cannot raise it, the other can.
    for (soft, hard, said) in [(1024, 1024, "in_all=768"), (1024, 4096, "in_all=1024")] {
        let settings = ordinary().open_files(soft, hard);
        let world = World::start_with(settings, |_| vec![("main.tf", String::new())]).await;
        world.server.logged(said).await;
        let server = address(&world);
        let mut idle = Vec::new();
        // The connections come from one address first, then from twenty.
        for number in 0..2 * 1010 {
            let from = if number < 1010 { 2 } else { number % 20 + 2 };
            let mut stream = connect(server, &format!("127.0.0.{from}")).await;
            if number % 2 == 0 {
                // The server may already have closed the connection.
                drop(stream.write_all(b"GET /healthz HTTP/1.1\r\nx: ").await);
            }
            idle.push(stream);
        }
        for from in ["127.0.0.1", "127.0.0.2", "127.0.0.99"] {
            let mut stream = connect(server, from).await;
            stream
                .write_all(format!("GET /readyz HTTP/1.1\r\nhost: {server}\r\n\r\n").as_bytes())
                .await
                .unwrap();
            assert_eq!(
                status(&mut stream).await,
                "HTTP/1.1 200 OK",
                "the database answers"
            );
            assert_eq!(signed(server, from).await, "HTTP/1.1 200 OK");
        }
        let pull = world
            .open("feature", &[("main.tf", &resource("a", "1"))])
            .await;
        world
            .answer(pull)
            .await
            .is("autoplan success | . default planned");
        drop(idle);
        world.finish(&["#1 . default"]).await;
    }
}
