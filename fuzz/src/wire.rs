//! The frames of `inorder.v1.json` against a naive reader.

use inorder::wire::{ClientFrame, MAX_SEQ, Received, ServerFrame};
use serde_json::Value;

/// Reads each line as a message of either side, twice.
pub fn check(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    for line in text.lines() {
        let server = ServerFrame::decode(line);
        check_shape(line, &server);
        for frame in server.into_iter().flatten().filter_map(|received| received.frame) {
            let written = serde_json::to_string(&frame).expect("frames can be written");
            let again = ServerFrame::decode(&written);
            assert!(matches!(&again[..], [Ok(Received { frame: Some(again), .. })] if *again == frame), "{written}");
            check_numbers(&written);
        }
        let client = ClientFrame::decode(line);
        check_shape(line, &client);
        for frame in client.into_iter().flatten().filter_map(|received| received.frame) {
            let written = serde_json::to_string(&frame).expect("frames can be written");
            let again = ClientFrame::decode(&written);
            assert!(matches!(&again[..], [Ok(Received { frame: Some(again), .. })] if *again == frame), "{written}");
            check_numbers(&written);
        }
    }
}

/// As many answers as frames; one without a `type` that is a string is bad, one of an unknown type is passed over.
fn check_shape<F, E>(line: &str, read: &[Result<Received<F>, E>]) {
    let frames = match serde_json::from_str(line) {
        Ok(Value::Array(list)) => list,
        Ok(one) => vec![one],
        // What a `Value` can't hold, a number of 400 digits say, may still be carried unread.
        Err(_) => return,
    };
    assert_eq!(frames.len(), read.len(), "{line}");
    for (frame, read) in frames.iter().zip(read) {
        match frame.get("type") {
            Some(Value::String(kind)) if KNOWN.contains(&kind.as_str()) => {}
            Some(Value::String(_)) => assert!(!matches!(read, Ok(Received { frame: Some(_), .. })), "{line}"),
            _ => assert!(read.is_err(), "{line}"),
        }
    }
}

const KNOWN: [&str; 20] = [
    "welcome",
    "event",
    "snapshot",
    "subscribed",
    "replay",
    "gone",
    "ahead",
    "vacant",
    "final",
    "discontinuity",
    "heartbeat",
    "heads",
    "pong",
    "error",
    "goodbye",
    "hello",
    "auth",
    "subscribe",
    "unsubscribe",
    "ping",
];

/// Every number of a position that was let in is one that JavaScript holds exactly (R11).
fn check_numbers(written: &str) {
    let Ok(frame) = serde_json::from_str::<Value>(written) else { return };
    for key in ["seq", "prev", "first", "head", "oldest", "from", "to", "n"] {
        if let Some(number) = frame.get(key) {
            assert!(number.as_u64().is_some_and(|number| number <= MAX_SEQ), "{key} of {written}");
        }
    }
}
