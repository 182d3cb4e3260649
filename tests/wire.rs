//! The frames of `inorder.v1.json`: what goes out, what comes in, what is refused.
#![cfg(feature = "wire")]

use inorder::wire::*;

fn data(text: &str) -> Data {
    Data::from_text(text.to_owned()).expect("the test's own JSON")
}

fn server(text: &str) -> Result<Received<ServerFrame>, DecodeError> {
    let mut frames = ServerFrame::decode(text);
    assert_eq!(frames.len(), 1, "{text}");
    frames.remove(0)
}

fn client(text: &str) -> Result<Received<ClientFrame>, DecodeError> {
    let mut frames = ClientFrame::decode(text);
    assert_eq!(frames.len(), 1, "{text}");
    frames.remove(0)
}

/// Every type and field, as text; reading it and writing it again gives the same text.
#[test]
fn server_frames_survive_reading_and_writing() {
    let table = [
        r#"{"type":"welcome","heartbeat":15.0,"can":["replay","snapshot","heads"]}"#,
        r#"{"type":"welcome","can":[]}"#,
        r#"{"type":"event","entity":"job/1","epoch":"e","seq":3,"prev":2,"id":"x","status":"running","at":1700000000000,"data":{"a": [1, null]}}"#,
        r#"{"type":"event","entity":"job/1","epoch":"e","seq":9,"first":4}"#,
        r#"{"type":"event","entity":"job/1","epoch":"","data":null}"#,
        r#"{"type":"snapshot","entity":"job/1","epoch":"e","seq":0,"data":null}"#,
        r#"{"type":"snapshot","entity":"job/1","epoch":"e","seq":7,"status":"live","at":"now","data":{},"request":"r","part":1,"of":2}"#,
        r#"{"type":"subscribed","request":1,"entity":"topic/a","epoch":"e","head":5,"cursor":"77"}"#,
        r#"{"type":"replay","request":"r","entity":"job/1","epoch":"e","events":[{"seq":1,"id":"a","status":"queued","at":1,"data":1},{"seq":4,"prev":1},{"seq":6,"first":5}],"vacant":[[7,9]],"done":true}"#,
        r#"{"type":"gone","request":1,"entity":"job/1","epoch":"e","oldest":5}"#,
        r#"{"type":"ahead","request":1,"entity":"job/1","epoch":"e","head":5}"#,
        r#"{"type":"vacant","entity":"job/1","epoch":"e","from":1,"to":5}"#,
        r#"{"type":"final","request":1,"entity":"job/1","epoch":"e","status":"failed","data":{}}"#,
        r#"{"type":"discontinuity","entity":"job/1","reason":"lost"}"#,
        r#"{"type":"heartbeat","heads":[["job/1","e",5]],"cursors":[["topic/a","77"]]}"#,
        r#"{"type":"heads","heads":[],"request":1}"#,
        r#"{"type":"pong","id":"p"}"#,
        r#"{"type":"error","code":"forbidden","message":"No.","request":1,"entity":"job/1","retryAfter":2.5}"#,
        r#"{"type":"goodbye","reason":"restart","retryAfter":1.0}"#,
    ];
    for text in table {
        let frame = server(text).expect(text).frame.expect(text);
        assert_eq!(serde_json::to_string(&frame).unwrap(), text);
    }
}

#[test]
fn client_frames_survive_reading_and_writing() {
    let table = [
        r#"{"type":"hello","token":"t","client":"page/1"}"#,
        r#"{"type":"auth","token":"t"}"#,
        r#"{"type":"subscribe","request":1,"entities":[{"entity":"job/1"},{"entity":"topic/a","epoch":"e","after":4,"params":{"depth":5},"cursor":"77","behind":[["job/2","e",3],["job/3",null,null]]}]}"#,
        r#"{"type":"unsubscribe","entities":["job/1"]}"#,
        r#"{"type":"replay","request":1,"ranges":[{"entity":"job/1","epoch":"e","from":12},{"entity":"job/2","epoch":"e","from":1,"to":2}]}"#,
        r#"{"type":"snapshot","request":1,"entities":["job/1"]}"#,
        r#"{"type":"heads","request":1,"entities":["job/1"]}"#,
        r#"{"type":"ping","id":3}"#,
    ];
    for text in table {
        let frame = client(text).expect(text).frame.expect(text);
        assert_eq!(serde_json::to_string(&frame).unwrap(), text);
    }
}

