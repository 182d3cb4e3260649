//! Commands as a list of numbers; the facade writes them as JSON.

use super::numbers::NONE;
use crate::client::{Command, EntityId, Position};

/// Writes a command's numbers into `list` and returns its kind and its request or ping id.
///
/// `subscribe`, for each entity: entity, epoch or −1, seq, whether to add the cursor, how many are behind, then for
/// each of those entity, epoch or −1, seq. `replay`, for each range: entity, epoch, from, to or −1. Others: entities.
pub(super) fn flatten(command: &Command, list: &mut Vec<f64>) -> (u8, u32) {
    list.clear();
    match command {
        Command::Hello => (0, 0),
        Command::Auth => (1, 0),
        Command::Subscribe { request, entities } => {
            for resume in entities {
                place(list, resume.entity, resume.position);
                list.push(f64::from(u8::from(resume.cursor)));
                list.push(resume.behind.len() as f64);
                resume.behind.iter().for_each(|&(member, position)| place(list, member, position));
            }
            (2, *request)
        }
        Command::Unsubscribe { entities } => (3, names(list, entities, 0)),
        Command::Replay { request, ranges } => {
            for range in ranges {
                list.extend([
                    f64::from(range.entity.0),
                    f64::from(range.epoch.0),
                    range.from as f64,
                    range.to.map_or(NONE, |to| to as f64),
                ]);
            }
            (4, *request)
        }
        Command::Snapshot { request, entities } => (5, names(list, entities, *request)),
        Command::Heads { request, entities } => (6, names(list, entities, *request)),
        Command::Ping { id } => (7, *id),
    }
}

fn names(list: &mut Vec<f64>, entities: &[EntityId], request: u32) -> u32 {
    list.extend(entities.iter().map(|entity| f64::from(entity.0)));
    request
}

fn place(list: &mut Vec<f64>, entity: EntityId, position: Option<Position>) {
    list.push(f64::from(entity.0));
    list.push(position.map_or(NONE, |position| f64::from(position.epoch.0)));
    list.push(position.map_or(NONE, |position| position.seq as f64));
}
