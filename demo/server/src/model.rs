//! What the gateway knows about each model: how its state is made, and when it is final.

use std::collections::HashMap;

use inorder::wire::{Data, DecodeError};
use serde_json::{Map, Value};

use crate::name;

/// How an entity's state comes from its events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduce {
    /// Each event's data is merged into the state (RFC 7396).
    Merge,
    /// Each event's data is the whole state.
    Replace,
}

impl Reduce {
    /// Makes the state after an event from the state before it.
    ///
    /// # Errors
    /// When the event's data can't be used: nested too deep, say.
    pub fn apply(self, state: &mut Value, data: &Data) -> Result<(), DecodeError> {
        let patch = data.parse()?;
        match self {
            Reduce::Merge => merge(state, patch),
            Reduce::Replace => *state = patch,
        }
        Ok(())
    }
}

/// The rules of one model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Model {
    /// How the state is made.
    pub reduce: Reduce,
    /// The statuses after which nothing may change (G5).
    pub terminal: Vec<String>,
    /// Whether changes are taken after a terminal status all the same (G5).
    pub reopen: bool,
}

impl Default for Model {
    fn default() -> Self {
        let terminal = ["completed", "failed", "cancelled"].map(str::to_owned).to_vec();
        Model { reduce: Reduce::Merge, terminal, reopen: false }
    }
}

/// The rules of all models.
#[derive(Clone, Debug)]
pub struct Models {
    by_name: HashMap<String, Model>,
    default: Model,
}

impl Default for Models {
    fn default() -> Self {
        let mut models = Models { by_name: HashMap::new(), default: Model::default() };
        // A failed deployment may be retried by hand; a live one is done.
        models.of_mut("deployment").terminal = vec!["live".to_owned()];
        models
    }
}

impl Models {
    /// The rules of the model that an entity belongs to.
    pub fn of(&self, entity: &str) -> &Model {
        self.by_name.get(name::model(entity)).unwrap_or(&self.default)
    }

    /// The rules of a model, to be changed at start.
    pub fn of_mut(&mut self, model: &str) -> &mut Model {
        let default = &self.default;
        self.by_name.entry(model.to_owned()).or_insert_with(|| default.clone())
    }
}

impl Model {
    /// Whether an entity of this status takes no more changes.
    pub fn is_closed(&self, status: Option<&str>) -> bool {
        !self.reopen && status.is_some_and(|status| self.terminal.iter().any(|terminal| terminal == status))
    }
}

/// Merges `patch` into `state` as RFC 7396 says.
fn merge(state: &mut Value, patch: Value) {
    let Value::Object(patch) = patch else {
        *state = patch;
        return;
    };
    if !state.is_object() {
        *state = Value::Object(Map::new());
    }
    if let Value::Object(target) = state {
        for (key, value) in patch {
            if value.is_null() {
                target.remove(&key);
            } else {
                merge(target.entry(key).or_insert(Value::Null), value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The test cases of RFC 7396, appendix A.
    #[test]
    fn merge_is_rfc_7396() {
        let table = [
            (r#"{"a":"b"}"#, r#"{"a":"c"}"#, r#"{"a":"c"}"#),
            (r#"{"a":"b"}"#, r#"{"b":"c"}"#, r#"{"a":"b","b":"c"}"#),
            (r#"{"a":"b"}"#, r#"{"a":null}"#, r"{}"),
            (r#"{"a":"b","b":"c"}"#, r#"{"a":null}"#, r#"{"b":"c"}"#),
            (r#"{"a":["b"]}"#, r#"{"a":"c"}"#, r#"{"a":"c"}"#),
            (r#"{"a":"c"}"#, r#"{"a":["b"]}"#, r#"{"a":["b"]}"#),
            (r#"{"a":{"b":"c"}}"#, r#"{"a":{"b":"d","c":null}}"#, r#"{"a":{"b":"d"}}"#),
            (r#"{"a":[{"b":"c"}]}"#, r#"{"a":[1]}"#, r#"{"a":[1]}"#),
            (r#"["a","b"]"#, r#"["c","d"]"#, r#"["c","d"]"#),
            (r#"{"a":"b"}"#, r#"["c"]"#, r#"["c"]"#),
            (r#"{"a":"foo"}"#, "null", "null"),
            (r#"{"a":"foo"}"#, r#""bar""#, r#""bar""#),
            (r#"{"e":null}"#, r#"{"a":1}"#, r#"{"e":null,"a":1}"#),
            ("[1,2]", r#"{"a":"b","c":null}"#, r#"{"a":"b"}"#),
            ("{}", r#"{"a":{"bb":{"ccc":null}}}"#, r#"{"a":{"bb":{}}}"#),
        ];
        for (state, patch, expected) in table {
            let mut state: Value = serde_json::from_str(state).unwrap();
            merge(&mut state, serde_json::from_str(patch).unwrap());
            assert_eq!(state, serde_json::from_str::<Value>(expected).unwrap(), "{patch}");
        }
    }

    #[test]
    fn a_failed_deployment_may_go_on_and_a_failed_job_may_not() {
        let models = Models::default();
        let table = [
            ("job/1", "failed", true),
            ("job/1", "running", false),
            ("deployment/dep_302", "failed", false),
            ("deployment/dep_302", "live", true),
            ("anything", "cancelled", true),
        ];
        for (entity, status, closed) in table {
            assert_eq!(models.of(entity).is_closed(Some(status)), closed, "{entity} {status}");
        }
    }
}
