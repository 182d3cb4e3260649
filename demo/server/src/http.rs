//! The HTTP side: posting events, reading states and events, opening sockets, serving the page.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::body::Bytes;
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::{DefaultBodyLimit, Query, State};
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use axum::middleware::map_response_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get};
use axum::{Json, Router};
use inorder::wire::{Data, Replayed, SUBPROTOCOL};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tower_http::services::ServeDir;

use crate::fault::{self, Stage};
use crate::gateway::{Gateway, now};
use crate::limits::{
    LIST_ENTITIES, LIST_EVENTS, MAX_FRAME_BYTES, MAX_MESSAGE_BYTES, MAX_WORD_BYTES, READ_BUFFER_BYTES,
};
use crate::log::{self, Page, Stored, Write, Written};
use crate::metrics;
use crate::name;
use crate::socket;
use crate::token::{Access, Refused};
use crate::topic::Change;
use crate::writer::Failed;

/// A request that is refused: a status, a code for machines, a sentence for people.
#[derive(Debug)]
pub struct Problem {
    status: StatusCode,
    code: &'static str,
    message: String,
    more: Option<(&'static str, Value)>,
}

impl Problem {
    /// Makes a problem.
    pub fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Problem {
        Problem { status, code, message: message.into(), more: None }
    }

    fn with(mut self, key: &'static str, value: Value) -> Problem {
        self.more = Some((key, value));
        self
    }
}

/// The code of a problem, for those who count them.
#[derive(Clone, Copy)]
struct Code(&'static str);

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut body = json!({ "code": self.code, "message": self.message });
        if let Some((key, value)) = self.more {
            body[key] = value;
        }
        let mut response = (self.status, Json(body)).into_response();
        response.extensions_mut().insert(Code(self.code));
        if self.status == StatusCode::SERVICE_UNAVAILABLE {
            response.headers_mut().insert(header::RETRY_AFTER, header::HeaderValue::from_static("1"));
        }
        response
    }
}

impl From<Refused> for Problem {
    fn from(refused: Refused) -> Self {
        Problem::new(StatusCode::UNAUTHORIZED, refused.code(), refused.message())
    }
}

impl From<log::Unavailable> for Problem {
    fn from(error: log::Unavailable) -> Self {
        tracing::error!(%error, "a request can't be answered");
        unavailable("The log can't be used at the moment; try again.")
    }
}

fn unavailable(message: &str) -> Problem {
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", message)
}

/// A request with bad input.
pub fn bad(code: &'static str, message: impl Into<String>) -> Problem {
    Problem::new(StatusCode::BAD_REQUEST, code, message)
}

/// The routes of the gateway.
pub fn routes(gateway: Arc<Gateway>, page: Option<&Path>) -> Router {
    // Faults can't be had, nor found, unless they were asked for.
    let faults = if gateway.faults.is_some() { fault::control::routes() } else { Router::new() };
    let routes = Router::new()
        .merge(faults)
        .route("/ws", get(open_socket))
        .route("/health", get(health))
        .route("/health/live", get(live))
        .route("/health/ready", get(ready))
        .route("/metrics", get(metrics))
        .route("/entities", get(list))
        .route("/entities/{*path}", any(entity))
        .layer(DefaultBodyLimit::max(MAX_FRAME_BYTES))
        .layer(map_response_with_state(gateway.clone(), finish))
        .with_state(gateway);
    match page {
        Some(folder) => routes.fallback_service(ServeDir::new(folder)),
        None => routes.fallback(nothing_here),
    }
}

/// What the log says now is no answer to a later question; what was refused is counted.
async fn finish(State(gateway): State<Arc<Gateway>>, mut response: Response) -> Response {
    if let Some(Code(code)) = response.extensions().get() {
        gateway.metrics.refused(code);
    }
    response.headers_mut().insert(header::CACHE_CONTROL, header::HeaderValue::from_static("no-store"));
    response
}

async fn nothing_here() -> Problem {
    Problem::new(StatusCode::NOT_FOUND, "not_found", "There is nothing at this path.")
}

#[derive(Default, Deserialize)]
struct SocketQuery {
    /// Which faults are meant for this socket.
    faults: Option<String>,
}

async fn health(State(gateway): State<Arc<Gateway>>) -> Result<Json<Value>, Problem> {
    let row = gateway.log.last_rows().await?.total();
    Ok(Json(json!({ "ok": true, "epoch": &*gateway.log.epoch(), "row": row, "sockets": gateway.hub.sockets() })))
}

