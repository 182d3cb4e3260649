//! What one socket follows: entities by name, and the members of topics.
//!
//! Each followed entity is either live (its events are forwarded) or still waits for its answer, and then
//! the log is read until nothing is left between the answer and the live events:
//!
//! ```text
//!            after                head when read
//!   ──────────┼───────────────────────┼──────────────►  seq
//!             └── read from the log ──┘└── forwarded ──
//!                                    sent
//! ```

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use inorder::wire::Id;

use crate::limits::HEARTBEAT_MEMORY;
use crate::rows::Rows;
use crate::topic::Change;

/// One entity that a socket follows.
#[derive(Debug, Default)]
struct Followed {
    /// Subscribed to by name.
    direct: bool,
    /// How many of the socket's topics have it as a member.
    topics: usize,
    /// The number up to which everything was sent; `None` until the answer is sent.
    sent: Option<u64>,
}

/// One topic that a socket follows.
#[derive(Debug)]
struct Topic {
    members: HashSet<Arc<str>>,
    /// The topic's seq that `members` is of.
    at: u64,
    /// The request that the topic was last named in.
    request: Id,
    /// A cursor is owed to the client as soon as all answers are sent.
    cursor_due: Option<Rows>,
}

/// Everything that one socket follows.
#[derive(Debug, Default)]
pub struct Following {
    entities: HashMap<Arc<str>, Followed>,
    topics: HashMap<Arc<str>, Topic>,
    direct: usize,
    /// Entities that were brought up to date by a replay, and the heartbeats that still name them.
    replayed: Vec<(Arc<str>, u8)>,
}

/// What a change of a topic means for the socket.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Effect {
    /// Entities that were not followed before and are now.
    pub begun: Vec<Arc<str>>,
    /// Entities that are followed no longer.
    pub ended: Vec<Arc<str>>,
}

impl Following {
    /// How many entities are followed by name.
    pub fn direct(&self) -> usize {
        self.direct
    }

    /// How many entities are followed.
    pub fn len(&self) -> usize {
        self.entities.len()
    }

    /// Whether an entity is followed.
    pub fn contains(&self, entity: &str) -> bool {
        self.entities.contains_key(entity)
    }

    /// Whether an entity's answer is sent and its events are forwarded.
    pub fn is_live(&self, entity: &str) -> bool {
        self.entities.get(entity).is_some_and(|followed| followed.sent.is_some())
    }

