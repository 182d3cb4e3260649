//! A naive page: it remembers everything that it was told and asks of everything that it is shown where it came from.

use std::collections::BTreeMap;

use inorder::config::{Continuity, OnGap, Reopen};
use serde_json::Value;

use crate::facade::{Flush, Kind, Message, Options, Record, Reduce, Shown};

/// Where something stood: entity, epoch, seq.
type Place = (String, String, u64);

/// An event that was sent, live or replayed.
struct Sent {
    id: Option<Value>,
    status: Option<String>,
    data: Option<Value>,
}

/// What an entity shows.
#[derive(Default)]
struct View {
    /// The last position that was shown.
    at: Option<(String, u64)>,
    state: Value,
    /// The application left it since, so that what was shown binds nobody.
    left: bool,
    ended: Option<Option<String>>,
}

pub struct Page {
    /// Every step is shown, each number is one event, and an event's data is the state.
    exact: bool,
    /// Positions only go forward unless a change says `reset`.
    ordered: bool,
    reopens: bool,
    /// Several changes of one task may be told as the last of them (R35).
    conflates: bool,
    most_held: u64,
    events: BTreeMap<Place, Vec<Sent>>,
    ids: BTreeMap<(String, String), Vec<u64>>,
    vacant: Vec<(String, String, u64, u64)>,
    snapshots: BTreeMap<Place, Vec<Option<Value>>>,
    finals: Vec<(String, Option<String>)>,
    views: BTreeMap<String, View>,
}

impl Page {
    pub fn new(options: &Options) -> Page {
        let model = &options.shape.model;
        Page {
            exact: model.continuity == Continuity::PlusOne
                && model.on_gap != Some(OnGap::Skip)
                && model.reset_seq.is_none()
                && options.shape.reduce == Reduce::Replace
                && options.flush == Flush::Sync,
            ordered: model.continuity != Continuity::None,
            reopens: model.reopen == Reopen::Epoch,
            conflates: options.flush != Flush::Sync,
            most_held: options.config.gap.max_events as u64,
            events: BTreeMap::new(),
            ids: BTreeMap::new(),
            vacant: Vec::new(),
            snapshots: BTreeMap::new(),
            finals: Vec::new(),
            views: BTreeMap::new(),
        }
    }

    /// A message is about to be received.
    pub fn told(&mut self, message: &Message) {
        let text = match message {
            Message::Text(text) => text.as_str(),
            Message::Binary(bytes) => std::str::from_utf8(bytes).unwrap_or(""),
        };
        match serde_json::from_str(text) {
            Ok(Value::Array(frames)) => frames.iter().for_each(|frame| self.frame(frame)),
            Ok(frame) => self.frame(&frame),
            Err(_) => {}
        }
    }

    fn frame(&mut self, frame: &Value) {
        let Some(entity) = frame.get("entity").and_then(Value::as_str) else { return };
        let epoch = frame.get("epoch").and_then(Value::as_str).unwrap_or("");
        let place = |seq: u64| (entity.to_owned(), epoch.to_owned(), seq);
        let seq = number(frame.get("seq"));
        match frame.get("type").and_then(Value::as_str) {
            Some("event") => self.event(entity, epoch, frame),
            Some("replay") => {
                for event in frame.get("events").and_then(Value::as_array).into_iter().flatten() {
                    self.event(entity, epoch, event);
                }
                for range in frame.get("vacant").and_then(Value::as_array).into_iter().flatten() {
                    self.vacancy(entity, epoch, range.get(0), range.get(1));
                }
            }
            Some("vacant") => self.vacancy(entity, epoch, frame.get("from"), frame.get("to")),
            Some("snapshot") => {
                // The state of a snapshot in parts is left to other tests.
                let whole = frame.get("of").is_none_or(Value::is_null);
                let data = whole.then(|| frame.get("data").cloned().unwrap_or(Value::Null));
                self.snapshots.entry(place(seq.unwrap_or(0))).or_default().push(data);
            }
            Some("final") => {
                let status = frame.get("status").and_then(Value::as_str).map(str::to_owned);
                self.finals.push((entity.to_owned(), status));
            }
            _ => {}
        }
    }

    fn event(&mut self, entity: &str, epoch: &str, event: &Value) {
        let seq = number(event.get("seq")).unwrap_or(0);
        let id = event.get("id").filter(|id| !id.is_null()).cloned();
        if let Some(id) = &id {
            self.ids.entry((entity.to_owned(), id.to_string())).or_default().push(seq);
        }
        self.events.entry((entity.to_owned(), epoch.to_owned(), seq)).or_default().push(Sent {
            id,
            status: event.get("status").and_then(Value::as_str).map(str::to_owned),
            data: event.get("data").cloned(),
        });
    }

    fn vacancy(&mut self, entity: &str, epoch: &str, from: Option<&Value>, to: Option<&Value>) {
        if let (Some(from), Some(to)) = (number(from), number(to)) {
            self.vacant.push((entity.to_owned(), epoch.to_owned(), from, to));
        }
    }

    /// The application no longer wants an entity.
    pub fn left(&mut self, entity: &str) {
        self.views.entry(entity.to_owned()).or_default().left = true;
    }

    /// So many events are held back for an entity (R19).
    pub fn holds(&self, entity: &str, events: u64) {
        assert!(events <= self.most_held, "{entity} holds {events} events of at most {}", self.most_held);
    }

