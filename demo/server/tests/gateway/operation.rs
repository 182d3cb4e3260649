//! What an operator relies on: metrics, health, draining, flags.

use std::collections::{BTreeSet, HashMap};

use std::time::Duration;

use inorder::wire::ServerFrame;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::world::*;

/// The metrics by name and labels.
async fn metrics(gateway: &Gateway) -> HashMap<String, f64> {
    let (status, text) = gateway.get("/metrics").await;
    assert_eq!(status, 200);
    let text = text.as_str().unwrap().to_owned();
    let lines = text.lines().filter(|line| !line.starts_with('#')).map(|line| line.rsplit_once(' ').expect(line));
    lines.map(|(name, value)| (name.to_owned(), value.parse().expect(name))).collect()
}

#[tokio::test]
async fn metrics_count_what_happens() {
    let gateway = Gateway::quiet(&[]).await;
    let mut sockets = [Socket::open(&gateway).await, Socket::open(&gateway).await];
    for socket in &mut sockets {
        socket.subscribe(1, json!([{ "entity": "job/1" }, { "entity": "job/2" }])).await;
        socket.next_brief(4).await;
    }
    gateway.count("job/1", 1, 3).await;
    for socket in &mut sockets {
        socket.next_brief(3).await;
    }
    let epoch = gateway.epoch().await;
    sockets[0]
        .send(json!({ "type": "replay", "request": 2, "ranges": [{ "entity": "job/1", "epoch": epoch, "from": 2 }] }))
        .await;
    assert_eq!(sockets[0].next_brief(1).await, ["replay job/1 2-3 done"]);
    assert_eq!(gateway.try_post("job/1", &json!({ "nonsense": 1 })).await.0, 400);
    sockets[0].send(json!({ "type": "snapshot", "request": 3, "entities": [""] })).await;
    assert_eq!(sockets[0].next_brief(1).await, ["error bad_name"]);
    let [first, second] = sockets;
    drop(first);
    while metrics(&gateway).await["inorder_sockets"] > 1.0 {
        sleep(Duration::from_millis(10)).await;
    }
    let table = [
        ("inorder_up", 1.0),
        ("inorder_sockets", 1.0),
        ("inorder_subscriptions", 2.0),
        ("inorder_events_total", 3.0),
        ("inorder_batches_total", 3.0),
        ("inorder_sent_total", 6.0),
        ("inorder_replays_total", 1.0),
        ("inorder_replayed_total", 2.0),
        ("inorder_snapshots_total", 4.0),
        ("inorder_row", 3.0),
        ("inorder_lag_rows", 0.0),
        ("inorder_lag_seconds_count", 3.0),
        ("inorder_lag_seconds_bucket{le=\"+Inf\"}", 3.0),
        ("inorder_refused_total{code=\"bad_event\"}", 1.0),
        ("inorder_refused_total{code=\"bad_name\"}", 1.0),
        ("inorder_closed_total{code=\"1000\"}", 1.0),
    ];
    let metrics = metrics(&gateway).await;
    for (name, expected) in table {
        assert_eq!(metrics.get(name), Some(&expected), "{name}");
    }
    assert!(metrics["process_resident_memory_bytes"] > 1e6);
    drop(second);
}

#[tokio::test]
async fn a_draining_gateway_is_alive_and_not_ready_and_serves_on() {
    let mut gateway = Gateway::quiet(&["--drain", "60"]).await;
    let mut socket = Socket::open(&gateway).await;
    socket.subscribe(1, json!([{ "entity": "job/1" }])).await;
    socket.next_brief(2).await;
    assert_eq!(gateway.get("/health/ready").await.0, 200);
    gateway.terminate();
    while gateway.get("/health/ready").await.0 == 200 {
        sleep(Duration::from_millis(10)).await;
    }
    let (status, body) = gateway.get("/health/ready").await;
    assert_eq!((status, &body["code"]), (503, &json!("unavailable")));
    assert_eq!(gateway.get("/health/live").await, (200, json!({ "ok": true })));
    assert_eq!(gateway.post("job/1", &json!({ "data": 1 })).await, 1);
    assert_eq!(socket.next_brief(1).await, ["event job/1 1"]);
    // Asked again, it does not wait.
    gateway.terminate();
    let (_, code) = socket.rest().await;
    assert_eq!(code, 1012);
    assert!(gateway.ended().await);
}

