//! A model gateway: histories, snapshots, replays with retention and pages, heads, epochs, a topic.
//!
//! It is also the oracle: what an entity's state is at a number is what this log says, folded in order.

use std::hash::{Hash, Hasher};

use inorder::client::Seq;

use super::source::Source;

/// Statuses above this are terminal.
pub const RUNNING: u8 = 4;

/// Entities of a world at most; the first may be a topic whose members are the others.
pub const ENTITIES: usize = 4;

/// How an event changes a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fold {
    /// Everything that ever happened is in it: a lost, doubled or swapped event shows.
    Mix,
    /// The event is the state.
    Replace,
    /// The low half of the value is added to the set, the high half removed.
    Members,
}

impl Fold {
    pub fn apply(self, state: u64, value: u64) -> u64 {
        match self {
            Fold::Mix => (state ^ value).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23) ^ value,
            Fold::Replace => value,
            Fold::Members => (state | value & 0xffff_ffff) & !(value >> 32),
        }
    }
}

/// One change, or numbers that will never exist.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Entry {
    pub prev: Seq,
    pub seq: Seq,
    /// 0: none. A producer's retry has the id of an earlier entry.
    pub id: u64,
    pub status: u8,
    pub value: Option<u64>,
    pub vacant: bool,
    /// Its id was given before: readers that know that must not show it.
    pub repeated: bool,
    /// Which of the entity's histories it is of.
    pub book: u32,
    /// What everything up to here makes.
    pub state_after: u64,
    pub status_after: u8,
}

/// One incarnation of an entity's numbering.
#[derive(Clone, Debug, Default, Hash)]
pub struct History {
    pub epoch: u32,
    pub base: Seq,
    pub base_state: u64,
    pub base_status: u8,
    pub entries: Vec<Entry>,
    /// Entries before this index were trimmed.
    pub kept_from: usize,
    /// States that were at a number before the history forked, with their status.
    pub was: Vec<(Seq, u64, u8)>,
}

impl History {
    pub fn head(&self) -> Seq {
        self.entries.last().map_or(self.base, |entry| entry.seq)
    }

    /// State and status at a number, if a change ends there.
    pub fn at(&self, seq: Seq) -> Option<(u64, u8)> {
        if seq == self.base {
            return Some((self.base_state, self.base_status));
        }
        let index = self.entries.binary_search_by_key(&seq, |entry| entry.seq).ok()?;
        Some((self.entries[index].state_after, self.entries[index].status_after))
    }

    /// The index of the first entry behind a number.
    pub fn behind(&self, seq: Seq) -> usize {
        self.entries.partition_point(|entry| entry.seq <= seq)
    }

    /// Whether a state was at a number once, before a fork.
    pub fn was_at(&self, seq: Seq, state: u64, status: u8) -> bool {
        self.was.contains(&(seq, state, status))
    }

    /// Whether an event with this number was lost in a fork.
    pub fn lost(&self, seq: Seq) -> bool {
        self.was.iter().any(|(lost, ..)| *lost == seq)
    }

    pub fn is_over(&self) -> bool {
        self.entries.last().map_or(self.base_status, |entry| entry.status_after) > RUNNING
    }
}

/// What goes to the client.
#[derive(Clone, Debug, PartialEq, Hash)]
pub enum Frame {
    Welcome,
    Event { entity: usize, epoch: u32, entry: Entry },
    Snapshot(Whole),
    Subscribed { entity: usize, epoch: u32, head: Seq, request: u32 },
    Replay { entity: usize, epoch: u32, request: u32, entries: Vec<Entry>, done: bool },
    Gone { entity: usize, request: u32 },
    Ahead { entity: usize, epoch: u32, head: Seq, request: u32 },
    Vacant { entity: usize, epoch: u32, from: Seq, to: Seq },
    Final { entity: usize, epoch: u32, status: u8, request: u32 },
    Discontinuity { entity: Option<usize> },
    Heartbeat { heads: Vec<(usize, u32, Seq)>, cursor: Option<u32> },
    Heads { heads: Vec<(usize, u32, Seq)>, request: u32 },
    Pong { id: u32 },
    Error { entity: usize, request: u32, code: u8, retry_after: Option<u64> },
    Goodbye { retry_after: Option<u64> },
    Bad,
}

/// A snapshot, or one part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Whole {
    pub entity: usize,
    pub epoch: u32,
    pub book: u32,
    pub seq: Seq,
    pub state: u64,
    pub status: u8,
    pub request: Option<u32>,
    /// Which part of how many.
    pub part: u8,
    pub of: u8,
}

