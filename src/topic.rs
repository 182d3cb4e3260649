//! Topics and their members (R39). A topic's subscription covers its members.

use crate::entity::EntityId;
use crate::recovery::Request;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Topic {
    pub entity: EntityId,
    /// Sorted.
    pub members: Vec<EntityId>,
    /// Its `subscribe` on this socket, 0 before: answers to its members may name it.
    pub request: Request,
    /// The driver has a cursor for it, so that a resume need not name members that were live at it.
    pub cursor: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Topics {
    pub topics: Vec<Topic>,
}

impl Topics {
    pub(crate) const NONE: Topics = Topics { topics: Vec::new() };

    fn at(&self, entity: EntityId) -> Option<usize> {
        self.topics.iter().position(|topic| topic.entity == entity)
    }

    pub(crate) fn members(&self, entity: EntityId) -> &[EntityId] {
        self.at(entity).map_or(&[], |at| &self.topics[at].members)
    }

    /// The topic, noted if it is new.
    #[inline(never)]
    pub(crate) fn note(&mut self, entity: EntityId) -> &mut Topic {
        let at = self.at(entity).unwrap_or_else(|| {
            self.topics.push(Topic { entity, members: Vec::new(), request: 0, cursor: false });
            self.topics.len() - 1
        });
        &mut self.topics[at]
    }

    /// Adds a member or removes it. False if it was one already, or none.
    #[inline(never)]
    pub(crate) fn change(&mut self, entity: EntityId, member: EntityId, add: bool) -> bool {
        if !add && self.at(entity).is_none() {
            return false;
        }
        let members = &mut self.note(entity).members;
        match members.binary_search(&member) {
            Ok(at) if !add => {
                members.remove(at);
            }
            Err(at) if add => members.insert(at, member),
            _ => return false,
        }
        true
    }

    /// Forgets a topic; its members are handed back.
    pub(crate) fn take(&mut self, entity: EntityId) -> Vec<EntityId> {
        self.at(entity).map_or(Vec::new(), |at| self.topics.swap_remove(at).members)
    }

    /// A topic that `member` is in.
    pub(crate) fn of(&self, member: EntityId) -> Option<EntityId> {
        self.topics.iter().find(|topic| topic.members.binary_search(&member).is_ok()).map(|topic| topic.entity)
    }
}

#[cfg(test)]
mod tests {
    use super::Topics;
    use crate::entity::EntityId;

    const TOPIC: EntityId = EntityId(7);

    #[test]
    fn a_member_is_in_once_and_out_once() {
        let mut topics = Topics::NONE;
        assert!(!topics.change(TOPIC, EntityId(3), false), "nobody is in a topic that nobody noted");
        assert!(topics.topics.is_empty());
        for member in [5, 3, 4] {
            assert!(topics.change(TOPIC, EntityId(member), true));
            assert!(!topics.change(TOPIC, EntityId(member), true), "{member} is in already");
        }
        assert_eq!(topics.members(TOPIC), [3, 4, 5].map(EntityId));
        assert!(topics.change(TOPIC, EntityId(4), false));
        assert!(!topics.change(TOPIC, EntityId(4), false), "4 is out already");
        assert_eq!(topics.members(TOPIC), [3, 5].map(EntityId));
    }

    #[test]
    fn a_member_knows_its_topic_until_that_is_forgotten() {
        let mut topics = Topics::NONE;
        topics.change(EntityId(8), EntityId(1), true);
        topics.change(TOPIC, EntityId(3), true);
        assert_eq!((topics.of(EntityId(3)), topics.of(EntityId(2))), (Some(TOPIC), None));
        assert_eq!(topics.take(TOPIC), [EntityId(3)]);
        assert_eq!((topics.of(EntityId(3)), topics.take(TOPIC)), (None, Vec::new()));
        assert_eq!(topics.members(EntityId(8)), [EntityId(1)]);
    }
}
