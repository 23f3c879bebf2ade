//! Tests of Atlantis on Redis: one node with and without a password, and a cluster.

use serde_json::json;

use super::import;
use crate::support::db::{TestDb, stopped, store_test};
use crate::support::redis::Redis;

store_test!(
    locks_pulls_and_the_apply_lock_are_taken_from_redis,
    passwords_come_from_the_address_a_file_or_the_environment,
);

fn lock(path: &str, pull: i64) -> String {
    json!({
        "Project": {"ProjectName": "", "RepoFullName": "acme/infra", "Path": path},
        "Pull": {"Num": pull, "URL": format!("https://github.com/acme/infra/pull/{pull}"), "Author": "ada", "State": 0,
                 "BaseRepo": {"FullName": "acme/infra", "VCSHost": {"Hostname": "github.com", "Type": 0}}},
        "User": {"Username": "bob"},
        "Workspace": "default",
        "Time": "2026-02-27T14:03:05Z",
    })
    .to_string()
}

async fn locks_pulls_and_the_apply_lock_are_taken_from_redis(db: &TestDb) {
    let redis = Redis::start(&[]).await;
    let many = (0..450).map(|n| {
        (
            format!("pr/acme/infra/live/{n:03}/default/"),
            lock(&format!("live/{n:03}"), n + 1),
        )
    });
    let many: Vec<(String, String)> = many.collect();
    let mut values: Vec<(&str, String)> = many
        .iter()
        .map(|(key, value)| (key.as_str(), value.clone()))
        .collect();
    let status = json!({"Pull": serde_json::from_str::<serde_json::Value>(&lock("old", 12)).unwrap()["Pull"], "Projects": []});
    values.extend([
        ("pr/acme/infra/old/default", lock("old", 12)),
        ("github.com::acme/infra::12", status.to_string()),
        (
            "global/apply/lock",
            r#"{"LockMetadata":{"UnixTime":1772190185},"CommandName":0}"#.to_owned(),
        ),
        ("somebody::else::entirely", "not ours".to_owned()),
        ("pride", "not ours".to_owned()),
    ]);
    redis.set("", &values).await;
    let mut connection = redis.connection("").await;
    ::redis::cmd("HSET")
        .arg("pr/of/another/kind/")
        .arg("a")
        .arg("b")
        .exec_async(&mut connection)
        .await
        .unwrap();
    let before: String = ::redis::cmd("DEBUG")
        .arg("DIGEST")
        .query_async(&mut connection)
        .await
        .unwrap_or_default();

    let said = import(&db.url, &["--redis", &redis.url(""), "--write"], &[]);
    assert_eq!(said.code, 0, "{}{}", said.out, said.err);
    assert!(said.out.contains("Locks: 451 imported\n"), "{}", said.out);
    assert!(
        said.out
            .contains("all applies are stopped\n  imported  since 2026-02-27 11:03 UTC"),
        "{}",
        said.out
    );
    assert_eq!(db.store().lock_list().await.unwrap().len(), 451);
    let stopped = stopped(db.store()).await.unwrap();
    assert_eq!(
        stopped.reason,
        "taken over from Atlantis, where applies were stopped"
    );
    let after: String = ::redis::cmd("DEBUG")
        .arg("DIGEST")
        .query_async(&mut connection)
        .await
        .unwrap_or_default();
    assert_eq!(before, after);
}

async fn passwords_come_from_the_address_a_file_or_the_environment(db: &TestDb) {
    let redis = Redis::start(&["--requirepass", "sesame"]).await;
    redis
        .set("sesame", &[("pr/acme/infra/a/default/", lock("a", 1))])
        .await;
    let (with, without) = (redis.url("sesame"), redis.url(""));
    let file = db.dir.path().join("url");
    std::fs::write(&file, format!("{with}\n")).unwrap();
    let file = file.display().to_string();
    let ours = [
        ("LOCKKEEPER_REDIS_PASSWORD", "sesame"),
        ("ATLANTIS_REDIS_PASSWORD", "wrong"),
    ];
    for (args, variables) in [
        (["--redis", with.as_str()], &[][..]),
        (["--redis-url-file", file.as_str()], &[][..]),
        (["--redis", without.as_str()], &ours[..]),
        (
            ["--redis", without.as_str()],
            &[("ATLANTIS_REDIS_PASSWORD", "sesame")][..],
        ),
    ] {
        let said = import(&db.url, &args, variables);
        assert_eq!(said.code, 0, "{args:?}: {}", said.err);
        assert!(
            said.out.contains("Locks: 1 would be imported\n") && !said.out.contains("sesame"),
            "{}",
            said.out
        );
    }
    for variables in [&[][..], &[("ATLANTIS_REDIS_PASSWORD", "wrong-word")][..]] {
        let said = import(&db.url, &["--redis", &without], variables);
        assert_eq!(said.code, 1, "{}", said.out);
        assert!(!said.err.contains("wrong-word"), "{}", said.err);
    }
}

/// The cluster has two masters, which know each other and have half of the slots each.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_node_of_a_cluster_is_read() {
    let nodes = [Redis::node().await, Redis::node().await];
    let mut connections = [nodes[0].connection("").await, nodes[1].connection("").await];
    for (connection, slots) in connections.iter_mut().zip([(0, 8191), (8192, 16383)]) {
        ::redis::cmd("CLUSTER")
            .arg("ADDSLOTSRANGE")
            .arg(slots.0)
            .arg(slots.1)
            .exec_async(connection)
            .await
            .unwrap();
    }
    let db = TestDb::new(crate::support::db::Backend::Sqlite).await;
    let half = import(&db.url, &["--redis", &nodes[0].url("")], &[]);
    assert_eq!(half.code, 1);
    assert!(
        half.err.contains("only 8192 of its 16384 slots"),
        "{}",
        half.err
    );

    let meet = ["MEET", "127.0.0.1"];
    ::redis::cmd("CLUSTER")
        .arg(&meet[..])
        .arg(nodes[1].port)
        .exec_async(&mut connections[0])
        .await
        .unwrap();
    for connection in &mut connections {
        while !state(connection).await.contains("cluster_state:ok") {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    }
    let mut kept = [0, 0];
    for n in 0..20 {
        let key = format!("pr/acme/infra/live/{n}/default/");
        for (connection, kept) in connections.iter_mut().zip(&mut kept) {
            let value = lock(&format!("live/{n}"), n + 1);
            let set = ::redis::cmd("SET")
                .arg(&key)
                .arg(value)
                .exec_async(connection)
                .await;
            *kept += i32::from(set.is_ok());
        }
    }
    assert!(
        kept[0] > 0 && kept[1] > 0 && kept[0] + kept[1] == 20,
        "{kept:?}"
    );
    let mut stopped = 0;
    for connection in &mut connections {
        let set = ::redis::cmd("SET")
            .arg("global/apply/lock")
            .arg("{}")
            .exec_async(connection)
            .await;
        stopped += i32::from(set.is_ok());
    }
    assert_eq!(stopped, 1);
    for node in &nodes {
        let said = import(&db.url, &["--redis", &node.url("")], &[]);
        assert!(
            said.out.contains("Locks: 20 would be imported\n"),
            "{}{}",
            said.out,
            said.err
        );
        assert!(said.out.contains("all applies are stopped"), "{}", said.out);
    }
}

async fn state(connection: &mut ::redis::aio::MultiplexedConnection) -> String {
    ::redis::cmd("CLUSTER")
        .arg("INFO")
        .query_async(connection)
        .await
        .unwrap()
}