/// Whether the process answers; to be restarted if not.
async fn live() -> Json<Value> {
    Json(json!({ "ok": true }))
}

/// Whether clients should be sent here: the log can be used, and nobody has told the gateway to stop.
async fn ready(State(gateway): State<Arc<Gateway>>) -> Result<Json<Value>, Problem> {
    if gateway.draining.load(Ordering::Relaxed) {
        return Err(unavailable("The gateway is about to stop."));
    }
    gateway.log.last_rows().await?;
    Ok(Json(json!({ "ok": true })))
}

async fn metrics(State(gateway): State<Arc<Gateway>>) -> Response {
    let text = metrics::text(&gateway).await;
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response()
}

async fn open_socket(
    State(gateway): State<Arc<Gateway>>,
    headers: HeaderMap,
    uri: Uri,
    upgrade: WebSocketUpgrade,
) -> Result<Response, Problem> {
    check_origin(&gateway, &headers)?;
    let offered = headers.get_all(header::SEC_WEBSOCKET_PROTOCOL).into_iter();
    let offered = offered.filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(','));
    if !offered.map(str::trim).any(|protocol| protocol == SUBPROTOCOL) {
        let message = format!("This gateway speaks the WebSocket subprotocol {SUBPROTOCOL} only.");
        return Err(bad("subprotocol", message));
    }
    let upgrade = upgrade
        .protocols([SUBPROTOCOL])
        .max_message_size(MAX_MESSAGE_BYTES)
        .max_frame_size(MAX_MESSAGE_BYTES)
        .read_buffer_size(READ_BUFFER_BYTES)
        .write_buffer_size(0);
    let query = Query::<SocketQuery>::try_from_uri(&uri).map(|Query(query)| query).unwrap_or_default();
    if gateway.faults.as_ref().is_some_and(|faults| faults.is_away(query.faults.as_deref())) {
        return Err(unavailable("The gateway has crashed, on purpose."));
    }
    let epoch = gateway.log.epoch();
    let stage = gateway.faults.clone().map(|faults| Box::new(Stage::new(faults, query.faults, epoch)));
    Ok(upgrade.on_upgrade(move |socket| socket::serve(gateway, socket, stage)))
}

/// Refuses pages of origins that are not allowed (G10).
///
/// # Errors
/// When the origin is not allowed.
pub fn check_origin(gateway: &Gateway, headers: &HeaderMap) -> Result<(), Problem> {
    if gateway.origins.allow(headers) {
        return Ok(());
    }
    let message = "Pages of this origin may not use this gateway; its operator can allow it with --origin.";
    Err(Problem::new(StatusCode::FORBIDDEN, "forbidden_origin", message))
}

fn check_token(gateway: &Gateway, headers: &HeaderMap) -> Result<Access, Problem> {
    check_origin(gateway, headers)?;
    let token = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let token = token.and_then(|value| value.strip_prefix("Bearer "));
    Ok(gateway.tokens.check(token)?)
}

fn may_read(access: &Access, entity: &str) -> Result<(), Problem> {
    if access.may_read(entity) { Ok(()) } else { Err(forbidden()) }
}

fn forbidden() -> Problem {
    Problem::new(StatusCode::FORBIDDEN, "forbidden", "The token does not cover this entity.")
}

/// What a path under `/entities/` names. A slash of a name may be written as `/` or `%2F`; only a name that
/// itself ends in `/events` needs the latter.
fn target(uri: &Uri) -> Result<(Arc<str>, bool), Problem> {
    let path = uri.path().strip_prefix("/entities/").unwrap_or_default();
    let (path, events) = match path.strip_suffix("/events") {
        Some(path) => (path, true),
        None => (path, false),
    };
    let name = decode_path(path).ok_or_else(|| bad("bad_name", "The entity's name is not UTF-8."))?;
    match name::fault(&name) {
        None => Ok((name.into(), events)),
        Some(fault) => Err(bad("bad_name", fault)),
    }
}

