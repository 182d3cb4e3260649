//! Topics and their members (R39). A topic's subscription covers its members.

use crate::entity::EntityId;
use crate::recovery::Request;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Topic {
    pub entity: EntityId,
    /// Sorted.
    members: Vec<EntityId>,
    /// Its `subscribe` on this socket, 0 before: answers to its members may name it.
    pub request: Request,
    /// The driver has a cursor for it, so that a resume need not name members that were live at it.
    pub cursor: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Topics {
    topics: Vec<Topic>,
}

impl Topics {
    pub(crate) fn get(&self, entity: EntityId) -> Option<&Topic> {
        self.topics.iter().find(|topic| topic.entity == entity)
    }

    pub(crate) fn members(&self, entity: EntityId) -> &[EntityId] {
        self.get(entity).map_or(&[], |topic| &topic.members)
    }

    /// The topic, noted if it is new.
    pub(crate) fn note(&mut self, entity: EntityId) -> &mut Topic {
        let at = self.topics.iter().position(|topic| topic.entity == entity).unwrap_or_else(|| {
            self.topics.push(Topic { entity, members: Vec::new(), request: 0, cursor: false });
            self.topics.len() - 1
        });
        &mut self.topics[at]
    }

    /// The socket ended, and its requests with it.
    pub(crate) fn disconnect(&mut self) {
        self.topics.iter_mut().for_each(|topic| topic.request = 0);
    }

    pub(crate) fn forget_cursors(&mut self) {
        self.topics.iter_mut().for_each(|topic| topic.cursor = false);
    }

    /// False if it was a member already.
    pub(crate) fn add(&mut self, entity: EntityId, member: EntityId) -> bool {
        let members = &mut self.note(entity).members;
        match members.binary_search(&member) {
            Ok(_) => false,
            Err(place) => {
                members.insert(place, member);
                true
            }
        }
    }

    /// False if it was no member.
    pub(crate) fn remove(&mut self, entity: EntityId, member: EntityId) -> bool {
        let Some(topic) = self.topics.iter_mut().find(|topic| topic.entity == entity) else {
            return false;
        };
        match topic.members.binary_search(&member) {
            Ok(place) => {
                topic.members.remove(place);
                true
            }
            Err(_) => false,
        }
    }

    /// Forgets a topic; its members are handed back.
    pub(crate) fn take(&mut self, entity: EntityId) -> Vec<EntityId> {
        match self.topics.iter().position(|topic| topic.entity == entity) {
            Some(at) => self.topics.swap_remove(at).members,
            None => Vec::new(),
        }
    }

    /// The topics that `member` is in.
    pub(crate) fn of(&self, member: EntityId) -> impl Iterator<Item = EntityId> + use<'_> {
        self.topics.iter().filter(move |topic| topic.members.binary_search(&member).is_ok()).map(|topic| topic.entity)
    }
}
