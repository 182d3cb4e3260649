//! What a socket says and is told.

use inorder::wire::ServerFrame;
use serde_json::{Map, Value, json};

use crate::world::*;

#[tokio::test]
async fn only_our_subprotocol_is_spoken() {
    let gateway = Gateway::quiet(&[]).await;
    for (protocol, good) in [("inorder.v1.json", true), ("other, inorder.v1.json", true), ("other", false), ("", false)]
    {
        let opening = Opening { protocol: Some(protocol), ..Opening::default() };
        assert_eq!(Socket::try_open(&gateway, opening).await.is_ok(), good, "{protocol}");
    }
}

#[tokio::test]
async fn commands_may_follow_the_hello_at_once() {
    let gateway = Gateway::quiet(&[]).await;
    let mut socket = Socket::try_open(&gateway, Opening::default()).await.unwrap();
    let subscribe = json!({ "type": "subscribe", "request": "r", "entities": [{ "entity": "job/1" }] });
    socket.send(json!([{ "type": "hello" }, subscribe])).await;
    socket.send(json!({ "type": "ping", "id": 1 })).await;
    let ServerFrame::Welcome(welcome) = socket.next().await else { panic!("no welcome") };
    assert_eq!((welcome.heartbeat, welcome.can.join(" ")), (Some(15.0), "replay snapshot heads".to_owned()));
    let mut frames = socket.next_brief(3).await;
    frames.sort();
    assert_eq!(frames, ["pong", "snapshot job/1 0", "subscribed job/1 0"]);
}

#[tokio::test]
async fn the_first_frame_must_be_a_hello() {
    let gateway = Gateway::quiet(&[]).await;
    for first in [json!({ "type": "ping", "id": 1 }), json!([]), json!(7), json!({ "type": "hallo" })] {
        let mut socket = Socket::try_open(&gateway, Opening::default()).await.unwrap();
        socket.send(first.clone()).await;
        let (frames, code) = socket.rest().await;
        assert_eq!((frames.len(), code), (1, 4400), "{first}");
    }
}

