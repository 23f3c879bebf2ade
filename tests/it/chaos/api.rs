//! Sends the requests that people and scripts make to the servers directly.

use std::time::Duration;

use serde_json::{Value, json};

use super::world::{WEB_PASSWORD, WEB_USER, World};
use crate::support::server::HOST;

/// Time after which a server in trouble is not asked any more.
const PATIENCE: Duration = Duration::from_secs(20);

/// A lock in the answer of the API.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Held {
    /// Repository, path, workspace and project.
    pub name: String,
    /// Number of the pull request.
    pub pull: i64,
    /// Identifier of the lock.
    pub id: String,
}

/// Returns every lock that this server lists.
pub async fn locks(world: &World, server: usize) -> Result<Vec<Held>, String> {
    let answer = send(world, server, reqwest::Method::GET, "/api/locks").await?;
    let answer: Value = serde_json::from_str(&answer).map_err(|error| error.to_string())?;
    let held = |lock: &Value| {
        let text = |name: &str| lock[name].as_str().unwrap_or_default().to_owned();
        Held {
            name: text("Name"),
            pull: text("PullID").parse().unwrap_or(0),
            id: text("ID"),
        }
    };
    let mut locks: Vec<Held> = answer["Locks"]
        .as_array()
        .into_iter()
        .flatten()
        .map(held)
        .collect();
    locks.sort();
    Ok(locks)
}

/// Discards some lock, if there is one.
pub async fn discard_lock(world: &World, server: usize, some: usize) {
    let locks = locks(world, server).await.unwrap_or_default();
    let Some(lock) = locks.get(some % locks.len().max(1)) else {
        return;
    };
    if send(
        world,
        server,
        reqwest::Method::DELETE,
        &format!("/locks?id={}", lock.id),
    )
    .await
    .is_ok()
    {
        world.count("locks discarded");
    }
}

/// Releases some lock, even if it is in use. The first pull request in the queue then gets it.
pub async fn release_lock(world: &World, server: usize, some: usize) {
    let locks = locks(world, server).await.unwrap_or_default();
    let Some(lock) = locks.get(some % locks.len().max(1)) else {
        return;
    };
    let body = json!({"force": true, "reason": "somebody has to get on"});
    if ask(
        world,
        server,
        &format!("/api/locks/{}/release", lock.id),
        &body,
    )
    .await
    .is_ok()
    {
        world.count("locks released by force");
    }
}

/// Hands some lock over to the first pull request that is queued for one.
pub async fn hand_lock_over(world: &World, server: usize, some: usize) {
    let waiting = world
        .look
        .rows("SELECT CAST(pull AS TEXT), dir FROM lock_waiters ORDER BY seq")
        .await;
    let Some([pull, dir]) = waiting.get(some % waiting.len().max(1)).map(Vec::as_slice) else {
        return;
    };
    let locks = locks(world, server).await.unwrap_or_default();
    let Some(lock) = locks
        .iter()
        .find(|lock| lock.name.contains(&format!("/{dir}/")))
    else {
        return;
    };
    let Ok(pull) = pull.parse::<i64>() else {
        return;
    };
    let body =
        json!({"pull": pull, "force": some.is_multiple_of(2), "reason": "it is more urgent"});
    if ask(
        world,
        server,
        &format!("/api/locks/{}/hand-over", lock.id),
        &body,
    )
    .await
    .is_ok()
    {
        world.count("locks handed over");
    }
}

/// Stops applies for some time.
pub async fn stop_applies(world: &World, server: usize, time: Duration) {
    if send(world, server, reqwest::Method::POST, "/apply/lock")
        .await
        .is_ok()
    {
        world.count("applies stopped");
        tokio::time::sleep(time).await;
    }
    // The apply lock may be in effect even if the answer to the first request was lost.
    for server in 0..500 {
        if send(world, server, reqwest::Method::DELETE, "/apply/unlock")
            .await
            .is_ok()
        {
            return;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    world.broken("applies cannot be allowed again");
}

/// Requests a sync of the mirrors of the repository.
pub async fn ask_for_sync(world: &World, server: usize, reason: &str) -> Result<(), String> {
    ask(
        world,
        server,
        &format!("/api/repos/{HOST}/{}/sync", world.repo()),
        &json!({ "reason": reason }),
    )
    .await
}

/// Changes some account. There are few names and addresses, so that people get into each other's way.
pub async fn change_account(world: &World, server: usize, some: usize) {
    let (who, email) = (some % 5, format!("person{}@example.com", some % 7));
    let account = format!("/api/accounts/person{who}");
    let (method, path, body) = match some % 11 {
        0..=2 => (
            reqwest::Method::PUT,
            account,
            json!({"name": format!("Person {some}"), "email": email}),
        ),
        3 | 4 => (
            reqwest::Method::PUT,
            format!("{account}/emails/{email}"),
            json!({"no_confirmation": true}),
        ),
        5 => (
            reqwest::Method::DELETE,
            format!("{account}/emails/{email}"),
            Value::Null,
        ),
        6..=8 => (
            reqwest::Method::PUT,
            format!("{account}/status"),
            json!({"status": format!("busy with {some}")}),
        ),
        9 => (
            reqwest::Method::DELETE,
            format!("{account}/active"),
            Value::Null,
        ),
        _ => (
            reqwest::Method::PUT,
            format!("{account}/active"),
            Value::Null,
        ),
    };
    let url = world.post.url(server) + &path;
    let request = world.post.client().request(method, url);
    let request = request
        .basic_auth(WEB_USER, Some(WEB_PASSWORD))
        .timeout(PATIENCE);
    let request = if body.is_null() {
        request
    } else {
        request.json(&body)
    };
    // Everything else is refused, or nobody knows: the check in the end looks at what is there.
    if matches!(request.send().await, Ok(answer) if answer.status().is_success()) {
        world.count("accounts changed");
    }
}

async fn ask(world: &World, server: usize, path: &str, body: &Value) -> Result<(), String> {
    let url = world.post.url(server) + path;
    let request = world
        .post
        .client()
        .post(url)
        .basic_auth(WEB_USER, Some(WEB_PASSWORD))
        .timeout(PATIENCE);
    let answer = request
        .json(body)
        .send()
        .await
        .map_err(|error| error.to_string())?;
    let (status, text) = (
        answer.status(),
        answer.text().await.map_err(|error| error.to_string())?,
    );
    if status.is_success() {
        Ok(())
    } else {
        Err(format!("{status}: {text}"))
    }
}

async fn send(
    world: &World,
    server: usize,
    method: reqwest::Method,
    path: &str,
) -> Result<String, String> {
    let url = world.post.url(server) + path;
    let request = world
        .post
        .client()
        .request(method, url)
        .basic_auth(WEB_USER, Some(WEB_PASSWORD))
        .timeout(PATIENCE);
    let answer = request.send().await.map_err(|error| error.to_string())?;
    let (status, text) = (
        answer.status(),
        answer.text().await.map_err(|error| error.to_string())?,
    );
    if status.is_success() {
        Ok(text)
    } else {
        Err(format!("{status}: {text}"))
    }
}
