//! R39: a topic's subscription covers its members.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;

use crate::world::*;

async fn change(gateway: &Gateway, add: &[&str], remove: &[&str]) {
    gateway.post("topic/a", &json!({ "data": { "add": add, "remove": remove } })).await;
}

/// Joins the topic and reads to the heartbeat that ends the answer; the cursor.
async fn join(socket: &mut Socket) -> (Vec<String>, String) {
    socket.subscribe(1, json!([{ "entity": "topic/a" }])).await;
    until_cursor(socket).await
}

/// Reads to a heartbeat with a cursor; what came before it, and the cursor.
async fn until_cursor(socket: &mut Socket) -> (Vec<String>, String) {
    let mut frames = Vec::new();
    loop {
        let (more, heartbeat) = socket.until_heartbeat().await;
        frames.extend(more);
        if let Some(cursor) = heartbeat.cursors.first() {
            assert_eq!(cursor.0, "topic/a");
            return (frames, cursor.1.clone());
        }
    }
}

async fn resume(socket: &mut Socket, entry: Value) -> Vec<String> {
    socket.subscribe(1, json!([entry])).await;
    until_cursor(socket).await.0
}

#[tokio::test]
async fn r39_members_join_by_their_snapshots_and_follow() {
    let gateway = Gateway::quiet(&[]).await;
    gateway.count("job/1", 1, 3).await;
    change(&gateway, &["job/1", "job/2"], &[]).await;
    let mut socket = Socket::open(&gateway).await;
    socket.subscribe(1, json!([{ "entity": "topic/a" }])).await;
    let subscribed = socket.next_json().await;
    assert_eq!(brief(&subscribed), "subscribed topic/a 1");
    assert!(subscribed["cursor"].is_string());
    let snapshot = socket.next_json().await;
    assert_eq!((&snapshot["data"], &snapshot["request"]), (&json!(["job/1", "job/2"]), &json!(1)));
    let member = socket.next_json().await;
    assert_eq!((brief(&member).as_str(), member.get("request")), ("snapshot job/1 3", None), "pushed");
    assert_eq!(socket.next_brief(1).await, ["snapshot job/2 0"]);
    gateway.count("job/2", 1, 1).await;
    gateway.count("job/3", 1, 2).await;
    assert_eq!(socket.next_brief(1).await, ["event job/2 1"], "job/3 is no member");
    change(&gateway, &["job/3"], &["job/1"]).await;
    assert_eq!(socket.next_brief(2).await, ["event topic/a 2", "snapshot job/3 2"]);
    gateway.count("job/1", 4, 4).await;
    gateway.count("job/3", 3, 3).await;
    assert_eq!(socket.next_brief(1).await, ["event job/3 3"], "job/1 was released");
    socket.send(json!({ "type": "unsubscribe", "entities": ["topic/a"] })).await;
    assert!(socket.is_quiet().await);
    gateway.count("job/3", 4, 4).await;
    assert!(socket.is_quiet().await);
}

#[tokio::test]
async fn r39_an_empty_topic_is_an_empty_set() {
    let gateway = Gateway::quiet(&[]).await;
    let mut socket = Socket::open(&gateway).await;
    socket.subscribe(1, json!([{ "entity": "topic/a" }])).await;
    assert_eq!(socket.next_brief(1).await, ["subscribed topic/a 0"]);
    let snapshot = socket.next_json().await;
    assert_eq!((&snapshot["seq"], &snapshot["data"]), (&json!(0), &json!([])));
}

