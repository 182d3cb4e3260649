//! Faults on purpose.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::time::timeout;

use crate::world::*;

async fn breakable() -> Gateway {
    Gateway::quiet(&["--faults"]).await
}

async fn set(gateway: &Gateway, faults: Value) {
    let (status, body) = gateway.request("PUT", "/faults", &[], &faults.to_string()).await;
    assert_eq!(status, 200, "{body}");
}

async fn act(gateway: &Gateway, action: &str) {
    let (status, body) = gateway.request("POST", &format!("/faults/{action}"), &[], "").await;
    assert_eq!(status, 200, "{body}");
}

/// A socket that follows `job/1` from its state on.
async fn follower(gateway: &Gateway) -> Socket {
    let mut socket = Socket::open(gateway).await;
    socket.subscribe(1, json!([{ "entity": "job/1" }])).await;
    socket.next_brief(2).await;
    socket
}

#[tokio::test]
async fn without_the_flag_there_are_no_faults() {
    let gateway = Gateway::quiet(&[]).await;
    assert_eq!(gateway.get("/faults").await.0, 404);
    assert_eq!(gateway.request("POST", "/faults/cut", &[], "").await.0, 404);
}

#[tokio::test]
async fn faults_are_set_read_and_forgotten() {
    let gateway = breakable().await;
    assert_eq!(gateway.get("/faults").await.1["drop"], 0.0);
    set(&gateway, json!({ "drop": 0.5, "seed": 7 })).await;
    let page = "/faults?key=page";
    assert_eq!(gateway.get(page).await.1["drop"], 0.5, "a key without settings has those of all");
    assert_eq!(gateway.request("PUT", page, &[], r#"{"delay":1}"#).await.0, 200);
    let (_, own) = gateway.get(page).await;
    assert_eq!((&own["drop"], &own["delay"]), (&json!(0.0), &json!(1)));
    assert_eq!(gateway.get("/faults").await.1["drop"], 0.5);
    assert_eq!(gateway.request("DELETE", page, &[], "").await.1["drop"], 0.5);
    let (_, off) = gateway.request("DELETE", "/faults", &[], "").await;
    assert_eq!((&off["drop"], &off["seed"]), (&json!(0.0), &json!(7)));
    for bad in ["", "{", r#"{"drop":2}"#, r#"{"drop":-1}"#, r#"{"drip":1}"#, r#"{"delay":100000}"#] {
        let (status, body) = gateway.request("PUT", "/faults", &[], bad).await;
        assert_eq!((status, &body["code"]), (400, &json!("bad_faults")), "{bad}");
    }
    assert_eq!(gateway.request("POST", "/faults/nonsense", &[], "").await.0, 404);
    let evil = [("Origin", "https://evil.example.com")];
    assert_eq!(gateway.request("POST", "/faults/cut", &evil, "").await.0, 403);
}

#[tokio::test]
async fn dropped_events_are_seen_by_their_heads() {
    let gateway = Gateway::quiet(&["--faults", "--heartbeat", "0.2"]).await;
    let mut socket = follower(&gateway).await;
    set(&gateway, json!({ "drop": 1 })).await;
    gateway.count("job/1", 1, 3).await;
    let (between, heartbeat) = socket.until_heartbeat().await;
    assert!(between.is_empty(), "{between:?}");
    assert_eq!((heartbeat.heads[0].0.as_str(), heartbeat.heads[0].2), ("job/1", 3));
    let epoch = gateway.epoch().await;
    let ranges = json!([{ "entity": "job/1", "epoch": epoch, "from": 1 }]);
    socket.send(json!({ "type": "replay", "request": 2, "ranges": ranges })).await;
    assert_eq!(socket.next_brief(1).await, ["replay job/1 1-3 done"], "answers are not dropped");
}

#[tokio::test]
async fn duplicates_come_twice() {
    let gateway = breakable().await;
    let mut socket = follower(&gateway).await;
    set(&gateway, json!({ "duplicate": 1 })).await;
    gateway.count("job/1", 1, 4).await;
    let mut frames = socket.next_brief(8).await;
    frames.sort();
    let expected: Vec<String> = (1..=4).flat_map(|seq| vec![format!("event job/1 {seq}"); 2]).collect();
    assert_eq!(frames, expected);
}

#[tokio::test]
async fn copies_of_running_come_after_completed() {
    let gateway = breakable().await;
    let mut socket = follower(&gateway).await;
    set(&gateway, json!({ "duplicate": 1 })).await;
    for _ in 0..20 {
        gateway.post("job/1", &json!({ "status": "running" })).await;
    }
    // A step of the demo's jobs takes so long.
    tokio::time::sleep(Duration::from_millis(1_000)).await;
    gateway.post("job/1", &json!({ "status": "completed" })).await;
    let mut told = Vec::new();
    for _ in 0..42 {
        told.push(socket.next_json().await["status"].as_str().unwrap_or_default().to_owned());
    }
    let completed = told.iter().position(|status| status == "completed").expect("it comes");
    assert!(completed >= 20, "the events themselves come in order: {told:?}");
    assert!(told[completed..].iter().any(|status| status == "running"), "no copy comes after it: {told:?}");
    assert!(socket.is_quiet().await, "each is copied once");
}

#[tokio::test]
async fn reordered_events_all_come() {
    let gateway = breakable().await;
    let mut socket = follower(&gateway).await;
    set(&gateway, json!({ "reorder": 0.5, "seed": 3 })).await;
    gateway.count("job/1", 1, 20).await;
    let frames = socket.next_brief(20).await;
    let expected: Vec<String> = (1..=20).map(|seq| format!("event job/1 {seq}")).collect();
    assert_ne!(frames, expected);
    assert!(expected.iter().all(|frame| frames.contains(frame)));
}

#[tokio::test]
async fn a_delayed_wire_keeps_its_order() {
    let gateway = breakable().await;
    let mut socket = follower(&gateway).await;
    set(&gateway, json!({ "delay": 200 })).await;
    let begin = Instant::now();
    gateway.count("job/1", 1, 20).await;
    // An answer lies behind the events that it covers; a pong might come before them.
    socket.send(json!({ "type": "snapshot", "request": 2, "entities": ["job/1"] })).await;
    let mut expected: Vec<String> = (1..=20).map(|seq| format!("event job/1 {seq}")).collect();
    expected.push("snapshot job/1 20".to_owned());
    assert_eq!(socket.next_brief(21).await, expected);
    assert!(begin.elapsed() > Duration::from_millis(100));
}

#[tokio::test]
async fn stale_snapshots_are_states_that_were() {
    let gateway = breakable().await;
    gateway.count("job/1", 1, 9).await;
    let mut socket = follower(&gateway).await;
    set(&gateway, json!({ "stale_snapshot": 1 })).await;
    socket.send(json!({ "type": "snapshot", "request": 2, "entities": ["job/1"] })).await;
    let stale = socket.next_json().await;
    let seq = stale["seq"].as_u64().unwrap();
    assert!((4..9).contains(&seq) && stale["data"] == json!({ "count": seq }) && stale["request"] == 2, "{stale}");
    gateway.count("job/1", 10, 10).await;
    assert_eq!(socket.next_brief(2).await, ["event job/1 10", "snapshot job/1 8"]);
    set(&gateway, json!({})).await;
    act(&gateway, "stale_snapshot").await;
    assert_eq!(socket.next_brief(1).await, ["snapshot job/1 8"]);
}

#[tokio::test]
async fn a_quiet_entity_that_was_answered_with_an_old_state_is_named_by_the_next_heartbeats() {
    let gateway = Gateway::quiet(&["--faults", "--heartbeat", "0.2"]).await;
    gateway.count("job/1", 1, 9).await;
    let mut socket = follower(&gateway).await;
    // Three intervals later no heartbeat names it any more by itself.
    while !socket.until_heartbeat().await.1.heads.is_empty() {}
    set(&gateway, json!({ "stale_snapshot": 1 })).await;
    socket.send(json!({ "type": "snapshot", "request": 2, "entities": ["job/1"] })).await;
    let (answer, heartbeat) = socket.until_heartbeat().await;
    assert_eq!(answer.len(), 1, "{answer:?}");
    assert_ne!(answer[0], "snapshot job/1 9", "it is an old one");
    let named: Vec<_> = heartbeat.heads.iter().map(|head| (head.0.as_str(), head.2)).collect();
    assert_eq!(named, [("job/1", 9)]);
}

#[tokio::test]
async fn a_cut_has_no_close_frame() {
    let gateway = breakable().await;
    let mut socket = follower(&gateway).await;
    act(&gateway, "cut").await;
    assert_eq!(socket.next_or_close().await, Err(1006));
    let mut socket = follower(&gateway).await;
    set(&gateway, json!({ "cut": 1 })).await;
    assert_eq!(socket.next_or_close().await, Err(1006));
}

#[tokio::test]
async fn half_open_sockets_say_nothing() {
    let gateway = Gateway::quiet(&["--faults", "--heartbeat", "0.1"]).await;
    let mut socket = follower(&gateway).await;
    act(&gateway, "half_open").await;
    gateway.count("job/1", 1, 1).await;
    socket.send(json!({ "type": "ping", "id": 1 })).await;
    let silence = async {
        loop {
            if let Err(code) = socket.next_or_close().await {
                return code;
            }
        }
    };
    assert!(timeout(Duration::from_millis(600), silence).await.is_err());
    set(&gateway, json!({ "half_open": 1 })).await;
    let mut socket = Socket::try_open(&gateway, Opening::default()).await.expect("it is accepted");
    socket.send(json!({ "type": "hello" })).await;
    assert!(timeout(Duration::from_millis(600), socket.next_or_close()).await.is_err());
}

#[tokio::test]
async fn replays_may_be_refused() {
    let gateway = breakable().await;
    let mut socket = follower(&gateway).await;
    set(&gateway, json!({ "refuse_replay": 1 })).await;
    gateway.count("job/1", 1, 2).await;
    socket.next_brief(2).await;
    let epoch = gateway.epoch().await;
    let ranges = json!([{ "entity": "job/1", "epoch": epoch, "from": 1 }]);
    socket.send(json!({ "type": "replay", "request": 2, "ranges": ranges })).await;
    let error = socket.next_json().await;
    assert_eq!((brief(&error).as_str(), &error["request"]), ("error job/1 replay_refused", &json!(2)));
    socket.subscribe(3, json!([{ "entity": "job/1", "epoch": epoch, "after": 1 }])).await;
    assert_eq!(socket.next_brief(2).await, ["subscribed job/1 2", "error job/1 replay_refused"]);
    gateway.count("job/1", 3, 3).await;
    assert_eq!(socket.next_brief(1).await, ["event job/1 3"]);
}

#[tokio::test]
async fn a_crash_between_commit_and_push_loses_nothing() {
    let gateway = breakable().await;
    let mut socket = follower(&gateway).await;
    gateway.count("job/1", 1, 1).await;
    assert_eq!(socket.next_brief(1).await, ["event job/1 1"]);
    act(&gateway, "crash").await;
    gateway.count("job/1", 2, 3).await;
    assert_eq!(socket.next_or_close().await, Err(1006), "committed, not pushed");
    let begin = Instant::now();
    let mut socket = loop {
        match Socket::try_open(&gateway, Opening::default()).await {
            Ok(socket) => break socket,
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    };
    assert!(begin.elapsed() > Duration::from_millis(500), "it is away for a while");
    socket.send(json!({ "type": "hello" })).await;
    socket.next().await;
    let epoch = gateway.epoch().await;
    socket.subscribe(1, json!([{ "entity": "job/1", "epoch": epoch, "after": 1 }])).await;
    assert_eq!(socket.next_brief(2).await, ["subscribed job/1 3", "replay job/1 2-3 done"]);
}

#[tokio::test]
async fn a_new_epoch_alone_comes_with_the_next_event() {
    let gateway = breakable().await;
    gateway.count("job/1", 1, 2).await;
    let mut socket = follower(&gateway).await;
    let before = gateway.epoch().await;
    act(&gateway, "new_epoch?events=0").await;
    let after = gateway.epoch().await;
    assert_ne!(before, after);
    gateway.count("job/1", 3, 3).await;
    let event = socket.next_json().await;
    assert_eq!((&event["seq"], &event["epoch"]), (&json!(3), &json!(after)));
    let ranges = json!([{ "entity": "job/1", "epoch": before, "from": 1 }]);
    socket.send(json!({ "type": "replay", "request": 2, "ranges": ranges })).await;
    assert_eq!(socket.next_brief(1).await, ["snapshot job/1 3"]);
}

#[tokio::test]
async fn a_trimmed_log_has_only_the_last() {
    let gateway = breakable().await;
    gateway.count("job/1", 1, 10).await;
    let mut socket = follower(&gateway).await;
    act(&gateway, "trim?keep=2").await;
    let epoch = gateway.epoch().await;
    let ranges =
        json!([{ "entity": "job/1", "epoch": epoch, "from": 8 }, { "entity": "job/1", "epoch": epoch, "from": 9 }]);
    socket.send(json!({ "type": "replay", "request": 2, "ranges": ranges })).await;
    assert_eq!(socket.next_brief(2).await, ["gone job/1 9", "replay job/1 9-10 done"]);
    gateway.count("job/1", 11, 11).await;
    assert_eq!(socket.next_brief(1).await, ["event job/1 11"]);
}

#[tokio::test]
async fn a_restored_backup_lacks_the_last_changes_of_what_is_not_final() {
    let gateway = breakable().await;
    gateway.count("job/1", 1, 10).await;
    gateway.post("job/2", &json!({ "id": "a", "status": "running" })).await;
    gateway.post("job/2", &json!({ "id": "b", "status": "completed" })).await;
    let mut socket = follower(&gateway).await;
    let before = gateway.epoch().await;
    act(&gateway, "new_epoch?events=4").await;
    assert_eq!(socket.next_or_close().await, Err(1006), "the gateway was away");
    let (_, state) = gateway.get("/entities/job%2F1").await;
    assert_eq!((&state["seq"], &state["data"]), (&json!(6), &json!({ "count": 6 })));
    assert_ne!(state["epoch"], before);
    assert_eq!(gateway.get("/entities/job%2F2").await.1["status"], "completed");
    let mut socket = Socket::open(&gateway).await;
    socket.subscribe(1, json!([{ "entity": "job/1", "epoch": before, "after": 10 }])).await;
    assert_eq!(socket.next_brief(2).await, ["subscribed job/1 6", "snapshot job/1 6"]);
    gateway.count("job/1", 7, 7).await;
    assert_eq!(socket.next_brief(1).await, ["event job/1 7"]);
}

#[tokio::test]
async fn no_number_is_given_twice_in_an_epoch_while_backups_are_restored() {
    let folder = Folder::new();
    for gateway in [breakable().await, Gateway::with_file(&folder.path("log.db"), &["--faults"]).await] {
        let restored = AtomicBool::new(false);
        let produce = async |entity: &str| {
            let mut given = Vec::new();
            while !restored.load(Ordering::Relaxed) {
                let (status, body) = gateway.try_post(entity, &json!({ "data": {} })).await;
                assert_eq!(status, 200, "{body}");
                given.push(format!("{entity} {} {}", body["epoch"], body["seq"]));
            }
            given
        };
        let restore = async {
            for _ in 0..20 {
                act(&gateway, "new_epoch?events=2").await;
            }
            restored.store(true, Ordering::Relaxed);
        };
        let (one, same, other, ()) = tokio::join!(produce("job/1"), produce("job/1"), produce("job/2"), restore);
        let mut seen = HashSet::new();
        for number in [one, same, other].concat() {
            assert!(seen.insert(number.clone()), "given twice: {number}");
        }
    }
}

#[tokio::test]
async fn a_key_breaks_only_its_own_sockets() {
    let gateway = breakable().await;
    let mut mine = Socket::open_at(&gateway, "/ws?faults=mine").await;
    let mut other = Socket::open_at(&gateway, "/ws?faults=other").await;
    for socket in [&mut mine, &mut other] {
        socket.subscribe(1, json!([{ "entity": "job/1" }])).await;
        socket.next_brief(2).await;
    }
    assert_eq!(gateway.request("PUT", "/faults?key=mine", &[], r#"{"drop":1}"#).await.0, 200);
    gateway.count("job/1", 1, 1).await;
    assert_eq!(other.next_brief(1).await, ["event job/1 1"]);
    assert!(mine.is_quiet().await);
    act(&gateway, "cut?key=mine").await;
    assert_eq!(mine.next_or_close().await, Err(1006));
    assert!(other.is_quiet().await);
}

#[tokio::test]
async fn a_seed_repeats_its_faults() {
    let mut told = Vec::new();
    for _ in 0..2 {
        let gateway = breakable().await;
        set(&gateway, json!({ "seed": 42, "drop": 0.3, "duplicate": 0.3 })).await;
        let mut socket = follower(&gateway).await;
        let mut frames = Vec::new();
        for seq in 1..=20 {
            gateway.count("job/1", seq, seq).await;
        }
        set(&gateway, json!({})).await;
        gateway.count("job/1", 21, 21).await;
        loop {
            let frame = socket.next_brief(1).await.remove(0);
            let last = frame == "event job/1 21";
            frames.push(frame);
            if last {
                break;
            }
        }
        // What came late came by the clock.
        frames.sort();
        frames.dedup();
        told.push(frames);
    }
    assert_eq!(told[0], told[1]);
}
