//! States as they were, as a replica that lags would still give them.

use inorder::wire::Data;
use serde_json::Value;

use crate::limits::PAGE_EVENTS;
use crate::log::{Log, Page, State};
use crate::name;

/// The state of an entity some numbers ago; `None` if there is none, or it can't be known any more.
///
/// It is made again from the events, so only when they are all kept, and few enough for one page.
pub async fn older(log: &Log, state: &State, by: u64) -> Option<State> {
    let seq = state.seq.checked_sub(by).filter(|seq| *seq > 0)?;
    if name::is_topic(&state.entity) {
        return None;
    }
    let page = log.page(&state.entity, Some(&state.epoch), 1, Some(seq), PAGE_EVENTS).await.ok()?;
    let Page::Events { events, ended: true, .. } = page else { return None };
    let reduce = log.models().of(&state.entity).reduce;
    let mut data = Value::Null;
    let mut old = State { seq, status: None, at: None, ..state.clone() };
    for event in events {
        old.status = event.status.or(old.status);
        old.at = event.at;
        if let Some(patch) = event.data {
            reduce.apply(&mut data, &patch).ok()?;
        }
    }
    old.data = Data::from_value(&data).ok()?;
    Some(old)
}
