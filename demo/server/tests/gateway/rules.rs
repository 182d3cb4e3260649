//! G1 to G13.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit, Mac};
use inorder::wire::ServerFrame;
use serde_json::{Value, json};
use sha2::Sha256;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::world::*;

fn seqs(body: &Value) -> Vec<u64> {
    body["events"].as_array().unwrap().iter().map(|event| event["seq"].as_u64().unwrap()).collect()
}

#[tokio::test]
async fn g01_an_event_and_its_number_are_stored_together_without_holes() {
    let gateway = std::sync::Arc::new(Gateway::quiet(&[]).await);
    let mut posts = JoinSet::new();
    for count in 0..120 {
        let gateway = gateway.clone();
        posts.spawn(async move {
            // Every third one is refused, and must use no number.
            if count % 3 == 0 {
                assert_eq!(gateway.try_post("order/1", &json!({ "data": 1, "nonsense": 2 })).await.0, 400);
                return None;
            }
            Some(gateway.post("order/1", &json!({ "id": format!("e{count}"), "data": { "count": count } })).await)
        });
    }
    let mut numbers: Vec<u64> = posts.join_all().await.into_iter().flatten().collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (1..=80).collect::<Vec<_>>());
    let (_, body) = gateway.get("/entities/order%2F1/events?after=0").await;
    assert_eq!(seqs(&body), numbers);
}

