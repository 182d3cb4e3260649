//! The names of entities, and the patterns that tokens allow.

use crate::limits::MAX_NAME_BYTES;

/// What a topic's entity name starts with.
pub const TOPIC_PREFIX: &str = "topic/";

/// Says what is wrong with an entity's name, if anything is.
pub fn fault(name: &str) -> Option<&'static str> {
    if name.is_empty() {
        Some("An entity's name must not be empty.")
    } else if name.len() > MAX_NAME_BYTES {
        Some("An entity's name has at most 256 bytes.")
    } else if name.chars().any(char::is_control) {
        Some("An entity's name has no control characters.")
    } else {
        None
    }
}

/// The part before the first `/`.
pub fn model(name: &str) -> &str {
    name.split('/').next().unwrap_or(name)
}

/// Whether the entity is a topic.
pub fn is_topic(name: &str) -> bool {
    name.starts_with(TOPIC_PREFIX)
}

/// FNV-1a: it spreads names, and notices a torn record.
pub fn hash(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |sum, byte| (sum ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

/// The partition of an entity, of so many. Every gateway must say the same, for ever: rows lie there.
pub fn partition(name: &str, partitions: usize) -> usize {
    let hash = hash(name.as_bytes());
    // A name's last letter moves the low bits by its own low bits only; the high ones are better mixed.
    (hash ^ (hash >> 16)) as usize % partitions.max(1)
}

/// Whether `pattern` covers `name`; a `*` stands for any run of characters, slashes too.
pub fn matches(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = name.strip_prefix(first) else { return false };
    let mut parts = parts.peekable();
    if parts.peek().is_none() {
        return rest.is_empty();
    }
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_covers_names() {
        let table = [
            ("*", "job/1", true),
            ("job/*", "job/1", true),
            ("job/*", "job/", true),
            ("job/*", "job", false),
            ("job/*", "jobs/1", false),
            ("job/1", "job/1", true),
            ("job/1", "job/12", false),
            ("job/*/log", "job/1/2/log", true),
            ("job/*/log", "job/log", false),
            ("a*b*c", "a1b2c", true),
            ("a*b*c", "a1c2b", false),
            ("", "", true),
            ("", "x", false),
        ];
        for (pattern, name, expected) in table {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn names_are_spread_over_partitions_and_stay_there() {
        assert_eq!(["", "job/1", "topic/jobs", "order/42"].map(|name| partition(name, 8)), [1, 7, 0, 1]);
        for partitions in [1, 2, 3, 8, 32] {
            for pattern in ["job/", "deployment/dep_", "load/", "order/scale-"] {
                let mut counts = vec![0; partitions];
                for number in 0..1_000 {
                    counts[partition(&format!("{pattern}{number}"), partitions)] += 1;
                }
                let fair = 1_000 / partitions;
                assert!(counts.iter().all(|count| (fair / 2..=fair * 2).contains(count)), "{pattern} {counts:?}");
            }
        }
    }

    #[test]
    fn a_model_is_what_stands_before_the_first_slash() {
        assert_eq!([model("job/42"), model("a/b/c"), model("clock")], ["job", "a", "clock"]);
    }
}