#[tokio::test]
async fn r39_a_resume_costs_what_changed() {
    let gateway = Gateway::quiet(&[]).await;
    let names: Vec<String> = (1..=50).map(|i| format!("job/{i}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    change(&gateway, &names, &[]).await;
    let mut socket = Socket::open(&gateway).await;
    let (frames, cursor) = join(&mut socket).await;
    assert_eq!(frames.len(), 2 + 50);
    drop(socket);
    // What happens meanwhile.
    gateway.count("job/7", 1, 2).await;
    change(&gateway, &["job/99"], &["job/8"]).await;
    gateway.count("job/8", 1, 1).await;
    gateway.count("job/99", 1, 1).await;
    let epoch = gateway.epoch().await;
    let mut socket = Socket::open(&gateway).await;
    let frames =
        resume(&mut socket, json!({ "entity": "topic/a", "epoch": epoch, "after": 1, "cursor": cursor })).await;
    let expected = ["subscribed topic/a 2", "replay topic/a 2-2 done", "replay job/7 1-2 done", "snapshot job/99 1"];
    assert_eq!(frames, expected);
    gateway.count("job/30", 1, 1).await;
    assert_eq!(socket.next_brief(1).await, ["event job/30 1"], "quiet members are followed");
}

#[tokio::test]
async fn r39_members_that_were_behind_resume_from_their_positions() {
    let gateway = Gateway::quiet(&[]).await;
    change(&gateway, &["job/1", "job/2", "job/3", "job/4", "job/5"], &[]).await;
    for job in ["job/1", "job/2", "job/3", "job/5"] {
        gateway.count(job, 1, 3).await;
    }
    let mut socket = Socket::open(&gateway).await;
    let (_, cursor) = join(&mut socket).await;
    let epoch = gateway.epoch().await;
    gateway.count("job/5", 4, 4).await;
    let mut socket = Socket::open(&gateway).await;
    let behind = json!([["job/1", epoch, 1], ["job/2", null, null], ["job/3", epoch, 3], ["job/4", "other", 7]]);
    let entry = json!({ "entity": "topic/a", "epoch": epoch, "after": 1, "cursor": cursor, "behind": behind });
    let mut frames = resume(&mut socket, entry).await;
    frames[1..].sort();
    let expected = [
        "subscribed topic/a 1",
        "replay job/1 2-3 done",
        "replay job/3 none done",
        "replay job/5 4-4 done",
        "snapshot job/2 3",
        "snapshot job/4 0",
    ];
    assert_eq!(frames, expected);
}

#[tokio::test]
async fn r39_a_cursor_does_not_reach_over_a_new_epoch() {
    let gateway = Gateway::quiet(&["--faults", "--heartbeat", "0.2"]).await;
    gateway.count("job/1", 1, 2).await;
    change(&gateway, &["job/1"], &[]).await;
    let mut socket = Socket::open(&gateway).await;
    join(&mut socket).await;
    assert_eq!(gateway.request("POST", "/faults/new_epoch?events=0", &[], "").await.0, 200);
    change(&gateway, &["job/2"], &[]).await;
    assert_eq!(socket.next_brief(2).await, ["event topic/a 2", "snapshot job/2 0"]);
    let (_, heartbeat) = socket.until_heartbeat().await;
    let cursor = &heartbeat.cursors[0].1;
    let epoch = gateway.epoch().await;
    let mut socket = Socket::open(&gateway).await;
    let frames =
        resume(&mut socket, json!({ "entity": "topic/a", "epoch": epoch, "after": 2, "cursor": cursor })).await;
    assert_eq!(frames, ["subscribed topic/a 2", "snapshot job/1 2", "snapshot job/2 0"], "job/1 is of the old epoch");
}

#[tokio::test]
async fn r39_a_behind_list_may_be_split_over_frames() {
    let gateway = Gateway::quiet(&[]).await;
    change(&gateway, &["job/1", "job/2"], &[]).await;
    gateway.count("job/1", 1, 2).await;
    gateway.count("job/2", 1, 2).await;
    let mut socket = Socket::open(&gateway).await;
    let (_, cursor) = join(&mut socket).await;
    let epoch = gateway.epoch().await;
    let part = |behind: Value| {
        let entry = json!({ "entity": "topic/a", "epoch": epoch, "after": 1, "cursor": cursor, "behind": behind });
        json!({ "type": "subscribe", "request": 5, "entities": [entry] })
    };
    let mut socket = Socket::open(&gateway).await;
    socket.send(part(json!([["job/1", epoch, 1]]))).await;
    let (frames, _) = socket.until_heartbeat().await;
    assert_eq!(frames, ["subscribed topic/a 1", "replay job/1 2-2 done"]);
    socket.send(part(json!([["job/2", epoch, 0]]))).await;
    assert_eq!(socket.next_brief(1).await, ["replay job/2 1-2 done"], "not a second subscription");
    // Both at once, in two messages. The second may arrive after the first is answered.
    let mut socket = Socket::open(&gateway).await;
    socket.send(part(json!([["job/1", epoch, 1]]))).await;
    socket.send(part(json!([["job/2", epoch, 0]]))).await;
    let mut frames = socket.next_brief(3).await;
    frames.sort();
    assert_eq!(frames, ["replay job/1 2-2 done", "replay job/2 1-2 done", "subscribed topic/a 1"]);
    // Both in one message.
    let mut socket = Socket::open(&gateway).await;
    socket.send(json!([part(json!([["job/1", epoch, 1]])), part(json!([["job/2", epoch, 0]]))])).await;
    let (frames, _) = socket.until_heartbeat().await;
    assert_eq!(frames, ["subscribed topic/a 1", "replay job/1 2-2 done", "replay job/2 1-2 done"]);
}

#[tokio::test]
async fn r39_without_a_cursor_that_counts_unknown_members_get_snapshots() {
    let gateway = Gateway::quiet(&[]).await;
    change(&gateway, &["job/1", "job/2"], &[]).await;
    let epoch = gateway.epoch().await;
    let (_, cursor) = join(&mut Socket::open(&gateway).await).await;
    let rows = cursor.strip_prefix(&epoch).unwrap();
    let cursors = [
        None,
        Some("nonsense".to_owned()),
        Some(format!("old{rows}")),
        // Of more partitions, of fewer, and of rows that are not there yet.
        Some(format!("{cursor}.0")),
        Some(cursor.rsplit_once('.').unwrap().0.to_owned()),
        Some(format!("{}.zzzzzz", cursor.rsplit_once('.').unwrap().0)),
    ];
    for cursor in cursors {
        let mut entry = json!({ "entity": "topic/a", "epoch": epoch, "after": 1, "behind": [["job/1", epoch, 0]] });
        if let Some(cursor) = cursor {
            entry["cursor"] = cursor.into();
        }
        let mut socket = Socket::open(&gateway).await;
        let frames = resume(&mut socket, entry.clone()).await;
        assert_eq!(frames, ["subscribed topic/a 1", "replay job/1 none done", "snapshot job/2 0"], "{entry}");
    }
}

#[tokio::test]
async fn r39_what_was_trimmed_after_the_cursor_is_a_snapshot() {
    let gateway = Gateway::quiet(&["--retain", "2"]).await;
    change(&gateway, &["job/1", "job/2"], &[]).await;
    let mut socket = Socket::open(&gateway).await;
    let (_, cursor) = join(&mut socket).await;
    gateway.count("job/1", 1, 4).await;
    gateway.count("job/2", 1, 2).await;
    for job in ["job/3", "job/4", "job/5"] {
        change(&gateway, &[job], &[]).await;
    }
    let epoch = gateway.epoch().await;
    let mut socket = Socket::open(&gateway).await;
    let entry = json!({ "entity": "topic/a", "epoch": epoch, "after": 1, "cursor": cursor });
    let mut frames = resume(&mut socket, entry).await;
    frames[2..].sort();
    let expected = [
        "subscribed topic/a 4",
        "snapshot topic/a 4",
        "replay job/2 1-2 done",
        "snapshot job/1 4",
        "snapshot job/3 0",
        "snapshot job/4 0",
        "snapshot job/5 0",
    ];
    assert_eq!(frames, expected);
}

#[tokio::test]
async fn r39_a_cursor_is_given_with_heartbeats() {
    let gateway = Gateway::quiet(&["--heartbeat", "0.1"]).await;
    change(&gateway, &["job/1"], &[]).await;
    let mut socket = Socket::open(&gateway).await;
    let (_, first) = join(&mut socket).await;
    gateway.count("job/1", 1, 1).await;
    sleep(Duration::from_millis(150)).await;
    let epoch = gateway.epoch().await;
    let mut latest = first.clone();
    while latest == first {
        latest = until_cursor(&mut socket).await.1;
    }
    let mut socket = Socket::open(&gateway).await;
    let resumed = |cursor: &str| json!({ "entity": "topic/a", "epoch": epoch, "after": 1, "cursor": cursor });
    assert_eq!(resume(&mut socket, resumed(&latest)).await, ["subscribed topic/a 1"]);
    let mut socket = Socket::open(&gateway).await;
    assert_eq!(resume(&mut socket, resumed(&first)).await, ["subscribed topic/a 1", "replay job/1 1-1 done"]);
}

#[tokio::test]
async fn r39_a_replay_of_the_topic_pushes_the_states_of_who_joined() {
    let gateway = Gateway::quiet(&[]).await;
    let mut socket = Socket::open(&gateway).await;
    join(&mut socket).await;
    change(&gateway, &["job/1"], &[]).await;
    assert_eq!(socket.next_brief(2).await, ["event topic/a 1", "snapshot job/1 0"]);
    let epoch = gateway.epoch().await;
    let ranges = json!([{ "entity": "topic/a", "epoch": epoch, "from": 1 }]);
    socket.send(json!({ "type": "replay", "request": 4, "ranges": ranges })).await;
    assert_eq!(socket.next_brief(2).await, ["replay topic/a 1-1 done", "snapshot job/1 0"]);
}

#[tokio::test]
async fn r39_a_members_last_change_is_sent_before_the_event_that_removes_it() {
    let gateway = Gateway::quiet(&[]).await;
    let jobs: Vec<String> = (1..=24).map(|job| format!("job/{job}")).collect();
    change(&gateway, &jobs.iter().map(String::as_str).collect::<Vec<_>>(), &[]).await;
    let mut socket = Socket::open(&gateway).await;
    join(&mut socket).await;
    let mut expected = Vec::new();
    for (job, seq) in jobs.iter().zip(2..) {
        gateway.post(job, &json!({ "status": "completed" })).await;
        change(&gateway, &[], &[job]).await;
        expected.extend([format!("event {job} 1"), format!("event topic/a {seq}")]);
    }
    assert_eq!(socket.next_brief(expected.len()).await, expected);
}

#[tokio::test]
async fn r39_an_entity_of_two_topics_is_sent_once() {
    let gateway = Gateway::quiet(&[]).await;
    change(&gateway, &["job/1"], &[]).await;
    gateway.post("topic/b", &json!({ "data": { "add": ["job/1"] } })).await;
    let mut socket = Socket::open(&gateway).await;
    socket.subscribe(1, json!([{ "entity": "topic/a" }, { "entity": "topic/b" }, { "entity": "job/1" }])).await;
    let (frames, _) = socket.until_heartbeat().await;
    assert_eq!(frames.iter().filter(|frame| frame.starts_with("subscribed")).count(), 3);
    gateway.count("job/1", 1, 1).await;
    assert_eq!(socket.next_brief(1).await, ["event job/1 1"]);
    change(&gateway, &[], &["job/1"]).await;
    gateway.count("job/1", 2, 2).await;
    assert_eq!(socket.next_brief(2).await, ["event topic/a 2", "event job/1 2"], "still wanted");
    socket.send(json!({ "type": "unsubscribe", "entities": ["job/1", "topic/b"] })).await;
    assert!(socket.is_quiet().await);
    gateway.count("job/1", 3, 3).await;
    assert!(socket.is_quiet().await);
}