/// One entity of a `subscribe`.
#[derive(Clone, Debug, PartialEq, Hash)]
pub struct Item {
    pub entity: usize,
    pub after: Option<(u32, Seq)>,
    pub cursor: Option<u32>,
    pub behind: Vec<(usize, Option<(u32, Seq)>)>,
}

/// What comes from the client.
#[derive(Clone, Debug, PartialEq, Hash)]
pub enum Ask {
    Hello,
    Auth,
    Subscribe { request: u32, items: Vec<Item> },
    Unsubscribe { entities: Vec<usize> },
    Replay { request: u32, ranges: Vec<(usize, u32, Seq, Option<Seq>)> },
    Snapshot { request: u32, entities: Vec<usize> },
    Heads { request: u32, entities: Vec<usize> },
    Ping { id: u32 },
}

/// What may go wrong at the gateway in this run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Moods {
    /// Answers come from a replica that is behind.
    pub lag: bool,
    /// Requests are refused with an error now and then.
    pub errors: bool,
    /// Replays end without `done`.
    pub cut_replays: bool,
    /// Numbers are burned.
    pub burn: bool,
    /// Producers repeat ids.
    pub repeat: bool,
    /// Ids are given.
    pub ids: bool,
    /// Numbers leave holes that events cover.
    pub ranges: bool,
    /// Things end.
    pub ends: bool,
    /// Finished entities may be answered with `final`.
    pub finals: bool,
    /// Large snapshots come in parts.
    pub parts: bool,
    /// Ranges may begin before what went out last.
    pub straddles: bool,
    /// Frames are counted.
    pub counts: bool,
    /// The number that voids everything before it.
    pub resets: Option<Seq>,
}

#[derive(Clone)]
pub struct Gateway {
    pub moods: Moods,
    pub topic: bool,
    pub folds: Vec<Fold>,
    pub books: Vec<Vec<History>>,
    /// Which of an entity's histories goes on.
    current: Vec<usize>,
    pub page: usize,
    /// Entities that this socket follows by themselves.
    follows: [bool; ENTITIES],
    greeted: bool,
    /// Where everything stood when a cursor was given.
    cursors: Vec<Vec<(u32, Seq)>>,
    changed_at: Vec<u64>,
    next_value: u64,
    refused: bool,
}

impl Gateway {
    pub fn new(entities: usize, topic: bool, fold: Fold, moods: Moods, page: usize) -> Gateway {
        let folds = (0..entities).map(|e| if topic && e == 0 { Fold::Members } else { fold }).collect();
        let fresh = |_| vec![History { epoch: 1, base_status: 1, ..History::default() }];
        Gateway {
            moods,
            topic,
            folds,
            books: (0..entities).map(fresh).collect(),
            current: vec![0; entities],
            page,
            follows: [false; ENTITIES],
            greeted: false,
            cursors: Vec::new(),
            changed_at: vec![0; entities],
            next_value: 1,
            refused: false,
        }
    }

    /// What tells two gateways of one world apart.
    pub fn identify(&self, hasher: &mut impl Hasher) {
        (&self.books, &self.current, self.follows, self.greeted, &self.changed_at).hash(hasher);
    }

    pub fn epoch(&self, entity: usize) -> u32 {
        self.history(entity).epoch
    }

    /// Which of an entity's histories goes on.
    pub fn book(&self, entity: usize) -> u32 {
        self.current[entity] as u32
    }

    pub fn history(&self, entity: usize) -> &History {
        &self.books[entity][self.current[entity]]
    }

    pub fn history_of(&self, entity: usize, book: u32) -> Result<&History, String> {
        self.books[entity].get(book as usize).ok_or_else(|| format!("told: history {book} of {entity} never was"))
    }

    fn members(&self) -> u64 {
        let history = self.history(0);
        if self.topic { history.at(history.head()).map_or(0, |(state, _)| state) } else { 0 }
    }

    /// Whether this socket hears of it.
    pub fn covers(&self, entity: usize) -> bool {
        self.follows[entity] || self.topic && entity > 0 && self.follows[0] && self.members() & 1 << entity != 0
    }

    /// The socket is another one: nothing is followed.
    pub fn disconnect(&mut self) {
        self.follows = [false; ENTITIES];
        self.greeted = false;
    }

    pub fn is_greeted(&self) -> bool {
        self.greeted
    }

