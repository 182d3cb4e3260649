//! What the gateway does by itself, so that a page has something to show: jobs and deployments.
//!
//! A workload posts through the writer like any producer, with ids, and tries again what was not stored.
//! It is seeded; it goes on where it was when the log has its entities already.

use std::sync::Arc;
use std::time::Duration;

use inorder::wire::Data;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::flags::{Flags, Workload};
use crate::gateway::{Gateway, now};
use crate::log::{State, Unavailable, Write, Written};
use crate::name;
use crate::topic::Change;
use crate::writer::Failed;

mod deployments;
mod jobs;

/// How long a workload waits before it tries again what was not stored.
const RETRY: Duration = Duration::from_secs(1);

/// Names looked at in one go when a workload finds out where it was.
const NAMES: usize = 1_000;

/// Starts the workloads that are wanted.
pub fn start(gateway: &Arc<Gateway>, flags: &Flags) {
    let producer = Producer { gateway: gateway.clone(), pace: flags.pace };
    if flags.wants(Workload::Jobs) {
        let jobs = jobs::run(producer.clone(), flags.seed);
        tokio::spawn(async move { report("jobs", jobs.await) });
    }
    if flags.wants(Workload::Deployments) {
        let deployments = deployments::run(producer, flags.seed);
        tokio::spawn(async move { report("deployments", deployments.await) });
    }
}

fn report(workload: &str, ended: Result<(), Unavailable>) {
    if let Err(error) = ended {
        tracing::error!(workload, %error, "the workload ends");
    }
}

/// Posts events for a workload.
#[derive(Clone)]
struct Producer {
    gateway: Arc<Gateway>,
    pace: f64,
}

impl Producer {
    /// Posts an event as the next one after `seq`, and returns its number; `None` when the entity is final.
    async fn post(&self, entity: &str, seq: u64, status: Option<&str>, data: Value) -> Option<u64> {
        let data = Data::from_value(&data).ok();
        let topic = name::is_topic(entity).then(|| Change::read(data.as_ref().map(Data::text)).unwrap_or_default());
        let at = now();
        let write = Write {
            entity: entity.into(),
            // Posted again after a failure, it is the same event (G3); after a restored backup it is not.
            id: Some(format!("{entity}#{}@{}", seq + 1, at.text())),
            status: status.map(str::to_owned),
            at,
            data,
            topic,
        };
        loop {
            match self.gateway.writer.post(write.clone()).await {
                Ok(Written::Stored { seq, .. }) => return Some(seq),
                Ok(Written::Terminal { .. } | Written::TooLarge) => return None,
                Err(Failed::Full | Failed::Unavailable) => sleep(RETRY).await,
            }
        }
    }

    /// Sleeps for so many seconds of the workload's time.
    async fn pause(&self, seconds: f64) {
        sleep(Duration::from_secs_f64(seconds / self.pace)).await;
    }

    /// A topic and the states of its members.
    async fn members(&self, topic: &str) -> Result<(u64, Vec<State>), Unavailable> {
        let topic = self.gateway.log.states(&[topic.into()]).await?.pop();
        let (seq, names) = topic.map(|topic| (topic.seq, topic.members)).unwrap_or_default();
        Ok((seq, self.gateway.log.states(&names).await?))
    }

    /// The highest number that follows `prefix` in any entity's name.
    async fn highest(&self, prefix: &str) -> Result<Option<u64>, Unavailable> {
        let mut highest = None;
        let mut after: Arc<str> = prefix.into();
        loop {
            let names = self.gateway.log.names(&after, NAMES).await?;
            let numbers = names.iter().map_while(|name| name.strip_prefix(prefix));
            highest = numbers.filter_map(|number| number.parse().ok()).max().max(highest);
            match names.last() {
                Some(last) if last.starts_with(prefix) && names.len() == NAMES => after = last.clone(),
                _ => return Ok(highest),
            }
        }
    }

    /// Changes the members of a topic.
    async fn change(&self, topic: &str, seq: &mut u64, add: &[String], remove: &[String]) {
        if add.is_empty() && remove.is_empty() {
            return;
        }
        if let Some(stored) = self.post(topic, *seq, None, json!({ "add": add, "remove": remove })).await {
            *seq = stored;
        }
    }
}