/// R11: what a number may look like.
#[test]
fn r11_a_seq_is_an_integer_up_to_2_53_minus_1_as_a_number_or_a_decimal_string() {
    let table: [(&str, Option<u64>); 16] = [
        ("0", Some(0)),
        ("7", Some(7)),
        ("\"7\"", Some(7)),
        ("7.0", Some(7)),
        ("7e0", Some(7)),
        ("9007199254740991", Some(MAX_SEQ)),
        ("\"9007199254740991\"", Some(MAX_SEQ)),
        ("9007199254740992", None),
        ("\"9007199254740992\"", None),
        ("-1", None),
        ("1.5", None),
        ("1e300", None),
        ("\"\"", None),
        ("\"+7\"", None),
        ("\" 7\"", None),
        ("true", None),
    ];
    for (number, expected) in table {
        let text = format!(r#"{{"type":"event","entity":"job/1","epoch":"e","seq":{number}}}"#);
        match (server(&text), expected) {
            (Ok(Received { frame: Some(ServerFrame::Event(event)), .. }), Some(seq)) => {
                assert_eq!(event.seq, Some(seq), "{number}");
            }
            (Err(DecodeError::Field { field: "seq", .. }), None) => {}
            (got, _) => panic!("{number}: {got:?}"),
        }
    }
}

#[test]
fn unknown_types_and_fields_are_passed_over() {
    let received = server(r#"{"type":"tomorrow","n":4,"x":{}}"#).unwrap();
    assert_eq!(received, Received { n: Some(4), frame: None });
    let received = server(r#"{"later":1,"n":"5","id":"p","type":"pong"}"#).unwrap();
    assert_eq!(received.n, Some(5));
    assert_eq!(received.frame, Some(ServerFrame::Pong(Pong { id: "p".into() })));
    assert!(client(r#"{"type":"welcome"}"#).unwrap().frame.is_none(), "a server's word means nothing from a client");
}

#[test]
fn what_can_not_be_read_says_why() {
    let table = [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("7", "neither"),
        ("\"event\"", "neither"),
        ("null", "neither"),
        ("{}", "no `type`"),
        (r#"{"type":7}"#, "no `type`"),
        (r#"{"type":null}"#, "no `type`"),
        ("[[]]", "neither"),
        (r#"[[{"type":"pong","id":1}]]"#, "neither"),
        (r#"{"type":"pong"}"#, "no `id`"),
        (r#"{"type":"event","epoch":"e","seq":1}"#, "no `entity`"),
        (r#"{"type":"event","entity":7,"epoch":"e","seq":1}"#, "`entity` of the `event`"),
        (r#"{"type":"snapshot","entity":"a","epoch":"e","seq":1}"#, "no `data`"),
        (r#"{"type":"replay","request":1,"entity":"a","events":[7],"done":true}"#, "must be an object"),
        (r#"{"type":"replay","request":1,"entity":"a","events":[{"seq":-1}],"done":true}"#, "`seq` of the `replay`"),
        (r#"{"type":"heartbeat","heads":[["a","e",-1]]}"#, "`heads` of the `heartbeat`"),
        (r#"{"type":"event","entity":"a","seq":-1}"#, "expected an integer from 0 to 2^53 - 1"),
    ];
    for (text, part) in table {
        let error = server(text).expect_err(text).to_string();
        assert!(error.contains(part), "{text}: {error}");
        assert!(error.ends_with('.'), "{error}");
    }
}

#[test]
fn one_bad_frame_of_a_batch_leaves_the_others() {
    let frames = ServerFrame::decode(r#" [{"type":"pong","id":1}, {"id":2}, [], {"type":"pong","id":3}]"#);
    let good: Vec<bool> = frames.iter().map(Result::is_ok).collect();
    assert_eq!(good, [true, false, false, true]);
    assert!(ServerFrame::decode("[]").is_empty());
}

#[test]
fn of_duplicate_keys_the_last_one_counts() {
    let received = server(r#"{"type":"error","type":"pong","id":1,"id":2}"#).unwrap();
    assert_eq!(received.frame, Some(ServerFrame::Pong(Pong { id: 2.into() })));
}

#[test]
fn null_is_absence_except_as_data() {
    let text = r#"{"type":"event","entity":"a","epoch":null,"seq":1,"prev":null,"status":null,"data":null}"#;
    let Some(ServerFrame::Event(event)) = server(text).unwrap().frame else { panic!("{text}") };
    assert_eq!((event.epoch.as_str(), event.prev, event.status), ("", None, None));
    assert_eq!(event.data, Some(data("null")));
}

#[test]
fn payloads_keep_their_text() {
    let text =
        r#"{"type":"event","entity":"a","epoch":"e","seq":1,"data":{"big":12345678901234567890.10, "z":1,"a":2}}"#;
    let Some(ServerFrame::Event(event)) = server(text).unwrap().frame else { panic!("{text}") };
    assert_eq!(event.data, Some(data(r#"{"big":12345678901234567890.10, "z":1,"a":2}"#)));
}

/// Data is its text: compared, hashed and printed as it came.
#[test]
fn data_is_its_text() {
    let hash = |data: &Data| std::hash::BuildHasher::hash_one(&std::hash::BuildHasherDefault::<Sum>::default(), data);
    let [one, other] = [r#"{"a": 1}"#, r#"{"a":1}"#].map(data);
    assert_eq!((one.text(), format!("{one:?}")), (r#"{"a": 1}"#, r#"{"a": 1}"#.to_owned()));
    assert_ne!(one, other);
    assert_ne!(hash(&one), hash(&other));
    assert_eq!(hash(&one), hash(&one.clone()));
}

/// Adds bytes up.
#[derive(Default)]
struct Sum(u64);

impl std::hash::Hasher for Sum {
    fn write(&mut self, bytes: &[u8]) {
        self.0 += bytes.iter().map(|&byte| u64::from(byte)).sum::<u64>();
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
