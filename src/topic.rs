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
