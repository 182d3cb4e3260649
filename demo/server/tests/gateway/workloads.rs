//! What the gateway does by itself.

use std::collections::BTreeMap;

use inorder::wire::ServerFrame;
use serde_json::{Value, json};

use crate::world::*;

#[tokio::test]
async fn the_deployments_case_runs_with_its_ten_changes() {
    let gateway = Gateway::start(&["--open", "--workload", "deployments", "--pace", "20"]).await;
    let mut socket = Socket::open(&gateway).await;
    let expected = BTreeMap::from([
        ("301", vec!["queued", "building", "live"]),
        ("302", vec!["queued", "building", "failed", "building"]),
        ("303", vec!["queued", "building", "live"]),
    ]);
    for (number, statuses) in expected {
        let entity = format!("deployment/dep_{number}");
        let path = format!("/entities/deployment%2Fdep_{number}/events");
        socket.subscribe(1, json!([{ "entity": entity }])).await;
        let told = loop {
            let body = gateway.get(&path).await.1;
            let events = body["events"].as_array().unwrap().clone();
            if events.len() == statuses.len() {
                break events;
            }
            socket.next().await;
        };
        let told: Vec<&str> = told.iter().map(|event| event["status"].as_str().unwrap()).collect();
        assert_eq!(told, statuses);
    }
    let (_, topic) = gateway.get("/entities/topic%2Fdeployments").await;
    assert_eq!(topic["data"][0], "deployment/dep_301");
}

#[tokio::test]
async fn jobs_run_to_their_end_and_old_ones_leave() {
    let gateway = Gateway::start(&["--open", "--workload", "jobs", "--pace", "60", "--seed", "7"]).await;
    let mut socket = Socket::open(&gateway).await;
    socket.subscribe(1, json!([{ "entity": "topic/jobs" }])).await;
    let mut statuses: BTreeMap<String, String> = BTreeMap::new();
    let mut left = 0;
    let mut most = 0;
    while left < 5 {
        match socket.next().await {
            ServerFrame::Event(event) if event.entity == "topic/jobs" => {
                let change: Value = event.data.unwrap().parse().unwrap();
                for removed in change["remove"].as_array().unwrap() {
                    let status = &statuses[removed.as_str().unwrap()];
                    assert!(["completed", "failed", "cancelled"].contains(&status.as_str()), "{status}");
                    left += 1;
                }
            }
            ServerFrame::Event(event) => {
                let before = statuses.insert(event.entity, event.status.unwrap()).unwrap_or_default();
                assert!(["", "queued", "running"].contains(&before.as_str()), "nothing follows {before}");
            }
            ServerFrame::Snapshot(snapshot) => {
                if let Some(status) = snapshot.status {
                    statuses.insert(snapshot.entity, status);
                }
            }
            _ => {}
        }
        most = most.max(statuses.values().filter(|status| ["queued", "running"].contains(&status.as_str())).count());
    }
    assert!((2..=8).contains(&most), "{most} at a time");
}

#[tokio::test]
async fn a_workload_goes_on_after_a_restart() {
    let folder = Folder::new();
    let database = folder.path("log.db");
    let args = ["--open", "--workload", "jobs,deployments", "--pace", "60", "--database", database.to_str().unwrap()];
    let rows = async |gateway: &Gateway| gateway.get("/health").await.1["row"].as_u64().unwrap();
    let gateway = Gateway::start(&args).await;
    while rows(&gateway).await < 60 {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    gateway.kill().await;
    let gateway = Gateway::start(&args).await;
    let before = rows(&gateway).await;
    while rows(&gateway).await < before + 60 {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let (_, topic) = gateway.get("/entities/topic%2Fjobs/events").await;
    let added: Vec<u64> = topic["events"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|event| event["data"]["add"][0].as_str()?.strip_prefix("job/")?.parse().ok())
        .collect();
    assert!(added.is_sorted() && added.windows(2).all(|pair| pair[0] < pair[1]), "no name twice: {added:?}");
}

#[tokio::test]
async fn a_workload_goes_on_after_a_restored_backup() {
    let gateway = Gateway::start(&["--open", "--faults", "--pace", "60"]).await;
    let rows = async || gateway.get("/health").await.1["row"].as_u64().unwrap();
    for _ in 0..3 {
        let before = rows().await;
        while rows().await < before + 40 {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        assert_eq!(gateway.request("POST", "/faults/new_epoch?events=2", &[], "").await.0, 200);
    }
    let before = rows().await;
    while rows().await < before + 40 {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}
