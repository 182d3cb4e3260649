//! Long-running jobs: queued, running with progress, then completed, failed or cancelled.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::Producer;
use crate::log::{State, Unavailable};

const TOPIC: &str = "topic/jobs";

/// Unfinished jobs at a time: a screenful.
const AT_A_TIME: usize = 8;

/// Finished jobs that stay in the topic: long enough to be seen.
const FINISHED_SHOWN: usize = 12;

/// Seconds between two looks at what is due.
const TICK: f64 = 0.05;

const TASKS: [&str; 6] =
    ["Transcode a film", "Index a mailbox", "Train a model", "Render a scene", "Import orders", "Back up a disk"];

const FAULTS: [&str; 4] = ["the disk is full", "the worker was lost", "the input is damaged", "it took too long"];

struct Job {
    entity: String,
    seq: u64,
    running: bool,
    progress: u64,
    due: Instant,
}

pub(super) async fn run(producer: Producer, seed: u64) -> Result<(), Unavailable> {
    let mut rng = StdRng::seed_from_u64(seed);
    let (mut topic, members) = producer.members(TOPIC).await?;
    let models = producer.gateway.log.models();
    let (finished, open): (Vec<State>, Vec<State>) =
        members.into_iter().partition(|job| models.of(&job.entity).is_closed(job.status.as_deref()));
    let mut finished: Vec<String> = finished.into_iter().map(|job| job.entity.to_string()).collect();
    let mut jobs: Vec<Job> = open.iter().map(resumed).collect();
    let mut number = producer.highest("job/").await?.unwrap_or(0);
    loop {
        if jobs.len() < AT_A_TIME && rng.random_bool(TICK / 0.6) {
            number += 1;
            let entity = format!("job/{number}");
            let task = TASKS[rng.random_range(0..TASKS.len())];
            let data = json!({ "name": task, "progress": 0 });
            if let Some(seq) = producer.post(&entity, 0, Some("queued"), data).await {
                let leaving = finished.len().saturating_sub(FINISHED_SHOWN);
                let leaving: Vec<String> = finished.drain(..leaving).collect();
                producer.change(TOPIC, &mut topic, std::slice::from_ref(&entity), &leaving).await;
                let due = after(&producer, rng.random_range(0.5..4.0));
                jobs.push(Job { entity, seq, running: false, progress: 0, due });
            }
        }
        let mut ended = Vec::new();
        for (index, job) in jobs.iter_mut().enumerate() {
            if job.due > Instant::now() {
                continue;
            }
            let (status, data) = step(job, &mut rng);
            job.due = after(&producer, rng.random_range(0.4..1.6));
            match producer.post(&job.entity, job.seq, Some(status), data).await {
                Some(seq) if status == "running" => job.seq = seq,
                // Finished, or ended by someone else.
                _ => ended.push(index),
            }
        }
        for index in ended.into_iter().rev() {
            finished.push(jobs.remove(index).entity);
        }
        producer.pause(TICK).await;
    }
}

fn resumed(state: &State) -> Job {
    let data: Value = state.data.parse().unwrap_or_default();
    Job {
        entity: state.entity.to_string(),
        seq: state.seq,
        running: state.status.as_deref() == Some("running"),
        progress: data["progress"].as_u64().unwrap_or_default(),
        due: Instant::now(),
    }
}

fn after(producer: &Producer, seconds: f64) -> Instant {
    Instant::now() + Duration::from_secs_f64(seconds / producer.pace)
}

fn step(job: &mut Job, rng: &mut StdRng) -> (&'static str, Value) {
    if !job.running {
        if rng.random_bool(0.05) {
            return ("cancelled", json!({ "note": "cancelled before it began" }));
        }
        job.running = true;
        return ("running", json!({ "worker": format!("worker-{}", rng.random_range(1..=5)) }));
    }
    job.progress = (job.progress + rng.random_range(3..=12)).min(100);
    if job.progress == 100 {
        ("completed", json!({ "progress": 100 }))
    } else if rng.random_bool(0.012) {
        ("failed", json!({ "error": FAULTS[rng.random_range(0..FAULTS.len())] }))
    } else if rng.random_bool(0.006) {
        ("cancelled", json!({ "note": "cancelled by its owner" }))
    } else {
        ("running", json!({ "progress": job.progress }))
    }
}