/// Posts until nobody answers; how many were stored.
async fn post_on(address: String, writer: usize) -> u64 {
    let mut stored = 0;
    loop {
        let Ok(mut stream) = TcpStream::connect(&address).await else { return stored };
        let body = json!({ "id": format!("{writer}-{stored}"), "data": { "writer": writer } }).to_string();
        let head = format!(
            "POST /entities/order/{writer}/events HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        let mut answer = String::new();
        let sent = stream.write_all(format!("{head}{body}").as_bytes()).await;
        if sent.is_err() || stream.read_to_string(&mut answer).await.is_err() || !answer.starts_with("HTTP/1.1 200") {
            return stored;
        }
        stored += 1;
    }
}

#[tokio::test]
async fn g12_under_load_every_socket_hears_goodbye_behind_what_it_was_sent() {
    const SOCKETS: usize = 120;
    const WRITERS: usize = 6;
    let folder = Folder::new();
    let database = folder.path("log.db");
    let mut gateway = Gateway::with_file(&database, &[]).await;
    let orders: Vec<_> = (0..WRITERS).map(|writer| json!({ "entity": format!("order/{writer}") })).collect();
    let mut readers = JoinSet::new();
    for _ in 0..SOCKETS {
        let mut socket = Socket::open(&gateway).await;
        socket.subscribe(1, json!(orders)).await;
        socket.next_brief(WRITERS * 2).await;
        readers.spawn(async move { socket.rest().await });
    }
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        writers.spawn(post_on(gateway.address.clone(), writer));
    }
    while metrics(&gateway).await["inorder_events_total"] < 60.0 {
        sleep(Duration::from_millis(20)).await;
    }
    let since = Instant::now();
    gateway.terminate();
    assert!(gateway.ended().await);
    assert!(since.elapsed() < Duration::from_secs(7), "{:?}", since.elapsed());

    let mut waits = BTreeSet::new();
    for (frames, code) in readers.join_all().await {
        assert_eq!(code, 1012);
        let mut heads = HashMap::new();
        let Some((ServerFrame::Goodbye(goodbye), frames)) = frames.split_last() else {
            panic!("no goodbye at the end")
        };
        for frame in frames {
            if let ServerFrame::Event(event) = frame {
                let head = heads.entry(event.entity.clone()).or_insert(0);
                *head += 1;
                assert_eq!(event.seq, Some(*head), "{}", event.entity);
            }
        }
        assert_eq!(heads.len(), WRITERS, "it was told something of each");
        waits.insert((goodbye.retry_after.unwrap() * 1_000.0) as u64);
    }
    assert!(waits.len() > SOCKETS / 2 && waits.iter().all(|wait| *wait <= 1_200), "{waits:?}");

    let answered: u64 = writers.join_all().await.into_iter().sum();
    assert!(answered > 40, "{answered} posts are no load");
    let gateway = Gateway::with_file(&database, &[]).await;
    let mut found = 0;
    for writer in 0..WRITERS {
        found += gateway.get(&format!("/entities/order/{writer}")).await.1["seq"].as_u64().unwrap();
    }
    // Stored without an answer is possible, the other way round is not.
    assert!((answered..=answered + WRITERS as u64).contains(&found), "{found} of {answered}");
}

#[test]
fn every_flag_is_documented_with_its_variable() {
    let help = std::process::Command::new(env!("CARGO_BIN_EXE_inorder-gateway")).arg("--help").output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let docs = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/gateway.md")).unwrap();
    let flag = |line: &str| {
        let at = line.find("--")?;
        let end = line[at + 2..].find(|c: char| !c.is_ascii_lowercase() && c != '-').unwrap_or(line.len() - at - 2);
        Some(line[at..at + 2 + end].to_owned())
    };
    let told: BTreeSet<String> =
        help.lines().filter(|line| line.trim_start().starts_with('-')).filter_map(flag).collect();
    let rows = docs.lines().filter(|line| line.starts_with("| `--"));
    let documented: BTreeSet<String> = rows.filter_map(flag).collect();
    let own = ["--help", "--version"].map(str::to_owned).into();
    assert_eq!(told.difference(&own).cloned().collect::<BTreeSet<_>>(), documented);
    for variable in docs.split('`').filter(|word| word.starts_with("INORDER_") && *word != "INORDER_SECRET") {
        assert!(help.contains(&format!("[env: {variable}=")), "{variable}");
    }
}