    /// Something happens to an entity. What is pushed because of it is added to `out`.
    pub fn produce(&mut self, entity: usize, now: u64, source: &mut dyn Source, out: &mut Vec<Frame>) {
        if self.history(entity).is_over() {
            return;
        }
        self.changed_at[entity] = now;
        self.next_value += 1;
        let fresh = self.next_value.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let members_before = self.members();
        let moods = self.moods;
        let fold = self.folds[entity];
        let epoch = self.epoch(entity);
        let book = self.book(entity);
        let history = &mut self.books[entity][self.current[entity]];
        let prev = history.head();
        let (mut state, mut status) = history.at(prev).expect("the head is known");
        let seq = prev + 1 + if moods.ranges { u64::from(source.choose(3)) } else { 0 };
        let voids = moods.resets == Some(seq);
        if voids {
            (state, status) = (0, 0);
        }
        let mut entry = Entry {
            book,
            prev,
            seq,
            id: if moods.ids { self.next_value } else { 0 },
            status: 0,
            value: Some(fresh),
            vacant: false,
            repeated: false,
            state_after: state,
            status_after: status,
        };
        match source.choose(12) {
            1 if moods.burn && !voids => {
                entry = Entry { id: 0, value: None, vacant: true, ..entry };
            }
            2 if moods.repeat && moods.ids && history.entries.last().is_some_and(|last| last.id != 0) => {
                // The state already has it: applied or not, the fold is the same.
                let first = history.entries[history.entries.len() - 1];
                let (id, value, status) = (first.id, first.value, first.status);
                entry = Entry { id, value, status, repeated: true, ..entry };
            }
            3 => entry.status = 1 + source.choose(u32::from(RUNNING)) as u8,
            4 => entry = Entry { value: None, status: 1 + source.choose(u32::from(RUNNING)) as u8, ..entry },
            5 => entry.value = None,
            6 if moods.ends && fold != Fold::Members => {
                entry.status = RUNNING + 1 + source.choose(2) as u8;
            }
            _ => {}
        }
        if fold == Fold::Members {
            entry.status = 0;
            if entry.value.is_some() {
                let all = (self.changed_at.len() as u32).saturating_sub(1).max(1);
                let member = 1u64 << (1 + source.choose(all));
                entry.value = Some(if state & member == 0 { member } else { member << 32 });
            }
        }
        if fold == Fold::Replace && !entry.vacant {
            // Where events may be skipped, each must say everything.
            entry.value = entry.value.or(Some(fresh));
            if entry.status == 0 {
                entry.status = status;
            }
        }
        if !entry.repeated && !entry.vacant {
            if let Some(value) = entry.value {
                entry.state_after = fold.apply(state, value);
            }
            if entry.status != 0 {
                entry.status_after = entry.status;
            }
        }
        history.entries.push(entry);
        if entry.vacant {
            // A burned number is often not even announced.
            if self.covers(entity) && source.choose(2) == 0 {
                out.push(Frame::Vacant { entity, epoch, from: prev + 1, to: seq });
            }
        } else if self.covers(entity) {
            if moods.straddles && !entry.repeated && source.choose(3) == 2 {
                // It says everything, and says so from an earlier number on.
                let history = self.history(entity);
                let back = 1 + source.choose(history.entries.len().min(4) as u32) as usize;
                entry.prev = history.entries[history.entries.len() - back].prev;
            }
            out.push(Frame::Event { entity, epoch, entry });
        }
        if entity == 0 && self.topic && self.follows[0] {
            let joined = self.members() & !members_before;
            for member in (1..self.books.len()).filter(|&member| joined & 1 << member != 0) {
                self.snapshot(member, None, 0, source, out);
            }
        }
    }

    /// The log was lost: the entity begins anew, at another number and state.
    pub fn restart(&mut self, entity: usize, now: u64, source: &mut dyn Source) {
        self.changed_at[entity] = now;
        self.next_value += 1;
        let members = self.folds[entity] == Fold::Members;
        let base_state = if members { self.members() } else { self.next_value };
        let epoch = self.books[entity].len() as u32 + 1;
        let base = u64::from(source.choose(4));
        self.books[entity].push(History { epoch, base, base_state, base_status: 1, ..History::default() });
        self.current[entity] = self.books[entity].len() - 1;
    }

    /// The owner starts over in the same epoch, and says so with a number.
    pub fn reset(&mut self, entity: usize, now: u64, source: &mut dyn Source, out: &mut Vec<Frame>) {
        self.changed_at[entity] = now;
        let epoch = self.epoch(entity);
        self.books[entity].push(History { epoch, ..History::default() });
        self.current[entity] = self.books[entity].len() - 1;
        self.produce(entity, now, source, out);
    }

