//! Provides a mirror with the layout of the real ones, and makers with keys of the test.

use std::collections::HashMap;
use std::io::Write;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_LENGTH;
use axum::response::Response;
use futures::{StreamExt, stream};
use pgp::composed::{
    ArmorOptions, DetachedSignature, KeyType, SecretKeyParamsBuilder, SignedSecretKey,
};
use pgp::crypto::hash::HashAlgorithm;
use pgp::ser::Serialize;
use pgp::types::Password;
use sha2::{Digest, Sha256};
use tokio::sync::Notify;
use url::Url;
use zip::write::SimpleFileOptions;

use super::super::TrustedKeys;

/// Maker that signs any bytes.
pub struct Signer(SignedSecretKey);

impl Signer {
    pub fn new() -> Self {
        let mut params = SecretKeyParamsBuilder::default();
        params
            .key_type(KeyType::Ed25519Legacy)
            .can_certify(true)
            .can_sign(true)
            .primary_user_id("Maker".into());
        Self(
            params
                .build()
                .unwrap()
                .generate(rand08::thread_rng())
                .unwrap(),
        )
    }

    pub fn keys(&self) -> TrustedKeys {
        let armored = self
            .0
            .to_public_key()
            .to_armored_string(ArmorOptions::default())
            .unwrap();
        TrustedKeys::from_armored(&armored, &armored).unwrap()
    }

    pub fn sign(&self, bytes: &[u8]) -> Vec<u8> {
        let (key, password) = (&self.0.primary_key, Password::empty());
        let made = DetachedSignature::sign_binary_data(
            rand08::thread_rng(),
            key,
            &password,
            HashAlgorithm::Sha256,
            bytes,
        );
        made.unwrap().to_bytes().unwrap()
    }
}

/// Answer of the mirror to a request.
#[derive(Clone)]
pub enum MirrorAnswer {
    /// The whole content at once.
    Bytes(Vec<u8>),
    /// Half of the content, then the connection breaks.
    Broken(Vec<u8>),
    /// The first bytes, then silence.
    Silence,
    /// An endless stream of zeros.
    Endless,
}

#[derive(Default)]
struct ServedFiles {
    answers: Mutex<HashMap<String, MirrorAnswer>>,
    asked: Mutex<Vec<String>>,
    silent: Notify,
}

/// Web server on this machine.
pub struct ReleaseMirror {
    pub url: Url,
    shelf: Arc<ServedFiles>,
}

impl ReleaseMirror {
    pub async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/releases/", listener.local_addr().unwrap())
            .parse()
            .unwrap();
        let shelf = Arc::new(ServedFiles::default());
        let router = Router::new()
            .fallback(answer)
            .with_state(Arc::clone(&shelf));
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { url, shelf }
    }

    pub fn put(&self, path: &str, answer: MirrorAnswer) {
        self.shelf
            .answers
            .lock()
            .unwrap()
            .insert(format!("/releases/{path}"), answer);
    }

    /// Publishes releases of Terraform for `linux_amd64`, and the list of these releases.
    pub fn release(&self, maker: &Signer, versions: &[&str]) {
        let mut builds = Vec::new();
        for version in versions {
            let (archive, folder) = (
                format!("terraform_{version}_linux_amd64.zip"),
                format!("terraform/{version}"),
            );
            let bytes = archive_of("terraform", &program(version));
            let sums = format!("{}  {archive}\n", hex::encode(Sha256::digest(&bytes)));
            self.put(&format!("{folder}/{archive}"), MirrorAnswer::Bytes(bytes));
            self.sums(maker, version, &sums);
            builds.push(format!(
                r#""{version}":{{"builds":[{{"filename":"{archive}"}}]}}"#
            ));
        }
        let list = format!(
            r#"{{"name":"terraform","versions":{{{}}}}}"#,
            builds.join(",")
        );
        self.put("terraform/index.json", MirrorAnswer::Bytes(list.into()));
    }

    /// Publishes a signed list of checksums.
    pub fn sums(&self, maker: &Signer, version: &str, sums: &str) {
        let path = format!("terraform/{version}/terraform_{version}_SHA256SUMS");
        self.put(
            &format!("{path}.sig"),
            MirrorAnswer::Bytes(maker.sign(sums.as_bytes())),
        );
        self.put(&path, MirrorAnswer::Bytes(sums.into()));
    }

    /// Counts the requests for paths with this end.
    pub fn asked(&self, end: &str) -> usize {
        self.shelf
            .asked
            .lock()
            .unwrap()
            .iter()
            .filter(|path| path.ends_with(end))
            .count()
    }

    /// Waits until a client waits for the rest of a silent answer.
    pub async fn silence(&self) {
        self.shelf.silent.notified().await;
    }
}

async fn answer(State(shelf): State<Arc<ServedFiles>>, request: Request) -> Response {
    let path = request.uri().path().to_owned();
    let answer = shelf.answers.lock().unwrap().get(&path).cloned();
    shelf.asked.lock().unwrap().push(path);
    let ok = |body| Response::new(body);
    let first = || stream::iter([Ok::<_, std::io::Error>(Bytes::from_static(&[0; 1024]))]);
    match answer {
        None => Response::builder()
            .status(StatusCode::NOT_FOUND)
            .body(Body::empty())
            .unwrap(),
        Some(MirrorAnswer::Bytes(bytes)) => ok(bytes.into()),
        Some(MirrorAnswer::Broken(bytes)) => {
            let half = Bytes::from(bytes[..bytes.len() / 2].to_vec());
            let body =
                Body::from_stream(stream::iter([Ok(half), Err(std::io::Error::other("cut"))]));
            Response::builder()
                .header(CONTENT_LENGTH, bytes.len())
                .body(body)
                .unwrap()
        }
        Some(MirrorAnswer::Silence) => {
            shelf.silent.notify_one();
            ok(Body::from_stream(first().chain(stream::pending())))
        }
        Some(MirrorAnswer::Endless) => ok(Body::from_stream(stream::repeat_with(|| {
            Ok::<_, std::io::Error>(Bytes::from_static(&[0; 1024]))
        }))),
    }
}

/// Creates an archive with one file.
pub fn archive_of(name: &str, content: &[u8]) -> Vec<u8> {
    let mut archive = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    archive
        .start_file(name, SimpleFileOptions::default())
        .unwrap();
    archive.write_all(content).unwrap();
    archive.finish().unwrap().into_inner()
}

/// Creates a compressed tar archive with files.
pub fn tar_of(files: &[(&str, &[u8])]) -> Vec<u8> {
    let zipped = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    let mut archive = tar::Builder::new(zipped);
    for (name, content) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o755);
        archive.append_data(&mut header, name, *content).unwrap();
    }
    archive.into_inner().unwrap().finish().unwrap()
}

/// Creates a program that can only print its version.
pub fn program(version: &str) -> Vec<u8> {
    format!("#!/bin/sh\necho '{{\"terraform_version\":\"{version}\"}}'\n").into_bytes()
}