#[tokio::test]
async fn bad_frames_are_named_and_twenty_of_them_close() {
    let gateway = Gateway::quiet(&[]).await;
    let mut socket = Socket::open(&gateway).await;
    socket.send(json!({ "type": "unheard of" })).await;
    for bad in
        ["{", "7", "[[]]", r#"{"type":"ping"}"#, r#"{"no":"type"}"#, r#"[{"type":"replay"},{"type":"ping","id":1}]"#]
    {
        socket.send_text(bad.to_owned()).await;
        assert_eq!(socket.next_brief(1).await, ["error bad_frame"], "{bad}");
    }
    assert_eq!(socket.next_brief(1).await, ["pong"], "the rest of a batch counts");
    for _ in 0..14 {
        socket.send_text("{".to_owned()).await;
    }
    let (frames, code) = socket.rest().await;
    assert_eq!((frames.len(), code), (14, 4400));
}

#[tokio::test]
async fn a_subscription_is_answered_from_where_the_client_is() {
    let gateway = Gateway::quiet(&[]).await;
    gateway.count("job/1", 1, 5).await;
    let epoch = gateway.epoch().await;
    let table = [
        (json!({ "entity": "job/1" }), "snapshot job/1 5"),
        (json!({ "entity": "job/1", "epoch": "other", "after": 2 }), "snapshot job/1 5"),
        (json!({ "entity": "job/1", "after": 2 }), "snapshot job/1 5"),
        (json!({ "entity": "job/1", "epoch": epoch, "after": 5 }), ""),
        (json!({ "entity": "job/1", "epoch": epoch, "after": "3" }), "replay job/1 4-5 done"),
        (json!({ "entity": "job/1", "epoch": epoch, "after": 0 }), "replay job/1 1-5 done"),
        (json!({ "entity": "job/1", "epoch": epoch, "after": 6 }), "ahead job/1 5"),
        (json!({ "entity": "job/1", "epoch": epoch, "after": 9_007_199_254_740_991_u64 }), "ahead job/1 5"),
    ];
    for (entry, expected) in table {
        let mut socket = Socket::open(&gateway).await;
        socket.subscribe(1, json!([entry])).await;
        assert_eq!(socket.next_brief(1).await, ["subscribed job/1 5"]);
        if !expected.is_empty() {
            let answer = socket.next_json().await;
            assert_eq!((brief(&answer).as_str(), &answer["request"]), (expected, &json!(1)));
        }
        assert!(socket.is_quiet().await);
    }
}

#[tokio::test]
async fn what_is_unsubscribed_is_not_sent() {
    let gateway = Gateway::quiet(&[]).await;
    let mut socket = Socket::open(&gateway).await;
    socket.subscribe(1, json!([{ "entity": "job/1" }, { "entity": "job/2" }])).await;
    socket.next_brief(4).await;
    socket.send(json!({ "type": "unsubscribe", "entities": ["job/1", "job/3"] })).await;
    assert!(socket.is_quiet().await);
    gateway.count("job/1", 1, 1).await;
    gateway.count("job/2", 1, 1).await;
    assert_eq!(socket.next_brief(1).await, ["event job/2 1"]);
}

#[tokio::test]
async fn an_event_carries_what_was_posted_in_the_protocols_order() {
    let gateway = Gateway::quiet(&[]).await;
    let mut socket = Socket::open(&gateway).await;
    socket.subscribe(1, json!([{ "entity": "job/1" }])).await;
    socket.next_brief(2).await;
    let posted = json!({ "data": { "x": [1] }, "at": "noon", "status": "running", "id": "e1" });
    gateway.post("job/1", &posted).await;
    gateway.post("job/1", &json!({})).await;
    let epoch = gateway.epoch().await;
    let text = serde_json::to_string(&socket.next().await).unwrap();
    let expected = format!(
        r#"{{"type":"event","entity":"job/1","epoch":"{epoch}","seq":1,"id":"e1","status":"running","at":"noon","data":{{"x":[1]}}}}"#
    );
    assert_eq!(text, expected);
    let bare = socket.next_json().await;
    assert!(bare.get("status").is_none() && bare.get("data").is_none() && bare.get("id").is_none());
}

#[tokio::test]
async fn a_large_snapshot_comes_in_parts() {
    let gateway = Gateway::quiet(&[]).await;
    let mut whole = Map::new();
    for i in 0..6 {
        let part = json!({ format!("key{i}"): "x".repeat(120_000) });
        gateway.post("doc/1", &json!({ "data": part })).await;
        whole.extend(part.as_object().unwrap().clone());
    }
    let mut socket = Socket::open(&gateway).await;
    socket.send(json!({ "type": "snapshot", "request": 9, "entities": ["doc/1"] })).await;
    let mut joined = Map::new();
    for part in 1..=3 {
        let frame = socket.next_json().await;
        assert_eq!(
            (&frame["part"], &frame["of"], &frame["request"], &frame["seq"]),
            (&json!(part), &json!(3), &json!(9), &json!(6))
        );
        joined.extend(frame["data"].as_object().unwrap().clone());
    }
    assert_eq!(Value::Object(joined), Value::Object(whole));
    assert!(socket.is_quiet().await);
}

#[tokio::test]
async fn frames_that_wait_go_out_as_one_message() {
    let gateway = Gateway::quiet(&[]).await;
    gateway.count("job/1", 1, 1).await;
    let mut socket = Socket::open(&gateway).await;
    let entities: Vec<Value> = (0..200).map(|i| json!({ "entity": format!("job/{i}") })).collect();
    socket.subscribe(1, json!(entities)).await;
    // Socket::next checks that `n` counts through batches and single frames alike.
    assert_eq!(socket.next_brief(400).await.len(), 400);
}

#[tokio::test]
async fn heartbeats_carry_the_heads_of_what_changed_lately() {
    let gateway = Gateway::quiet(&["--heartbeat", "0.2"]).await;
    gateway.count("job/2", 1, 1).await;
    let mut socket = Socket::open(&gateway).await;
    socket.subscribe(1, json!([{ "entity": "job/1" }])).await;
    socket.next_brief(2).await;
    gateway.count("job/1", 1, 2).await;
    assert_eq!(socket.next_brief(2).await, ["event job/1 1", "event job/1 2"]);
    let mut told = 0;
    for _ in 0..8 {
        let (between, heartbeat) = socket.until_heartbeat().await;
        assert!(between.is_empty(), "{between:?}");
        told += heartbeat.heads.len();
        assert!(heartbeat.heads.iter().all(|head| head.0 == "job/1" && head.2 == 2), "{heartbeat:?}");
    }
    assert_eq!(told, 3, "three intervals");
}

#[tokio::test]
async fn binary_frames_are_the_same_text() {
    let gateway = Gateway::quiet(&[]).await;
    let mut socket = Socket::open(&gateway).await;
    socket.send_binary(br#"{"type":"ping","id":7}"#).await;
    assert_eq!(socket.next_json().await, json!({ "type": "pong", "id": 7 }));
    socket.send_binary(&[0xff, 0xfe]).await;
    assert_eq!(socket.next_brief(1).await, ["error bad_frame"]);
}