fn decode_path(path: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte == b'%' {
            let digits = std::str::from_utf8(after.get(..2)?).ok()?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            rest = &after[2..];
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}

async fn entity(
    State(gateway): State<Arc<Gateway>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Result<Bytes, axum::extract::rejection::BytesRejection>,
) -> Result<Response, Problem> {
    let access = check_token(&gateway, &headers)?;
    let (entity, events) = target(&uri)?;
    match (method, events) {
        (Method::GET | Method::HEAD, false) => {
            may_read(&access, &entity)?;
            read_state(&gateway, entity).await
        }
        (Method::GET | Method::HEAD, true) => {
            may_read(&access, &entity)?;
            read_events(&gateway, entity, &uri).await
        }
        (Method::POST, true) => {
            if !access.may_write(&entity) {
                return Err(forbidden());
            }
            let body = body.map_err(|rejection| {
                let message = format!("The body can't be read; it has at most {MAX_FRAME_BYTES} bytes.");
                Problem::new(rejection.status(), "too_large", message)
            })?;
            post(&gateway, entity, &body).await
        }
        (_, true) => Err(wrong_method("GET and POST")),
        (_, false) => Err(wrong_method("GET")),
    }
}

fn wrong_method(methods: &str) -> Problem {
    let message = format!("Here only {methods} can be used.");
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method", message)
}

#[derive(Serialize)]
struct StateBody<'a> {
    entity: &'a str,
    epoch: &'a str,
    seq: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    at: Option<&'a Data>,
    data: &'a Data,
}

fn state_body(state: &log::State) -> StateBody<'_> {
    let log::State { entity, epoch, seq, status, at, data, .. } = state;
    StateBody { entity, epoch, seq: *seq, status: status.as_deref(), at: at.as_ref(), data }
}

async fn read_state(gateway: &Gateway, entity: Arc<str>) -> Result<Response, Problem> {
    let states = gateway.log.states(&[entity]).await?;
    let state = states.first().ok_or_else(|| unavailable("The log gave no state."))?;
    Ok(Json(state_body(state)).into_response())
}

#[derive(Deserialize)]
struct ListQuery {
    topic: Option<String>,
    after: Option<String>,
}

/// The states of a topic's members, or of all entities, page by page.
async fn list(
    State(gateway): State<Arc<Gateway>>,
    headers: HeaderMap,
    query: Result<Query<ListQuery>, axum::extract::rejection::QueryRejection>,
) -> Result<Response, Problem> {
    let access = check_token(&gateway, &headers)?;
    let Query(query) = query.map_err(|_| bad("bad_query", "The query is `topic=NAME`, `after=NAME`."))?;
    let after = query.after.unwrap_or_default();
    let mut names: Vec<Arc<str>> = match query.topic {
        Some(topic) => {
            may_read(&access, &topic)?;
            let states = gateway.log.states(&[topic.into()]).await?;
            states.into_iter().flat_map(|state| state.members).filter(|name| **name > *after).collect()
        }
        None => gateway.log.names(&after, LIST_ENTITIES + 1).await?,
    };
    let done = names.len() <= LIST_ENTITIES;
    names.truncate(LIST_ENTITIES);
    let next = if done { None } else { names.last().cloned() };
    names.retain(|name| access.may_read(name));
    let states = gateway.log.states(&names).await?;
    let entities: Vec<StateBody<'_>> = states.iter().map(state_body).collect();
    let epoch = gateway.log.epoch();
    Ok(Json(ListBody { epoch: &epoch, entities, next: next.as_deref() }).into_response())
}

#[derive(Serialize)]
struct ListBody<'a> {
    epoch: &'a str,
    entities: Vec<StateBody<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<&'a str>,
}

#[derive(Deserialize)]
struct EventsQuery {
    #[serde(default)]
    after: u64,
    epoch: Option<String>,
    limit: Option<usize>,
}

#[derive(Serialize)]
struct EventsBody<'a> {
    entity: &'a str,
    epoch: &'a str,
    head: u64,
    events: Vec<Replayed>,
    done: bool,
}

