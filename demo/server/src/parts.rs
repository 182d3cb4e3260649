//! Large snapshots in parts (R17): objects by their top-level keys, arrays by their members.

use std::collections::BTreeMap;

use inorder::wire::{Data, Id, ServerFrame, Snapshot};
use serde_json::value::RawValue;

use crate::limits::PAGE_BYTES;
use crate::log::State;

/// The snapshot frames of a state: one, or several parts when it is large.
///
/// What is neither an object nor an array is never split, nor is a single key or member.
pub fn snapshots(state: &State, request: Option<&Id>) -> Vec<ServerFrame> {
    let frame = |data: Data, part: Option<(u64, u64)>| {
        ServerFrame::Snapshot(Snapshot {
            entity: state.entity.to_string(),
            epoch: state.epoch.to_string(),
            seq: Some(state.seq),
            status: state.status.clone(),
            at: state.at.clone(),
            data,
            request: request.cloned(),
            part: part.map(|(part, _)| part),
            of: part.map(|(_, of)| of),
        })
    };
    let parts = split(state.data.text(), PAGE_BYTES);
    let of = parts.len() as u64;
    if of < 2 {
        return vec![frame(state.data.clone(), None)];
    }
    (1..).zip(parts).map(|(part, data)| frame(data, Some((part, of)))).collect()
}

fn split(text: &str, limit: usize) -> Vec<Data> {
    if text.len() <= limit {
        return Vec::new();
    }
    let (open, close, pieces): (_, _, Vec<String>) = if text.starts_with('{') {
        let Ok(fields) = serde_json::from_str::<BTreeMap<String, &RawValue>>(text) else { return Vec::new() };
        let piece = |(key, value): (String, &RawValue)| format!("{}:{}", serde_json::Value::String(key), value.get());
        ('{', '}', fields.into_iter().map(piece).collect())
    } else if text.starts_with('[') {
        let Ok(members) = serde_json::from_str::<Vec<&RawValue>>(text) else { return Vec::new() };
        ('[', ']', members.into_iter().map(|member| member.get().to_owned()).collect())
    } else {
        return Vec::new();
    };
    let mut parts = Vec::new();
    let mut part = String::from(open);
    for piece in pieces {
        if part.len() > 1 {
            if part.len() + piece.len() + 2 > limit {
                part.push(close);
                parts.push(std::mem::replace(&mut part, String::from(open)));
            } else {
                part.push(',');
            }
        }
        part.push_str(&piece);
    }
    part.push(close);
    parts.push(part);
    parts.into_iter().filter_map(|part| Data::from_text(part).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Map, Value, json};

    #[test]
    fn parts_join_to_the_whole() {
        let object: Map<String, Value> = (0..50).map(|i| (format!("k\"{i}"), json!([i, "x".repeat(i)]))).collect();
        let array: Vec<Value> = (0..50).map(|i| json!({ "i": "y".repeat(i) })).collect();
        for whole in [Value::Object(object), Value::Array(array)] {
            let parts = split(&whole.to_string(), 200);
            assert!(parts.len() > 5);
            assert!(parts.iter().all(|part| part.text().len() <= 200));
            let joined =
                parts.iter().fold(Value::Null, |joined, part| match (joined, part.parse::<Value>().unwrap()) {
                    (Value::Null, first) => first,
                    (Value::Object(mut all), Value::Object(more)) => {
                        all.extend(more);
                        Value::Object(all)
                    }
                    (Value::Array(mut all), Value::Array(more)) => {
                        all.extend(more);
                        Value::Array(all)
                    }
                    (joined, _) => joined,
                });
            assert_eq!(joined, whole);
        }
    }

    #[test]
    fn what_is_small_or_one_piece_stays_whole() {
        assert!(split("{}", 200).is_empty());
        assert!(split(&format!("{:?}", "x".repeat(300)), 200).is_empty());
        assert_eq!(split(&format!("[{:?}]", "x".repeat(300)), 200).len(), 1);
    }
}