    /// The newest entries are lost, and others take their numbers: the history forks.
    pub fn fork(&mut self, entity: usize, now: u64, source: &mut dyn Source, out: &mut Vec<Frame>) {
        self.changed_at[entity] = now;
        let history = &mut self.books[entity][self.current[entity]];
        let lost = (1 + source.choose(3) as usize).min(history.entries.len());
        let kept = history.entries.len() - lost;
        for entry in history.entries.drain(kept..) {
            history.was.push((entry.seq, entry.state_after, entry.status_after));
        }
        history.kept_from = history.kept_from.min(kept);
        for _ in 0..source.choose(lost as u32 + 1) {
            self.produce(entity, now, source, out);
        }
    }

    /// A snapshot that nobody asked for.
    pub fn push_snapshot(&mut self, entity: usize, source: &mut dyn Source, out: &mut Vec<Frame>) {
        if self.covers(entity) {
            // One with the number that voids everything must be the newest.
            let lag = if self.moods.resets.is_none() { source.choose(3) as usize } else { 0 };
            self.snapshot(entity, None, lag, source, out);
        }
    }

    /// A server that was given up takes over again, where it stood.
    pub fn fail_back(&mut self, entity: usize, now: u64, source: &mut dyn Source) {
        self.changed_at[entity] = now;
        self.current[entity] = source.choose(self.books[entity].len() as u32) as usize;
    }

    /// Old entries are let go.
    pub fn trim(&mut self, entity: usize) {
        let history = &mut self.books[entity][self.current[entity]];
        history.kept_from = history.entries.len();
    }

    /// Only the newest entries are kept.
    pub fn keep(&mut self, entity: usize, most: usize) {
        let history = &mut self.books[entity][self.current[entity]];
        history.kept_from = history.kept_from.max(history.entries.len().saturating_sub(most));
    }

    /// How far behind the answering replica is.
    fn seen(&self, entity: usize, source: &mut dyn Source) -> usize {
        let history = self.history(entity);
        let lag = if self.moods.lag && source.choose(3) == 0 { 1 + source.choose(3) as usize } else { 0 };
        history.entries.len().saturating_sub(lag)
    }

    fn snapshot(&self, entity: usize, request: Option<u32>, lag: usize, source: &mut dyn Source, out: &mut Vec<Frame>) {
        let history = self.history(entity);
        let seen = history.entries.len().saturating_sub(lag);
        let seq = seen.checked_sub(1).map_or(history.base, |index| history.entries[index].seq);
        let (state, status) = history.at(seq).expect("entries end at their numbers");
        let of = if self.moods.parts { 1 + source.choose(3) as u8 } else { 1 };
        let (epoch, book) = (history.epoch, self.book(entity));
        for part in 1..=of {
            out.push(Frame::Snapshot(Whole { entity, epoch, book, seq, state, status, request, part, of }));
        }
    }

    /// Answers what came from the client.
    pub fn answer(&mut self, ask: &Ask, source: &mut dyn Source, out: &mut Vec<Frame>) {
        match ask {
            Ask::Hello => {
                self.greeted = true;
                out.push(Frame::Welcome);
            }
            Ask::Auth => {}
            Ask::Subscribe { request, items } => {
                for item in items {
                    self.follows[item.entity] = true;
                    self.resume(item.entity, item.after, *request, source, out);
                    if self.topic && item.entity == 0 {
                        self.resume_members(item, *request, source, out);
                    }
                }
            }
            Ask::Unsubscribe { entities } => {
                for &entity in entities {
                    self.follows[entity] = false;
                }
            }
            Ask::Replay { request, ranges } => {
                for &(entity, epoch, from, to) in ranges {
                    if self.refuses(entity, *request, source, out) {
                        continue;
                    }
                    if epoch != self.epoch(entity) {
                        out.push(Frame::Gone { entity, request: *request });
                    } else if from > self.history(entity).head() + 1 {
                        let head = self.history(entity).head();
                        out.push(Frame::Ahead { entity, epoch, head, request: *request });
                    } else {
                        self.replay(entity, from - 1, to, *request, source, out);
                    }
                }
            }
            Ask::Snapshot { request, entities } => {
                for &entity in entities {
                    if !self.refuses(entity, *request, source, out) {
                        let lag = self.history(entity).entries.len() - self.seen(entity, source);
                        self.snapshot(entity, Some(*request), lag, source, out);
                    }
                }
            }
            Ask::Heads { request, entities } => {
                let heads = entities.iter().map(|&entity| self.head_of(entity)).collect();
                out.push(Frame::Heads { heads, request: *request });
            }
            Ask::Ping { id } => out.push(Frame::Pong { id: *id }),
        }
    }

