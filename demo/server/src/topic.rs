//! Topics (R39): entities whose state is a set of names and whose events add and remove.

use std::sync::Arc;

use serde::Deserialize;

use crate::limits::MAX_TOPIC_CHANGE;
use crate::name;

/// What one event of a topic does to its members: first `remove`, then `add`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Change {
    /// Names that join.
    #[serde(default)]
    pub add: Vec<Arc<str>>,
    /// Names that leave.
    #[serde(default)]
    pub remove: Vec<Arc<str>>,
}

impl Change {
    /// Reads the data of a topic's event; an event without data changes nothing.
    ///
    /// # Errors
    /// A sentence that says what is wrong.
    pub fn read(data: Option<&str>) -> Result<Change, String> {
        let Some(data) = data else { return Ok(Change::default()) };
        let shape = || r#"A topic's data is {"add": [names], "remove": [names]}."#.to_owned();
        // An array would be read as the fields in order.
        let object = data.trim_start().starts_with('{');
        let change: Change = serde_json::from_str(data).ok().filter(|_| object).ok_or_else(shape)?;
        if change.add.len() + change.remove.len() > MAX_TOPIC_CHANGE {
            return Err(format!("One event of a topic names at most {MAX_TOPIC_CHANGE} entities."));
        }
        for member in change.add.iter().chain(&change.remove) {
            if let Some(fault) = name::fault(member) {
                return Err(fault.to_owned());
            }
            if name::is_topic(member) {
                return Err("A topic can't be a member of a topic.".to_owned());
            }
        }
        Ok(change)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topics_data_adds_and_removes_names() {
        let table = [
            (None, true),
            (Some(r#"{"add":["job/1"],"remove":["job/2"]}"#), true),
            (Some("{}"), true),
            (Some("null"), false),
            (Some("[]"), false),
            (Some(r#"{"add":"job/1"}"#), false),
            (Some(r#"{"add":[""]}"#), false),
            (Some(r#"{"add":["topic/a"]}"#), false),
        ];
        for (data, good) in table {
            assert_eq!(Change::read(data).is_ok(), good, "{data:?}");
        }
    }
}