#[tokio::test]
async fn g02_a_kill_between_commit_and_push_loses_nothing() {
    let folder = Folder::new();
    let database = folder.path("log.db");
    let mut gateway = Gateway::with_file(&database, &["--stop-before-push", "3", "--deaf"]).await;
    let epoch = gateway.epoch().await;
    let mut socket = Socket::open(&gateway).await;
    socket.subscribe(1, json!([{ "entity": "job/1" }])).await;
    assert_eq!(socket.next_brief(2).await, ["subscribed job/1 0", "snapshot job/1 0"]);
    gateway.count("job/1", 1, 2).await;
    assert_eq!(socket.next_brief(2).await, ["event job/1 1", "event job/1 2"]);
    let last = json!({ "id": "the last", "status": "completed", "data": { "count": 3 } });
    let path = "/entities/job%2F1/events";
    let address = gateway.address.clone();
    let body = last.to_string();
    let post = tokio::spawn(async move {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let mut stream = tokio::net::TcpStream::connect(&address).await.unwrap();
        let head = format!("POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        answer.len()
    });
    gateway.logged("stopped between commit and push").await;
    gateway.kill().await;
    assert_eq!(post.await.unwrap(), 0, "the producer got no answer");
    assert_eq!(socket.next_or_close().await, Err(1006), "the subscriber got nothing");

    let gateway = Gateway::with_file(&database, &[]).await;
    assert_eq!(gateway.epoch().await, epoch, "nothing went back");
    let mut socket = Socket::open(&gateway).await;
    socket.subscribe(1, json!([{ "entity": "job/1", "epoch": epoch, "after": 2 }])).await;
    assert_eq!(socket.next_brief(1).await, ["subscribed job/1 3"]);
    let replay = socket.next_json().await;
    assert_eq!(brief(&replay), "replay job/1 3-3 done");
    assert_eq!(replay["events"][0]["id"], "the last");
    let (status, body) = gateway.try_post("job/1", &last).await;
    assert_eq!((status, &body["seq"], &body["duplicate"]), (200, &json!(3), &json!(true)), "posted again");
}

#[tokio::test]
async fn g03_the_same_event_id_returns_its_number() {
    let gateway = Gateway::quiet(&[]).await;
    let table = [("a", 1), ("b", 2), ("a", 1), ("c", 3), ("b", 2)];
    for (id, expected) in table {
        assert_eq!(gateway.post("job/1", &json!({ "id": id, "data": { id: true } })).await, expected, "{id}");
    }
    assert_eq!(gateway.post("job/2", &json!({ "id": "a" })).await, 1, "ids belong to their entity");
    let (_, state) = gateway.get("/entities/job%2F1").await;
    assert_eq!(state["data"], json!({ "a": true, "b": true, "c": true }));
}

#[tokio::test]
async fn g03_a_terminal_event_posted_again_returns_its_number() {
    let gateway = Gateway::quiet(&[]).await;
    let end = json!({ "id": "end", "status": "completed" });
    assert_eq!(gateway.post("job/1", &end).await, 1);
    assert_eq!(gateway.post("job/1", &end).await, 1);
}

#[tokio::test]
async fn g04_a_snapshot_and_its_position_belong_together() {
    let folder = Folder::new();
    let gateway = std::sync::Arc::new(Gateway::with_file(&folder.path("log.db"), &[]).await);
    let poster = tokio::spawn({
        let gateway = gateway.clone();
        async move { gateway.count("job/1", 1, 150).await }
    });
    let mut socket = Socket::open(&gateway).await;
    let mut seen = 0;
    while !poster.is_finished() {
        socket.send(json!({ "type": "snapshot", "request": 1, "entities": ["job/1"] })).await;
        let snapshot = socket.next_json().await;
        let seq = snapshot["seq"].as_u64().unwrap();
        assert_eq!(snapshot["data"]["count"].as_u64().unwrap_or(0), seq, "{snapshot}");
        let (_, state) = gateway.get("/entities/job%2F1").await;
        assert_eq!(state["data"]["count"].as_u64().unwrap_or(0), state["seq"].as_u64().unwrap(), "{state}");
        seen += 1;
    }
    poster.await.unwrap();
    assert!(seen > 5);
}

#[tokio::test]
async fn an_entity_without_events_is_answered_with_a_snapshot_at_0() {
    let gateway = Gateway::quiet(&[]).await;
    let mut socket = Socket::open(&gateway).await;
    socket.subscribe(1, json!([{ "entity": "job/1" }])).await;
    assert_eq!(socket.next_brief(1).await, ["subscribed job/1 0"]);
    let snapshot = socket.next_json().await;
    assert_eq!((&snapshot["seq"], &snapshot["data"], &snapshot["request"]), (&json!(0), &json!(null), &json!(1)));
    gateway.count("job/1", 1, 1).await;
    assert_eq!(socket.next_brief(1).await, ["event job/1 1"]);
    assert_eq!(gateway.get("/entities/nobody").await.1["seq"], 0);
}

#[tokio::test]
async fn g05_after_a_terminal_status_changes_are_refused() {
    let gateway = Gateway::quiet(&["--reopen", "order", "--terminal", "ticket=closed"]).await;
    let table = [
        ("job/1", "completed", 409),
        ("job/2", "failed", 409),
        ("job/3", "cancelled", 409),
        ("job/4", "running", 200),
        ("deployment/dep_302", "failed", 200),
        ("deployment/dep_301", "live", 409),
        ("order/1", "completed", 200),
        ("ticket/1", "completed", 200),
        ("ticket/2", "closed", 409),
    ];
    for (entity, status, expected) in table {
        gateway.post(entity, &json!({ "status": status })).await;
        let (code, body) = gateway.try_post(entity, &json!({ "status": "running" })).await;
        assert_eq!(code, expected, "{entity} {status}");
        if expected == 409 {
            assert_eq!((&body["code"], &body["status"]), (&json!("terminal"), &json!(status)));
            assert!(body["message"].as_str().unwrap().contains(status));
        }
    }
}

#[tokio::test]
async fn g06_a_replay_is_contiguous_paged_and_ends_with_done() {
    let gateway = Gateway::quiet(&[]).await;
    gateway.count("job/1", 1, 1200).await;
    let epoch = gateway.epoch().await;
    let mut socket = Socket::open(&gateway).await;
    let replay = |from: u64, to: Value| json!({ "type": "replay", "request": 7, "ranges": [{ "entity": "job/1", "epoch": epoch, "from": from, "to": to }] });
    socket.send(replay(1, Value::Null)).await;
    let pages = ["replay job/1 1-500 more", "replay job/1 501-1000 more", "replay job/1 1001-1200 done"];
    assert_eq!(socket.next_brief(3).await, pages);
    socket.send(replay(1199, json!(1199))).await;
    socket.send(replay(1199, json!(5000))).await;
    socket.send(replay(1201, Value::Null)).await;
    socket.send(replay(1202, Value::Null)).await;
    let expected =
        ["replay job/1 1199-1199 done", "replay job/1 1199-1200 done", "replay job/1 none done", "ahead job/1 1200"];
    assert_eq!(socket.next_brief(4).await, expected);
    socket
        .send(json!({ "type": "replay", "request": 7, "ranges": [{ "entity": "job/1", "epoch": "other", "from": 1 }] }))
        .await;
    let snapshot = socket.next_json().await;
    assert_eq!((brief(&snapshot).as_str(), &snapshot["request"]), ("snapshot job/1 1200", &json!(7)));
}

#[tokio::test]
async fn g06_a_page_has_at_most_256_kib() {
    let gateway = Gateway::quiet(&[]).await;
    for _ in 0..5 {
        gateway.post("log/1", &json!({ "data": { "line": "x".repeat(100_000) } })).await;
    }
    let mut socket = Socket::open(&gateway).await;
    let epoch = gateway.epoch().await;
    socket.subscribe(1, json!([{ "entity": "log/1", "epoch": epoch, "after": 0 }])).await;
    let pages = ["subscribed log/1 5", "replay log/1 1-2 more", "replay log/1 3-4 more", "replay log/1 5-5 done"];
    assert_eq!(socket.next_brief(4).await, pages);
}

#[tokio::test]
async fn g06_what_was_trimmed_is_gone() {
    let gateway = Gateway::quiet(&["--retain", "5"]).await;
    gateway.count("job/1", 1, 20).await;
    let epoch = gateway.epoch().await;
    let mut socket = Socket::open(&gateway).await;
    for (after, expected) in [(14, "gone job/1 16"), (15, "replay job/1 16-20 done"), (18, "replay job/1 19-20 done")] {
        socket.subscribe(1, json!([{ "entity": "job/1", "epoch": epoch, "after": after }])).await;
        assert_eq!(socket.next_brief(2).await, ["subscribed job/1 20", expected]);
    }
    let (status, body) = gateway.get("/entities/job%2F1/events?after=3").await;
    assert_eq!((status, &body["code"], &body["oldest"]), (410, &json!("gone"), &json!(16)));
    gateway.count("job/1", 21, 21).await;
    assert_eq!(socket.next_brief(1).await, ["event job/1 21"], "live events go on after gone");
}

#[tokio::test]
async fn g06_trimmed_between_pages_is_gone() {
    let gateway = Gateway::quiet(&["--retain", "300", "--max-queued", "1048576"]).await;
    let line = "x".repeat(16_000);
    for _ in 0..300 {
        gateway.post("log/1", &json!({ "data": { "line": line } })).await;
    }
    let epoch = gateway.epoch().await;
    let opening = Opening { buffer: Some(4096), ..Opening::default() };
    let mut socket = Socket::open_with(&gateway, opening, json!({ "type": "hello" })).await;
    let ranges = json!([{ "entity": "log/1", "epoch": epoch, "from": 1 }]);
    socket.send(json!({ "type": "replay", "request": 1, "ranges": ranges })).await;
    let first = brief(&socket.next_json().await);
    assert_eq!(first, "replay log/1 1-16 more");
    for _ in 0..299 {
        gateway.post("log/1", &json!({ "data": { "line": "" } })).await;
    }
    let mut next = 17;
    loop {
        let frame = socket.next_json().await;
        if frame["type"] == "gone" {
            assert_eq!(frame["oldest"], 300);
            break;
        }
        for event in frame["events"].as_array().unwrap() {
            assert_eq!(event["seq"], next, "contiguous up to the end");
            next += 1;
        }
        assert_eq!(frame["done"], false);
    }
}

#[tokio::test]
async fn g07_nothing_falls_between_the_answer_and_the_live_events() {
    let folder = Folder::new();
    let gateway = std::sync::Arc::new(Gateway::with_file(&folder.path("log.db"), &[]).await);
    gateway.count("job/1", 1, 20).await;
    let epoch = gateway.epoch().await;
    let poster = tokio::spawn({
        let gateway = gateway.clone();
        async move { gateway.count("job/1", 21, 320).await }
    });
    let mut sockets = JoinSet::new();
    for round in 0..20_u64 {
        sleep(Duration::from_millis(10)).await;
        let gateway = gateway.clone();
        let epoch = epoch.clone();
        sockets.spawn(async move {
            let mut socket = Socket::open(&gateway).await;
            let position = json!([{ "entity": "job/1", "epoch": epoch, "after": round }]);
            let from = if round % 2 == 0 { position } else { json!([{ "entity": "job/1" }]) };
            socket.subscribe(1, from).await;
            let mut last = round;
            while last < 320 {
                match socket.next().await {
                    ServerFrame::Snapshot(snapshot) => last = snapshot.seq.unwrap(),
                    ServerFrame::Replay(replay) => {
                        for event in replay.events {
                            assert_eq!(event.seq, Some(last + 1));
                            last += 1;
                        }
                    }
                    ServerFrame::Event(event) => {
                        assert_eq!(event.seq, Some(last + 1));
                        last += 1;
                    }
                    _ => {}
                }
            }
        });
    }
    sockets.join_all().await;
    poster.await.unwrap();
}

#[tokio::test]
async fn g08_a_slow_reader_is_closed_with_1013_and_resumes() {
    let gateway = Gateway::quiet(&["--max-queued", "1048576"]).await;
    let opening = Opening { buffer: Some(4096), ..Opening::default() };
    let mut slow = Socket::open_with(&gateway, opening, json!({ "type": "hello" })).await;
    let mut quick = Socket::open(&gateway).await;
    for socket in [&mut slow, &mut quick] {
        socket.subscribe(1, json!([{ "entity": "log/1" }])).await;
        assert_eq!(socket.next_brief(2).await, ["subscribed log/1 0", "snapshot log/1 0"]);
    }
    let line = "x".repeat(60_000);
    let mut posted = 0;
    while !gateway.get("/metrics").await.1.as_str().unwrap().contains("closed_total{code=\"1013\"} 1") {
        posted += 1;
        gateway.post("log/1", &json!({ "data": { "line": line } })).await;
        assert_eq!(quick.next_brief(1).await, [format!("event log/1 {posted}")], "the others go on");
        assert!(posted < 1_000, "it was never closed");
    }
    let (frames, code) = slow.rest().await;
    assert_eq!(code, 1013);
    let events = frames.iter().filter_map(|frame| match frame {
        ServerFrame::Event(event) => event.seq,
        _ => None,
    });
    let last = events.zip(1..).fold(0, |_, (seq, expected)| {
        assert_eq!(seq, expected);
        seq
    });
    assert!(last < posted, "some were not sent");
    let mut socket = Socket::open(&gateway).await;
    let epoch = gateway.epoch().await;
    socket.subscribe(1, json!([{ "entity": "log/1", "epoch": epoch, "after": last }])).await;
    assert_eq!(socket.next_brief(1).await, [format!("subscribed log/1 {posted}")]);
    let replay = socket.next_json().await;
    assert_eq!(replay["events"][0]["seq"], last + 1);
}

#[tokio::test]
async fn g09_a_log_that_may_have_gone_back_gets_a_new_epoch() {
    let folder = Folder::new();
    let (database, mark, backup) = (folder.path("log.db"), folder.path("log.db.mark"), folder.path("backup.db"));
    let gateway = Gateway::with_file(&database, &[]).await;
    let first = gateway.epoch().await;
    gateway.count("job/1", 1, 5).await;
    gateway.stop().await;

    let gateway = Gateway::with_file(&database, &[]).await;
    assert_eq!(gateway.epoch().await, first, "a restart goes on");
    gateway.stop().await;
    std::fs::copy(&database, &backup).unwrap();

    let gateway = Gateway::with_file(&database, &[]).await;
    gateway.count("job/1", 6, 9).await;
    gateway.kill().await;
    let gateway = Gateway::with_file(&database, &[]).await;
    assert_eq!(gateway.epoch().await, first, "a kill goes on");
    gateway.stop().await;

    // An older copy is put back.
    std::fs::copy(&backup, &database).unwrap();
    let gateway = Gateway::with_file(&database, &[]).await;
    let second = gateway.epoch().await;
    assert_ne!(second, first);
    let mut socket = Socket::open(&gateway).await;
    socket.subscribe(1, json!([{ "entity": "job/1", "epoch": first, "after": 9 }])).await;
    let subscribed = socket.next_json().await;
    assert_eq!((&subscribed["epoch"], &subscribed["head"]), (&json!(second), &json!(5)));
    let snapshot = socket.next_json().await;
    assert_eq!((&snapshot["epoch"], &snapshot["seq"]), (&json!(second), &json!(5)));
    gateway.count("job/1", 6, 6).await;
    let (_, body) = gateway.get("/entities/job%2F1/events?after=0").await;
    assert_eq!(seqs(&body), [1, 2, 3, 4, 5, 6], "what is kept goes over to the new epoch");
    gateway.stop().await;

    // The copy is of an epoch that is over.
    std::fs::copy(&backup, &database).unwrap();
    let gateway = Gateway::with_file(&database, &[]).await;
    let third = gateway.epoch().await;
    assert!(third != first && third != second);
    gateway.stop().await;

    // Nobody knows how far it was.
    std::fs::remove_file(&mark).unwrap();
    let gateway = Gateway::with_file(&database, &[]).await;
    let fourth = gateway.epoch().await;
    assert_ne!(fourth, third);
    gateway.stop().await;

    // The operator knows.
    let gateway = Gateway::with_file(&database, &["--new-epoch"]).await;
    assert_ne!(gateway.epoch().await, fourth);
}

const SECRET: &str = "a secret of tests";

fn token(seconds: i64, entities: &[&str], publish: &[&str]) -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let exp = i64::try_from(now).unwrap() + seconds;
    let claims = json!({ "exp": exp, "entities": entities, "publish": publish });
    let head = URL_SAFE_NO_PAD.encode(r#"{"alg":"HS256","typ":"JWT"}"#);
    let body = format!("{head}.{}", URL_SAFE_NO_PAD.encode(claims.to_string()));
    let mut mac = Hmac::<Sha256>::new_from_slice(SECRET.as_bytes()).unwrap();
    mac.update(body.as_bytes());
    format!("{body}.{}", URL_SAFE_NO_PAD.encode(mac.finalize().into_bytes()))
}

async fn closed_gateway() -> Gateway {
    Gateway::start(&["--secret", SECRET, "--workload", "none"]).await
}

async fn open_with_token(gateway: &Gateway, token: &str) -> Socket {
    Socket::open_with(gateway, Opening::default(), json!({ "type": "hello", "token": token })).await
}

#[tokio::test]
async fn g10_origins_that_are_not_allowed_are_refused() {
    let gateway = Gateway::quiet(&["--origin", "https://app.example.com"]).await;
    let table = [
        (None, true),
        (Some("https://app.example.com"), true),
        (Some("http://localhost:5173"), true),
        (Some("https://evil.example.com"), false),
    ];
    for (origin, allowed) in table {
        let opened = Socket::try_open(&gateway, Opening { origin, ..Opening::default() }).await;
        assert_eq!(opened.is_ok(), allowed, "{origin:?}");
        let headers: Vec<(&str, &str)> = origin.iter().map(|origin| ("Origin", *origin)).collect();
        let (status, body) = gateway.request("POST", "/entities/a/events", &headers, "{}").await;
        assert_eq!(status, if allowed { 200 } else { 403 }, "{body}");
    }
}

#[tokio::test]
async fn g10_a_socket_without_a_hello_is_closed_with_4408_after_5_s() {
    let gateway = Gateway::quiet(&[]).await;
    let mut socket = Socket::try_open(&gateway, Opening::default()).await.unwrap();
    let begin = std::time::Instant::now();
    let (frames, code) = socket.rest().await;
    assert_eq!((frames.len(), code), (1, 4408));
    assert!((4..9).contains(&begin.elapsed().as_secs()));
}

#[tokio::test]
async fn g10_a_bad_token_is_closed_with_4401() {
    let gateway = closed_gateway().await;
    let table = [
        (json!({ "type": "hello" }), "unauthorized"),
        (json!({ "type": "hello", "token": "nonsense" }), "unauthorized"),
        (json!({ "type": "hello", "token": token(-5, &["*"], &[]) }), "token_expired"),
    ];
    for (hello, expected) in table {
        let mut socket = Socket::try_open(&gateway, Opening::default()).await.unwrap();
        socket.send(hello).await;
        assert_eq!(brief(&socket.next_json().await), format!("error {expected}"));
        assert_eq!(socket.next_or_close().await, Err(4401));
    }
}

#[tokio::test]
async fn g10_every_question_is_authorised() {
    let gateway = closed_gateway().await;
    let mut socket = open_with_token(&gateway, &token(60, &["job/*"], &[])).await;
    let frames = [
        json!({ "type": "subscribe", "request": 1, "entities": [{ "entity": "order/1" }] }),
        json!({ "type": "replay", "request": 1, "ranges": [{ "entity": "order/1", "epoch": "e", "from": 1 }] }),
        json!({ "type": "snapshot", "request": 1, "entities": ["order/1"] }),
    ];
    for frame in frames {
        socket.send(frame).await;
        let error = socket.next_json().await;
        assert_eq!((brief(&error).as_str(), &error["request"]), ("error order/1 forbidden", &json!(1)));
    }
    socket.send(json!({ "type": "heads", "request": 2, "entities": ["order/1", "job/1"] })).await;
    assert_eq!(brief(&socket.next_json().await), "error order/1 forbidden");
    let heads = socket.next_json().await;
    assert_eq!(
        (&heads["request"], &heads["heads"][0][0], &heads["heads"][1]),
        (&json!(2), &json!("job/1"), &json!(null))
    );
    socket.subscribe(3, json!([{ "entity": "job/1" }])).await;
    assert_eq!(socket.next_brief(2).await, ["subscribed job/1 0", "snapshot job/1 0"]);
}

#[tokio::test]
async fn g10_http_is_authorised_too() {
    let gateway = closed_gateway().await;
    let good = format!("Bearer {}", token(60, &["job/*"], &["job/1"]));
    let expired = format!("Bearer {}", token(-1, &["*"], &["*"]));
    let table = [
        ("POST", "/entities/job%2F1/events", Some(&good), 200, ""),
        ("POST", "/entities/job%2F2/events", Some(&good), 403, "forbidden"),
        ("GET", "/entities/job%2F2", Some(&good), 200, ""),
        ("GET", "/entities/job%2F2/events", Some(&good), 200, ""),
        ("GET", "/entities/order%2F2", Some(&good), 403, "forbidden"),
        ("GET", "/entities/order%2F2/events", Some(&good), 403, "forbidden"),
        ("GET", "/entities/job%2F2", None, 401, "unauthorized"),
        ("GET", "/entities", None, 401, "unauthorized"),
        ("GET", "/entities/job%2F2", Some(&expired), 401, "token_expired"),
        ("GET", "/health", None, 200, ""),
    ];
    for (method, path, token, expected, code) in table {
        let headers: Vec<(&str, &str)> = token.iter().map(|token| ("Authorization", token.as_str())).collect();
        let (status, body) = gateway.request(method, path, &headers, "{}").await;
        assert_eq!(status, expected, "{method} {path} {body}");
        assert_eq!(body["code"].as_str().unwrap_or_default(), code);
    }
}

#[tokio::test]
async fn g10_a_token_is_renewed_or_ends_the_socket() {
    let gateway = closed_gateway().await;
    let mut socket = open_with_token(&gateway, &token(3, &["job/*", "order/*"], &[])).await;
    socket.subscribe(1, json!([{ "entity": "job/1" }, { "entity": "order/1" }])).await;
    socket.next_brief(4).await;
    assert_eq!(brief(&socket.next_json().await), "error token_expiring");
    // The next one covers less.
    socket.send(json!({ "type": "auth", "token": token(3, &["job/*"], &[]) })).await;
    assert_eq!(brief(&socket.next_json().await), "error order/1 forbidden");
    assert_eq!(brief(&socket.next_json().await), "error token_expiring");
    assert_eq!(brief(&socket.next_json().await), "error token_expired");
    assert_eq!(socket.next_or_close().await, Err(4401));
}

#[tokio::test]
async fn g10_large_frames_are_refused_with_1009() {
    let gateway = Gateway::quiet(&[]).await;
    let mut socket = Socket::open(&gateway).await;
    socket.send_text(format!("{{\"type\":\"ping\",\"id\":\"{}\"}}", "x".repeat(200_000))).await;
    socket.next().await;
    socket.send_text(format!("{{\"type\":\"ping\",\"id\":\"{}\"}}", "x".repeat(263_000))).await;
    assert_eq!(socket.next_or_close().await, Err(1009));
}

#[tokio::test]
async fn g10_subscriptions_are_limited() {
    let gateway = Gateway::quiet(&[]).await;
    let mut socket = Socket::open(&gateway).await;
    let epoch = gateway.epoch().await;
    let entities: Vec<Value> =
        (0..1001).map(|i| json!({ "entity": format!("job/{i}"), "epoch": epoch, "after": 0 })).collect();
    socket.subscribe(1, json!(entities)).await;
    for i in 0..1000 {
        assert_eq!(socket.next_brief(1).await, [format!("subscribed job/{i} 0")]);
    }
    assert_eq!(socket.next_brief(1).await, ["error job/1000 subscription_limit"]);
    socket.send(json!({ "type": "unsubscribe", "entities": ["job/0", "job/1"] })).await;
    socket.subscribe(2, json!([{ "entity": "job/1000" }])).await;
    assert_eq!(socket.next_brief(1).await, ["subscribed job/1000 0"]);
}

#[tokio::test]
async fn g12_on_sigterm_sockets_hear_goodbye_and_are_closed_with_1012() {
    let folder = Folder::new();
    let mut gateway = Gateway::with_file(&folder.path("log.db"), &[]).await;
    let mut sockets = [Socket::open(&gateway).await, Socket::open(&gateway).await, Socket::open(&gateway).await];
    gateway.terminate();
    let mut waits = Vec::new();
    for socket in &mut sockets {
        let ServerFrame::Goodbye(goodbye) = socket.next().await else { panic!("no goodbye") };
        waits.push(goodbye.retry_after.unwrap());
        assert_eq!(socket.next_or_close().await, Err(1012));
    }
    assert!(waits.iter().all(|wait| (0.0..=0.5).contains(wait)), "{waits:?}");
    waits.dedup();
    assert_eq!(waits.len(), 3, "spread");
    assert!(gateway.ended().await);
}

#[tokio::test]
async fn g13_heads_lie_behind_the_events_that_they_cover() {
    let gateway = std::sync::Arc::new(Gateway::quiet(&["--heartbeat", "0.05"]).await);
    let mut socket = Socket::open(&gateway).await;
    socket.subscribe(1, json!([{ "entity": "job/1" }])).await;
    socket.next_brief(2).await;
    let poster = tokio::spawn({
        let gateway = gateway.clone();
        async move { gateway.count("job/1", 1, 300).await }
    });
    let (mut last, mut asked, mut beaten) = (0, 0, 0);
    while last < 300 {
        if last % 10 == 0 {
            socket.send(json!({ "type": "heads", "request": 1, "entities": ["job/1"] })).await;
        }
        match socket.next().await {
            ServerFrame::Event(event) => {
                assert_eq!(event.seq, Some(last + 1));
                last += 1;
            }
            ServerFrame::Heads(heads) => {
                asked += 1;
                assert!(heads.heads[0].2 <= last, "{heads:?} at {last}");
            }
            ServerFrame::Heartbeat(heartbeat) => {
                for head in heartbeat.heads {
                    beaten += 1;
                    assert!(head.2 <= last, "{head:?} at {last}");
                }
            }
            frame => panic!("{frame:?}"),
        }
    }
    poster.await.unwrap();
    assert!(asked > 5 && beaten > 2, "{asked} {beaten}");
}
