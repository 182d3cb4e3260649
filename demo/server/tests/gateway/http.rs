//! Posting and reading over HTTP.

use serde_json::json;

use crate::world::*;

#[tokio::test]
async fn bad_input_is_refused_with_a_code() {
    let gateway = Gateway::quiet(&[]).await;
    let deep = format!("{{\"data\":{}1{}}}", "[".repeat(300), "]".repeat(300));
    let large = format!("{{\"data\":\"{}\"}}", "x".repeat(300_000));
    let long = "x".repeat(300);
    let table = [
        ("POST", "/entities/job%2F1/events", "", 400, "bad_json"),
        ("POST", "/entities/job%2F1/events", "{", 400, "bad_json"),
        ("POST", "/entities/job%2F1/events", "[]", 400, "bad_event"),
        ("POST", "/entities/job%2F1/events", "7", 400, "bad_event"),
        ("POST", "/entities/job%2F1/events", r#"{"seq":1}"#, 400, "bad_event"),
        ("POST", "/entities/job%2F1/events", r#"{"status":7}"#, 400, "bad_event"),
        ("POST", "/entities/job%2F1/events", r#"{"status":""}"#, 400, "bad_event"),
        ("POST", "/entities/job%2F1/events", &format!(r#"{{"id":"{long}"}}"#), 400, "bad_event"),
        ("POST", "/entities/job%2F1/events", &format!(r#"{{"at":"{long}"}}"#), 400, "bad_event"),
        ("POST", "/entities/job%2F1/events", &deep, 400, "bad_event"),
        ("POST", "/entities/job%2F1/events", &large, 413, "too_large"),
        ("POST", "/entities/%00/events", "{}", 400, "bad_name"),
        ("POST", "/entities/%FF/events", "{}", 400, "bad_name"),
        ("POST", &format!("/entities/{long}/events"), "{}", 400, "bad_name"),
        ("POST", "/entities/topic%2Fa/events", r#"{"data":[]}"#, 400, "bad_topic"),
        ("POST", "/entities/topic%2Fa/events", r#"{"data":{"add":["topic/b"]}}"#, 400, "bad_topic"),
        ("GET", "/entities/job%2F1/events?after=x", "", 400, "bad_query"),
        ("GET", "/entities/job%2F1/events?after=-1", "", 400, "bad_query"),
        ("GET", "/entities/job%2F1/events?epoch=other", "", 409, "epoch"),
        ("PUT", "/entities/job%2F1/events", "{}", 405, "method"),
        ("POST", "/entities/job%2F1", "{}", 405, "method"),
        ("GET", "/nothing", "", 404, "not_found"),
    ];
    for (method, path, body, expected, code) in table {
        let (status, answer) = gateway.request(method, path, &[], body).await;
        assert_eq!((status, answer["code"].as_str().unwrap_or_default()), (expected, code), "{path} {answer}");
        assert!(answer["message"].as_str().unwrap().contains(' '), "a sentence: {answer}");
    }
    assert_eq!(gateway.get("/health").await.1["row"], 0, "nothing was stored");
}

#[tokio::test]
async fn a_state_is_merged_or_replaced_as_the_model_says() {
    let gateway = Gateway::quiet(&["--reduce", "gauge=replace"]).await;
    for entity in ["job/1", "gauge/1"] {
        gateway.post(entity, &json!({ "status": "running", "data": { "a": 1, "b": { "c": 2 } } })).await;
        gateway.post(entity, &json!({ "at": "later", "data": { "b": { "d": 3 }, "a": null } })).await;
        gateway.post(entity, &json!({ "status": "resting" })).await;
    }
    let (_, job) = gateway.get("/entities/job/1").await;
    assert_eq!(
        (&job["seq"], &job["status"], &job["data"]),
        (&json!(3), &json!("resting"), &json!({ "b": { "c": 2, "d": 3 } }))
    );
    let (_, gauge) = gateway.get("/entities/gauge%2F1").await;
    assert_eq!(gauge["data"], json!({ "a": null, "b": { "d": 3 } }));
    let (_, body) = gateway.get("/entities/job%2F1/events?after=1").await;
    let events = body["events"].as_array().unwrap();
    assert_eq!(
        (events.len(), &events[0]["at"], &body["head"], &body["done"]),
        (2, &json!("later"), &json!(3), &json!(true))
    );
    assert!(events[1]["at"].as_u64().unwrap() > 1_700_000_000_000, "milliseconds, when none is given");
    assert!(events[1].get("data").is_none());
}

#[tokio::test]
async fn entities_are_listed_page_by_page() {
    let gateway = Gateway::quiet(&[]).await;
    gateway.post("topic/a", &json!({ "data": { "add": ["job/1", "job/3"] } })).await;
    for entity in ["job/1", "job/2"] {
        gateway.post(entity, &json!({ "data": 1 })).await;
    }
    let names = |body: &serde_json::Value| -> Vec<String> {
        let entities = body["entities"].as_array().unwrap();
        entities.iter().map(|entity| format!("{} {}", entity["entity"].as_str().unwrap(), entity["seq"])).collect()
    };
    assert_eq!(names(&gateway.get("/entities").await.1), ["job/1 1", "job/2 1", "topic/a 1"]);
    assert_eq!(names(&gateway.get("/entities?after=job%2F1").await.1), ["job/2 1", "topic/a 1"]);
    assert_eq!(names(&gateway.get("/entities?topic=topic%2Fa").await.1), ["job/1 1", "job/3 0"]);
}

#[tokio::test]
async fn events_are_listed_page_by_page() {
    let gateway = Gateway::quiet(&[]).await;
    gateway.count("job/1", 1, 5).await;
    let (_, body) = gateway.get("/entities/job%2F1/events?after=1&limit=2").await;
    assert_eq!((&body["events"][1]["seq"], &body["done"]), (&json!(3), &json!(false)));
    let (_, body) = gateway.get("/entities/job%2F1/events?after=9").await;
    assert_eq!((body["events"].as_array().unwrap().len(), &body["head"], &body["done"]), (0, &json!(5), &json!(true)));
}

#[tokio::test]
async fn the_page_is_served_from_the_same_port() {
    let folder = Folder::new();
    std::fs::write(folder.path("index.html"), "<title>a page</title>").unwrap();
    let gateway = Gateway::quiet(&["--page", folder.path("").to_str().unwrap()]).await;
    for path in ["/", "/index.html"] {
        assert_eq!(gateway.get(path).await, (200, json!("<title>a page</title>")), "{path}");
    }
    assert_eq!(gateway.get("/../Cargo.toml").await.0, 404);
    assert_eq!(gateway.get("/health").await.0, 200);
}

#[tokio::test]
async fn a_gateway_needs_a_secret_or_to_be_open() {
    let gateway = std::process::Command::new(env!("CARGO_BIN_EXE_inorder-gateway")).args(["--port", "0"]).output();
    let output = gateway.unwrap();
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("--secret"));
}
