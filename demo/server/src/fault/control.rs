//! The HTTP side of the faults: `/faults`.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{AWAY, Action, Deed, Faults, Settings};
use crate::gateway::Gateway;
use crate::http::{Problem, bad, check_origin};

/// The longest key, in bytes.
const MAX_KEY_BYTES: usize = 64;

/// Events per entity that trimming leaves by default.
const KEPT: u64 = 1;

/// Changes per entity that a restored backup lacks by default.
const LACKING: u64 = 3;

type Answer = Result<Json<Value>, Problem>;

/// The routes of the faults.
pub fn routes() -> Router<Arc<Gateway>> {
    Router::new().route("/faults", get(read).put(set).delete(forget)).route("/faults/{action}", post(act))
}

#[derive(Deserialize)]
struct Which {
    key: Option<String>,
    keep: Option<u64>,
    events: Option<u64>,
}

fn faults(gateway: &Gateway) -> Result<&Arc<Faults>, Problem> {
    gateway.faults.as_ref().ok_or_else(|| Problem::new(StatusCode::NOT_FOUND, "not_found", "Started without --faults."))
}

type Asked = Result<Query<Which>, axum::extract::rejection::QueryRejection>;

fn which(asked: Asked) -> Result<Which, Problem> {
    let Query(which) = asked.map_err(|_| bad("bad_query", "The query is `key=KEY`, `keep=N`, `events=N`."))?;
    if which.key.as_ref().is_some_and(|key| key.is_empty() || key.len() > MAX_KEY_BYTES) {
        return Err(bad("bad_query", format!("A key has 1 to {MAX_KEY_BYTES} bytes.")));
    }
    Ok(which)
}

async fn read(State(gateway): State<Arc<Gateway>>, asked: Asked) -> Answer {
    let which = which(asked)?;
    Ok(Json(json!(faults(&gateway)?.settings(which.key.as_deref()))))
}

async fn set(State(gateway): State<Arc<Gateway>>, headers: HeaderMap, asked: Asked, body: Bytes) -> Answer {
    check_origin(&gateway, &headers)?;
    let which = which(asked)?;
    let settings: Settings = serde_json::from_slice(&body)
        .map_err(|error| bad("bad_faults", format!("The faults are a JSON object of chances and times: {error}.")))?;
    if let Some(fault) = settings.fault() {
        return Err(bad("bad_faults", fault));
    }
    if !faults(&gateway)?.set(which.key.as_deref(), settings.clone()) {
        return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", "There are too many keys."));
    }
    tracing::info!(?settings, key = which.key, "faults are set");
    Ok(Json(json!(settings)))
}

async fn forget(State(gateway): State<Arc<Gateway>>, headers: HeaderMap, asked: Asked) -> Answer {
    check_origin(&gateway, &headers)?;
    let which = which(asked)?;
    let faults = faults(&gateway)?;
    match &which.key {
        Some(key) => faults.forget(key),
        None => {
            let seed = faults.settings(None).seed;
            faults.set(None, Settings { seed, ..Settings::default() });
        }
    }
    Ok(Json(json!(faults.settings(which.key.as_deref()))))
}

async fn act(
    State(gateway): State<Arc<Gateway>>,
    Path(action): Path<String>,
    headers: HeaderMap,
    asked: Asked,
) -> Answer {
    check_origin(&gateway, &headers)?;
    let Which { key, keep, events } = which(asked)?;
    let faults = faults(&gateway)?;
    tracing::info!(action, key, "a fault is done");
    let deed = match action.as_str() {
        "cut" => Deed::Cut,
        "half_open" => Deed::HalfOpen,
        "crash" => {
            faults.go_away(key.as_deref(), AWAY);
            Deed::Crash
        }
        "stale_snapshot" => Deed::StaleSnapshot,
        "new_epoch" => {
            let lacking = events.unwrap_or(LACKING);
            let epoch = gateway.writer.restore(lacking).await?;
            if lacking > 0 {
                // What an operator does: the gateway is down while an older copy is put back.
                faults.act(Action { key: None, deed: Deed::Cut });
            }
            return Ok(Json(json!({ "epoch": &*epoch })));
        }
        "trim" => {
            gateway.log.trim(keep.unwrap_or(KEPT).max(1)).await?;
            return Ok(Json(json!({ "epoch": &*gateway.log.epoch() })));
        }
        _ => {
            let message = "The actions are cut, half_open, crash, stale_snapshot, new_epoch, trim.";
            return Err(Problem::new(StatusCode::NOT_FOUND, "not_found", message));
        }
    };
    faults.act(Action { key, deed });
    Ok(Json(json!({ "epoch": &*gateway.log.epoch() })))
}