    /// Something happened; what is shown must be what was told.
    pub fn record(&mut self, record: &Record) {
        match record {
            Record::Deliver { to: None, shown } => self.shown(shown),
            Record::Flag { name: "final", entity: Some(entity), .. } => {
                let view = self.views.entry(entity.clone()).or_default();
                view.ended.get_or_insert(None);
            }
            Record::Refuted(said) => panic!("{said}"),
            _ => {}
        }
    }

    fn shown(&mut self, shown: &Shown) {
        let mut view = self.views.remove(&shown.entity).unwrap_or_default();
        let seq = shown.seq.unwrap_or(0);
        let is_topic = shown.entity.starts_with("topic/");
        self.lock(&mut view, shown);
        if self.ordered {
            self.place(&view, shown, seq);
        }
        if self.exact && !is_topic {
            self.content(&view, shown, seq);
        }
        view.at = Some((shown.epoch.clone(), seq));
        view.state = shown.data.clone();
        view.left = false;
        self.views.insert(shown.entity.clone(), view);
    }

    /// What has ended shows nothing new; joined again, it shows its end (R8, R31).
    fn lock(&self, view: &mut View, shown: &Shown) {
        if let Some(status) = &mut view.ended {
            match status {
                // The change that ended it is shown after the end was told of, or before it.
                None => *status = Some(shown.status.clone().unwrap_or_default()),
                Some(status) if !self.reopens => {
                    assert!(view.left, "shown after its end: {shown:?}");
                    assert_eq!(*status, shown.status.clone().unwrap_or_default(), "another end: {shown:?}");
                }
                Some(_) => {}
            }
        }
    }

    /// Positions go forward, epochs change by a reset, and what is passed over is said.
    fn place(&self, view: &View, shown: &Shown, seq: u64) {
        let Some((epoch, last)) = view.at.as_ref().filter(|_| !view.left) else {
            assert!(
                shown.kind == Kind::Snapshot || view.left || shown.reset || self.conflates,
                "the first thing shown is no snapshot: {shown:?}"
            );
            return;
        };
        if shown.reset {
            return;
        }
        assert_eq!(*epoch, shown.epoch, "an epoch without a reset: {shown:?}");
        match shown.kind {
            Kind::Event => assert!(*last < seq, "shown at {last} already: {shown:?}"),
            Kind::Snapshot => assert!(*last <= seq, "rolled back from {last}: {shown:?}"),
        }
        if let Some((from, to)) = shown.skipped {
            assert!(*last < from && from <= to && to <= seq, "skipped what was shown, {last}: {shown:?}");
        } else if self.exact {
            self.unbroken(shown, *last, seq - u64::from(shown.kind == Kind::Event));
        }
    }

    /// Every number after `last` up to `to` shows nothing: the server said so.
    fn unbroken(&self, shown: &Shown, last: u64, to: u64) {
        let (entity, epoch) = (&shown.entity, &shown.epoch);
        let mut at = last;
        while at < to {
            let vacancy = self
                .vacant
                .iter()
                .find(|(e, p, from, to)| e == entity && p == epoch && (from..=to).contains(&&(at + 1)));
            at = match vacancy {
                Some((.., to)) => *to,
                None => {
                    let sent = self.events.get(&(entity.clone(), epoch.clone(), at + 1));
                    let silent = sent.into_iter().flatten().any(|sent| {
                        let again = |id: &Value| {
                            self.ids.get(&(entity.clone(), id.to_string())).is_some_and(|seqs| seqs.len() > 1)
                        };
                        sent.data.is_none() && sent.status.is_none() || sent.id.as_ref().is_some_and(again)
                    });
                    assert!(silent, "{} was passed over in silence, {last} before: {shown:?}", at + 1);
                    at + 1
                }
            };
        }
    }

    /// What had ended and is joined again stands at the number that it had come to, with the state of its answer (R31).
    fn is_some_state(&self, shown: &Shown) -> bool {
        let told = self.snapshots.iter().filter(|((entity, ..), _)| *entity == shown.entity);
        told.flat_map(|(_, states)| states).any(|state| state.as_ref().is_none_or(|state| *state == shown.data))
    }

    /// What is shown was sent, at that place.
    fn content(&self, view: &View, shown: &Shown, seq: u64) {
        let place = (shown.entity.clone(), shown.epoch.clone(), seq);
        let found = match shown.kind {
            Kind::Event => self.events.get(&place).into_iter().flatten().any(|sent| match &sent.data {
                Some(data) => *data == shown.data,
                None => view.left || view.state == shown.data,
            }),
            Kind::Snapshot => {
                let mut snapshots = self.snapshots.get(&place).into_iter().flatten();
                snapshots.any(|data| data.as_ref().is_none_or(|data| *data == shown.data))
                    || view.ended.is_some() && self.is_some_state(shown)
                    || self.finals.iter().any(|(entity, status)| *entity == shown.entity && *status == shown.status)
            }
        };
        assert!(found, "nobody sent this: {shown:?}");
    }
}

/// A usable number of the wire (R11), read by the letter.
fn number(value: Option<&Value>) -> Option<u64> {
    let text = match value? {
        Value::Number(number) => number.as_u64().or_else(|| number.as_f64().map(|float| float as u64))?.to_string(),
        Value::String(text) => text.clone(),
        _ => return None,
    };
    text.parse().ok()
}