    fn head_of(&self, entity: usize) -> (usize, u32, Seq) {
        (entity, self.epoch(entity), self.history(entity).head())
    }

    fn refuses(&mut self, entity: usize, request: u32, source: &mut dyn Source, out: &mut Vec<Frame>) -> bool {
        // Two refusals in a row would only take longer.
        let refuses = self.moods.errors && !self.refused && source.choose(4) == 0;
        self.refused = refuses;
        if refuses {
            let retry_after = (source.choose(2) == 1).then_some(1_000);
            out.push(Frame::Error { entity, request, code: 2, retry_after });
        }
        refuses
    }

    fn resume(
        &mut self,
        entity: usize,
        after: Option<(u32, Seq)>,
        request: u32,
        source: &mut dyn Source,
        out: &mut Vec<Frame>,
    ) {
        if self.refuses(entity, request, source, out) {
            return;
        }
        let seen = self.seen(entity, source);
        let epoch = self.epoch(entity);
        let history = self.history(entity);
        let head = seen.checked_sub(1).map_or(history.base, |index| history.entries[index].seq);
        match after {
            Some((named, seq)) if named == epoch && seq > head => {
                out.push(Frame::Ahead { entity, epoch, head, request });
            }
            Some((named, seq)) if named == epoch && seq == head => {
                if self.moods.finals && history.is_over() && head == history.head() {
                    let status = history.at(head).map_or(0, |(_, status)| status);
                    out.push(Frame::Final { entity, epoch, status, request });
                } else {
                    out.push(Frame::Subscribed { entity, epoch, head, request });
                }
            }
            Some((named, seq)) if named == epoch => {
                if source.choose(2) == 0 {
                    out.push(Frame::Subscribed { entity, epoch, head, request });
                }
                self.replay(entity, seq, None, request, source, out);
            }
            _ => {
                let lag = history.entries.len() - seen;
                self.snapshot(entity, Some(request), lag, source, out);
            }
        }
    }

    /// What the topic's subscription brings for its members, and then a cursor that covers it.
    fn resume_members(&mut self, item: &Item, request: u32, source: &mut dyn Source, out: &mut Vec<Frame>) {
        let members = self.members();
        let known = item.cursor.and_then(|cursor| self.cursors.get(cursor as usize).cloned());
        for member in (1..self.books.len()).filter(|&member| members & 1 << member != 0) {
            let named = item.behind.iter().find(|(entity, _)| *entity == member);
            let after = match (named, &known) {
                (Some((_, after)), _) => *after,
                (None, Some(known)) => known.get(member).copied().filter(|(epoch, _)| *epoch > 0),
                (None, None) => None,
            };
            self.resume(member, after, request, source, out);
        }
    }

    /// Where everything stands now; only a socket in order may be told.
    pub fn cursor(&mut self) -> Option<u32> {
        if !self.topic || !self.follows[0] {
            return None;
        }
        let stands = (0..self.books.len())
            .map(|entity| if self.covers(entity) { (self.epoch(entity), self.history(entity).head()) } else { (0, 0) });
        self.cursors.push(stands.collect());
        Some(self.cursors.len() as u32 - 1)
    }

    fn replay(
        &mut self,
        entity: usize,
        after: Seq,
        to: Option<Seq>,
        request: u32,
        source: &mut dyn Source,
        out: &mut Vec<Frame>,
    ) {
        let epoch = self.epoch(entity);
        let history = self.history(entity);
        let from = history.behind(after);
        if from < history.kept_from || after < history.base {
            out.push(Frame::Gone { entity, request });
            return;
        }
        let wanted: Vec<Entry> =
            history.entries[from..].iter().filter(|entry| to.is_none_or(|to| entry.seq <= to)).copied().collect();
        let pages: Vec<&[Entry]> = wanted.chunks(self.page).collect();
        let last = pages.len().saturating_sub(1);
        let cut = self.moods.cut_replays && source.choose(4) == 0;
        if pages.is_empty() {
            out.push(Frame::Replay { entity, epoch, request, entries: Vec::new(), done: true });
        }
        for (index, page) in pages.into_iter().enumerate() {
            let done = index == last && !cut;
            out.push(Frame::Replay { entity, epoch, request, entries: page.to_vec(), done });
        }
    }

    /// The heads of what changed since, or of everything that is followed.
    pub fn heads(&self, since: Option<u64>) -> Vec<(usize, u32, Seq)> {
        (0..self.books.len())
            .filter(|&entity| self.covers(entity) && since.is_none_or(|since| self.changed_at[entity] >= since))
            .map(|entity| self.head_of(entity))
            .collect()
    }
}