async fn read_events(gateway: &Gateway, entity: Arc<str>, uri: &Uri) -> Result<Response, Problem> {
    let Query(query) = Query::<EventsQuery>::try_from_uri(uri)
        .map_err(|_| bad("bad_query", "The query is `after=SEQ`, `epoch=EPOCH`, `limit=COUNT`."))?;
    let limit = query.limit.unwrap_or(LIST_EVENTS).clamp(1, LIST_EVENTS);
    let from = query.after.saturating_add(1);
    let epoch = gateway.log.epoch();
    match gateway.log.page(&entity, query.epoch.as_deref(), from, None, limit).await? {
        Page::Events { events, head, ended } => {
            let epoch = events.first().map_or(epoch, |event| event.epoch.clone());
            let events = events.into_iter().map(Stored::replayed).collect();
            let body = EventsBody { entity: &entity, epoch: &epoch, head, events, done: ended };
            Ok(Json(body).into_response())
        }
        Page::Ahead { head } => {
            let body = EventsBody { entity: &entity, epoch: &epoch, head, events: Vec::new(), done: true };
            Ok(Json(body).into_response())
        }
        Page::Gone { oldest, .. } => {
            let message = "These events were trimmed; take the state, and go on from its seq.";
            Err(Problem::new(StatusCode::GONE, "gone", message).with("oldest", oldest.into()))
        }
        Page::OtherEpoch => {
            let message = "The log has another epoch; take the state, and go on from its position.";
            Err(Problem::new(StatusCode::CONFLICT, "epoch", message).with("epoch", (*epoch).into()))
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EventBody {
    id: Option<String>,
    status: Option<String>,
    at: Option<Data>,
    #[serde(default, deserialize_with = "present")]
    data: Option<Data>,
}

/// `null` is data, its absence is not.
fn present<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Data>, D::Error> {
    Data::deserialize(deserializer).map(Some)
}

async fn post(gateway: &Gateway, entity: Arc<str>, body: &[u8]) -> Result<Response, Problem> {
    let write = read_write(entity, body)?;
    match gateway.writer.post(write).await {
        Ok(Written::Stored { epoch, seq, duplicate }) => {
            let mut body = json!({ "epoch": &*epoch, "seq": seq });
            if duplicate {
                body["duplicate"] = true.into();
            }
            Ok(Json(body).into_response())
        }
        Ok(Written::Terminal { status }) => {
            let message = format!("The entity is final since it is `{status}`; nothing may change any more.");
            Err(Problem::new(StatusCode::CONFLICT, "terminal", message).with("status", status.into()))
        }
        Ok(Written::TooLarge) => {
            Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", "The entity's state would be too large."))
        }
        Err(Failed::Full) => Err(unavailable("Too many events are waiting; post it again later.")),
        Err(Failed::Unavailable) => Err(unavailable("It may not be stored; post it again with the same id.")),
    }
}

fn read_write(entity: Arc<str>, body: &[u8]) -> Result<Write, Problem> {
    let shape = r#"An event is a JSON object {"id"?: string, "status"?: string, "at"?: any, "data"?: any}"#;
    // An array would be read as the fields in order.
    if body.trim_ascii_start().first() == Some(&b'[') {
        return Err(bad("bad_event", format!("{shape}.")));
    }
    let event: EventBody = serde_json::from_slice(body).map_err(|error| {
        let code = if error.is_data() { "bad_event" } else { "bad_json" };
        bad(code, format!("{shape}: {error}."))
    })?;
    for (word, what) in [(&event.id, "id"), (&event.status, "status")] {
        if word.as_ref().is_some_and(|word| word.is_empty() || word.len() > MAX_WORD_BYTES || word.contains('\0')) {
            return Err(bad("bad_event", format!("The {what} has 1 to {MAX_WORD_BYTES} bytes, none of them 0.")));
        }
    }
    let at = event.at.unwrap_or_else(now);
    if at.text().len() > MAX_WORD_BYTES {
        return Err(bad("bad_event", format!("The at has at most {MAX_WORD_BYTES} bytes.")));
    }
    // What can't be merged must not reach the log: data that is nested too deep, say.
    if let Some(Err(error)) = event.data.as_ref().map(Data::parse::<Value>) {
        return Err(bad("bad_event", format!("The data can't be used. {error}")));
    }
    let topic = if name::is_topic(&entity) {
        let change = Change::read(event.data.as_ref().map(Data::text));
        Some(change.map_err(|message| bad("bad_topic", message))?)
    } else {
        None
    };
    Ok(Write { entity, id: event.id, status: event.status, at, data: event.data, topic })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_names_an_entity() {
        let table = [
            ("/entities/job%2F42", Some(("job/42", false))),
            ("/entities/job/42", Some(("job/42", false))),
            ("/entities/job%2F42/events", Some(("job/42", true))),
            ("/entities/job/42/events?after=3", Some(("job/42", true))),
            ("/entities/a%2Fevents", Some(("a/events", false))),
            ("/entities/caf%C3%A9", Some(("café", false))),
            ("/entities/%FF", None),
            ("/entities/a%2", None),
            ("/entities/a%zz", None),
            ("/entities/", None),
            ("/entities//events", None),
            ("/entities/a%00", None),
        ];
        for (uri, expected) in table {
            let got = target(&uri.parse().unwrap()).ok();
            let expected = expected.map(|(name, events)| (Arc::from(name), events));
            assert_eq!(got, expected, "{uri}");
        }
    }
}
