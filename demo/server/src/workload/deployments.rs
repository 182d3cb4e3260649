//! The deployments case: three at a time, one of which fails and is retried by hand.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::json;

use super::Producer;
use crate::log::Unavailable;

const TOPIC: &str = "topic/deployments";

/// The number of the first deployment.
const FIRST: u64 = 301;

/// Rounds that stay in the topic.
const ROUNDS_SHOWN: usize = 3;

/// Seconds between two rounds.
const REST: f64 = 10.0;

/// The steps of a round, in order: which of the three, and its status.
const STEPS: [(usize, &str); 10] = [
    (0, "queued"),
    (1, "queued"),
    (2, "queued"),
    (0, "building"),
    (1, "building"),
    (2, "building"),
    (1, "failed"),
    (0, "live"),
    (1, "building"),
    (2, "live"),
];

const SERVICES: [&str; 3] = ["web", "billing", "search"];

pub(super) async fn run(producer: Producer, seed: u64) -> Result<(), Unavailable> {
    let mut rng = StdRng::seed_from_u64(seed);
    let (mut topic, members) = producer.members(TOPIC).await?;
    let mut shown: Vec<String> = members.into_iter().map(|member| member.entity.to_string()).collect();
    let mut next = producer.highest("deployment/dep_").await?.map_or(FIRST, |highest| highest + 1);
    loop {
        let names: Vec<String> = (next..next + 3).map(|number| format!("deployment/dep_{number}")).collect();
        next += 3;
        let leaving = (shown.len() + 3).saturating_sub(ROUNDS_SHOWN * 3).min(shown.len());
        let leaving: Vec<String> = shown.drain(..leaving).collect();
        let mut seqs = [0; 3];
        producer.change(TOPIC, &mut topic, &names, &leaving).await;
        shown.extend(names.iter().cloned());
        for (which, status) in STEPS {
            let data = match (status, seqs[which]) {
                ("queued", _) => {
                    let commit = format!("{:07x}", rng.random_range(0..0x1000_0000));
                    json!({ "service": SERVICES[which], "commit": commit, "attempt": 1 })
                }
                ("failed", _) => json!({ "error": "a test failed" }),
                ("building", 3) => json!({ "error": null, "attempt": 2, "by": "hand" }),
                _ => json!({}),
            };
            if let Some(seq) = producer.post(&names[which], seqs[which], Some(status), data).await {
                seqs[which] = seq;
            }
            producer.pause(rng.random_range(0.4..1.6)).await;
        }
        producer.pause(REST).await;
    }
}