    /// The names of everything followed.
    pub fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.entities.keys()
    }

    /// The names of the topics followed.
    pub fn topics(&self) -> impl Iterator<Item = &Arc<str>> {
        self.topics.keys()
    }

    /// Follows an entity by name; its events wait until [`Following::answered`].
    pub fn subscribe(&mut self, entity: &Arc<str>) {
        let followed = self.entities.entry(entity.clone()).or_default();
        if !followed.direct {
            self.direct += 1;
        }
        followed.direct = true;
        followed.sent = None;
    }

    /// Holds an entity's events back until [`Following::answered`].
    pub fn hold(&mut self, entity: &str) {
        if let Some(followed) = self.entities.get_mut(entity) {
            followed.sent = None;
        }
    }

    /// Everything up to `seq` is sent; what is above is forwarded from here on.
    pub fn answered(&mut self, entity: &str, seq: u64) {
        if let Some(followed) = self.entities.get_mut(entity) {
            followed.sent = Some(seq);
        }
    }

    /// An entity was brought up to date by a replay. Its head is told with the next heartbeats, like that of
    /// one that changed: a client that lost the last page learns of it (R21).
    pub fn replayed(&mut self, entity: &Arc<str>) {
        if self.entities.contains_key(entity) {
            self.replayed.push((entity.clone(), HEARTBEAT_MEMORY as u8));
        }
    }

    /// The entities that [`Following::replayed`] lately, with the number up to which everything was sent.
    pub fn take_replayed(&mut self) -> Vec<(Arc<str>, u64)> {
        let entities = &self.entities;
        let mut heads = Vec::new();
        self.replayed.retain_mut(|(entity, times)| {
            let Some(seq) = entities.get(entity).and_then(|followed| followed.sent) else { return false };
            heads.push((entity.clone(), seq));
            *times -= 1;
            *times > 0
        });
        heads.sort_unstable();
        heads.dedup();
        heads
    }

    /// Whether an event is to be forwarded; if so it counts as sent.
    pub fn forward(&mut self, entity: &str, seq: u64) -> bool {
        match self.entities.get_mut(entity).and_then(|followed| followed.sent.as_mut()) {
            Some(sent) if *sent < seq => {
                *sent = seq;
                true
            }
            _ => false,
        }
    }

    /// Follows an entity no longer by name. Returns what is followed no longer at all.
    pub fn unsubscribe(&mut self, entity: &str) -> Vec<Arc<str>> {
        let mut ended = Vec::new();
        if let Some(topic) = self.topics.remove(entity) {
            for member in topic.members {
                self.leave(&member, &mut ended);
            }
        }
        if let Some(followed) = self.entities.get_mut(entity).filter(|followed| followed.direct) {
            followed.direct = false;
            self.direct -= 1;
            self.drop_unwanted(entity, &mut ended);
        }
        ended
    }

    /// Sets the members of a topic as of its seq `at`.
    pub fn set_members(&mut self, topic: &Arc<str>, request: &Id, at: u64, members: Vec<Arc<str>>) -> Effect {
        let mut effect = Effect::default();
        let new: HashSet<Arc<str>> = members.into_iter().collect();
        let old = match self.topics.get_mut(topic) {
            Some(known) => std::mem::take(&mut known.members),
            None => HashSet::new(),
        };
        for member in old.difference(&new) {
            self.leave(member, &mut effect.ended);
        }
        for member in new.difference(&old) {
            self.join(member, &mut effect.begun);
        }
        let topic = self.topics.entry(topic.clone()).or_insert_with(|| Topic {
            members: HashSet::new(),
            at,
            request: request.clone(),
            cursor_due: None,
        });
        topic.members = new;
        topic.at = at;
        topic.request = request.clone();
        effect
    }

    /// Applies a topic's event to its members; `None` if they are of this seq or a later one already.
    pub fn change(
        &mut self,
        topic: &str,
        seq: u64,
        change: &Change,
        may_read: impl Fn(&str) -> bool,
    ) -> Option<Effect> {
        let mut effect = Effect::default();
        let known = self.topics.get_mut(topic).filter(|known| known.at < seq)?;
        known.at = seq;
        let mut left = Vec::new();
        let mut joined = Vec::new();
        for member in &change.remove {
            if known.members.remove(member) {
                left.push(member.clone());
            }
        }
        for member in &change.add {
            if may_read(member) && known.members.insert(member.clone()) {
                joined.push(member.clone());
            }
        }
        for member in left {
            self.leave(&member, &mut effect.ended);
        }
        for member in joined {
            self.join(&member, &mut effect.begun);
        }
        Some(effect)
    }

    /// Follows an entity no longer, whoever wanted it.
    pub fn expel(&mut self, entity: &str) {
        for topic in self.topics.values_mut() {
            topic.members.remove(entity);
        }
        if self.entities.remove(entity).is_some_and(|followed| followed.direct) {
            self.direct -= 1;
        }
    }

    /// Whether an entity is a member of a topic that the socket follows.
    pub fn is_member(&self, topic: &str, entity: &str) -> bool {
        self.topics.get(topic).is_some_and(|topic| topic.members.contains(entity))
    }

    /// Whether a topic was named in this request before: the rest of a long `behind` list.
    pub fn goes_on(&self, topic: &str, request: &Id) -> bool {
        self.topics.get(topic).is_some_and(|topic| topic.request == *request)
    }

    /// A cursor of these rows is owed to the client for a topic.
    pub fn owe_cursor(&mut self, topic: &str, rows: Rows) {
        if let Some(topic) = self.topics.get_mut(topic) {
            topic.cursor_due = Some(rows);
        }
    }

    /// The cursors that are owed.
    pub fn take_cursors(&mut self) -> Vec<(Arc<str>, Rows)> {
        let due = |(name, topic): (&Arc<str>, &mut Topic)| topic.cursor_due.take().map(|rows| (name.clone(), rows));
        self.topics.iter_mut().filter_map(due).collect()
    }

    fn join(&mut self, member: &Arc<str>, begun: &mut Vec<Arc<str>>) {
        match self.entities.entry(member.clone()) {
            Entry::Occupied(mut followed) => followed.get_mut().topics += 1,
            Entry::Vacant(place) => {
                place.insert(Followed { topics: 1, ..Followed::default() });
                begun.push(member.clone());
            }
        }
    }

    fn leave(&mut self, member: &str, ended: &mut Vec<Arc<str>>) {
        if let Some(followed) = self.entities.get_mut(member) {
            followed.topics = followed.topics.saturating_sub(1);
            self.drop_unwanted(member, ended);
        }
    }

    fn drop_unwanted(&mut self, entity: &str, ended: &mut Vec<Arc<str>>) {
        let unwanted = |followed: &Followed| !followed.direct && followed.topics == 0;
        if self.entities.get(entity).is_some_and(unwanted)
            && let Some((name, _)) = self.entities.remove_entry(entity)
        {
            ended.push(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<Arc<str>> {
        names.iter().map(|name| (*name).into()).collect()
    }

    fn change(add: &[&str], remove: &[&str]) -> Change {
        Change { add: names(add), remove: names(remove) }
    }

    #[test]
    fn events_wait_for_the_answer_and_go_out_once() {
        let mut following = Following::default();
        let job: Arc<str> = "job/1".into();
        assert!(!following.forward("job/1", 1), "not followed");
        following.subscribe(&job);
        assert!(!following.forward("job/1", 5), "not answered");
        following.answered("job/1", 5);
        let forwarded = [5, 6, 6, 5, 7].map(|seq| following.forward("job/1", seq));
        assert_eq!(forwarded, [false, true, false, false, true]);
    }

    #[test]
    fn a_member_is_followed_while_anyone_wants_it() {
        let mut following = Following::default();
        let (a, b): (Arc<str>, Arc<str>) = ("topic/a".into(), "topic/b".into());
        following.subscribe(&a);
        following.subscribe(&b);
        let request = Id::Number(1);
        let effect = following.set_members(&a, &request, 4, names(&["job/1"]));
        assert_eq!(effect.begun, names(&["job/1"]));
        assert_eq!(following.set_members(&b, &request, 1, names(&["job/1"])), Effect::default());
        following.subscribe(&"job/1".into());
        assert!(following.unsubscribe("job/1").is_empty());
        let leaves = change(&[], &["job/1"]);
        assert_eq!(following.change("topic/a", 4, &leaves, |_| true), None, "old news");
        assert_eq!(following.change("topic/a", 5, &leaves, |_| true), Some(Effect::default()));
        assert_eq!(following.unsubscribe("topic/b"), names(&["job/1", "topic/b"]));
        assert_eq!((following.len(), following.direct()), (1, 1));
    }

    #[test]
    fn an_event_removes_before_it_adds_and_forbidden_members_do_not_join() {
        let mut following = Following::default();
        let a: Arc<str> = "topic/a".into();
        following.subscribe(&a);
        following.set_members(&a, &Id::Number(1), 0, names(&["job/1"]));
        let effect =
            following.change("topic/a", 1, &change(&["job/1", "secret/1"], &["job/1"]), |name| name != "secret/1");
        assert_eq!(effect.unwrap(), Effect { begun: names(&["job/1"]), ended: names(&["job/1"]) });
        assert!(following.contains("job/1") && !following.contains("secret/1"));
    }

    #[test]
    fn what_was_replayed_is_named_by_three_heartbeats() {
        let mut following = Following::default();
        let job: Arc<str> = "job/1".into();
        following.subscribe(&job);
        following.answered("job/1", 5);
        following.replayed(&job);
        assert!(following.forward("job/1", 6));
        for _ in 0..HEARTBEAT_MEMORY {
            assert_eq!(following.take_replayed(), [(job.clone(), 6)]);
        }
        assert_eq!(following.take_replayed(), []);
    }
}
